//! Decisions: what a policy is asked, and what becomes of its answer.
//!
//! The policy runs elsewhere. Its answer comes back as a [`Verdict`], is checked against the attempt that it was
//! computed for, and is recorded and committed together with everything it changes.

use std::sync::Arc;

use super::Engine;
use super::backlog::{End, Held, Place};
use super::settle::Decided;
use crate::domain::context::{Context, ContextMessage, Surroundings};
use crate::domain::decision::{Action, Decider, Decision, Evaluation, Fault, fallback_delay};
use crate::domain::delivery::{Delivery, Outcome, State};
use crate::domain::digest::Digest;
use crate::domain::id::RealmId;
use crate::domain::limits::MAX_HOPS;
use crate::domain::message::Message;
use crate::domain::name::Name;
use crate::domain::receipt::Receipt;
use crate::store::row::{DeadLetterRow, Ending, Row as _};
use crate::store::{Commit, Keyspace, StoreError, key};

/// A question for a policy.
#[derive(Debug)]
pub struct Ask {
    /// Where the answer belongs.
    pub token: Token,
    /// Whose module it is.
    pub realm: RealmId,
    /// Which module to ask.
    pub digest: Digest,
    /// What it is shown. In a box, as it is large and goes through many hands.
    pub context: Box<Context>,
}

/// Which decision of which delivery an answer belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Token {
    /// The lease that ended.
    pub receipt: Receipt,
    /// The revision that was asked.
    pub revision: u32,
}

/// A policy's answer.
#[derive(Debug)]
pub struct Verdict {
    /// Where it belongs.
    pub token: Token,
    /// Which module gave it.
    pub digest: Digest,
    /// What it was shown.
    pub context: Box<Context>,
    /// The answer or the fault, and what it cost.
    pub evaluation: Evaluation,
}

impl Engine {
    /// Asks the policy about a delivery whose attempt has just ended, or dead-letters it where it has had more
    /// attempts than any policy may ask for.
    pub(super) fn decide(&mut self, at: Place) -> Result<(), StoreError> {
        let Some(subscription) = self.subscriptions.get(&at.subscription) else { return Ok(()) };
        let Some(held) = self.held(at) else { return Ok(()) };
        let past_limit = held.delivery.attempt >= subscription.row.settings.attempt_limit;
        let message = self.message(at, held.delivery.replays)?;
        let key = self.key_of(at, &message);
        let held = self.backlogs.get_mut(&at.backlog).and_then(|it| it.held.get_mut(&at.sequence));
        let Some(held) = held else { return Ok(()) };
        held.key = key;
        if past_limit {
            return self.apply_decision(at, Decision::at_attempt_limit());
        }
        held.expires_at = message.expires_at;
        let load = self.load_of(at.subscription);
        let Some(backlog) = self.backlogs.get(&at.backlog) else { return Ok(()) };
        let Some(topic) = self.topics.get(&backlog.topic) else { return Ok(()) };
        let Some(subscription) = self.subscriptions.get(&at.subscription) else { return Ok(()) };
        let Some(held) = backlog.held.get(&at.sequence) else { return Ok(()) };
        let State::Deciding { failure, .. } = &held.delivery.state else { return Ok(()) };
        let receipt = at.receipt(&held.delivery);
        let surroundings = Surroundings {
            subscription: subscription.row.name.clone(),
            topic: topic.row.name.clone(),
            message: ContextMessage::new(
                backlog.message_id(at.sequence),
                &message,
                subscription.row.settings.inspect_payload,
            ),
            now: self.now,
            seed: receipt.seed(subscription.realm, &self.secret),
            params: Arc::from(subscription.revision.params.as_str()),
            load,
        };
        let context = Box::new(Context::of(&held.delivery, failure, surroundings));
        let token = Token { receipt, revision: subscription.row.active_revision };
        let (realm, digest) = (subscription.realm, subscription.revision.digest);
        self.asks.push(Ask { token, realm, digest, context });
        Ok(())
    }

    /// The policies have answered.
    pub(super) fn decided(&mut self, verdicts: Vec<Verdict>) -> Result<(), StoreError> {
        self.apply_before_ends(verdicts.iter().map(|verdict| Place::of(&verdict.token.receipt)))?;
        for verdict in verdicts {
            let receipt = verdict.token.receipt;
            let at = Place::of(&receipt);
            if self.subscriptions.get(&at.subscription).is_some_and(|it| it.is_ordered()) {
                // The next one of its key is looked for among the rows.
                self.apply()?;
            }
            // Meanwhile it may have been acked late, or deleted: then the answer is of no use.
            if self.expects(at, &receipt) {
                let Verdict { token, digest, context, evaluation } = verdict;
                let decision = self.decision(at, token, digest, &evaluation)?;
                // Not before: a fault may quarantine the revision, which applies what is pending up to here.
                self.record(at.subscription, token.revision, &context, &evaluation);
                let shadowed = self.subscriptions.get(&at.subscription).is_some_and(|s| s.shadow.is_some());
                if shadowed {
                    self.ask_shadow(at.subscription, context, decision.clone());
                }
                self.apply_decision(at, decision)?;
            }
        }
        Ok(())
    }

