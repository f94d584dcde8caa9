//! Every row there is, and the bytes of its key.
//!
//! Keys are big-endian, so that they sort like the numbers they hold, and each begins with its realm (`meta`
//! and `audit`, which belong to none, excepted).
//!
//! ```text
//! meta           name                                     secret, counters
//! realms         realm u32                                its name and limits
//! topics         realm u32 | topic u32                    name and settings
//! heads          realm u32 | topic u32                    next sequence and how far it is trimmed
//! subscriptions  realm u32 | subscription u32             name, pattern of topics and settings
//! cursors        realm u32 | subscription u32             its circuit and counts
//! backlogs       realm u32 | subscription u32 | topic u32 which backlog it has there, next sequence to lease, row counts
//! revisions      realm u32 | subscription u32 | u32       one revision of its policy
//! modules        realm u32 | digest 32 | chunk u16        a policy module, in pieces that fit a commit
//! messages       realm u32 | topic u32 | sequence u64     a message
//! expiries       realm u32 | topic u32 | at u64 | seq u64 nothing; a time to live that will pass
//! leased         realm u32 | backlog u32 | seq u64        a delivery under a lease
//! delayed        realm u32 | backlog u32 | seq u64        a delivery that waits
//! due            realm u32 | backlog u32 | at u64 | seq u64   nothing; when a delayed one is due
//! settled        realm u32 | backlog u32 | seq u64        the end of a delivery that has a history
//! recorded       realm u32 | subscription u32 | number u64  failures that were decided, in a row those of one turn
//! dead_letters   realm u32 | subscription u32 | topic u32 | seq u64   a delivery given up on, with its message
//! dead_terms     realm u32 | term hash 16 | at u64 | subscription u32 | topic u32 | seq u64   nothing; a dead letter by one of
//!                                                         its terms
//! dead_tallies   realm u32 | subscription u32 or 0 | facet u8 | value   how many dead letters have this value
//! jobs           realm u32 | job u32                      what is done to many dead letters, and how far it came
//! replayed       realm u32 | backlog u32 | seq u64        a replayed delivery's own copy of its message
//! doomed         realm u32 | kind u8 | id u32             nothing; what was deleted and has rows left
//! locks          realm u32 | backlog u32 | key hash 16    the sequence of the delivery that holds up its key
//! blocked        realm u32 | backlog u32 | key hash 16 | seq u64   nothing; a delivery that waits for its key
//! outbox         realm u32 | topic u32 | backlog u32 | seq u64   a message on its way to another topic
//! dedup          realm u32 | topic u32 | hash 16          a message by the id that its publisher gave it
//! dedup_times    realm u32 | topic u32 | at u64 | seq u64 the hash of that id; when it was published
//! tokens         realm u32 | token u32                    what a token allows, and the hashes of its secrets
//! audit          number u64                               who did what, chained to the row before it
//! ```

use std::ops::Range;

use crate::domain::access::TokenId;
use crate::domain::dedup::Fingerprint;
use crate::domain::digest::Digest;
use crate::domain::id::{BacklogId, DeadLetterId, RealmId, Sequence, SubscriptionId, TopicId};
use crate::domain::job::JobId;
use crate::domain::time::Timestamp;

/// A family of rows.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[expect(missing_docs, reason = "the table above documents each")]
pub enum Keyspace {
    Meta,
    Realms,
    Topics,
    Heads,
    Subscriptions,
    Cursors,
    Revisions,
    Modules,
    Messages,
    Expiries,
    Leased,
    Delayed,
    Due,
    Settled,
    DeadLetters,
    Replayed,
    Doomed,
    Outbox,
    Recorded,
    Locks,
    Blocked,
    Dedup,
    DedupTimes,
    Tokens,
    Audit,
    Backlogs,
    DeadTerms,
    DeadTallies,
    Jobs,
}

impl Keyspace {
    /// Every keyspace; the place in this list is its number in an encoded commit.
    pub const ALL: [Self; 29] = [
        Self::Meta,
        Self::Realms,
        Self::Topics,
        Self::Heads,
        Self::Subscriptions,
        Self::Cursors,
        Self::Revisions,
        Self::Modules,
        Self::Messages,
        Self::Expiries,
        Self::Leased,
        Self::Delayed,
        Self::Due,
        Self::Settled,
        Self::DeadLetters,
        Self::Replayed,
        Self::Doomed,
        Self::Outbox,
        Self::Recorded,
        Self::Locks,
        Self::Blocked,
        Self::Dedup,
        Self::DedupTimes,
        Self::Tokens,
        Self::Audit,
        Self::Backlogs,
        Self::DeadTerms,
        Self::DeadTallies,
        Self::Jobs,
    ];

