//! What can be asked of the engine, what it answers, and why it refuses.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::audit::{AuditChecked, AuditList, AuditPlace, AuditQuery};
use super::dead_letters::{DeadLetterList, DeadLetterQuery, DeadLetterView, Replayed};
use super::decide::Verdict;
use super::policies::{RevisionView, Rollback, SetPolicy};
use super::realms::{PutRealm, RealmView};
use super::record::RecordedView;
use super::shadow::{SetShadow, ShadowVerdict, ShadowView};
use super::tokens::{NewToken, Rotation, TokenChange, TokenView};
use super::{Durability, Reply};
use crate::domain::access::{Patterns, TokenId};
use crate::domain::audit::AuditEntry;
use crate::domain::decision::Decision;
use crate::domain::dedup::DedupKey;
use crate::domain::delivery::{Delivery, ExtendError, Stale};
use crate::domain::digest::Digest;
use crate::domain::failure::Failure;
use crate::domain::filter::Filter;
use crate::domain::id::{DeadLetterId, MessageId, RealmId, Sequence};
use crate::domain::message::Message;
use crate::domain::name::Name;
use crate::domain::receipt::Receipt;
use crate::domain::settings::{
    InvalidSetting, Mode, Ordering, Reads, Schema, Start, SubscriptionSettings, TopicSettings,
};
use crate::domain::time::Timestamp;
use crate::store::row::{CursorRow, Ending, HeadRow, SubscriptionRow, TopicRow};

/// One request, with the place its answer goes to.
#[expect(missing_docs, reason = "each is named after the verb it carries out")]
pub enum Command {
    PutTopic(RealmId, PutTopic, Reply<Put<TopicView>>),
    GetTopic(RealmId, Name, Reply<TopicView>),
    /// Those among the names that the patterns allow.
    ListTopics(RealmId, Page<Name>, Patterns, Reply<Listed<TopicView>>),
    DeleteTopic(RealmId, Name, Reply<()>),
    PutSubscription(RealmId, Box<PutSubscription>, Reply<Put<SubscriptionView>>),
    GetSubscription(RealmId, Name, Reply<SubscriptionView>),
    ListSubscriptions(RealmId, Page<Name>, Patterns, Reply<Listed<SubscriptionView>>),
    DeleteSubscription(RealmId, Name, Reply<()>),
    Publish(RealmId, Publish, Reply<Published>),
    Pull(RealmId, Pull, Reply<Vec<Granted>>),
    Ack(RealmId, Ack, Reply<Vec<AckResult>>),
    /// Nacks and releases: an attempt ends badly and the answer is the decision.
    Nack(RealmId, Nack, Reply<Vec<NackResult>>),
    Extend(RealmId, Extend, Reply<Vec<ExtendResult>>),
    /// The policies have answered.
    Decided(Vec<Verdict>),
    SetPolicy(RealmId, Box<SetPolicy>, Reply<Put<RevisionView>>),
    /// A revision; `None` is the active one.
    GetPolicy(RealmId, Name, Option<u32>, Reply<RevisionView>),
    GetModule(RealmId, Digest, Reply<Vec<u8>>),
    ListRevisions(RealmId, Name, Page<u32>, Reply<Listed<RevisionView>>),
    Rollback(RealmId, Rollback, Reply<Put<RevisionView>>),
    SetShadow(RealmId, Box<SetShadow>, Reply<Put<ShadowView>>),
    GetShadow(RealmId, Name, Reply<ShadowView>),
    DeleteShadow(RealmId, Name, Reply<()>),
    /// The shadows have answered.
    Shadowed(Vec<ShadowVerdict>),
    ListRecorded(RealmId, Name, Page<u64>, Reply<Listed<RecordedView>>),
    ListDeadLetters(RealmId, DeadLetterQuery, Reply<DeadLetterList>),
    GetDeadLetter(RealmId, DeadLetterId, Reply<DeadLetterView>),
    ReplayDeadLetter(RealmId, DeadLetterId, Reply<Replayed>),
    DiscardDeadLetter(RealmId, DeadLetterId, Reply<()>),
    GetMessage(RealmId, MessageId, Reply<MessageView>),
    Pause(RealmId, Pause, Reply<SubscriptionView>),
    Resume(RealmId, Name, Reply<SubscriptionView>),
    Seek(RealmId, Seek, Reply<Sought>),
    Purge(RealmId, Purge, Reply<Sought>),
    /// The messages of a topic, without taking them.
    Browse(RealmId, Browse, Reply<Listed<Browsed>>),
    /// What is outstanding on a subscription, without taking it.
    Peek(RealmId, Peek, Reply<Peeks>),
    /// Grant no more leases and let every waiting pull go.
    Drain(Reply<()>),
    PutRealm(PutRealm, Reply<Put<RealmView>>),
    GetRealm(Name, Reply<RealmView>),
    ListRealms(Page<Name>, Reply<Listed<RealmView>>),
    DeleteRealm(Name, Reply<RealmId>),
    CreateToken(RealmId, Box<NewToken>, Reply<TokenView>),
    GetToken(RealmId, TokenId, Reply<TokenView>),
    ListTokens(RealmId, Page<TokenId>, Reply<Listed<TokenView>>),
    ChangeToken(RealmId, TokenId, Box<TokenChange>, Reply<TokenView>),
    RotateToken(RealmId, TokenId, Rotation, Reply<TokenView>),
    DeleteToken(RealmId, TokenId, Reply<()>),
    /// A command, and what the audit log tells of it in the same batch if it is accepted.
    Audited(Box<(AuditEntry, Command)>),
    /// Something that changes nothing and is told of all the same.
    Audit(Box<AuditEntry>, Reply<()>),
    ListAudit(AuditQuery, Reply<AuditList>),
    CheckAudit(Option<AuditPlace>, Reply<AuditChecked>),
}

