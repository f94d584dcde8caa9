//! The last events of each realm, for whoever listens and for who comes back after a short absence.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use crate::domain::id::RealmId;
use crate::domain::time::Timestamp;
use crate::engine::Event;

/// Events that are kept of each realm.
const KEPT: usize = 1_000;
/// Who may listen to the events of each realm at a time.
pub const MAX_LISTENERS: usize = 64;

/// A feed for each realm: no tenant learns from numbers or gaps what others do, nor washes their events away.
pub struct Feeds {
    begun: Timestamp,
    of: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    feeds: HashMap<RealmId, Arc<Feed>>,
    closed: bool,
}

impl Feeds {
    /// All without events yet.
    pub fn new(begun: Timestamp) -> Self {
        Self { begun, of: Mutex::default() }
    }

    /// That of a realm.
    pub fn of(&self, realm: RealmId) -> Arc<Feed> {
        let mut kept = self.kept();
        let closed = kept.closed;
        let feed = kept.feeds.entry(realm).or_insert_with(|| {
            let feed = Feed::new(self.begun);
            if closed {
                feed.close();
            }
            Arc::new(feed)
        });
        Arc::clone(feed)
    }

    /// Adds events, each to its realm's.
    pub fn push(&self, events: Vec<Event>) {
        let mut sorted: HashMap<RealmId, Vec<Event>> = HashMap::new();
        for event in events {
            sorted.entry(event.realm).or_default().push(event);
        }
        for (realm, events) in sorted {
            self.of(realm).push(events);
        }
    }

    /// The realm is gone, and whoever listened there is done.
    pub fn forget(&self, realm: RealmId) {
        if let Some(feed) = self.kept().feeds.remove(&realm) {
            feed.close();
        }
    }

    /// No more events: whoever listens is done.
    pub fn close(&self) {
        let mut kept = self.kept();
        kept.closed = true;
        kept.feeds.values().for_each(|feed| feed.close());
    }

    /// Nothing panics while it is held, so poisoned feeds are whole.
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.of.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Kept in memory: their numbers begin anew when the broker starts, which [`begun`](Self::begun) tells apart.
pub struct Feed {
    begun: Timestamp,
    ring: Mutex<Ring>,
    room: Arc<Semaphore>,
    changed: watch::Sender<State>,
}

struct Ring {
    events: VecDeque<Event>,
    /// The number of the next one, from 1.
    next: u64,
}

/// How far it has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Open(u64),
    Closed,
}

/// Some events and what was missed before them.
pub struct Heard {
    /// In order, each with its number.
    pub events: Vec<(u64, Event)>,
    /// Events between the one asked for and the first of these, which are no longer kept.
    pub missed: u64,
}

impl Feed {
    /// One without events yet.
    pub fn new(begun: Timestamp) -> Self {
        let ring = Mutex::new(Ring { events: VecDeque::new(), next: 1 });
        let room = Arc::new(Semaphore::new(MAX_LISTENERS));
        Self { begun, ring, room, changed: watch::Sender::new(State::Open(1)) }
    }

    /// When it began: part of the id of each event.
    pub fn begun(&self) -> Timestamp {
        self.begun
    }

    /// Room for one more listener, given back when it is dropped; `None` if there is none.
    pub fn room(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.room).try_acquire_owned().ok()
    }

    /// The number that the next event will have.
    pub fn next(&self) -> u64 {
        self.ring().next
    }

    /// Adds events.
    pub fn push(&self, events: Vec<Event>) {
        if events.is_empty() {
            return;
        }
        let next = {
            let mut ring = self.ring();
            ring.next += events.len() as u64;
            ring.events.extend(events);
            let surplus = ring.events.len().saturating_sub(KEPT);
            ring.events.drain(..surplus);
            ring.next
        };
        self.changed.send_if_modified(|state| match state {
            State::Open(at) => {
                *at = next;
                true
            }
            State::Closed => false,
        });
    }

    /// Whether the broker is about to stop.
    pub fn is_closed(&self) -> bool {
        *self.changed.borrow() == State::Closed
    }

    /// Waits until the broker is about to stop.
    pub async fn closed(&self) {
        // The sender is here: it cannot be gone.
        _ = self.changed.subscribe().wait_for(|state| *state == State::Closed).await;
    }

    /// No more events: whoever listens is done.
    pub fn close(&self) {
        self.changed.send_replace(State::Closed);
    }

    /// The events from this number on; waits for the first. `None` once the feed is closed.
    pub async fn from(&self, number: u64) -> Option<Heard> {
        let mut changed = self.changed.subscribe();
        let reached = |state: &State| match state {
            State::Open(next) => *next > number,
            State::Closed => true,
        };
        if *changed.wait_for(reached).await.ok()? == State::Closed {
            return None;
        }
        let ring = self.ring();
        let first = ring.next - ring.events.len() as u64;
        let skip = usize::try_from(number.saturating_sub(first)).unwrap_or(usize::MAX);
        let events = (first.max(number)..).zip(ring.events.iter().skip(skip).cloned()).collect();
        Some(Heard { events, missed: first.saturating_sub(number) })
    }

    /// Nothing panics while it is held, so a poisoned ring is whole.
    fn ring(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::circuit::Circuit;
    use crate::domain::name::Name;
    use crate::engine::EventKind;

    fn event(at: u64) -> Event {
        let subscription = Name::new("s").expect("a name");
        let (at, realm) = (Timestamp::from_millis(at), RealmId::DEFAULT);
        Event { at, subscription, kind: EventKind::Circuit(Circuit::Closed), realm }
    }

    #[tokio::test]
    async fn the_last_ones_are_kept_and_the_rest_is_missed() {
        let feed = Feed::new(Timestamp::default());
        let count = KEPT as u64 + 5;
        feed.push((1..=count).map(event).collect());
        let heard = feed.from(2).await.expect("it is open");
        assert_eq!((heard.missed, heard.events.len()), (4, KEPT));
        assert!(heard.events.iter().all(|(number, event)| event.at.as_millis() == *number));
        let last = feed.from(count).await.expect("it is open");
        assert_eq!((last.missed, last.events[0].0, last.events.len()), (0, count, 1));
        assert_eq!(feed.next(), count + 1);
    }

    /// Numbers and what is missed are the realm's own.
    #[tokio::test]
    async fn each_realm_has_its_own_events() {
        let feeds = Feeds::new(Timestamp::default());
        let other = RealmId(1);
        let noise = |at| Event { realm: other, ..event(at) };
        feeds.push((1..=KEPT as u64 * 2).map(noise).chain([event(7)]).collect());
        let heard = feeds.of(RealmId::DEFAULT).from(1).await.expect("it is open");
        assert_eq!((heard.missed, heard.events), (0, vec![(1, event(7))]));
        assert_eq!(feeds.of(other).from(1).await.expect("it is open").missed, KEPT as u64);
        let listening = feeds.of(other);
        feeds.forget(other);
        assert!(listening.is_closed() && !feeds.of(other).is_closed());
        feeds.close();
        assert!(feeds.of(RealmId(2)).is_closed());
    }

    #[tokio::test]
    async fn whoever_waits_hears_the_next_one_and_the_end() {
        let feed = Feed::new(Timestamp::default());
        let (heard, ()) = tokio::join!(feed.from(1), async { feed.push(vec![event(1)]) });
        assert_eq!(heard.expect("it is open").events.len(), 1);
        let (heard, ()) = tokio::join!(feed.from(2), async { feed.close() });
        assert!(heard.is_none());
        feed.push(vec![event(2)]);
        assert!(feed.from(1).await.is_none());
    }
}