    fn expects(&self, at: Place, receipt: &Receipt) -> bool {
        self.held(at).is_some_and(|held| {
            let delivery = &held.delivery;
            matches!(delivery.state, State::Deciding { .. })
                && (delivery.replays, delivery.attempt) == (receipt.replays, receipt.attempt)
        })
    }

    /// Checks an answer; a fault is answered by the native schedule and counted against the revision.
    fn decision(
        &mut self,
        at: Place,
        token: Token,
        digest: Digest,
        evaluation: &Evaluation,
    ) -> Result<Decision, StoreError> {
        let Some(subscription) = self.subscriptions.get(&at.subscription) else {
            return Ok(Decision::at_attempt_limit());
        };
        let settings = &subscription.row.settings;
        let (fallback_first, max_delay) = (settings.fallback_delay, settings.max_delay);
        let bounds = settings.bounds();
        let (fuel, input) = (evaluation.fuel, evaluation.input);
        let decider = Decider::Policy { revision: token.revision, digest, fuel, input };
        let checked = evaluation.result.clone().and_then(|answer| answer.check(&bounds, decider));
        let active = token.revision == subscription.row.active_revision;
        // Only what the policy itself did counts against its revision.
        let own = matches!(&checked, Err(fault) if !matches!(fault, Fault::NotLoaded(_)));
        let checked = match checked {
            Ok(decision) => self.check_forward(at, decision)?,
            Err(fault) => Err(fault),
        };
        let Some(subscription) = self.subscriptions.get_mut(&at.subscription) else {
            return Ok(Decision::at_attempt_limit());
        };
        match checked {
            Ok(decision) => {
                if active {
                    subscription.faults = 0;
                    subscription.cursor.decisions += 1;
                }
                Ok(decision)
            }
            Err(fault) => {
                // Its kind alone: what a policy answered may be what it was shown, which is for timelines, not for a log.
                tracing::warn!(subscription = %subscription.row.name, revision = token.revision, fault = fault.kind(), "policy fault");
                let consecutive = self.held(at).map_or(0, |held| held.delivery.faults).saturating_add(1);
                if active && own {
                    self.count_fault(at.subscription, &fault)?;
                }
                let delay = fallback_delay(fallback_first, max_delay, consecutive);
                let decider = Decider::Fallback { revision: token.revision, digest, fault };
                Ok(Decision::fallback(delay, decider))
            }
        }
    }

    /// A topic that may be forwarded to has to be there, and no message goes round for ever: past [`MAX_HOPS`] the
    /// decision becomes a dead letter. A topic that an operator deleted is no fault of the policy's.
    fn check_forward(&self, at: Place, decision: Decision) -> Result<Result<Decision, Fault>, StoreError> {
        let Action::Forward { topic } = &decision.action else { return Ok(Ok(decision)) };
        let Some(subscription) = self.subscriptions.get(&at.subscription) else { return Ok(Ok(decision)) };
        if let Err(refusal) = self.topic_id(subscription.realm, topic) {
            return Ok(Err(Fault::BadAnswer(refusal.to_string())));
        }
        let replays = self.held(at).map_or(0, |held| held.delivery.replays);
        if self.message(at, replays)?.hops < MAX_HOPS {
            return Ok(Ok(decision));
        }
        let reason = format!("hop_limit: it was forwarded {MAX_HOPS} times");
        let action = Action::DeadLetter { queue: None, reason, labels: Vec::new() };
        Ok(Ok(Decision { action, ..decision }))
    }

    /// Ends the attempt as decided: history, schedule, dead letter and rows in one commit.
    pub(super) fn apply_decision(&mut self, at: Place, decision: Decision) -> Result<(), StoreError> {
        let now = self.now;
        let Some(held) = self.let_go(at) else { return Ok(()) };
        let Some(subscription) = self.subscriptions.get_mut(&at.subscription) else { return Ok(()) };
        let Some(backlog) = self.backlogs.get_mut(&at.backlog) else { return Ok(()) };
        let Held { mut delivery, stored, expires_at, nack, key, .. } = held;
        let (replays, attempt) = (delivery.replays, delivery.attempt);
        let Ok(outcome) = delivery.decided(replays, attempt, decision.clone(), now) else { return Ok(()) };
        if let Some(pause) = &decision.pause {
            subscription.cursor.circuit.pause(pause, now);
        }
        let mut commit = Commit::default();
        backlog.unstore(at, stored, key, &mut self.waiting, &mut commit);
        let realm = backlog.realm;
        // One that expired in the line of its key, and is delivered all the same, stays in it.
        let blocked = match key {
            Some(key) => self.holder(at, realm, key)?.filter(|holder| *holder != at.sequence).map(|_| key),
            None => None,
        };
        let Some(backlog) = self.backlogs.get_mut(&at.backlog) else { return Ok(()) };
        let next_attempt_at = match outcome {
            Outcome::Waits { due_at } => {
                match blocked.filter(|_| due_at <= now) {
                    Some(key) => backlog.store_blocked(at, key, &delivery, &mut commit),
                    None => backlog.store_delayed(at, &delivery, due_at, &mut commit),
                }
                Some(due_at)
            }
            Outcome::Ended => None,
        };
        if outcome == Outcome::Ended || decision.release_key {
            self.unlock(at, key, &mut commit)?;
        }
        match outcome {
            Outcome::Waits { .. } => {
                self.pending.push(commit);
                // While it was leased its time to live passed: that is the policy's next question.
                if expires_at.is_some_and(|at| at <= now) {
                    self.expire_waiting(at, delivery)?;
                } else {
                    self.waiting.insert(at, delivery);
                }
            }
            Outcome::Ended => {
                self.end_decided(at, delivery, &decision, &mut commit)?;
                self.pending.push(commit);
            }
        }
        self.touch_at(at);
        self.nacks.decided(nack, Decided { decision, next_attempt_at }, &mut self.answers);
        Ok(())
    }

