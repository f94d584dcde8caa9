//! One case: parameters, context, expectation. The format is documented in the README of the policy SDK.

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use reprise_broker::domain::context::{Context, Load, PastFailure};
use reprise_broker::domain::failure::{Cause, Failure};
use reprise_broker::domain::id::{MessageId, TopicId};
use reprise_broker::domain::message::Message;
use reprise_broker::domain::name::Name;
use reprise_broker::domain::time::Timestamp;
use serde_json::{Map, Value, json};

/// A case read from a file.
pub(crate) struct Case {
    pub(crate) name: String,
    /// As JSON text.
    pub(crate) params: String,
    pub(crate) context: Context,
    pub(crate) expect: Map<String, Value>,
}

/// What is wrong with a file.
pub(crate) type Problem = String;

/// 2026-01-01T00:00:00Z.
const NOW: u64 = 1_767_225_600_000;

impl Case {
    pub(crate) fn parse(text: &str) -> Result<Self, Problem> {
        let value: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let case = Object::of(&value, &["name", "params", "context", "expect"])?;
        let expect = case.get("expect").and_then(Value::as_object).ok_or("expect is missing")?.clone();
        known_expectation(&expect)?;
        let params = case.get("params").map_or("{}".to_owned(), Value::to_string);
        let context = context(case.get("context").unwrap_or(&json!({})), &params)?;
        Ok(Self { name: case.text("name")?.ok_or("name is missing")?, params, context, expect })
    }

    /// Whether the parameters are to be refused, so that nothing is decided.
    pub(crate) fn expects_refusal(&self) -> bool {
        self.expect["action"] == "refused"
    }
}

/// The fields that belong to an expectation's action, and no others.
fn known_expectation(expect: &Map<String, Value>) -> Result<(), Problem> {
    let known: &[&str] = match expect.get("action").and_then(Value::as_str) {
        Some("retry") => &["delay", "delay_min", "delay_max", "note_contains", "pause"],
        Some("dead_letter") => &["queue", "reason_contains", "labels", "note_contains", "pause"],
        Some("drop") => &["reason_contains", "note_contains", "pause"],
        Some("forward") => &["topic", "note_contains", "pause"],
        Some("refused") => &["reason_contains"],
        other => return Err(format!("expect.action is {other:?}")),
    };
    match expect.keys().find(|key| *key != "action" && !known.contains(&key.as_str())) {
        Some(key) => Err(format!("expect has an unknown field {key}")),
        None => Ok(()),
    }
}

