//! The life of one message on one subscription, as a pure state machine.
//!
//! ```text
//!                grant                     nack, release, lease runs out, consumer vanishes
//!   Waiting ----------------> Leased -----------------------------------------------> Deciding
//!      ^  \                     |                                                       |  |  |
//!      |   \ time to live       | ack                                                   |  |  | ack, if the
//!      |    `--> Deciding       v                                                       |  |  | lease ran out
//!      |                      acked                                                     |  |  v
//!      `------------------------------------------- retry ------------------------------'  | acked (late)
//!                                                                                          v
//!        (Waiting after a lease that ran out: a late ack settles it)     dead letter, forward, drop
//! ```
//!
//! A transition checks the attempt that it was meant for; an older one changes nothing. `Deciding` is never
//! stored: until the decision is committed the delivery stands in storage as it did before.

use std::time::Duration;

use super::context::PastFailure;
use super::decision::{Action, Decider, Decision};
use super::failure::{Cause, Failure};
use super::limits::{MAX_CONTEXT_HISTORY, MAX_HISTORY};
use super::time::Timestamp;

/// A delivery that has not ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Delivery {
    /// Leases granted in this life; the current one's number while it is leased.
    pub attempt: u32,
    /// Attempts that ended nacked, lease-expired or disconnected.
    pub failures: u32,
    /// Attempts given back without fault.
    pub releases: u32,
    /// Times it came back from the dead letters; each begins a new life.
    pub replays: u32,
    /// Attempts of earlier lives.
    pub previous_attempts: u32,
    /// Decisions in a row that were faults.
    pub faults: u32,
    /// Its copy of the message was changed when it was replayed.
    pub edited: bool,
    /// The policy said to deliver it although its time to live has passed, or it was replayed.
    pub expiry_waived: bool,
    /// The lease of the current attempt ran out; its receipt may still ack.
    pub ran_out: bool,
    /// When this life's first lease was granted.
    pub first_leased_at: Option<Timestamp>,
    /// What the last decision asked to keep.
    pub memo: Vec<u8>,
    /// Where it is.
    pub state: State,
    /// Attempts that ended badly, oldest first: the last [`MAX_HISTORY`] of all lives.
    pub history: Vec<PastAttempt>,
}

/// Where a delivery is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum State {
    /// Under no lease; ready once it is due.
    Waiting {
        /// When that is.
        due_at: Timestamp,
    },
    /// Held by a consumer.
    Leased {
        /// Since when.
        leased_at: Timestamp,
        /// Until when.
        lease_until: Timestamp,
    },
    /// Its attempt ended badly and the policy is being asked.
    Deciding {
        /// When the lease that ended was granted; `None` if there was none.
        leased_at: Option<Timestamp>,
        /// When it ended.
        ended_at: Timestamp,
        /// Why.
        failure: Failure,
    },
}

/// An attempt that ended badly, and what was decided.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PastAttempt {
    /// The life it belongs to.
    pub replay: u32,
    /// Its number; 0 for a message that expired before its first lease.
    pub attempt: u32,
    /// When its lease was granted; `None` if the message expired while it waited.
    pub leased_at: Option<Timestamp>,
    /// When it ended.
    pub ended_at: Timestamp,
    /// Why.
    pub failure: Failure,
    /// What was decided.
    pub decision: Decision,
}

/// The receipt is of a lease that is over, or of one that was settled already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stale;

/// An ack that was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Acked {
    /// The lease had run out, but nobody else had been granted one.
    pub late: bool,
}

/// Why a lease was not extended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExtendError {
    /// The lease is over.
    Stale,
    /// The attempt would hold the delivery longer than `max_lease`.
    MaxLease {
        /// The latest moment it can be extended to.
        until: Timestamp,
    },
}

/// What a decision did to a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It waits for its next attempt.
    Waits {
        /// Until then.
        due_at: Timestamp,
    },
    /// It ended as the decision says.
    Ended,
}

impl Delivery {
    /// One that no consumer has seen.
    pub const fn new(due_at: Timestamp) -> Self {
        Self {
            attempt: 0,
            failures: 0,
            releases: 0,
            replays: 0,
            previous_attempts: 0,
            faults: 0,
            edited: false,
            expiry_waived: false,
            ran_out: false,
            first_leased_at: None,
            memo: Vec::new(),
            state: State::Waiting { due_at },
            history: Vec::new(),
        }
    }

