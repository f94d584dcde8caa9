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
use core::time::Duration;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::ContextBuilder;
use super::simulation::in_words;
use crate::{Action, Cause, Context, Decision, Policy, bindings, duration};

/// A case read from a file.
#[derive(Clone, Debug)]
pub struct Fixture {
    name: String,
    params: String,
    context: ContextBuilder,
    expect: Map<String, Value>,
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
        let case = Fields::of("case", &value, &["name", "params", "context", "expect"])?;
        let expect = case.object("expect")?;
        known_expectation(&expect)?;
        let params = case.get("params").map_or("{}".into(), Value::to_string);
        let context = match case.get("context") {
            Some(context) => read_context(context)?,
            None => ContextBuilder::new(),
        };
        Ok(Self {
            name: case.text("name")?.ok_or_else(|| case.missing("name"))?,
            context: context.params(params.clone()),
            params,
            expect,
        })
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

    /// Asks the policy and compares.
    ///
    /// # Errors
    ///
    /// [`FixtureError`] if the answer is not what the case expects.
    pub fn run(&self, policy: &dyn Policy) -> Result<(), FixtureError> {
        let wrong = |problem: String| Err(FixtureError::new(&self.name, problem));
        let expect = Fields { place: "expect".into(), map: &self.expect };
        let refused = expect.text("action")?.as_deref() == Some("refused");
        match (super::check(policy, &self.params), refused) {
            (Ok(()), true) => wrong("the parameters were not refused".into()),
            (Err(error), false) => wrong(format!("the parameters were refused: {error}")),
            (Err(error), true) => contains(&expect, "reason_contains", &error.to_string())
                .or_else(|error| wrong(error.to_string())),
            (Ok(()), false) => {
                let decision = policy.decide(&self.context());
                compare(&expect, &decision)
                    .or_else(|error| wrong(format!("{error}; decided: {}", in_words(&decision))))
            }
        }
    }
}

/// The fields that belong to an expectation's action.
fn known_expectation(expect: &Map<String, Value>) -> Result<(), FixtureError> {
    let known: &[&str] = match expect.get("action").and_then(Value::as_str) {
        Some("retry") => &["delay", "delay_min", "delay_max", "note_contains", "pause"],
        Some("dead_letter") => &["queue", "reason_contains", "labels", "note_contains", "pause"],
        Some("drop") => &["reason_contains", "note_contains", "pause"],
        Some("forward") => &["topic", "note_contains", "pause"],
        Some("refused") => &["reason_contains"],
        other => return Err(FixtureError::new("expect.action", format!("{other:?}"))),
    };
    let unknown = |key: &&String| *key != "action" && !known.contains(&key.as_str());
    match expect.keys().find(unknown) {
        Some(key) => Err(FixtureError::new("expect", format!("unknown field {key}"))),
        None => Ok(()),
    }
}

fn compare(expect: &Fields<'_>, decision: &Decision) -> Result<(), FixtureError> {
    let reason = decision.filed_reason().unwrap_or_default();
    let wrong = |what: String| Err(FixtureError::new("expected", what));
    match (expect.text("action")?.unwrap_or_default().as_str(), decision.action()) {
        ("retry", Action::Retry(delay)) => {
            let exact = expect.duration("delay")?;
            let low = expect.duration("delay_min")?.or(exact).unwrap_or(Duration::ZERO);
            let high = expect.duration("delay_max")?.or(exact).unwrap_or(Duration::MAX);
            if *delay < low || *delay > high {
                return wrong(format!("a delay of {low:?} to {high:?}"));
            }
        }
        ("dead_letter", Action::DeadLetter(letter)) => {
            if let Some(queue) = expect.get("queue")
                && queue.as_str() != letter.queue_name()
            {
                return wrong(format!("the queue {queue}"));
            }
            contains(expect, "reason_contains", reason)?;
            let labels = match expect.get("labels") {
                Some(_) => expect.object("labels")?,
                None => Map::new(),
            };
            for (name, value) in &labels {
                if !letter.labels().any(|(known, had)| known == name && value == had) {
                    return wrong(format!("the label {name}={value}"));
                }
            }
        }
        ("drop", Action::Drop) => contains(expect, "reason_contains", reason)?,
        ("forward", Action::Forward(topic)) => {
            if expect.text("topic")?.is_some_and(|wanted| wanted != *topic) {
                return wrong(format!("the topic {:?}", expect.get("topic")));
            }
        }
        (action, _) => return wrong(format!("the action {action}")),
    }
    contains(expect, "note_contains", &decision.shown_note().unwrap_or_default())?;
    let pause = decision.pause_asked().map(crate::Pause::duration);
    match expect.get("pause") {
        Some(Value::Null) if pause.is_some() => wrong("no pause".into()),
        Some(Value::Null) | None => Ok(()),
        Some(_) if pause == expect.duration("pause")? => Ok(()),
        Some(wanted) => wrong(format!("a pause of {wanted}, had {pause:?}")),
    }
}

