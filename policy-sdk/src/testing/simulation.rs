//! A delivery's whole life under a policy, in simulated time.
//!
//! It does what the broker does between decisions: counts attempts, keeps the history and the memo,
//! lets time pass. It does not know a subscription's own bounds, and applies delays as decided.

use core::fmt;
use core::time::Duration;

use super::{ContextBuilder, NOW, Outcome, Outcomes, SEED};
use crate::{Action, Cause, Decision, Policy, Random, Timestamp, duration};

/// Where a simulation stops, like the broker's default `attempt_limit`.
pub const ATTEMPT_LIMIT: u32 = 1_000;

/// The contract's bound on the history a policy sees.
const HISTORY: usize = 16;

/// Plays a script of outcomes against a policy.
///
/// ```
/// use reprise_policy::{prelude::*, testing::{End, Simulation}};
///
/// # #[derive(Default)] struct Twice;
/// impl Policy for Twice {
///     fn decide(&self, cx: &Context) -> Decision {
///         match cx.failures() {
///             1 => Decision::retry(secs(5)),
///             _ => Decision::dead_letter("exhausted"),
///         }
///     }
/// }
///
/// let schedule = Simulation::of(&Twice).script("timeout*");
/// assert_eq!(schedule.delays(), [secs(5)]);
/// assert_eq!(schedule.end(), End::DeadLettered);
/// ```
#[derive(Clone)]
#[must_use = "ends in `run` or `script`"]
pub struct Simulation<'p> {
    policy: &'p dyn Policy,
    first: ContextBuilder,
    work: Duration,
    seeds: Seeds,
}

/// Where the seeds of the attempts come from.
#[derive(Clone, Copy)]
enum Seeds {
    DrawnFrom(u64),
    AllTheSame(u64),
}

impl<'p> Simulation<'p> {
    /// A simulation of this policy with no parameters, where attempts take no time.
    pub fn of(policy: &'p dyn Policy) -> Self {
        Self { policy, first: ContextBuilder::new(), work: Duration::ZERO, seeds: Seeds::DrawnFrom(SEED) }
    }

    /// The parameters, as JSON text.
    pub fn params(mut self, json: impl Into<String>) -> Self {
        self.first = self.first.params(json);
        self
    }

    /// How long each attempt takes.
    pub fn work(mut self, work: Duration) -> Self {
        self.work = work;
        self
    }

    /// What the seeds of all attempts are drawn from.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seeds = Seeds::DrawnFrom(seed);
        self
    }

    /// One seed for all attempts.
    pub(super) fn same_seed(mut self, seed: u64) -> Self {
        self.seeds = Seeds::AllTheSame(seed);
        self
    }

    /// The context to start from, where the message or the load matter. Replaces parameters given
    /// before.
    pub fn context(mut self, first: ContextBuilder) -> Self {
        self.first = first;
        self
    }

    /// Plays a script as text.
    ///
    /// # Panics
    ///
    /// If the script cannot be read; see [`Outcomes`].
    #[must_use]
    pub fn script(self, script: &str) -> Schedule {
        match script.parse() {
            Ok(outcomes) => self.run(&outcomes),
            Err(error) => panic!("{error}"),
        }
    }

    /// Plays a script.
    #[must_use]
    pub fn run(self, outcomes: &Outcomes) -> Schedule {
        let mut drawn = Random::new(match self.seeds {
            Seeds::DrawnFrom(seed) | Seeds::AllTheSame(seed) => seed,
        });
        let mut next_seed = || match self.seeds {
            Seeds::DrawnFrom(_) => drawn.bits(),
            Seeds::AllTheSame(seed) => seed,
        };
        let mut cx = self.first;
        let (mut failures, mut releases) = (0_u32, 0_u32);
        let mut clock = Duration::ZERO;
        let mut steps: Vec<Step> = Vec::new();
        for outcome in outcomes.iter() {
            clock = clock.saturating_add(self.work);
            let Outcome::Failed { cause, class, code, retry_after } = outcome else {
                return Schedule { steps, total: clock, end: End::Acked };
            };
            failures += u32::from(cause.is_failure());
            releases += u32::from(*cause == Cause::Released);
            let attempt = failures + releases;
            let now = Timestamp::from_millis(NOW) + clock;
            cx = cx.now(now).cause(*cause).class(class).seed(next_seed());
            cx = cx.attempt(attempt).failures(failures).releases(releases);
            cx = cx.with(|contract| {
                contract.failure.code.clone_from(code);
                contract.failure.retry_after = retry_after.map(duration::whole_millis);
            });
            let decision = self.policy.decide(&cx.clone().build());
            let delay = decision.delay();
            cx = cx.memo(decision.kept_memo().unwrap_or_default());
            cx = cx.past_cause(*cause, class, delay).with(|contract| {
                if let Some(past) = contract.history.last_mut() {
                    past.attempt = attempt;
                }
                if contract.history.len() > HISTORY {
                    contract.history.remove(0);
                }
            });
            let end = End::of(&decision);
            steps.push(Step { attempt, failures, at: clock, outcome: outcome.clone(), decision });
            match delay {
                None => {
                    return Schedule { steps, total: clock, end };
                }
                Some(_) if attempt >= ATTEMPT_LIMIT => {
                    return Schedule { steps, total: clock, end: End::AttemptLimit };
                }
                Some(delay) => clock = clock.saturating_add(delay),
            }
        }
        Schedule { steps, total: clock, end: End::Pending }
    }
}

