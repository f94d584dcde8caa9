//! The policy's answer, and the builders that make one.
//!
//! A decision is one action and what goes with any action: a reason, a note, a memo, a pause. What
//! goes with only one action is part of that action's own type: labels belong to a [`DeadLetter`],
//! so a labelled retry cannot be written.

use core::time::Duration;

use crate::bindings;
use crate::duration::whole_millis;

/// The most bytes of a memo that the broker keeps; a longer one is a fault of the policy.
pub const MEMO_LIMIT: usize = 256;

/// What to do with a delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Deliver it again after this delay.
    Retry(Duration),
    /// Give it up, into a dead-letter queue.
    DeadLetter(DeadLetter),
    /// Publish it to this topic and settle it here.
    Forward(String),
    /// Settle it for good.
    Drop,
}

/// The policy's answer.
///
/// ```
/// use reprise_policy::prelude::*;
///
/// let plain = Decision::retry(secs(5)).note("the third try usually works");
/// let labelled = Decision::dead_letter(queue("gone").label("status", "410")).reason("deleted there");
/// let broken = Decision::retry(secs(1)).pause(Pause::of(secs(30)).probes(2).reason("database is down"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a decision is the policy's answer"]
pub struct Decision {
    action: Action,
    reason: Option<String>,
    note: Option<String>,
    memo: Option<Vec<u8>>,
    pause: Option<Pause>,
    release_key: bool,
}

impl Decision {
    fn new(action: Action) -> Self {
        Self { action, reason: None, note: None, memo: None, pause: None, release_key: false }
    }

    /// Deliver it again after `delay`, which the broker holds to the subscription's bounds. When the
    /// message expired, this delivers it all the same.
    pub fn retry(delay: impl Into<Duration>) -> Self {
        Self::new(Action::Retry(delay.into()))
    }

    /// Give it up, into the dead-letter queue of this name or the [`DeadLetter`] built by [`queue`]
    /// or [`default_queue`].
    pub fn dead_letter(to: impl Into<DeadLetter>) -> Self {
        Self::new(Action::DeadLetter(to.into()))
    }

    /// Publish it to `topic` and settle it here. The subscription must list the topic in
    /// `forward_to`.
    pub fn forward(topic: impl Into<String>) -> Self {
        Self::new(Action::Forward(topic.into()))
    }

    /// Settle it for good, for this reason: it is in no queue afterwards.
    pub fn drop(reason: impl Into<String>) -> Self {
        Self::new(Action::Drop).reason(reason)
    }

    /// Says why.
    ///
    /// A dead letter and a drop are filed under their reason; a retry and a forward show it before
    /// their note. Without one, a dead letter's reason is the name of its queue.
    pub fn reason(mut self, reason: impl Into<String>) -> Self {
        self.reason = Some(reason.into());
        self
    }

