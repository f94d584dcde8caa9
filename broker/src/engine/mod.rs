//! The broker below the sockets: commands and time go in, commits and replies come out.
//!
//! One thread owns an [`Engine`] and with it every topic and subscription; nothing here waits, reads a
//! clock or knows a socket, so the same code runs under the simulator from a seed. A file per verb; start
//! with [`Engine::run`], one turn of the group commit:
//!
//! ```text
//!   commands --> transitions --> apply --> sync --> answers --> timers, waiting pulls --> apply --> deliveries
//!                     |                                                |
//!                     `------------- asks to the policies -------------'   (answers come back as a command)
//! ```

mod audit;
mod backlog;
mod browse;
mod command;
mod control;
mod dead_index;
mod dead_letters;
mod decide;
mod dedup;
mod delete;
mod directory;
mod events;
mod expire;
mod forward;
mod inspect;
mod jobs;
mod load;
mod order;
mod policies;
mod publish;
mod pull;
mod quota;
mod reads;
mod realms;
mod recent;
mod record;
mod recover;
mod settle;
mod shadow;
mod state;
mod subscriptions;
mod take;
mod tokens;
mod topics;
mod trim;
mod window;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use foldhash::HashMap;
use tokio::sync::oneshot;

use crate::domain::access::TokenId;
use crate::domain::audit::AuditEntry;
use crate::domain::dedup::Fingerprint;
use crate::domain::delivery::Delivery;
use crate::domain::id::{BacklogId, MessageId, RealmId, Sequence, SubscriptionId, TopicId};
use crate::domain::job::JobId;
use crate::domain::message::Message;
use crate::domain::name::Name;
use crate::domain::quota::{Quota, Usage};
use crate::domain::receipt::Secret;
use crate::domain::time::Timestamp;
use crate::store::key::Owner;
use crate::store::row::{AuditHead, DedupRow, RealmRow, Row as _, TokenRow};
use crate::store::{Commit, Keyspace, Store, StoreError, key};

pub use audit::{AuditChecked, AuditList, AuditPlace, AuditQuery};
pub use backlog::Counts;
use backlog::{Backlog, Held, Place};
pub use browse::{Browse, Browsed, Peek, Peeked, Peeks};
pub use command::*;
pub use control::{Pause, Purge, Seek, Sought};
pub use dead_index::{DeadPlace, Order};
pub use dead_letters::{
    DeadLetterEdit, DeadLetterFacets, DeadLetterList, DeadLetterQuery, DeadLetterView, Replayed,
};
pub use decide::{Ask, Token, Verdict};
pub use directory::Directory;
pub use events::{Event, EventKind};
use forward::Outbox;
pub use inspect::{DeliveryView, MessageView, Stands};
use jobs::Job;
pub use jobs::JobView;
use order::KeyHash;
pub use policies::{AdmittedModule, RevisionView, Rollback, SetPolicy};
pub use publish::{Accepted, NewMessage, Publish, Published, Unchecked};
use pull::Budget;
pub use pull::{Granted, Pull};
pub use realms::{PutRealm, RealmView};
use recent::Recent;
pub use record::RecordedView;
pub use recover::{BROKER, StandardPolicy};
use settle::Nacks;
pub use settle::{Ack, AckResult, Decided, Extend, ExtendResult, Nack, NackResult, SettleError};
pub use shadow::{Difference, SetShadow, ShadowAsk, ShadowStats, ShadowVerdict, ShadowView};
use state::{Subscription, Topic};
pub use subscriptions::{PutSubscription, Replace, SubscriptionChange, SubscriptionView};
pub use tokens::{NewToken, Rotation, TokenChange, TokenView};
pub use topics::{PutTopic, TopicView};

/// Whether an answer waits for the disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Durability {
    /// Publishes, settlements and configuration are answered once they survive a power cut.
    #[default]
    Fsync,
    /// They are answered once they survive the end of the process. A power cut loses what the operating
    /// system had not written yet, usually the last seconds.
    Os,
}