impl Command {
    /// The memory that it holds for its caller, where that can be much.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Publish(_, publish, _) => publish.messages.iter().map(NewMessage::bytes).sum(),
            Self::Nack(_, nack, _) => nack.items.iter().map(|(_, failure)| failure.bytes()).sum(),
            Self::SetShadow(_, set, _) => set.module.bytes.len(),
            Self::SetPolicy(_, set, _) => set.module.as_ref().map_or(0, |module| module.bytes.len()),
            Self::Audited(told) => told.1.bytes(),
            _ => 0,
        }
    }
}

/// Why a request was refused. Nothing was changed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the message of each says it")]
pub enum Refusal {
    #[error("there is no topic {0}")]
    TopicNotFound(Name),
    #[error("there is no subscription {0}")]
    SubscriptionNotFound(Name),
    #[error("there is no such message, or no subscription needs it any more")]
    MessageNotFound,
    #[error("there is no such dead letter")]
    DeadLetterNotFound,
    #[error("there is no such policy module")]
    ModuleNotFound,
    #[error("there is no revision {0}")]
    RevisionNotFound(u32),
    #[error("no healthy revision is older than the active one")]
    NoEarlierRevision,
    #[error("revision {0} is quarantined: upload the policy again to try it anew")]
    RevisionQuarantined(u32),
    #[error("that is what is active: a shadow has another module or other parameters")]
    ShadowIsActive,
    #[error("there is no shadow")]
    ShadowNotFound,
    #[error("another policy became active meanwhile: look at it and try again")]
    PolicyChanged,
    #[error("topic {0} still has subscriptions: delete them first")]
    TopicInUse(Name),
    #[error(
        "a subscription with a pattern has deliveries or dead letters of topic {0}: settle or purge the ones, replay or discard the others first"
    )]
    TopicUnsettled(Name),
    #[error("subscription {subscription} reads {}; delete it to read another", ReadsText(.reads))]
    TopicDiffers { subscription: Name, reads: Reads },
    #[error("subscription {subscription} does not read topic {topic}")]
    TopicNotRead { subscription: Name, topic: Name },
    #[error("{0}")]
    InvalidSetting(#[from] InvalidSetting),
    #[error("the payload has {bytes} bytes; topic {topic} takes {limit}")]
    MessageTooLarge { bytes: usize, topic: Name, limit: usize },
    #[error("deliver_at is more than a year ahead")]
    TooFarAhead,
    #[error("there can be no more than {limit} {what}")]
    LimitReached { what: &'static str, limit: usize },
    #[error("{0} pulls wait on this subscription already")]
    TooManyWaiters(usize),
    #[error("subscription {0} is live: it has no position and nothing outstanding")]
    NotForLive(Name),
    #[error("message {0} is outstanding again on this subscription: settle it first")]
    Outstanding(MessageId),
    #[error("the broker is shutting down")]
    ShuttingDown,
    #[error("this id was given to message {0}, which has another payload")]
    DedupConflict(MessageId),
    #[error(
        "topic {topic} is full: it may keep {limit} {what}, until messages that nobody needs any more go"
    )]
    TopicFull { topic: Name, what: &'static str, limit: u64 },
    #[error("the realm is full: its topics may keep {limit} {what} together")]
    RealmFull { what: &'static str, limit: u64 },
    #[error("there is no such realm")]
    RealmNotFound,
    #[error("realm {0} still has topics or subscriptions: delete them first")]
    RealmInUse(Name),
    #[error("the default realm stays")]
    DefaultRealm,
    #[error("there is no such token")]
    TokenNotFound,
    #[error("the realm has a token {0} already")]
    TokenExists(Name),
    #[error("the messages were checked against another schema than the topic has")]
    SchemaDiffers(Box<Unchecked>),
    #[error("the disk has less room than the broker leaves free")]
    InsufficientStorage,
}

/// What a subscription reads, for people.
struct ReadsText<'a>(&'a Reads);