fn context(value: &Value, params: &str) -> Result<Context, Problem> {
    let fields = Object::of(
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
    let empty = json!({});
    let part = |name| fields.get(name).unwrap_or(&empty);
    let now = fields.instant("now")?.unwrap_or(NOW);
    let failure = failure(part("failure"))?;
    let failures = fields.small("failures")?.unwrap_or(u32::from(failure.cause.is_failure()));
    let releases = fields.small("releases")?.unwrap_or(u32::from(failure.cause == Cause::Released));
    let first_leased_at = match fields.get("first_leased_at") {
        Some(Value::Null) => None,
        _ => Some(fields.instant("first_leased_at")?.unwrap_or(now)),
    };
    let (topic, message, inspect_payload) = message(part("message"), now)?;
    Ok(Context {
        subscription: name(&fields.text("subscription")?.unwrap_or_else(|| "billing".to_owned()))?,
        topic,
        // The id of a message is the broker's to give: policies only ever show it.
        message_id: MessageId { topic: TopicId(1), sequence: 1 },
        message,
        inspect_payload,
        failure,
        attempt: fields.small("attempt")?.unwrap_or(failures.saturating_add(releases)),
        failures,
        releases,
        replays: fields.small("replays")?.unwrap_or(0),
        history: history(fields.get("history"), now)?,
        first_leased_at: first_leased_at.map(Timestamp::from_millis),
        now: Timestamp::from_millis(now),
        seed: fields.whole("seed")?.unwrap_or(42),
        params: Arc::from(params),
        memo: fields.text("memo")?.unwrap_or_default().into_bytes(),
        load: load(part("load"))?,
    })
}

fn failure(value: &Value) -> Result<Failure, Problem> {
    let fields = Object::of(value, &["cause", "class", "code", "detail", "retry_after"])?;
    Ok(Failure {
        cause: fields.cause()?,
        class: fields.text("class")?.unwrap_or_default(),
        code: fields.text("code")?,
        detail: fields.text("detail")?,
        retry_after: fields.duration("retry_after")?,
    })
}

/// The topic, the message, and whether its payload is shown.
fn message(value: &Value, now: u64) -> Result<(Name, Message, bool), Problem> {
    let fields = Object::of(
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
    fields.text("id")?;
    let mut attributes = Vec::new();
    for (name, value) in fields.get("attributes").and_then(Value::as_object).unwrap_or(&Map::new()) {
        let value = value.as_str().ok_or_else(|| format!("attribute {name} is not a text"))?;
        attributes.push((name.clone(), value.to_owned()));
    }
    let shown = fields.text("payload")?;
    let size = usize::try_from(fields.whole("size")?.unwrap_or(256)).map_err(|error| error.to_string())?;
    // The size is that of the payload: one that is not shown only has to be as long.
    let payload = shown.as_ref().map_or_else(|| vec![0; size], |text| text.clone().into_bytes());
    let published_at = Timestamp::from_millis(fields.instant("published_at")?.unwrap_or(now));
    let message = Message {
        published_at,
        available_at: published_at,
        expires_at: fields.instant("expires_at")?.map(Timestamp::from_millis),
        hops: 0,
        key: fields.text("key")?,
        attributes,
        content_type: fields.text("content_type")?,
        payload: payload.into(),
    };
    let topic = name(&fields.text("topic")?.unwrap_or_else(|| "orders".to_owned()))?;
    Ok((topic, message, shown.is_some()))
}

fn history(value: Option<&Value>, now: u64) -> Result<Vec<PastFailure>, Problem> {
    let items = match value {
        None => return Ok(Vec::new()),
        Some(value) => value.as_array().ok_or("history is not a list")?,
    };
    let read = |(place, item): (u32, &Value)| {
        let fields = Object::of(item, &["attempt", "at", "cause", "class", "delay"])?;
        Ok(PastFailure {
            attempt: fields.small("attempt")?.unwrap_or(place),
            at: Timestamp::from_millis(fields.instant("at")?.unwrap_or(now)),
            cause: fields.cause()?,
            class: fields.text("class")?.unwrap_or_default(),
            delay: fields.duration("delay")?,
        })
    };
    (1..).zip(items).map(read).collect()
}

fn load(value: &Value) -> Result<Load, Problem> {
    let names = ["acked", "failed", "dead_lettered", "backlog", "in_flight", "consecutive_failures"];
    let fields = Object::of(value, &names)?;
    let counter = |name| fields.whole(name).map(Option::unwrap_or_default);
    Ok(Load {
        acked: counter("acked")?,
        failed: counter("failed")?,
        dead_lettered: counter("dead_lettered")?,
        backlog: counter("backlog")?,
        in_flight: counter("in_flight")?,
        consecutive_failures: counter("consecutive_failures")?,
    })
}

fn name(text: &str) -> Result<Name, Problem> {
    Name::new(text).map_err(|error| format!("{text:?}: {error}"))
}

/// An object whose fields are known.
pub(crate) struct Object<'a>(&'a Map<String, Value>);

impl<'a> Object<'a> {
    fn of(value: &'a Value, known: &[&str]) -> Result<Self, Problem> {
        let map = value.as_object().ok_or_else(|| format!("not an object: {value}"))?;
        match map.keys().find(|key| !known.contains(&key.as_str())) {
            Some(key) => Err(format!("unknown field {key}")),
            None => Ok(Self(map)),
        }
    }

    /// An expectation, whose fields were checked when it was read.
    pub(crate) const fn expectation(map: &'a Map<String, Value>) -> Self {
        Self(map)
    }

    pub(crate) fn get(&self, name: &str) -> Option<&'a Value> {
        self.0.get(name)
    }

    /// A field that may be absent or null, through `read`.
    fn read<T>(&self, name: &str, read: impl FnOnce(&'a Value) -> Option<T>) -> Result<Option<T>, Problem> {
        match self.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => read(value).map(Some).ok_or_else(|| format!("{name} cannot be {value}")),
        }
    }

    pub(crate) fn text(&self, name: &str) -> Result<Option<String>, Problem> {
        self.read(name, |value| value.as_str().map(str::to_owned))
    }

    fn whole(&self, name: &str) -> Result<Option<u64>, Problem> {
        self.read(name, Value::as_u64)
    }

    fn small(&self, name: &str) -> Result<Option<u32>, Problem> {
        self.read(name, |value| value.as_u64()?.try_into().ok())
    }

    /// A humantime text or a number of seconds.
    pub(crate) fn duration(&self, name: &str) -> Result<Option<Duration>, Problem> {
        self.read(name, |value| match value {
            Value::String(text) => humantime::parse_duration(text).ok(),
            Value::Number(number) => Duration::try_from_secs_f64(number.as_f64()?).ok(),
            _ => None,
        })
    }

    /// RFC 3339 in UTC or milliseconds since 1970.
    fn instant(&self, name: &str) -> Result<Option<u64>, Problem> {
        self.read(name, |value| match value {
            Value::String(text) => {
                let since = humantime::parse_rfc3339(text).ok()?.duration_since(UNIX_EPOCH).ok()?;
                u64::try_from(since.as_millis()).ok()
            }
            _ => value.as_u64(),
        })
    }

    fn cause(&self) -> Result<Cause, Problem> {
        let named =
            |value: &Value| Cause::ALL.into_iter().find(|cause| value.as_str() == Some(cause.as_str()));
        Ok(self.read("cause", named)?.unwrap_or(Cause::Nacked))
    }
}
