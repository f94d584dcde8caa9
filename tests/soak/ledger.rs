//! What producers and consumers have seen, and what must therefore hold.

use std::collections::BTreeMap;

use serde_json::json;

use crate::support::{Delivery, millis};

#[derive(Default)]
pub(crate) struct Ledger {
    messages: BTreeMap<(u64, u64), Seen>,
    acked: usize,
}

/// What is known of one message.
#[derive(Default, Debug)]
struct Seen {
    attempt: u64,
    state: State,
}

#[derive(Default, Debug, PartialEq, Eq)]
enum State {
    /// Nobody holds it, as far as anybody knows.
    #[default]
    Free,
    /// Until then.
    Held(i64),
    /// An ack is on its way: it may have ended.
    Acking,
    Acked,
}

/// The lease of the subscription.
const LEASE_MILLIS: i64 = 700;

impl Ledger {
    /// The number of the next message of a key.
    pub(crate) fn publishes(&mut self, key: u64) -> u64 {
        let last = self.messages.range((key, 0)..=(key, u64::MAX)).next_back();
        let number = last.map_or(0, |((_, number), _)| number + 1);
        self.messages.insert((key, number), Seen::default());
        number
    }

    /// A consumer has it: nobody else may, and all that were published before it with its key must have ended.
    pub(crate) fn delivered(&mut self, delivery: &Delivery) {
        let (key, number) = place(delivery);
        let before = self.messages.range((key, 0)..(key, number));
        for ((_, earlier), seen) in before.rev().take(50) {
            let ended = matches!(seen.state, State::Acked | State::Acking);
            assert!(ended, "{number} of key {key} came before {earlier} had ended: {seen:?}");
        }
        let until = millis(&json!(delivery.lease_until));
        let seen = self.messages.get_mut(&(key, number)).expect("it was published");
        match seen.state {
            State::Held(held) => {
                assert!(
                    until - LEASE_MILLIS >= held,
                    "{number} of key {key} is held by two: {seen:?}, {delivery:?}"
                );
            }
            State::Acked => panic!("{number} of key {key} came back after its ack: {delivery:?}"),
            State::Free | State::Acking => {}
        }
        assert!(delivery.attempt > seen.attempt, "{number} of key {key}: {seen:?}, {delivery:?}");
        (seen.attempt, seen.state) = (delivery.attempt, State::Held(until));
    }

    /// Its consumer gives it back in one way or another.
    pub(crate) fn gives_up(&mut self, delivery: &Delivery) {
        self.holder(delivery, State::Free);
    }

    pub(crate) fn acks(&mut self, delivery: &Delivery) {
        self.holder(delivery, State::Acking);
    }

    pub(crate) fn acked(&mut self, delivery: &Delivery, taken: bool) {
        if taken {
            let seen = self.messages.get_mut(&place(delivery)).expect("it was published");
            self.acked += usize::from(seen.state != State::Acked);
            seen.state = State::Acked;
        } else {
            self.holder(delivery, State::Free);
        }
    }

    /// How many have yet to be acked.
    pub(crate) fn open(&self) -> usize {
        self.messages.len() - self.acked
    }

    /// How many there were.
    pub(crate) fn all_are_acked(&self) -> u64 {
        for (place, seen) in &self.messages {
            assert_eq!(seen.state, State::Acked, "{place:?} was lost: {seen:?}");
        }
        self.messages.len() as u64
    }

    /// Unless somebody else has it by now.
    fn holder(&mut self, delivery: &Delivery, state: State) {
        let seen = self.messages.get_mut(&place(delivery)).expect("it was published");
        if seen.attempt == delivery.attempt && seen.state != State::Acked {
            seen.state = state;
        }
    }
}

fn place(delivery: &Delivery) -> (u64, u64) {
    let number = |name: &str| delivery.message["payload"][name].as_u64().expect("a number");
    (number("key"), number("number"))
}
