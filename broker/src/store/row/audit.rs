//! Rows of `audit`, and the row of `meta` that says where their chain begins and ends.

use super::delivery::name;
use super::{Damaged, Reader, Row, Writer};
use crate::domain::access::TokenId;
use crate::domain::audit::{Action, AuditEntry};
use crate::domain::digest::Digest;
use crate::domain::time::Timestamp;

/// An entry of the audit log, chained to the one before it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AuditRow {
    /// When.
    pub at: Timestamp,
    /// What happened.
    pub entry: AuditEntry,
    /// The hash of the row before it.
    pub previous: Digest,
    /// Of this one.
    pub hash: Digest,
}

/// Which rows there are. It is written with each of them, so that rows can be missing neither in front nor behind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AuditHead {
    /// The number of the oldest row that is kept.
    pub first: u64,
    /// The number of the next row.
    pub next: u64,
    /// The hash before the oldest row.
    pub before: Digest,
    /// The hash of the newest row.
    pub last: Digest,
}

impl AuditHead {
    /// That of an empty log.
    pub const EMPTY: Self = Self { first: 1, next: 1, before: Digest([0; 32]), last: Digest([0; 32]) };

    /// The row that comes next.
    pub fn append(&mut self, entry: AuditEntry, at: Timestamp) -> (u64, AuditRow) {
        let (number, previous) = (self.next, self.last);
        let hash = entry.hash(previous, number, at);
        (self.next, self.last) = (number + 1, hash);
        (number, AuditRow { at, entry, previous, hash })
    }
}

impl AuditRow {
    /// Whether it is the row that was written under this number, behind a row with this hash.
    pub fn follows(&self, previous: Digest, number: u64) -> bool {
        self.previous == previous && self.entry.hash(previous, number, self.at) == self.hash
    }
}

impl Row for AuditRow {
    fn write(&self, out: &mut Writer) {
        out.time(self.at);
        out.text(self.entry.realm.as_str());
        out.text(&self.entry.actor);
        out.option(self.entry.token, |out, token| out.u32(token.0));
        out.text(self.entry.action.as_str());
        out.text(&self.entry.subject);
        out.text(&self.entry.detail);
        out.bytes.extend_from_slice(&self.previous.0);
        out.bytes.extend_from_slice(&self.hash.0);
    }

    fn read(from: &mut Reader) -> Result<Self, Damaged> {
        Ok(Self {
            at: from.time()?,
            entry: AuditEntry {
                realm: name(from)?,
                actor: from.text()?,
                token: from.option(|from| Ok(TokenId(from.u32()?)))?,
                action: Action::parse(&from.text()?).ok_or(Damaged)?,
                subject: from.text()?,
                detail: from.text()?,
            },
            previous: Digest(from.array()?),
            hash: Digest(from.array()?),
        })
    }
}

impl Row for AuditHead {
    fn write(&self, out: &mut Writer) {
        out.u64(self.first);
        out.u64(self.next);
        out.bytes.extend_from_slice(&self.before.0);
        out.bytes.extend_from_slice(&self.last.0);
    }

    fn read(from: &mut Reader) -> Result<Self, Damaged> {
        Ok(Self {
            first: from.u64()?,
            next: from.u64()?,
            before: Digest(from.array()?),
            last: Digest(from.array()?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::name::Name;

    #[test]
    fn rows_and_heads_read_back_and_follow_each_other() {
        let mut head = AuditHead::EMPTY;
        let mut entry = AuditEntry {
            realm: Name::new("default").expect("a name"),
            actor: "operator".to_owned(),
            token: None,
            action: Action::TokenCreate,
            subject: "t00000001".to_owned(),
            detail: String::new(),
        };
        let (first, one) = head.append(entry.clone(), Timestamp::from_millis(1));
        entry.token = Some(TokenId(1));
        let (second, two) = head.append(entry, Timestamp::from_millis(2));
        for row in [&one, &two] {
            assert_eq!(&AuditRow::decode(row.encode()).expect("a row"), row);
        }
        assert_eq!(AuditHead::decode(head.encode()).expect("a row"), head);
        assert!(one.follows(AuditHead::EMPTY.last, first) && two.follows(one.hash, second));
        assert!(!two.follows(one.hash, first) && !two.follows(two.hash, second));
        assert_eq!((head.next, head.last), (3, two.hash));
    }
}
