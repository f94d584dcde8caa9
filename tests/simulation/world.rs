//! One simulated broker: a disk, a clock, consumers, policies that answer late, and crashes at any point.

use std::collections::BTreeSet;
use std::time::Duration;

use reprise_broker::domain::access::Patterns;
use reprise_broker::domain::id::RealmId;
use reprise_broker::domain::name::Name;
use reprise_broker::domain::quota::Usage;
use reprise_broker::domain::receipt::Secret;
use reprise_broker::domain::time::Timestamp;
use reprise_broker::engine::{
    Ask, Command, Durability, Engine, Page, Put, Refusal, Reply, SubscriptionView, Verdict,
};
use reprise_broker::store::simulated::{Disk, Simulated};
use reprise_broker::store::{Keyspace, Store as _, key};
use tokio::sync::oneshot;

use super::model::{Model, Place, Question, Violation, place_of};
use super::pending::{Heads, Moment, Pending, put_subscription, read_heads};
use super::policies::POLICIES;
use super::random::Random;
use super::watched::{Trace, Watched};

pub(crate) const REALM: RealmId = RealmId(0);

const START: Timestamp = Timestamp::from_millis(1_800_000_000_000);
pub(crate) const SECRET: Secret = Secret([7; 32]);

pub(crate) struct World {
    pub(crate) random: Random,
    pub(crate) trace: Trace,
    pub(crate) model: Model,
    pub(crate) now: Timestamp,
    /// Commands for the next turn.
    pub(crate) group: Vec<Command>,
    pub(crate) pending: Vec<Pending>,
    /// Subscriptions that were being created or deleted.
    pub(crate) uncertain: BTreeSet<Name>,
    /// Policies keep quiet, so that nothing changes while everything is looked at.
    pub(crate) quiet: bool,
    /// How often the broker was started.
    pub(crate) lives: u32,
    disk: Disk,
    engine: Option<Engine>,
    asks: Vec<Asked>,
    /// An order to fail was given, so a failure is no surprise.
    armed: bool,
}

/// A policy's answer on its way.
struct Asked {
    arrives_at: Timestamp,
    name: Name,
    question: Question,
    verdict: Verdict,
    /// The subscription was deleted after it had asked.
    orphan: bool,
}

impl World {
    pub(crate) fn new(seed: u64) -> Result<Self, Violation> {
        let mut world = Self {
            random: Random::new(seed),
            trace: Trace::default(),
            model: Model::default(),
            now: START,
            group: Vec::new(),
            pending: Vec::new(),
            uncertain: BTreeSet::new(),
            quiet: false,
            lives: 0,
            disk: Disk::default(),
            engine: None,
            asks: Vec::new(),
            armed: false,
        };
        world.open()?;
        Ok(world)
    }

    fn open(&mut self) -> Result<(), Violation> {
        let store =
            Simulated::open(&self.disk).map_err(|error| format!("the disk does not open: {error}"))?;
        let store = Box::new(Watched { store, trace: self.trace.clone() });
        let standard = POLICIES.standard.clone();
        let engine = Engine::open(store, Durability::Fsync, standard, SECRET, self.now);
        self.engine = Some(engine.map_err(|error| format!("the broker does not start: {error}"))?);
        self.armed = false;
        self.lives += 1;
        Ok(())
    }

    /// Puts a command into the next turn; the answer comes after it.
    pub(crate) fn send<T>(
        &mut self,
        command: impl FnOnce(Reply<T>) -> Command,
    ) -> oneshot::Receiver<Result<T, Refusal>> {
        let (reply, answer) = oneshot::channel();
        self.group.push(command(reply));
        answer
    }

    /// Runs one turn with the commands that were sent, and looks at every answer that came.
    pub(crate) fn turn(&mut self) -> Result<(), Violation> {
        let mut group = std::mem::take(&mut self.group);
        let answered = self.answer_asks(&mut group);
        let Some(engine) = &mut self.engine else { return Err("no broker runs".to_owned()) };
        match engine.run(group, self.now) {
            Ok(asks) => self.ask(asks)?,
            Err(error) if self.armed => {
                self.trace.note(error.to_string().as_bytes());
                self.model.may_have_missed(&answered);
                return self.crash();
            }
            Err(error) => return Err(format!("the broker stopped: {error}")),
        }
        self.collect()
    }

    /// Runs a command of its own; `None` if the broker crashed over it.
    pub(crate) fn call<T>(
        &mut self,
        command: impl FnOnce(Reply<T>) -> Command,
    ) -> Result<Option<Result<T, Refusal>>, Violation> {
        let mut answer = self.send(command);
        self.turn()?;
        Ok(answer.try_recv().ok())
    }