/// Everything the broker knows, and the store it is kept in.
pub struct Engine {
    store: Box<dyn Store>,
    durability: Durability,
    secret: Secret,
    standard: StandardPolicy,
    /// The moment of the current turn.
    now: Timestamp,
    /// No new leases: the broker is about to stop.
    draining: bool,
    topics: HashMap<TopicId, Topic>,
    topic_names: BTreeMap<(RealmId, Name), TopicId>,
    subscriptions: HashMap<SubscriptionId, Subscription>,
    subscription_names: BTreeMap<(RealmId, Name), SubscriptionId>,
    /// Those that read all topics of a pattern.
    with_patterns: BTreeSet<(RealmId, SubscriptionId)>,
    backlogs: HashMap<BacklogId, Backlog>,
    next_topic: u32,
    next_subscription: u32,
    next_backlog: u32,
    /// Deleted, with rows still to be removed.
    doomed: Vec<(RealmId, Owner)>,
    /// The last row that was removed of one of them.
    removed: Option<((RealmId, Owner), Keyspace, Vec<u8>)>,
    /// Messages wait in the outbox.
    outbox: Outbox,
    /// Messages came from the outbox, for which no answer waits: they too are synced before they can be leased.
    unsynced: bool,
    /// Nacks whose items are not all decided.
    nacks: Nacks,
    /// Messages that were just leased: their policies may be asked about them.
    messages: Recent<MessageId, Arc<Message>>,
    /// Deliveries that just began to wait.
    waiting: Recent<Place, Delivery>,
    /// Commits of this turn that are not applied yet.
    pending: Vec<Commit>,
    /// Locks that they take or give up.
    locks: HashMap<(BacklogId, KeyHash), Option<Sequence>>,
    /// How many dead letters of each kind came or went, since the tallies were written.
    tallies: BTreeMap<Vec<u8>, i64>,
    jobs: BTreeMap<(RealmId, JobId), Job>,
    /// Those that have something to do.
    busy_jobs: BTreeSet<(RealmId, JobId)>,
    /// The one that took a step last.
    last_job: (RealmId, JobId),
    changed_topics: BTreeSet<TopicId>,
    changed_subscriptions: BTreeSet<SubscriptionId>,
    changed_backlogs: BTreeSet<BacklogId>,
    /// Subscriptions with waiting pulls and something that may be delivered to them.
    ready: BTreeSet<SubscriptionId>,
    /// The last subscription whose waiting pulls were looked at.
    last_served: SubscriptionId,
    /// Answers that wait for what was applied to be durable.
    answers: Vec<Answer>,
    /// Deliveries that wait for their leases to be applied.
    deliveries: Vec<pull::Delivered>,
    /// Nobody was told of them yet.
    events: Vec<Event>,
    asks: Vec<Ask>,
    shadow_asks: Vec<ShadowAsk>,
    /// How many shadows were set up since the start.
    shadows: u64,
    shadows_in_flight: usize,
    wakes: BTreeSet<(Timestamp, Owner)>,
    /// Ids of messages that were published in this turn and are not applied yet.
    remembered: HashMap<(TopicId, Fingerprint), DedupRow>,
    /// What each realm keeps: that of its topics together.
    usage: HashMap<RealmId, Usage>,
    /// How much each realm may keep.
    realm_quota: Quota,
    realms: BTreeMap<RealmId, Arc<RealmRow>>,
    realm_names: BTreeMap<Name, RealmId>,
    tokens: BTreeMap<(RealmId, TokenId), Arc<TokenRow>>,
    next_realm: u32,
    next_token: u32,
    /// Realms and tokens as far as they are durable.
    directory: Arc<Directory>,
    audit: AuditHead,
    /// What the audit log is to tell of the command at hand, if it is accepted.
    telling: Option<AuditEntry>,
    accepted: bool,
    /// Nothing more is to be kept, whatever the quotas say.
    disk_is_full: bool,
}

/// An answer on its way.
type Answer = Box<dyn FnOnce() + Send>;

impl Engine {
    /// Takes one turn: carries the commands out in order, makes them durable, answers them, and then lets time
    /// pass up to `now`. Returns what the policies are to be asked.
    ///
    /// # Errors
    /// [`StoreError`] when storage fails. The caller must stop: memory is ahead of the disk.
    pub fn run(
        &mut self,
        commands: impl IntoIterator<Item = Command>,
        now: Timestamp,
    ) -> Result<Vec<Ask>, StoreError> {
        self.now = self.now.max(now);
        for command in commands {
            self.handle(command)?;
        }
        self.commit()?;
        self.tick()?;
        self.commit()?;
        Ok(std::mem::take(&mut self.asks))
    }