    /// Adds a line for people, kept with the attempt.
    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.note = Some(note.into());
        self
    }

    /// Keeps up to [`MEMO_LIMIT`] bytes for the next decision on this delivery
    /// ([`Context::memo`](crate::Context::memo)). Without it, the old memo is forgotten.
    pub fn memo(mut self, memo: impl Into<Vec<u8>>) -> Self {
        self.memo = Some(memo.into());
        self
    }

    /// Also stops the whole subscription: for a duration, or as a [`Pause`] says.
    pub fn pause(mut self, pause: impl Into<Pause>) -> Self {
        self.pause = Some(pause.into());
        self
    }

    /// Lets later messages of the same key pass while this one waits, where the subscription is ordered by key. Without
    /// it they wait with this one, so that its key stays in order.
    pub fn release_key(mut self) -> Self {
        self.release_key = true;
        self
    }

    /// Whether later messages of the same key may pass.
    #[must_use]
    pub fn releases_key(&self) -> bool {
        self.release_key
    }

    /// The action, for tests.
    #[must_use]
    pub fn action(&self) -> &Action {
        &self.action
    }

    /// The delay of a retry; none for any other action.
    #[must_use]
    pub fn delay(&self) -> Option<Duration> {
        match self.action {
            Action::Retry(delay) => Some(delay),
            _ => None,
        }
    }

    /// The reason that a dead letter or a drop is filed under; none for any other action.
    #[must_use]
    pub fn filed_reason(&self) -> Option<&str> {
        match &self.action {
            Action::DeadLetter(letter) => Some(
                self.reason
                    .as_deref()
                    .or(letter.reason.as_deref())
                    .or(letter.queue.as_deref())
                    .unwrap_or_default(),
            ),
            Action::Drop => Some(self.reason.as_deref().unwrap_or_default()),
            Action::Retry(_) | Action::Forward(_) => None,
        }
    }

    /// The line for people as it will be shown.
    #[must_use]
    pub fn shown_note(&self) -> Option<String> {
        let filed = matches!(self.action, Action::DeadLetter(_) | Action::Drop);
        match (self.reason.as_deref().filter(|_| !filed), &self.note) {
            (Some(reason), Some(note)) => Some([reason, note].join(": ")),
            (Some(line), None) => Some(line.to_owned()),
            (None, note) => note.clone(),
        }
    }

    /// The bytes kept for the next decision.
    #[must_use]
    pub fn kept_memo(&self) -> Option<&[u8]> {
        self.memo.as_deref()
    }

    /// The pause asked for.
    #[must_use]
    pub fn pause_asked(&self) -> Option<&Pause> {
        self.pause.as_ref()
    }

    pub(crate) fn into_contract(self) -> bindings::Decision {
        let note = self.shown_note();
        let action = match self.action {
            Action::Retry(delay) => bindings::Action::Retry(whole_millis(delay)),
            Action::Forward(topic) => bindings::Action::Forward(topic),
            Action::Drop => bindings::Action::Drop(self.reason.unwrap_or_default()),
            Action::DeadLetter(letter) => bindings::Action::DeadLetter(letter.into_contract(self.reason)),
        };
        let (pause, memo, release_key) = (self.pause.map(Pause::into_contract), self.memo, self.release_key);
        bindings::Decision { action, pause, memo, note, release_key }
    }
}

/// The dead-letter queue `name` of this subscription.
#[must_use]
pub fn queue(name: impl Into<String>) -> DeadLetter {
    DeadLetter { queue: Some(name.into()), ..default_queue() }
}

/// The subscription's default dead-letter queue.
#[must_use]
pub fn default_queue() -> DeadLetter {
    DeadLetter { queue: None, reason: None, labels: Vec::new() }
}

/// Where a given-up delivery goes and what it is filed under.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetter {
    queue: Option<String>,
    reason: Option<String>,
    labels: Vec<(String, String)>,
}

impl DeadLetter {
    /// Says why; the same as [`Decision::reason`].
    #[must_use]
    pub fn reason(mut self, reason: impl Into<String>) -> Self {
        self.reason = Some(reason.into());
        self
    }

    /// Adds a label to find it by. A label given again takes the new value.
    #[must_use]
    pub fn label(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        let (name, value) = (name.into(), value.into());
        self.labels.retain(|(known, _)| *known != name);
        self.labels.push((name, value));
        self
    }

    /// The queue's name; none is the default queue.
    #[must_use]
    pub fn queue_name(&self) -> Option<&str> {
        self.queue.as_deref()
    }

    /// The labels in the order they were added.
    pub fn labels(&self) -> impl Iterator<Item = (&str, &str)> {
        self.labels.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    fn into_contract(self, reason: Option<String>) -> bindings::DeadLetter {
        let reason = reason.or(self.reason);
        let reason = reason.or_else(|| self.queue.clone()).unwrap_or_default();
        bindings::DeadLetter {
            queue: self.queue,
            reason,
            labels: self.labels.into_iter().map(|(name, value)| bindings::Entry { name, value }).collect(),
        }
    }
}

impl From<&str> for DeadLetter {
    fn from(name: &str) -> Self {
        queue(name)
    }
}

impl From<String> for DeadLetter {
    fn from(name: String) -> Self {
        queue(name)
    }
}

/// Stops the whole subscription for a while: circuit breaking.
///
/// When it ends, `probes` deliveries are let through; the first ack among them closes the circuit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pause {
    duration: Duration,
    probes: u32,
    reason: String,
}

