//! Properties that any sound policy has, held against contexts no broker would make on a good day.
//!
//! Each function panics with the context that breaks the property.

use core::time::Duration;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::{ContextBuilder, End, Outcome, Outcomes, Simulation};
use crate::{Cause, Decision, MEMO_LIMIT, Policy, Random, Timestamp, duration};

/// How many contexts a property is held against.
pub const CONTEXTS: u64 = 2_000;

/// Parameter texts that `check` would refuse.
const BAD_PARAMS: [&str; 8] = [
    "",
    "null",
    "[]",
    "{",
    "{\"",
    "{\"delay\":-1,\"max_attempts\":\"x\"}",
    "{\"delay\":\"NaN\",\"classes\":[]}",
    "\u{0}\u{ffff}",
];

const CLASSES: [&str; 8] =
    ["", "timeout", "rate_limited", "validation", "http_410", "http_503", "\u{0}", "x\u{1f600}*"];

/// The hostile contexts: extreme counters, moments in any order, odd texts; the same ones each time.
pub fn contexts(params: &str) -> impl Iterator<Item = ContextBuilder> {
    (0..CONTEXTS).map(move |index| hostile(&mut Random::new(index), params))
}

fn pick<T: Copy>(random: &mut Random, choices: &[T]) -> T {
    choices[random.between(0, choices.len() as u64 - 1) as usize]
}

fn number(random: &mut Random) -> u64 {
    match random.between(0, 3) {
        0 => pick(random, &[0, 1, u64::MAX, i64::MAX as u64, 1 << 31, 1 << 53]),
        1 => random.between(0, 100),
        2 => random.between(0, 100_000_000),
        _ => random.bits(),
    }
}

fn hostile(random: &mut Random, params: &str) -> ContextBuilder {
    let small = |random: &mut Random| number(random).min(u64::from(u32::MAX)) as u32;
    let mut cx = ContextBuilder::new()
        .now(Timestamp::from_millis(number(random)))
        .cause(pick(random, &Cause::ALL))
        .class(pick(random, &CLASSES))
        .attempt(small(random))
        .failures(small(random))
        .releases(small(random))
        .replays(small(random))
        .seed(random.bits())
        .load(number(random), number(random))
        .backlog(number(random), number(random))
        .consecutive_failures(number(random))
        .params(params);
    if random.chance(0.5) {
        cx = cx.code(pick(random, &["", "200", "404", "410", "429", "503", "99999", "-1", "E_X"]));
    }
    if random.chance(0.5) {
        cx = cx.retry_after(Duration::from_millis(number(random)));
    }
    if random.chance(0.3) {
        cx = cx.memo(vec![random.bits() as u8; random.between(0, 256) as usize]);
    }
    for _ in 0..random.between(0, 16) {
        let delay = random.chance(0.8).then(|| Duration::from_millis(number(random)));
        cx = cx.past_cause(pick(random, &Cause::ALL), pick(random, &CLASSES), delay);
    }
    let (published_at, first, expires) = (number(random), number(random), number(random));
    let (leased, expiring) = (random.chance(0.8), random.chance(0.5));
    cx.with(|contract| {
        contract.message.published_at = published_at;
        contract.first_leased_at = leased.then_some(first);
        contract.message.expires_at = expiring.then_some(expires);
    })
}

/// The policy answers any context, with these parameters and with broken ones, without a panic, the
/// same way each time, and with no more memo than the broker keeps.
///
/// # Panics
///
/// If it does not.
pub fn never_panics(policy: &dyn Policy, params: &str) {
    for params in [params].iter().chain(&BAD_PARAMS) {
        for cx in contexts(params).map(ContextBuilder::build) {
            let ask = || catch_unwind(AssertUnwindSafe(|| policy.decide(&cx)));
            let Ok(decision) = ask() else {
                panic!("the policy panicked on {cx:#?}");
            };
            let memo = decision.kept_memo().unwrap_or_default();
            assert!(memo.len() <= MEMO_LIMIT, "a memo of {} bytes on {cx:#?}", memo.len());
            assert_eq!(ask().ok(), Some(decision), "two answers to {cx:#?}");
        }
    }
}