    /// Its name on disk.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Meta => "meta",
            Self::Realms => "realms",
            Self::Topics => "topics",
            Self::Heads => "heads",
            Self::Subscriptions => "subscriptions",
            Self::Cursors => "cursors",
            Self::Revisions => "revisions",
            Self::Modules => "modules",
            Self::Messages => "messages",
            Self::Expiries => "expiries",
            Self::Leased => "leased",
            Self::Delayed => "delayed",
            Self::Due => "due",
            Self::Settled => "settled",
            Self::DeadLetters => "dead_letters",
            Self::Replayed => "replayed",
            Self::Doomed => "doomed",
            Self::Outbox => "outbox",
            Self::Recorded => "recorded",
            Self::Locks => "locks",
            Self::Blocked => "blocked",
            Self::Dedup => "dedup",
            Self::DedupTimes => "dedup_times",
            Self::Tokens => "tokens",
            Self::Audit => "audit",
            Self::Backlogs => "backlogs",
            Self::DeadTerms => "dead_terms",
            Self::DeadTallies => "dead_tallies",
            Self::Jobs => "jobs",
        }
    }
}

/// The bytes of a key in the making.
pub struct Key(Vec<u8>);

impl Key {
    /// A key of this realm.
    pub fn new(realm: RealmId) -> Self {
        let mut bytes = Vec::with_capacity(24);
        bytes.extend_from_slice(&realm.0.to_be_bytes());
        Self(bytes)
    }

    fn u32(mut self, number: u32) -> Self {
        self.0.extend_from_slice(&number.to_be_bytes());
        self
    }

    fn u64(mut self, number: u64) -> Self {
        self.0.extend_from_slice(&number.to_be_bytes());
        self
    }
}

/// `topics`, `heads`; and the prefix of all rows of a topic, `outbox` included.
pub fn topic(realm: RealmId, topic: TopicId) -> Vec<u8> {
    Key::new(realm).u32(topic.0).0
}

/// `subscriptions`, `cursors`; and the prefix of all rows of a subscription.
pub fn subscription(realm: RealmId, subscription: SubscriptionId) -> Vec<u8> {
    Key::new(realm).u32(subscription.0).0
}

/// `realms`; and the prefix of all rows of a realm.
pub fn realm(realm: RealmId) -> Vec<u8> {
    Key::new(realm).0
}

/// `tokens`.
pub fn token(realm: RealmId, token: TokenId) -> Vec<u8> {
    Key::new(realm).u32(token.0).0
}

/// `audit`.
pub fn audit(number: u64) -> Vec<u8> {
    number.to_be_bytes().to_vec()
}

/// `revisions`.
pub fn revision(realm: RealmId, subscription: SubscriptionId, number: u32) -> Vec<u8> {
    Key::new(realm).u32(subscription.0).u32(number).0
}

/// `modules`.
pub fn module(realm: RealmId, digest: &Digest, chunk: u16) -> Vec<u8> {
    let mut key = Key::new(realm).0;
    key.extend_from_slice(&digest.0);
    key.extend_from_slice(&chunk.to_be_bytes());
    key
}

/// `messages`.
pub fn message(realm: RealmId, topic: TopicId, sequence: Sequence) -> Vec<u8> {
    Key::new(realm).u32(topic.0).u64(sequence).0
}

/// `expiries`.
pub fn expiry(realm: RealmId, topic: TopicId, at: Timestamp, sequence: Sequence) -> Vec<u8> {
    Key::new(realm).u32(topic.0).u64(at.as_millis()).u64(sequence).0
}

/// `leased`, `delayed`, `settled`, `replayed`.
pub fn delivery(realm: RealmId, backlog: BacklogId, sequence: Sequence) -> Vec<u8> {
    Key::new(realm).u32(backlog.0).u64(sequence).0
}

/// The prefix of all rows of a backlog.
pub fn backlog(realm: RealmId, backlog: BacklogId) -> Vec<u8> {
    Key::new(realm).u32(backlog.0).0
}

/// `backlogs`.
pub fn backlog_of(realm: RealmId, subscription: SubscriptionId, topic: TopicId) -> Vec<u8> {
    Key::new(realm).u32(subscription.0).u32(topic.0).0
}

/// `dead_letters`.
pub fn dead_letter(realm: RealmId, id: DeadLetterId) -> Vec<u8> {
    Key::new(realm).u32(id.subscription.0).u32(id.topic.0).u64(id.sequence).0
}

/// The prefix of a term's rows in `dead_terms`.
pub fn term(realm: RealmId, hash: &[u8; 16]) -> Vec<u8> {
    let mut key = Key::new(realm).0;
    key.extend_from_slice(hash);
    key
}

