//! Values as they travel: durations, moments, payloads.

use std::fmt;
use std::time::{Duration, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::de::{Error as _, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use super::body::Format;
use super::error::{ErrorCode, Problem};
use crate::domain::limits::MAX_DELAY;
use crate::domain::name::Name;
use crate::domain::time::Timestamp;

/// A duration as given: a humantime text or a number of seconds, not yet checked.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum GivenDuration {
    /// Such as "1h30m".
    Text(String),
    /// Seconds.
    Seconds(f64),
}

impl GivenDuration {
    /// The duration, if it is one between zero and the longest delay there is.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidDuration`], naming the field.
    pub(super) fn check(&self, field: &str) -> Result<Duration, Problem> {
        let duration = match self {
            Self::Text(text) => humantime::parse_duration(text).map_err(|error| error.to_string()),
            Self::Seconds(seconds) => {
                Duration::try_from_secs_f64(*seconds).map_err(|error| error.to_string())
            }
        };
        let bad = |why: &str| {
            let detail = format!(
                "{field}: {why}; give a text such as \"500ms\", \"5s\" or \"2m\", or a number of seconds, up to a year"
            );
            Problem::new(ErrorCode::InvalidDuration, detail)
        };
        match duration {
            Ok(duration) if duration <= MAX_DELAY => Ok(duration),
            Ok(_) => Err(bad("longer than a year")),
            Err(why) => Err(bad(&why)),
        }
    }
}

impl<'de> Deserialize<'de> for GivenDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Given;
        impl Visitor<'_> for Given {
            type Value = GivenDuration;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a duration such as \"500ms\", \"5s\" or \"2m\", or a number of seconds")
            }

            fn visit_str<E>(self, text: &str) -> Result<GivenDuration, E> {
                Ok(GivenDuration::Text(text.to_owned()))
            }

            fn visit_u64<E>(self, seconds: u64) -> Result<GivenDuration, E> {
                Ok(GivenDuration::Seconds(seconds as f64))
            }

            fn visit_i64<E>(self, seconds: i64) -> Result<GivenDuration, E> {
                Ok(GivenDuration::Seconds(seconds as f64))
            }

            fn visit_f64<E>(self, seconds: f64) -> Result<GivenDuration, E> {
                Ok(GivenDuration::Seconds(seconds))
            }
        }
        deserializer.deserialize_any(Given)
    }
}

/// Checks a duration that may be absent.
///
/// # Errors
/// As [`GivenDuration::check`].
pub(super) fn optional(given: Option<&GivenDuration>, field: &str) -> Result<Option<Duration>, Problem> {
    given.map(|given| given.check(field)).transpose()
}

/// A duration in an answer, such as "1h30m": what is written can be given back, also to a policy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct WireDuration(pub(super) Duration);

/// Millisecond steps: finer ones are never kept.
const UNITS: [(u128, &str); 5] =
    [(24 * 60 * 60 * 1_000, "d"), (60 * 60 * 1_000, "h"), (60 * 1_000, "m"), (1_000, "s"), (1, "ms")];

impl Serialize for WireDuration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut left = self.0.as_millis();
        if left == 0 {
            return serializer.serialize_str("0s");
        }
        let mut text = String::new();
        for (millis, unit) in UNITS {
            if left >= millis {
                text.push_str(&format!("{}{unit}", left / millis));
                left %= millis;
            }
        }
        serializer.serialize_str(&text)
    }
}

/// A moment in an answer: RFC 3339 with milliseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct WireTime(pub Timestamp);

impl Serialize for WireTime {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let since = Duration::from_millis(self.0.as_millis());
        match UNIX_EPOCH.checked_add(since) {
            // The formatter refuses years that RFC 3339 cannot write.
            Some(time) if since.as_secs() <= LAST_SECOND => {
                serializer.collect_str(&humantime::format_rfc3339_millis(time))
            }
            _ => serializer.serialize_str("9999-12-31T23:59:59.999Z"),
        }
    }
}