/// One attempt that ended badly, and what was decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The attempt's number.
    pub attempt: u32,
    /// Failures so far, this one included.
    pub failures: u32,
    /// When it ended, counted from the first lease.
    pub at: Duration,
    /// How it ended.
    pub outcome: Outcome,
    /// The answer.
    pub decision: Decision,
}

/// How a simulated delivery ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// An attempt was acked.
    Acked,
    /// It was given up.
    DeadLettered,
    /// It went to another topic.
    Forwarded,
    /// It was settled for good.
    Dropped,
    /// It still waits: the script was over first.
    Pending,
    /// It was still retried after [`ATTEMPT_LIMIT`] attempts.
    AttemptLimit,
}

impl End {
    fn of(decision: &Decision) -> Self {
        match decision.action() {
            Action::Retry(_) => Self::Pending,
            Action::DeadLetter(_) => Self::DeadLettered,
            Action::Forward(_) => Self::Forwarded,
            Action::Drop => Self::Dropped,
        }
    }
}

/// What happened, attempt by attempt. Displays as a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    steps: Vec<Step>,
    total: Duration,
    end: End,
}

impl Schedule {
    /// Every attempt that ended badly.
    #[must_use]
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// The delays that were decided, in order.
    #[must_use]
    pub fn delays(&self) -> Vec<Duration> {
        self.steps.iter().filter_map(|step| step.decision.delay()).collect()
    }

    /// Time from the first lease to the end.
    #[must_use]
    pub fn total(&self) -> Duration {
        self.total
    }

    /// How it ended.
    #[must_use]
    pub fn end(&self) -> End {
        self.end
    }

    /// The last decision.
    #[must_use]
    pub fn last(&self) -> Option<&Decision> {
        self.steps.last().map(|step| &step.decision)
    }
}

/// A decision in a few words: `retry in 5s`, `dead letter to "gone": deleted there`.
pub(super) fn in_words(decision: &Decision) -> String {
    let reason = decision.filed_reason().unwrap_or_default();
    match decision.action() {
        Action::Retry(delay) => format!("retry in {}", duration::format(*delay)),
        Action::DeadLetter(letter) => match letter.queue_name() {
            Some(queue) => format!("dead letter to \"{queue}\": {reason}"),
            None => format!("dead letter: {reason}"),
        },
        Action::Forward(topic) => format!("forward to {topic}"),
        Action::Drop => format!("drop: {reason}"),
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:>7}  {:>10}  decision", "attempt", "at")?;
        for step in &self.steps {
            let at = duration::format(step.at);
            writeln!(f, "{:>7}  {at:>10}  {}", step.attempt, in_words(&step.decision))?;
        }
        write!(f, "{:?} after {}", self.end, duration::format(self.total))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::duration::secs;
    use crate::{Context, ParamError, Params};

    struct Recorder;

    impl Policy for Recorder {
        fn decide(&self, cx: &Context) -> Decision {
            let mut memo = cx.memo().to_vec();
            memo.push(cx.attempt() as u8);
            assert_eq!(memo.len(), cx.history().len() + 1);
            assert_eq!(cx.elapsed().as_secs(), u64::from(cx.attempt() - 1) * 2);
            Decision::retry(secs(2)).memo(memo)
        }

        fn check(&self, _: Params<'_>) -> Result<(), ParamError> {
            Ok(())
        }
    }

    /// Time, counters, history and memo move on as they do in the broker.
    #[test]
    fn a_delivery_lives_as_in_the_broker() {
        let schedule = Simulation::of(&Recorder).script("timeout, released*2, disconnected, ok");
        assert_eq!(schedule.end(), End::Acked);
        assert_eq!(schedule.total(), secs(8));
        let counted: Vec<_> = schedule.steps().iter().map(|s| (s.attempt, s.failures)).collect();
        assert_eq!(counted, [(1, 1), (2, 1), (3, 1), (4, 2)]);
        assert_eq!(schedule.last().and_then(Decision::kept_memo), Some(&[1, 2, 3, 4][..]));
        assert!(schedule.to_string().ends_with("Acked after 8s"), "{schedule}");
    }

    /// A policy that never gives up is stopped.
    #[test]
    fn an_endless_policy_is_stopped() {
        struct Endless;
        impl Policy for Endless {
            fn decide(&self, _: &Context) -> Decision {
                Decision::retry(Duration::MAX)
            }
        }
        let schedule = Simulation::of(&Endless).run(&Outcomes::always("timeout"));
        assert_eq!(schedule.end(), End::AttemptLimit);
        assert_eq!(schedule.steps().len(), ATTEMPT_LIMIT as usize);
    }
}