/// `dead_terms`.
pub fn dead_term(realm: RealmId, hash: &[u8; 16], at: Timestamp, id: DeadLetterId) -> Vec<u8> {
    Key(term(realm, hash)).u64(at.as_millis()).u32(id.subscription.0).u32(id.topic.0).u64(id.sequence).0
}

/// When a dead letter was given up, and which it is, in a key of `dead_terms`.
pub fn read_dead_term(key: &[u8]) -> Option<(Timestamp, DeadLetterId)> {
    let (at, id) = key.get(20..)?.split_first_chunk()?;
    let (subscription, id) = id.split_first_chunk()?;
    let (topic, sequence) = id.split_first_chunk()?;
    let id = DeadLetterId {
        subscription: SubscriptionId(u32::from_be_bytes(*subscription)),
        topic: TopicId(u32::from_be_bytes(*topic)),
        sequence: u64::from_be_bytes(sequence.try_into().ok()?),
    };
    Some((Timestamp::from_millis(u64::from_be_bytes(*at)), id))
}

/// `dead_tallies`; without a value the prefix of a facet. No subscription has the number 0: it stands for all of them.
pub fn dead_tally(realm: RealmId, subscription: Option<SubscriptionId>, facet: u8, value: &[u8]) -> Vec<u8> {
    let mut key = Key::new(realm).u32(subscription.map_or(0, |id| id.0)).0;
    key.push(facet);
    key.extend_from_slice(value);
    key
}

/// The value in a key of `dead_tallies`.
pub fn read_tallied(key: &[u8]) -> Option<&[u8]> {
    key.get(9..)
}

/// `jobs`.
pub fn job(realm: RealmId, job: JobId) -> Vec<u8> {
    Key::new(realm).u32(job.0).0
}

/// `recorded`: the first of the row's records has this number.
pub fn recorded(realm: RealmId, subscription: SubscriptionId, number: u64) -> Vec<u8> {
    Key::new(realm).u32(subscription.0).u64(number).0
}

/// `due`.
pub fn due(realm: RealmId, backlog: BacklogId, at: Timestamp, sequence: Sequence) -> Vec<u8> {
    Key::new(realm).u32(backlog.0).u64(at.as_millis()).u64(sequence).0
}

/// `locks`; and the prefix of the key's rows in `blocked`.
pub fn lock(realm: RealmId, backlog: BacklogId, hash: &[u8; 16]) -> Vec<u8> {
    let mut key = Key::new(realm).u32(backlog.0).0;
    key.extend_from_slice(hash);
    key
}

/// `blocked`.
pub fn blocked(realm: RealmId, backlog: BacklogId, hash: &[u8; 16], sequence: Sequence) -> Vec<u8> {
    Key(lock(realm, backlog, hash)).u64(sequence).0
}

/// `outbox`: by the topic it goes to.
pub fn outbox(realm: RealmId, to: TopicId, from: BacklogId, sequence: Sequence) -> Vec<u8> {
    Key::new(realm).u32(to.0).u32(from.0).u64(sequence).0
}

/// `dedup`.
pub fn dedup(realm: RealmId, topic: TopicId, id: Fingerprint) -> Vec<u8> {
    let mut key = Key::new(realm).u32(topic.0).0;
    key.extend_from_slice(&id.0);
    key
}

/// `dedup_times`.
pub fn dedup_time(realm: RealmId, topic: TopicId, at: Timestamp, sequence: Sequence) -> Vec<u8> {
    Key::new(realm).u32(topic.0).u64(at.as_millis()).u64(sequence).0
}

/// `doomed`.
pub fn doomed(realm: RealmId, owner: Owner) -> Vec<u8> {
    let mut key = Key::new(realm).0;
    let (kind, id) = match owner {
        Owner::Topic(id) => (0, id.0),
        Owner::Subscription(id) => (1, id.0),
        Owner::Backlog(id) => (2, id.0),
        Owner::Realm => (3, 0),
    };
    key.push(kind);
    key.extend_from_slice(&id.to_be_bytes());
    key
}

/// Whose rows they are.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Owner {
    /// A topic's.
    Topic(TopicId),
    /// A subscription's.
    Subscription(SubscriptionId),
    /// A backlog's: those of the deliveries of a subscription on one topic.
    Backlog(BacklogId),
    /// The realm's own: policy modules.
    Realm,
}

