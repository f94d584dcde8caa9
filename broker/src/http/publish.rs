//! `POST /v1/topics/{t}/messages`: one raw body, or a batch.

use axum::body::Bytes;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::Response;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use super::auth::{May, need};
use super::body::{Format, parse, read};
use super::cloudevents::{self, Event};
use super::error::{ItemError, RETRY_AFTER};
use super::query::Asked;
use super::wire::{BinaryPayload, GivenDuration, JsonPayload, Pairs, moment, some};
use super::{App, ErrorCode, Problem, trace};
use crate::dispatch::Awaited;
use crate::domain::dedup::{DedupKey, Fingerprint};
use crate::domain::id::RealmId;
use crate::domain::limits as limit;
use crate::domain::name::Name;
use crate::engine::{Accepted, Command, Durability, NewMessage, Publish, Published, Refusal, Unchecked};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Batch {
    pub(super) messages: Vec<Item>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Item {
    #[serde(default, deserialize_with = "some")]
    payload: Option<JsonPayload>,
    payload_base64: Option<BinaryPayload>,
    content_type: Option<String>,
    key: Option<String>,
    #[serde(default)]
    attributes: Pairs,
    delay: Option<GivenDuration>,
    ttl: Option<GivenDuration>,
    dedup_id: Option<String>,
    deliver_at: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PublishQuery {
    /// The body is one payload, even if it looks like a batch.
    #[serde(default)]
    raw: bool,
}

#[derive(Serialize)]
pub(super) struct PublishAnswer {
    items: Vec<ItemAnswer>,
    durability: &'static str,
}

#[derive(Serialize)]
#[serde(untagged)]
enum ItemAnswer {
    Accepted {
        id: String,
        sequence: u64,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        duplicate: bool,
    },
    Refused {
        error: ItemError,
    },
}

/// A body that is no batch is a payload, whatever it holds.
pub(super) async fn publish(
    State(app): State<App>,
    caller: May<need::Publish>,
    Path(topic): Path<String>,
    Asked(PublishQuery { raw: is_raw }): Asked<PublishQuery>,
    format: Format,
    request: Request,
) -> Result<Response, Problem> {
    let topic = caller.topic(&topic)?;
    let (parts, body) = request.into_parts();
    let bytes = read(&parts.headers, body, limit::MAX_BODY_BYTES, ErrorCode::BodyTooLarge).await?;
    let headers = &parts.headers;
    let items = match kind(headers, &bytes, is_raw)? {
        Kind::Batch(spoken) => {
            no_message_headers(headers)?;
            batch(parse::<Batch>(spoken, &bytes)?.messages, item)?
        }
        Kind::Events => {
            no_message_headers(headers)?;
            batch(cloudevents::events(&bytes)?, |event| {
                Event::read(event.get().as_bytes())?.into_message().and_then(check)
            })?
        }
        Kind::One(described) => {
            let message = one(headers, bytes, described).and_then(check)?;
            let sent = send(&app, caller.realm, topic, vec![Ok(message)]).await?.sent().await?;
            // It is the whole of the request: what is wrong with it is the answer.
            return match sent.results.iter().find_map(|result| result.as_ref().err()) {
                Some(problem) => Err(problem.clone()),
                None => Ok(answer(format, sent)),
            };
        }
    };
    Ok(answer(format, send(&app, caller.realm, topic, items).await?.sent().await?))
}

/// 201 if something was stored, 200 if it all was already. Where nothing is, a client that looks at no more than the
/// status has to see whether to try again.
fn answer(format: Format, sent: Sent) -> Response {
    let accepted = || sent.results.iter().flatten();
    let codes = || sent.results.iter().filter_map(|result| result.as_ref().err()).map(|problem| problem.code);
    let full = codes().next().filter(|_| accepted().next().is_none() && codes().all(ErrorCode::is_for_now));
    let status = if let Some(code) = full {
        code.status()
    } else if accepted().any(|accepted| !accepted.duplicate) {
        StatusCode::CREATED
    } else if accepted().next().is_some() {
        StatusCode::OK
    } else {
        StatusCode::UNPROCESSABLE_ENTITY
    };
    let mut response = format.answer(status, &PublishAnswer::from(sent));
    if full.is_some() {
        response.headers_mut().insert(header::RETRY_AFTER, RETRY_AFTER);
    }
    response
}

/// What a body is.
enum Kind {
    /// One message.
    One(Described),
    /// A batch in a format of ours.
    Batch(Format),
    /// A batch of CloudEvents.
    Events,
}

/// Where it stands what the message is.
enum Described {
    /// In our headers.
    Plain,
    /// In those of CloudEvents.
    Binary,
    /// In the body, as a CloudEvent.
    Structured,
}

/// A batch is MessagePack, a JSON object with a field `messages`, or what says that it is one of CloudEvents. What tools
/// send that were not told what it is may be meant as any of them.
fn kind(headers: &HeaderMap, bytes: &[u8], is_raw: bool) -> Result<Kind, Problem> {
    let media_type =
        headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let media_type = media_type.split(';').next().unwrap_or_default().trim();
    match media_type {
        _ if is_raw => {}
        "application/cloudevents+json" => return Ok(Kind::One(Described::Structured)),
        "application/cloudevents-batch+json" => return Ok(Kind::Events),
        _ if cloudevents::is_binary(headers) => {}
        "application/msgpack" | "application/x-msgpack" => return Ok(Kind::Batch(Format::MessagePack)),
        "application/json" | "" if is_batch(bytes) => return Ok(Kind::Batch(Format::Json)),
        "application/x-www-form-urlencoded" => {
            let detail =
                "say what it is: application/json for a batch, another type or ?raw=true for a raw body";
            return Err(Problem::new(ErrorCode::UnsupportedMediaType, detail));
        }
        _ => {}
    }
    Ok(Kind::One(if cloudevents::is_binary(headers) { Described::Binary } else { Described::Plain }))
}

fn is_batch(bytes: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Probe {
        messages: Option<IgnoredAny>,
    }
    let first = bytes.trim_ascii_start().strip_prefix(b"{").map(<[u8]>::trim_ascii_start);
    let Some(first) = first else { return false };
    // Nearly always it is the first field, which is seen without reading on.
    first.starts_with(b"\"messages\"")
        || serde_json::from_slice::<Probe>(bytes).is_ok_and(|probe| probe.messages.is_some())
}

/// What became of the items of a request, in its order.
struct Sent {
    results: Vec<Result<Accepted, Problem>>,
    durability: Durability,
}

/// What became of an item before the good ones were sent.
enum Slot {
    Sent,
    Refused(Problem),
    /// Kept, as the schema that it violates may turn out to be an old one.
    Violates(Box<(NewMessage, Problem)>),
}

/// How often the schema of a topic may change under one publish.
const SCHEMA_CHANGES: usize = 3;

/// A batch that the broker works on.
pub(super) struct Publishing {
    app: App,
    realm: RealmId,
    topic: Name,
    slots: Vec<Slot>,
    published: Awaited<Published>,
}

/// Sends the good items. The topic says what they have to be checked against: where nothing is known of a schema they are
/// sent as they are, and come back if there is one.
pub(super) async fn send(
    app: &App,
    realm: RealmId,
    topic: Name,
    items: Vec<Result<NewMessage, Problem>>,
) -> Result<Publishing, Problem> {
    let checker = app.schemas.of(realm, &topic);
    let violations = match &checker {
        Some(checker) => app.schemas.violations(checker, items.iter().map(|item| item.as_ref().ok())).await?,
        None => Vec::new(),
    };
    let (slots, messages) = sort(items, violations);
    let checked = checker.map(|checker| checker.digest);
    let publish = Publish { topic: topic.clone(), messages, checked };
    let published = app.broker.send(|reply| Command::Publish(realm, publish, reply)).await?;
    Ok(Publishing { app: app.clone(), realm, topic, slots, published })
}

impl Publishing {
    /// Puts the results where their items were; what came back is checked against the schema that came with it, and sent
    /// again.
    async fn sent(self) -> Result<Sent, Problem> {
        let mut publishing = self;
        for _ in 0..=SCHEMA_CHANGES {
            let Self { app, realm, topic, slots, published } = publishing;
            match published.await {
                Ok(published) => return Ok(merge(slots, published)),
                Err(Refusal::SchemaDiffers(unchecked)) => {
                    let Unchecked { schema, messages } = *unchecked;
                    app.schemas.learn(realm, topic.clone(), schema).await?;
                    publishing = send(&app, realm, topic, unsort(slots, messages)).await?;
                }
                Err(refusal) => return Err(refusal.into()),
            }
        }
        Err(Problem::new(ErrorCode::SchemaChanged, "the schema of the topic changed again and again"))
    }

    /// The same as it is shown.
    pub(super) async fn answer(self) -> Result<PublishAnswer, Problem> {
        self.sent().await.map(PublishAnswer::from)
    }
}

/// The messages to be sent, and where each item is meanwhile.
fn sort(
    items: Vec<Result<NewMessage, Problem>>,
    violations: Vec<Option<Problem>>,
) -> (Vec<Slot>, Vec<NewMessage>) {
    let mut messages = Vec::with_capacity(items.len());
    let violations = violations.into_iter().chain(std::iter::repeat(None));
    let slots = items.into_iter().zip(violations).map(|(item, violation)| match (item, violation) {
        (Err(problem), _) => Slot::Refused(problem),
        (Ok(message), Some(problem)) => Slot::Violates(Box::new((message, problem))),
        (Ok(message), None) => {
            messages.push(message);
            Slot::Sent
        }
    });
    (slots.collect(), messages)
}

/// The items as they were before they were sorted.
fn unsort(slots: Vec<Slot>, messages: Vec<NewMessage>) -> Vec<Result<NewMessage, Problem>> {
    let mut messages = messages.into_iter();
    let items = slots.into_iter().filter_map(|slot| match slot {
        Slot::Sent => messages.next().map(Ok),
        Slot::Refused(problem) => Some(Err(problem)),
        Slot::Violates(kept) => Some(Ok(kept.0)),
    });
    items.collect()
}

fn merge(slots: Vec<Slot>, published: Published) -> Sent {
    let mut results = published.results.into_iter();
    let results = slots.into_iter().filter_map(|slot| match slot {
        Slot::Sent => results.next().map(|result| result.map_err(Problem::from)),
        Slot::Refused(problem) => Some(Err(problem)),
        Slot::Violates(kept) => Some(Err(kept.1)),
    });
    Sent { results: results.collect(), durability: published.durability }
}

impl From<Sent> for PublishAnswer {
    fn from(sent: Sent) -> Self {
        let items = sent.results.into_iter().map(ItemAnswer::from).collect();
        Self { items, durability: durability(sent.durability) }
    }
}

pub(super) fn batch<T>(
    items: Vec<T>,
    message: impl Fn(T) -> Result<NewMessage, Problem>,
) -> Result<Vec<Result<NewMessage, Problem>>, Problem> {
    let refuse = |detail: String| Err(Problem::new(ErrorCode::BatchSize, detail));
    if items.is_empty() || items.len() > limit::MAX_BATCH_ITEMS {
        return refuse(format!("a batch has 1 to {} messages", limit::MAX_BATCH_ITEMS));
    }
    let messages: Vec<_> = items.into_iter().map(message).collect();
    let bytes: usize = messages.iter().flatten().map(NewMessage::bytes).sum();
    if bytes > limit::MAX_BATCH_BYTES {
        let most = limit::MAX_BATCH_BYTES;
        return refuse(format!("the messages have {bytes} bytes together, a batch takes {most}"));
    }
    Ok(messages)
}

pub(super) fn item(item: Item) -> Result<NewMessage, Problem> {
    let (payload, content_type) = content(item.payload, item.payload_base64, item.content_type)?;
    let payload = payload.ok_or_else(one_payload)?;
    let dedup = item.dedup_id.map(|id| dedup_key("dedup_id", &id, &payload)).transpose()?;
    check(NewMessage {
        key: item.key,
        attributes: item.attributes.0,
        content_type,
        payload,
        delay: item.delay.map(|delay| delay.check("delay")).transpose()?.unwrap_or_default(),
        ttl: item.ttl.map(|ttl| ttl.check("ttl")).transpose()?,
        dedup,
        deliver_at: item.deliver_at.map(|text| moment("deliver_at", &text)).transpose()?,
    })
}

/// What a message holds, if that is given, and what it is: JSON unless something else is said.
pub(super) fn content(
    json: Option<JsonPayload>,
    binary: Option<BinaryPayload>,
    content_type: Option<String>,
) -> Result<(Option<Bytes>, Option<String>), Problem> {
    match (json, binary) {
        (Some(JsonPayload(bytes)), None) => {
            Ok((Some(bytes), Some(content_type.unwrap_or_else(|| "application/json".to_owned()))))
        }
        (None, binary) => Ok((binary.map(|BinaryPayload(bytes)| bytes), content_type)),
        (Some(_), Some(_)) => Err(one_payload()),
    }
}

fn one_payload() -> Problem {
    Problem::new(ErrorCode::InvalidMessage, "give either payload or payload_base64")
}

/// The only message of a request.
fn one(headers: &HeaderMap, body: Bytes, described: Described) -> Result<NewMessage, Problem> {
    match described {
        Described::Plain => raw(headers, body),
        Described::Binary => {
            let mut message = raw(headers, body)?;
            cloudevents::describe_by_headers(headers, &mut message)?;
            Ok(message)
        }
        Described::Structured => {
            let event = Event::read(&body)?;
            let mut message = raw(headers, event.payload.clone())?;
            event.describe(&mut message)?;
            Ok(message)
        }
    }
}

const ATTRIBUTE: &str = "broker-attribute-";

fn raw(headers: &HeaderMap, payload: Bytes) -> Result<NewMessage, Problem> {
    let mut message = NewMessage { payload, ..NewMessage::default() };
    for (header, value) in headers {
        let twice = headers.get_all(header).iter().nth(1).is_some();
        let header = header.as_str();
        let attribute = header.starts_with(ATTRIBUTE);
        if twice && !attribute && is_single(header) {
            return Err(Problem::new(ErrorCode::InvalidHeader, format!("{header}: given twice")));
        }
        let text = || {
            let text = std::str::from_utf8(value.as_bytes());
            text.map_err(|_| Problem::new(ErrorCode::InvalidHeader, format!("{header}: not UTF-8")))
        };
        let duration = || GivenDuration::Text(text()?.to_owned()).check(header);
        if let Some(attribute) = header.strip_prefix(ATTRIBUTE) {
            message.attributes.push((attribute.to_owned(), text()?.to_owned()));
        } else {
            match header {
                "broker-key" => message.key = Some(text()?.to_owned()),
                "broker-delay" => message.delay = duration()?,
                "broker-ttl" => message.ttl = Some(duration()?),
                "broker-deliver-at" => message.deliver_at = Some(moment(header, text()?)?),
                "content-type" => message.content_type = Some(text()?.to_owned()),
                "idempotency-key" => message.dedup = Some(dedup_key(header, text()?, &message.payload)?),
                "broker-realm" => {}
                other if other.starts_with("broker-") => {
                    return Err(Problem::new(ErrorCode::InvalidHeader, format!("{other}: unknown")));
                }
                _ => {}
            }
        }
    }
    trace::add(headers, &mut message.attributes);
    Ok(message)
}

/// What a message has one of.
fn is_single(header: &str) -> bool {
    header.starts_with("broker-") || matches!(header, "content-type" | "idempotency-key")
}

/// The id of the publisher's as it is looked for.
fn dedup_key(field: &str, id: &str, payload: &[u8]) -> Result<DedupKey, Problem> {
    if id.is_empty() || id.len() > limit::MAX_DEDUP_ID_BYTES {
        let detail = format!("{field}: an id has 1 to {} bytes", limit::MAX_DEDUP_ID_BYTES);
        return Err(Problem::new(ErrorCode::InvalidMessage, detail));
    }
    Ok(DedupKey { id: Fingerprint::of(id.as_bytes()), payload: Fingerprint::of(payload) })
}

/// They belong to a raw body; in a batch each message has its own.
fn no_message_headers(headers: &HeaderMap) -> Result<(), Problem> {
    let given = headers.keys().find(|name| {
        let name = name.as_str();
        name == "idempotency-key" || (name.starts_with("broker-") && name != "broker-realm")
    });
    match given {
        None => Ok(()),
        Some(name) => {
            let detail = format!("{name}: only for a single raw body; a batch says it per message");
            Err(Problem::new(ErrorCode::InvalidHeader, detail))
        }
    }
}

/// What no topic takes, whatever its settings.
pub(super) fn check(message: NewMessage) -> Result<NewMessage, Problem> {
    let too_long = |text: Option<&String>, most: usize| text.is_some_and(|text| text.len() > most);
    if too_long(message.key.as_ref(), limit::MAX_KEY_BYTES) {
        let detail = format!("key: at most {} bytes", limit::MAX_KEY_BYTES);
        return Err(Problem::new(ErrorCode::InvalidMessage, detail));
    }
    if too_long(message.content_type.as_ref(), limit::MAX_CONTENT_TYPE_BYTES) {
        let detail = format!("content_type: at most {} bytes", limit::MAX_CONTENT_TYPE_BYTES);
        return Err(Problem::new(ErrorCode::InvalidMessage, detail));
    }
    if message.payload.len() > limit::MAX_MESSAGE_BYTES {
        let detail = format!("a payload has at most {} bytes", limit::MAX_MESSAGE_BYTES);
        return Err(Problem::new(ErrorCode::MessageTooLarge, detail));
    }
    check_attributes(&message.attributes)?;
    Ok(message)
}

fn check_attributes(attributes: &[(String, String)]) -> Result<(), Problem> {
    let refuse = |detail: String| Err(Problem::new(ErrorCode::InvalidAttribute, detail));
    if attributes.len() > limit::MAX_ATTRIBUTES {
        return refuse(format!("a message has at most {} attributes", limit::MAX_ATTRIBUTES));
    }
    let mut names = std::collections::HashSet::new();
    let mut total = 0;
    for (name, value) in attributes {
        let well_formed = !name.is_empty()
            && name.len() <= limit::MAX_ATTRIBUTE_NAME_BYTES
            && name.chars().all(|c| !c.is_control() && !c.is_whitespace());
        if !well_formed {
            let most = limit::MAX_ATTRIBUTE_NAME_BYTES;
            return refuse(format!(
                "an attribute's name has 1 to {most} bytes, no spaces or control characters"
            ));
        }
        if value.len() > limit::MAX_ATTRIBUTE_VALUE_BYTES {
            return refuse(format!("{name}: a value has at most {} bytes", limit::MAX_ATTRIBUTE_VALUE_BYTES));
        }
        if !names.insert(name.to_lowercase()) {
            return refuse(format!("{name}: given twice; names are equal without regard to case"));
        }
        total += name.len() + value.len();
    }
    if total > limit::MAX_ATTRIBUTES_BYTES {
        return refuse(format!("all attributes together have at most {} bytes", limit::MAX_ATTRIBUTES_BYTES));
    }
    Ok(())
}

const fn durability(durability: Durability) -> &'static str {
    match durability {
        Durability::Fsync => "fsync",
        Durability::Os => "os",
    }
}

impl From<Result<Accepted, Problem>> for ItemAnswer {
    fn from(result: Result<Accepted, Problem>) -> Self {
        match result {
            Ok(Accepted { id, duplicate }) => {
                Self::Accepted { id: id.to_string(), sequence: id.sequence, duplicate }
            }
            Err(problem) => Self::Refused { error: problem.into() },
        }
    }
}
