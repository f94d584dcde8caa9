//! `GET /v1/events`: what happens, as server-sent events.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use http_body_util::BodyExt as _;
use http_body_util::channel::{Channel, Sender};
use serde::Serialize;

use super::auth::{Caller, May, need};
use super::wire::WireTime;
use super::{App, ErrorCode, Problem};
use crate::domain::circuit::Circuit;
use crate::engine::{Event, EventKind};
use crate::feed::{Feed, MAX_LISTENERS};

/// How often a listener hears that the broker is still there.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

#[derive(Serialize)]
struct EventBody<'a> {
    at: WireTime,
    subscription: &'a str,
    #[serde(flatten)]
    kind: KindBody<'a>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum KindBody<'a> {
    Activated { revision: u32, digest: String, name: &'a str },
    Quarantined { revision: u32, fault: &'a str },
    Paused { until: WireTime, probes: u32, reason: &'a str },
    Probing { probes: u32, reason: &'a str },
    Resumed {},
}

pub(super) async fn listen(
    State(app): State<App>,
    caller: May<need::Look>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let full = || {
        let detail = format!("{MAX_LISTENERS} clients listen to events already");
        Problem::new(ErrorCode::TooManyListeners, detail)
    };
    let feed = app.broker.feed(caller.realm);
    let permit = feed.room().ok_or_else(full)?;
    let next = match headers.get("last-event-id") {
        Some(last) => last.to_str().ok().and_then(|last| behind(last, &feed)).unwrap_or(1).min(feed.next()),
        None => feed.next(),
    };
    let (sender, body) = Channel::<Bytes, Infallible>::new(1);
    tokio::spawn(tell(app, Caller::clone(&caller), feed, next, sender));
    // The place is given back as soon as the connection has gone, not when there is something to tell.
    let body = body.map_frame(move |frame| {
        _ = &permit;
        frame
    });
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream")),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
    ];
    Ok((headers, Body::new(body)).into_response())
}

/// The number behind that of an id; `None` if the id is of an earlier run of the broker, whose events are gone.
fn behind(id: &str, feed: &Feed) -> Option<u64> {
    let (begun, number) = id.split_once('-')?;
    let begun: u64 = begun.parse().ok()?;
    (begun == feed.begun().as_millis())
        .then(|| number.parse().ok().map(|number: u64| number.saturating_add(1)))?
}

async fn tell(app: App, caller: Caller, feed: Arc<Feed>, mut next: u64, mut sender: Sender<Bytes>) {
    // So that the head of the answer goes out at once.
    let mut chunk = ": events follow\n\n".to_owned();
    loop {
        if sender.send_data(std::mem::take(&mut chunk).into()).await.is_err() {
            return;
        }
        match tokio::time::timeout(KEEP_ALIVE, feed.from(next)).await {
            Err(_) => chunk.push_str(": still here\n\n"),
            Ok(None) => return,
            Ok(Some(heard)) => {
                // Whoever is let in no more hears no more.
                let Some(caller) = caller.by_now(&app) else { return };
                let among = caller.subscriptions();
                if heard.missed > 0 {
                    chunk.push_str(&format!("event: missed\ndata: {{\"count\":{}}}\n\n", heard.missed));
                }
                for (number, event) in &heard.events {
                    if among.allow(&event.subscription) {
                        write(&mut chunk, &feed, *number, event);
                    }
                    next = number + 1;
                }
            }
        }
    }
}

fn write(chunk: &mut String, feed: &Feed, number: u64, event: &Event) {
    let kind = match &event.kind {
        EventKind::PolicyActivated { revision, digest, name } => {
            KindBody::Activated { revision: *revision, digest: digest.to_string(), name }
        }
        EventKind::PolicyQuarantined { revision, fault } => {
            KindBody::Quarantined { revision: *revision, fault }
        }
        EventKind::Circuit(Circuit::Open { until, probes, reason }) => {
            KindBody::Paused { until: WireTime(*until), probes: *probes, reason }
        }
        EventKind::Circuit(Circuit::HalfOpen { probes, reason, .. }) => {
            KindBody::Probing { probes: *probes, reason }
        }
        EventKind::Circuit(Circuit::Closed) => KindBody::Resumed {},
    };
    let body = EventBody { at: WireTime(event.at), subscription: event.subscription.as_str(), kind };
    // JSON is one line, whatever is in it.
    let data = serde_json::to_string(&body).unwrap_or_default();
    let (begun, name) = (feed.begun().as_millis(), event.kind.as_str());
    chunk.push_str(&format!("id: {begun}-{number}\nevent: {name}\ndata: {data}\n\n"));
}
