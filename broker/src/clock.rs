//! The only place that reads a clock.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::domain::time::Timestamp;

/// Broker time: the wall clock at the start, carried on by the monotonic one, so that no jump of the wall clock
/// reaches a running broker.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    started_at: Timestamp,
    since: Instant,
}

impl Clock {
    /// Begins at the wall clock's time.
    pub fn start() -> Self {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        let millis = u64::try_from(wall.as_millis()).unwrap_or(u64::MAX);
        Self { started_at: Timestamp::from_millis(millis), since: Instant::now() }
    }

    /// The time now, rounded down: nothing is due too early.
    pub fn now(&self) -> Timestamp {
        let passed = u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX);
        Timestamp::from_millis(self.started_at.as_millis().saturating_add(passed))
    }

    /// How long until this moment.
    pub fn until(&self, at: Timestamp) -> Duration {
        at.since(self.now())
    }
}
