//! Who may come in, and what each may do.
//!
//! [`authenticate`] finds out who asks and in which realm, from the credential alone and without asking the engine. A
//! handler then says in its signature what its caller must be allowed, as a [`May`]: without one it has no realm to
//! give to the broker. Names outside a token's patterns are answered as if they were absent.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{FromRequestParts, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use subtle::ConstantTimeEq as _;

use super::shape::PayloadAs;
use super::throttle::{Peer, Whose};
use super::wire::name;
use super::{App, ErrorCode, Problem};
use crate::domain::access::{Credential, Patterns, Rate, Scope, TokenId};
use crate::domain::audit::{Action, AuditEntry};
use crate::domain::id::RealmId;
use crate::domain::name::Name;
use crate::domain::pattern::TopicPattern;
use crate::engine::Refusal;
use crate::store::row::TokenRow;

/// Who may use the API.
#[derive(Clone, Debug)]
pub enum Access {
    /// Anyone who reaches it: on loopback only.
    Open,
    /// Whoever sends this token, or one that was made since.
    Token(String),
}

/// What whoever has the operator's token is called; and whoever comes in without any.
pub(super) const OPERATOR: &str = "operator";
pub(super) const ANONYMOUS: &str = "anonymous";

/// Who asks, and in which realm.
#[derive(Clone, Debug)]
pub(super) struct Caller {
    /// Where every name of the request lives.
    pub(super) realm: RealmId,
    realm_name: Name,
    who: Who,
}

#[derive(Clone, Debug)]
enum Who {
    /// Without a token: an operator.
    Anonymous,
    /// With the token that the first start made.
    Operator,
    Token(TokenId, Arc<TokenRow>),
}

impl Caller {
    /// What it is called: in revisions and logs.
    pub(super) fn name(&self) -> &str {
        match &self.who {
            Who::Anonymous => ANONYMOUS,
            Who::Operator => OPERATOR,
            Who::Token(_, row) => row.name.as_str(),
        }
    }

    /// What the audit log tells of something it does.
    pub(super) fn does(&self, action: Action, subject: impl fmt::Display) -> AuditEntry {
        let token = match &self.who {
            Who::Anonymous | Who::Operator => None,
            Who::Token(id, _) => Some(*id),
        };
        let (realm, actor) = (self.realm_name.clone(), self.name().to_owned());
        AuditEntry { realm, actor, token, action, subject: subject.to_string(), detail: String::new() }
    }

    /// Whether it may do this.
    pub(super) fn may(&self, scope: Scope) -> bool {
        match &self.who {
            Who::Anonymous | Who::Operator => true,
            Who::Token(_, row) => row.rights.scopes.allow(scope),
        }
    }

    /// # Errors
    /// [`ErrorCode::Forbidden`], naming the scopes, if it may do none of these.
    pub(super) fn must(&self, any_of: &[Scope]) -> Result<(), Problem> {
        if any_of.iter().any(|scope| self.may(*scope)) {
            return Ok(());
        }
        let scopes: Vec<_> = any_of.iter().map(|scope| scope.as_str()).collect();
        let detail = format!("the token lacks the scope for this: {}", scopes.join(" or "));
        Err(Problem::new(ErrorCode::Forbidden, detail))
    }

    /// How payloads are shown to it where messages are looked into.
    pub(super) fn shown(&self, asked: PayloadAs) -> PayloadAs {
        if self.may(Scope::ReadPayload) { asked } else { PayloadAs::None }
    }

    /// With the rights that it has by now, `None` if it would not be let in: for answers that take their time.
    pub(super) fn by_now(&self, app: &App) -> Option<Self> {
        let Who::Token(id, _) = &self.who else { return Some(self.clone()) };
        let (_, row) = app.broker.directory().token(*id)?;
        let live = row.is_live(app.broker.clock().now());
        live.then(|| Self { who: Who::Token(*id, row), ..self.clone() })
    }

    /// The topics that exist for it.
    pub(super) fn topics(&self) -> Patterns {
        match &self.who {
            Who::Anonymous | Who::Operator => Patterns::all(),
            Who::Token(_, row) => row.rights.topics.clone(),
        }
    }

