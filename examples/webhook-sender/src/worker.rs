//! Pulls webhooks, POSTs them, and says how it went, until none is left.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::{Broker, Outcome, SenderError, Target};

/// How long a pull waits before the worker asks whether anything is left.
const WAIT: Duration = Duration::from_secs(1);

/// What was done.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Summary {
    /// Webhooks that the endpoint took.
    pub delivered: u64,
    /// POSTs that failed, by class.
    pub failed: BTreeMap<String, u64>,
}

impl Summary {
    fn add(mut self, other: Self) -> Self {
        self.delivered += other.delivered;
        for (class, count) in other.failed {
            *self.failed.entry(class).or_default() += count;
        }
        self
    }
}

/// Delivers until every webhook of the subscription is delivered or given up, with as many POSTs at a time as there
/// are `workers`.
///
/// # Errors
/// If the broker does not answer.
pub fn deliver(
    broker: &Broker,
    subscription: &str,
    target: &Target,
    workers: NonZeroUsize,
) -> Result<Summary, SenderError> {
    let stop = AtomicBool::new(false);
    let worked = thread::scope(|scope| {
        let work = || {
            let worked = work(broker, subscription, target, &stop);
            // Whether it was the last webhook or an error, it is so for all.
            stop.store(true, Ordering::Release);
            worked
        };
        let threads: Vec<_> = (0..workers.get()).map(|_| scope.spawn(work)).collect();
        let worked: Vec<_> = threads.into_iter().map(thread::ScopedJoinHandle::join).collect();
        worked
    });
    worked.into_iter().try_fold(Summary::default(), |all, one| match one {
        Ok(one) => Ok(all.add(one?)),
        Err(panic) => std::panic::resume_unwind(panic),
    })
}

/// One at a time: its lease is then as long as the one POST may take.
fn work(
    broker: &Broker,
    subscription: &str,
    target: &Target,
    stop: &AtomicBool,
) -> Result<Summary, SenderError> {
    let mut summary = Summary::default();
    while !stop.load(Ordering::Acquire) {
        let Some(delivery) = broker.pull(subscription, WAIT)? else {
            if broker.backlog(subscription)? == 0 {
                break;
            }
            continue;
        };
        match target.post(&delivery) {
            Outcome::Taken => {
                broker.ack(subscription, &delivery.receipt)?;
                summary.delivered += 1;
            }
            Outcome::Failed(failure) => {
                broker.nack(subscription, &delivery.receipt, &failure)?;
                *summary.failed.entry(failure.class).or_default() += 1;
            }
        }
    }
    Ok(summary)
}