/// The realm and the owner in a key of `doomed`.
pub fn read_doomed(key: &[u8]) -> Option<(RealmId, Owner)> {
    let [realm @ .., kind, a, b, c, d] = key else { return None };
    let realm = RealmId(u32::from_be_bytes(realm.try_into().ok()?));
    let id = u32::from_be_bytes([*a, *b, *c, *d]);
    match kind {
        0 => Some((realm, Owner::Topic(TopicId(id)))),
        1 => Some((realm, Owner::Subscription(SubscriptionId(id)))),
        2 => Some((realm, Owner::Backlog(BacklogId(id)))),
        3 => Some((realm, Owner::Realm)),
        _ => None,
    }
}

/// All keys that begin with `prefix`.
pub fn prefixed(prefix: Vec<u8>) -> Range<Vec<u8>> {
    let mut end = prefix.clone();
    // The least key after all of them: the last byte that can grow grows, the rest falls away.
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return prefix..end;
        }
    }
    // A prefix of 0xff alone: keys are shorter than this.
    prefix..vec![u8::MAX; 64]
}

/// All keys of a keyspace.
pub fn everything() -> Range<Vec<u8>> {
    prefixed(Vec::new())
}

/// The sequence that ends a key of `messages`, `expiries`, `due`, `dedup_times` or a delivery, and the number that is one of
/// `audit`.
pub fn read_sequence(key: &[u8]) -> Option<Sequence> {
    key.last_chunk().map(|bytes| u64::from_be_bytes(*bytes))
}

/// The number that ends a key of `revisions`.
pub fn read_revision(key: &[u8]) -> Option<u32> {
    key.last_chunk().map(|bytes| u32::from_be_bytes(*bytes))
}

/// The moment in a key of `expiries`, `due` or `dedup_times`.
pub fn read_moment(key: &[u8]) -> Option<Timestamp> {
    let bytes = key.get(8..16)?.first_chunk()?;
    Some(Timestamp::from_millis(u64::from_be_bytes(*bytes)))
}

/// The hash in a row of `dedup_times`.
pub fn read_fingerprint(value: &[u8]) -> Option<Fingerprint> {
    value.try_into().ok().map(Fingerprint)
}

/// The number after the realm: a topic, a subscription, a backlog or a token.
pub fn read_owner(key: &[u8]) -> Option<u32> {
    let bytes = key.get(4..8)?.first_chunk()?;
    Some(u32::from_be_bytes(*bytes))
}

/// The topic in a key of `backlogs` or `dead_letters`.
pub fn read_topic(key: &[u8]) -> Option<TopicId> {
    let bytes = key.get(8..12)?.first_chunk()?;
    Some(TopicId(u32::from_be_bytes(*bytes)))
}

/// The realm that begins a key.
pub fn read_realm(key: &[u8]) -> Option<RealmId> {
    key.first_chunk().map(|bytes| RealmId(u32::from_be_bytes(*bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const REALM: RealmId = RealmId(1);

    #[test]
    fn keys_sort_like_what_they_hold_and_read_back() {
        let at = Timestamp::from_millis;
        let keys = [
            due(REALM, BacklogId(1), at(255), 9),
            due(REALM, BacklogId(1), at(256), 1),
            due(REALM, BacklogId(1), at(256), 2),
            due(REALM, BacklogId(256), at(0), 0),
        ];
        assert!(keys.is_sorted());
        assert_eq!(read_moment(&keys[2]), Some(at(256)));
        assert_eq!(read_sequence(&keys[2]), Some(2));
        assert_eq!(read_owner(&keys[3]), Some(256));
        assert_eq!(read_realm(&keys[3]), Some(REALM));
        let subscription = Owner::Subscription(SubscriptionId(u32::MAX));
        let backlog = Owner::Backlog(BacklogId(8));
        for owner in [Owner::Topic(TopicId(7)), subscription, backlog, Owner::Realm] {
            assert_eq!(read_doomed(&doomed(REALM, owner)), Some((REALM, owner)));
        }
    }

    #[test]
    fn a_prefix_holds_its_own_keys_alone() {
        let dead = |realm, subscription, sequence| {
            let id = DeadLetterId { subscription: SubscriptionId(subscription), topic: TopicId(7), sequence };
            dead_letter(realm, id)
        };
        let range = prefixed(subscription(REALM, SubscriptionId(0x01ff)));
        assert!(range.contains(&dead(REALM, 0x01ff, u64::MAX)));
        assert!(!range.contains(&dead(REALM, 0x0200, 0)));
        assert!(!range.contains(&dead(REALM, 0x01fe, u64::MAX)));
        assert_eq!(read_topic(&dead(REALM, 1, 2)), Some(TopicId(7)));
        let last = prefixed(vec![u8::MAX; 4]);
        assert!(last.contains(&dead(RealmId(u32::MAX), 0, 0)));
    }
}
