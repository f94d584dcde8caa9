//! What a subscription went through in the last minute: a ring of seconds, O(1) to keep and to read.

use super::Engine;
use super::backlog::Counts;
use super::state::Subscription;
use crate::domain::context::Load;
use crate::domain::id::SubscriptionId;
use crate::domain::time::Timestamp;

const SECONDS: usize = 60;

/// Events of one span of time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Events {
    pub(super) acked: u64,
    pub(super) failed: u64,
    pub(super) dead_lettered: u64,
}

/// Counters over the last minute.
#[derive(Debug)]
pub(super) struct LoadWindow {
    ring: [Events; SECONDS],
    sum: Events,
    /// The second that the newest slot stands for.
    second: u64,
    /// Failures since the last ack.
    pub(super) consecutive_failures: u64,
}

impl LoadWindow {
    pub(super) const fn new() -> Self {
        let none = Events { acked: 0, failed: 0, dead_lettered: 0 };
        Self { ring: [none; SECONDS], sum: none, second: 0, consecutive_failures: 0 }
    }

    pub(super) fn acked(&mut self, now: Timestamp) {
        self.consecutive_failures = 0;
        self.count(now, |events| &mut events.acked);
    }

    pub(super) fn failed(&mut self, now: Timestamp) {
        self.consecutive_failures = self.consecutive_failures.saturating_add(1);
        self.count(now, |events| &mut events.failed);
    }

    pub(super) fn dead_lettered(&mut self, now: Timestamp) {
        self.count(now, |events| &mut events.dead_lettered);
    }

    pub(super) fn sum(&mut self, now: Timestamp) -> Events {
        self.advance(now);
        self.sum
    }

    fn count(&mut self, now: Timestamp, field: impl Fn(&mut Events) -> &mut u64) {
        self.advance(now);
        let slot = self.slot(self.second);
        *field(&mut self.ring[slot]) += 1;
        *field(&mut self.sum) += 1;
    }

    /// Forgets the seconds that have left the window.
    fn advance(&mut self, now: Timestamp) {
        let second = now.as_millis() / 1_000;
        let passed = second.saturating_sub(self.second).min(SECONDS as u64);
        self.second = self.second.max(second);
        for back in 0..passed {
            let slot = self.slot(self.second - back);
            let gone = std::mem::take(&mut self.ring[slot]);
            self.sum.acked -= gone.acked;
            self.sum.failed -= gone.failed;
            self.sum.dead_lettered -= gone.dead_lettered;
        }
    }

    const fn slot(&self, second: u64) -> usize {
        (second % SECONDS as u64) as usize
    }
}

impl Engine {
    /// What a policy is told of the subscription's last minute, and of what there is to do, as it was looked at last.
    pub(super) fn load_of(&mut self, id: SubscriptionId) -> Load {
        let now = self.now;
        let Some(subscription) = self.subscriptions.get_mut(&id) else { return Load::default() };
        let Counts { backlog, in_flight, .. } = subscription.counts();
        let events = subscription.load.sum(now);
        Load {
            acked: events.acked,
            failed: events.failed,
            dead_lettered: events.dead_lettered,
            backlog,
            in_flight,
            consecutive_failures: subscription.load.consecutive_failures,
        }
    }
}

impl Subscription {
    /// What there is to do, on all of its topics.
    pub(super) fn counts(&self) -> Counts {
        // Nothing waits for whoever is not there.
        let nobody = self.is_live() && self.waiters.is_empty();
        Counts { backlog: if nobody { 0 } else { self.counts.backlog }, ..self.counts }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn second(n: u64) -> Timestamp {
        Timestamp::from_millis(n * 1_000)
    }

    #[test]
    fn a_minute_is_remembered_and_no_more() {
        let mut load = LoadWindow::new();
        load.acked(second(1_000));
        load.failed(second(1_000));
        load.failed(second(1_030));
        load.dead_lettered(second(1_059));
        assert_eq!(load.sum(second(1_059)), Events { acked: 1, failed: 2, dead_lettered: 1 });
        assert_eq!(load.sum(second(1_060)), Events { acked: 0, failed: 1, dead_lettered: 1 });
        assert_eq!(load.sum(second(9_999)), Events::default());
        assert_eq!(load.consecutive_failures, 2);
        load.acked(second(10_000));
        assert_eq!((load.consecutive_failures, load.sum(second(10_000)).acked), (0, 1));
    }
}
