//! What a policy answers, how the answer is checked, and what is recorded of it.
//!
//! An [`Answer`] is what came out of the sandbox. [`Answer::check`] turns it into a [`Decision`] that is
//! safe to apply, or into a [`Fault`]; a fault is answered by [`fallback_delay`], the only native schedule.

use std::time::Duration;

use super::digest::Digest;
use super::limits::{MAX_DETAIL_BYTES, MAX_LABELS, MAX_MEMO_BYTES, MAX_PROBES, MIN_FALLBACK_DELAY};
use super::name::Name;

/// What the policy said, unchecked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Answer {
    /// What to do with the delivery.
    pub action: AnswerAction,
    /// Stop the subscription for a while.
    pub pause: Option<Pause>,
    /// Kept for the next decision on this delivery; `None` forgets it.
    pub memo: Option<Vec<u8>>,
    /// A line for people.
    pub note: Option<String>,
    /// Whether others of its key may pass while it waits.
    pub release_key: bool,
}

/// The action of an [`Answer`].
#[derive(Clone, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the policy contract documents each")]
pub enum AnswerAction {
    Retry { delay: Duration },
    DeadLetter { queue: Option<String>, reason: String, labels: Vec<(String, String)> },
    Forward { topic: String },
    Drop { reason: String },
}

/// Stop delivering for a while, then let `probes` deliveries through; the first ack among them closes the
/// circuit, a failure is up to the policy again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pause {
    /// How long nothing is delivered.
    pub duration: Duration,
    /// Deliveries let through afterwards, at least 1.
    pub probes: u32,
    /// Text for people.
    pub reason: String,
}

/// An answer that the host has checked, or one that it made itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Decision {
    /// What happens to the delivery.
    pub action: Action,
    /// The delay that was asked for, where it was out of bounds and clamped.
    pub clamped_from: Option<Duration>,
    /// Stop the subscription for a while.
    pub pause: Option<Pause>,
    /// Kept for the next decision on this delivery.
    pub memo: Vec<u8>,
    /// A line for people.
    pub note: Option<String>,
    /// Whether others of its key may pass while it waits, where the subscription is ordered by key.
    pub release_key: bool,
    /// Who decided.
    pub decider: Decider,
}

impl Decision {
    /// The native one past the limit of attempts.
    pub fn at_attempt_limit() -> Self {
        let reason = "attempt_limit".to_owned();
        let action = Action::DeadLetter { queue: None, reason, labels: Vec::new() };
        Self::native(action, Decider::AttemptLimit)
    }

    /// The native one after a fault.
    pub fn fallback(delay: Duration, decider: Decider) -> Self {
        Self::native(Action::Retry { delay }, decider)
    }

    fn native(action: Action, decider: Decider) -> Self {
        let (pause, memo, note) = (None, Vec::new(), None);
        Self { action, clamped_from: None, pause, memo, note, release_key: false, decider }
    }
}

/// The action of a [`Decision`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    /// Another attempt after this delay.
    Retry {
        /// Within the bounds of the subscription.
        delay: Duration,
    },
    /// Given up on.
    DeadLetter {
        /// The queue's name within its subscription; `None` is the default one.
        queue: Option<Name>,
        /// Why, for people.
        reason: String,
        /// Names and values to filter by.
        labels: Vec<(String, String)>,
    },
    /// Published to another topic and settled here.
    Forward {
        /// One that the subscription lists.
        topic: Name,
    },
    /// Settled for good.
    Drop {
        /// Why, for people.
        reason: String,
    },
}

impl Action {
    /// Its name on every surface.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Retry { .. } => "retry",
            Self::DeadLetter { .. } => "dead_letter",
            Self::Forward { .. } => "forward",
            Self::Drop { .. } => "drop",
        }
    }

    /// The delay of a retry.
    pub const fn delay(&self) -> Option<Duration> {
        match self {
            Self::Retry { delay } => Some(*delay),
            _ => None,
        }
    }
}

/// Who made a decision, in enough detail to make it again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Decider {
    /// The subscription's policy.
    Policy {
        /// Which revision.
        revision: u32,
        /// Its module.
        digest: Digest,
        /// Fuel burnt.
        fuel: u64,
        /// Over everything the policy was shown.
        input: InputHash,
    },
    /// The native schedule, as the policy broke.
    Fallback {
        /// Which revision broke.
        revision: u32,
        /// Its module.
        digest: Digest,
        /// How.
        fault: Fault,
    },
    /// The native guard rail of `attempt_limit`, which asks no policy.
    AttemptLimit,
}

impl Decider {
    /// Of which revision the policy was asked.
    pub const fn revision(&self) -> Option<u32> {
        match self {
            Self::Policy { revision, .. } | Self::Fallback { revision, .. } => Some(*revision),
            Self::AttemptLimit => None,
        }
    }
}

