use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader, Seek, SeekFrom, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use super::*;

fn commit(number: u64) -> Commit {
    let mut commit = Commit::default();
    commit.put(Keyspace::Messages, number.to_be_bytes().to_vec(), vec![number as u8; 300]);
    commit
}

fn open(dir: &TempDir) -> Durable {
    Durable::open(dir.path(), Options::default()).expect("a store")
}

fn apply_and_sync(store: &mut Durable, numbers: Range<u64>) {
    for number in numbers {
        store.apply(&[commit(number)]).expect("applied");
        store.sync().expect("synced");
    }
}

fn new() -> TempDir {
    tempfile::tempdir().expect("a folder")
}

/// A folder with ten synced commits, closed.
fn with_ten_steps() -> TempDir {
    let dir = new();
    apply_and_sync(&mut open(&dir), 0..10);
    dir
}

fn count(store: &Durable) -> usize {
    store.scan(Keyspace::Messages, vec![]..vec![0xff; 9]).filter(Result::is_ok).count()
}

fn error_of(dir: &Path) -> StoreError {
    match Durable::open(dir, Options::default()) {
        Ok(_) => panic!("the store opened"),
        Err(error) => error,
    }
}

/// Opening fails as damaged, says `what`, and leaves the journals alone.
fn is_refused(dir: &TempDir, what: &str) {
    let journals = || {
        let mut journals = Vec::new();
        for path in journals_of(dir) {
            journals.push(fs::read(path).expect("a journal"));
        }
        journals
    };
    let before = journals();
    for _ in 0..2 {
        match error_of(dir.path()) {
            StoreError::Corrupt(message) => {
                assert!(message.contains(what), "{message}");
                assert!(message.contains("estore the data folder from a backup"), "{message}");
            }
            error => panic!("{error}"),
        }
    }
    assert!(journals() == before, "a journal was changed");
}

fn journals_of(dir: &TempDir) -> Vec<PathBuf> {
    let mut journals = journal::list(&dir.path().join("database")).expect("journals");
    journals.drain(..).map(|(_, path)| path).collect()
}

fn overwrite(path: &Path, at: u64, bytes: &[u8]) {
    let mut file = OpenOptions::new().write(true).open(path).expect("a file");
    file.seek(SeekFrom::Start(at)).expect("a place");
    file.write_all(bytes).expect("written");
}

/// Where the batch of this step begins in the journal.
fn find_step(journal: &Path, step: u64) -> u64 {
    let bytes = fs::read(journal).expect("a journal");
    let row = [STEP, &step.to_be_bytes()].concat();
    let found = bytes.windows(row.len()).position(|window| window == row).expect("the step");
    found as u64 - 34
}

/// The folder and all in it are closed to other users, also where it was open before.
#[cfg(unix)]
#[test]
fn the_folder_is_private() {
    use std::os::unix::fs::PermissionsExt;
    let parent = new();
    let dir = parent.path().join("deep/data");
    for _ in 0..2 {
        drop(Durable::open(&dir, Options::default()).expect("a store"));
        let mode = fs::metadata(&dir).expect("a folder").permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o755)).expect("opened up");
    }
}

/// A folder of another format is refused, and so is one that says none.
#[test]
fn another_format_is_refused() {
    let dir = with_ten_steps();
    let format = dir.path().join("format");
    assert_eq!(fs::read_to_string(&format).expect("a format"), format!("{FORMAT}\n"));
    fs::write(&format, "7\n").expect("written");
    assert!(matches!(error_of(dir.path()), StoreError::Format { found: 7, expected: FORMAT }));
    fs::write(&format, "one").expect("written");
    is_refused_without_advice(&dir, "holds no number");
    fs::remove_file(&format).expect("removed");
    is_refused_without_advice(&dir, "no file `format`");
    fs::write(&format, format!("{FORMAT}\n")).expect("written");
    assert_eq!(count(&open(&dir)), 10);
}

fn is_refused_without_advice(dir: &TempDir, what: &str) {
    match error_of(dir.path()) {
        StoreError::Corrupt(message) => assert!(message.contains(what), "{message}"),
        error => panic!("{error}"),
    }
}

/// A second store in the same process is refused, until the first is gone.
#[test]
fn a_folder_has_one_store() {
    let dir = new();
    let store = open(&dir);
    assert!(matches!(error_of(dir.path()), StoreError::InUse));
    drop(store);
    open(&dir);
}

const CHILD_DIR: &str = "REPRISE_TEST_STORE_DIR";

