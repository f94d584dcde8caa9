//! Bodies in and out: JSON, or MessagePack where it is asked for, within their bounds of size and time.

use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody as _, to_bytes};
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{ErrorCode, Problem};
use crate::domain::limits::MAX_BODY_BYTES;

/// How long a body may take to arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// How a body is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Format {
    /// `application/json`.
    Json,
    /// `application/msgpack`.
    MessagePack,
}

impl Format {
    const fn media_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::MessagePack => "application/msgpack",
        }
    }

    /// An answer in this format.
    pub(super) fn answer<T: Serialize>(self, status: StatusCode, value: &T) -> Response {
        let body = match self {
            Self::Json => serde_json::to_vec(value).map_err(|error| error.to_string()),
            Self::MessagePack => rmp_serde::to_vec_named(value).map_err(|error| error.to_string()),
        };
        match body {
            Ok(body) => {
                let media_type = HeaderValue::from_static(self.media_type());
                (status, [(header::CONTENT_TYPE, media_type)], body).into_response()
            }
            Err(error) => Problem::new(ErrorCode::Internal, error).into_response(),
        }
    }

    /// A 200 in this format.
    pub(super) fn ok<T: Serialize>(self, value: &T) -> Response {
        self.answer(StatusCode::OK, value)
    }
}

/// What the client takes: what it names in `Accept`, else the format it speaks itself.
impl<S: Sync> FromRequestParts<S> for Format {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        Ok(accepted(&parts.headers))
    }
}

fn accepted(headers: &HeaderMap) -> Format {
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if accept.contains("msgpack") {
        Format::MessagePack
    } else if accept.contains("json") {
        Format::Json
    } else {
        spoken(headers).unwrap_or(Format::Json)
    }
}

/// `None` if the media type is neither; none at all is JSON.
fn spoken(headers: &HeaderMap) -> Option<Format> {
    let Some(value) = headers.get(header::CONTENT_TYPE) else { return Some(Format::Json) };
    let media_type = value.to_str().ok()?.split(';').next()?.trim();
    if media_type.eq_ignore_ascii_case("application/json") {
        Some(Format::Json)
    } else if media_type.eq_ignore_ascii_case("application/msgpack")
        || media_type.eq_ignore_ascii_case("application/x-msgpack")
    {
        Some(Format::MessagePack)
    } else {
        None
    }
}

/// A body of this shape, in either format.
pub(super) struct Given<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Given<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &S) -> Result<Self, Problem> {
        let format = spoken(request.headers()).ok_or_else(|| {
            let detail = "send application/json or application/msgpack";
            Problem::new(ErrorCode::UnsupportedMediaType, detail)
        })?;
        let bytes = read(request.into_body(), MAX_BODY_BYTES, ErrorCode::BodyTooLarge).await?;
        parse(format, &bytes).map(Self)
    }
}

/// Reads a body of this shape.
///
/// # Errors
/// [`ErrorCode::InvalidBody`], saying where.
pub(super) fn parse<T: DeserializeOwned>(format: Format, bytes: &[u8]) -> Result<T, Problem> {
    let bad = |error: String| Problem::new(ErrorCode::InvalidBody, error);
    match format {
        // No body at all is an object without fields.
        Format::Json if bytes.is_empty() => serde_json::from_str("{}").map_err(|e| bad(e.to_string())),
        Format::Json => serde_json::from_slice(bytes).map_err(|error| bad(error.to_string())),
        Format::MessagePack => {
            let mut from = rmp_serde::Deserializer::from_read_ref(bytes);
            from.set_max_depth(64);
            T::deserialize(&mut from).map_err(|error| bad(error.to_string()))
        }
    }
}

/// Collects a body within a bound of size and time.
///
/// # Errors
/// `too_large`, or [`ErrorCode::RequestTimeout`].
pub(super) async fn read(body: Body, limit: usize, too_large: ErrorCode) -> Result<Bytes, Problem> {
    let refuse = || Problem::new(too_large, format!("at most {limit} bytes are taken here"));
    if body.size_hint().lower() > limit as u64 {
        return Err(refuse());
    }
    match tokio::time::timeout(BODY_TIMEOUT, to_bytes(body, limit)).await {
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(_)) => Err(refuse()),
        Err(_) => Err(Problem::new(ErrorCode::RequestTimeout, "the body did not arrive in time")),
    }
}