    /// Makes the last leases durable, which nobody had to wait for.
    ///
    /// # Errors
    /// [`StoreError`] when storage fails.
    pub fn close(mut self) -> Result<(), StoreError> {
        self.apply()?;
        self.store.sync()
    }

    /// When [`run`](Self::run) is to be called again even if no command comes.
    pub fn wakes_at(&self) -> Option<Timestamp> {
        let busy = !self.ready.is_empty() || !self.doomed.is_empty();
        let timer = self.wakes.first().map(|(at, _)| *at);
        if busy {
            Some(self.now)
        } else {
            timer.into_iter().chain(self.outbox.at).chain(self.jobs_at()).min()
        }
    }

    fn handle(&mut self, command: Command) -> Result<(), StoreError> {
        match command {
            Command::PutTopic(realm, request, reply) => self.put_topic(realm, request, reply),
            Command::GetTopic(realm, name, reply) => self.get_topic(realm, &name, reply),
            Command::ListTopics(realm, page, among, reply) => self.list_topics(realm, &page, &among, reply),
            Command::DeleteTopic(realm, name, reply) => self.delete_topic(realm, &name, reply),
            Command::PutSubscription(realm, request, reply) => {
                return self.put_subscription(realm, *request, reply);
            }
            Command::GetSubscription(realm, name, reply) => self.get_subscription(realm, &name, reply),
            Command::ListSubscriptions(realm, page, among, reply) => {
                self.list_subscriptions(realm, &page, &among, reply);
            }
            Command::DeleteSubscription(realm, name, reply) => {
                self.delete_subscription(realm, &name, reply);
            }
            Command::Publish(realm, request, reply) => return self.publish(realm, request, reply),
            Command::Pull(realm, request, reply) => self.pull(realm, request, reply),
            Command::Ack(realm, request, reply) => return self.ack(realm, request, reply),
            Command::Nack(realm, request, reply) => return self.nack(realm, request, reply),
            Command::Extend(realm, request, reply) => self.extend(realm, request, reply),
            Command::Decided(verdicts) => return self.decided(verdicts),
            Command::SetPolicy(realm, request, reply) => self.set_policy(realm, *request, reply),
            Command::GetPolicy(realm, name, number, reply) => {
                return self.get_policy(realm, &name, number, reply);
            }
            Command::GetModule(realm, digest, reply) => return self.get_module(realm, digest, reply),
            Command::ListRevisions(realm, name, page, reply) => {
                return self.list_revisions(realm, &name, &page, reply);
            }
            Command::ListRecorded(realm, name, page, reply) => {
                return self.list_recorded(realm, &name, &page, reply);
            }
            Command::Rollback(realm, request, reply) => return self.rollback(realm, &request, reply),
            Command::SetShadow(realm, request, reply) => self.set_shadow(realm, *request, reply),
            Command::GetShadow(realm, name, reply) => self.get_shadow(realm, &name, reply),
            Command::DeleteShadow(realm, name, reply) => self.delete_shadow(realm, &name, reply),
            Command::Shadowed(verdicts) => return self.shadowed(verdicts),
            Command::ListDeadLetters(realm, query, reply) => {
                return self.list_dead_letters(realm, *query, reply);
            }
            Command::CountDeadLetters(realm, filter, among, reply) => {
                return self.count_dead_letters(realm, &filter, &among, reply);
            }
            Command::GetDeadLetter(realm, id, reply) => return self.get_dead_letter(realm, id, reply),
            Command::ReplayDeadLetter(realm, id, edit, reply) => {
                return self.replay_dead_letter(realm, id, *edit, reply);
            }
            Command::DiscardDeadLetter(realm, id, reply) => {
                return self.discard_dead_letter(realm, id, reply);
            }
            Command::PlanJob(realm, plan, reply) => return self.plan_job(realm, *plan, reply),
            Command::GetJob(realm, id, reply) => self.get_job(realm, id, reply),
            Command::ListJobs(realm, page, among, reply) => self.list_jobs(realm, &page, &among, reply),
            Command::StartJob(realm, id, reply) => self.start_job(realm, id, reply),
            Command::AbortJob(realm, id, reply) => self.abort_job(realm, id, reply),
            Command::GetMessage(realm, id, reply) => return self.get_message(realm, id, reply),
            Command::Pause(realm, request, reply) => self.pause(realm, request, reply),
            Command::Resume(realm, name, reply) => self.resume(realm, &name, reply),
            Command::Seek(realm, request, reply) => return self.seek(realm, &request, reply),
            Command::Purge(realm, request, reply) => self.purge(realm, &request, reply),
            Command::Browse(realm, request, reply) => return self.browse(realm, &request, reply),
            Command::Peek(realm, request, reply) => return self.peek(realm, &request, reply),
            Command::Drain(reply) => self.drain(reply),
            Command::PutRealm(request, reply) => self.put_realm(request, reply),
            Command::GetRealm(name, reply) => self.get_realm(&name, reply),
            Command::ListRealms(page, reply) => self.list_realms(&page, reply),
            Command::DeleteRealm(name, reply) => self.delete_realm(&name, reply),
            Command::CreateToken(realm, request, reply) => self.create_token(realm, *request, reply),
            Command::GetToken(realm, id, reply) => self.get_token(realm, id, reply),
            Command::ListTokens(realm, page, reply) => self.list_tokens(realm, &page, reply),
            Command::ChangeToken(realm, id, change, reply) => self.change_token(realm, id, *change, reply),
            Command::RotateToken(realm, id, rotation, reply) => self.rotate_token(realm, id, rotation, reply),
            Command::DeleteToken(realm, id, reply) => self.delete_token(realm, id, reply),
            Command::Audited(told) => return self.audited(told.0, told.1),
            Command::Audit(entry, reply) => return self.audit(*entry, reply),
            Command::ListAudit(query, reply) => return self.list_audit(&query, reply),
            Command::CheckAudit(from, reply) => return self.check_audit(from, reply),
        }
        Ok(())
    }

