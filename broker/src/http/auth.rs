//! Who may come in: whoever holds the operator's token, or anyone where the operator said so.

use axum::extract::{Request, State};
use axum::http::header;
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use subtle::ConstantTimeEq as _;

use super::{App, ErrorCode, Problem};
use crate::domain::id::RealmId;

/// Who may use the API.
#[derive(Clone, Debug)]
pub enum Access {
    /// Anyone who reaches it: on loopback only.
    Open,
    /// Whoever sends this token.
    Token(String),
}

impl Access {
    /// What whoever came in is called: in revisions and logs.
    pub(super) const fn caller(&self) -> &'static str {
        match self {
            Self::Open => "anonymous",
            Self::Token(_) => "operator",
        }
    }
}

/// There is one realm yet. Every verb takes it from here, so that tokens of others can name theirs.
pub(super) const REALM: RealmId = RealmId(0);
const REALM_NAME: &str = "default";

pub(super) async fn authenticate(State(app): State<App>, request: Request, next: Next) -> Response {
    let headers = request.headers();
    if let Access::Token(expected) = &*app.access {
        let given = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let given = given.and_then(|value| value.split_once(' '));
        let given = given.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer")).map(|(_, token)| token);
        let known = given.is_some_and(|token| bool::from(token.trim().as_bytes().ct_eq(expected.as_bytes())));
        if !known {
            let detail = "send the operator's token: Authorization: Bearer ..., or --token on the command line; it is in operator.token of the data folder";
            return Problem::new(ErrorCode::Unauthorized, detail).into_response();
        }
    }
    if headers.get("broker-realm").is_some_and(|realm| realm != REALM_NAME) {
        return Problem::new(ErrorCode::RealmNotFound, "there is one realm, default").into_response();
    }
    next.run(request).await
}
