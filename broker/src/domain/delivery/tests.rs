//! The state machine, once as a table of every state and event, once on a random walk beside a log of events.

use proptest::prelude::*;

use super::super::decision::Fault;
use super::super::digest::Digest;
use super::super::name::Name;
use super::*;

const LEASE: Duration = Duration::from_millis(100);
const MAX_LEASE: Duration = Duration::from_millis(250);
const DELAY: Duration = Duration::from_millis(50);

fn at(millis: u64) -> Timestamp {
    Timestamp::from_millis(millis)
}

fn decided(action: Action) -> Decision {
    let fault = Fault::Fuel;
    let decider = Decider::Fallback { revision: 1, digest: Digest([0; 32]), fault };
    Decision {
        action,
        clamped_from: None,
        pause: None,
        memo: Vec::new(),
        note: None,
        release_key: false,
        decider,
    }
}

fn actions() -> [Action; 4] {
    let reason = || "why".to_owned();
    [
        Action::Retry { delay: DELAY },
        Action::DeadLetter { queue: None, reason: reason(), labels: Vec::new() },
        Action::Forward { topic: Name::new("other").expect("a name") },
        Action::Drop { reason: reason() },
    ]
}

/// One delivery in each state, all at their second attempt except for the first.
fn states() -> [(&'static str, Delivery); 8] {
    let retry = || decided(Action::Retry { delay: DELAY });
    let fail = |delivery: &mut Delivery, cause, now| {
        let (replays, attempt) = (delivery.replays, delivery.attempt);
        delivery.fail(replays, attempt, Failure::of(cause), now).expect("it is leased");
    };
    let fresh = Delivery::new(at(0));
    let mut leased = fresh.clone();
    leased.grant(at(0), LEASE).expect("it is due");
    fail(&mut leased, Cause::Nacked, at(0));
    leased.decided(0, 1, retry(), at(0)).expect("it is awaited");
    leased.grant(at(100), LEASE).expect("it is due");
    let deciding = |cause| {
        let mut delivery = leased.clone();
        fail(&mut delivery, cause, at(200));
        delivery
    };
    let waiting = |cause| {
        let mut delivery = deciding(cause);
        delivery.decided(0, 2, retry(), at(200)).expect("it is awaited");
        delivery
    };
    let mut expired = waiting(Cause::Nacked);
    expired.expire(at(300)).expect("it waits");
    let mut waived = expired.clone();
    waived.decided(0, 2, retry(), at(250)).expect("it is awaited");
    [
        ("fresh", fresh),
        ("leased", leased.clone()),
        ("nacked", deciding(Cause::Nacked)),
        ("ran out", deciding(Cause::LeaseExpired)),
        ("retries", waiting(Cause::Nacked)),
        ("retries after it ran out", waiting(Cause::LeaseExpired)),
        ("expired", expired),
        ("delivered though expired", waived),
    ]
}

type Event = (&'static str, fn(&mut Delivery, u32, u32) -> &'static str);

/// What an event did; `-` if the delivery said that the event is not for it.
fn ends(result: Result<Outcome, Stale>) -> &'static str {
    match result {
        Ok(Outcome::Waits { due_at }) if due_at == at(350) => "waits",
        Ok(Outcome::Waits { .. }) => "waits wrongly",
        Ok(Outcome::Ended) => "ended",
        Err(Stale) => "-",
    }
}

fn fails(delivery: &mut Delivery, replays: u32, attempt: u32, cause: Cause) -> &'static str {
    match delivery.fail(replays, attempt, Failure::of(cause), at(300)) {
        Ok(()) if delivery.ran_out == (cause == Cause::LeaseExpired) => "asks",
        Ok(()) => "asks wrongly",
        Err(Stale) => "-",
    }
}

fn extends(delivery: &mut Delivery, now: u64, lease: u64, replays: u32, attempt: u32) -> &'static str {
    match delivery.extend(replays, attempt, at(now), Duration::from_millis(lease), MAX_LEASE) {
        Ok(until) if until == at(now + lease) && delivery.lease_until() == Some(until) => "leased",
        Ok(_) => "leased wrongly",
        Err(ExtendError::MaxLease { until }) if until == at(350) => "too long",
        Err(ExtendError::MaxLease { .. }) => "too long wrongly",
        Err(ExtendError::Stale) => "-",
    }
}

