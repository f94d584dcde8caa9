//! The audit log: who changed what, and who read payloads. Rows are only ever added, each in the batch of the change that it
//! tells of and chained to the one before it; the oldest go when there are too many.

use super::command::{Command, Page};
use super::recover::BROKER;
use super::{Engine, Reply};
use crate::domain::access::Pattern;
use crate::domain::audit::{Action, AuditEntry};
use crate::domain::digest::Digest;
use crate::domain::id::RealmId;
use crate::domain::limits::MAX_AUDIT_ROWS;
use crate::domain::name::Name;
use crate::store::row::{AuditHead, AuditRow, Row as _};
use crate::store::{Commit, Keyspace, StoreError, key};

/// The row of `meta` that says which rows there are.
const AUDIT: &[u8] = b"audit";
/// Rows that one list request looks at: a page may come back short, with a cursor to go on from.
const LOOKED_AT: usize = 10_000;
/// Rows that are checked before others get their turn.
const CHECKED: usize = 1_000;

/// Which rows to list, newest first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AuditQuery {
    /// Of this realm.
    pub realm: Option<Name>,
    /// Of these actions.
    pub action: Option<Pattern>,
    /// Of whoever is called so.
    pub actor: Option<String>,
    /// Which page.
    pub page: Page<u64>,
}

/// A page of the audit log. It can be short, even empty, and still have a next one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AuditList {
    /// Each with its number.
    pub items: Vec<(u64, AuditRow)>,
    /// Where the next page begins: behind this one.
    pub next: Option<u64>,
}

/// How far a check of the chain has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AuditPlace {
    /// The row to be checked next.
    pub number: u64,
    /// The hash before it.
    pub previous: Digest,
}

/// What a piece of a check found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AuditChecked {
    /// Nothing wrong so far.
    Until(AuditPlace),
    /// Every row is there, as it was written.
    Holds(AuditHead),
    /// This row is missing, or not what was written.
    Broken(u64),
}

impl Engine {
    /// Carries a command out, and tells of it in the same batch if it was not refused. For commands that are answered
    /// in their own transition.
    pub(super) fn audited(&mut self, entry: AuditEntry, command: Command) -> Result<(), StoreError> {
        self.accepted = false;
        self.telling = Some(entry);
        self.handle(command)?;
        let entry = self.telling.take().filter(|_| self.accepted);
        entry.map_or(Ok(()), |entry| self.tell(entry))
    }

    /// Tells of something that changes nothing; answered once the row is durable.
    pub(super) fn audit(&mut self, entry: AuditEntry, reply: Reply<()>) -> Result<(), StoreError> {
        self.tell(entry)?;
        self.answer(reply, Ok(()));
        Ok(())
    }

    /// Tells of what the broker did by itself, in the batch at hand.
    pub(super) fn tell_of_broker(
        &mut self,
        realm: RealmId,
        action: Action,
        subject: &Name,
        detail: String,
    ) -> Result<(), StoreError> {
        let Some(row) = self.realms.get(&realm) else { return Ok(()) };
        let (realm, actor, subject) = (row.name.clone(), BROKER.to_owned(), subject.to_string());
        self.tell(AuditEntry { realm, actor, token: None, action, subject, detail })
    }

    fn tell(&mut self, entry: AuditEntry) -> Result<(), StoreError> {
        let (number, row) = self.audit.append(entry.plain(), self.now);
        let mut commit = Commit::default();
        commit.put(Keyspace::Audit, key::audit(number), row.encode());
        // More rows than there can be were applied long ago.
        while self.audit.next - self.audit.first > MAX_AUDIT_ROWS {
            let oldest = key::audit(self.audit.first);
            let Some(row) = self.store.get(Keyspace::Audit, &oldest)? else { break };
            self.audit.before = AuditRow::decode(row)?.hash;
            self.audit.first += 1;
            commit.delete(Keyspace::Audit, oldest);
        }
        commit.put(Keyspace::Meta, AUDIT.to_vec(), self.audit.encode());
        self.pending.push(commit);
        Ok(())
    }

    pub(super) fn list_audit(
        &mut self,
        query: &AuditQuery,
        reply: Reply<AuditList>,
    ) -> Result<(), StoreError> {
        self.apply()?;
        let end = query.page.after.unwrap_or(self.audit.next);
        let mut listed = AuditList { items: Vec::new(), next: None };
        let mut last = None;
        let range = key::audit(self.audit.first)..key::audit(end);
        for (looked_at, row) in self.store.scan_back(Keyspace::Audit, range).enumerate() {
            let (key, value) = row?;
            if listed.items.len() == query.page.limit || looked_at == LOOKED_AT {
                listed.next = last;
                break;
            }
            let number = key::read_sequence(&key).unwrap_or_default();
            last = Some(number);
            let row = AuditRow::decode(value)?;
            if query.matches(&row.entry) {
                listed.items.push((number, row));
            }
        }
        self.answer(reply, Ok(listed));
        Ok(())
    }

