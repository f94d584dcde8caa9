//! One broker on a simulated disk, step by step, for scenarios that name a clock or a disk that misbehaves.

use std::time::Duration;

use reprise_broker::domain::access::{Credential, Patterns, Rights, Scope, Scopes};
use reprise_broker::domain::failure::{Cause, Failure};
use reprise_broker::domain::id::RealmId;
use reprise_broker::domain::limits::{MAX_PATTERN_SUBSCRIPTIONS, MAX_SUBSCRIPTIONS_PER_TOPIC};
use reprise_broker::domain::pattern::TopicPattern;
use reprise_broker::domain::quota::Quota;
use reprise_broker::domain::receipt::Receipt;
use reprise_broker::domain::settings::{Mode, Reads, TopicSettings};
use reprise_broker::domain::time::Timestamp;
use reprise_broker::engine::{
    Ack, AckResult, Command, Durability, Engine, Granted, Nack, NackResult, NewMessage, NewToken, Publish,
    Pull, PutRealm, PutSubscription, PutTopic, Refusal, Replace, Reply, SettleError, SubscriptionChange,
    SubscriptionView,
};
use reprise_broker::store::simulated::{Disk, Simulated};
use tokio::sync::oneshot;

use super::policies::POLICIES;
use super::watched::{Trace, Watched};
use super::work::name;
use super::world::{REALM, SECRET};

const START: Timestamp = Timestamp::from_millis(1_800_000_000_000);
const HOUR: Duration = Duration::from_secs(3_600);

struct Steps {
    disk: Disk,
    trace: Trace,
    engine: Option<Engine>,
    now: Timestamp,
}

impl Steps {
    /// A topic and a subscription whose policy retries after an hour.
    fn new() -> Self {
        Self::of_mode(Mode::Acked)
    }

    fn without_topics() -> Self {
        let mut steps = Self { disk: Disk::default(), trace: Trace::default(), engine: None, now: START };
        steps.start_at(START);
        steps
    }

    fn of_mode(mode: Mode) -> Self {
        let mut steps = Self::without_topics();
        let topic = PutTopic { name: name("t"), settings: TopicSettings::default() };
        steps.run(|reply| Command::PutTopic(REALM, topic, reply)).expect("it runs").expect("a topic");
        let request = subscription("s", mode, Reads::Topic(name("t")));
        steps
            .run(|reply| Command::PutSubscription(REALM, request, reply))
            .expect("it runs")
            .expect("created");
        steps
    }

    /// Ends the process, if one runs, and starts another when the clock shows this.
    fn start_at(&mut self, now: Timestamp) {
        self.disk.kill();
        self.engine = None;
        self.now = now;
        let store = Simulated::open(&self.disk).expect("the disk opens");
        let standard = POLICIES.standard.clone();
        let store = Box::new(Watched { store, trace: self.trace.clone() });
        let engine = Engine::open(store, Durability::Fsync, standard, SECRET, now);
        self.engine = Some(engine.expect("it starts"));
    }

    fn at(&mut self, since_start: Duration) {
        self.now = START + since_start;
    }

    /// Runs a command and answers the questions that come up; `None` if storage failed.
    fn run<T>(&mut self, command: impl FnOnce(Reply<T>) -> Command) -> Option<Result<T, Refusal>> {
        let (reply, mut answer) = oneshot::channel();
        // First what the time that passed has brought.
        self.turns(Vec::new())?;
        self.turns(vec![command(reply)])?;
        answer.try_recv().ok()
    }

    fn turns(&mut self, mut commands: Vec<Command>) -> Option<()> {
        loop {
            let Ok(asks) = self.engine.as_mut()?.run(std::mem::take(&mut commands), self.now) else {
                self.engine = None;
                return None;
            };
            if asks.is_empty() {
                return Some(());
            }
            commands.push(Command::Decided(asks.iter().map(|ask| POLICIES.answer(ask)).collect()));
        }
    }

    fn publish(&mut self, delay: Duration) {
        self.send(NewMessage { delay, ..message() });
    }

    fn send(&mut self, message: NewMessage) {
        let request = Publish { topic: name("t"), messages: vec![message], checked: None };
        let published = self.run(|reply| Command::Publish(REALM, request, reply)).expect("it runs");
        assert!(published.expect("published").results[0].is_ok());
    }

    fn pull(&mut self) -> Vec<Granted> {
        self.run(|reply| Command::Pull(REALM, pull(), reply)).expect("it runs").expect("pulled")
    }