/// Those that come with a receipt or a decision, and so are for one attempt.
const FOR_ONE_ATTEMPT: [Event; 12] = [
    ("ack", |d, replays, attempt| match d.ack(replays, attempt) {
        Ok(Acked { late: false }) => "acked",
        Ok(Acked { late: true }) => "late",
        Err(Stale) => "-",
    }),
    ("nack", |d, replays, attempt| fails(d, replays, attempt, Cause::Nacked)),
    ("lease runs out", |d, replays, attempt| fails(d, replays, attempt, Cause::LeaseExpired)),
    ("consumer vanishes", |d, replays, attempt| fails(d, replays, attempt, Cause::Disconnected)),
    ("release", |d, replays, attempt| fails(d, replays, attempt, Cause::Released)),
    ("extend", |d, replays, attempt| extends(d, 199, 100, replays, attempt)),
    ("extend too far", |d, replays, attempt| extends(d, 199, 152, replays, attempt)),
    ("extend at the end", |d, replays, attempt| extends(d, 200, 100, replays, attempt)),
    ("retry", |d, replays, attempt| {
        ends(d.decided(replays, attempt, decided(actions()[0].clone()), at(300)))
    }),
    ("dead letter", |d, replays, attempt| {
        ends(d.decided(replays, attempt, decided(actions()[1].clone()), at(300)))
    }),
    ("forward", |d, replays, attempt| {
        ends(d.decided(replays, attempt, decided(actions()[2].clone()), at(300)))
    }),
    ("drop", |d, replays, attempt| ends(d.decided(replays, attempt, decided(actions()[3].clone()), at(300)))),
];

const GRANTS: [Event; 3] = [
    ("grant", |d, _, _| if d.grant(at(300), LEASE).is_ok() { "leased" } else { "-" }),
    ("grant before it is due", |d, _, _| if d.grant(at(249), LEASE).is_ok() { "leased" } else { "-" }),
    ("time to live passes", |d, _, _| if d.expire(at(300)).is_ok() { "asks" } else { "-" }),
];

/// Every event in every state does what this table says; with an older or later attempt, or of another life, it does
/// nothing at all.
#[test]
fn every_event_in_every_state() {
    let no = "-";
    #[rustfmt::skip]
    let table = [
        //                     fresh     leased      nacked   ran out  retries   retries*  expired  delivered though
        ("ack",               [no,       "acked",    no,      "late",  no,       "late",   no,      no]),
        ("nack",              [no,       "asks",     no,      no,      no,       no,       no,      no]),
        ("lease runs out",    [no,       "asks",     no,      no,      no,       no,       no,      no]),
        ("consumer vanishes", [no,       "asks",     no,      no,      no,       no,       no,      no]),
        ("release",           [no,       "asks",     no,      no,      no,       no,       no,      no]),
        ("extend",            [no,       "leased",   no,      no,      no,       no,       no,      no]),
        ("extend too far",    [no,       "too long", no,      no,      no,       no,       no,      no]),
        ("extend at the end", [no,       no,         no,      no,      no,       no,       no,      no]),
        ("retry",             [no,       no,         "waits", "waits", no,       no,       "waits", no]),
        ("dead letter",       [no,       no,         "ended", "ended", no,       no,       "ended", no]),
        ("forward",           [no,       no,         "ended", "ended", no,       no,       "ended", no]),
        ("drop",              [no,       no,         "ended", "ended", no,       no,       "ended", no]),
        ("grant",             ["leased", no,         no,      no,      "leased", "leased", no,      "leased"]),
        ("grant before it is due", ["leased", no,    no,      no,      no,       no,       no,      no]),
        ("time to live passes", ["asks", no,         no,      no,      "asks",   "asks",   no,      no]),
    ];
    let events = FOR_ONE_ATTEMPT.iter().chain(&GRANTS);
    for ((event, happens), (named, row)) in events.zip(table) {
        assert_eq!(*event, named);
        for ((state, delivery), expected) in states().into_iter().zip(row) {
            let mut after = delivery.clone();
            let did = happens(&mut after, delivery.replays, delivery.attempt);
            assert_eq!(did, expected, "{event}, {state}");
            assert!(did != no || after == delivery, "{event} changed {state}");
        }
    }
    for (event, happens) in FOR_ONE_ATTEMPT {
        for (state, delivery) in states() {
            let attempt = delivery.attempt;
            for (replays, attempt) in [(0, attempt.wrapping_sub(1)), (0, attempt + 1), (1, attempt)] {
                let mut after = delivery.clone();
                assert_eq!(happens(&mut after, replays, attempt), no, "{event}, {state}, attempt {attempt}");
                assert_eq!(after, delivery, "{event} for attempt {attempt} changed {state}");
            }
        }
    }
}

/// A replay begins at attempt 1 again, keeps the history and the sum of attempts, and has no time to live.
#[test]
fn a_replay_is_a_new_life() {
    let (_, dead) = states().into_iter().nth(2).expect("a nacked one");
    let mut replayed = dead.replayed(at(400));
    assert_eq!((replayed.replays, replayed.previous_attempts, replayed.attempt), (1, 2, 0));
    assert_eq!((&replayed.history, replayed.failures, replayed.first_leased_at), (&dead.history, 0, None));
    assert_eq!(replayed.past_failures(), []);
    assert_eq!(replayed.expire(at(500)), Err(Stale));
    replayed.grant(at(400), LEASE).expect("it is due");
    assert_eq!(replayed.attempt, 1);
    assert_eq!(replayed.ack(0, 1), Err(Stale));
    assert_eq!(replayed.ack(1, 1), Ok(Acked { late: false }));
}