    /// Lets everything happen whose time has come, a bounded amount of each kind: what is left over keeps
    /// [`wakes_at`](Self::wakes_at) in the past, and commands get their turn in between.
    fn tick(&mut self) -> Result<(), StoreError> {
        let due: Vec<_> = self.wakes.iter().take_while(|(at, _)| *at <= self.now).map(|(_, o)| *o).collect();
        let mut topics = 0;
        for owner in due {
            match owner {
                // The others keep their place in line.
                Owner::Topic(_) if topics == TURN_TOPICS => {}
                Owner::Topic(id) => {
                    topics += 1;
                    self.tick_topic(id)?;
                }
                Owner::Subscription(id) => self.tick_subscription(id)?,
                // What it waited for may be handed out from now on.
                Owner::Backlog(id) => _ = self.changed_backlogs.insert(id),
                // Nothing of it happens by itself.
                Owner::Realm => {}
            }
        }
        // What the timers changed has to be there for those who read rows.
        self.apply()?;
        // Who was served last comes last: the budget of a turn starves nobody.
        let mut waiting = std::mem::take(&mut self.ready);
        let mut order = waiting.split_off(&self.last_served);
        let first = order.take(&self.last_served);
        let mut budget = Budget::of_a_turn();
        for id in order.into_iter().chain(waiting).chain(first) {
            if budget.is_spent() {
                self.ready.insert(id);
            } else {
                self.serve(id, &mut budget)?;
                self.last_served = id;
            }
        }
        self.empty_outbox()?;
        self.run_jobs()?;
        self.remove_doomed()
    }

    /// No more leases; every waiting pull is answered at once. Settlements go on.
    fn drain(&mut self, reply: Reply<()>) {
        self.draining = true;
        for subscription in self.subscriptions.values_mut() {
            for waiter in subscription.waiters.drain(..) {
                waiter.answer(Ok(Vec::new()));
            }
        }
        self.answer(reply, Ok(()));
    }

    /// Makes everything up to here durable and sends what waited for it.
    fn commit(&mut self) -> Result<(), StoreError> {
        self.apply()?;
        let answers = std::mem::take(&mut self.answers);
        if !answers.is_empty() || self.unsynced {
            if self.durability == Durability::Fsync {
                self.store.sync()?;
            }
            self.unsynced = false;
        }
        for delivered in std::mem::take(&mut self.deliveries) {
            self.hand_out(delivered)?;
        }
        for answer in answers {
            answer();
        }
        // Handing out may have found a consumer gone, whose leases were given back.
        self.apply()
    }

