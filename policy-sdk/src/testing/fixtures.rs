//! Cases in files, so that the same ones run natively here and through the real wasm in the broker.
//!
//! One file, one case, one JSON object:
//!
//! ```json
//! {
//!   "name": "a timeout waits for the first delay",
//!   "params": {"delay": "5s", "jitter": "none"},
//!   "context": {"failure": {"class": "timeout"}, "failures": 1},
//!   "expect": {"action": "retry", "delay": "5s"}
//! }
//! ```
//!
//! `params` (default `{}`) must pass `check`, unless the case expects `refused`.
//!
//! `context` has the names of the contract in snake_case, each optional, an unknown one an error:
//!
//! - `subscription` ("billing"), `attempt` (failures + releases), `failures` (1 if the cause is a
//!   failure, else 0), `releases` (1 if the cause is `released`, else 0), `replays` (0), `seed` (42),
//!   `memo` (text, ""), `now` (2026-01-01T00:00:00Z), `first_leased_at` (`now`; `null` for never).
//! - `failure`: `cause` ("nacked"), `class` (""), `code`, `detail`, `retry_after`.
//! - `message`: `id` ("m-1"), `topic` ("orders"), `key`, `attributes` (an object of texts),
//!   `content_type`, `size` (256), `published_at` (`now`), `expires_at`, `payload` (text).
//! - `history`: a list of `attempt` (its place in the list, from 1), `at` (`now`), `cause`
//!   ("nacked"), `class` (""), `delay`; oldest first.
//! - `load`: `acked`, `failed`, `dead_lettered`, `backlog`, `in_flight`, `consecutive_failures` (0).
//!
//! A duration is text such as "1h30m" or a number of seconds; an instant is RFC 3339 text in UTC
//! (ending in `Z`) or a number of milliseconds since 1970.
//!
//! `expect` has an `action` and what is to be true of it; what is absent is not looked at:
//!
//! | action | fields |
//! |---|---|
//! | `retry` | `delay` exactly, or `delay_min` and `delay_max`, both included |
//! | `dead_letter` | `queue` (`null` for the default queue), `reason_contains`, `labels` (all of these, perhaps more) |
//! | `drop` | `reason_contains` |
//! | `forward` | `topic` |
//! | `refused` | `reason_contains`: `check` refuses the parameters with such a message; `decide` is not asked |
//!
//! With any but `refused`: `note_contains`, and `pause` (its duration, or `null` for none).

use core::fmt;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::ContextBuilder;
use super::simulation::in_words;
use crate::{Context, Decision, Policy};
use expectation::Expectation;
use fields::Fields;

mod context;
mod expectation;
mod fields;

/// A case read from a file.
#[derive(Clone, Debug)]
pub struct Fixture {
    name: String,
    params: String,
    context: ContextBuilder,
    expect: Expectation,
    max_fuel: Option<u64>,
}

/// Why a file is not a case, or a policy does not meet one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FixtureError {
    place: String,
    problem: String,
}

impl FixtureError {
    fn new(place: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { place: place.into(), problem: problem.into() }
    }
}

impl fmt::Display for FixtureError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.problem)
    }
}

impl core::error::Error for FixtureError {}