    /// Hands over the answers of policies that have arrived, in any order and at any place among the commands.
    fn answer_asks(&mut self, group: &mut Vec<Command>) -> Vec<(Name, Place)> {
        let (arrived, waiting) =
            std::mem::take(&mut self.asks).into_iter().partition(|a| a.arrives_at <= self.now && !self.quiet);
        self.asks = waiting;
        let mut arrived: Vec<Asked> = arrived;
        let mut answered = Vec::new();
        while !arrived.is_empty() {
            let count = 1 + self.random.below(arrived.len());
            let mut verdicts = Vec::with_capacity(count);
            for _ in 0..count {
                let mut asked = arrived.swap_remove(self.random.below(arrived.len()));
                let (receipt, result) = (asked.verdict.token.receipt, &asked.verdict.evaluation.result);
                let syncs = self.trace.syncs();
                asked.question.changing = self.uncertain.contains(&asked.name);
                if !asked.orphan {
                    self.model.answered(&asked.name, receipt, result, &asked.question, self.now, syncs);
                }
                answered.push((asked.name, asked.question.message));
                verdicts.push(asked.verdict);
            }
            let place = self.random.below(group.len() + 1);
            group.insert(place, Command::Decided(verdicts));
        }
        answered
    }

    /// What policies were asked so far about deliveries on these topics will be no more.
    pub(crate) fn orphan_asks<'a>(&mut self, name: &Name, topics: impl Iterator<Item = &'a Name>) {
        let of: Vec<_> = topics.filter_map(|topic| self.model.topics[topic].id).collect();
        let of_these = |asked: &&mut Asked| asked.name == *name && of.contains(&asked.question.message.0);
        self.asks.iter_mut().filter(of_these).for_each(|asked| asked.orphan = true);
    }

    fn ask(&mut self, asks: Vec<Ask>) -> Result<(), Violation> {
        for ask in asks {
            let delay = if self.random.percent(50) { Duration::ZERO } else { self.random.millis(1, 3_000) };
            let verdict = POLICIES.answer(&ask);
            if self.random.percent(10) && POLICIES.answer(&ask).evaluation != verdict.evaluation {
                return Err(format!("the same question had two answers: {ask:?}"));
            }
            self.asks.push(Asked {
                arrives_at: self.now + delay,
                name: ask.context.subscription.clone(),
                question: Question {
                    message: place_of(ask.context.message.id),
                    payload: named(&ask.context.message.attributes),
                    cause: ask.context.failure.cause,
                    changing: false,
                },
                verdict,
                orphan: false,
            });
        }
        Ok(())
    }

    fn collect(&mut self) -> Result<(), Violation> {
        let at = Moment { now: self.now, syncs: self.trace.syncs() };
        // Deliveries leave the broker after the answers to the commands of the same turn.
        let (pulls, others): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.pending).into_iter().partition(|p| matches!(p, Pending::Pull(..)));
        for pending in others.into_iter().chain(pulls) {
            if let Pending::Delete(name, _) = &pending {
                self.asks
                    .iter_mut()
                    .filter(|asked| asked.name == *name)
                    .for_each(|asked| asked.orphan = true);
            }
            self.pending.extend(pending.settle(&mut self.model, at)?);
        }
        if self.pending.iter().all(|p| !matches!(p, Pending::Put(..) | Pending::Delete(..)))
            && self.engine.is_some()
        {
            self.uncertain.clear();
        }
        Ok(())
    }

    /// Time passes: a bit, to the next timer, or a lot.
    pub(crate) fn pass_time(&mut self) {
        let timer = self.engine.as_ref().and_then(Engine::wakes_at);
        self.now = match (self.random.below(10), timer) {
            (0..3, Some(at)) if at < self.now + Duration::from_secs(60) => self.now.max(at),
            (0..6, _) => self.now + self.random.millis(0, 100),
            (6..9, _) => self.now + self.random.millis(0, 2_000),
            _ => self.now + self.random.millis(0, 20_000),
        };
    }

    /// Gives the disk an order to fail some time soon.
    pub(crate) fn arm(&mut self) {
        let seed = self.random.next();
        match self.random.below(3) {
            0 => self.disk.fail_next_apply(seed),
            1 => self.disk.fail_next_sync(),
            _ => self.disk.fail_after(self.random.below(12) as u32, seed),
        }
        self.armed = true;
    }

    /// The process ends, or the power fails, and the broker starts again.
    pub(crate) fn crash(&mut self) -> Result<(), Violation> {
        let loses_power = self.random.percent(50);
        if loses_power {
            self.disk.crash(self.random.next());
            self.trace.note(b"power");
        } else {
            self.disk.kill();
            self.trace.note(b"kill");
        }
        self.engine = None;
        self.group.clear();
        self.asks.clear();
        self.collect()?;
        if !self.pending.is_empty() {
            return Err("an answer is awaited from a broker that is gone".to_owned());
        }
        // After the answers of the turn that failed: what they granted may be forgotten too.
        if loses_power {
            self.model.lose_power(self.trace.syncs());
        }
        if self.random.percent(15) {
            let back = self.random.next() % 20_000;
            let to = Timestamp::from_millis(self.now.as_millis() - back);
            self.model.clock_went_back(self.now, to);
            self.now = to;
        } else {
            self.now = self.now + self.random.millis(0, 3_000);
        }
        // Turns begin anew.
        self.model.subscriptions.values_mut().for_each(|it| it.passed_by.clear());
        self.open()?;
        self.take_stock()
    }

    /// After a restart: what was being created or deleted, and settings that were being changed.
    fn take_stock(&mut self) -> Result<(), Violation> {
        let uncertain = std::mem::take(&mut self.uncertain);
        let page = Page { after: None, limit: 1_000 };
        // All in one turn: no policy is asked before it is known by which settings its answer is taken.
        let mut listed = self.send(|reply| Command::ListSubscriptions(REALM, page, Patterns::all(), reply));
        let mut heads = self.ask_heads(|_| true);
        self.turn()?;
        let Ok(listed) = listed.try_recv() else { return Ok(()) };
        let listed = listed.map_err(|refusal| refusal.to_string())?.items;
        let heads = read_heads(&mut heads);
        for name in self.model.subscriptions.keys().cloned().collect::<Vec<_>>() {
            if !listed.iter().any(|view| view.row.name == name) {
                if !uncertain.contains(&name) {
                    return Err(format!("subscription {name} is gone"));
                }
                self.model.subscriptions.remove(&name);
            }
        }
        for view in listed {
            let name = view.row.name.clone();
            let created = !self.model.subscriptions.contains_key(&name);
            if created && !uncertain.contains(&name) {
                return Err(format!("subscription {name} came back"));
            }
            put_subscription(&mut self.model, &name, Put { created, value: view }, &heads)?;
        }
        Ok(())
    }

    /// Asks how far some of the topics have come.
    pub(crate) fn ask_heads(&mut self, which: impl Fn(&Name) -> bool) -> Heads {
        let topics: Vec<Name> = self.model.topics.keys().filter(|topic| which(topic)).cloned().collect();
        let ask = |topic: Name| (topic.clone(), self.send(|reply| Command::GetTopic(REALM, topic, reply)));
        topics.into_iter().map(ask).collect()
    }

    pub(crate) fn view(&mut self, name: &Name) -> Result<Option<SubscriptionView>, Violation> {
        let name = name.clone();
        let answer = self.call(|reply| Command::GetSubscription(REALM, name, reply))?;
        answer.transpose().map_err(|refusal| refusal.to_string())
    }

    /// What the broker says that the realm keeps.
    pub(crate) fn realm_usage(&self) -> Option<Usage> {
        self.engine.as_ref().map(|engine| engine.realm_usage(REALM))
    }

    /// Stops the broker and counts what it left on the disk.
    pub(crate) fn rows_left(&mut self, keyspaces: &[Keyspace]) -> Result<usize, Violation> {
        self.engine = None;
        let store = Simulated::open(&self.disk).map_err(|error| error.to_string())?;
        Ok(keyspaces.iter().map(|keyspace| store.scan(*keyspace, key::everything()).count()).sum())
    }

    /// Nothing is left to do at this moment.
    pub(crate) fn is_idle(&self) -> bool {
        self.engine.as_ref().and_then(Engine::wakes_at).is_none_or(|at| at > self.now)
    }

    /// To the next timer, or a while on.
    pub(crate) fn jump(&mut self) {
        let timer = self.engine.as_ref().and_then(Engine::wakes_at);
        let later = self.now + Duration::from_secs(3);
        self.now = timer.map_or(later, |at| at.max(self.now + Duration::from_millis(1)).min(later));
    }
}

/// The payload of a message, which is in an attribute too for whoever is not shown it.
fn named(attributes: &[(String, String)]) -> String {
    attributes.first().map(|(_, payload)| payload.clone()).unwrap_or_default()
}