    /// Writes all pending commits, so that reads see them. Called between transitions, never within one.
    fn apply(&mut self) -> Result<(), StoreError> {
        let mut progress = Commit::default();
        for id in std::mem::take(&mut self.changed_topics) {
            if let Some(topic) = self.topics.get(&id) {
                progress.put(Keyspace::Heads, key::topic(topic.realm, id), topic.head.encode());
                self.changed_backlogs.extend(&topic.backlogs);
            }
        }
        for id in std::mem::take(&mut self.changed_backlogs) {
            self.look_at(id);
            let Some(backlog) = self.backlogs.get_mut(&id).filter(|it| it.row != it.saved) else { continue };
            if self.subscriptions.get(&backlog.subscription).is_some_and(|it| !it.is_live()) {
                progress.put(Keyspace::Backlogs, backlog.key(), backlog.row.encode());
            }
            backlog.saved.clone_from(&backlog.row);
            progress.split_into(&mut self.pending);
        }
        for id in std::mem::take(&mut self.changed_subscriptions) {
            if let Some(subscription) = self.subscriptions.get_mut(&id) {
                subscription.flush_records(id, &mut progress);
                subscription.events(self.now, &mut self.events);
                if subscription.cursor != subscription.saved {
                    let key = key::subscription(subscription.realm, id);
                    progress.put(Keyspace::Cursors, key, subscription.cursor.encode());
                    subscription.saved.clone_from(&subscription.cursor);
                }
                let wake = subscription.wakes_at(self.now);
                if wake != subscription.wake {
                    set_wake(&mut self.wakes, Owner::Subscription(id), &mut subscription.wake, wake);
                }
                progress.split_into(&mut self.pending);
            }
        }
        self.save_tallies(&mut progress)?;
        if !progress.is_empty() {
            self.pending.push(progress);
        }
        if !self.pending.is_empty() {
            self.store.apply(&self.pending)?;
            self.pending.clear();
            self.locks.clear();
            self.remembered.clear();
        }
        Ok(())
    }

