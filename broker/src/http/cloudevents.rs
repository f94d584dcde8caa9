//! CloudEvents 1.0 over HTTP: messages that are published as events, and any message given out as one.
//!
//! An event's context attributes become attributes of the message named `ce-...`, as in the headers of binary mode, but
//! for two that a message has a place for: `datacontenttype` is its content type, `partitionkey` its key. What the
//! broker keeps is the same whatever the mode.

use std::borrow::Cow;
use std::fmt;

use axum::body::Bytes;
use axum::http::HeaderMap;
use percent_encoding::percent_decode;
use serde::de::{MapAccess, Visitor};
use serde::ser::SerializeMap as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use super::body::{Format, parse};
use super::wire::{BinaryPayload, JsonOut, WireTime};
use super::{ErrorCode, Problem};
use crate::domain::id::MessageId;
use crate::domain::message::Message;
use crate::domain::name::Name;
use crate::engine::NewMessage;

/// What names of headers and attributes begin with.
const PREFIX: &str = "ce-";
const VERSION: &str = "1.0";
/// The type of an event that was published as something else.
const TYPE: &str = "reprise.message";
/// What every event has.
const REQUIRED: [&str; 4] = ["specversion", "id", "source", "type"];
/// Names that attributes which are no context attributes must not take.
const RESERVED: [&str; 10] = [
    "specversion",
    "id",
    "source",
    "type",
    "subject",
    "time",
    "dataschema",
    "datacontenttype",
    "partitionkey",
    "data",
];

/// Context attributes by name.
type Context = Vec<(String, String)>;

/// An event in structured form.
pub(super) struct Event {
    context: Context,
    content_type: Option<String>,
    /// Its data.
    pub(super) payload: Bytes,
}

impl Event {
    /// Reads an event in the JSON format.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidCloudevent`], saying what is wrong with it.
    pub(super) fn read(json: &[u8]) -> Result<Self, Problem> {
        let Members(members) = serde_json::from_slice(json).map_err(|error| invalid(error.to_string()))?;
        let (mut data, mut base64, mut content_type) = (None, None, None);
        let mut context = Context::new();
        for (name, value) in members {
            match name.as_str() {
                "data" => data = Some(value),
                "data_base64" => base64 = value_of::<Option<BinaryPayload>>(&name, &value)?,
                "datacontenttype" => content_type = value_of::<Option<String>>(&name, &value)?,
                _ => context.extend(simple(&name, &value)?.map(|value| (name, value))),
            }
        }
        let payload = match (data, base64) {
            (None, None) => Bytes::new(),
            (None, Some(BinaryPayload(bytes))) => bytes,
            (Some(value), None) => {
                // Without a type it is JSON, and then the consumer should know.
                let content_type = content_type.get_or_insert_with(|| "application/json".to_owned());
                data_bytes(value, content_type)
            }
            (Some(_), Some(_)) => return Err(invalid("give either data or data_base64")),
        };
        Ok(Self { context, content_type, payload })
    }

    /// Makes a message of its payload the message of this event.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidCloudevent`].
    pub(super) fn describe(self, message: &mut NewMessage) -> Result<(), Problem> {
        message.content_type = self.content_type;
        describe(self.context, message)
    }

    /// The message of an event that comes without one of its own.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidCloudevent`].
    pub(super) fn into_message(self) -> Result<NewMessage, Problem> {
        let mut message = NewMessage { payload: self.payload.clone(), ..NewMessage::default() };
        self.describe(&mut message)?;
        Ok(message)
    }
}

/// The events of a batch in the JSON format, each to be read for itself.
///
/// # Errors
/// [`ErrorCode::InvalidBody`] if it is no list.
pub(super) fn events(json: &[u8]) -> Result<Vec<Box<RawValue>>, Problem> {
    parse(Format::Json, json)
}

/// Whether the headers describe the body as the data of an event.
pub(super) fn is_binary(headers: &HeaderMap) -> bool {
    headers.keys().any(|name| name.as_str().starts_with(PREFIX))
}

