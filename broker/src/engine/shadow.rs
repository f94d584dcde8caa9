//! Shadows: a second policy that is asked what the active one was asked, and whose answers are only counted.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::command::{Put, Refusal};
use super::policies::AdmittedModule;
use super::recover::put_module;
use super::{Engine, Reply, or_refuse};
use crate::domain::context::Context;
use crate::domain::decision::{Decider, Decision, Evaluation, Fault, is_same};
use crate::domain::digest::Digest;
use crate::domain::id::{MessageId, RealmId, SubscriptionId};
use crate::domain::name::Name;
use crate::domain::time::Timestamp;
use crate::store::row::{RevisionRow, Row as _};
use crate::store::{Commit, Keyspace, StoreError, key};

/// Questions to one shadow at a time. More are not asked, and counted.
const IN_FLIGHT: usize = 256;
/// Questions to all shadows at a time.
const ALL_IN_FLIGHT: usize = 4_096;
/// Pairs of class and attempt whose differences are counted apart; the classes are the consumers' words.
const MAX_DIFFERENCES: usize = 200;
/// The last differences that are shown as they are.
const MAX_EXAMPLES: usize = 20;

/// Has a policy asked beside the active one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SetShadow {
    /// Whose.
    pub subscription: Name,
    /// The admitted module.
    pub module: AdmittedModule,
    /// Its parameters, checked by it.
    pub params: String,
    /// Who asks for it.
    pub by: String,
}

/// A shadow as people see it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ShadowView {
    /// What it is.
    pub row: RevisionRow,
    /// How it has done.
    pub stats: ShadowStats,
    /// Questions that it has yet to answer.
    pub in_flight: usize,
}

/// A question to a shadow.
#[derive(Debug)]
pub struct ShadowAsk {
    /// Where the answer belongs.
    pub token: ShadowToken,
    /// Whose module it is.
    pub realm: RealmId,
    /// Which module to ask.
    pub digest: Digest,
    /// What it is shown.
    pub context: Box<Context>,
    /// What the active policy answered, or how it broke.
    pub decided: Result<Decision, Fault>,
}

/// Which shadow an answer belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ShadowToken {
    subscription: SubscriptionId,
    /// Told apart by when they were set up.
    shadow: u64,
}

/// A shadow's answer, with its question.
#[derive(Debug)]
pub struct ShadowVerdict {
    /// The question.
    pub ask: ShadowAsk,
    /// The answer.
    pub evaluation: Evaluation,
}

/// A shadow at work.
pub(super) struct Shadow {
    number: u64,
    row: Arc<RevisionRow>,
    in_flight: usize,
    stats: ShadowStats,
}

/// How a shadow has done since it was set up or the broker started, whichever is later.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ShadowStats {
    /// Since when.
    pub since: Timestamp,
    /// Answers that would have done the same.
    pub agreed: u64,
    /// Answers that would have done something else.
    pub differed: u64,
    /// Questions that were not asked, as too many waited.
    pub dropped: u64,
    /// How often it broke, by kind.
    pub faults: BTreeMap<&'static str, u64>,
    /// The most fuel that a decision burnt.
    pub fuel_max: u64,
    /// How often it differed, by class of failure and attempt.
    pub differences: BTreeMap<(String, u32), u64>,
    /// The last ones.
    pub examples: VecDeque<Difference>,
}

/// A decision that a shadow would have made differently.
#[derive(Clone, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Difference {
    pub at: Timestamp,
    pub message_id: MessageId,
    pub class: String,
    pub attempt: u32,
    pub active: Result<Decision, Fault>,
    pub shadow: Result<Decision, Fault>,
}

impl Shadow {
    pub(super) fn new(number: u64, row: RevisionRow, since: Timestamp) -> Self {
        let stats = ShadowStats {
            since,
            agreed: 0,
            differed: 0,
            dropped: 0,
            faults: BTreeMap::new(),
            fuel_max: 0,
            differences: BTreeMap::new(),
            examples: VecDeque::new(),
        };
        Self { number, row: Arc::new(row), in_flight: 0, stats }
    }

    fn view(&self) -> ShadowView {
        ShadowView { row: (*self.row).clone(), stats: self.stats.clone(), in_flight: self.in_flight }
    }
}

impl ShadowStats {
    fn count(&mut self, difference: Option<Difference>) {
        let Some(difference) = difference else {
            self.agreed += 1;
            return;
        };
        self.differed += 1;
        let kind = (difference.class.clone(), difference.attempt);
        if self.differences.len() < MAX_DIFFERENCES || self.differences.contains_key(&kind) {
            *self.differences.entry(kind).or_default() += 1;
        }
        if self.examples.len() == MAX_EXAMPLES {
            self.examples.pop_front();
        }
        self.examples.push_back(difference);
    }
}

