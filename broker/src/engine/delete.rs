//! What is left of deleted topics, subscriptions and realms, and of backlogs that were given up, goes in the background,
//! also after a restart.

use super::dead_letters::dead_letter_id;
use super::{Engine, STEP_ROWS};
use crate::domain::id::RealmId;
use crate::store::key::Owner;
use crate::store::row::{DeadLetterRow, Row as _};
use crate::store::{Commit, Keyspace, StoreError, key};

/// What was on its way to a topic goes with it.
const OF_TOPIC: [Keyspace; 5] =
    [Keyspace::Messages, Keyspace::Expiries, Keyspace::Outbox, Keyspace::Dedup, Keyspace::DedupTimes];
const OF_SUBSCRIPTION: [Keyspace; 3] = [Keyspace::Revisions, Keyspace::DeadLetters, Keyspace::Recorded];
const OF_BACKLOG: [Keyspace; 7] = [
    Keyspace::Leased,
    Keyspace::Delayed,
    Keyspace::Due,
    Keyspace::Settled,
    Keyspace::Replayed,
    Keyspace::Locks,
    Keyspace::Blocked,
];
const OF_REALM: [Keyspace; 1] = [Keyspace::Modules];
/// Rows that one step removes of a realm: each is a large piece of a module.
const STEP_MODULES: usize = 16;
/// What it costs to find that something has no rows left, in rows.
const LOOK_ROWS: usize = 10;

/// Rows that go with one of this kind, usually.
const fn cost(keyspace: Keyspace) -> usize {
    match keyspace {
        Keyspace::DeadLetters => 20,
        _ => 1,
    }
}

impl Engine {
    /// Marks a deleted owner, whose rows [`remove_doomed`](Self::remove_doomed) removes bit by bit.
    pub(super) fn doom(&mut self, realm: RealmId, owner: Owner, commit: &mut Commit) {
        commit.put(Keyspace::Doomed, key::doomed(realm, owner), Vec::new());
        self.doomed.push((realm, owner));
    }

    /// Removes rows of what is doomed, as many as one step may.
    pub(super) fn remove_doomed(&mut self) -> Result<(), StoreError> {
        let mut room = STEP_ROWS;
        while room > 0
            && let Some((realm, owner)) = self.doomed.last().copied()
        {
            self.apply()?;
            let removed = self.remove_some(realm, owner, room)?;
            room = room.saturating_sub(removed + LOOK_ROWS);
        }
        Ok(())
    }

    /// Removes rows of one of them, about so many, and says how many.
    fn remove_some(&mut self, realm: RealmId, owner: Owner, room: usize) -> Result<usize, StoreError> {
        let (prefix, keyspaces, most) = match owner {
            Owner::Topic(id) => (key::topic(realm, id), OF_TOPIC.as_slice(), room),
            Owner::Subscription(id) => (key::subscription(realm, id), OF_SUBSCRIPTION.as_slice(), room),
            Owner::Backlog(id) => (key::backlog(realm, id), OF_BACKLOG.as_slice(), room),
            Owner::Realm => (key::realm(realm), OF_REALM.as_slice(), STEP_MODULES),
        };
        let mut commit = Commit::default();
        // Behind the last row that was removed: what is left of those before it would be waded through again.
        let behind = self.removed.take().filter(|(of, _, _)| *of == (realm, owner));
        let skipped = behind.as_ref().map(|(_, keyspace, _)| *keyspace);
        let skipped = keyspaces.iter().position(|keyspace| Some(*keyspace) == skipped).unwrap_or(0);
        for keyspace in &keyspaces[skipped..] {
            let mut range = key::prefixed(prefix.clone());
            if let Some((_, _, last)) = behind.as_ref().filter(|(_, of, _)| of == keyspace) {
                range.start = [last.as_slice(), &[0]].concat();
            }
            let left = most.saturating_sub(commit.changes().len());
            let take = left.div_ceil(cost(*keyspace));
            let rows: Vec<_> = self.store.scan(*keyspace, range).take(take).collect();
            let may_be_more = rows.len() == take;
            for row in rows {
                let (key, value) = row?;
                if *keyspace == Keyspace::DeadLetters {
                    self.unindex_dead(
                        realm,
                        dead_letter_id(&key)?,
                        &DeadLetterRow::decode(value)?,
                        &mut commit,
                    );
                }
                self.removed = Some(((realm, owner), *keyspace, key.to_vec()));
                commit.delete(*keyspace, key.to_vec());
            }
            if may_be_more {
                break;
            }
        }
        let removed = commit.changes().len();
        if removed == 0 {
            commit.delete(Keyspace::Doomed, key::doomed(realm, owner));
            self.doomed.pop();
        }
        self.pending.push(commit);
        Ok(if owner == Owner::Realm { STEP_ROWS } else { removed })
    }
}
