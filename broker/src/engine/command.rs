//! What can be asked of the engine, what it answers, and why it refuses.

use std::fmt;

use super::Reply;
use super::audit::{AuditChecked, AuditList, AuditPlace, AuditQuery};
use super::browse::{Browse, Browsed, Peek, Peeks};
use super::control::{Pause, Purge, Seek, Sought};
use super::dead_letters::{
    DeadLetterEdit, DeadLetterFacets, DeadLetterList, DeadLetterQuery, DeadLetterView, Replayed,
};
use super::decide::Verdict;
use super::inspect::MessageView;
use super::jobs::JobView;
use super::policies::{RevisionView, Rollback, SetPolicy};
use super::publish::{NewMessage, Publish, Published, Unchecked};
use super::pull::{Granted, Pull};
use super::realms::{PutRealm, RealmView};
use super::record::RecordedView;
use super::settle::{Ack, AckResult, Extend, ExtendResult, Nack, NackResult};
use super::shadow::{SetShadow, ShadowVerdict, ShadowView};
use super::subscriptions::{PutSubscription, SubscriptionView};
use super::tokens::{NewToken, Rotation, TokenChange, TokenView};
use super::topics::{PutTopic, TopicView};
use crate::domain::access::{Patterns, TokenId};
use crate::domain::audit::AuditEntry;
use crate::domain::dead_letter::DeadLetterFilter;
use crate::domain::digest::Digest;
use crate::domain::id::{DeadLetterId, MessageId, RealmId};
use crate::domain::job::{JobId, JobPlan};
use crate::domain::name::Name;
use crate::domain::settings::{InvalidSetting, Reads};

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
    ListDeadLetters(RealmId, Box<DeadLetterQuery>, Reply<DeadLetterList>),
    /// How many there are, by what they have in common.
    CountDeadLetters(RealmId, Box<DeadLetterFilter>, Patterns, Reply<DeadLetterFacets>),
    GetDeadLetter(RealmId, DeadLetterId, Reply<DeadLetterView>),
    /// With what is to be changed of its message.
    ReplayDeadLetter(RealmId, DeadLetterId, Box<DeadLetterEdit>, Reply<Replayed>),
    DiscardDeadLetter(RealmId, DeadLetterId, Reply<()>),
    PlanJob(RealmId, Box<JobPlan>, Reply<JobView>),
    GetJob(RealmId, JobId, Reply<JobView>),
    /// Those about subscriptions that the patterns allow.
    ListJobs(RealmId, Page<JobId>, Patterns, Reply<Listed<JobView>>),
    StartJob(RealmId, JobId, Reply<JobView>),
    AbortJob(RealmId, JobId, Reply<JobView>),
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
            Self::ReplayDeadLetter(_, _, edit, _) => edit.payload.as_ref().map_or(0, bytes::Bytes::len),
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
    #[error("there is no such job")]
    JobNotFound,
    #[error("the job is {0}")]
    JobState(&'static str),
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
