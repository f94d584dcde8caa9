//! The HTTP API, the only place that names axum.
//!
//! Handlers extract, call one verb of the broker and convert; they hold no rules. [`routes`] is the list of all
//! routes, [`error`] of all errors, [`wire`] of the values that travel. Start with [`router`].

mod audit;
mod auth;
mod backtest;
mod body;
mod browse;
mod candidate;
mod cloudevents;
mod control;
mod dead_filter;
mod dead_letters;
mod error;
mod events;
mod failures;
mod jobs;
mod leftover;
mod messages;
mod policies;
mod publish;
mod pull;
mod query;
mod realms;
mod schema;
mod server;
mod settle;
mod shadow;
mod shape;
pub(crate) mod simulate;
mod stream;
mod subscriptions;
mod throttle;
mod tokens;
mod topics;
mod trace;
mod wire;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{MatchedPath, Request};
use axum::http::{HeaderValue, Method, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post, put};

pub use auth::Access;
pub use error::{ErrorCode, Problem};
pub use server::Server;

use self::throttle::Throttle;
use crate::dispatch::Broker;

/// What handlers share.
#[derive(Clone)]
pub struct App {
    /// The broker.
    pub broker: Broker,
    /// Who may come in.
    pub access: Arc<Access>,
    streams: stream::Streams,
    /// Who asks too often, and who guesses.
    throttle: Arc<Throttle>,
    /// Validators of topics' schemas.
    schemas: Arc<schema::Schemas>,
}

impl App {
    /// Over a broker, for those whom `access` lets in.
    pub fn new(broker: Broker, access: Access) -> Self {
        let (access, throttle) = (Arc::new(access), Arc::default());
        let schemas = Arc::new(schema::Schemas::new());
        Self { broker, access, streams: stream::Streams::default(), throttle, schemas }
    }

    /// With streams that end after so long without a sign of their client.
    #[must_use]
    pub fn with_stream_idle(mut self, idle: Duration) -> Self {
        self.streams.idle = idle;
        self
    }

    /// Waits until every stream has ended.
    pub async fn streams_gone(&self) {
        self.streams.gone().await;
    }
}

/// The whole API over a broker.
pub fn router(app: App) -> Router {
    let authenticated = middleware::from_fn_with_state(app.clone(), auth::authenticate);
    Router::new()
        .merge(routes().layer(authenticated))
        .route("/healthz", get(async || "ok\n"))
        .route("/readyz", get(async || "ok\n"))
        .fallback(async || Problem::new(ErrorCode::NotFound, "there is no such route; see the README"))
        .method_not_allowed_fallback(async || {
            Problem::new(ErrorCode::MethodNotAllowed, "this route does not take this method")
        })
        .layer(middleware::from_fn(finish))
        .with_state(app)
}

