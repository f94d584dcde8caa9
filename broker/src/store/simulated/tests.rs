use std::collections::BTreeSet;

use super::*;

fn commit(number: u8) -> Commit {
    let mut commit = Commit::default();
    commit.put(Keyspace::Messages, vec![number], vec![number; 50]);
    commit.put(Keyspace::Heads, vec![number], vec![number]);
    commit
}

/// The numbers of the commits that are there; half a commit fails the test.
fn numbers(store: &Simulated) -> Vec<u8> {
    let keys = |keyspace| {
        let rows = store.scan(keyspace, vec![]..vec![0xff]).collect::<Result<Vec<_>, _>>();
        rows.expect("readable rows").into_iter().map(|(key, _)| key[0]).collect::<Vec<_>>()
    };
    assert_eq!(keys(Keyspace::Messages), keys(Keyspace::Heads));
    keys(Keyspace::Heads)
}

fn open(disk: &Disk) -> Simulated {
    Simulated::open(disk).expect("a store")
}

/// A disk with two synced commits and three that are not, still open.
fn disk_with_unsynced() -> (Disk, Simulated) {
    let disk = Disk::default();
    let mut store = open(&disk);
    for number in 0..5 {
        store.apply(&[commit(number)]).expect("applied");
        if number == 1 {
            store.sync().expect("synced");
        }
    }
    (disk, store)
}

/// A power cut takes any number of the last applies, whole ones, and nothing that was synced.
#[test]
fn a_power_cut_takes_a_suffix_of_what_was_not_synced() {
    let mut outcomes = BTreeSet::new();
    for seed in 0..100 {
        let (disk, store) = disk_with_unsynced();
        disk.crash(seed);
        drop(store);
        let left = numbers(&open(&disk));
        assert!(left.len() >= 2, "{left:?}");
        assert!(left.iter().copied().eq(0..left.len() as u8), "{left:?}");
        outcomes.insert(left.len());
    }
    assert_eq!(outcomes, BTreeSet::from([2, 3, 4, 5]));
}

/// Where the last apply is torn, recovery drops it as a whole and the store goes on behind what is left.
#[test]
fn a_torn_apply_is_dropped_as_a_whole() {
    let mut torn = 0;
    for seed in 0..200 {
        let disk = Disk::default();
        let mut store = open(&disk);
        store.apply(&[commit(0)]).expect("applied");
        store.sync().expect("synced");
        let whole = disk.journal_len();
        store.apply(&[commit(1), commit(2)]).expect("applied");
        disk.crash(seed);
        torn += usize::from(disk.unsynced() == 0 && disk.journal_len() > whole);
        let mut store = open(&disk);
        assert!(matches!(numbers(&store)[..], [0] | [0, 1, 2]));
        store.apply(&[commit(3)]).expect("applied");
        drop(store);
        assert!(matches!(numbers(&open(&disk))[..], [0, 3] | [0, 1, 2, 3]));
    }
    assert!(torn > 10, "{torn} of 200 were torn");
}

/// What one crash left is safe from the next.
#[test]
fn what_recovery_found_is_synced() {
    let (disk, _store) = disk_with_unsynced();
    disk.kill();
    assert_eq!(numbers(&open(&disk)), [0, 1, 2, 3, 4]);
    for seed in 0..20 {
        disk.crash(seed);
        assert_eq!(numbers(&open(&disk)), [0, 1, 2, 3, 4]);
    }
}

/// A power cut after the end of a process takes what that process had not synced.
#[test]
fn a_power_cut_after_a_kill_still_loses() {
    let lost = (0..20).any(|seed| {
        let (disk, _store) = disk_with_unsynced();
        disk.kill();
        disk.crash(seed);
        numbers(&open(&disk)).len() < 5
    });
    assert!(lost);
}

/// The same seed gives the same loss.
#[test]
fn a_seed_decides() {
    let outcome = |seed| {
        let (disk, _store) = disk_with_unsynced();
        disk.crash(seed);
        (disk.journal_len(), disk.unsynced())
    };
    for seed in 0..20 {
        assert_eq!(outcome(seed), outcome(seed));
    }
}