/// A digest of a policy's whole input: equal hashes mean equal inputs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InputHash(pub [u8; 16]);

/// How a policy broke.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Fault {
    /// It trapped: a panic, a division by zero, an access out of bounds, a stack overflow.
    #[error("the policy trapped: {0}")]
    Trap(String),
    /// It burnt all its fuel.
    #[error("the policy ran out of fuel")]
    Fuel,
    /// It ran past its deadline.
    #[error("the policy ran out of time")]
    Time,
    /// It asked for more memory than it may have.
    #[error("the policy ran out of memory")]
    Memory,
    /// It answered something that may not be applied.
    #[error("the policy gave a bad answer: {0}")]
    BadAnswer(String),
    /// Its module could not be made ready.
    #[error("the policy is not loaded: {0}")]
    NotLoaded(String),
}

impl Fault {
    /// Its name on every surface.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Trap(_) => "trap",
            Self::Fuel => "fuel",
            Self::Time => "time",
            Self::Memory => "memory",
            Self::BadAnswer(_) => "bad_answer",
            Self::NotLoaded(_) => "not_loaded",
        }
    }
}

/// What came of asking a policy once.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Evaluation {
    /// The answer, unchecked, or how the policy broke.
    pub result: Result<Answer, Fault>,
    /// Fuel burnt, by a broken policy too.
    pub fuel: u64,
    /// Over everything the policy was shown.
    pub input: InputHash,
}

/// What a subscription allows a decision to be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Bounds {
    /// The shortest retry delay.
    pub min_delay: Duration,
    /// The longest retry delay and pause.
    pub max_delay: Duration,
    /// Topics that may be forwarded to.
    pub forward_to: Vec<Name>,
}

impl Answer {
    /// Checks every field against what the subscription allows. Delays are clamped and texts cut; what
    /// has no harmless reading is a fault.
    ///
    /// # Errors
    /// [`Fault::BadAnswer`] for a queue that is not a name, a topic that is not listed, too many or too
    /// long labels, a memo that is too long, or a pause without probes.
    pub fn check(self, bounds: &Bounds, decider: Decider) -> Result<Decision, Fault> {
        let mut clamped_from = None;
        let action = match self.action {
            AnswerAction::Retry { delay } => {
                // Not `clamp`: it panics on crossed bounds, and settings may cross after a downgrade.
                let allowed = delay.max(bounds.min_delay).min(bounds.max_delay);
                clamped_from = (allowed != delay).then_some(delay);
                Action::Retry { delay: allowed }
            }
            AnswerAction::DeadLetter { queue, reason, labels } => {
                let queue = queue.map(|text| name("dead-letter queue", &text)).transpose()?;
                check_labels(&labels)?;
                Action::DeadLetter { queue, reason: cut(reason), labels }
            }
            AnswerAction::Forward { topic } => {
                let topic = name("topic", &topic)?;
                if !bounds.forward_to.contains(&topic) {
                    return Err(bad(format!("topic {topic} is not in forward_to of the subscription")));
                }
                Action::Forward { topic }
            }
            AnswerAction::Drop { reason } => Action::Drop { reason: cut(reason) },
        };
        let pause = self.pause.map(|pause| check_pause(pause, bounds)).transpose()?;
        let memo = self.memo.unwrap_or_default();
        if memo.len() > MAX_MEMO_BYTES {
            return Err(bad(format!("a memo of {} bytes, {MAX_MEMO_BYTES} are allowed", memo.len())));
        }
        let (note, release_key) = (self.note.map(cut), self.release_key);
        Ok(Decision { action, clamped_from, pause, memo, note, release_key, decider })
    }
}

fn check_labels(labels: &[(String, String)]) -> Result<(), Fault> {
    if labels.len() > MAX_LABELS {
        return Err(bad(format!("{} labels, {MAX_LABELS} are allowed", labels.len())));
    }
    for (label, value) in labels {
        name("label", label)?;
        if value.len() > MAX_DETAIL_BYTES {
            return Err(bad(format!("label {label} has a value of {} bytes", value.len())));
        }
    }
    Ok(())
}

fn check_pause(pause: Pause, bounds: &Bounds) -> Result<Pause, Fault> {
    if pause.probes == 0 || pause.probes > MAX_PROBES {
        return Err(bad(format!("a pause with {} probes, 1 to {MAX_PROBES} are allowed", pause.probes)));
    }
    Ok(Pause { duration: pause.duration.min(bounds.max_delay), reason: cut(pause.reason), ..pause })
}

fn name(what: &str, text: &str) -> Result<Name, Fault> {
    Name::new(text).map_err(|reason| bad(format!("{what} {:?}: {reason}", cut(text.to_owned()))))
}

fn bad(detail: String) -> Fault {
    Fault::BadAnswer(detail)
}