    /// The memory that it takes, roughly.
    pub fn bytes(&self) -> usize {
        let texts = |past: &PastAttempt| {
            let detail = past.failure.detail.as_ref().map_or(0, String::len);
            let note = past.decision.note.as_ref().map_or(0, String::len);
            past.failure.class.len() + detail + note
        };
        let past: usize = self.history.iter().map(|past| size_of::<PastAttempt>() + texts(past)).sum();
        size_of::<Self>() + self.memo.len() + past
    }

    /// A dead letter's next life: attempts start again, the history and the sums stay, and no time to live.
    #[must_use]
    pub fn replayed(&self, due_at: Timestamp) -> Self {
        Self {
            replays: self.replays.saturating_add(1),
            previous_attempts: self.previous_attempts.saturating_add(self.attempt),
            edited: self.edited,
            expiry_waived: true,
            history: self.history.clone(),
            ..Self::new(due_at)
        }
    }

    /// This one, which ended as a dead letter where one of the same message was left from before a seek: its history and
    /// sums go on from there.
    #[must_use]
    pub fn after(mut self, mut earlier: Self) -> Self {
        self.replays = self.replays.saturating_add(earlier.replays);
        let attempts = earlier.previous_attempts.saturating_add(earlier.attempt);
        self.previous_attempts = self.previous_attempts.saturating_add(attempts);
        earlier.history.append(&mut self.history);
        let surplus = earlier.history.len().saturating_sub(MAX_HISTORY);
        earlier.history.drain(..surplus);
        self.history = earlier.history;
        self
    }

    /// Grants the next lease to a delivery that waits.
    ///
    /// # Errors
    /// [`Stale`] if it does not wait, or is not due.
    pub fn grant(&mut self, now: Timestamp, lease: Duration) -> Result<(), Stale> {
        match self.state {
            State::Waiting { due_at } if due_at <= now => {
                self.attempt = self.attempt.saturating_add(1);
                self.ran_out = false;
                self.first_leased_at.get_or_insert(now);
                self.state = State::Leased { leased_at: now, lease_until: now + lease };
                Ok(())
            }
            _ => Err(Stale),
        }
    }

    /// Whether an ack with a receipt of this life and attempt settles it; if so it has ended.
    ///
    /// # Errors
    /// [`Stale`] if the attempt is over in any way but that its lease ran out.
    pub fn ack(&self, replays: u32, attempt: u32) -> Result<Acked, Stale> {
        self.is_current(replays, attempt)?;
        match &self.state {
            State::Leased { .. } => Ok(Acked { late: self.ran_out }),
            State::Waiting { .. } | State::Deciding { .. } if self.ran_out => Ok(Acked { late: true }),
            State::Waiting { .. } | State::Deciding { .. } => Err(Stale),
        }
    }

    /// Ends the current lease badly. The policy is to be asked.
    ///
    /// # Errors
    /// [`Stale`] if that lease is over.
    pub fn fail(
        &mut self,
        replays: u32,
        attempt: u32,
        failure: Failure,
        now: Timestamp,
    ) -> Result<(), Stale> {
        self.is_current(replays, attempt)?;
        let State::Leased { leased_at, .. } = self.state else { return Err(Stale) };
        self.ran_out = failure.cause == Cause::LeaseExpired;
        self.state = State::Deciding { leased_at: Some(leased_at), ended_at: now, failure };
        Ok(())
    }

    /// The time to live passed while it waits. The policy is to be asked, unless it has said that the message
    /// is to be delivered all the same.
    ///
    /// # Errors
    /// [`Stale`] if it does not wait or the expiry is waived.
    pub fn expire(&mut self, now: Timestamp) -> Result<(), Stale> {
        if self.expiry_waived || !matches!(self.state, State::Waiting { .. }) {
            return Err(Stale);
        }
        let failure = Failure::of(Cause::MessageExpired);
        self.state = State::Deciding { leased_at: None, ended_at: now, failure };
        Ok(())
    }