/// Makes a message the one of the event that its headers describe.
///
/// # Errors
/// [`ErrorCode::InvalidCloudevent`].
pub(super) fn describe_by_headers(headers: &HeaderMap, message: &mut NewMessage) -> Result<(), Problem> {
    let mut context = Context::new();
    for (header, value) in headers {
        let Some(name) = header.as_str().strip_prefix(PREFIX) else { continue };
        if matches!(name, "data" | "datacontenttype") {
            return Err(invalid(format!("{header}: it is the body and its Content-Type that say this")));
        }
        let text = decoded(value.as_bytes()).ok_or_else(|| invalid(format!("{header}: not UTF-8")))?;
        context.push((name.to_owned(), text));
    }
    describe(context, message)
}

/// First the quotes go, then the percent signs, once.
fn decoded(value: &[u8]) -> Option<String> {
    let quoted = value.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\""));
    let plain = match quoted {
        None => Cow::Borrowed(value),
        Some(quoted) => {
            let mut plain = Vec::with_capacity(quoted.len());
            let mut bytes = quoted.iter();
            while let Some(byte) = bytes.next() {
                plain.push(*if *byte == b'\\' { bytes.next()? } else { byte });
            }
            Cow::Owned(plain)
        }
    };
    percent_decode(&plain).decode_utf8().ok().map(Cow::into_owned)
}

fn describe(context: Context, message: &mut NewMessage) -> Result<(), Problem> {
    let value =
        |wanted: &str| context.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.as_str());
    for name in REQUIRED {
        if value(name).is_none_or(str::is_empty) {
            return Err(invalid(format!("{name}: every event has one")));
        }
    }
    if let Some(version) = value("specversion").filter(|version| *version != VERSION) {
        return Err(invalid(format!("specversion: {version:?}, this broker takes {VERSION:?}")));
    }
    for (name, value) in context {
        if name.is_empty() || !name.bytes().all(is_name_byte) {
            return Err(invalid(format!("{name:?}: a name has lower-case letters and digits")));
        }
        if value.chars().any(char::is_control) {
            return Err(invalid(format!("{name}: no control characters")));
        }
        if name != "partitionkey" {
            // One that is given twice is found with the other attributes.
            message.attributes.push((format!("{PREFIX}{name}"), value));
        } else if message.key.replace(value).is_some() {
            return Err(invalid("partitionkey: the message has a key already"));
        }
    }
    Ok(())
}

const fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit()
}

fn invalid(detail: impl Into<String>) -> Problem {
    Problem::new(ErrorCode::InvalidCloudevent, detail)
}

fn value_of<'a, T: Deserialize<'a>>(name: &str, value: &'a RawValue) -> Result<T, Problem> {
    serde_json::from_str(value.get()).map_err(|error| invalid(format!("{name}: {error}")))
}

/// A context attribute as text; `None` if it is null, which is none at all.
fn simple(name: &str, value: &RawValue) -> Result<Option<String>, Problem> {
    match value_of(name, value)? {
        serde_json::Value::Null => Ok(None),
        serde_json::Value::Bool(flag) => Ok(Some(flag.to_string())),
        serde_json::Value::Number(number) if number.is_i64() => Ok(Some(number.to_string())),
        serde_json::Value::String(text) => Ok(Some(text)),
        _ => Err(invalid(format!("{name}: a context attribute is a text, an integer or true or false"))),
    }
}

/// A value that is said to be JSON stays as it was written; else a text is what it says.
fn data_bytes(value: Box<RawValue>, content_type: &str) -> Bytes {
    let text = if is_json(content_type) { None } else { serde_json::from_str::<String>(value.get()).ok() };
    text.unwrap_or_else(|| Box::<str>::from(value).into_string()).into()
}

/// Whether this media type says JSON.
pub(super) fn is_json(content_type: &str) -> bool {
    let media_type = content_type.split(';').next().unwrap_or_default().trim();
    media_type.eq_ignore_ascii_case("application/json") || media_type.ends_with("+json")
}