impl fmt::Display for ReadsText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Reads::Topic(name) => write!(f, "topic {name}"),
            Reads::Topics(pattern) => write!(f, "the topics {pattern}"),
        }
    }
}

/// A page of a list that is ordered by `K`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Page<K> {
    /// Begin behind this one.
    pub after: Option<K>,
    /// At most so many.
    pub limit: usize,
}

/// One page, and whether more follow.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listed<T> {
    /// In order.
    pub items: Vec<T>,
    /// There are more behind the last one.
    pub more: bool,
}

/// A thing after it was put.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Put<T> {
    /// It was not there before.
    pub created: bool,
    /// As it stands now.
    pub value: T,
}

/// Creates a topic or replaces its settings.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PutTopic {
    /// Its name.
    pub name: Name,
    /// All of its settings.
    pub settings: TopicSettings,
}

/// A topic as people see it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TopicView {
    /// As configured.
    pub row: TopicRow,
    /// How far it has come.
    pub head: HeadRow,
    /// Subscriptions that read it.
    pub subscriptions: usize,
}

/// Creates a subscription, or changes the settings that are given.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PutSubscription {
    /// Its name.
    pub name: Name,
    /// What it reads; `None` only changes one that exists.
    pub reads: Option<Reads>,
    /// The settings to change.
    pub change: SubscriptionChange,
    /// What is not given goes back to its default.
    pub replace: Replace,
    /// New parameters of the standard policy, checked by it.
    pub retry: Option<String>,
}

/// What happens to settings that a change does not name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Replace {
    /// They go back to their defaults.
    All,
    /// They stay.
    Named,
}