    /// Moves the deadline of the current lease to `now + lease`, sooner or later than it was.
    ///
    /// # Errors
    /// [`ExtendError`] if the lease is over, or would last longer than `max_lease` in all.
    pub fn extend(
        &mut self,
        replays: u32,
        attempt: u32,
        now: Timestamp,
        lease: Duration,
        max_lease: Duration,
    ) -> Result<Timestamp, ExtendError> {
        self.is_current(replays, attempt).map_err(|Stale| ExtendError::Stale)?;
        let State::Leased { leased_at, lease_until } = &mut self.state else {
            return Err(ExtendError::Stale);
        };
        if *lease_until <= now {
            return Err(ExtendError::Stale);
        }
        let latest = *leased_at + max_lease;
        if now + lease > latest {
            return Err(ExtendError::MaxLease { until: latest });
        }
        *lease_until = now + lease;
        Ok(*lease_until)
    }

    /// Applies a decision and writes it into the history.
    ///
    /// # Errors
    /// [`Stale`] if no decision is awaited for this attempt.
    pub fn decided(
        &mut self,
        replays: u32,
        attempt: u32,
        mut decision: Decision,
        now: Timestamp,
    ) -> Result<Outcome, Stale> {
        self.is_current(replays, attempt)?;
        let due_at = match &decision.action {
            Action::Retry { delay } => Some(now + *delay),
            _ => None,
        };
        let waits = State::Waiting { due_at: due_at.unwrap_or(now) };
        let (leased_at, ended_at, failure) = match std::mem::replace(&mut self.state, waits) {
            State::Deciding { leased_at, ended_at, failure } => (leased_at, ended_at, failure),
            other => {
                self.state = other;
                return Err(Stale);
            }
        };
        match failure.cause {
            cause if cause.is_failure() => self.failures = self.failures.saturating_add(1),
            Cause::Released => self.releases = self.releases.saturating_add(1),
            _ => self.expiry_waived = true,
        }
        if let Decider::Policy { .. } = decision.decider {
            self.faults = 0;
            self.memo = std::mem::take(&mut decision.memo);
        } else if let Decider::Fallback { .. } = decision.decider {
            self.faults = self.faults.saturating_add(1);
        }
        let (replay, attempt) = (self.replays, self.attempt);
        if self.history.len() == MAX_HISTORY {
            self.history.remove(0);
        }
        // Most fail once or twice, and many wait at a time: no room is kept for more.
        self.history.reserve_exact(1);
        self.history.push(PastAttempt { replay, attempt, leased_at, ended_at, failure, decision });
        Ok(due_at.map_or(Outcome::Ended, |due_at| Outcome::Waits { due_at }))
    }

    /// Failures that count against the policy's budget, the one being decided included.
    pub fn failures_so_far(&self) -> u32 {
        self.failures.saturating_add(u32::from(self.ends_with(Cause::is_failure)))
    }

    /// Attempts given back, the one being decided included.
    pub fn releases_so_far(&self) -> u32 {
        self.releases.saturating_add(u32::from(self.ends_with(|cause| cause == Cause::Released)))
    }

    /// What a policy is shown of the past: this life's last attempts.
    pub fn past_failures(&self) -> Vec<PastFailure> {
        let mut past: Vec<PastFailure> = self
            .history
            .iter()
            .rev()
            .take_while(|past| past.replay == self.replays)
            .take(MAX_CONTEXT_HISTORY)
            .map(|past| PastFailure {
                attempt: past.attempt,
                at: past.ended_at,
                cause: past.failure.cause,
                class: past.failure.class.clone(),
                delay: past.decision.action.delay(),
            })
            .collect();
        past.reverse();
        past
    }

    /// When its lease runs out, if it is leased.
    pub const fn lease_until(&self) -> Option<Timestamp> {
        match self.state {
            State::Leased { lease_until, .. } => Some(lease_until),
            _ => None,
        }
    }

    fn ends_with(&self, matches: impl Fn(Cause) -> bool) -> bool {
        matches!(&self.state, State::Deciding { failure, .. } if matches(failure.cause))
    }

    fn is_current(&self, replays: u32, attempt: u32) -> Result<(), Stale> {
        if (self.replays, self.attempt) == (replays, attempt) { Ok(()) } else { Err(Stale) }
    }
}

#[cfg(test)]
mod tests;