/// A moment as given: RFC 3339 in UTC.
///
/// # Errors
/// [`ErrorCode::InvalidBody`], naming the field.
pub(super) fn moment(field: &str, text: &str) -> Result<Timestamp, Problem> {
    let time = humantime::parse_rfc3339(text).ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    let millis = time.and_then(|since| u64::try_from(since.as_millis()).ok());
    millis.map(Timestamp::from_millis).ok_or_else(|| {
        let detail = format!("{field}: give a moment in UTC such as \"2026-01-31T12:00:00Z\"");
        Problem::new(ErrorCode::InvalidBody, detail)
    })
}

const LAST_SECOND: u64 = 253_402_300_799;

/// A JSON value that is kept as the bytes it was given in.
#[derive(Clone, Debug)]
pub(super) struct JsonPayload(pub bytes::Bytes);

impl<'de> Deserialize<'de> for JsonPayload {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if deserializer.is_human_readable() {
            let raw = Box::<RawValue>::deserialize(deserializer)?;
            return Ok(Self(Box::<str>::from(raw).into_string().into()));
        }
        let value = serde_json::Value::deserialize(deserializer)?;
        serde_json::to_vec(&value).map(|bytes| Self(bytes.into())).map_err(D::Error::custom)
    }
}

/// Bytes that are base64 in JSON.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct BinaryPayload(pub bytes::Bytes);

impl<'de> Deserialize<'de> for BinaryPayload {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if deserializer.is_human_readable() {
            let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
            return BASE64.decode(text.as_bytes()).map(|bytes| Self(bytes.into())).map_err(D::Error::custom);
        }
        serde_bytes::ByteBuf::deserialize(deserializer).map(|bytes| Self(bytes.into_vec().into()))
    }
}

impl Serialize for BinaryPayload {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            serializer.serialize_str(&BASE64.encode(&self.0))
        } else {
            serializer.serialize_bytes(&self.0)
        }
    }
}

/// A JSON value on its way out: as the bytes it came in, or as a value of MessagePack.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub(super) enum JsonOut {
    /// In JSON.
    Raw(Box<RawValue>),
    /// In MessagePack.
    Value(serde_json::Value),
}

impl JsonOut {
    /// `None` if the format cannot carry it: the bytes are not JSON, or not JSON alone, or (in MessagePack) numbers
    /// or nesting beyond what a value can be. Then only the exact bytes will do.
    pub(super) fn new(bytes: &[u8], format: Format) -> Option<Self> {
        match format {
            Format::Json => {
                let text = std::str::from_utf8(bytes).ok()?;
                let raw: &RawValue = serde_json::from_str(text).ok()?;
                (raw.get().len() == text.len()).then(|| Self::Raw(raw.to_owned()))
            }
            Format::MessagePack => serde_json::from_slice(bytes).ok().map(Self::Value),
        }
    }
}

/// Checks a name.
///
/// # Errors
/// [`ErrorCode::InvalidName`], saying of what.
pub(super) fn name(what: &str, text: &str) -> Result<Name, Problem> {
    Name::new(text).map_err(|error| Problem::new(ErrorCode::InvalidName, format!("{what}: {error}")))
}

/// Names and values as a JSON object, in their order.
pub(super) fn map<S: Serializer>(pairs: &[(String, String)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(pairs.iter().map(|(name, value)| (name, value)))
}

/// A JSON object of texts, in its order, with names that occur twice kept for the check to find.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Pairs(pub Vec<(String, String)>);

impl<'de> Deserialize<'de> for Pairs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = Pairs;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of texts")
            }

            fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<Pairs, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(Pairs(pairs))
            }
        }
        deserializer.deserialize_map(Object)
    }
}

/// For a field in which null is a value like any other.
///
/// # Errors
/// As the value's own.
pub(super) fn some<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}