/// No retry waits longer than `longest`.
///
/// # Panics
///
/// If one does.
pub fn bounded(policy: &dyn Policy, params: &str, longest: Duration) {
    for cx in contexts(params).map(ContextBuilder::build) {
        let delay = policy.decide(&cx).delay().unwrap_or_default();
        let shown = duration::format(delay);
        assert!(delay <= longest, "a delay of {shown} on {cx:#?}");
    }
}

/// A delivery that fails for ever, in any one way, is given up within this many attempts.
///
/// # Panics
///
/// If it is not.
pub fn terminates(policy: &dyn Policy, params: &str, attempts: usize) {
    let nacks = CLASSES.map(Outcome::nacked);
    let causes = Cause::ALL.into_iter().filter(|cause| cause.is_failure()).map(Outcome::caused);
    for outcome in nacks.into_iter().chain(causes) {
        let outcomes = Outcomes::new().then(outcome.clone()).times(u32::MAX);
        let schedule = Simulation::of(policy).params(params).run(&outcomes);
        let given_up = !matches!(schedule.end(), End::Pending | End::AttemptLimit);
        let within = schedule.steps().len() <= attempts;
        assert!(given_up && within, "{outcome:?} takes {} attempts", schedule.steps().len());
    }
}

/// The defaults in the description are the ones that are used: giving them all changes no decision,
/// and `check` accepts them. A default of `null` stands for absence and is left out.
///
/// # Panics
///
/// If a decision differs.
pub fn defaults_hold(policy: &dyn Policy) {
    let description = policy.describe();
    let given: Vec<String> = description
        .params()
        .iter()
        .filter_map(|param| Some((param.name(), param.default_json()?)))
        .filter(|(_, default)| *default != "null")
        .map(|(name, default)| format!("\"{name}\":{default}"))
        .collect();
    let given = format!("{{{}}}", given.join(","));
    if let Err(error) = super::check(policy, &given) {
        panic!("check refuses the defaults {given}: {error}");
    }
    let ask = |cx: ContextBuilder| -> Decision { policy.decide(&cx.build()) };
    for (absent, explicit) in contexts("{}").zip(contexts(&given)) {
        let shown = explicit.clone().build();
        assert_eq!(ask(absent), ask(explicit), "with {given} on {shown:#?}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Context;
    use crate::duration::secs;

    struct By<F>(F);

    impl<F: Fn(&Context) -> Decision> Policy for By<F> {
        fn decide(&self, cx: &Context) -> Decision {
            self.0(cx)
        }
    }

    fn breaks(property: impl FnOnce()) -> bool {
        catch_unwind(AssertUnwindSafe(property)).is_err()
    }

    /// Each property passes a sound policy and catches one that breaks it.
    #[test]
    fn properties_catch_what_they_name() {
        let sound = By(|cx: &Context| match cx.failures() {
            0..5 => Decision::retry(secs(1)),
            _ => Decision::dead_letter("exhausted"),
        });
        never_panics(&sound, "{}");
        bounded(&sound, "{}", secs(1));
        terminates(&sound, "{}", 5);
        defaults_hold(&sound);

        let overflowing = By(|cx: &Context| match cx.failures().checked_add(1) {
            Some(_) => Decision::drop("fine"),
            None => panic!("overflow"),
        });
        assert!(breaks(|| never_panics(&overflowing, "{}")));
        let hoarding = By(|_: &Context| Decision::drop("x").memo(vec![0; 257]));
        assert!(breaks(|| never_panics(&hoarding, "{}")));
        assert!(breaks(|| bounded(&sound, "{}", Duration::ZERO)));
        assert!(breaks(|| terminates(&sound, "{}", 4)));
        let endless = By(|_: &Context| Decision::retry(secs(1)));
        assert!(breaks(|| terminates(&endless, "{}", 10_000)));
    }
}
