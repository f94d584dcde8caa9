//! Why an attempt ended badly: what a policy is asked about.

use std::time::Duration;

/// What ended the attempt. There is one path for all of them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Cause {
    /// The consumer said that it failed.
    Nacked,
    /// The lease ran out without an answer.
    LeaseExpired,
    /// A streaming consumer vanished while it held the lease.
    Disconnected,
    /// The consumer gave the delivery back without fault.
    Released,
    /// The message's time to live passed before it was acked.
    MessageExpired,
}

impl Cause {
    /// Every cause, in the order of the policy contract.
    pub const ALL: [Self; 5] =
        [Self::Nacked, Self::LeaseExpired, Self::Disconnected, Self::Released, Self::MessageExpired];

    /// Whether it counts as a failure of the attempt.
    pub const fn is_failure(self) -> bool {
        matches!(self, Self::Nacked | Self::LeaseExpired | Self::Disconnected)
    }

    /// Its name on every surface.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Nacked => "nacked",
            Self::LeaseExpired => "lease_expired",
            Self::Disconnected => "disconnected",
            Self::Released => "released",
            Self::MessageExpired => "message_expired",
        }
    }
}

/// A cause and what the consumer said about it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// What ended the attempt.
    pub cause: Cause,
    /// The kind of error in the consumer's words; empty when it gave none.
    pub class: String,
    /// A machine-readable code, such as an HTTP status.
    pub code: Option<String>,
    /// Text for people.
    pub detail: Option<String>,
    /// The consumer's hint of how long to wait.
    pub retry_after: Option<Duration>,
}

impl Failure {
    /// The memory that it takes, roughly.
    pub fn bytes(&self) -> usize {
        size_of::<Self>() + self.class.len() + self.detail.as_ref().map_or(0, String::len)
    }

    /// What it is counted under: its class, or its cause where it has none.
    pub fn label(&self) -> &str {
        if self.class.is_empty() { self.cause.as_str() } else { &self.class }
    }

    /// A failure of which only the cause is known.
    pub const fn of(cause: Cause) -> Self {
        Self { cause, class: String::new(), code: None, detail: None, retry_after: None }
    }
}