impl Pause {
    /// A pause of this length, with one probe after it.
    #[must_use]
    pub fn of(duration: Duration) -> Self {
        Self { duration, probes: 1, reason: String::new() }
    }

    /// How many deliveries are let through once it ends.
    #[must_use]
    pub fn probes(mut self, probes: u32) -> Self {
        self.probes = probes;
        self
    }

    /// Says why; shown where the subscription is shown as paused.
    #[must_use]
    pub fn reason(mut self, reason: impl Into<String>) -> Self {
        self.reason = reason.into();
        self
    }

    /// How long it lasts.
    #[must_use]
    pub fn duration(&self) -> Duration {
        self.duration
    }

    /// How many deliveries are let through once it ends.
    #[must_use]
    pub fn probe_count(&self) -> u32 {
        self.probes
    }

    fn into_contract(self) -> bindings::Pause {
        bindings::Pause { duration: whole_millis(self.duration), probes: self.probes, reason: self.reason }
    }
}

impl From<Duration> for Pause {
    fn from(duration: Duration) -> Self {
        Pause::of(duration)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::duration::secs;

    /// Every part of a decision arrives in the contract's record.
    #[test]
    fn everything_reaches_the_contract() {
        let decision = Decision::dead_letter(
            queue("gone").label("status", "404").label("status", "410").label("class", "http"),
        )
        .reason("deleted there")
        .note("seen twice")
        .memo("m")
        .pause(Pause::of(secs(30)).probes(3).reason("down"))
        .into_contract();
        let bindings::Action::DeadLetter(letter) = decision.action else {
            panic!("not a dead letter");
        };
        assert_eq!(letter.queue.as_deref(), Some("gone"));
        assert_eq!(letter.reason, "deleted there");
        let labels: Vec<_> = letter.labels.iter().map(|l| (&*l.name, &*l.value)).collect();
        assert_eq!(labels, [("status", "410"), ("class", "http")]);
        assert_eq!(decision.note.as_deref(), Some("seen twice"));
        assert_eq!(decision.memo.as_deref(), Some(&b"m"[..]));
        let pause = decision.pause.expect("a pause");
        assert_eq!((pause.duration, pause.probes), (30_000, 3));
        assert_eq!(pause.reason, "down");
    }

    /// A reason is never lost: it is the filed reason, or it leads the note.
    #[test]
    fn a_reason_has_a_place_on_every_action() {
        assert_eq!(Decision::dead_letter("exhausted").filed_reason(), Some("exhausted"));
        assert_eq!(Decision::dead_letter(default_queue()).filed_reason(), Some(""));
        assert_eq!(Decision::dead_letter(queue("q").reason("one")).filed_reason(), Some("one"));
        assert_eq!(Decision::drop("stale").filed_reason(), Some("stale"));
        let retry = Decision::retry(secs(1)).reason("busy").note("third");
        assert_eq!(retry.filed_reason(), None);
        assert_eq!(retry.shown_note().as_deref(), Some("busy: third"));
        let forward = Decision::forward("slow").reason("too large");
        assert_eq!(forward.shown_note().as_deref(), Some("too large"));
        assert_eq!(Decision::drop("stale").shown_note(), None);
    }

    /// A delay beyond what the contract can count stops at its end (s14).
    #[test]
    fn s14_delays_saturate() {
        let decision = Decision::retry(Duration::MAX).into_contract();
        assert!(matches!(decision.action, bindings::Action::Retry(u64::MAX)));
    }
}
