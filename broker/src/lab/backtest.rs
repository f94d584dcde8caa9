//! What another policy would have answered to recorded failures.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::Spread;
use crate::domain::decision::{
    Action, Answer, Bounds, Decider, Decision, Evaluation, Fault, InputHash, is_same,
};
use crate::domain::digest::Digest;
use crate::domain::record::RecordedFailure;
use crate::policy::Program;

/// Changed decisions, and impure ones, that are shown as they are.
pub const MAX_EXAMPLES: usize = 20;
/// Kinds of change that are counted apart; the classes of failures are the consumers' words.
const MAX_KINDS: usize = 200;

/// A run over recorded failures in the making.
pub struct Backtest {
    program: Arc<Program>,
    params: Arc<str>,
    bounds: Bounds,
    counts: Counts,
    changes: BTreeMap<Kind, u64>,
    examples: Vec<Change>,
    impure: Vec<u64>,
    faults: BTreeMap<&'static str, u64>,
    delays: Sides<Vec<Duration>>,
    fuel: Sides<Vec<u64>>,
}

/// The class of the failure, and what was decided before and after.
type Kind = (String, &'static str, &'static str);

/// Something as it was recorded, and as the candidate has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sides<T> {
    /// As recorded.
    pub before: T,
    /// The candidate's.
    pub after: T,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[expect(missing_docs, reason = "the report documents each")]
pub struct Counts {
    pub failures: u64,
    pub changed: u64,
    pub dead_letters: Sides<u64>,
    pub reruns: u64,
    pub impure: u64,
}

/// A decision that would have been another.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Change {
    /// What was decided then and what would be.
    pub failure: RecordedFailure,
    /// Then: checked by the bounds of today, or how the policy broke.
    pub before: Result<Decision, Fault>,
    /// The candidate's.
    pub after: Result<Decision, Fault>,
}

/// What a backtest found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Report {
    /// Failures looked at, changed decisions, dead letters on both sides; re-runs of the very module and parameters that
    /// answered then, and those of them that differed.
    pub counts: Counts,
    /// How many decisions changed, by class of failure, action before and action after, most first.
    pub changes: Vec<(Kind, u64)>,
    /// Some changed decisions.
    pub examples: Vec<Change>,
    /// Some records whose re-run differed: the policy is not pure, or the record is not what it was shown.
    pub impure: Vec<u64>,
    /// How often the candidate broke, by kind.
    pub faults: BTreeMap<&'static str, u64>,
    /// Delays of retries.
    pub delays: Sides<Spread<Duration>>,
    /// Fuel of decisions.
    pub fuel: Sides<Spread<u64>>,
}

impl Backtest {
    /// Of this candidate, on a subscription with these bounds.
    pub fn new(program: Arc<Program>, params: &str, bounds: Bounds) -> Self {
        Self {
            program,
            params: params.into(),
            bounds,
            counts: Counts::default(),
            changes: BTreeMap::new(),
            examples: Vec::new(),
            impure: Vec::new(),
            faults: BTreeMap::new(),
            delays: Sides::default(),
            fuel: Sides::default(),
        }
    }

    /// Asks the candidate what it was asked then. `digest` is the module that answered then.
    pub fn ask(&mut self, digest: Digest, mut failure: RecordedFailure) {
        let same = digest == self.program.digest() && *failure.context.params == *self.params;
        failure.context.params = Arc::clone(&self.params);
        let evaluation = self.program.decide(&failure.context);
        self.counts.failures += 1;
        if same {
            self.counts.reruns += 1;
            if !agrees(&failure.evaluation, &evaluation) {
                self.counts.impure += 1;
                push(&mut self.impure, failure.number);
            }
        }
        self.fuel.before.push(failure.evaluation.fuel);
        self.fuel.after.push(evaluation.fuel);
        if let Err(fault) = &evaluation.result {
            *self.faults.entry(fault.kind()).or_default() += 1;
        }
        let before = self.check(failure.evaluation.result.clone());
        let after = self.check(evaluation.result);
        for (decision, delays, dead) in [
            (&before, &mut self.delays.before, &mut self.counts.dead_letters.before),
            (&after, &mut self.delays.after, &mut self.counts.dead_letters.after),
        ] {
            match decision.as_ref().map(|decision| &decision.action) {
                Ok(Action::Retry { delay }) => delays.push(*delay),
                Ok(Action::DeadLetter { .. }) => *dead += 1,
                _ => {}
            }
        }
        if !is_same(&before, &after) {
            self.counts.changed += 1;
            let kind = (failure.context.failure.label().to_owned(), action(&before), action(&after));
            if self.changes.len() < MAX_KINDS || self.changes.contains_key(&kind) {
                *self.changes.entry(kind).or_default() += 1;
            }
            push(&mut self.examples, Change { failure, before, after });
        }
    }

    /// How many were asked about so far.
    pub fn done(&self) -> u64 {
        self.counts.failures
    }

    /// What was found.
    pub fn report(self) -> Report {
        let mut changes: Vec<_> = self.changes.into_iter().collect();
        changes.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        Report {
            counts: self.counts,
            changes,
            examples: self.examples,
            impure: self.impure,
            faults: self.faults,
            delays: Sides { before: Spread::of(self.delays.before), after: Spread::of(self.delays.after) },
            fuel: Sides { before: Spread::of(self.fuel.before), after: Spread::of(self.fuel.after) },
        }
    }

    fn check(&self, result: Result<Answer, Fault>) -> Result<Decision, Fault> {
        // Who decided does not matter for what is compared.
        let decider = Decider::Policy {
            revision: 0,
            digest: self.program.digest(),
            fuel: 0,
            input: InputHash([0; 16]),
        };
        result.and_then(|answer| answer.check(&self.bounds, decider))
    }
}

/// Bit for bit, but for what depends on the machine.
fn agrees(then: &Evaluation, now: &Evaluation) -> bool {
    let machine =
        |evaluation: &Evaluation| matches!(evaluation.result, Err(Fault::Time | Fault::NotLoaded(_)));
    then == now || machine(then) || machine(now)
}

/// What is done, in a word.
pub fn action(decision: &Result<Decision, Fault>) -> &'static str {
    decision.as_ref().map_or("fault", |decision| decision.action.as_str())
}

fn push<T>(examples: &mut Vec<T>, example: T) {
    if examples.len() < MAX_EXAMPLES {
        examples.push(example);
    }
}