/// Settings to change; what is `None` is not.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[expect(missing_docs, reason = "each is documented where it is stored")]
pub struct SubscriptionChange {
    pub mode: Option<Mode>,
    pub start: Option<Start>,
    pub lease: Option<Duration>,
    pub max_lease: Option<Duration>,
    pub max_in_flight: Option<u32>,
    pub min_delay: Option<Duration>,
    pub max_delay: Option<Duration>,
    pub attempt_limit: Option<u32>,
    pub fallback_delay: Option<Duration>,
    pub fault_limit: Option<u32>,
    pub forward_to: Option<Vec<Name>>,
    pub inspect_payload: Option<bool>,
    pub record_failures: Option<u32>,
    pub record_for: Option<Duration>,
    pub ordering: Option<Ordering>,
    pub filter: Option<Filter>,
    pub delivery_delay: Option<Duration>,
    pub max_rate: Option<u32>,
    pub max_in_flight_per_consumer: Option<u32>,
}

impl SubscriptionChange {
    /// These settings with the change made.
    pub fn apply(self, old: SubscriptionSettings) -> SubscriptionSettings {
        SubscriptionSettings {
            mode: self.mode.unwrap_or(old.mode),
            start: self.start.unwrap_or(old.start),
            lease: self.lease.unwrap_or(old.lease),
            max_lease: self.max_lease.unwrap_or(old.max_lease),
            max_in_flight: self.max_in_flight.unwrap_or(old.max_in_flight),
            min_delay: self.min_delay.unwrap_or(old.min_delay),
            max_delay: self.max_delay.unwrap_or(old.max_delay),
            attempt_limit: self.attempt_limit.unwrap_or(old.attempt_limit),
            fallback_delay: self.fallback_delay.unwrap_or(old.fallback_delay),
            fault_limit: self.fault_limit.unwrap_or(old.fault_limit),
            forward_to: self.forward_to.unwrap_or(old.forward_to),
            inspect_payload: self.inspect_payload.unwrap_or(old.inspect_payload),
            record_failures: self.record_failures.unwrap_or(old.record_failures),
            record_for: self.record_for.unwrap_or(old.record_for),
            ordering: self.ordering.unwrap_or(old.ordering),
            filter: self.filter.or(old.filter),
            delivery_delay: self.delivery_delay.unwrap_or(old.delivery_delay),
            max_rate: self.max_rate.unwrap_or(old.max_rate),
            max_in_flight_per_consumer: self
                .max_in_flight_per_consumer
                .unwrap_or(old.max_in_flight_per_consumer),
        }
    }
}

/// A subscription as people see it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SubscriptionView {
    /// As configured.
    pub row: SubscriptionRow,
    /// What it reads.
    pub reads: Reads,
    /// How many topics that are.
    pub topics: usize,
    /// What it did so far.
    pub cursor: CursorRow,
    /// What it has to do.
    pub counts: Counts,
    /// What decides.
    pub revision: RevisionView,
}

/// Deliveries of a subscription, on all of its topics.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Those that could be pulled now, leased ones and delayed ones.
    pub backlog: u64,
    /// Those under a lease or being decided.
    pub in_flight: u64,
    /// Those that wait for another attempt.
    pub delayed: u64,
    /// Those given up on.
    pub dead: u64,
}

impl Counts {
    /// One part of these was `old` and is `new` now.
    pub(super) fn replace(&mut self, old: Self, new: Self) {
        let replace = |sum: &mut u64, old: u64, new: u64| *sum = (*sum + new).saturating_sub(old);
        replace(&mut self.backlog, old.backlog, new.backlog);
        replace(&mut self.in_flight, old.in_flight, new.in_flight);
        replace(&mut self.delayed, old.delayed, new.delayed);
        replace(&mut self.dead, old.dead, new.dead);
    }
}

/// Publishes messages, those that the topic takes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Publish {
    /// Where to.
    pub topic: Name,
    /// In order.
    pub messages: Vec<NewMessage>,
    /// The schema that they were found to follow.
    pub checked: Option<Digest>,
}

/// Messages that were not checked against the schema of their topic.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unchecked {
    /// What they have to be checked against, if anything.
    pub schema: Option<Schema>,
    /// As they came.
    pub messages: Vec<NewMessage>,
}

