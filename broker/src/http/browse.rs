//! Reading without taking: `GET /v1/topics/{t}/messages` and `GET /v1/subscriptions/{s}/messages`.

use axum::extract::{Path, State};
use axum::response::Response;
use serde::{Deserialize, Serialize};

use super::auth::{May, need};
use super::body::Format;
use super::messages::{DeliveryAnswer, delivery};
use super::query::{Asked, cursor, page};
use super::shape::{ListBody, MessageBody, PayloadAs, message_body};
use super::wire::moment;
use super::{App, ErrorCode, Problem};
use crate::domain::audit::Action;
use crate::domain::id::{MessageId, Sequence};
use crate::domain::settings::Start;
use crate::engine::{Browse, Command, Peek};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BrowseQuery {
    from_sequence: Option<Sequence>,
    from_time: Option<String>,
    #[serde(default)]
    payload_as: PayloadAs,
    limit: Option<usize>,
    cursor: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PeekQuery {
    #[serde(default)]
    payload_as: PayloadAs,
    limit: Option<usize>,
    cursor: Option<String>,
}

#[derive(Serialize)]
struct PeekedAnswer<'a> {
    #[serde(flatten)]
    message: MessageBody<'a>,
    delivery: DeliveryAnswer,
}

/// The messages that a topic holds, in the order they were published.
pub(super) async fn browse(
    State(app): State<App>,
    caller: May<need::Inspect>,
    Path(topic): Path<String>,
    Asked(query): Asked<BrowseQuery>,
    format: Format,
) -> Result<Response, Problem> {
    let from = match (query.from_sequence, &query.from_time) {
        (None, None) => Start::Earliest,
        (Some(sequence), None) => Start::Sequence(sequence),
        (None, Some(text)) => {
            let in_query = |problem| Problem { code: ErrorCode::InvalidQuery, ..problem };
            Start::Time(moment("from_time", text).map_err(in_query)?)
        }
        (Some(_), Some(_)) => {
            let detail = "give either from_sequence or from_time";
            return Err(Problem::new(ErrorCode::InvalidQuery, detail));
        }
    };
    let page = page(query.limit, query.cursor.as_deref(), |text| text.parse().ok())?;
    let request = Browse { topic: caller.topic(&topic)?, from, page };
    let payload_as = caller.shown(query.payload_as);
    let entry = caller.does(Action::PayloadRead, format!("messages of topic {}", request.topic));
    let command = |reply| Command::Browse(caller.realm, request, reply);
    let listed = match payload_as {
        PayloadAs::None => app.broker.call(command).await?,
        _ => app.broker.audited(entry, command).await?,
    };
    let next = listed.items.last().filter(|_| listed.more).map(|last| cursor(last.id.sequence));
    let items = listed.items.iter();
    let items = items.map(|it| message_body(it.id, &it.topic, &it.message, payload_as, format)).collect();
    Ok(format.ok(&ListBody { items, next }))
}

/// What a subscription has yet to settle, and how each stands, topic by topic in the order of each.
pub(super) async fn peek(
    State(app): State<App>,
    caller: May<need::Inspect>,
    Path(subscription): Path<String>,
    Asked(query): Asked<PeekQuery>,
    format: Format,
) -> Result<Response, Problem> {
    let page = page(query.limit, query.cursor.as_deref(), |text| MessageId::parse(text).ok())?;
    let request = Peek { subscription: caller.subscription(&subscription)?, page };
    let payload_as = caller.shown(query.payload_as);
    let entry =
        caller.does(Action::PayloadRead, format!("messages of subscription {}", request.subscription));
    let command = |reply| Command::Peek(caller.realm, request, reply);
    let peeks = match payload_as {
        PayloadAs::None => app.broker.call(command).await?,
        _ => app.broker.audited(entry, command).await?,
    };
    let items = peeks.items.iter().map(|peeked| {
        let it = &peeked.message;
        let message = message_body(it.id, &it.topic, &it.message, payload_as, format);
        PeekedAnswer { message, delivery: delivery(peeked.delivery.clone()) }
    });
    Ok(format.ok(&ListBody { items: items.collect(), next: peeks.next.map(cursor) }))
}
