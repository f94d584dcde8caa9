//! Every error that a client can be given: its code, status, and whether trying again can help.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use crate::engine::{Refusal, SettleError};
use crate::policy;

/// What went wrong, as programs see it. Codes are stable; the texts beside them are not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ErrorCode {
    /// A batch is empty, or has more items or bytes than are allowed.
    BatchSize,
    /// The body is larger than this route takes.
    BodyTooLarge,
    /// There is no such dead letter.
    DeadLetterNotFound,
    /// The id of the publisher's was given to a message with another payload.
    DedupConflict,
    /// The filter of a job is empty, and the request does not say that all are meant.
    FilterRequired,
    /// The token lacks the scope that this needs.
    Forbidden,
    /// The disk has less room than the broker leaves free.
    InsufficientStorage,
    /// The broker failed; its log says how.
    Internal,
    /// An attribute's name or value, or their number, is not allowed.
    InvalidAttribute,
    /// The body is not what this route takes: syntax, an unknown field, a wrong type.
    InvalidBody,
    /// The event is not one of CloudEvents 1.0.
    InvalidCloudevent,
    /// The list cursor is not one that this broker gave out.
    InvalidCursor,
    /// A duration is malformed, negative, or out of bounds.
    InvalidDuration,
    /// The text of a filter cannot be read; the detail says where.
    InvalidFilter,
    /// A header is malformed or unknown.
    InvalidHeader,
    /// The id is not of the kind asked for.
    InvalidId,
    /// A message's key, content type or payload is not allowed.
    InvalidMessage,
    /// A name has characters or a length that names may not have.
    InvalidName,
    /// The policy refuses its parameters.
    InvalidParams,
    /// The upload is not a policy; `reason` says why.
    InvalidPolicy,
    /// A query parameter is malformed or unknown.
    InvalidQuery,
    /// The receipt is not one of this subscription.
    InvalidReceipt,
    /// The scenario of a simulation cannot be read.
    InvalidScenario,
    /// The schema of a topic is none, or costs more than is allowed.
    InvalidSchema,
    /// A setting is out of its bounds.
    InvalidSetting,
    /// There is no such job.
    JobNotFound,
    /// The job does not stand so that this can be done.
    JobState,
    /// There can be no more of these.
    LimitReached,
    /// The lease cannot be extended that far.
    MaxLeaseExceeded,
    /// There is no such message, or it is gone.
    MessageNotFound,
    /// The payload is larger than the topic takes.
    MessageTooLarge,
    /// The route exists, but not with this method.
    MethodNotAllowed,
    /// No healthy revision is older than the active one.
    NoEarlierRevision,
    /// A live subscription has no position and nothing outstanding.
    NotForLive,
    /// There is no such route.
    NotFound,
    /// No failure is recorded that a backtest could run over.
    NothingRecorded,
    /// The message of the dead letter is outstanding again, after a seek.
    Outstanding,
    /// Another policy became active while parameters were checked.
    PolicyChanged,
    /// The upload is larger than a policy may be.
    PolicyTooLarge,
    /// The topic or the realm keeps as much as it may.
    QuotaExceeded,
    /// The token or its realm asks more often than it may.
    RateLimited,
    /// The realm still has topics, or is the default one.
    RealmInUse,
    /// There is no such realm.
    RealmNotFound,
    /// There is no such recorded failure, or it is gone.
    RecordNotFound,
    /// The request did not arrive in time.
    RequestTimeout,
    /// The subscription has no such revision.
    RevisionNotFound,
    /// The revision was taken out of service after too many faults.
    RevisionQuarantined,
    /// The schema of the topic changed again and again while messages were checked.
    SchemaChanged,
    /// The payload does not follow the schema of its topic.
    SchemaViolation,
    /// The shadow would be what is active: the same module with the same parameters.
    ShadowIsActive,
    /// The subscription has no shadow.
    ShadowNotFound,
    /// The broker is shutting down.
    ShuttingDown,
    /// The lease of the receipt is over.
    StaleReceipt,
    /// There is no such subscription.
    SubscriptionNotFound,
    /// The realm has a token of this name already.
    TokenExists,
    /// There is no such token.
    TokenNotFound,
    /// Too many wrong tokens came from this address.
    TooManyFailedLogins,
    /// Too many clients listen to events.
    TooManyListeners,
    /// Too many streams are open.
    TooManyStreams,
    /// Too many simulations and backtests wait already.
    TooManyTrials,
    /// Too many pulls wait on the subscription.
    TooManyWaiters,
    /// The subscription reads another topic.
    TopicDiffers,
    /// The topic has subscriptions.
    TopicInUse,
    /// There is no such topic.
    TopicNotFound,
    /// The token is missing or wrong.
    Unauthorized,
    /// The body's media type is not one that this route takes.
    UnsupportedMediaType,
    /// The route is a WebSocket, and the request does not ask for one.
    UpgradeRequired,
}