/// The last 32 attempts are kept in full, the counters know of all.
#[test]
fn the_history_is_bounded() {
    let mut delivery = Delivery::new(at(0));
    for attempt in 1..=100 {
        delivery.grant(at(0), LEASE).expect("it is due");
        delivery.fail(0, attempt, Failure::of(Cause::Nacked), at(0)).expect("it is leased");
        let retry = decided(Action::Retry { delay: Duration::ZERO });
        delivery.decided(0, attempt, retry, at(0)).expect("it is awaited");
    }
    assert_eq!((delivery.attempt, delivery.failures, delivery.faults), (100, 100, 100));
    let kept: Vec<u32> = delivery.history.iter().map(|past| past.attempt).collect();
    assert_eq!(kept, (69..=100).collect::<Vec<u32>>());
    assert_eq!(delivery.past_failures().len(), MAX_CONTEXT_HISTORY);
}

/// What may happen on the walk: an event, and how far its attempt is off.
#[derive(Clone, Debug)]
enum Step {
    Pass(u64),
    Grant,
    Ack(i32),
    Fail(i32, usize),
    Expire,
    Extend(i32, u64),
    Decide(i32, usize),
    Replay,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let off = || prop_oneof![8 => Just(0), 1 => Just(-1), 1 => Just(1)];
    let step = prop_oneof![
        3 => (0_u64..80).prop_map(Step::Pass),
        4 => Just(Step::Grant),
        1 => off().prop_map(Step::Ack),
        3 => (off(), 0_usize..4).prop_map(|(off, cause)| Step::Fail(off, cause)),
        1 => Just(Step::Expire),
        1 => (off(), 0_u64..300).prop_map(|(off, lease)| Step::Extend(off, lease)),
        // Mostly retries, or the walk is over at once.
        4 => (off(), 0_usize..10).prop_map(|(off, action)| Step::Decide(off, action.saturating_sub(6))),
        1 => Just(Step::Replay),
    ];
    prop::collection::vec(step, 0..120)
}

/// What has happened, in order. Everything is worked out from it anew each time.
#[derive(Clone, Debug, PartialEq)]
enum Happened {
    Granted { now: u64, until: u64 },
    Extended { until: u64 },
    Ended { cause: Cause },
    Decided { due_at: u64 },
    Died,
    Acked,
    Replayed { due_at: u64 },
}

#[derive(Default)]
struct Log(Vec<Happened>);

impl Log {
    fn life(&self) -> &[Happened] {
        let begin = self.0.iter().rposition(|event| matches!(event, Happened::Replayed { .. }));
        &self.0[begin.unwrap_or(0)..]
    }

    fn replays(&self) -> u32 {
        self.0.iter().filter(|event| matches!(event, Happened::Replayed { .. })).count() as u32
    }

    fn attempt(&self) -> u32 {
        self.life().iter().filter(|event| matches!(event, Happened::Granted { .. })).count() as u32
    }

    fn last(&self) -> Option<&Happened> {
        self.0.iter().rfind(|event| !matches!(event, Happened::Extended { .. }))
    }

    fn lease(&self) -> Option<(u64, u64)> {
        let Some(Happened::Granted { now, until }) = self.last() else { return None };
        let extended = match self.0.last() {
            Some(Happened::Extended { until }) => *until,
            _ => *until,
        };
        Some((*now, extended))
    }

    fn due_at(&self) -> Option<u64> {
        match self.last() {
            None => Some(0),
            Some(Happened::Decided { due_at } | Happened::Replayed { due_at }) => Some(*due_at),
            Some(_) => None,
        }
    }

    fn is_asked(&self) -> bool {
        matches!(self.last(), Some(Happened::Ended { .. }))
    }

    fn is_over(&self) -> bool {
        matches!(self.last(), Some(Happened::Acked | Happened::Died))
    }

    /// The lease that ended last ran out.
    fn ran_out(&self) -> bool {
        let lease = |event: &&Happened| {
            matches!(event, Happened::Granted { .. } | Happened::Replayed { .. })
                || matches!(event, Happened::Ended { cause } if *cause != Cause::MessageExpired)
        };
        matches!(self.0.iter().rfind(lease), Some(Happened::Ended { cause: Cause::LeaseExpired }))
    }