/// The store of a process that has ended cannot touch the disk, and one process has it at a time.
#[test]
fn only_the_living_process_has_the_disk() {
    let (disk, mut dead) = disk_with_unsynced();
    assert!(matches!(Simulated::open(&disk), Err(StoreError::InUse)));
    disk.kill();
    let mut store = open(&disk);
    refuses_everything(&mut dead);
    drop(dead);
    assert!(matches!(Simulated::open(&disk), Err(StoreError::InUse)));
    store.apply(&[commit(9)]).expect("applied");
    assert_eq!(numbers(&store), [0, 1, 2, 3, 4, 9]);
}

fn refuses_everything(store: &mut Simulated) {
    let refused = |result: Result<(), StoreError>| assert!(matches!(result, Err(StoreError::Io(_))));
    refused(store.get(Keyspace::Heads, &[0]).map(drop));
    for mut rows in
        [store.scan(Keyspace::Heads, vec![]..vec![9]), store.scan_back(Keyspace::Heads, vec![]..vec![9])]
    {
        refused(rows.next().expect("an answer").map(drop));
        assert!(rows.next().is_none());
    }
    refused(store.apply(&[commit(7)]));
    refused(store.sync());
}

/// After a failed apply the store refuses everything, and what is left is all of it or nothing.
#[test]
fn a_failed_apply_is_final() {
    let mut outcomes = BTreeSet::new();
    for seed in 0..50 {
        let (disk, mut store) = disk_with_unsynced();
        disk.fail_next_apply(seed);
        store.sync().expect("synced");
        assert!(matches!(store.apply(&[commit(5), commit(6)]), Err(StoreError::Io(_))));
        refuses_everything(&mut store);
        disk.kill();
        let mut store = open(&disk);
        outcomes.insert(numbers(&store).len());
        store.apply(&[commit(8)]).expect("applied");
    }
    assert_eq!(outcomes, BTreeSet::from([5, 7]));
}

/// After a failed sync the store refuses everything, and a power cut may take what it was to save.
#[test]
fn a_failed_sync_is_final() {
    let mut outcomes = BTreeSet::new();
    for seed in 0..50 {
        let (disk, mut store) = disk_with_unsynced();
        disk.fail_next_sync();
        store.apply(&[commit(5)]).expect("applied");
        assert!(matches!(store.sync(), Err(StoreError::Io(_))));
        refuses_everything(&mut store);
        disk.crash(seed);
        outcomes.insert(numbers(&open(&disk)).len());
    }
    assert_eq!(outcomes, (2..=6).collect());
}

/// The operation that was named fails, counted over applies and syncs; the order is used up.
#[test]
fn the_nth_operation_fails() {
    for after in 0..6 {
        let disk = Disk::default();
        let mut store = open(&disk);
        disk.fail_after(after, 1);
        for operation in 0..=after {
            let result = if operation % 2 == 0 { store.apply(&[commit(1)]) } else { store.sync() };
            assert_eq!(result.is_err(), operation == after, "operation {operation} of {after}");
        }
        drop(store);
        let mut store = open(&disk);
        store.apply(&[commit(2)]).expect("applied");
        store.sync().expect("synced");
    }
}

/// Any single bit that changes in what was synced is found at the next opening, and stays found.
#[test]
fn damage_of_what_was_synced_is_loud() {
    assert!(!Disk::default().damage(1));
    for seed in 0..300 {
        let (disk, mut store) = disk_with_unsynced();
        store.sync().expect("synced");
        drop(store);
        assert!(disk.damage(seed));
        for _ in 0..2 {
            assert!(matches!(Simulated::open(&disk), Err(StoreError::Corrupt(_))), "seed {seed}");
        }
    }
}

/// A long run keeps a short journal, and loses nothing to that.
#[test]
fn a_long_run_stays_small() {
    let disk = Disk::default();
    let mut store = open(&disk);
    for round in 0..40_u8 {
        let mut commit = commit(round);
        commit.put(Keyspace::Modules, vec![round], vec![round; 100_000]);
        store.apply(&[commit]).expect("applied");
        store.sync().expect("synced");
        assert!(disk.journal_len() < 1_200_000);
    }
    disk.crash(1);
    let store = open(&disk);
    assert_eq!(numbers(&store), (0..40).collect::<Vec<_>>());
    let rows = store.scan(Keyspace::Modules, vec![]..vec![0xff]);
    assert_eq!(rows.map(|row| row.expect("a row").1.len()).sum::<usize>(), 4_000_000);
}
