//! Frames: what is in them, and how they are read and written.
//!
//! A frame is an object with a `type`, an `id` where an answer is to name it, and the fields of the request or answer
//! that it stands for. Those are read by the types of the other routes, which know neither `type` nor `id`.

use std::fmt;
use std::marker::PhantomData;

use axum::extract::ws::{CloseFrame, Message, Utf8Bytes, close_code};
use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeOwned, DeserializeSeed, IgnoredAny, IntoDeserializer as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use super::super::body::{Format, parse};
use super::super::error::ItemError;
use super::super::{ErrorCode, Problem};
use crate::domain::limits::MAX_FRAME_ID_BYTES;

/// A frame of a client, of which only the head was read.
pub(super) struct Frame {
    format: Format,
    bytes: bytes::Bytes,
    pub(super) kind: String,
    pub(super) id: Option<String>,
}

impl Frame {
    /// Reads the head.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidBody`].
    pub(super) fn read(format: Format, bytes: bytes::Bytes) -> Result<Self, Problem> {
        let mut head = Head::default();
        let read = match format {
            Format::Json => {
                let mut from = serde_json::Deserializer::from_slice(&bytes);
                head.deserialize(&mut from).map_err(|error| error.to_string())
            }
            Format::MessagePack => {
                let mut from = rmp_serde::Deserializer::from_read_ref(&bytes);
                head.deserialize(&mut from).map_err(|error| error.to_string())
            }
        };
        let bad = |error: String| Problem::new(ErrorCode::InvalidBody, error);
        // A head that is complete was read no further: what is wrong behind it is found with the rest.
        if !head.is_complete() {
            read.map_err(bad)?;
        }
        let Head { kind, id } = head;
        let kind = kind.ok_or_else(|| bad("a frame has a type".to_owned()))?;
        if id.as_ref().is_some_and(|id| id.len() > MAX_FRAME_ID_BYTES) {
            return Err(bad(format!("id: at most {MAX_FRAME_ID_BYTES} bytes")));
        }
        Ok(Self { format, bytes, kind, id })
    }

    /// Reads the other fields.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidBody`].
    pub(super) fn rest<T: DeserializeOwned>(&self) -> Result<T, Problem> {
        parse(self.format, &self.bytes).map(|Rest(value)| value)
    }

    /// The refusal of a type that this stream does not take.
    pub(super) fn unknown(&self, known: &str) -> Problem {
        Problem::new(ErrorCode::InvalidBody, format!("type: {:?} is none of {known}", self.kind))
    }
}

#[derive(Default)]
struct Head {
    kind: Option<String>,
    id: Option<String>,
}

#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "snake_case")]
enum Field {
    Type,
    Id,
    #[serde(other)]
    Other,
}

impl Head {
    const fn is_complete(&self) -> bool {
        self.kind.is_some() && self.id.is_some()
    }
}

impl<'de> DeserializeSeed<'de> for &mut Head {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for &mut Head {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with a type")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while !self.is_complete()
            && let Some(field) = map.next_key()?
        {
            match field {
                Field::Type => self.kind = Some(map.next_value()?),
                Field::Id => self.id = Some(map.next_value()?),
                Field::Other => _ = map.next_value::<IgnoredAny>()?,
            }
        }
        Ok(())
    }
}

/// What a frame has beside its head.
struct Rest<T>(T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Rest<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Object<T> {
            type Value = T;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
                T::deserialize(MapAccessDeserializer::new(Headless(map)))
            }
        }
        deserializer.deserialize_map(Object(PhantomData)).map(Self)
    }
}

/// An object without its head.
struct Headless<A>(A);

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Headless<A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, A::Error> {
        while let Some(key) = self.0.next_key::<String>()? {
            if key != "type" && key != "id" {
                return seed.deserialize(key.into_deserializer()).map(Some);
            }
            self.0.next_value::<IgnoredAny>()?;
        }
        Ok(None)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, A::Error> {
        self.0.next_value_seed(seed)
    }
}

#[derive(Serialize)]
struct Outgoing<'a, T> {
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    #[serde(flatten)]
    body: T,
}

/// A frame for the client.
pub(super) fn frame<T: Serialize>(format: Format, kind: &'static str, id: Option<&str>, body: &T) -> Message {
    let written = format.write(&Outgoing { kind, id, body });
    let message = written.map(|bytes| match format {
        Format::Json => Utf8Bytes::try_from(bytes::Bytes::from(bytes)).ok().map(Message::Text),
        Format::MessagePack => Some(Message::Binary(bytes.into())),
    });
    message.ok().flatten().unwrap_or_else(|| {
        tracing::error!(kind, "a frame cannot be written");
        Message::Close(Some(CloseFrame {
            code: close_code::ERROR,
            reason: Utf8Bytes::from_static("internal"),
        }))
    })
}

/// The frame that tells of a problem with one of the client's.
pub(super) fn error(format: Format, id: Option<&str>, problem: Problem) -> Message {
    #[derive(Serialize)]
    struct Body {
        error: ItemError,
    }
    frame(format, "error", id, &Body { error: problem.into() })
}

/// The frame that tells the client to finish and go.
pub(super) fn going_away(format: Format) -> Message {
    #[derive(Serialize)]
    struct Body {}
    frame(format, "going_away", None, &Body {})
}