impl ErrorCode {
    /// The code on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::BatchSize => "batch_size",
            Self::BodyTooLarge => "body_too_large",
            Self::DeadLetterNotFound => "dead_letter_not_found",
            Self::DedupConflict => "dedup_conflict",
            Self::FilterRequired => "filter_required",
            Self::Forbidden => "forbidden",
            Self::InsufficientStorage => "insufficient_storage",
            Self::Internal => "internal",
            Self::InvalidAttribute => "invalid_attribute",
            Self::InvalidBody => "invalid_body",
            Self::InvalidCloudevent => "invalid_cloudevent",
            Self::InvalidCursor => "invalid_cursor",
            Self::InvalidDuration => "invalid_duration",
            Self::InvalidFilter => "invalid_filter",
            Self::InvalidHeader => "invalid_header",
            Self::InvalidId => "invalid_id",
            Self::InvalidMessage => "invalid_message",
            Self::InvalidName => "invalid_name",
            Self::InvalidParams => "invalid_params",
            Self::InvalidPolicy => "invalid_policy",
            Self::InvalidQuery => "invalid_query",
            Self::InvalidReceipt => "invalid_receipt",
            Self::InvalidScenario => "invalid_scenario",
            Self::InvalidSchema => "invalid_schema",
            Self::InvalidSetting => "invalid_setting",
            Self::JobNotFound => "job_not_found",
            Self::JobState => "job_state",
            Self::LimitReached => "limit_reached",
            Self::MaxLeaseExceeded => "max_lease_exceeded",
            Self::MessageNotFound => "message_not_found",
            Self::MessageTooLarge => "message_too_large",
            Self::MethodNotAllowed => "method_not_allowed",
            Self::NoEarlierRevision => "no_earlier_revision",
            Self::NotForLive => "not_for_live",
            Self::NotFound => "not_found",
            Self::NothingRecorded => "nothing_recorded",
            Self::Outstanding => "outstanding",
            Self::PolicyChanged => "policy_changed",
            Self::PolicyTooLarge => "policy_too_large",
            Self::QuotaExceeded => "quota_exceeded",
            Self::RateLimited => "rate_limited",
            Self::RealmInUse => "realm_in_use",
            Self::RealmNotFound => "realm_not_found",
            Self::RecordNotFound => "record_not_found",
            Self::RequestTimeout => "request_timeout",
            Self::RevisionNotFound => "revision_not_found",
            Self::RevisionQuarantined => "revision_quarantined",
            Self::SchemaChanged => "schema_changed",
            Self::SchemaViolation => "schema_violation",
            Self::ShadowIsActive => "shadow_is_active",
            Self::ShadowNotFound => "shadow_not_found",
            Self::ShuttingDown => "shutting_down",
            Self::StaleReceipt => "stale_receipt",
            Self::SubscriptionNotFound => "subscription_not_found",
            Self::TokenExists => "token_exists",
            Self::TokenNotFound => "token_not_found",
            Self::TooManyFailedLogins => "too_many_failed_logins",
            Self::TooManyListeners => "too_many_listeners",
            Self::TooManyStreams => "too_many_streams",
            Self::TooManyTrials => "too_many_trials",
            Self::TooManyWaiters => "too_many_waiters",
            Self::TopicDiffers => "topic_differs",
            Self::TopicInUse => "topic_in_use",
            Self::TopicNotFound => "topic_not_found",
            Self::Unauthorized => "unauthorized",
            Self::UnsupportedMediaType => "unsupported_media_type",
            Self::UpgradeRequired => "upgrade_required",
        }
    }

    /// The status of an answer that is this error.
    pub const fn status(self) -> StatusCode {
        match self {
            Self::BatchSize
            | Self::FilterRequired
            | Self::InvalidAttribute
            | Self::InvalidBody
            | Self::InvalidCloudevent
            | Self::InvalidCursor
            | Self::InvalidDuration
            | Self::InvalidHeader
            | Self::InvalidId
            | Self::InvalidMessage
            | Self::InvalidName
            | Self::InvalidQuery
            | Self::InvalidReceipt
            | Self::InvalidScenario => StatusCode::BAD_REQUEST,
            Self::Unauthorized => StatusCode::UNAUTHORIZED,
            Self::Forbidden => StatusCode::FORBIDDEN,
            Self::DeadLetterNotFound
            | Self::JobNotFound
            | Self::MessageNotFound
            | Self::NotFound
            | Self::RealmNotFound
            | Self::RecordNotFound
            | Self::RevisionNotFound
            | Self::ShadowNotFound
            | Self::SubscriptionNotFound
            | Self::TokenNotFound
            | Self::TopicNotFound => StatusCode::NOT_FOUND,
            Self::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Self::RequestTimeout => StatusCode::REQUEST_TIMEOUT,
            Self::DedupConflict
            | Self::JobState
            | Self::LimitReached
            | Self::MaxLeaseExceeded
            | Self::NoEarlierRevision
            | Self::NotForLive
            | Self::NothingRecorded
            | Self::Outstanding
            | Self::PolicyChanged
            | Self::RealmInUse
            | Self::RevisionQuarantined
            | Self::SchemaChanged
            | Self::ShadowIsActive
            | Self::StaleReceipt
            | Self::TokenExists
            | Self::TopicDiffers
            | Self::TopicInUse => StatusCode::CONFLICT,
            Self::BodyTooLarge | Self::MessageTooLarge | Self::PolicyTooLarge => {
                StatusCode::PAYLOAD_TOO_LARGE
            }
            Self::UnsupportedMediaType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::InvalidFilter
            | Self::InvalidParams
            | Self::InvalidPolicy
            | Self::InvalidSchema
            | Self::InvalidSetting
            | Self::SchemaViolation => StatusCode::UNPROCESSABLE_ENTITY,
            Self::QuotaExceeded
            | Self::RateLimited
            | Self::TooManyFailedLogins
            | Self::TooManyListeners
            | Self::TooManyStreams
            | Self::TooManyTrials
            | Self::TooManyWaiters => StatusCode::TOO_MANY_REQUESTS,
            Self::UpgradeRequired => StatusCode::UPGRADE_REQUIRED,
            Self::InsufficientStorage => StatusCode::INSUFFICIENT_STORAGE,
            Self::Internal => StatusCode::INTERNAL_SERVER_ERROR,
            Self::ShuttingDown => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// Whether the broker has no room or no time for it now: the answer says when to try again.
    pub(super) fn is_for_now(self) -> bool {
        matches!(
            self.status(),
            StatusCode::TOO_MANY_REQUESTS
                | StatusCode::SERVICE_UNAVAILABLE
                | StatusCode::INSUFFICIENT_STORAGE
        )
    }

    /// Whether the same request can succeed later.
    pub const fn is_retryable(self) -> bool {
        matches!(
            self,
            Self::InsufficientStorage
                | Self::Internal
                | Self::PolicyChanged
                | Self::QuotaExceeded
                | Self::RateLimited
                | Self::RequestTimeout
                | Self::SchemaChanged
                | Self::ShuttingDown
                | Self::TooManyFailedLogins
                | Self::TooManyListeners
                | Self::TooManyStreams
                | Self::TooManyTrials
                | Self::TooManyWaiters
        )
    }
}

/// When to try again where it is only for now that the broker cannot: in seconds.
pub(super) const RETRY_AFTER: HeaderValue = HeaderValue::from_static("1");

/// An error on its way to a client: RFC 9457.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Problem {
    /// What went wrong.
    pub code: ErrorCode,
    /// What exactly, and what to do about it.
    pub detail: String,
    /// The kind of an invalid policy.
    pub reason: Option<&'static str>,
}

