//! What was compiled is found again, and nothing else is ever taken for it.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::*;
use crate::domain::digest::Digest;
use crate::domain::receipt::Secret;
use crate::policy::cache::Cache;
use crate::policy::machine_code::MachineCode;
use crate::policy::sandbox::compiler_config;

const SECRET: Secret = Secret([7; 32]);

fn caching(folder: &Path, limits: Limits, secret: &Secret) -> Sandbox {
    let sandbox = Sandbox::new(limits).expect("a sandbox");
    sandbox.keep_compiled(folder, secret).expect("a folder");
    sandbox
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder");
    let mut files: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
    files.sort();
    files
}

fn only_file(folder: &Path) -> PathBuf {
    let mut files = files(folder);
    assert_eq!(files.len(), 1, "{files:?}");
    files.remove(0)
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("it is there").permissions().mode() & 0o777
}

/// Whether a sandbox on this folder loads the guest without compiling it.
fn is_found(folder: &Path, limits: Limits, secret: &Secret, guest: &Guest) -> bool {
    let sandbox = caching(folder, limits, secret);
    sandbox.cache().expect("it was set").get(Digest::of(&guest.module())).is_some()
}

#[test]
fn what_was_compiled_is_used_again_and_decides_the_same() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path().join("compiled");
    let module = Guest::default().module();
    let first = caching(&folder, Limits::default(), &SECRET).load(&module).expect("it loads");
    let file = only_file(&folder);
    assert_eq!((mode(&folder), mode(&file)), (0o700, 0o600), "for the owner alone");
    let long_ago = SystemTime::now() - Duration::from_secs(60);
    fs::File::options()
        .append(true)
        .open(&file)
        .and_then(|file| file.set_modified(long_ago))
        .expect("a file");

    assert!(is_found(&folder, Limits::default(), &SECRET, &Guest::default()));
    let second = caching(&folder, Limits::default(), &SECRET).load(&module).expect("it loads");
    assert_eq!(second.decide(&context()), first.decide(&context()));
    assert_eq!((second.digest(), second.size()), (first.digest(), first.size()));
    let used = fs::metadata(only_file(&folder)).and_then(|file| file.modified()).expect("a time");
    assert!(used > long_ago + Duration::from_secs(30), "using it makes it young again");
}

#[test]
fn a_module_that_is_no_policy_is_not_kept() {
    let folder = tempfile::tempdir().expect("a folder");
    let sandbox = caching(folder.path(), Limits::default(), &SECRET);
    let broken = Guest { describe: "(unreachable)".to_owned(), ..Guest::default() };
    let _ = sandbox.load(&broken.module()).expect_err("refused");
    assert_eq!(files(folder.path()), Vec::<PathBuf>::new());
}

/// Machine code is run as it is: one byte that is not ours, anywhere, and the file counts for nothing.
#[test]
fn a_file_that_was_changed_is_ignored_and_replaced() {
    let folder = tempfile::tempdir().expect("a folder");
    let module = Guest::default().module();
    caching(folder.path(), Limits::default(), &SECRET).load(&module).expect("it loads");
    let file = only_file(folder.path());
    let good = fs::read(&file).expect("it can be read");
    let found = || is_found(folder.path(), Limits::default(), &SECRET, &Guest::default());
    assert!(found());
    let places = (0..good.len()).step_by(509).chain(0..80).chain([good.len() - 1]);
    for place in places {
        let mut changed = good.clone();
        changed[place] ^= 1;
        fs::write(&file, &changed).expect("it can be written");
        assert!(!found(), "byte {place}");
    }
    for changed in [&good[..good.len() - 1], &good[..72], &good[..10], &[], &[&*good, b"x"].concat()] {
        fs::write(&file, changed).expect("it can be written");
        assert!(!found(), "{} bytes", changed.len());
        let program = caching(folder.path(), Limits::default(), &SECRET).load(&module).expect("it loads");
        assert!(program.decide(&context()).result.is_ok());
        assert!(found(), "replaced");
    }
    // What cannot even be read is replaced, too.
    fs::remove_file(&file).expect("it can be removed");
    std::os::unix::fs::symlink("/nowhere/at/all", &file).expect("a link");
    caching(folder.path(), Limits::default(), &SECRET).load(&module).expect("it loads");
    assert!(found());
}

