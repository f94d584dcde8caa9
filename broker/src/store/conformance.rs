//! What every store must do, run against each of them. What only one can do is tested beside it.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::ops::Range;
use std::path::Path;

use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;

use super::commit::MAX_COMMIT_BYTES;
use super::commit::tests::any_commit;
use super::durable::{Durable, Options};
use super::simulated::{Disk, Simulated};
use super::{Commit, Keyspace, Store, StoreError, key};
use crate::domain::id::{DeadLetterId, RealmId, SubscriptionId, TopicId};

/// Where a store keeps its rows between two openings.
trait Place {
    fn new() -> Self;
    fn open(&self) -> Box<dyn Store>;
    /// What is there after the process that has `store` open ends without warning.
    fn after_kill(self, store: Box<dyn Store>) -> Self;
}

impl Place for tempfile::TempDir {
    fn new() -> Self {
        tempfile::tempdir().expect("a folder")
    }

    fn open(&self) -> Box<dyn Store> {
        Box::new(Durable::open(self.path(), Options::default()).expect("a store"))
    }

    /// A copy taken while the store is open holds what it has handed to the operating system, and no more.
    fn after_kill(self, store: Box<dyn Store>) -> Self {
        let copy = <Self as Place>::new();
        copy_folder(self.path(), copy.path());
        drop(store);
        copy
    }
}

impl Place for Disk {
    fn new() -> Self {
        Self::default()
    }

    fn open(&self) -> Box<dyn Store> {
        Box::new(Simulated::open(self).expect("a store"))
    }

    fn after_kill(self, _store: Box<dyn Store>) -> Self {
        self.kill();
        self
    }
}

fn copy_folder(from: &Path, to: &Path) {
    for entry in std::fs::read_dir(from).expect("a folder") {
        let entry = entry.expect("an entry");
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            std::fs::create_dir(&target).expect("a new folder");
            copy_folder(&entry.path(), &target);
        } else {
            copy_file(&entry.path(), &target);
        }
    }
}

/// Leaves out the zeros at the end, which are most of a journal.
fn copy_file(from: &Path, to: &Path) {
    let bytes = std::fs::read(from).expect("a file");
    let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    let mut copy = std::fs::File::create(to).expect("a new file");
    copy.write_all(&bytes[..used]).expect("written");
    copy.set_len(bytes.len() as u64).expect("extended");
}

