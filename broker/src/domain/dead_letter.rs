//! What dead letters can be looked for by.

use super::access::Patterns;
use super::delivery::PastAttempt;
use super::failure::Cause;
use super::id::{SubscriptionId, TopicId};
use super::name::Name;
use super::time::Timestamp;

/// Words of a reason that are looked for; what comes behind them is not.
const WORDS: usize = 64;

/// Which dead letters are meant: those that match all of it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DeadLetterFilter {
    /// Of this subscription.
    pub subscription: Option<Name>,
    /// Of messages of this topic.
    pub topic: Option<Name>,
    /// In this queue; `Some(None)` is the default one.
    pub queue: Option<Option<Name>>,
    /// Whose last failure has this class.
    pub class: Option<String>,
    /// Whose last failure has this cause.
    pub cause: Option<Cause>,
    /// Decided by this revision of the policy.
    pub revision: Option<u32>,
    /// After so many attempts.
    pub attempts: Option<u32>,
    /// With exactly this reason.
    pub reason: Option<String>,
    /// With all of these words in the reason.
    pub text: Option<String>,
    /// With all of these labels.
    pub labels: Vec<(String, String)>,
    /// With all of these attributes of the message.
    pub attributes: Vec<(String, String)>,
    /// Given up at or after this moment.
    pub since: Option<Timestamp>,
    /// Given up before this moment.
    pub until: Option<Timestamp>,
}

impl DeadLetterFilter {
    /// Whether it means all of them.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether all that it can find is of subscriptions that these allow.
    pub fn is_within(&self, among: &Patterns) -> bool {
        match &self.subscription {
            Some(name) => among.allow(name),
            None => among.allow_all(""),
        }
    }
}

/// One thing that a dead letter is found by.
#[derive(Clone, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "each is documented at the filter")]
pub enum Term {
    /// It is one.
    Any,
    Subscription(SubscriptionId),
    Topic(TopicId),
    Queue(Option<Name>),
    Class(String),
    Cause(Cause),
    Revision(u32),
    Attempts(u32),
    Reason(String),
    Word(String),
    Label(String, String),
    Attribute(String, String),
}

/// A term that is counted by value.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[expect(missing_docs, reason = "each is documented at the filter")]
pub enum Facet {
    Subscription,
    Topic,
    Queue,
    Class,
    Cause,
    Revision,
    Reason,
    Label,
}

impl Facet {
    /// Each of them.
    pub const ALL: [Self; 8] = [
        Self::Subscription,
        Self::Topic,
        Self::Queue,
        Self::Class,
        Self::Cause,
        Self::Revision,
        Self::Reason,
        Self::Label,
    ];

    /// Its name in answers.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Subscription => "subscription",
            Self::Topic => "topic",
            Self::Queue => "queue",
            Self::Class => "class",
            Self::Cause => "cause",
            Self::Revision => "revision",
            Self::Reason => "reason",
            Self::Label => "label",
        }
    }
}

impl Term {
    /// What it is counted as, with its value; `None` where there is no telling how many values there are.
    pub fn facet(&self) -> Option<(Facet, Vec<u8>)> {
        Some(match self {
            Self::Subscription(id) => (Facet::Subscription, id.0.to_be_bytes().to_vec()),
            Self::Topic(id) => (Facet::Topic, id.0.to_be_bytes().to_vec()),
            Self::Queue(queue) => (Facet::Queue, queue.as_ref().map_or("", Name::as_str).into()),
            Self::Class(class) => (Facet::Class, class.as_bytes().into()),
            Self::Cause(cause) => (Facet::Cause, cause.as_str().into()),
            Self::Revision(revision) => (Facet::Revision, revision.to_be_bytes().to_vec()),
            Self::Reason(reason) => (Facet::Reason, reason.as_bytes().into()),
            Self::Label(name, value) => (Facet::Label, format!("{name}={value}").into_bytes()),
            Self::Any | Self::Attempts(_) | Self::Word(_) | Self::Attribute(..) => return None,
        })
    }

    /// Text that no other term has.
    pub fn text(&self) -> String {
        match self {
            Self::Any => "any".to_owned(),
            Self::Subscription(id) => format!("subscription {}", id.0),
            Self::Topic(id) => format!("topic {}", id.0),
            Self::Queue(queue) => format!("queue {}", queue.as_ref().map_or("", Name::as_str)),
            Self::Class(class) => format!("class {class}"),
            Self::Cause(cause) => format!("cause {}", cause.as_str()),
            Self::Revision(revision) => format!("revision {revision}"),
            Self::Attempts(attempts) => format!("attempts {attempts}"),
            Self::Reason(reason) => format!("reason {reason}"),
            Self::Word(word) => format!("word {word}"),
            // The length tells where the name ends.
            Self::Label(name, value) => format!("label {} {name}{value}", name.len()),
            Self::Attribute(name, value) => format!("attribute {} {name}{value}", name.len()),
        }
    }

    /// Those of how the last attempt went.
    pub fn of_failure(last: &PastAttempt) -> impl Iterator<Item = Self> {
        let failure = &last.failure;
        let revision = last.decision.decider.revision().map(Self::Revision);
        [Self::Class(failure.class.clone()), Self::Cause(failure.cause)].into_iter().chain(revision)
    }

    /// The words of a text, without regard to case.
    pub fn words(text: &str) -> impl Iterator<Item = Self> {
        let words = text.split(|letter: char| !letter.is_alphanumeric()).filter(|word| !word.is_empty());
        words.take(WORDS).map(|word| Self::Word(word.to_lowercase()))
    }
}
