//! What the audit log tells of, and the chain that holds it together.
//!
//! ```text
//! hash  SHA-256 over these lines, with a line feed between them:
//!       the hash before it | number | milliseconds since 1970 | realm | actor | token | action | subject | detail
//! ```
//!
//! Whoever has the rows of an answer can check it without the broker. No text of a row has a line feed.

use std::fmt::Write as _;

use super::access::TokenId;
use super::decision::cut;
use super::digest::Digest;
use super::name::Name;
use super::time::Timestamp;

/// What was done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Action {
    DeadLetterDiscard,
    DeadLetterReplay,
    JobAbort,
    JobPlan,
    JobStart,
    PayloadRead,
    PolicyParams,
    PolicyPut,
    PolicyQuarantine,
    PolicyRollback,
    RealmDelete,
    RealmPut,
    ShadowDelete,
    ShadowPut,
    SubscriptionDelete,
    SubscriptionPause,
    SubscriptionPurge,
    SubscriptionPut,
    SubscriptionResume,
    SubscriptionSeek,
    TokenChange,
    TokenCreate,
    TokenRevoke,
    TokenRotate,
    TopicDelete,
    TopicPut,
}

impl Action {
    /// Every action.
    pub const ALL: [Self; 26] = [
        Self::DeadLetterDiscard,
        Self::DeadLetterReplay,
        Self::JobAbort,
        Self::JobPlan,
        Self::JobStart,
        Self::PayloadRead,
        Self::PolicyParams,
        Self::PolicyPut,
        Self::PolicyQuarantine,
        Self::PolicyRollback,
        Self::RealmDelete,
        Self::RealmPut,
        Self::ShadowDelete,
        Self::ShadowPut,
        Self::SubscriptionDelete,
        Self::SubscriptionPause,
        Self::SubscriptionPurge,
        Self::SubscriptionPut,
        Self::SubscriptionResume,
        Self::SubscriptionSeek,
        Self::TokenChange,
        Self::TokenCreate,
        Self::TokenRevoke,
        Self::TokenRotate,
        Self::TopicDelete,
        Self::TopicPut,
    ];

    /// Its name on every surface.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::DeadLetterDiscard => "dead_letter.discard",
            Self::DeadLetterReplay => "dead_letter.replay",
            Self::JobAbort => "job.abort",
            Self::JobPlan => "job.plan",
            Self::JobStart => "job.start",
            Self::PayloadRead => "payload.read",
            Self::PolicyParams => "policy.params",
            Self::PolicyPut => "policy.put",
            Self::PolicyQuarantine => "policy.quarantine",
            Self::PolicyRollback => "policy.rollback",
            Self::RealmDelete => "realm.delete",
            Self::RealmPut => "realm.put",
            Self::ShadowDelete => "shadow.delete",
            Self::ShadowPut => "shadow.put",
            Self::SubscriptionDelete => "subscription.delete",
            Self::SubscriptionPause => "subscription.pause",
            Self::SubscriptionPurge => "subscription.purge",
            Self::SubscriptionPut => "subscription.put",
            Self::SubscriptionResume => "subscription.resume",
            Self::SubscriptionSeek => "subscription.seek",
            Self::TokenChange => "token.change",
            Self::TokenCreate => "token.create",
            Self::TokenRevoke => "token.revoke",
            Self::TokenRotate => "token.rotate",
            Self::TopicDelete => "topic.delete",
            Self::TopicPut => "topic.put",
        }
    }

    /// The action of this name.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|action| action.as_str() == text)
    }
}

/// Who did what to what. Never a secret, a payload or parameters.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AuditEntry {
    /// Where.
    pub realm: Name,
    /// What whoever did it is called.
    pub actor: String,
    /// With which token; `None` is the operator's own, or nobody had to show one.
    pub token: Option<TokenId>,
    /// What was done.
    pub action: Action,
    /// To what: a name or an id.
    pub subject: String,
    /// What else there is to know.
    pub detail: String,
}

impl AuditEntry {
    /// With something else to know.
    pub fn with(self, detail: impl Into<String>) -> Self {
        Self { detail: detail.into(), ..self }
    }

    /// Of another realm than that of whoever did it.
    pub fn within(self, realm: &Name) -> Self {
        Self { realm: realm.clone(), ..self }
    }

    /// Within the bounds of a row, and of one line each.
    pub fn plain(self) -> Self {
        let plain = |text: String| cut(text.replace(char::is_control, " "));
        Self { subject: plain(self.subject), detail: plain(self.detail), ..self }
    }

    /// What chains the row of this number to the one before it.
    pub fn hash(&self, previous: Digest, number: u64, at: Timestamp) -> Digest {
        let mut lines = format!("{previous}\n{number}\n{}\n{}\n{}\n", at.as_millis(), self.realm, self.actor);
        if let Some(token) = self.token {
            // Writing to a text cannot fail.
            _ = write!(lines, "{token}");
        }
        let action = self.action.as_str();
        _ = write!(lines, "\n{action}\n{}\n{}", self.subject, self.detail);
        Digest::of(lines.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn actions_read_back_by_their_names() {
        for action in Action::ALL {
            assert_eq!(Action::parse(action.as_str()), Some(action));
        }
        assert!(Action::ALL.map(Action::as_str).is_sorted());
    }

    #[test]
    fn nothing_of_an_entry_can_change_under_its_hash() {
        let name = |text| Name::new(text).expect("a name");
        let entry = AuditEntry {
            realm: name("a"),
            actor: "operator".to_owned(),
            token: Some(TokenId(1)),
            action: Action::TopicPut,
            subject: "orders".to_owned(),
            detail: "x".to_owned(),
        };
        let (zero, at) = (Digest([0; 32]), Timestamp::from_millis(5));
        let hash = entry.hash(zero, 1, at);
        let others = [
            AuditEntry { realm: name("b"), ..entry.clone() },
            AuditEntry { actor: "other".to_owned(), ..entry.clone() },
            AuditEntry { token: None, ..entry.clone() },
            AuditEntry { action: Action::TopicDelete, ..entry.clone() },
            AuditEntry { subject: "order".to_owned(), detail: "sx".to_owned(), ..entry.clone() },
            entry.clone().with("y"),
        ];
        assert!(others.iter().all(|other| other.hash(zero, 1, at) != hash));
        assert_ne!(entry.hash(Digest([1; 32]), 1, at), hash);
        assert_ne!(entry.hash(zero, 2, at), hash);
        assert_ne!(entry.hash(zero, 1, Timestamp::from_millis(6)), hash);
        let forged = AuditEntry { subject: "orders\nx".to_owned(), ..entry };
        assert_eq!(forged.plain().subject, "orders x", "a text cannot pretend to be two");
    }
}
