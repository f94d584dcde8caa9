//! `POST /v1/topics/{t}/messages`: one raw body, or a batch.

use axum::body::Bytes;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::Response;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use super::auth::{May, need};
use super::body::{Format, parse, read};
use super::error::ItemError;
use super::query::Asked;
use super::wire::{BinaryPayload, GivenDuration, JsonPayload, Pairs, some};
use super::{App, ErrorCode, Problem};
use crate::domain::id::RealmId;
use crate::domain::limits as limit;
use crate::engine::{Command, Durability, NewMessage, Publish};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Batch {
    messages: Vec<Item>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Item {
    #[serde(default, deserialize_with = "some")]
    payload: Option<JsonPayload>,
    payload_base64: Option<BinaryPayload>,
    content_type: Option<String>,
    key: Option<String>,
    #[serde(default)]
    attributes: Pairs,
    delay: Option<GivenDuration>,
    ttl: Option<GivenDuration>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PublishQuery {
    /// The body is one payload, even if it looks like a batch.
    #[serde(default)]
    raw: bool,
}

#[derive(Serialize)]
struct PublishAnswer {
    items: Vec<ItemAnswer>,
    durability: &'static str,
}

#[derive(Serialize)]
#[serde(untagged)]
enum ItemAnswer {
    Accepted { id: String, sequence: u64 },
    Refused { error: ItemError },
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
    match batch_format(&parts.headers, &bytes).filter(|_| !is_raw) {
        Some(spoken) => {
            no_message_headers(&parts.headers)?;
            let Batch { messages } = parse(spoken, &bytes)?;
            let items = batch(messages)?;
            let sent = send(&app, caller.realm, topic, items).await?;
            let stored = sent.items.iter().any(|item| matches!(item, ItemAnswer::Accepted { .. }));
            let status = if stored { StatusCode::CREATED } else { StatusCode::UNPROCESSABLE_ENTITY };
            Ok(format.answer(status, &sent))
        }
        None => {
            let message = raw(&parts.headers, bytes)?;
            let message = check(message)?;
            let sent = app.broker.call(|reply| {
                Command::Publish(caller.realm, Publish { topic, messages: vec![message] }, reply)
            });
            let published = sent.await?;
            let mut items = Vec::new();
            for result in published.results {
                items.push(ItemAnswer::from(result.map_err(Problem::from)?));
            }
            let durability = durability(published.durability);
            Ok(format.answer(StatusCode::CREATED, &PublishAnswer { items, durability }))
        }
    }
}

/// A batch is MessagePack, or a JSON object with a field `messages`.
fn batch_format(headers: &HeaderMap, bytes: &[u8]) -> Option<Format> {
    let media_type =
        headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let media_type = media_type.split(';').next().unwrap_or_default().trim();
    match media_type {
        "application/msgpack" | "application/x-msgpack" => Some(Format::MessagePack),
        "application/json" | "" => is_batch(bytes).then_some(Format::Json),
        _ => None,
    }
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

/// Sends the good items and puts the answers where their items were.
async fn send(
    app: &App,
    realm: RealmId,
    topic: crate::domain::name::Name,
    items: Vec<Result<NewMessage, Problem>>,
) -> Result<PublishAnswer, Problem> {
    let mut answers: Vec<Option<ItemAnswer>> = Vec::with_capacity(items.len());
    let mut messages = Vec::with_capacity(items.len());
    for item in items {
        match item {
            Ok(message) => {
                messages.push(message);
                answers.push(None);
            }
            Err(problem) => answers.push(Some(ItemAnswer::Refused { error: problem.into() })),
        }
    }
    let published =
        app.broker.call(|reply| Command::Publish(realm, Publish { topic, messages }, reply)).await?;
    let mut results = published.results.into_iter();
    let items = answers.into_iter().filter_map(|refused| {
        refused.or_else(|| {
            let result = results.next()?;
            Some(match result {
                Ok(id) => id.into(),
                Err(refusal) => ItemAnswer::Refused { error: Problem::from(refusal).into() },
            })
        })
    });
    Ok(PublishAnswer { items: items.collect(), durability: durability(published.durability) })
}

fn batch(items: Vec<Item>) -> Result<Vec<Result<NewMessage, Problem>>, Problem> {
    let refuse = |detail: String| Err(Problem::new(ErrorCode::BatchSize, detail));
    if items.is_empty() || items.len() > limit::MAX_BATCH_ITEMS {
        return refuse(format!("a batch has 1 to {} messages", limit::MAX_BATCH_ITEMS));
    }
    let messages: Vec<_> = items.into_iter().map(item).collect();
    let bytes: usize = messages.iter().flatten().map(NewMessage::bytes).sum();
    if bytes > limit::MAX_BATCH_BYTES {
        let most = limit::MAX_BATCH_BYTES;
        return refuse(format!("the messages have {bytes} bytes together, a batch takes {most}"));
    }
    Ok(messages)
}

fn item(item: Item) -> Result<NewMessage, Problem> {
    let (payload, content_type) = match (item.payload, item.payload_base64) {
        (Some(JsonPayload(bytes)), None) => {
            (bytes, Some(item.content_type.unwrap_or_else(|| "application/json".to_owned())))
        }
        (None, Some(BinaryPayload(bytes))) => (bytes, item.content_type),
        (None, None) | (Some(_), Some(_)) => {
            let detail = "give either payload or payload_base64";
            return Err(Problem::new(ErrorCode::InvalidMessage, detail));
        }
    };
    check(NewMessage {
        key: item.key,
        attributes: item.attributes.0,
        content_type,
        payload,
        delay: item.delay.map(|delay| delay.check("delay")).transpose()?.unwrap_or_default(),
        ttl: item.ttl.map(|ttl| ttl.check("ttl")).transpose()?,
    })
}

const ATTRIBUTE: &str = "broker-attribute-";

fn raw(headers: &HeaderMap, payload: Bytes) -> Result<NewMessage, Problem> {
    let mut message = NewMessage { payload, ..NewMessage::default() };
    for (header, value) in headers {
        let twice = headers.get_all(header).iter().nth(1).is_some();
        let header = header.as_str();
        let attribute = header.starts_with(ATTRIBUTE);
        if twice && !attribute && (header.starts_with("broker-") || header == "content-type") {
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
                "content-type" => message.content_type = Some(text()?.to_owned()),
                "idempotency-key" => {
                    let detail = "this version does not deduplicate: publish without it";
                    return Err(Problem::new(ErrorCode::InvalidHeader, detail));
                }
                "broker-realm" => {}
                other if other.starts_with("broker-") => {
                    return Err(Problem::new(ErrorCode::InvalidHeader, format!("{other}: unknown")));
                }
                _ => {}
            }
        }
    }
    Ok(message)
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

impl From<crate::domain::id::MessageId> for ItemAnswer {
    fn from(id: crate::domain::id::MessageId) -> Self {
        Self::Accepted { id: id.to_string(), sequence: id.sequence }
    }
}