/// The members of a JSON object in their order, with their exact text.
struct Members(Vec<(String, Box<RawValue>)>);

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = Members;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an event as a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
                let mut members: Vec<(String, Box<RawValue>)> = Vec::new();
                while let Some((name, value)) = map.next_entry::<String, _>()? {
                    if members.iter().any(|(known, _)| *known == name) {
                        return Err(serde::de::Error::custom(format_args!("{name}: given twice")));
                    }
                    members.push((name, value));
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Object)
    }
}

/// A message as an event in the JSON format.
pub(super) struct EventBody<'a> {
    context: Vec<(&'a str, Cow<'a, str>)>,
    time: Option<WireTime>,
    data: Option<Data<'a>>,
}

enum Data<'a> {
    Json(JsonOut),
    Text(&'a str),
    Binary(BinaryPayload),
}

impl<'a> EventBody<'a> {
    /// As it was published, or with what the broker knows of it where it was published as something else. Attributes
    /// whose names are no names of CloudEvents cannot be shown.
    pub(super) fn new(id: MessageId, topic: &'a Name, message: &'a Message, format: Format) -> Self {
        let given = |name: &str| {
            let mut pairs = message
                .attributes
                .iter()
                .filter_map(|(name, value)| Some((name.strip_prefix(PREFIX)?, value)));
            pairs.any(|(known, _)| known == name)
        };
        let is_event = REQUIRED.iter().all(|name| given(name));
        let mut context: Vec<(&str, Cow<'_, str>)> = Vec::new();
        if !is_event {
            context.push(("specversion", VERSION.into()));
            context.push(("id", id.to_string().into()));
            context.push(("source", format!("/v1/topics/{topic}").into()));
            context.push(("type", TYPE.into()));
        }
        let own =
            message.attributes.iter().filter_map(|(name, value)| Some((name.strip_prefix(PREFIX)?, value)));
        let own = own.filter(|_| is_event);
        context.extend(own.map(|(name, value)| (name, value.into())));
        for (name, value) in &message.attributes {
            let is_name = name.bytes().all(is_name_byte) && !RESERVED.contains(&name.as_str());
            if is_name && !context.iter().any(|(known, _)| known == name) {
                context.push((name, value.into()));
            }
        }
        context.extend(message.content_type.as_deref().map(|text| ("datacontenttype", text.into())));
        context.extend(message.key.as_deref().map(|key| ("partitionkey", key.into())));
        let time = (!is_event).then_some(WireTime(message.published_at));
        Self { context, time, data: Data::of(message, format) }
    }
}

impl<'a> Data<'a> {
    fn of(message: &'a Message, format: Format) -> Option<Self> {
        let content_type = message.content_type.as_deref().unwrap_or_default();
        if message.payload.is_empty() {
            return None;
        }
        if is_json(content_type)
            && let Some(json) = JsonOut::new(&message.payload, format)
        {
            return Some(Self::Json(json));
        }
        let text = std::str::from_utf8(&message.payload).ok().filter(|_| content_type.starts_with("text/"));
        Some(text.map_or_else(|| Self::Binary(BinaryPayload(message.payload.clone())), Self::Text))
    }
}

impl Serialize for EventBody<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let length = self.context.len() + usize::from(self.time.is_some()) + usize::from(self.data.is_some());
        let mut map = serializer.serialize_map(Some(length))?;
        for (name, value) in &self.context {
            map.serialize_entry(name, value)?;
        }
        if let Some(time) = &self.time {
            map.serialize_entry("time", time)?;
        }
        match &self.data {
            None => {}
            Some(Data::Json(json)) => map.serialize_entry("data", json)?,
            Some(Data::Text(text)) => map.serialize_entry("data", text)?,
            Some(Data::Binary(bytes)) => map.serialize_entry("data_base64", bytes)?,
        }
        map.end()
    }
}