/// Whether two answers do the same with the delivery and the subscription. A fault is like any other fault: the
/// fallback takes over.
pub fn is_same(before: &Result<Decision, Fault>, after: &Result<Decision, Fault>) -> bool {
    fn effect(decision: &Decision) -> (&Action, Option<&Pause>) {
        (&decision.action, decision.pause.as_ref())
    }
    match (before, after) {
        (Ok(before), Ok(after)) => effect(before) == effect(after),
        (before, after) => before.is_err() && after.is_err(),
    }
}

/// Shortens a text for people to [`MAX_DETAIL_BYTES`], at a character boundary.
pub fn cut(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(MAX_DETAIL_BYTES));
    text
}

/// The delay after the `consecutive`-th fault in a row of one delivery, from 1: `first`, doubled each time, at
/// most `max_delay`, never under [`MIN_FALLBACK_DELAY`].
pub fn fallback_delay(first: Duration, max_delay: Duration, consecutive: u32) -> Duration {
    let doublings = consecutive.saturating_sub(1).min(31);
    first.saturating_mul(1 << doublings).min(max_delay).max(MIN_FALLBACK_DELAY)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn bounds() -> Bounds {
        Bounds {
            min_delay: SECOND,
            max_delay: 10 * SECOND,
            forward_to: vec![Name::new("slow").expect("a name")],
        }
    }

    fn check(action: AnswerAction) -> Result<Decision, Fault> {
        let answer = Answer { action, pause: None, memo: None, note: None, release_key: false };
        answer.check(&bounds(), Decider::AttemptLimit)
    }

    #[test]
    fn delays_are_clamped_and_the_clamp_is_recorded() {
        for (asked, allowed, clamped) in [
            (Duration::ZERO, SECOND, true),
            (SECOND, SECOND, false),
            (10 * SECOND, 10 * SECOND, false),
            (11 * SECOND, 10 * SECOND, true),
            (Duration::MAX, 10 * SECOND, true),
        ] {
            let decision = check(AnswerAction::Retry { delay: asked }).expect("a retry is never a fault");
            assert_eq!(decision.action, Action::Retry { delay: allowed });
            assert_eq!(decision.clamped_from, clamped.then_some(asked));
        }
    }

    #[test]
    fn answers_without_a_harmless_reading_are_faults() {
        let dead_letter = |queue: Option<&str>, labels: usize| AnswerAction::DeadLetter {
            queue: queue.map(str::to_owned),
            reason: String::new(),
            labels: vec![("l".to_owned(), "v".to_owned()); labels],
        };
        assert!(check(dead_letter(Some("invalid"), MAX_LABELS)).is_ok());
        assert!(check(dead_letter(None, 0)).is_ok());
        assert!(check(AnswerAction::Forward { topic: "slow".to_owned() }).is_ok());
        for bad in [
            dead_letter(Some("../other"), 0),
            dead_letter(Some(""), 0),
            dead_letter(None, MAX_LABELS + 1),
            AnswerAction::Forward { topic: "elsewhere".to_owned() },
        ] {
            assert!(matches!(check(bad.clone()), Err(Fault::BadAnswer(_))), "{bad:?}");
        }
    }

    #[test]
    fn memos_and_pauses_have_bounds_and_texts_are_cut() {
        let answer = |memo: usize, probes: u32| Answer {
            action: AnswerAction::Drop { reason: "é".repeat(MAX_DETAIL_BYTES) },
            pause: Some(Pause { duration: Duration::MAX, probes, reason: String::new() }),
            memo: Some(vec![0; memo]),
            note: None,
            release_key: false,
        };
        let decision =
            answer(MAX_MEMO_BYTES, 1).check(&bounds(), Decider::AttemptLimit).expect("within the bounds");
        assert_eq!(decision.pause.expect("a pause").duration, 10 * SECOND);
        let Action::Drop { reason } = decision.action else { panic!("not a drop") };
        assert_eq!(reason.len(), MAX_DETAIL_BYTES);
        assert!(answer(MAX_MEMO_BYTES + 1, 1).check(&bounds(), Decider::AttemptLimit).is_err());
        assert!(answer(0, 0).check(&bounds(), Decider::AttemptLimit).is_err());
        assert!(answer(0, MAX_PROBES + 1).check(&bounds(), Decider::AttemptLimit).is_err());
    }

    #[test]
    fn the_fallback_doubles_up_to_the_cap_and_never_spins() {
        let delay = |n| fallback_delay(5 * SECOND, 60 * SECOND, n);
        assert_eq!([1, 2, 3, 4, 5].map(delay).map(|d| d.as_secs()), [5, 10, 20, 40, 60]);
        assert_eq!(delay(u32::MAX), 60 * SECOND);
        assert_eq!(fallback_delay(Duration::ZERO, Duration::ZERO, 0), MIN_FALLBACK_DELAY);
    }
}
