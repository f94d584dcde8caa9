//! Query parameters and list cursors.

use axum::extract::{FromRequestParts, Query};
use axum::http::request::Parts;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use serde::de::DeserializeOwned;

use super::{ErrorCode, Problem};
use crate::domain::limits::{DEFAULT_PAGE, MAX_PAGE};
use crate::engine::Page;

/// Query parameters of this shape.
pub(super) struct Asked<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Asked<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let query = Query::<T>::from_request_parts(parts, state).await;
        query
            .map(|Query(value)| Self(value))
            .map_err(|error| Problem::new(ErrorCode::InvalidQuery, error.body_text()))
    }
}

/// Which page of a list.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PageQuery {
    limit: Option<usize>,
    cursor: Option<String>,
}

impl PageQuery {
    /// With the cursor read by `read`.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidQuery`] or [`ErrorCode::InvalidCursor`].
    pub(super) fn page<K>(&self, read: impl FnOnce(&str) -> Option<K>) -> Result<Page<K>, Problem> {
        page(self.limit, self.cursor.as_deref(), read)
    }
}

/// A page from its limit and cursor.
///
/// # Errors
/// [`ErrorCode::InvalidQuery`] or [`ErrorCode::InvalidCursor`].
pub(super) fn page<K>(
    limit: Option<usize>,
    cursor: Option<&str>,
    read: impl FnOnce(&str) -> Option<K>,
) -> Result<Page<K>, Problem> {
    let limit = limit.unwrap_or(DEFAULT_PAGE);
    if limit == 0 || limit > MAX_PAGE {
        return Err(Problem::new(ErrorCode::InvalidQuery, format!("limit must be from 1 to {MAX_PAGE}")));
    }
    let invalid = || Problem::new(ErrorCode::InvalidCursor, "use the `next` of the page before, unchanged");
    let after = cursor
        .map(|cursor| {
            let bytes = BASE64.decode(cursor).map_err(|_| invalid())?;
            let text = String::from_utf8(bytes).map_err(|_| invalid())?;
            read(&text).ok_or_else(invalid)
        })
        .transpose()?;
    Ok(Page { after, limit })
}

/// A cursor behind this item.
pub(super) fn cursor(after: impl std::fmt::Display) -> String {
    BASE64.encode(after.to_string())
}