fn contains(expect: &Fields<'_>, field: &str, text: &str) -> Result<(), FixtureError> {
    match expect.text(field)? {
        Some(part) if !text.contains(&part) => {
            Err(FixtureError::new(field, format!("{part:?} is not in {text:?}")))
        }
        _ => Ok(()),
    }
}

/// An object whose names are known, read with errors that say where.
struct Fields<'a> {
    place: String,
    map: &'a Map<String, Value>,
}

impl<'a> Fields<'a> {
    fn of(place: &str, value: &'a Value, known: &[&str]) -> Result<Self, FixtureError> {
        let Some(map) = value.as_object() else {
            return Err(FixtureError::new(place, "not an object"));
        };
        if let Some(key) = map.keys().find(|key| !known.contains(&key.as_str())) {
            return Err(FixtureError::new(place, format!("unknown field {key}")));
        }
        Ok(Self { place: place.into(), map })
    }

    fn get(&self, name: &str) -> Option<&'a Value> {
        self.map.get(name)
    }

    fn missing(&self, name: &str) -> FixtureError {
        FixtureError::new(&self.place, format!("{name} is missing"))
    }

    fn wrong(&self, name: &str, value: &Value) -> FixtureError {
        FixtureError::new(format!("{}.{name}", self.place), format!("cannot be {value}"))
    }

    /// A field that may be absent or null, through `read`.
    fn read<T>(
        &self,
        name: &str,
        read: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, FixtureError> {
        match self.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => read(value).map(Some).ok_or_else(|| self.wrong(name, value)),
        }
    }

    fn text(&self, name: &str) -> Result<Option<String>, FixtureError> {
        self.read(name, |value| value.as_str().map(str::to_owned))
    }

    fn whole(&self, name: &str) -> Result<Option<u64>, FixtureError> {
        self.read(name, Value::as_u64)
    }

    fn small(&self, name: &str) -> Result<Option<u32>, FixtureError> {
        self.read(name, |value| value.as_u64()?.try_into().ok())
    }

    fn object(&self, name: &str) -> Result<Map<String, Value>, FixtureError> {
        self.read(name, |value| value.as_object().cloned())?.ok_or_else(|| self.missing(name))
    }

    fn cause(&self) -> Result<Cause, FixtureError> {
        let cause = self.read("cause", |value| {
            Cause::ALL.into_iter().find(|cause| value.as_str() == Some(cause.name()))
        })?;
        Ok(cause.unwrap_or(Cause::Nacked))
    }

    fn millis(&self, name: &str) -> Result<Option<u64>, FixtureError> {
        Ok(self.duration(name)?.map(duration::whole_millis))
    }

    fn duration(&self, name: &str) -> Result<Option<Duration>, FixtureError> {
        self.read(name, |value| match value {
            Value::String(text) => duration::parse(text).ok(),
            Value::Number(number) => Duration::try_from_secs_f64(number.as_f64()?).ok(),
            _ => None,
        })
    }

    fn instant(&self, name: &str) -> Result<Option<u64>, FixtureError> {
        self.read(name, |value| match value {
            Value::String(text) => rfc3339_millis(text),
            _ => value.as_u64(),
        })
    }
}