impl Problem {
    /// With a text for people.
    pub fn new(code: ErrorCode, detail: impl Into<String>) -> Self {
        Self { code, detail: detail.into(), reason: None }
    }

    /// As the body of an answer.
    pub fn body(&self, request_id: &str) -> String {
        let status = self.code.status();
        let body = Body {
            kind: "about:blank",
            title: status.canonical_reason().unwrap_or("Error"),
            status: status.as_u16(),
            code: self.code.as_str(),
            // What is inside the broker is for its log.
            detail: match self.code {
                ErrorCode::Internal => "the broker failed; its log says how, under this request id",
                _ => &self.detail,
            },
            reason: self.reason,
            retryable: self.code.is_retryable(),
            request_id,
        };
        serde_json::to_string(&body).unwrap_or_default()
    }
}

#[derive(Serialize)]
struct Body<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    title: &'a str,
    status: u16,
    code: &'a str,
    detail: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
    retryable: bool,
    request_id: &'a str,
}

/// The body follows in the outermost layer, which knows the request's id.
impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = self.code.status().into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if self.code.is_for_now() {
            headers.insert(header::RETRY_AFTER, RETRY_AFTER);
        }
        if self.code == ErrorCode::Unauthorized {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if self.code == ErrorCode::UpgradeRequired {
            headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
        }
        response.extensions_mut().insert(self);
        response
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        let code = match &refusal {
            Refusal::TopicNotFound(_) => ErrorCode::TopicNotFound,
            Refusal::SubscriptionNotFound(_) => ErrorCode::SubscriptionNotFound,
            Refusal::MessageNotFound => ErrorCode::MessageNotFound,
            Refusal::DeadLetterNotFound => ErrorCode::DeadLetterNotFound,
            Refusal::JobNotFound => ErrorCode::JobNotFound,
            Refusal::JobState(_) => ErrorCode::JobState,
            Refusal::ModuleNotFound => ErrorCode::Internal,
            Refusal::RevisionNotFound(_) => ErrorCode::RevisionNotFound,
            Refusal::NoEarlierRevision => ErrorCode::NoEarlierRevision,
            Refusal::RevisionQuarantined(_) => ErrorCode::RevisionQuarantined,
            Refusal::ShadowIsActive => ErrorCode::ShadowIsActive,
            Refusal::ShadowNotFound => ErrorCode::ShadowNotFound,
            Refusal::PolicyChanged => ErrorCode::PolicyChanged,
            Refusal::TopicInUse(_) | Refusal::TopicUnsettled(_) => ErrorCode::TopicInUse,
            Refusal::TopicNotRead { .. } => ErrorCode::TopicNotFound,
            Refusal::TopicDiffers { .. } => ErrorCode::TopicDiffers,
            Refusal::InvalidSetting(_) => ErrorCode::InvalidSetting,
            Refusal::MessageTooLarge { .. } => ErrorCode::MessageTooLarge,
            Refusal::LimitReached { .. } => ErrorCode::LimitReached,
            Refusal::TooManyWaiters(_) => ErrorCode::TooManyWaiters,
            Refusal::TooFarAhead => ErrorCode::InvalidDuration,
            Refusal::NotForLive(_) => ErrorCode::NotForLive,
            Refusal::Outstanding(_) => ErrorCode::Outstanding,
            Refusal::ShuttingDown => ErrorCode::ShuttingDown,
            Refusal::DedupConflict(_) => ErrorCode::DedupConflict,
            Refusal::SchemaDiffers(_) => ErrorCode::SchemaChanged,
            Refusal::InsufficientStorage => ErrorCode::InsufficientStorage,
            Refusal::TopicFull { .. } | Refusal::RealmFull { .. } => ErrorCode::QuotaExceeded,
            Refusal::RealmNotFound => ErrorCode::RealmNotFound,
            Refusal::RealmInUse(_) | Refusal::DefaultRealm => ErrorCode::RealmInUse,
            Refusal::TokenNotFound => ErrorCode::TokenNotFound,
            Refusal::TokenExists(_) => ErrorCode::TokenExists,
        };
        Self::new(code, refusal.to_string())
    }
}

