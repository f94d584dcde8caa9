//! `POST /v1/subscriptions/{s}/pull`.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::Response;
use serde::{Deserialize, Serialize};

use super::auth::{Caller, May, need};
use super::body::{Format, Given};
use super::shape::{MessageBody, PayloadAs, message_body};
use super::wire::{GivenDuration, WireTime, optional};
use super::{App, ErrorCode, Problem};
use crate::domain::access::Scope;
use crate::domain::circuit::Circuit;
use crate::domain::failure::{Cause, Failure};
use crate::domain::id::RealmId;
use crate::domain::limits::{MAX_BATCH_ITEMS, MAX_CONSUMER_BYTES, MAX_PULL_BYTES};
use crate::domain::name::Name;
use crate::engine::{Command, Granted, Nack, Pull};
use crate::store::row::Paused;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PullBody {
    max: Option<usize>,
    wait: Option<GivenDuration>,
    #[serde(default)]
    payload_as: PayloadAs,
    consumer: Option<String>,
}

#[derive(Serialize)]
struct PullAnswer<'a> {
    deliveries: Vec<DeliveryAnswer<'a>>,
    /// Why there is nothing, where a policy or an operator paused the subscription.
    #[serde(skip_serializing_if = "Option::is_none")]
    paused: Option<PausedAnswer>,
}

#[derive(Serialize)]
struct PausedAnswer {
    #[serde(skip_serializing_if = "Option::is_none")]
    until: Option<WireTime>,
    #[serde(skip_serializing_if = "Option::is_none")]
    probes: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    by: Option<String>,
    reason: String,
}

#[derive(Serialize)]
pub(super) struct DeliveryAnswer<'a> {
    /// Absent where the delivery was settled as it was handed out.
    #[serde(skip_serializing_if = "Option::is_none")]
    receipt: Option<String>,
    attempt: u32,
    failures: u32,
    redelivered: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    lease_until: Option<WireTime>,
    message: MessageBody<'a>,
}

pub(super) async fn pull(
    State(app): State<App>,
    caller: May<need::Consume>,
    Path(subscription): Path<String>,
    format: Format,
    Given(body): Given<PullBody>,
) -> Result<Response, Problem> {
    let max = body.max.unwrap_or(1);
    if max == 0 || max > MAX_BATCH_ITEMS {
        return Err(Problem::new(ErrorCode::BatchSize, format!("max must be from 1 to {MAX_BATCH_ITEMS}")));
    }
    let request = Pull {
        subscription: caller.subscription(&subscription)?,
        max,
        wait: optional(body.wait.as_ref(), "wait")?.unwrap_or_default(),
        consumer: body.consumer.as_deref().map(consumer).transpose()?,
        max_bytes: MAX_PULL_BYTES,
    };
    let name = request.subscription.clone();
    let granted = app.broker.call(|reply| Command::Pull(caller.realm, request, reply)).await?;
    let may_still = |now: Caller| now.may(Scope::Consume) && now.subscriptions().allow(&name);
    if !caller.by_now(&app).is_some_and(may_still) {
        give_back(&app, caller.realm, name, &granted).await?;
        let detail = "the token was revoked or changed while the pull waited";
        return Err(Problem::new(ErrorCode::Unauthorized, detail));
    }
    let paused = if granted.is_empty() { paused(&app, caller.realm, name).await? } else { None };
    let deliveries = granted
        .iter()
        .map(|granted| delivery(&app, caller.realm, granted, body.payload_as, format))
        .collect();
    Ok(format.ok(&PullAnswer { deliveries, paused }))
}

/// Who was shut out while it waited gets nothing.
async fn give_back(
    app: &App,
    realm: RealmId,
    subscription: Name,
    granted: &[Granted],
) -> Result<(), Problem> {
    let items: Vec<_> =
        granted.iter().map(|granted| (granted.receipt, Failure::of(Cause::Released))).collect();
    if !items.is_empty() {
        let request = Nack { subscription, items };
        app.broker.call(|reply| Command::Nack(realm, request, reply)).await?;
    }
    Ok(())
}

async fn paused(app: &App, realm: RealmId, subscription: Name) -> Result<Option<PausedAnswer>, Problem> {
    let view = app.broker.call(|reply| Command::GetSubscription(realm, subscription, reply)).await?;
    if let Some(Paused { reason, by, .. }) = view.row.paused {
        return Ok(Some(PausedAnswer { until: None, probes: None, by: Some(by), reason }));
    }
    Ok(match view.cursor.circuit {
        Circuit::Open { until, probes, reason } => {
            Some(PausedAnswer { until: Some(WireTime(until)), probes: Some(probes), by: None, reason })
        }
        _ => None,
    })
}

/// The name that a consumer gives itself, so that it can be told from others.
pub(super) fn consumer(text: &str) -> Result<Arc<str>, Problem> {
    if text.is_empty() || text.len() > MAX_CONSUMER_BYTES {
        let detail = format!("consumer: 1 to {MAX_CONSUMER_BYTES} bytes");
        return Err(Problem::new(ErrorCode::InvalidName, detail));
    }
    Ok(text.into())
}

pub(super) fn delivery<'a>(
    app: &App,
    realm: RealmId,
    granted: &'a Granted,
    payload_as: PayloadAs,
    format: Format,
) -> DeliveryAnswer<'a> {
    DeliveryAnswer {
        receipt: granted.lease_until.map(|_| granted.receipt.seal(realm, app.broker.secret())),
        attempt: granted.receipt.attempt,
        failures: granted.failures,
        redelivered: granted.receipt.attempt > 1,
        lease_until: granted.lease_until.map(WireTime),
        message: message_body(granted.id, &granted.topic, &granted.message, payload_as, format),
    }
}