fn read_context(value: &Value) -> Result<ContextBuilder, FixtureError> {
    let fields = Fields::of(
        "context",
        value,
        &[
            "subscription",
            "message",
            "failure",
            "attempt",
            "failures",
            "releases",
            "replays",
            "history",
            "first_leased_at",
            "now",
            "seed",
            "memo",
            "load",
        ],
    )?;
    let now = fields.instant("now")?.unwrap_or(super::NOW);
    let mut cx = ContextBuilder::new();
    if let Some(attempt) = fields.small("attempt")? {
        cx = cx.attempt(attempt);
    }
    if let Some(failures) = fields.small("failures")? {
        cx = cx.failures(failures);
    }
    if let Some(releases) = fields.small("releases")? {
        cx = cx.releases(releases);
    }
    let first_leased_at = match fields.get("first_leased_at") {
        Some(Value::Null) => None,
        _ => Some(fields.instant("first_leased_at")?.unwrap_or(now)),
    };
    let empty = Value::Object(Map::new());
    let part = |name| fields.get(name).unwrap_or(&empty);
    let subscription = fields.text("subscription")?;
    let replays = fields.small("replays")?.unwrap_or(0);
    let seed = fields.whole("seed")?.unwrap_or(super::SEED);
    let memo = fields.text("memo")?.unwrap_or_default();
    let failure = read_failure(part("failure"))?;
    let message = read_message(part("message"), now)?;
    let history = read_history(fields.get("history"), now)?;
    let load = read_load(part("load"))?;
    Ok(cx.with(|contract| {
        if let Some(subscription) = subscription {
            contract.subscription = subscription;
        }
        *contract = bindings::Context {
            message,
            failure,
            replays,
            history,
            first_leased_at,
            now,
            seed,
            memo: memo.into_bytes(),
            load,
            ..contract.clone()
        };
    }))
}

fn read_failure(value: &Value) -> Result<bindings::Failure, FixtureError> {
    let known = ["cause", "class", "code", "detail", "retry_after"];
    let fields = Fields::of("context.failure", value, &known)?;
    Ok(bindings::Failure {
        cause: fields.cause()?.into_contract(),
        class: fields.text("class")?.unwrap_or_default(),
        code: fields.text("code")?,
        detail: fields.text("detail")?,
        retry_after: fields.millis("retry_after")?,
    })
}

fn read_message(value: &Value, now: u64) -> Result<bindings::Message, FixtureError> {
    let fields = Fields::of(
        "context.message",
        value,
        &[
            "id",
            "topic",
            "key",
            "attributes",
            "content_type",
            "size",
            "published_at",
            "expires_at",
            "payload",
        ],
    )?;
    let attributes = match fields.get("attributes") {
        Some(_) => fields.object("attributes")?,
        None => Map::new(),
    };
    let mut entries = Vec::new();
    for (name, value) in &attributes {
        let value = value.as_str().ok_or_else(|| fields.wrong("attributes", value))?;
        entries.push(bindings::Entry { name: name.clone(), value: value.into() });
    }
    Ok(bindings::Message {
        id: fields.text("id")?.unwrap_or_else(|| "m-1".into()),
        topic: fields.text("topic")?.unwrap_or_else(|| "orders".into()),
        key: fields.text("key")?,
        attributes: entries,
        content_type: fields.text("content_type")?,
        size: fields.whole("size")?.unwrap_or(256),
        published_at: fields.instant("published_at")?.unwrap_or(now),
        expires_at: fields.instant("expires_at")?,
        payload: fields.text("payload")?.map(String::into_bytes),
    })
}