    /// The subscriptions that exist for it.
    pub(super) fn subscriptions(&self) -> Patterns {
        match &self.who {
            Who::Anonymous | Who::Operator => Patterns::all(),
            Who::Token(_, row) => row.rights.subscriptions.clone(),
        }
    }

    /// The name of a topic that may exist for it.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidName`]; what an absent one is answered.
    pub(super) fn topic(&self, text: &str) -> Result<Name, Problem> {
        let name = name("topic", text)?;
        if self.topics().allow(&name) { Ok(name) } else { Err(Refusal::TopicNotFound(name).into()) }
    }

    /// A pattern of topics, all of which it may read.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidName`], [`ErrorCode::Forbidden`].
    pub(super) fn topics_like(&self, text: &str) -> Result<TopicPattern, Problem> {
        let pattern = TopicPattern::parse(text);
        let pattern = pattern
            .map_err(|error| Problem::new(ErrorCode::InvalidName, format!("topic_pattern: {error}")))?;
        if self.topics().allow_all(pattern.stem()) {
            return Ok(pattern);
        }
        let detail = "topic_pattern: it takes topics that this token may not read";
        Err(Problem::new(ErrorCode::Forbidden, detail))
    }

    /// The name of a subscription that may exist for it.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidName`]; what an absent one is answered.
    pub(super) fn subscription(&self, text: &str) -> Result<Name, Problem> {
        let name = name("subscription", text)?;
        let exists = self.subscriptions().allow(&name);
        if exists { Ok(name) } else { Err(Refusal::SubscriptionNotFound(name).into()) }
    }
}

/// What a handler needs its caller to be allowed.
pub(super) mod need {
    use crate::domain::access::Scope;

    /// One of these scopes is enough.
    pub(in crate::http) trait Need {
        /// Never empty.
        const ANY_OF: &'static [Scope];
    }

    macro_rules! needs {
        ($($(#[$doc:meta])* $name:ident = $any_of:expr;)*) => {$(
            $(#[$doc])*
            pub(in crate::http) enum $name {}
            impl Need for $name {
                const ANY_OF: &'static [Scope] = &$any_of;
            }
        )*};
    }

    needs! {
        /// To see how things are set up and stand: every token may, of what its patterns allow.
        Look = Scope::ALL;
        Publish = [Scope::Publish];
        Consume = [Scope::Consume];
        /// To see what became of a message: for whoever may see it anyway, or answers for it.
        Inspect = [Scope::Consume, Scope::DeadLetters, Scope::ReadPayload];
        Topics = [Scope::Topics];
        Policies = [Scope::Policies];
        DeadLetters = [Scope::DeadLetters];
        Operator = [Scope::Operator];
    }
}

/// A caller who may do what the handler is for.
pub(super) struct May<N>(Caller, PhantomData<fn() -> N>);

impl<N> Deref for May<N> {
    type Target = Caller;

    fn deref(&self) -> &Caller {
        &self.0
    }
}

impl<S: Sync, N: need::Need> FromRequestParts<S> for May<N> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let caller = parts.extensions.get::<Caller>().cloned();
        let caller = caller.ok_or_else(|| Problem::new(ErrorCode::Internal, "nobody asked who asks"))?;
        caller.must(N::ANY_OF)?;
        Ok(Self(caller, PhantomData))
    }
}

pub(super) async fn authenticate(State(app): State<App>, mut request: Request, next: Next) -> Response {
    match caller(&app, &request) {
        Ok(caller) => {
            request.extensions_mut().insert(caller);
            next.run(request).await
        }
        Err(NotNow { problem, wait }) => {
            let mut response = problem.into_response();
            if let Some(wait) = wait {
                // Rounded up: whoever keeps to it is let in.
                let seconds = wait.as_millis().div_ceil(1_000).max(1);
                let seconds = HeaderValue::from(u64::try_from(seconds).unwrap_or(u64::MAX));
                response.headers_mut().insert(header::RETRY_AFTER, seconds);
            }
            response
        }
    }
}