/// A message before the broker has accepted it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[expect(missing_docs, reason = "each is documented at the message")]
pub struct NewMessage {
    pub key: Option<String>,
    pub attributes: Vec<(String, String)>,
    pub content_type: Option<String>,
    pub payload: bytes::Bytes,
    /// Not delivered before this has passed.
    pub delay: Duration,
    /// Not delivered before this moment of broker time.
    pub deliver_at: Option<Timestamp>,
    /// Given to the policy as expired when this and the delay have passed.
    pub ttl: Option<Duration>,
    /// What its publisher calls it.
    pub dedup: Option<DedupKey>,
}

impl NewMessage {
    /// The memory that it takes, roughly.
    pub fn bytes(&self) -> usize {
        let attributes: usize =
            self.attributes.iter().map(|(name, value)| 64 + name.len() + value.len()).sum();
        size_of::<Self>() + self.payload.len() + attributes
    }
}

/// A message that is stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Accepted {
    /// Its id.
    pub id: MessageId,
    /// It was published before, under the same id of its publisher's.
    pub duplicate: bool,
}

/// What became of messages.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Published {
    /// In the order of the request.
    pub results: Vec<Result<Accepted, Refusal>>,
    /// What the broker waited for.
    pub durability: Durability,
}

/// Asks for deliveries, and waits for the first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pull {
    /// From where.
    pub subscription: Name,
    /// At most so many.
    pub max: usize,
    /// How long to wait if there are none.
    pub wait: Duration,
    /// Who asks, where consumers are told apart.
    pub consumer: Option<Arc<str>>,
    /// Payload bytes, give or take one message.
    pub max_bytes: usize,
}

/// A delivery under a lease.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Granted {
    /// Which lease.
    pub receipt: Receipt,
    /// Failures so far.
    pub failures: u32,
    /// Until when it is held; `None` if it was settled as it was handed out.
    pub lease_until: Option<Timestamp>,
    /// The topic's name.
    pub topic: Name,
    /// The message's id.
    pub id: MessageId,
    /// The message.
    pub message: Arc<Message>,
}

/// Stops the deliveries of a subscription.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pause {
    /// Which one.
    pub subscription: Name,
    /// Why, for people.
    pub reason: String,
    /// Who asks for it.
    pub by: String,
}

/// Starts a subscription again from another point.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Seek {
    /// Which one.
    pub subscription: Name,
    /// On this topic; `None` is all that it reads.
    pub topic: Option<Name>,
    /// From where.
    pub to: Start,
}

/// Ends what is outstanding on a subscription.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Purge {
    /// Which one.
    pub subscription: Name,
    /// On this topic; `None` is all that it reads.
    pub topic: Option<Name>,
}

/// A subscription that started again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sought {
    /// The first message that it gets, where that is one of one topic.
    pub sequence: Option<Sequence>,
    /// Deliveries that were outstanding, and are no more.
    pub ended: u64,
}

/// Reads messages of a topic, oldest first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Browse {
    /// Which topic.
    pub topic: Name,
    /// Where to begin, where no page came before.
    pub from: Start,
    /// Which page.
    pub page: Page<Sequence>,
}

/// A message of a topic.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Browsed {
    /// Its id.
    pub id: MessageId,
    /// The topic's name.
    pub topic: Name,
    /// The message.
    pub message: Message,
}

/// Reads what is outstanding on a subscription, oldest message first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Peek {
    /// Which subscription.
    pub subscription: Name,
    /// Which page.
    pub page: Page<MessageId>,
}

/// A message that is outstanding.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Peeked {
    /// The message.
    pub message: Browsed,
    /// How it stands.
    pub delivery: DeliveryView,
}

/// A page of what is outstanding. It can be short, even empty, and still have a next one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Peeks {
    /// In order.
    pub items: Vec<Peeked>,
    /// Where the next page begins: behind this one.
    pub next: Option<MessageId>,
}