    /// A pull whose consumer goes when its deliveries are written down, and before it is given them.
    fn pull_and_go(&mut self) {
        let (reply, answer) = oneshot::channel();
        self.trace.at_next_apply(move || drop(answer));
        self.turns(vec![Command::Pull(REALM, pull(), reply)]).expect("it runs");
    }

    fn ack(&mut self, receipt: Receipt) -> Option<AckResult> {
        let request = Ack { subscription: name("s"), receipts: vec![receipt] };
        self.run(|reply| Command::Ack(REALM, request, reply))?.expect("acked").pop()
    }

    fn nack(&mut self, receipt: Receipt) -> Option<NackResult> {
        let items = vec![(receipt, Failure::of(Cause::Nacked))];
        let request = Nack { subscription: name("s"), items };
        self.run(|reply| Command::Nack(REALM, request, reply))?.expect("nacked").pop()
    }

    fn view(&mut self) -> SubscriptionView {
        self.run(|reply| Command::GetSubscription(REALM, name("s"), reply)).expect("it runs").expect("shown")
    }
}

fn subscription(of: &str, mode: Mode, reads: Reads) -> Box<PutSubscription> {
    let lease = Some(Duration::from_secs(30));
    Box::new(PutSubscription {
        name: name(of),
        reads: Some(reads),
        change: SubscriptionChange { mode: Some(mode), lease, ..SubscriptionChange::default() },
        replace: Replace::All,
        retry: Some(r#"{"delay":"1h","jitter":"none","max_attempts":3,"on_expired":"retry"}"#.to_owned()),
    })
}

fn message() -> NewMessage {
    NewMessage { payload: vec![7; 100].into(), ..NewMessage::default() }
}

fn every_topic() -> Reads {
    Reads::Topics(TopicPattern::parse(">").expect("a pattern"))
}

fn pull() -> Pull {
    let (max, wait, max_bytes) = (10, Duration::ZERO, 1_000_000);
    Pull { subscription: name("s"), max, wait, max_bytes, consumer: None }
}

/// A consumer goes in the moment that its deliveries are on their way: they are the next one's, without a failure, also
/// where they were settled as they were handed out, and after a kill.
#[test]
fn what_nobody_was_given_comes_again() {
    for mode in [Mode::Acked, Mode::AutoAcked] {
        let mut steps = Steps::of_mode(mode);
        for _ in 0..3 {
            steps.publish(Duration::ZERO);
        }
        steps.pull_and_go();
        let counts = steps.view().counts;
        assert_eq!((counts.backlog, counts.in_flight), (3, 0), "{mode:?}");
        steps.start_at(START);
        let again: Vec<_> = steps.pull().iter().map(|it| (it.receipt.sequence, it.failures)).collect();
        assert_eq!(again, [(1, 0), (2, 0), (3, 0)], "{mode:?}");
        steps.start_at(START);
        let left = if mode == Mode::Acked { 3 } else { 0 };
        assert_eq!(steps.view().counts.backlog, left, "{mode:?}");
    }
}

/// Due in an hour, and the clock jumps two hours forward over a restart: it comes early by the jump, and is not lost. Then the
/// clock jumps three hours back: a message that nobody has seen waits its delay at most, a retry keeps its due time and is
/// late by the jump at most, and no lease lasts longer than it was granted for.
#[test]
fn s21_the_clock_jumps() {
    let mut steps = Steps::new();
    steps.publish(HOUR);
    assert_eq!(steps.pull().len(), 0);
    steps.start_at(START + 2 * HOUR);
    let early = steps.pull();
    assert_eq!(early.len(), 1, "early by the jump");

    // Leased at +2 h for 30 s; the clock goes back to -1 h.
    let back = Timestamp::from_millis(START.as_millis() - 3_600_000);
    steps.start_at(back);
    assert_eq!(steps.view().counts.in_flight, 1);
    steps.now = back + Duration::from_secs(29);
    assert_eq!(steps.view().counts.in_flight, 1, "the lease still holds");
    steps.now = back + Duration::from_secs(31);
    let view = steps.view();
    assert_eq!((view.counts.in_flight, view.counts.delayed), (0, 1), "it ends, and is a retry now");

    // A retry due at `back` + 31 s + 1 h, and a fresh message with a delay of an hour: three hours back.
    steps.publish(HOUR);
    let further = Timestamp::from_millis(back.as_millis() - 3 * 3_600_000);
    steps.start_at(further);
    assert_eq!(steps.pull().len(), 0);
    steps.now = further + HOUR;
    let fresh = steps.pull();
    assert_eq!((fresh.len(), fresh[0].receipt.attempt), (1, 1), "never longer than its delay");
    assert!(steps.ack(fresh[0].receipt).is_some_and(|acked| acked.is_ok()));
    steps.now = back + Duration::from_secs(31) + HOUR;
    let late = steps.pull();
    assert_eq!((late.len(), late[0].receipt.attempt), (1, 2), "late by the jump");
}

/// An ack is on its way when the disk stops taking writes. If the write fails the message is there once more, when its
/// lease has run out, with its attempts counted once each; the limit holds. If the write was taken it is gone.
#[test]
fn s27_an_ack_meets_a_disk_that_fails() {
    for seed in 0..40 {
        let mut steps = Steps::new();
        steps.publish(Duration::ZERO);
        let held = steps.pull().pop().expect("a delivery");
        steps.at(Duration::from_secs(29));
        steps.disk.fail_next_apply(seed);
        assert!(steps.ack(held.receipt).is_none(), "nobody is told what is not sure");
        steps.start_at(START + Duration::from_secs(31));
        let view = steps.view();
        if view.counts.backlog == 0 {
            assert_eq!(steps.pull().len(), 0, "seed {seed}: the ack was taken");
            continue;
        }
        assert_eq!((view.counts.in_flight, view.counts.delayed), (0, 1), "seed {seed}: the lease ran out");
        let mut now = START + Duration::from_secs(31);
        for attempt in 2..=3 {
            now = now + HOUR;
            steps.now = now;
            let again = steps.pull().pop().expect("it comes again");
            assert_eq!((again.receipt.attempt, again.failures), (attempt, attempt - 1), "seed {seed}");
            assert!(steps.nack(again.receipt).is_some_and(|nacked| nacked.is_ok()));
        }
        let view = steps.view();
        assert_eq!((view.counts.backlog, view.counts.dead), (0, 1), "seed {seed}: the limit holds");
    }
}

/// A pull that waits on a pattern without topics is given what comes on the first one.
#[test]
fn a_pull_waits_for_a_topic_to_come() {
    let mut steps = Steps::without_topics();
    let request = subscription("s", Mode::Acked, every_topic());
    steps.run(|reply| Command::PutSubscription(REALM, request, reply)).expect("it runs").expect("created");
    let (reply, mut waiting) = oneshot::channel();
    let request = Pull { wait: HOUR, ..pull() };
    steps.turns(vec![Command::Pull(REALM, request, reply)]).expect("it runs");
    let topic = PutTopic { name: name("t"), settings: TopicSettings::default() };
    steps.run(|reply| Command::PutTopic(REALM, topic, reply)).expect("it runs").expect("a topic");
    assert!(waiting.try_recv().is_err(), "there is nothing yet");
    steps.publish(Duration::ZERO);
    assert_eq!(waiting.try_recv().expect("an answer").expect("deliveries").len(), 1);
}

/// What was let in while its realm still was comes after the end of the realm: it finds no realm, and makes nothing.
#[test]
fn nothing_is_created_in_a_realm_that_just_went() {
    let mut steps = Steps::new();
    let realm = PutRealm { name: name("short"), rate: None, quota: Quota::default() };
    steps.run(|reply| Command::PutRealm(realm, reply)).expect("it runs").expect("a realm");
    // The first that is made.
    let realm = RealmId(RealmId::DEFAULT.0 + 1);
    let (reply, mut gone) = oneshot::channel();
    let mut commands = vec![Command::DeleteRealm(name("short"), reply)];
    let (reply, mut topic) = oneshot::channel();
    let request = PutTopic { name: name("t"), settings: TopicSettings::default() };
    commands.push(Command::PutTopic(realm, request, reply));
    let (reply, mut by_pattern) = oneshot::channel();
    commands.push(Command::PutSubscription(realm, subscription("p", Mode::Acked, every_topic()), reply));
    let (reply, mut token) = oneshot::channel();
    let request = NewToken {
        name: name("late"),
        rights: Rights {
            scopes: Scopes::of(Scope::ALL),
            topics: Patterns::all(),
            subscriptions: Patterns::all(),
        },
        expires_in: None,
        rate: None,
        hash: Credential::hash(&SECRET.0),
        by: "somebody".to_owned(),
    };
    commands.push(Command::CreateToken(realm, Box::new(request), reply));
    steps.turns(commands).expect("it runs");
    assert_eq!(gone.try_recv().expect("an answer"), Ok(realm));
    assert_eq!(topic.try_recv().expect("an answer").err(), Some(Refusal::RealmNotFound));
    assert_eq!(by_pattern.try_recv().expect("an answer").err(), Some(Refusal::RealmNotFound));
    assert_eq!(token.try_recv().expect("an answer").err(), Some(Refusal::RealmNotFound));
}

/// A topic keeps a number of bytes. What goes to make room may have been decided on before the cursor came by, may be
/// leased or wait: all of it is gone, and counted so, over a restart.
#[test]
fn what_a_topic_gives_up_is_outstanding_no_more() {
    let mut steps = Steps::new();
    let put = |steps: &mut Steps, settings: TopicSettings| {
        let topic = PutTopic { name: name("t"), settings };
        steps
            .run(|reply| Command::PutTopic(REALM, topic, reply))
            .expect("it runs")
            .expect("a topic")
            .value
            .head
    };
    steps.publish(Duration::ZERO);
    steps.publish(Duration::ZERO);
    let mut held = steps.pull();
    assert!(steps.nack(held.remove(0).receipt).is_some_and(|nacked| nacked.is_ok()));
    steps.publish(Duration::ZERO);
    steps.send(NewMessage { ttl: Some(Duration::from_secs(1)), ..message() });
    steps.at(Duration::from_secs(2));
    let counts = steps.view().counts;
    assert_eq!(
        (counts.backlog, counts.in_flight, counts.delayed),
        (4, 1, 2),
        "one waits ahead of the cursor"
    );
    let payload = vec![7; 1_000].into();
    steps.send(NewMessage { payload, ..NewMessage::default() });
    put(&mut steps, TopicSettings { retain_bytes: Some(1_050), ..TopicSettings::default() });
    for start in [false, true] {
        steps.at(Duration::from_secs(20));
        if start {
            steps.start_at(steps.now);
        }
        let head = put(&mut steps, TopicSettings { retain_bytes: Some(1_050), ..TopicSettings::default() });
        assert_eq!((head.first, head.next), (5, 6));
        let counts = steps.view().counts;
        assert_eq!((counts.backlog, counts.in_flight, counts.delayed), (1, 0, 0));
    }
    assert_eq!(steps.ack(held[0].receipt), Some(Err(SettleError::StaleReceipt)));
    steps.at(2 * HOUR);
    let got: Vec<_> = steps.pull().iter().map(|granted| granted.id.sequence).collect();
    assert_eq!(got, [5]);
}

/// What was published while nobody listened is nothing to do for whoever comes, not even in the turn in which he comes.
#[test]
fn a_live_subscription_never_had_a_backlog() {
    let mut steps = Steps::of_mode(Mode::Live);
    for _ in 0..3 {
        steps.publish(Duration::ZERO);
    }
    let (pulled, mut waiting) = oneshot::channel();
    let (shown, mut view) = oneshot::channel();
    let request = Pull { wait: HOUR, ..pull() };
    let commands =
        vec![Command::Pull(REALM, request, pulled), Command::GetSubscription(REALM, name("s"), shown)];
    steps.turns(commands).expect("it runs");
    assert_eq!(view.try_recv().expect("an answer").expect("a view").counts.backlog, 0);
    assert!(waiting.try_recv().is_err());
}

/// A topic has so many subscriptions that name it, whatever the patterns that take it too; and these are bounded by themselves.
#[test]
fn subscriptions_are_bounded_by_what_they_read() {
    let mut steps = Steps::without_topics();
    let topic = PutTopic { name: name("t"), settings: TopicSettings::default() };
    steps.run(|reply| Command::PutTopic(REALM, topic, reply)).expect("it runs").expect("a topic");
    let mut put = |of: String, reads: Reads| {
        let request = subscription(&of, Mode::Acked, reads);
        steps.run(|reply| Command::PutSubscription(REALM, request, reply)).expect("it runs").map(|_| ())
    };
    let reads = || Reads::Topic(name("t"));
    for (kind, most, reads) in [
        ("p", MAX_PATTERN_SUBSCRIPTIONS, &every_topic as &dyn Fn() -> Reads),
        ("n", MAX_SUBSCRIPTIONS_PER_TOPIC, &reads),
    ] {
        for number in 0..most {
            put(format!("{kind}{number}"), reads()).expect("there is room");
        }
        let refused = put(format!("{kind}{most}"), reads());
        assert!(matches!(refused, Err(Refusal::LimitReached { limit, .. }) if limit == most), "{refused:?}");
    }
}
