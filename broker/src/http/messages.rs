//! `GET /v1/messages/{id}`: the message, and its timeline on each subscription.

use axum::extract::{Path, State};
use axum::response::Response;
use serde::Serialize;

use super::auth::{May, need};
use super::body::Format;
use super::query::Asked;
use super::shape::{HistoryBody, MessageBody, PayloadAs, history_body, message_body, queue_name};
use super::wire::WireTime;
use super::{App, ErrorCode, Problem};
use crate::domain::audit::Action;
use crate::domain::id::MessageId;
use crate::engine::{Command, DeliveryView, Refusal, Stands};
use crate::store::row::Ending;

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct MessageQuery {
    #[serde(default)]
    payload_as: PayloadAs,
}

#[derive(Serialize)]
struct MessageAnswer<'a> {
    #[serde(flatten)]
    message: MessageBody<'a>,
    deliveries: Vec<DeliveryAnswer>,
}

#[derive(Serialize)]
pub(super) struct DeliveryAnswer {
    subscription: String,
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    until: Option<WireTime>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dead_letter: Option<DeadLetterAnswer>,
    #[serde(skip_serializing_if = "Option::is_none")]
    timeline: Option<HistoryBody>,
}

#[derive(Serialize)]
struct DeadLetterAnswer {
    id: String,
    at: WireTime,
    #[serde(skip_serializing_if = "Option::is_none")]
    queue: Option<String>,
    reason: String,
}

pub(super) async fn get(
    State(app): State<App>,
    caller: May<need::Inspect>,
    Path(id): Path<String>,
    Asked(query): Asked<MessageQuery>,
    format: Format,
) -> Result<Response, Problem> {
    let id = MessageId::parse(&id)
        .map_err(|_| Problem::new(ErrorCode::InvalidId, "a message id is what publish and pull gave"))?;
    let view = app.broker.call(|reply| Command::GetMessage(caller.realm, id, reply)).await?;
    if !caller.topics().allow(&view.topic) {
        return Err(Refusal::MessageNotFound.into());
    }
    let payload_as = caller.shown(query.payload_as);
    if payload_as != PayloadAs::None {
        let entry = caller.does(Action::PayloadRead, id).with(view.topic.as_str());
        app.broker.call(|reply| Command::Audit(Box::new(entry), reply)).await?;
    }
    let among = caller.subscriptions();
    let deliveries = view.deliveries.into_iter().filter(|view| among.allow(&view.subscription));
    let answer = MessageAnswer {
        message: message_body(view.id, &view.topic, &view.message, payload_as, format),
        deliveries: deliveries.map(delivery).collect(),
    };
    Ok(format.ok(&answer))
}

pub(super) fn delivery(view: DeliveryView) -> DeliveryAnswer {
    let subscription = view.subscription.to_string();
    let (state, until, dead_letter) = match view.stands {
        Stands::NotSubscribed => ("not_subscribed", None, None),
        Stands::Filtered => ("filtered", None, None),
        Stands::Ready => ("ready", None, None),
        Stands::Delayed { until } => ("delayed", Some(until), None),
        Stands::Leased { until } => ("leased", Some(until), None),
        Stands::Deciding => ("deciding", None, None),
        Stands::Ended(ending) => (ending_name(ending), None, None),
        Stands::DeadLettered { id, at, queue, reason } => {
            let queue = queue.map(|queue| queue_name(&subscription, &queue));
            let letter = DeadLetterAnswer { id: id.to_string(), at: WireTime(at), queue, reason };
            ("dead_lettered", None, Some(letter))
        }
    };
    let timeline = view.delivery.map(|delivery| history_body(&subscription, delivery));
    DeliveryAnswer { subscription, state, until: until.map(WireTime), dead_letter, timeline }
}

const fn ending_name(ending: Ending) -> &'static str {
    match ending {
        Ending::Acked => "acked",
        Ending::Dropped => "dropped",
        Ending::Forwarded => "forwarded",
        Ending::Discarded => "discarded",
        Ending::DeadLettered => "dead_lettered",
    }
}