/// Not a test of its own: the process that is killed.
#[test]
#[ignore = "run by another test"]
fn child_that_is_killed() {
    let Some(dir) = std::env::var_os(CHILD_DIR) else { return };
    let mut store = Durable::open(Path::new(&dir), Options::default()).expect("a store");
    for number in 0..20 {
        store.apply(&[commit(number)]).expect("applied");
    }
    writeln!(std::io::stderr(), "applied").expect("said");
    std::io::stdin().read_line(&mut String::new()).expect("no answer");
}

fn start_child(dir: &Path) -> Child {
    let test = "store::durable::tests::child_that_is_killed";
    let mut child = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", test, "--ignored", "--nocapture"])
        .env(CHILD_DIR, dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("a child");
    let stderr = child.stderr.take().expect("piped");
    let said = BufReader::new(stderr).lines().map_while(Result::ok).any(|line| line == "applied");
    assert!(said, "the child failed");
    child
}

/// A process that is killed has lost nothing that it applied, though it never synced; until then the folder
/// is its own.
#[test]
fn a_killed_process_keeps_what_it_applied() {
    let dir = new();
    let mut child = start_child(dir.path());
    assert!(matches!(error_of(dir.path()), StoreError::InUse));
    child.kill().expect("killed");
    child.wait().expect("ended");
    assert_eq!(count(&open(&dir)), 20);
}

/// Once anything failed, nothing is accepted and nothing is read.
#[test]
fn a_failure_is_final() {
    let dir = new();
    let mut store = open(&dir);
    apply_and_sync(&mut store, 0..1);
    store.failed = true;
    let refused = |result: Result<(), StoreError>| assert!(matches!(result, Err(StoreError::Io(_))));
    refused(store.apply(&[commit(1)]));
    refused(store.sync());
    refused(store.get(Keyspace::Messages, &[0]).map(drop));
    refused(store.scan(Keyspace::Messages, vec![]..vec![9]).next().expect("an answer").map(drop));
    refused(store.scan_back(Keyspace::Messages, vec![]..vec![9]).next().expect("an answer").map(drop));
}

/// A batch that a crash cut short was never synced: it goes, the rest stays, the store goes on.
#[test]
fn a_torn_batch_that_was_not_synced_is_dropped() {
    let dir = with_ten_steps();
    let mark = fs::read(dir.path().join("synced")).expect("a mark");
    open(&dir).apply(&[commit(10)]).expect("applied");
    // As a power cut would leave it.
    fs::write(dir.path().join("synced"), mark).expect("written");
    let journal = journals_of(&dir).pop().expect("a journal");
    let file = OpenOptions::new().write(true).open(&journal).expect("a file");
    file.set_len(find_step(&journal, 11) + 200).expect("cut");

    let mut store = open(&dir);
    assert_eq!(count(&store), 10);
    apply_and_sync(&mut store, 10..12);
    drop(store);
    assert_eq!(count(&open(&dir)), 12);
}

/// A batch that was synced and is damaged, at the end or in the middle, in any of its parts, is not passed over.
#[test]
fn a_damaged_journal_is_refused() {
    for step in [5, 10] {
        // Tag, number of items; tag, kind, compression, keyspace and lengths of the first item, its key and value;
        // a value of the second; tag, checksum and trailer of the end.
        for offset in [0, 1, 13, 14, 15, 16, 24, 26, 30, 34, 45, 100, 375, 380, 387] {
            let dir = with_ten_steps();
            damage(&dir, step, offset);
            is_refused(&dir, "");
        }
    }
    // Its sequence, which no checksum covers, must grow.
    let dir = with_ten_steps();
    damage(&dir, 5, 5);
    is_refused(&dir, "steps 6 to 10 were synced");
}

/// Where no journal holds a readable batch, the tables say what is missing.
#[test]
fn a_journal_that_is_damaged_at_its_start_is_refused() {
    let dir = with_ten_steps();
    damage(&dir, 1, 0);
    for _ in 0..2 {
        let message = error_of(dir.path()).to_string();
        assert!(message.contains("steps 1 to 10 were synced"), "{message}");
    }
}

/// Flips a bit so many bytes after the start of a step.
fn damage(dir: &TempDir, step: u64, offset: u64) {
    let journal = journals_of(dir).pop().expect("a journal");
    damage_at(&journal, find_step(&journal, step) + offset);
}

fn damage_at(journal: &Path, at: u64) {
    let byte = fs::read(journal).expect("a journal")[at as usize];
    overwrite(journal, at, &[byte ^ 0x40]);
}

/// A journal that ends before what was synced is refused, until an operator accepts the loss.
#[test]
fn a_lost_tail_is_refused_until_accepted() {
    let dir = with_ten_steps();
    let journal = journals_of(&dir).pop().expect("a journal");
    let file = OpenOptions::new().write(true).open(&journal).expect("a file");
    file.set_len(find_step(&journal, 8)).expect("cut");
    is_refused(&dir, "steps 8 to 10 were synced");

    fs::remove_file(dir.path().join("synced")).expect("removed");
    let mut store = open(&dir);
    assert_eq!(count(&store), 7);
    apply_and_sync(&mut store, 20..23);
    drop(store);
    assert_eq!(count(&open(&dir)), 10);
}

/// A database that is gone, or one of its keyspaces, is not replaced by an empty one.
#[test]
fn a_lost_database_is_refused() {
    let dir = with_ten_steps();
    let keyspace = open(&dir).keyspaces[Keyspace::Messages as usize].path().to_owned();
    fs::remove_file(keyspace.join("current")).expect("removed");
    is_refused(&dir, "keyspace messages is missing");

    fs::remove_dir_all(dir.path().join("database")).expect("removed");
    let message = error_of(dir.path()).to_string();
    assert!(message.contains("is missing"), "{message}");
}

/// A damaged file `synced` is not taken for one that promises less.
#[test]
fn a_damaged_mark_is_refused() {
    for at in [0, 8, 23] {
        let dir = with_ten_steps();
        overwrite(&dir.path().join("synced"), at, &[0xff]);
        is_refused(&dir, "synced is unreadable");
    }
    let dir = with_ten_steps();
    fs::write(dir.path().join("synced"), "").expect("written");
    is_refused(&dir, "synced is unreadable");
}

/// After a power cut the mark may be behind the database. That is no damage.
#[test]
fn a_mark_that_is_behind_is_fine() {
    let dir = with_ten_steps();
    let old = fs::read(dir.path().join("synced")).expect("a mark");
    apply_and_sync(&mut open(&dir), 10..20);
    fs::write(dir.path().join("synced"), old).expect("written");
    assert_eq!(count(&open(&dir)), 20);
}

/// Steps that are missing from a sealed journal are not made up for by the later ones in the next.
#[test]
fn a_gap_between_journals_is_refused() {
    let (dir, journals) = with_sealed_journals();
    let sealed = fs::read(&journals[0]).expect("a journal");
    let start = find_step(&journals[0], 5);
    damage_at(&journals[0], start);
    is_refused(&dir, "is damaged at byte");

    fs::write(&journals[0], &sealed).expect("written");
    let last = fs::read(&journals[1]).expect("a journal");
    fs::write(&journals[1], "").expect("written");
    is_refused(&dir, "were synced and the journal no longer holds them");

    fs::write(&journals[1], last).expect("written");
    let mut cut = sealed;
    cut[start as usize..].fill(0);
    fs::write(&journals[0], cut).expect("written");
    is_refused(&dir, "the journals lack the steps before step");

    // Once accepted, the gap stays accepted.
    fs::remove_file(dir.path().join("synced")).expect("removed");
    for _ in 0..2 {
        let store = open(&dir);
        assert!(count(&store) >= 3);
        assert!(store.step > 100);
    }
}

/// Sealed journals that are whole are no reason to refuse.
#[test]
fn whole_journals_are_accepted() {
    let (dir, _) = with_sealed_journals();
    for _ in 0..2 {
        let store = open(&dir);
        assert_eq!(count(&store) as u64, store.step);
    }
}

/// The end of a sealed journal is checked also where the mark does not know of it, as after a power cut.
#[test]
fn a_sealed_journal_with_a_torn_end_is_refused() {
    let (dir, journals) = with_sealed_journals();
    fs::write(&journals[1], "").expect("written");
    let database = dir.path().join("database");
    let behind = Mark { floor: 0, synced: 1 };
    let last = journal::check(&database, behind).expect("whole").expect("steps");
    damage_at(&journals[0], find_step(&journals[0], last));
    let error = journal::check(&database, behind).expect_err("damaged");
    assert!(error.to_string().contains("is damaged at byte"), "{error}");
}

/// Two journals, the first of which is sealed, and in use as not all it holds has reached a table.
fn with_sealed_journals() -> (TempDir, Vec<PathBuf>) {
    let dir = new();
    let mut store = open(&dir);
    while journals_of(&dir).len() < 2 {
        let mut large = commit(store.step);
        large.put(Keyspace::Outbox, vec![0], vec![7; 500_000]);
        store.apply(&[large]).expect("applied");
        assert!(store.step < 10_000, "no journal was sealed");
    }
    let step = store.step;
    apply_and_sync(&mut store, step..step + 3);
    drop(store);
    let journals = journals_of(&dir);
    assert_eq!(journals.len(), 2);
    (dir, journals)
}