#[test]
fn a_file_of_another_store_policy_or_engine_is_ignored() {
    let folder = tempfile::tempdir().expect("a folder");
    let guest = Guest::default();
    caching(folder.path(), Limits::default(), &SECRET).load(&guest.module()).expect("it loads");
    let found = |limits, secret: &Secret, guest: &Guest| is_found(folder.path(), limits, secret, guest);
    assert!(found(Limits::default(), &SECRET, &guest));
    assert!(!found(Limits::default(), &Secret([8; 32]), &guest), "another store's");
    // The code depends on the limit of memory, and on no other.
    assert!(!found(Limits { memory_bytes: 4 << 20, ..Limits::default() }, &SECRET, &guest));
    assert!(found(Limits { fuel: 1, ..Limits::default() }, &SECRET, &guest));
    // Under another policy's name.
    let other = deciding("(i32.store8 (i32.const 1024) (i32.const 9)) (i32.const 1024)");
    let file = only_file(folder.path());
    fs::rename(&file, file.with_file_name(crate::domain::digest::hex(&Digest::of(&other.module()).0)))
        .expect("renamed");
    assert!(!found(Limits::default(), &SECRET, &other));
}

/// A child compiles for the sandbox that runs the code, without the address space that running takes.
#[test]
fn the_compilers_engine_makes_what_the_sandbox_takes() {
    let limits = Limits::default();
    let engine = wasmtime::Engine::new(&compiler_config(&limits)).expect("an engine");
    let code = engine.precompile_component(&Guest::default().component()).expect("it compiles");
    let sandbox = sandbox();
    assert!(MachineCode::of_our_own(code.clone()).component(sandbox.engine()).is_ok());
    let other = Limits { memory_bytes: 4 << 20, ..limits };
    let other = Sandbox::new(other).expect("a sandbox");
    assert!(MachineCode::of_our_own(code).component(other.engine()).is_err());
}

#[test]
fn the_folder_is_bounded_and_the_oldest_go_first() {
    let folder = tempfile::tempdir().expect("a folder");
    let sandbox = sandbox();
    let cache =
        |most| Cache { most, ..Cache::open(folder.path(), &SECRET, sandbox.engine()).expect("a cache") };
    let code = || MachineCode::of_our_own(vec![0; 1_000]);
    let digest = |number: u8| Digest([number; 32]);
    let kept = || -> Vec<u8> { (0..10).filter(|it| cache(0).get(digest(*it)).is_some()).collect() };
    // Named by its digest; its age is set, as files of one test are all equally old.
    let age = |number: u8, seconds| {
        let path = folder.path().join(crate::domain::digest::hex(&[number; 32]));
        let time = SystemTime::now() - Duration::from_secs(seconds);
        fs::File::options()
            .append(true)
            .open(path)
            .and_then(|file| file.set_modified(time))
            .expect("it is there");
    };
    let four = cache(4 * 1_072);
    for number in 0..4 {
        four.put(digest(number), &code());
    }
    for (number, seconds) in [(0, 20), (1, 40), (2, 30), (3, 10)] {
        age(number, seconds);
    }
    four.put(digest(4), &code());
    assert_eq!(files(folder.path()).len(), 4);
    assert_eq!(kept(), [0, 2, 3, 4]);
    // Asking for one makes it young.
    for (number, seconds) in [(0, 20), (2, 30), (3, 10), (4, 5)] {
        age(number, seconds);
    }
    assert!(four.get(digest(2)).is_some());
    four.put(digest(5), &code());
    assert_eq!(kept(), [2, 3, 4, 5]);
    cache(0).put(digest(6), &code());
    assert_eq!(kept(), [6], "the one just written stays");
}

#[test]
fn what_a_killed_process_left_half_written_is_removed() {
    let folder = tempfile::tempdir().expect("a folder");
    let left = folder.path().join("unfinished-abc");
    fs::write(&left, b"half").expect("it can be written");
    caching(folder.path(), Limits::default(), &SECRET);
    assert!(!left.exists());
}