fn read_history(value: Option<&Value>, now: u64) -> Result<Vec<bindings::PastFailure>, FixtureError> {
    let items = match value {
        None => return Ok(Vec::new()),
        Some(Value::Array(items)) => items,
        Some(_) => return Err(FixtureError::new("context.history", "not a list")),
    };
    let known = ["attempt", "at", "cause", "class", "delay"];
    let mut history = Vec::new();
    for (place, item) in (1..).zip(items) {
        let fields = Fields::of("context.history", item, &known)?;
        history.push(bindings::PastFailure {
            attempt: fields.small("attempt")?.unwrap_or(place),
            at: fields.instant("at")?.unwrap_or(now),
            cause: fields.cause()?.into_contract(),
            class: fields.text("class")?.unwrap_or_default(),
            delay: fields.millis("delay")?,
        });
    }
    Ok(history)
}

fn read_load(value: &Value) -> Result<bindings::Load, FixtureError> {
    let known = ["acked", "failed", "dead_lettered", "backlog", "in_flight", "consecutive_failures"];
    let fields = Fields::of("context.load", value, &known)?;
    let counter = |name| Ok(fields.whole(name)?.unwrap_or(0));
    Ok(bindings::Load {
        acked: counter("acked")?,
        failed: counter("failed")?,
        dead_lettered: counter("dead_lettered")?,
        backlog: counter("backlog")?,
        in_flight: counter("in_flight")?,
        consecutive_failures: counter("consecutive_failures")?,
    })
}

/// `2026-01-01T00:00:00Z`, with up to three digits of a second, as milliseconds since 1970.
fn rfc3339_millis(text: &str) -> Option<u64> {
    let (date, time) = text.strip_suffix('Z')?.split_once('T')?;
    let part = |text: &str, digits: usize| -> Option<u64> {
        let plain = text.len() == digits && text.bytes().all(|byte| byte.is_ascii_digit());
        plain.then(|| text.parse().ok())?
    };
    let mut dates = date.split('-');
    let (year, month, day) = (dates.next()?, dates.next()?, dates.next()?);
    let (year, month, day) = (part(year, 4)?, part(month, 2)?, part(day, 2)?);
    let (time, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let mut times = time.split(':');
    let (hour, minute, second) = (times.next()?, times.next()?, times.next()?);
    let (hour, minute, second) = (part(hour, 2)?, part(minute, 2)?, part(second, 2)?);
    let fraction = part(&format!("{fraction:0<3}"), 3)?;
    let beyond = dates.next().is_some() || times.next().is_some();
    let real = (1..=12).contains(&month) && (1..=31).contains(&day);
    if beyond || !real || year < 1970 || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    // Days from civil (Howard Hinnant): years that begin in March put the leap day last.
    let shifted = if month > 2 { year } else { year - 1 };
    let in_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let days = shifted * 365 + shifted / 4 - shifted / 100 + shifted / 400 + in_year - 719_468;
    Some((((days * 24 + hour) * 60 + minute) * 60 + second) * 1_000 + fraction)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::duration::secs;
    use crate::{Pause, Timestamp, queue};

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
            r#"{"history":{}}"#,
            r#"{"load":{"acked":"1"}}"#,
        ] {
            let case = format!(r#"{{"name":"n","context":{context},"expect":{{"action":"retry"}}}}"#);
            assert!(Fixture::parse(&case).is_err(), "{context}");
        }
        assert!(Fixture::parse(r#"{"expect":{"action":"retry"}}"#).is_err());
        assert!(Fixture::parse(r#"{"name":"n"}"#).is_err());
    }

    /// Instants are read as the calendar has them.
    #[test]
    fn instants_follow_the_calendar() {
        assert_eq!(rfc3339_millis("1970-01-01T00:00:00Z"), Some(0));
        assert_eq!(rfc3339_millis("2000-02-29T12:00:00Z"), Some(951_825_600_000));
        assert_eq!(rfc3339_millis("2026-01-01T00:00:00Z"), Some(super::super::NOW));
    }
}
