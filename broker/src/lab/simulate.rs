//! A delivery's whole life under a policy, in simulated time.

use std::sync::Arc;
use std::time::Duration;

use reprise_policy::testing::{Outcome, Outcomes};
use reprise_policy::{Cause as PolicyCause, Random};

use crate::domain::circuit::Circuit;
use crate::domain::context::{Context, ContextMessage, Load, Surroundings};
use crate::domain::decision::{Action, Bounds, Decider, Decision, fallback_delay};
use crate::domain::delivery::{Delivery, Outcome as Decided};
use crate::domain::failure::{Cause, Failure};
use crate::domain::limits::MAX_ATTEMPT_LIMIT;
use crate::domain::name::Name;
use crate::domain::settings::SubscriptionSettings;
use crate::domain::time::Timestamp;
use crate::policy::Program;

/// Attempts after which a simulation ends, whatever the subscription allows.
pub const MAX_STEPS: u32 = 1_000;

/// What a subscription allows, and what it is called.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rules {
    /// The subscription.
    pub subscription: Name,
    /// Its topic.
    pub topic: Name,
    /// What a decision may be.
    pub bounds: Bounds,
    /// Attempts after which a delivery is dead-lettered natively.
    pub attempt_limit: u32,
    /// The first delay after a fault.
    pub fallback_delay: Duration,
}

impl Rules {
    /// Those of a subscription with these settings.
    pub fn of(subscription: Name, topic: Name, settings: &SubscriptionSettings) -> Self {
        Self {
            subscription,
            topic,
            bounds: settings.bounds(),
            attempt_limit: settings.attempt_limit.min(MAX_ATTEMPT_LIMIT),
            fallback_delay: settings.fallback_delay,
        }
    }
}

/// What happens to the delivery, and around it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Scenario {
    /// How each attempt ends. After the last one the delivery is left waiting.
    pub outcomes: Outcomes,
    /// How long each attempt takes.
    pub work: Duration,
    /// What is delivered.
    pub message: ContextMessage,
    /// The load that the policy is shown each time.
    pub load: Load,
    /// When the first lease is granted.
    pub start: Timestamp,
}

/// One attempt that ended badly, and what was decided.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Step {
    /// The attempt's number.
    pub attempt: u32,
    /// Failures so far, this one included.
    pub failures: u32,
    /// When it ended, counted from the first lease.
    pub at: Duration,
    /// How it ended.
    pub failure: Failure,
    /// What was decided, checked and clamped.
    pub decision: Decision,
    /// Fuel that the policy burnt.
    pub fuel: u64,
}

/// How a simulated delivery ended.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum End {
    /// An attempt was acked.
    Acked,
    /// It was given up.
    DeadLettered,
    /// It went to another topic.
    Forwarded,
    /// It was settled for good.
    Dropped,
    /// It still waits: the scenario was over first.
    Pending,
}

impl End {
    /// Its name on every surface.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Acked => "acked",
            Self::DeadLettered => "dead_lettered",
            Self::Forwarded => "forwarded",
            Self::Dropped => "dropped",
            Self::Pending => "pending",
        }
    }
}

/// What happened, attempt by attempt.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Schedule {
    /// Every attempt that ended badly.
    pub steps: Vec<Step>,
    /// Time from the first lease to the end; to the next attempt where it still waits.
    pub total: Duration,
    /// How it ended.
    pub end: End,
}

/// Plays a scenario. The seeds of the attempts are drawn from `seed`: the same one gives the same schedule.
pub fn simulate(program: &Program, params: &str, rules: &Rules, scenario: &Scenario, seed: u64) -> Schedule {
    let params: Arc<str> = params.into();
    let mut seeds = Random::new(seed);
    let mut now = scenario.start;
    let mut delivery = Delivery::new(now);
    let mut circuit = Circuit::default();
    let mut steps = Vec::new();
    let schedule = |steps, now: Timestamp, end| Schedule { steps, total: now.since(scenario.start), end };
    for outcome in scenario.outcomes.iter() {
        let failure = match outcome {
            Outcome::Acked => None,
            Outcome::Failed { cause, class, code, retry_after } => Some(Failure {
                cause: cause_of(*cause),
                class: class.clone(),
                code: code.clone(),
                detail: None,
                retry_after: *retry_after,
            }),
        };
        // A message expires while it waits, in no attempt of its own, and at most once.
        let ended = match &failure {
            Some(failure) if failure.cause == Cause::MessageExpired => delivery.expire(now).is_ok(),
            _ => {
                let granted = delivery.grant(now, Duration::MAX).is_ok();
                now = now + scenario.work;
                granted
            }
        };
        if !ended || steps.len() >= MAX_STEPS as usize {
            break;
        }
        let Some(failure) = failure else { return schedule(steps, now, End::Acked) };
        if failure.cause != Cause::MessageExpired {
            // Never stale: the lease was granted just now.
            _ = delivery.fail(0, delivery.attempt, failure.clone(), now);
        }
        let surroundings = Surroundings {
            subscription: rules.subscription.clone(),
            topic: rules.topic.clone(),
            message: scenario.message.clone(),
            now,
            seed: seeds.bits(),
            params: params.clone(),
            load: scenario.load,
        };
        let context = Context::of(&delivery, &failure, surroundings);
        let (decision, fuel) = decide(program, rules, &delivery, &context);
        steps.push(Step {
            attempt: delivery.attempt,
            failures: context.failures,
            at: now.since(scenario.start),
            failure,
            decision: decision.clone(),
            fuel,
        });
        if let Some(pause) = &decision.pause {
            circuit.pause(pause, now);
        }
        let end = match &decision.action {
            Action::Retry { .. } => End::Pending,
            Action::DeadLetter { .. } => End::DeadLettered,
            Action::Forward { .. } => End::Forwarded,
            Action::Drop { .. } => End::Dropped,
        };
        match delivery.decided(0, delivery.attempt, decision, now) {
            Ok(Decided::Waits { due_at }) => {
                now = due_at.max(circuit.opens_at().unwrap_or(due_at));
                circuit.tick(now);
            }
            _ => return schedule(steps, now, end),
        }
    }
    schedule(steps, now, End::Pending)
}

/// What the broker would decide: the policy's checked answer, the fallback, or the guard rail.
fn decide(program: &Program, rules: &Rules, delivery: &Delivery, context: &Context) -> (Decision, u64) {
    if delivery.attempt >= rules.attempt_limit {
        return (Decision::at_attempt_limit(), 0);
    }
    let evaluation = program.decide(context);
    let (digest, fuel, input) = (program.digest(), evaluation.fuel, evaluation.input);
    let decider = Decider::Policy { revision: 0, digest, fuel, input };
    let decision = evaluation.result.and_then(|answer| answer.check(&rules.bounds, decider));
    let decision = decision.unwrap_or_else(|fault| {
        let consecutive = delivery.faults.saturating_add(1);
        let delay = fallback_delay(rules.fallback_delay, rules.bounds.max_delay, consecutive);
        Decision::fallback(delay, Decider::Fallback { revision: 0, digest, fault })
    });
    (decision, fuel)
}

pub(super) const fn cause_of(cause: PolicyCause) -> Cause {
    match cause {
        PolicyCause::Nacked => Cause::Nacked,
        PolicyCause::LeaseExpired => Cause::LeaseExpired,
        PolicyCause::Disconnected => Cause::Disconnected,
        PolicyCause::Released => Cause::Released,
        PolicyCause::MessageExpired => Cause::MessageExpired,
    }
}
