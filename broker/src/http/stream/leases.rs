//! What a stream holds: the leases that end with it.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use foldhash::HashMap;
use tokio::sync::Notify;

use crate::domain::receipt::Receipt;
use crate::domain::time::Timestamp;
use crate::engine::Granted;

/// Leases that are remembered at least before those that ran out are looked for.
const REMEMBERED: usize = 1_024;

/// The leases of one stream: those whose deliveries wait to be sent, and those that the client was sent.
#[derive(Default)]
pub(super) struct Leases {
    state: Mutex<State>,
    settled: Notify,
}

#[derive(Default)]
struct State {
    /// A batch for each frame that has not gone out, in their order.
    queued: VecDeque<Vec<Lease>>,
    /// Until when each is held, as far as this stream has heard.
    held: HashMap<Receipt, Timestamp>,
    /// How many may be held before those that ran out are forgotten.
    room: usize,
    stopped: bool,
}

type Lease = (Receipt, Timestamp);

impl Leases {
    /// Deliveries that will go out as one frame.
    pub(super) fn queue(&self, granted: &[Granted]) {
        // What is settled as it is handed out is nobody's to end.
        let leases = granted.iter().filter_map(|granted| Some((granted.receipt, granted.lease_until?)));
        let batch = leases.collect();
        self.state().queued.push_back(batch);
    }

    /// The next frame of deliveries goes out: from now on the client may have seen them. Says no once it is
    /// [`stop`](Self::stop)ped.
    pub(super) fn begin(&self, now: Timestamp) -> bool {
        let mut state = self.state();
        let state = &mut *state;
        if state.stopped {
            return false;
        }
        state.held.extend(state.queued.pop_front().unwrap_or_default());
        if state.held.len() > state.room {
            // They ran out, of which a stream does not hear: there may be any number of them over time. One that was
            // extended by another route is forgotten too, and runs out later.
            state.held.retain(|_, until| *until > now);
            state.room = REMEMBERED.max(2 * state.held.len());
        }
        true
    }

    /// What the broker said about some: the new deadline, or that they are over.
    pub(super) fn settle(&self, settled: Vec<(Receipt, Option<Timestamp>)>) {
        let mut state = self.state();
        for (receipt, until) in settled {
            match until {
                None => _ = state.held.remove(&receipt),
                Some(until) => _ = state.held.get_mut(&receipt).map(|held| *held = until),
            }
        }
        if state.held.is_empty() {
            self.settled.notify_one();
        }
    }

    /// Waits until none is held of those that have not run out.
    pub(super) async fn settled(&self, now: Timestamp) {
        self.state().held.retain(|_, until| *until > now);
        while !self.state().held.is_empty() {
            self.settled.notified().await;
        }
    }

    /// No more deliveries go out: gives those that did not.
    pub(super) fn stop(&self) -> Vec<Receipt> {
        let mut state = self.state();
        state.stopped = true;
        state.queued.drain(..).flatten().map(|(receipt, _)| receipt).collect()
    }

    /// Gives those that the client may have seen.
    pub(super) fn take(&self) -> Vec<Receipt> {
        self.state().held.drain().map(|(receipt, _)| receipt).collect()
    }

    /// Nothing panics while it is held, so a poisoned state is whole.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::id::{BacklogId, SubscriptionId};

    const LEASE: u64 = 1_000;

    fn receipt(sequence: u64) -> Receipt {
        Receipt { subscription: SubscriptionId(1), backlog: BacklogId(1), sequence, replays: 0, attempt: 1 }
    }

    /// Sends one delivery.
    fn send(leases: &Leases, sequence: u64, now: u64) -> bool {
        let until = Timestamp::from_millis(now + LEASE);
        leases.state().queued.push_back(vec![(receipt(sequence), until)]);
        leases.begin(Timestamp::from_millis(now))
    }

    /// A client may let any number of leases run out; what is remembered of them stays in proportion to those it holds.
    #[test]
    fn what_ran_out_is_forgotten_in_time() {
        let leases = Leases::default();
        for now in 0..100_000 {
            assert!(send(&leases, now, now));
            assert!(leases.state().held.len() <= 2 * LEASE as usize + REMEMBERED);
        }
        let held = leases.take();
        assert!((99_001..100_000).all(|sequence| held.contains(&receipt(sequence))));
    }

    /// What was never sent is told apart from what was, and nothing is sent behind the end.
    #[test]
    fn what_was_sent_is_told_from_what_was_not() {
        let leases = Leases::default();
        assert!(send(&leases, 1, 0));
        leases.state().queued.push_back(vec![(receipt(2), Timestamp::from_millis(LEASE))]);
        assert_eq!(leases.stop(), [receipt(2)]);
        assert!(!send(&leases, 3, 0));
        assert_eq!(leases.stop(), [receipt(3)]);
        leases.settle(vec![(receipt(1), Some(Timestamp::from_millis(9 * LEASE))), (receipt(9), None)]);
        assert_eq!(leases.take(), [receipt(1)]);
    }

    /// An extended lease is not forgotten with the others.
    #[test]
    fn an_extended_lease_is_remembered() {
        let leases = Leases::default();
        assert!(send(&leases, 0, 0));
        leases.settle(vec![(receipt(0), Some(Timestamp::from_millis(1_000_000)))]);
        for now in 1..10_000 {
            assert!(send(&leases, now, now));
        }
        assert!(leases.take().contains(&receipt(0)));
    }
}