    /// Checks a piece of the chain, from its beginning or from where another piece ended.
    pub(super) fn check_audit(
        &mut self,
        from: Option<AuditPlace>,
        reply: Reply<AuditChecked>,
    ) -> Result<(), StoreError> {
        self.apply()?;
        let AuditHead { first, next, before, last } = self.audit;
        let begin = AuditPlace { number: first, previous: before };
        // What was to come next may be gone by now.
        let mut at = from.filter(|at| at.number >= first).unwrap_or(begin);
        let upto = next.min(at.number.saturating_add(CHECKED as u64));
        let range = key::audit(at.number)..key::audit(upto);
        for row in self.store.scan(Keyspace::Audit, range) {
            let (key, value) = row?;
            let row = AuditRow::decode(value).ok();
            match row.filter(|row| key == key::audit(at.number) && row.follows(at.previous, at.number)) {
                Some(row) => at = AuditPlace { number: at.number + 1, previous: row.hash },
                None => break,
            }
        }
        let checked = if at.number < upto || (at.number == next && at.previous != last) {
            AuditChecked::Broken(at.number)
        } else if at.number == next {
            AuditChecked::Holds(self.audit)
        } else {
            AuditChecked::Until(at)
        };
        self.answer(reply, Ok(checked));
        Ok(())
    }

    pub(super) fn load_audit(&mut self) -> Result<(), StoreError> {
        if let Some(head) = self.store.get(Keyspace::Meta, AUDIT)? {
            self.audit = AuditHead::decode(head)?;
        }
        Ok(())
    }
}

impl AuditQuery {
    fn matches(&self, entry: &AuditEntry) -> bool {
        self.realm.as_ref().is_none_or(|realm| *realm == entry.realm)
            && self.action.as_ref().is_none_or(|action| action.allows(entry.action.as_str()))
            && self.actor.as_ref().is_none_or(|actor| *actor == entry.actor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::receipt::Secret;
    use crate::domain::settings::TopicSettings;
    use crate::domain::time::Timestamp;
    use crate::engine::{Durability, PutTopic, StandardPolicy};
    use crate::store::Store as _;
    use crate::store::simulated::{Disk, Simulated};
    use tokio::sync::oneshot;

    const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);

    fn entry(subject: &str) -> AuditEntry {
        AuditEntry {
            realm: Name::new("default").expect("a name"),
            actor: "operator".to_owned(),
            token: None,
            action: Action::TopicPut,
            subject: subject.to_owned(),
            detail: String::new(),
        }
    }

    fn open(disk: &Disk) -> Engine {
        let bytes = bytes::Bytes::from_static(b"not asked");
        let (name, version) = ("standard".to_owned(), "1".to_owned());
        let standard = StandardPolicy { digest: Digest::of(&bytes), bytes, name, version, trial_fuel: 1 };
        let store = Box::new(Simulated::open(disk).expect("a store"));
        Engine::open(store, Durability::Fsync, standard, Secret([1; 32]), NOW).expect("an engine")
    }

    /// Wherever the disk fails, a deed and its row are both there or neither is.
    #[test]
    fn a_deed_and_its_row_are_one_step() {
        let mut done = 0;
        for (after, seed) in (0..6).flat_map(|after| [1, 2, 3].map(|seed| (after, seed))) {
            let disk = Disk::default();
            let mut engine = open(&disk);
            disk.fail_after(after, seed);
            let name = Name::new("orders").expect("a name");
            let topic = PutTopic { name, settings: TopicSettings::default() };
            let put = Command::PutTopic(RealmId::DEFAULT, topic, oneshot::channel().0);
            _ = engine.run([Command::Audited(Box::new((entry("orders"), put)))], NOW);
            drop(engine);
            let found = open(&disk);
            assert_eq!(found.topics.len() as u64, found.audit.next - 1, "after {after}, seed {seed}");
            done += found.topics.len();
        }
        assert!((1..18).contains(&done), "{done}");
    }

    /// The oldest rows make room for new ones, and the chain still begins with a hash that is known.
    #[test]
    fn the_oldest_rows_go_and_what_is_left_still_holds() {
        let disk = Disk::default();
        let mut head = AuditHead::EMPTY;
        let mut store = Simulated::open(&disk).expect("a store");
        let mut commit = Commit::default();
        let rows: Vec<_> = ["a", "b", "c"].iter().map(|subject| head.append(entry(subject), NOW)).collect();
        for (number, row) in &rows {
            commit.put(Keyspace::Audit, key::audit(*number), row.encode());
        }
        // As if all the others between them had been written, too.
        head.next = MAX_AUDIT_ROWS + 1;
        commit.put(Keyspace::Meta, AUDIT.to_vec(), head.encode());
        store.apply(&[commit]).expect("it is written");
        store.sync().expect("it is synced");
        drop(store);

        let mut engine = open(&disk);
        let commands =
            ["d", "e"].map(|subject| Command::Audit(Box::new(entry(subject)), oneshot::channel().0));
        engine.run(commands, NOW).expect("it is carried out");
        let AuditHead { first, next, before, .. } = engine.audit;
        assert_eq!((first, next, before), (3, MAX_AUDIT_ROWS + 3, rows[1].1.hash));
        let kept: Vec<_> = engine.store.scan(Keyspace::Audit, key::everything()).collect();
        let numbers = kept.into_iter().map(|row| key::read_sequence(&row.expect("a row").0));
        let expected = [3, MAX_AUDIT_ROWS + 1, MAX_AUDIT_ROWS + 2].map(Some);
        assert_eq!(numbers.collect::<Vec<_>>(), expected);
        assert!(rows[2].1.follows(before, 3));
        engine.close().expect("it is closed");
        assert_eq!(open(&disk).audit.first, 3, "as it was written");
    }
}