impl From<SettleError> for Problem {
    fn from(error: SettleError) -> Self {
        let code = match error {
            SettleError::InvalidReceipt => ErrorCode::InvalidReceipt,
            SettleError::StaleReceipt => ErrorCode::StaleReceipt,
            SettleError::MaxLease { .. } => ErrorCode::MaxLeaseExceeded,
        };
        Self::new(code, error.to_string())
    }
}

impl From<policy::Refusal> for Problem {
    fn from(refusal: policy::Refusal) -> Self {
        let code = match &refusal {
            policy::Refusal::TooLarge { .. } => ErrorCode::PolicyTooLarge,
            policy::Refusal::Params(_) => ErrorCode::InvalidParams,
            policy::Refusal::System(_) => ErrorCode::Internal,
            policy::Refusal::Stopped => ErrorCode::ShuttingDown,
            _ => ErrorCode::InvalidPolicy,
        };
        Self { code, detail: refusal.to_string(), reason: Some(refusal.kind()) }
    }
}

/// An error of one item of a batch.
#[derive(Serialize, Clone, PartialEq, Eq, Debug)]
pub(super) struct ItemError {
    code: &'static str,
    detail: String,
    retryable: bool,
}

impl From<Problem> for ItemError {
    fn from(problem: Problem) -> Self {
        let Problem { code, detail, .. } = problem;
        Self { code: code.as_str(), detail, retryable: code.is_retryable() }
    }
}