impl Engine {
    pub(super) fn set_shadow(&mut self, realm: RealmId, request: SetShadow, reply: Reply<Put<ShadowView>>) {
        let id = or_refuse!(self, reply, self.subscription_id(realm, &request.subscription));
        let now = self.now;
        let Some(subscription) = self.subscriptions.get_mut(&id) else { return };
        let SetShadow { module, params, by, .. } = request;
        let is = |row: &RevisionRow| row.digest == module.digest && row.params == params;
        if is(&subscription.revision) {
            return self.answer(reply, Err(Refusal::ShadowIsActive));
        }
        if let Some(shadow) = subscription.shadow.as_ref().filter(|shadow| is(&shadow.row)) {
            let value = shadow.view();
            return self.answer(reply, Ok(Put { created: false, value }));
        }
        let row = module.revision(params, by, now);
        self.shadows += 1;
        let shadow = Shadow::new(self.shadows, row.clone(), now);
        let value = shadow.view();
        subscription.shadow = Some(shadow);
        subscription.row.shadow = Some(row);
        let mut commit = Commit::default();
        let key = key::subscription(realm, id);
        commit.put(Keyspace::Subscriptions, key, subscription.row.encode());
        self.pending.extend(put_module(realm, module.digest, &module.bytes));
        self.pending.push(commit);
        self.answer(reply, Ok(Put { created: true, value }));
    }

    pub(super) fn get_shadow(&mut self, realm: RealmId, name: &Name, reply: Reply<ShadowView>) {
        let id = or_refuse!(self, reply, self.subscription_id(realm, name));
        let shadow = self.subscriptions.get(&id).and_then(|subscription| subscription.shadow.as_ref());
        let view = shadow.map(Shadow::view).ok_or(Refusal::ShadowNotFound);
        self.answer(reply, view);
    }

    pub(super) fn delete_shadow(&mut self, realm: RealmId, name: &Name, reply: Reply<()>) {
        let id = or_refuse!(self, reply, self.subscription_id(realm, name));
        let Some(subscription) = self.subscriptions.get_mut(&id) else { return };
        if subscription.shadow.take().is_none() {
            return self.answer(reply, Err(Refusal::ShadowNotFound));
        }
        subscription.row.shadow = None;
        let mut commit = Commit::default();
        commit.put(Keyspace::Subscriptions, key::subscription(realm, id), subscription.row.encode());
        self.pending.push(commit);
        self.answer(reply, Ok(()));
    }

    /// Asks the shadow what the active policy has answered, unless too many such questions wait.
    pub(super) fn ask_shadow(&mut self, id: SubscriptionId, mut context: Box<Context>, decision: Decision) {
        let Some(subscription) = self.subscriptions.get_mut(&id) else { return };
        let Some(shadow) = subscription.shadow.as_mut() else { return };
        if shadow.in_flight >= IN_FLIGHT || self.shadows_in_flight >= ALL_IN_FLIGHT {
            shadow.stats.dropped += 1;
            return;
        }
        shadow.in_flight += 1;
        self.shadows_in_flight += 1;
        context.params = Arc::from(shadow.row.params.as_str());
        let decided = match decision.decider {
            Decider::Fallback { fault, .. } => Err(fault),
            _ => Ok(decision),
        };
        let token = ShadowToken { subscription: id, shadow: shadow.number };
        let (realm, digest) = (subscription.realm, shadow.row.digest);
        self.shadow_asks.push(ShadowAsk { token, realm, digest, context, decided });
    }

    /// Shadows have answered.
    pub(super) fn shadowed(&mut self, verdicts: Vec<ShadowVerdict>) -> Result<(), StoreError> {
        for ShadowVerdict { ask, evaluation } in verdicts {
            self.shadows_in_flight = self.shadows_in_flight.saturating_sub(1);
            let Some(subscription) = self.subscriptions.get_mut(&ask.token.subscription) else { continue };
            let bounds = subscription.row.settings.bounds();
            let shadow = subscription.shadow.as_mut().filter(|shadow| shadow.number == ask.token.shadow);
            let Some(shadow) = shadow else { continue };
            shadow.in_flight = shadow.in_flight.saturating_sub(1);
            let stats = &mut shadow.stats;
            if let Err(Fault::NotLoaded(why)) = &evaluation.result {
                // It never answered.
                tracing::warn!(subscription = %subscription.row.name, why = why.as_str(), "a shadow is not loaded");
                stats.dropped += 1;
                continue;
            }
            stats.fuel_max = stats.fuel_max.max(evaluation.fuel);
            let decider = Decider::Policy {
                revision: 0,
                digest: ask.digest,
                fuel: evaluation.fuel,
                input: evaluation.input,
            };
            let would = evaluation.result.and_then(|answer| answer.check(&bounds, decider));
            if let Err(fault) = &would {
                *stats.faults.entry(fault.kind()).or_default() += 1;
            }
            let same = is_same(&ask.decided, &would);
            let context = ask.context;
            stats.count((!same).then_some(Difference {
                at: context.now,
                message_id: context.message.id,
                class: context.failure.label().to_owned(),
                attempt: context.attempt,
                active: ask.decided,
                shadow: would,
            }));
        }
        Ok(())
    }

    /// The questions to shadows that came up.
    pub fn take_shadow_asks(&mut self) -> Vec<ShadowAsk> {
        std::mem::take(&mut self.shadow_asks)
    }
}
