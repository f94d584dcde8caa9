//! Bodies in and out: JSON, or MessagePack where it is asked for, within their bounds of size and time.

use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody as _};
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use bytes::BytesMut;
use http_body_util::BodyExt as _;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::{ErrorCode, Problem};
use crate::domain::limits::MAX_BODY_BYTES;
use crate::engine::Put;

/// How long a body may take to arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// Nesting of a MessagePack request.
const MAX_DEPTH: usize = 64;

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

    /// A value in this format.
    ///
    /// # Errors
    /// [`ErrorCode::Internal`] if it cannot be written.
    pub(super) fn write<T: Serialize>(self, value: &T) -> Result<Vec<u8>, Problem> {
        let written = match self {
            Self::Json => serde_json::to_vec(value).map_err(|error| error.to_string()),
            Self::MessagePack => rmp_serde::to_vec_named(value).map_err(|error| error.to_string()),
        };
        written.map_err(|error| Problem::new(ErrorCode::Internal, error))
    }

    /// An answer in this format.
    pub(super) fn answer<T: Serialize>(self, status: StatusCode, value: &T) -> Response {
        match self.write(value) {
            Ok(body) => {
                let media_type = HeaderValue::from_static(self.media_type());
                (status, [(header::CONTENT_TYPE, media_type)], body).into_response()
            }
            Err(problem) => problem.into_response(),
        }
    }

    /// A 200 in this format.
    pub(super) fn ok<T: Serialize>(self, value: &T) -> Response {
        self.answer(StatusCode::OK, value)
    }

    /// A 201 if it was not there before, else a 200, with the value as `show` has it.
    pub(super) fn put<T, A: Serialize>(self, put: Put<T>, show: impl FnOnce(T) -> A) -> Response {
        let status = if put.created { StatusCode::CREATED } else { StatusCode::OK };
        self.answer(status, &show(put.value))
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
pub(super) fn spoken(headers: &HeaderMap) -> Option<Format> {
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

/// The body of a request that says nothing: an object without fields, or none.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Nothing {}

/// A body of this shape, in either format.
pub(super) struct Given<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Given<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &S) -> Result<Self, Problem> {
        let format = spoken(request.headers()).ok_or_else(|| {
            let detail = "send application/json or application/msgpack";
            Problem::new(ErrorCode::UnsupportedMediaType, detail)
        })?;
        let (parts, body) = request.into_parts();
        let bytes = read(&parts.headers, body, MAX_BODY_BYTES, ErrorCode::BodyTooLarge).await?;
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
            let mut rest = bytes;
            let mut from = rmp_serde::Deserializer::new(&mut rest);
            from.set_max_depth(MAX_DEPTH);
            let value = T::deserialize(&mut from).map_err(|error| bad(error.to_string()))?;
            if rest.is_empty() { Ok(value) } else { Err(bad("more follows after the request".to_owned())) }
        }
    }
}

/// Collects a body within a bound of size and time.
///
/// # Errors
/// `too_large`, or [`ErrorCode::RequestTimeout`].
pub(super) async fn read(
    headers: &HeaderMap,
    body: Body,
    limit: usize,
    too_large: ErrorCode,
) -> Result<Bytes, Problem> {
    let refuse = || Problem::new(too_large, format!("at most {limit} bytes are taken here"));
    // A client that asks first has not begun to send.
    if headers.contains_key(header::EXPECT) && body.size_hint().lower() > limit as u64 {
        return Err(refuse());
    }
    match tokio::time::timeout(BODY_TIMEOUT, collect(body, limit)).await {
        Ok(Ok(Some(bytes))) => Ok(bytes),
        Ok(Ok(None)) => Err(refuse()),
        Ok(Err(error)) => Err(Problem::new(ErrorCode::InvalidBody, format!("the body broke off: {error}"))),
        Err(_) => Err(Problem::new(ErrorCode::RequestTimeout, "the body did not arrive in time")),
    }
}

/// `None` if it is larger than `limit`.
async fn collect(mut body: Body, limit: usize) -> Result<Option<Bytes>, axum::Error> {
    let mut collected = BytesMut::new();
    let mut length = 0;
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame?.into_data() else { continue };
        length += data.len();
        if length > limit {
            return Ok(None);
        }
        // Nearly every body is one piece, which needs no copy.
        if collected.is_empty() && body.is_end_stream() {
            return Ok(Some(data));
        }
        collected.extend_from_slice(&data);
    }
    Ok(Some(collected.freeze()))
}