/// Why a request is not let in, and when it is worth another try.
struct NotNow {
    problem: Problem,
    wait: Option<Duration>,
}

impl NotNow {
    fn later(code: ErrorCode, detail: &str, wait: Duration) -> Self {
        Self { problem: Problem::new(code, detail), wait: Some(wait) }
    }
}

impl From<Problem> for NotNow {
    fn from(problem: Problem) -> Self {
        Self { problem, wait: None }
    }
}

impl From<Refusal> for NotNow {
    fn from(refusal: Refusal) -> Self {
        Problem::from(refusal).into()
    }
}

fn caller(app: &App, request: &Request) -> Result<Caller, NotNow> {
    let headers = request.headers();
    let (who, home) = identify(app, headers).ok_or_else(|| wrong(app, request))?;
    let directory = app.broker.directory();
    let row = directory.realm_with(home).ok_or(Refusal::RealmNotFound)?;
    let mut caller = Caller { realm: home, realm_name: row.name.clone(), who };
    keep_pace(app, &caller, row.rate)?;
    if let Some(asked) = headers.get("broker-realm") {
        let found = asked.to_str().ok().and_then(|name| directory.realm(name));
        // A realm that is another's is as unknown as none at all.
        let found = found.filter(|(id, _)| *id == caller.realm || caller.may(Scope::Operator));
        let (realm, row) = found.ok_or(Refusal::RealmNotFound)?;
        (caller.realm, caller.realm_name) = (realm, row.name.clone());
    }
    Ok(caller)
}

/// A token is looked at however many wrong ones came from its address: secrets of 256 bits cannot be guessed, and nobody
/// is to be locked out by a neighbour. Wrong ones are told to wait, longer and longer.
fn wrong(app: &App, request: &Request) -> NotNow {
    let peer = request.extensions().get::<Peer>().map(|Peer(address)| *address);
    // Whoever sends none does not guess.
    let guessed = bearer(request.headers()).is_some_and(|token| !token.is_empty());
    if let Some(peer) = peer.filter(|_| guessed)
        && let Err(wait) = app.throttle.failed(peer, app.broker.clock().now())
    {
        let detail = "too many wrong tokens came from your address: wait before the next try";
        return NotNow::later(ErrorCode::TooManyFailedLogins, detail, wait);
    }
    let detail = "send the operator's token or one that was made since: Authorization: Bearer ..., or --token on the command line; the operator's is in operator.token of the data folder";
    Problem::new(ErrorCode::Unauthorized, detail).into()
}

/// The operator's own token has no rate: whatever tenants do, somebody can still look after them.
fn keep_pace(app: &App, caller: &Caller, realm_rate: Option<Rate>) -> Result<(), NotNow> {
    let Who::Token(token, row) = &caller.who else { return Ok(()) };
    let rates =
        [(Whose::Token(*token), row.rate, "token"), (Whose::Realm(caller.realm), realm_rate, "realm")];
    for (whose, rate, what) in rates {
        let Some(rate) = rate else { continue };
        if let Err(wait) = app.throttle.take(whose, rate, app.broker.clock().now()) {
            let detail =
                format!("the {what} may ask {} times a second: wait before the next try", rate.per_second);
            return Err(NotNow::later(ErrorCode::RateLimited, &detail, wait));
        }
    }
    Ok(())
}

/// Who it is and where it is at home.
fn identify(app: &App, headers: &HeaderMap) -> Option<(Who, RealmId)> {
    let Access::Token(operator) = &*app.access else { return Some((Who::Anonymous, RealmId::DEFAULT)) };
    let given = bearer(headers)?;
    if given.as_bytes().ct_eq(operator.as_bytes()).into() {
        return Some((Who::Operator, RealmId::DEFAULT));
    }
    let credential = Credential::parse(given)?;
    let (realm, row) = app.broker.directory().token(credential.token)?;
    let admitted = row.admits(credential.hash, app.broker.clock().now());
    admitted.then_some((Who::Token(credential.token, row), realm))
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let given = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (_, token) = given.split_once(' ').filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))?;
    Some(token.trim())
}