/// Settles deliveries as done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ack {
    /// Whose.
    pub subscription: Name,
    /// Which leases.
    pub receipts: Vec<Receipt>,
}

/// What became of one receipt of an ack.
pub type AckResult = Result<crate::domain::delivery::Acked, SettleError>;

/// Ends attempts badly, or gives them back.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Nack {
    /// Whose.
    pub subscription: Name,
    /// Which leases, and why.
    pub items: Vec<(Receipt, Failure)>,
}

/// What became of one item of a nack.
pub type NackResult = Result<Decided, SettleError>;

/// A decision that was committed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Decided {
    /// What was decided.
    pub decision: Decision,
    /// When the next attempt is due, after a retry.
    pub next_attempt_at: Option<Timestamp>,
}

/// Moves the deadlines of leases.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Extend {
    /// Whose.
    pub subscription: Name,
    /// Which leases, and how long from now; `None` is the subscription's lease.
    pub items: Vec<(Receipt, Option<Duration>)>,
}

/// What became of one item of an extend: the new deadline.
pub type ExtendResult = Result<Timestamp, SettleError>;

/// Why one item of a batch failed. The delivery is unchanged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SettleError {
    /// Not a receipt of this subscription.
    #[error("not a receipt of this subscription")]
    InvalidReceipt,
    /// The lease is over.
    #[error("the lease of this receipt is over: it was settled, ran out, or was granted again")]
    StaleReceipt,
    /// The attempt would hold the delivery too long.
    #[error("the lease cannot last longer than max_lease in all")]
    MaxLease {
        /// The latest moment it can be extended to.
        until: Timestamp,
    },
}

impl From<Stale> for SettleError {
    fn from(Stale: Stale) -> Self {
        Self::StaleReceipt
    }
}

impl From<ExtendError> for SettleError {
    fn from(error: ExtendError) -> Self {
        match error {
            ExtendError::Stale => Self::StaleReceipt,
            ExtendError::MaxLease { until } => Self::MaxLease { until },
        }
    }
}

/// A message and what became of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MessageView {
    /// Its id.
    pub id: MessageId,
    /// The topic's name.
    pub topic: Name,
    /// The message.
    pub message: Message,
    /// One entry for each subscription of the topic that still knows what became of it.
    pub deliveries: Vec<DeliveryView>,
}

/// What became of a message on one subscription.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeliveryView {
    /// The subscription.
    pub subscription: Name,
    /// Where the delivery stands.
    pub stands: Stands,
    /// Counters and history; `None` if no attempt was ever recorded, or it was acked at the first.
    pub delivery: Option<Delivery>,
}

/// Where a delivery stands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Stands {
    /// Published before the subscription began, or passed by at its last seek or purge.
    NotSubscribed,
    /// Its filter passed it by.
    Filtered,
    /// It can be pulled, unless others come first.
    Ready,
    /// It waits.
    Delayed {
        /// Until then.
        until: Timestamp,
    },
    /// A consumer holds it.
    Leased {
        /// Until then.
        until: Timestamp,
    },
    /// The policy is being asked.
    Deciding,
    /// It is over.
    Ended(Ending),
    /// Given up on.
    DeadLettered {
        /// The dead letter.
        id: DeadLetterId,
        /// When.
        at: Timestamp,
        /// Which queue; `None` is the default one.
        queue: Option<Name>,
        /// Why.
        reason: String,
    },
}

impl Stands {
    /// Whether it has yet to be settled.
    pub(super) const fn is_outstanding(&self) -> bool {
        matches!(self, Self::Ready | Self::Delayed { .. } | Self::Leased { .. } | Self::Deciding)
    }
}

/// The id of a message of this topic.
pub(super) const fn message_id(topic: crate::domain::id::TopicId, sequence: Sequence) -> MessageId {
    MessageId { topic, sequence }
}
