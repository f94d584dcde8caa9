//! Circuit breaking: a policy can stop its whole subscription for a while.
//!
//! ```text
//!            pause                time                  ack
//!   Closed --------> Open(until) ------> HalfOpen ------------> Closed
//!                      ^                    |
//!                      `------- pause ------'
//! ```
//!
//! Half-open, at most `probes` deliveries are under a lease at a time; a failed probe that does not pause
//! again makes room for the next, so the circuit can never be stuck.

use super::decision::Pause;
use super::time::Timestamp;

/// Whether the deliveries of a subscription flow.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Circuit {
    /// They do.
    #[default]
    Closed,
    /// They do not.
    Open {
        /// Until then.
        until: Timestamp,
        /// How many flow at a time afterwards.
        probes: u32,
        /// Why, in the policy's words.
        reason: String,
    },
    /// A few do, to try.
    HalfOpen {
        /// Since when.
        since: Timestamp,
        /// How many at a time.
        probes: u32,
        /// Why it was open.
        reason: String,
    },
}

impl Circuit {
    /// A policy asked for a pause. It never ends one that lasts longer.
    pub fn pause(&mut self, pause: &Pause, now: Timestamp) {
        let until = now + pause.duration;
        if self.opens_at().is_none_or(|other| other < until) {
            *self = Self::Open { until, probes: pause.probes, reason: pause.reason.clone() };
        }
    }

    /// Half-opens once the pause is over.
    pub fn tick(&mut self, now: Timestamp) {
        match self {
            Self::Open { until, probes, reason } if *until <= now => {
                *self = Self::HalfOpen { since: now, probes: *probes, reason: std::mem::take(reason) };
            }
            _ => {}
        }
    }

    /// A delivery was acked whose lease was granted at this moment: that of a probe closes the circuit, that of one
    /// from before the pause says nothing about now.
    pub fn acked(&mut self, leased_at: Timestamp) {
        if matches!(self, Self::HalfOpen { since, .. } if *since <= leased_at) {
            *self = Self::Closed;
        }
    }

    /// How many deliveries may be under a lease at a time, where the subscription allows `max_in_flight`.
    pub fn allows(&self, max_in_flight: u32) -> u32 {
        match self {
            Self::Closed => max_in_flight,
            Self::Open { .. } => 0,
            Self::HalfOpen { probes, .. } => max_in_flight.min(*probes),
        }
    }

    /// When an open circuit half-opens.
    pub const fn opens_at(&self) -> Option<Timestamp> {
        match self {
            Self::Open { until, .. } => Some(*until),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_pause_opens_time_half_opens_and_an_ack_closes() {
        let at = Timestamp::from_millis;
        let pause = |ms| Pause { duration: Duration::from_millis(ms), probes: 2, reason: "down".to_owned() };
        let mut circuit = Circuit::Closed;
        assert_eq!(circuit.allows(10), 10);
        circuit.pause(&pause(100), at(0));
        circuit.pause(&pause(10), at(0));
        assert_eq!((circuit.opens_at(), circuit.allows(10)), (Some(at(100)), 0));
        circuit.acked(at(50));
        circuit.tick(at(99));
        assert_eq!(circuit.allows(10), 0);
        circuit.tick(at(100));
        assert_eq!((circuit.allows(10), circuit.allows(1)), (2, 1));
        circuit.acked(at(99));
        assert_eq!(circuit.allows(10), 2, "the ack of a lease from before the pause is no probe's");
        circuit.pause(&pause(5), at(200));
        circuit.tick(at(205));
        circuit.acked(at(206));
        assert_eq!(circuit, Circuit::Closed);
    }
}