fn routes() -> Router<App> {
    Router::new()
        .route("/v1/topics", get(topics::list))
        .route("/v1/topics/{topic}", put(topics::put).get(topics::get).delete(topics::delete))
        .route("/v1/topics/{topic}/messages", post(publish::publish).get(browse::browse))
        .route("/v1/messages/{id}", get(messages::get))
        .route("/v1/subscriptions", get(subscriptions::list))
        .route(
            "/v1/subscriptions/{subscription}",
            put(subscriptions::put)
                .patch(subscriptions::patch)
                .get(subscriptions::get)
                .delete(subscriptions::delete),
        )
        .route("/v1/subscriptions/{subscription}/pull", post(pull::pull))
        .route("/v1/subscriptions/{subscription}/ack", post(settle::ack))
        .route("/v1/subscriptions/{subscription}/nack", post(settle::nack))
        .route("/v1/subscriptions/{subscription}/release", post(settle::release))
        .route("/v1/subscriptions/{subscription}/extend", post(settle::extend))
        .route("/v1/subscriptions/{subscription}/messages", get(browse::peek))
        .route("/v1/subscriptions/{subscription}/pause", post(control::pause))
        .route("/v1/subscriptions/{subscription}/resume", post(control::resume))
        .route("/v1/subscriptions/{subscription}/seek", post(control::seek))
        .route("/v1/subscriptions/{subscription}/purge", post(control::purge))
        .route("/v1/subscriptions/{subscription}/policy", put(policies::put).get(policies::get))
        .route("/v1/subscriptions/{subscription}/policy/params", put(policies::put_params))
        .route("/v1/subscriptions/{subscription}/policy/revisions", get(policies::revisions))
        .route("/v1/subscriptions/{subscription}/policy/rollback", post(policies::rollback))
        .route("/v1/subscriptions/{subscription}/policy/failures", get(failures::list))
        .route("/v1/subscriptions/{subscription}/policy/failures/{number}/fixture", get(failures::fixture))
        .route("/v1/subscriptions/{subscription}/policy/simulate", post(simulate::simulate))
        .route("/v1/subscriptions/{subscription}/policy/backtest", post(backtest::backtest))
        .route(
            "/v1/subscriptions/{subscription}/policy/shadow",
            put(shadow::put).get(shadow::get).delete(shadow::delete),
        )
        .route("/v1/events", get(events::listen))
        .route("/v1/dead-letters", get(dead_letters::list))
        .route("/v1/dead-letters/facets", get(dead_letters::facets))
        .route("/v1/dead-letters/jobs", get(jobs::list).post(jobs::plan))
        .route("/v1/dead-letters/jobs/{job}", get(jobs::get))
        .route("/v1/dead-letters/jobs/{job}/start", post(jobs::start))
        .route("/v1/dead-letters/jobs/{job}/abort", post(jobs::abort))
        .route("/v1/dead-letters/{id}", get(dead_letters::get).delete(dead_letters::discard))
        .route("/v1/dead-letters/{id}/replay", post(dead_letters::replay))
        .route("/v1/subscriptions/{subscription}/stream", get(stream::consume))
        .route("/v1/topics/{topic}/stream", get(stream::publish))
        .route("/v1/realms", get(realms::list))
        .route("/v1/realms/{realm}", put(realms::put).get(realms::get).delete(realms::delete))
        .route("/v1/tokens", post(tokens::create).get(tokens::list))
        .route("/v1/tokens/{id}", get(tokens::get).patch(tokens::patch).delete(tokens::delete))
        .route("/v1/tokens/{id}/rotate", post(tokens::rotate))
        .route("/v1/audit", get(audit::list))
}

/// A client that asks whether to send (`Expect`) has not begun: its body is not touched before a handler wants it.
fn readable(request: Request) -> Request {
    if request.headers().contains_key(header::EXPECT) {
        request
    } else {
        request.map(|body| Body::new(leftover::Drained::new(body)))
    }
}

/// What the log may tell of a request: nothing that a client chose.
struct Asked {
    method: Method,
    /// As the list of routes has it, without names; none where there is no such route.
    route: Option<MatchedPath>,
}

impl Asked {
    fn of(request: &Request) -> Self {
        let route = request.extensions().get::<MatchedPath>().cloned();
        Self { method: request.method().clone(), route }
    }

    fn was_refused(&self, request_id: &str, code: ErrorCode) {
        // Any other may be any word.
        let known = [Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE];
        let method = if known.contains(&self.method) { self.method.as_str() } else { "" };
        let route = self.route.as_ref().map_or("", MatchedPath::as_str);
        tracing::debug!(
            request_id,
            method,
            route,
            status = code.status().as_u16(),
            code = code.as_str(),
            "refused"
        );
    }
}

/// Gives every answer a request id, and a problem its body.
async fn finish(request: Request, next: Next) -> Response {
    static REQUESTS: AtomicU64 = AtomicU64::new(1);
    let id = format!("{:08x}-{:x}", std::process::id(), REQUESTS.fetch_add(1, Ordering::Relaxed));
    let asked = Asked::of(&request);
    let mut response = next.run(readable(request)).await;
    if let Some(problem) = response.extensions_mut().remove::<Problem>() {
        if problem.code == ErrorCode::Internal {
            tracing::error!(request_id = %id, detail = problem.detail.as_str(), "internal error");
        }
        asked.was_refused(&id, problem.code);
        let body = problem.body(&id);
        response.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(body.len()));
        *response.body_mut() = Body::from(body);
    } else if response.status().is_client_error()
        && response.headers().get(header::CONTENT_TYPE).is_none_or(|it| it.as_bytes().starts_with(b"text/"))
    {
        // An extractor of the framework said no: it speaks like the rest of the API.
        let problem = Problem::new(ErrorCode::InvalidQuery, "the path or query of the request is malformed");
        asked.was_refused(&id, problem.code);
        let body = problem.body(&id);
        response = problem.into_response();
        *response.body_mut() = Body::from(body);
    }
    if let Ok(value) = HeaderValue::from_str(&id) {
        response.headers_mut().insert("x-request-id", value);
    }
    response
}