/// Runs every case of the folder `fixtures` in the folder `krate`:
/// `fixtures::assert(&Payments, env!("CARGO_MANIFEST_DIR"))`.
///
/// # Panics
///
/// If there is none, or with all that fail.
pub fn assert(policy: &dyn Policy, krate: &str) {
    let run = |path: &PathBuf| Fixture::load(path)?.run(policy);
    let paths = match paths(&Path::new(krate).join("fixtures")) {
        Ok(paths) => paths,
        Err(error) => panic!("{error}"),
    };
    assert!(!paths.is_empty(), "no fixtures in {krate}");
    let failed: Vec<String> = paths
        .iter()
        .filter_map(|path| run(path).err().map(|error| format!("{}: {error}", path.display())))
        .collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// The files of a folder of cases, in order of their names.
///
/// # Errors
///
/// [`FixtureError`] if the folder cannot be read.
pub fn paths(folder: &Path) -> Result<Vec<PathBuf>, FixtureError> {
    let broken = |error: std::io::Error| FixtureError::new(folder.display().to_string(), error.to_string());
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(broken)? {
        let path = entry.map_err(broken)?.path();
        if path.extension().is_some_and(|extension| extension == "json") {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

impl Fixture {
    /// Reads a file.
    ///
    /// # Errors
    ///
    /// [`FixtureError`] if it cannot be read, or as [`parse`](Self::parse).
    pub fn load(path: &Path) -> Result<Self, FixtureError> {
        let text =
            std::fs::read_to_string(path).map_err(|error| FixtureError::new("file", error.to_string()))?;
        Self::parse(&text)
    }

    /// Reads the text of a case.
    ///
    /// # Errors
    ///
    /// [`FixtureError`] if it is not JSON, or says something this format does not know.
    pub fn parse(text: &str) -> Result<Self, FixtureError> {
        let value: Value =
            serde_json::from_str(text).map_err(|error| FixtureError::new("file", error.to_string()))?;
        let case = Fields::of("case", &value, &["name", "params", "context", "expect", "max_fuel"])?;
        let expect = Expectation::read(case.object("expect")?)?;
        let params = case.get("params").map_or("{}".into(), Value::to_string);
        let context = match case.get("context") {
            Some(context) => context::read(context)?,
            None => ContextBuilder::new(),
        };
        Ok(Self {
            name: case.text("name")?.ok_or_else(|| case.missing("name"))?,
            context: context.params(params.clone()),
            params,
            expect,
            max_fuel: case.whole("max_fuel")?,
        })
    }

    /// The most fuel that the decision may burn in the sandbox; natively there is none to burn.
    #[must_use]
    pub fn max_fuel(&self) -> Option<u64> {
        self.max_fuel
    }

    /// What the case is about.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its parameters, as JSON text.
    #[must_use]
    pub fn params(&self) -> &str {
        &self.params
    }

    /// Its context.
    #[must_use]
    pub fn context(&self) -> Context {
        self.context.clone().build()
    }

    /// Whether the parameters are to be refused, so that nothing is decided.
    #[must_use]
    pub fn expects_refusal(&self) -> bool {
        self.expect.is_refusal()
    }

    /// Asks the policy and compares.
    ///
    /// # Errors
    ///
    /// [`FixtureError`] if the answer is not what the case expects.
    pub fn run(&self, policy: &dyn Policy) -> Result<(), FixtureError> {
        let refusal = super::check(policy, &self.params).err().map(|error| error.to_string());
        self.compare_check(refusal.as_deref())?;
        if self.expects_refusal() {
            return Ok(());
        }
        self.compare_decision(&policy.decide(&self.context()))
    }

    /// Compares what `check` said of the parameters, wherever it ran: the message it refused them
    /// with, or none.
    ///
    /// # Errors
    ///
    /// [`FixtureError`] if that is not what the case expects.
    pub fn compare_check(&self, refusal: Option<&str>) -> Result<(), FixtureError> {
        self.expect.of_check(refusal).map_err(|error| FixtureError::new(&self.name, error.to_string()))
    }

    /// Compares what was decided, wherever it was. A case that [expects a
    /// refusal](Self::expects_refusal) is met by no decision.
    ///
    /// # Errors
    ///
    /// [`FixtureError`] if that is not what the case expects.
    pub fn compare_decision(&self, decision: &Decision) -> Result<(), FixtureError> {
        self.expect.of_decision(decision).map_err(|error| {
            FixtureError::new(&self.name, format!("{error}; decided: {}", in_words(decision)))
        })
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;
    use crate::duration::secs;
    use crate::{Cause, Pause, Timestamp, queue};

    struct Sample;

    impl Policy for Sample {
        fn decide(&self, cx: &Context) -> Decision {
            match cx.failure().class() {
                "gone" => Decision::dead_letter(queue("gone").label("code", "410")).reason("left"),
                "stale" => Decision::drop("too old"),
                "large" => Decision::forward("slow"),
                _ => Decision::retry(secs(5)).note("again").pause(Pause::of(secs(30))),
            }
        }
    }

    fn run(class: &str, expect: &str) -> Result<(), FixtureError> {
        let case =
            format!(r#"{{"name":"n","context":{{"failure":{{"class":"{class}"}}}},"expect":{expect}}}"#);
        Fixture::parse(&case)?.run(&Sample)
    }

    /// Each expectation is met by what it describes, and not by anything else.
    #[test]
    fn expectations_tell_answers_apart() {
        for (class, expect) in [
            ("", r#"{"action":"retry","delay":"5s","note_contains":"ag","pause":"30s"}"#),
            ("", r#"{"action":"retry","delay_min":5,"delay_max":5.0}"#),
            ("", r#"{"action":"retry"}"#),
            ("gone", r#"{"action":"dead_letter","queue":"gone","reason_contains":"left"}"#),
            ("gone", r#"{"action":"dead_letter","labels":{"code":"410"},"pause":null}"#),
            ("stale", r#"{"action":"drop","reason_contains":"old"}"#),
            ("large", r#"{"action":"forward","topic":"slow"}"#),
        ] {
            assert_eq!(run(class, expect), Ok(()), "{expect}");
        }
        for (class, expect) in [
            ("", r#"{"action":"retry","delay":"6s"}"#),
            ("", r#"{"action":"retry","delay_min":"6s"}"#),
            ("", r#"{"action":"retry","delay_max":"4s"}"#),
            ("", r#"{"action":"retry","note_contains":"never"}"#),
            ("", r#"{"action":"retry","pause":null}"#),
            ("", r#"{"action":"retry","pause":"31s"}"#),
            ("", r#"{"action":"drop"}"#),
            ("", r#"{"action":"refused"}"#),
            ("", r#"{"action":"retry","dely":"5s"}"#),
            ("", r#"{"action":"retry","queue":null}"#),
            ("", r#"{"action":"wait"}"#),
            ("gone", r#"{"action":"dead_letter","queue":null}"#),
            ("gone", r#"{"action":"dead_letter","labels":{"code":"404"}}"#),
            ("gone", r#"{"action":"dead_letter","reason_contains":"right"}"#),
            ("gone", r#"{"action":"dead_letter","pause":"1s"}"#),
            ("large", r#"{"action":"forward","topic":"fast"}"#),
        ] {
            assert!(run(class, expect).is_err(), "{expect}");
        }
    }

    /// Every field of the context arrives.
    #[test]
    fn every_field_of_the_context_arrives() {
        let case = r#"{"name":"n","params":{"a":1},"expect":{"action":"retry"},"context":{
            "subscription":"s","attempt":9,"failures":7,"releases":2,"replays":1,"seed":18446744073709551615,
            "memo":"m","now":"2026-03-01T00:00:00.5Z","first_leased_at":"2026-02-28T23:59:00Z",
            "failure":{"cause":"lease_expired","class":"c","code":"504","detail":"d","retry_after":1.5},
            "message":{"id":"i","topic":"t","key":"k","attributes":{"tenant":"acme"},"content_type":"x/y",
                "size":9,"published_at":1,"expires_at":"2026-03-01T00:01:00Z","payload":"{}"},
            "history":[{"class":"h","delay":"2s"},{"attempt":5,"cause":"released","at":7}],
            "load":{"acked":1,"failed":3,"dead_lettered":4,"backlog":5,"in_flight":6,"consecutive_failures":7}}}"#;
        let fixture = Fixture::parse(case).expect("a case");
        let cx = fixture.context();
        assert_eq!((cx.subscription(), cx.params().as_json()), ("s", "{\"a\":1}"));
        assert_eq!((cx.attempt(), cx.failures(), cx.releases(), cx.replays()), (9, 7, 2, 1));
        assert_eq!((cx.seed(), cx.memo()), (u64::MAX, &b"m"[..]));
        assert_eq!(cx.now(), Timestamp::from_millis(1_772_323_200_500));
        assert_eq!(cx.elapsed(), Duration::from_millis(60_500));
        assert_eq!(cx.time_left(), Some(Duration::from_millis(59_500)));
        let failure = cx.failure();
        assert_eq!((failure.cause(), failure.class()), (Cause::LeaseExpired, "c"));
        assert_eq!((failure.code(), failure.detail()), (Some("504"), Some("d")));
        assert_eq!(failure.retry_after(), Some(Duration::from_millis(1_500)));
        let message = cx.message();
        assert_eq!((message.id(), message.topic(), message.key()), ("i", "t", Some("k")));
        assert_eq!((message.attribute("tenant"), message.attribute("x")), (Some("acme"), None));
        assert_eq!((message.content_type(), message.size()), (Some("x/y"), 9));
        assert_eq!((message.published_at().as_millis(), message.payload()), (1, Some(&b"{}"[..])));
        let history: Vec<_> = cx.history().map(|past| (past.attempt(), past.cause(), past.delay())).collect();
        assert_eq!(history, [(1, Cause::Nacked, Some(secs(2))), (5, Cause::Released, None)]);
        let load = cx.load();
        assert_eq!((load.acked(), load.failed(), load.dead_lettered()), (1, 3, 4));
        assert_eq!((load.backlog(), load.in_flight(), load.consecutive_failures()), (5, 6, 7));
    }

    /// A slip in a file is an error, not a case that tests nothing.
    #[test]
    fn slips_are_errors() {
        for context in [
            r#"{"failurs":1}"#,
            r#"{"failures":-1}"#,
            r#"{"failure":{"cause":"nack"}}"#,
            r#"{"failure":{"retry_after":"soon"}}"#,
            r#"{"now":"2026-13-01T00:00:00Z"}"#,
            r#"{"now":"2026-01-01T00:00:00+02:00"}"#,
            r#"{"message":{"attributes":{"a":1}}}"#,
            r#"{"history":{}}"#,
            r#"{"load":{"acked":"1"}}"#,
        ] {
            let case = format!(r#"{{"name":"n","context":{context},"expect":{{"action":"retry"}}}}"#);
            assert!(Fixture::parse(&case).is_err(), "{context}");
        }
        assert!(Fixture::parse(r#"{"expect":{"action":"retry"}}"#).is_err());
        assert!(Fixture::parse(r#"{"nam":"n","expect":{"action":"retry"}}"#).is_err());
        assert!(Fixture::parse(r#"{"name":"n"}"#).is_err());
    }
}