    fn end_decided(
        &mut self,
        at: Place,
        delivery: Delivery,
        decision: &Decision,
        commit: &mut Commit,
    ) -> Result<(), StoreError> {
        let (now, kept) = (self.now, self.kept_from(at.backlog));
        let message = match &decision.action {
            Action::DeadLetter { .. } | Action::Forward { .. } => Some(self.message(at, delivery.replays)?),
            Action::Drop { .. } | Action::Retry { .. } => None,
        };
        let Some(backlog) = self.backlogs.get_mut(&at.backlog) else { return Ok(()) };
        let (realm, topic) = (backlog.realm, backlog.topic);
        match (&decision.action, message) {
            (Action::Forward { topic: to }, Some(message)) => {
                let end = End { ending: Ending::Forwarded, now, delivery };
                backlog.store_end(at, end, kept, commit);
                self.forward(realm, to, topic, at, Arc::unwrap_or_clone(message), commit);
            }
            (Action::DeadLetter { queue, reason, labels }, Some(message)) => {
                let grave = Grave { queue: queue.clone(), reason: reason.clone(), labels: labels.clone() };
                self.bury(at, grave, delivery, message, commit)?;
            }
            _ => {
                let end = End { ending: Ending::Dropped, now, delivery };
                backlog.store_end(at, end, kept, commit);
            }
        }
        Ok(())
    }

    fn bury(
        &mut self,
        at: Place,
        grave: Grave,
        delivery: Delivery,
        message: Arc<Message>,
        commit: &mut Commit,
    ) -> Result<(), StoreError> {
        let message = Arc::unwrap_or_clone(message);
        let (now, kept) = (self.now, self.kept_from(at.backlog));
        let earlier = self.earlier_dead_letter(at)?;
        let Some(backlog) = self.backlogs.get_mut(&at.backlog) else { return Ok(()) };
        let end = End { ending: Ending::DeadLettered, now, delivery: delivery.clone() };
        backlog.store_end(at, end, kept, commit);
        let (realm, id) = (backlog.realm, backlog.dead_letter_id(at.sequence));
        backlog.row.dead += u64::from(earlier.is_none());
        let delivery = match earlier {
            Some(earlier) => {
                self.unindex_dead(realm, id, &earlier, commit);
                delivery.after(earlier.delivery)
            }
            None => delivery,
        };
        if let Some(subscription) = self.subscriptions.get_mut(&at.subscription) {
            subscription.load.dead_lettered(now);
        }
        let Grave { queue, reason, labels } = grave;
        let row =
            DeadLetterRow { dead_at: now, queue, reason, labels, delivery, message, backlog: at.backlog };
        self.index_dead(realm, id, &row, commit);
        commit.put(Keyspace::DeadLetters, key::dead_letter(realm, id), row.encode());
        Ok(())
    }

    /// The dead letter that a message is already, where a seek brought it back: the two become one.
    fn earlier_dead_letter(&self, at: Place) -> Result<Option<DeadLetterRow>, StoreError> {
        let Some(backlog) = self.backlogs.get(&at.backlog).filter(|it| it.row.dead > 0) else {
            return Ok(None);
        };
        self.dead_letter(backlog.realm, backlog.dead_letter_id(at.sequence))
    }

    /// The message of a delivery: its own copy after a replay, else the topic's.
    pub(super) fn message(&self, at: Place, replays: u32) -> Result<Arc<Message>, StoreError> {
        let missing = || StoreError::Corrupt(format!("message {} of an open delivery is gone", at.sequence));
        let backlog = self.backlogs.get(&at.backlog).ok_or_else(missing)?;
        let row = if replays > 0 {
            self.store.get(Keyspace::Replayed, &at.key(backlog.realm))?
        } else {
            let id = backlog.message_id(at.sequence);
            if let Some(message) = self.messages.get(&id) {
                return Ok(Arc::clone(message));
            }
            let key = key::message(backlog.realm, backlog.topic, at.sequence);
            self.store.get(Keyspace::Messages, &key)?
        };
        Message::decode(row.ok_or_else(missing)?).map(Arc::new)
    }
}

/// Where a dead letter goes.
struct Grave {
    queue: Option<Name>,
    reason: String,
    labels: Vec<(String, String)>,
}