    /// Attempts of this life that ended so and were decided.
    fn count(&self, matches: fn(Cause) -> bool) -> u32 {
        let life = self.life();
        let decided = |pair: &&[Happened]| !matches!(pair[1], Happened::Acked);
        let ended = |pair: &[Happened]| matches!(&pair[0], Happened::Ended { cause } if matches(*cause));
        life.windows(2).filter(decided).filter(|pair| ended(pair)).count() as u32
    }

    fn is_waived(&self) -> bool {
        self.replays() > 0 || self.count(|cause| cause == Cause::MessageExpired) > 0
    }
}

/// Takes the same step in both; what the delivery answers must be what the log says.
fn step(delivery: &mut Delivery, log: &mut Log, now: u64, step: &Step) -> Result<(), TestCaseError> {
    let of = |off: i32| log.attempt().wrapping_add_signed(off);
    let replays = log.replays();
    match step {
        Step::Pass(_) => {}
        Step::Grant => {
            let may = log.due_at().is_some_and(|due_at| due_at <= now);
            prop_assert_eq!(delivery.grant(at(now), LEASE).is_ok(), may);
            if may {
                log.0.push(Happened::Granted { now, until: now + 100 });
            }
        }
        Step::Ack(off) => {
            let late = log.ran_out();
            let may = *off == 0 && (log.lease().is_some() || late && !log.is_over());
            let expected = if may { Ok(Acked { late }) } else { Err(Stale) };
            prop_assert_eq!(delivery.ack(replays, of(*off)), expected);
            if may {
                log.0.push(Happened::Acked);
            }
        }
        Step::Fail(off, cause) => {
            let cause = Cause::ALL[*cause];
            let may = *off == 0 && log.lease().is_some();
            let result = delivery.fail(replays, of(*off), Failure::of(cause), at(now));
            prop_assert_eq!(result.is_ok(), may);
            if may {
                log.0.push(Happened::Ended { cause });
            }
        }
        Step::Expire => {
            let may = log.due_at().is_some() && !log.is_waived();
            prop_assert_eq!(delivery.expire(at(now)).is_ok(), may);
            if may {
                log.0.push(Happened::Ended { cause: Cause::MessageExpired });
            }
        }
        Step::Extend(off, lease) => {
            let result =
                delivery.extend(replays, of(*off), at(now), Duration::from_millis(*lease), MAX_LEASE);
            let expected = match log.lease().filter(|(_, until)| *off == 0 && *until > now) {
                None => Err(ExtendError::Stale),
                Some((since, _)) if now + lease > since + 250 => {
                    Err(ExtendError::MaxLease { until: at(since + 250) })
                }
                Some(_) => Ok(at(now + lease)),
            };
            prop_assert_eq!(result, expected);
            if result.is_ok() {
                log.0.push(Happened::Extended { until: now + lease });
            }
        }
        Step::Decide(off, action) => {
            let action = actions()[*action].clone();
            let may = *off == 0 && log.is_asked();
            let retries = action.delay().is_some();
            let result = delivery.decided(replays, of(*off), decided(action), at(now));
            let expected = match (may, retries) {
                (false, _) => Err(Stale),
                (true, true) => Ok(Outcome::Waits { due_at: at(now + 50) }),
                (true, false) => Ok(Outcome::Ended),
            };
            prop_assert_eq!(result, expected);
            if may {
                log.0.push(if retries { Happened::Decided { due_at: now + 50 } } else { Happened::Died });
            }
        }
        Step::Replay => {
            if log.last() == Some(&Happened::Died) {
                *delivery = delivery.replayed(at(now));
                log.0.push(Happened::Replayed { due_at: now });
            }
        }
    }
    Ok(())
}

proptest! {
    /// On any walk the delivery answers and counts as a log of everything that happened says.
    #[test]
    fn a_delivery_agrees_with_the_log_of_its_life(steps in steps()) {
        let mut delivery = Delivery::new(at(0));
        let mut log = Log::default();
        let mut now = 0;
        for next in &steps {
            if let Step::Pass(millis) = next {
                now += millis;
            }
            if log.last() == Some(&Happened::Acked) {
                break;
            }
            // A dead letter is no longer a delivery; only a replay makes it one again.
            if log.is_over() && !matches!(next, Step::Replay) {
                continue;
            }
            step(&mut delivery, &mut log, now, next)?;
            prop_assert_eq!((delivery.replays, delivery.attempt), (log.replays(), log.attempt()));
            prop_assert_eq!(delivery.failures, log.count(Cause::is_failure));
            prop_assert_eq!(delivery.releases, log.count(|cause| cause == Cause::Released));
            prop_assert_eq!(delivery.expiry_waived, log.is_waived());
            if log.is_over() {
                continue;
            }
            prop_assert_eq!(delivery.lease_until(), log.lease().map(|(_, until)| at(until)));
            let due = match delivery.state {
                State::Waiting { due_at } => Some(due_at),
                _ => None,
            };
            prop_assert_eq!(due, log.due_at().map(at));
        }
    }
}