    /// Answers once everything changed so far is durable.
    fn answer<T: Send + 'static>(&mut self, reply: Reply<T>, answer: Result<T, Refusal>) {
        self.accepted = answer.is_ok();
        self.answers.push(Box::new(move || {
            // The one who asked may have gone; what was done stays done.
            _ = reply.send(answer);
        }));
    }

    fn topic_id(&self, realm: RealmId, name: &Name) -> Result<TopicId, Refusal> {
        // A tuple of references does not borrow as the key: the clone is one reference count.
        self.topic_names
            .get(&(realm, name.clone()))
            .copied()
            .ok_or_else(|| Refusal::TopicNotFound(name.clone()))
    }

    fn subscription_id(&self, realm: RealmId, name: &Name) -> Result<SubscriptionId, Refusal> {
        let id = self.subscription_names.get(&(realm, name.clone()));
        id.copied().ok_or_else(|| Refusal::SubscriptionNotFound(name.clone()))
    }

    /// The topic that a backlog is of.
    fn topic_of(&self, id: BacklogId) -> Option<&Topic> {
        self.topics.get(&self.backlogs.get(&id)?.topic)
    }

    /// Where that topic begins.
    fn kept_from(&self, id: BacklogId) -> Sequence {
        self.topic_of(id).map_or(0, |topic| topic.head.first)
    }

    /// What a subscription has of a topic, if it reads it.
    fn backlog_on(&self, id: SubscriptionId, topic: TopicId) -> Option<&Backlog> {
        let of_topic = self.topics.get(&topic)?.backlogs.iter();
        of_topic.filter_map(|it| self.backlogs.get(it)).find(|it| it.subscription == id)
    }

    /// A delivery in memory.
    fn held(&self, at: Place) -> Option<&Held> {
        self.backlogs.get(&at.backlog)?.held.get(&at.sequence)
    }

    /// Takes a delivery into memory. Its rows are written already, or are in the commit at hand.
    fn hold(&mut self, at: Place, held: Held) {
        let Some(backlog) = self.backlogs.get_mut(&at.backlog) else { return };
        if let Some(subscription) = self.subscriptions.get_mut(&at.subscription) {
            subscription.count_in(at, &held);
            backlog.held.insert(at.sequence, held);
        }
    }

    /// Takes it out again.
    fn let_go(&mut self, at: Place) -> Option<Held> {
        let held = self.backlogs.get_mut(&at.backlog)?.held.remove(&at.sequence)?;
        if let Some(subscription) = self.subscriptions.get_mut(&at.subscription) {
            subscription.count_out(at, &held);
        }
        Some(held)
    }

    /// A subscription's cursor, wake and waiting pulls are looked at again before the turn ends.
    fn touch(&mut self, id: SubscriptionId) {
        self.changed_subscriptions.insert(id);
        if self.subscriptions.get(&id).is_some_and(|s| !s.waiters.is_empty()) {
            self.ready.insert(id);
        }
    }

    /// So is what it has of the topic of a delivery that changed: its row, counts and wake.
    fn touch_at(&mut self, at: Place) {
        self.changed_backlogs.insert(at.backlog);
        self.touch(at.subscription);
    }

    /// Counts a backlog, and finds whether it has something to hand out, or else when it will.
    fn look_at(&mut self, id: BacklogId) {
        let Some(backlog) = self.backlogs.get_mut(&id) else { return };
        let Some(topic) = self.topics.get(&backlog.topic) else { return };
        let Some(subscription) = self.subscriptions.get_mut(&backlog.subscription) else { return };
        let counts = backlog.counts(topic);
        subscription.counts.replace(std::mem::replace(&mut backlog.counted, counts), counts);
        let next = backlog.next_at(topic, self.now);
        let wake = next.filter(|at| *at > self.now);
        if next.is_some() && wake.is_none() {
            // One that was active before waits for something else: for room, or for somebody who pulls.
            if subscription.active.insert(id) && !subscription.waiters.is_empty() {
                self.ready.insert(backlog.subscription);
            }
        } else {
            subscription.active.remove(&id);
        }
        if wake != backlog.wake {
            set_wake(&mut self.wakes, Owner::Backlog(id), &mut backlog.wake, wake);
        }
    }

    fn wake_topic(&mut self, id: TopicId) {
        if let Some(topic) = self.topics.get_mut(&id) {
            let wake = topic.wakes_at();
            if wake != topic.wake {
                set_wake(&mut self.wakes, Owner::Topic(id), &mut topic.wake, wake);
            }
        }
    }
}

/// Answers at once with a refusal, or hands the value on.
macro_rules! or_refuse {
    ($self:ident, $reply:ident, $result:expr) => {
        match $result {
            Ok(value) => value,
            Err(refusal) => return $self.answer($reply, Err(refusal.into())),
        }
    };
    (try $self:ident, $reply:ident, $result:expr) => {
        match $result {
            Ok(value) => value,
            Err(refusal) => {
                $self.answer($reply, Err(refusal.into()));
                return Ok(());
            }
        }
    };
}
use or_refuse;

/// Where an answer is awaited.
pub type Reply<T> = oneshot::Sender<Result<T, Refusal>>;

fn set_wake(
    wakes: &mut BTreeSet<(Timestamp, Owner)>,
    owner: Owner,
    slot: &mut Option<Timestamp>,
    at: Option<Timestamp>,
) {
    if let Some(old) = *slot {
        wakes.remove(&(old, owner));
    }
    if let Some(new) = at {
        wakes.insert((new, owner));
    }
    *slot = at;
}

/// Topics that are looked at in one turn: each look reads as many rows as a step does, at most.
const TURN_TOPICS: usize = 20;
/// Rows that one background step removes: short enough not to hold a turn up.
const STEP_ROWS: usize = 1_000;
/// How often a topic is looked at for messages that nobody needs any more, at most.
const TRIM_EVERY: Duration = Duration::from_secs(10);
/// Memory for messages that were just leased.
const RECENT_BYTES: usize = 64 * 1024 * 1024;
/// Memory for deliveries that just began to wait.
const RECENT_WAITING_BYTES: usize = 32 * 1024 * 1024;