macro_rules! conformance {
    ($($test:ident)*) => {
        mod durable {
            $(#[test] fn $test() { super::$test::<tempfile::TempDir>(); })*
        }
        mod simulated {
            $(#[test] fn $test() { super::$test::<super::Disk>(); })*
        }
    };
}

conformance! {
    applied_rows_are_read_back
    the_later_change_of_a_row_wins
    commits_are_applied_together_and_in_order
    nothing_to_apply_is_fine
    scans_give_a_range_in_order
    empty_ranges_give_nothing
    a_scan_of_a_prefix_gives_its_rows_alone
    a_commit_of_full_size_is_kept
    synced_rows_survive_reopening
    applied_rows_survive_the_end_of_the_process
    applying_twice_is_harmless
    random_use_matches_a_map
}

fn put(keyspace: Keyspace, key: &[u8], value: &[u8]) -> Commit {
    let mut commit = Commit::default();
    commit.put(keyspace, key.to_vec(), value.to_vec());
    commit
}

fn delete(keyspace: Keyspace, key: &[u8]) -> Commit {
    let mut commit = Commit::default();
    commit.delete(keyspace, key.to_vec());
    commit
}

fn get(store: &dyn Store, keyspace: Keyspace, key: &[u8]) -> Option<Bytes> {
    store.get(keyspace, key).expect("a readable row")
}

fn collect(rows: super::Rows<'_>) -> Vec<(Bytes, Bytes)> {
    rows.collect::<Result<_, StoreError>>().expect("readable rows")
}

/// The keys of a scan as text; the scan the other way must give the same, reversed.
fn keys(store: &dyn Store, keyspace: Keyspace, range: Range<&[u8]>) -> String {
    let range = range.start.to_vec()..range.end.to_vec();
    let forward = collect(store.scan(keyspace, range.clone()));
    let mut back = collect(store.scan_back(keyspace, range));
    back.reverse();
    assert_eq!(forward, back);
    let keys = forward.iter().map(|(key, _)| String::from_utf8_lossy(key));
    keys.collect::<Vec<_>>().join(" ")
}

/// A row is found in its own keyspace, as it was put, until it is deleted.
fn applied_rows_are_read_back<P: Place>() {
    let place = P::new();
    let mut store = place.open();
    store.apply(&[put(Keyspace::Topics, b"a", b"one"), put(Keyspace::Heads, b"a", b"")]).expect("applied");
    assert_eq!(get(&*store, Keyspace::Topics, b"a"), Some(Bytes::from("one")));
    assert_eq!(get(&*store, Keyspace::Heads, b"a"), Some(Bytes::new()));
    assert_eq!(get(&*store, Keyspace::Meta, b"a"), None);
    assert_eq!(get(&*store, Keyspace::Topics, b"b"), None);
    store.apply(&[delete(Keyspace::Topics, b"a"), delete(Keyspace::Topics, b"b")]).expect("applied");
    assert_eq!(get(&*store, Keyspace::Topics, b"a"), None);
    assert_eq!(get(&*store, Keyspace::Heads, b"a"), Some(Bytes::new()));
}

/// Within one commit the order of changes to one row decides, also after the changes are read from disk again.
fn the_later_change_of_a_row_wins<P: Place>() {
    let mut place = P::new();
    let mut store = place.open();
    let mut commit = put(Keyspace::Due, b"twice", b"first");
    commit.put(Keyspace::Due, b"twice".to_vec(), "second");
    commit.put(Keyspace::Due, b"gone".to_vec(), "here");
    commit.delete(Keyspace::Due, b"gone".to_vec());
    commit.delete(Keyspace::Due, b"back".to_vec());
    commit.put(Keyspace::Due, b"back".to_vec(), "here");
    store.apply(&[commit]).expect("applied");
    for _ in 0..2 {
        assert_eq!(get(&*store, Keyspace::Due, b"twice"), Some(Bytes::from("second")));
        assert_eq!(get(&*store, Keyspace::Due, b"gone"), None);
        assert_eq!(get(&*store, Keyspace::Due, b"back"), Some(Bytes::from("here")));
        assert_eq!(keys(&*store, Keyspace::Due, b"a"..b"z"), "back twice");
        place = place.after_kill(store);
        store = place.open();
    }
}

/// Several commits in one apply act as if they were applied one after the other.
fn commits_are_applied_together_and_in_order<P: Place>() {
    let place = P::new();
    let mut store = place.open();
    let commits = [
        put(Keyspace::Cursors, b"c", b"1"),
        put(Keyspace::Leased, b"l", b"1"),
        put(Keyspace::Cursors, b"c", b"2"),
        delete(Keyspace::Leased, b"l"),
    ];
    store.apply(&commits).expect("applied");
    assert_eq!(get(&*store, Keyspace::Cursors, b"c"), Some(Bytes::from("2")));
    assert_eq!(get(&*store, Keyspace::Leased, b"l"), None);
}

/// Neither no commits, nor empty ones, nor a sync without news is an error.
fn nothing_to_apply_is_fine<P: Place>() {
    let place = P::new();
    let mut store = place.open();
    store.sync().expect("synced");
    store.apply(&[]).expect("applied");
    store.apply(&[Commit::default()]).expect("applied");
    store.sync().expect("synced");
    for keyspace in Keyspace::ALL {
        assert_eq!(keys(&*store, keyspace, b""..b"\xff\xff"), "");
    }
}

/// A scan begins at the start of its range, leaves out the end, and sees nothing of other keyspaces.
fn scans_give_a_range_in_order<P: Place>() {
    let place = P::new();
    let mut store = place.open();
    let mut commit = put(Keyspace::Messages, b"z", b"elsewhere");
    for key in ["d", "b", "ab", "a", "c", "abc"] {
        commit.put(Keyspace::Delayed, key.into(), key.to_owned());
    }
    store.apply(&[commit]).expect("applied");
    assert_eq!(keys(&*store, Keyspace::Delayed, b""..b"\xff"), "a ab abc b c d");
    assert_eq!(keys(&*store, Keyspace::Delayed, b"ab"..b"c"), "ab abc b");
    assert_eq!(keys(&*store, Keyspace::Delayed, b"aa"..b"bb"), "ab abc b");
    store.apply(&[delete(Keyspace::Delayed, b"b")]).expect("applied");
    assert_eq!(keys(&*store, Keyspace::Delayed, b"ab"..b"c"), "ab abc");
    let values = collect(store.scan(Keyspace::Delayed, b"c".to_vec()..b"z".to_vec()));
    assert_eq!(values, [(Bytes::from("c"), Bytes::from("c")), (Bytes::from("d"), Bytes::from("d"))]);
}

/// A range that ends where it starts, or before, holds no row.
fn empty_ranges_give_nothing<P: Place>() {
    let place = P::new();
    let mut store = place.open();
    store.apply(&[put(Keyspace::Due, b"b", b"")]).expect("applied");
    assert_eq!(keys(&*store, Keyspace::Due, b"b"..b"b"), "");
    assert_eq!(keys(&*store, Keyspace::Due, b"c"..b"a"), "");
    assert_eq!(keys(&*store, Keyspace::Due, b"c"..b"d"), "");
    assert_eq!(keys(&*store, Keyspace::Due, b"a"..b"b"), "");
}

/// The rows of one subscription are those between its neighbours', whatever bytes their numbers end in.
fn a_scan_of_a_prefix_gives_its_rows_alone<P: Place>() {
    let place = P::new();
    let mut store = place.open();
    let owners = [0, 0xfe, 0xff, 0x100, 0xffff_fffe, u32::MAX].map(SubscriptionId);
    let realms = [0, 1, u32::MAX].map(RealmId);
    let row = |realm, subscription, sequence| {
        key::dead_letter(realm, DeadLetterId { subscription, topic: TopicId(7), sequence })
    };
    let mut commit = Commit::default();
    for (realm, owner) in realms.iter().flat_map(|realm| owners.map(|owner| (*realm, owner))) {
        for sequence in [0, 1, u64::MAX] {
            commit.put(Keyspace::Leased, row(realm, owner, sequence), "");
        }
    }
    store.apply(&[commit]).expect("applied");
    for realm in realms {
        let rows = collect(store.scan(Keyspace::Leased, key::prefixed(key::realm(realm))));
        assert_eq!(rows.len(), owners.len() * 3);
        for owner in owners {
            let expected = [0, 1, u64::MAX].map(|sequence| row(realm, owner, sequence));
            let range = key::prefixed(key::subscription(realm, owner));
            let found = collect(store.scan(Keyspace::Leased, range)).into_iter().map(|(key, _)| key);
            assert_eq!(found.collect::<Vec<_>>(), expected);
        }
    }
}

/// The largest commit there may be is kept, in one row or in many.
fn a_commit_of_full_size_is_kept<P: Place>() {
    let mut place = P::new();
    let mut store = place.open();
    let overhead = put(Keyspace::Messages, b"large", &[42; 100_000]).encoded_len() - 100_000;
    let large = vec![42; MAX_COMMIT_BYTES - overhead];
    let one = put(Keyspace::Messages, b"large", &large);
    assert_eq!(one.encoded_len(), MAX_COMMIT_BYTES);
    let mut many = Commit::default();
    for number in 0_u32..900 {
        many.put(Keyspace::Modules, number.to_be_bytes().into(), vec![number as u8; 1100]);
    }
    store.apply(&[one, many]).expect("applied");
    place = place.after_kill(store);
    store = place.open();
    assert_eq!(get(&*store, Keyspace::Messages, b"large"), Some(Bytes::from(large)));
    let rows = collect(store.scan(Keyspace::Modules, vec![0]..vec![1]));
    assert_eq!(rows.len(), 900);
    assert!(rows.iter().all(|(key, value)| value[..] == [key[3]; 1100]));
}

/// What was synced is there after an orderly end, and the store goes on from it.
fn synced_rows_survive_reopening<P: Place>() {
    let place = P::new();
    for round in 0_u8..3 {
        let mut store = place.open();
        for earlier in 0..round {
            assert_eq!(get(&*store, Keyspace::Settled, &[earlier]), Some(Bytes::from(vec![earlier; 3])));
        }
        store.apply(&[put(Keyspace::Settled, &[round], &[round; 3])]).expect("applied");
        store.sync().expect("synced");
    }
}

/// What was applied and never synced is there after the process was killed.
fn applied_rows_survive_the_end_of_the_process<P: Place>() {
    let mut place = P::new();
    for round in 0_u8..3 {
        let mut store = place.open();
        for earlier in 0..round {
            assert_eq!(get(&*store, Keyspace::Outbox, &[earlier]), Some(Bytes::from("here")));
        }
        store.apply(&[put(Keyspace::Outbox, &[round], b"here")]).expect("applied");
        place = place.after_kill(store);
    }
}

/// A commit that is applied again leaves what it left the first time.
fn applying_twice_is_harmless<P: Place>() {
    let place = P::new();
    let mut store = place.open();
    store
        .apply(&[put(Keyspace::Leased, b"acked", b""), put(Keyspace::Leased, b"kept", b"")])
        .expect("applied");
    let mut commit = delete(Keyspace::Leased, b"acked");
    commit.put(Keyspace::Cursors, b"c".to_vec(), "7");
    for _ in 0..2 {
        store.apply(std::slice::from_ref(&commit)).expect("applied");
        assert_eq!(keys(&*store, Keyspace::Leased, b"a"..b"z"), "kept");
        assert_eq!(get(&*store, Keyspace::Cursors, b"c"), Some(Bytes::from("7")));
    }
}

#[derive(Clone, Debug)]
enum Step {
    Apply(Vec<Commit>),
    Sync,
    Reopen,
    Kill,
    Read(Keyspace, Vec<u8>, Vec<u8>),
}

fn any_step() -> impl Strategy<Value = Step> {
    let key = || vec(prop::sample::select(vec![0, 1, 0x7f, 0xff]), 0..4);
    prop_oneof![
        10 => vec(any_commit(), 0..4).prop_map(Step::Apply),
        3 => Just(Step::Sync),
        1 => Just(Step::Reopen),
        1 => Just(Step::Kill),
        10 => (prop::sample::select(Keyspace::ALL.to_vec()), key(), key())
            .prop_map(|(keyspace, start, end)| Step::Read(keyspace, start, end)),
    ]
}

type Model = BTreeMap<(Keyspace, Vec<u8>), Bytes>;

/// Whatever is done in whatever order, the store reads like a map.
fn random_use_matches_a_map<P: Place>() {
    proptest!(ProptestConfig::with_cases(24), |(steps in vec(any_step(), 1..60))| {
        let mut place = P::new();
        let mut store = place.open();
        let mut model = Model::new();
        for step in steps {
            match step {
                Step::Apply(commits) => {
                    store.apply(&commits).expect("applied");
                    commits.iter().for_each(|commit| apply_to_model(&mut model, commit));
                }
                Step::Sync => store.sync().expect("synced"),
                Step::Reopen => {
                    drop(store);
                    store = place.open();
                }
                Step::Kill => {
                    place = place.after_kill(store);
                    store = place.open();
                }
                Step::Read(keyspace, start, end) => {
                    let row = get(&*store, keyspace, &start);
                    prop_assert_eq!(row.as_ref(), model.get(&(keyspace, start.clone())));
                    compare(&*store, &model, keyspace, start..end);
                }
            }
        }
        for keyspace in Keyspace::ALL {
            compare(&*store, &model, keyspace, vec![]..vec![0xff; 8]);
        }
    });
}

fn apply_to_model(model: &mut Model, commit: &Commit) {
    for change in commit.changes() {
        let row = (change.keyspace, change.key.clone());
        match &change.value {
            Some(value) => model.insert(row, value.clone()),
            None => model.remove(&row),
        };
    }
}

fn compare(store: &dyn Store, model: &Model, keyspace: Keyspace, range: Range<Vec<u8>>) {
    let mut expected = Vec::new();
    for ((of, key), value) in model {
        if *of == keyspace && range.contains(key) {
            expected.push((Bytes::copy_from_slice(key), value.clone()));
        }
    }
    assert_eq!(collect(store.scan(keyspace, range.clone())), expected);
    expected.reverse();
    assert_eq!(collect(store.scan_back(keyspace, range)), expected);
}
