//! Threads that run policies, so that nobody else has to wait for one.

use std::collections::VecDeque;
use std::num::NonZeroUsize;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::domain::context::Context;
use crate::domain::decision::Evaluation;
use crate::domain::id::SubscriptionId;

use super::limits::THREAD_STACK_BYTES;
use super::program::Program;
use super::turns::Turns;

/// One question to a policy.
#[derive(Debug)]
pub struct Ask<T> {
    /// Who asks: asks of one subscription wait for each other, not for those of others.
    pub subscription: SubscriptionId,
    /// Comes back with the evaluation.
    pub token: T,
    /// Whom to ask.
    pub program: Arc<Program>,
    /// What to ask.
    pub context: Box<Context>,
}

/// An answered question.
#[derive(Debug)]
pub struct Asked<T> {
    /// As it came.
    pub token: T,
    /// As it came.
    pub context: Box<Context>,
    /// What came of it.
    pub evaluation: Evaluation,
}

/// A fixed set of threads that evaluate asks, fairly between subscriptions.
///
/// Subscriptions take turns; a turn ends after some asks, some fuel or some time, whichever comes first, and
/// one subscription never occupies all threads (unless there is only one). Nothing bounds what is submitted: the broker does, as every ask
/// belongs to a lease. Results come in batches, one per turn, in no promised order.
pub struct Evaluators<T> {
    shared: Arc<Shared<T>>,
    threads: Vec<JoinHandle<()>>,
}

/// Fuel after which a turn ends, about half a millisecond: a slow policy gives way as often as a fast one.
const TURN_FUEL: u64 = 1_000_000;
/// Time after which a turn ends: some work costs more than its fuel tells, touching fresh memory above all.
const TURN_TIME: Duration = Duration::from_millis(2);

struct Shared<T> {
    queue: Mutex<Queue<T>>,
    changed: Condvar,
    deliver: Box<Deliver<T>>,
}

/// Takes the results of one turn.
type Deliver<T> = dyn Fn(Vec<Asked<T>>) + Send + Sync;

/// Whose turn, and what is left to ask in it.
type Turn<T> = (SubscriptionId, VecDeque<Ask<T>>);

struct Queue<T> {
    turns: Turns<SubscriptionId, Ask<T>>,
    closing: bool,
}

impl<T: Send + 'static> Evaluators<T> {
    /// Starts `threads` threads. `deliver` is called on them with the results of a turn and belongs to the
    /// turn: it should hand over and return.
    ///
    /// # Errors
    /// If the system refuses a thread.
    pub fn start(
        threads: NonZeroUsize,
        deliver: impl Fn(Vec<Asked<T>>) + Send + Sync + 'static,
    ) -> std::io::Result<Self> {
        let share = (threads.get() - 1).max(1);
        let queue = Mutex::new(Queue { turns: Turns::new(share), closing: false });
        let shared = Arc::new(Shared { queue, changed: Condvar::new(), deliver: Box::new(deliver) });
        let mut evaluators = Self { shared, threads: Vec::with_capacity(threads.get()) };
        for number in 0..threads.get() {
            let shared = Arc::clone(&evaluators.shared);
            let thread = std::thread::Builder::new()
                .name(format!("policy-{number}"))
                .stack_size(THREAD_STACK_BYTES)
                .spawn(move || shared.serve())?;
            evaluators.threads.push(thread);
        }
        Ok(evaluators)
    }

    /// Queues asks and returns at once.
    pub fn submit(&self, asks: Vec<Ask<T>>) {
        let mut queue = self.shared.lock();
        for ask in asks {
            queue.turns.add(ask.subscription, ask);
        }
        drop(queue);
        // One is enough: each thread that takes a turn wakes the next while there are more.
        self.shared.changed.notify_one();
    }
}

impl<T> Shared<T> {
    /// Takes turns until the evaluators are dropped. The lock is never held over a guest or `deliver`.
    fn serve(&self) {
        let mut ended = None;
        while let Some((subscription, mut asks)) = self.next_turn(ended) {
            (self.deliver)(evaluate(&mut asks));
            ended = Some((subscription, asks));
        }
    }

    /// Ends a turn and waits for the next; `None` once the evaluators are dropped.
    fn next_turn(&self, ended: Option<Turn<T>>) -> Option<Turn<T>> {
        let mut queue = self.lock();
        if let Some((subscription, rest)) = ended {
            queue.turns.done(subscription, rest);
        }
        loop {
            if queue.closing {
                return None;
            }
            if let Some(turn) = queue.turns.take() {
                if queue.turns.is_ready() {
                    self.changed.notify_one();
                }
                return Some(turn);
            }
            queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Nothing panics while it is held, so a poisoned queue is whole.
    fn lock(&self) -> MutexGuard<'_, Queue<T>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Evaluates from the front until the turn is over; at least one.
fn evaluate<T>(asks: &mut VecDeque<Ask<T>>) -> Vec<Asked<T>> {
    let start = Instant::now();
    let mut results = Vec::with_capacity(asks.len());
    let mut fuel = 0;
    while let Some(ask) = asks.pop_front() {
        let evaluation = ask.program.decide(&ask.context);
        fuel += evaluation.fuel;
        let Ask { token, context, .. } = ask;
        results.push(Asked { token, context, evaluation });
        if fuel >= TURN_FUEL || start.elapsed() >= TURN_TIME {
            break;
        }
    }
    results
}

/// Waits for the asks that are being evaluated; those still queued are dropped, as no one is left to tell.
impl<T> Drop for Evaluators<T> {
    fn drop(&mut self) {
        self.shared.lock().closing = true;
        self.shared.changed.notify_all();
        for thread in self.threads.drain(..) {
            // A thread that panicked has already said so.
            let _ = thread.join();
        }
    }
}
