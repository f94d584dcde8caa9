//! The kinds of work that are measured. Each counts only what was answered within the time.

use std::net::SocketAddr;
use std::pin::Pin;
use std::time::{Duration, Instant};

use bytes::Bytes;
use hdrhistogram::Histogram;
use hyper::Method;
use tokio::task::JoinSet;

use super::load::{
    Batch, Connection, Delivery, Message, Nack, Nacks, Pull, Pulled, Receipts, Result, Settled,
};
use crate::cli::serve::STANDARD;
use crate::domain::context::{Context, ContextMessage, Load, PastFailure};
use crate::domain::failure::{Cause, Failure};
use crate::domain::id::{MessageId, TopicId};
use crate::domain::name::Name;
use crate::domain::time::Timestamp;
use crate::policy::{Limits, Sandbox};

/// What was measured.
pub(super) struct Figures {
    /// Messages, deliveries or decisions.
    pub(super) per_second: f64,
    /// Of one request, or of one decision.
    pub(super) p50_micros: u64,
    /// Of one request, or of one decision.
    pub(super) p99_micros: u64,
}

/// One kind of work.
pub(super) struct Work {
    pub(super) name: &'static str,
    pub(super) run: fn(SocketAddr, Duration) -> Running,
}

type Running = Pin<Box<dyn Future<Output = Result<Figures>> + Send>>;

pub(super) const ALL: [Work; 6] = [
    Work { name: "publish, batches of 100", run: |a, t| Box::pin(publish(a, t, 16, 100)) },
    Work { name: "publish, single, 64 connections", run: |a, t| Box::pin(publish(a, t, 64, 1)) },
    Work { name: "pull + ack, batches of 100", run: |a, t| Box::pin(consume(a, t, 16, 100, 0)) },
    Work { name: "pull + ack, single, 64 connections", run: |a, t| Box::pin(consume(a, t, 64, 1, 0)) },
    Work { name: "fail twice then ack, batches of 100", run: |a, t| Box::pin(consume(a, t, 16, 100, 2)) },
    Work { name: "fail twice then ack, single, 64 conn.", run: |a, t| Box::pin(consume(a, t, 64, 1, 2)) },
];

const PAYLOAD: [u8; 256] = [b'x'; 256];
const TOPIC: &str = "/v1/topics/bench/messages";

async fn publish(address: SocketAddr, time: Duration, connections: usize, batch: usize) -> Result<Figures> {
    prepare(address).await?;
    let single = batch == 1;
    let body = Bytes::from(if single { PAYLOAD.to_vec() } else { encoded(batch)? });
    let media_type = if single { "application/octet-stream" } else { "application/msgpack" };
    let connections = open(address, connections).await?;
    let end = Instant::now() + time;
    let work =
        connections.into_iter().map(|connection| publisher(connection, end, media_type, body.clone(), batch));
    count(work.collect(), time).await
}

async fn publisher(
    mut connection: Connection,
    end: Instant,
    media_type: &'static str,
    body: Bytes,
    batch: usize,
) -> Result<Count> {
    let mut count = Count::new()?;
    while Instant::now() < end {
        let began = Instant::now();
        connection.send(Method::POST, TOPIC, media_type, body.clone()).await?;
        count.add(began, batch);
    }
    Ok(count)
}

/// Every delivery counts, whether it is acked or fails. The messages are published before.
async fn consume(
    address: SocketAddr,
    time: Duration,
    connections: usize,
    batch: usize,
    failures: u32,
) -> Result<Figures> {
    prepare(address).await?;
    fill(address, time, batch).await?;
    let connections = open(address, connections).await?;
    let end = Instant::now() + time;
    let work = connections.into_iter().map(|connection| consumer(connection, end, batch, failures));
    count(work.collect(), time).await
}

async fn consumer(mut connection: Connection, end: Instant, batch: usize, failures: u32) -> Result<Count> {
    let mut count = Count::new()?;
    while Instant::now() < end {
        let began = Instant::now();
        let pull = Pull { max: batch, wait: "100ms" };
        let pulled: Pulled = connection.post("/v1/subscriptions/bench/pull", &pull).await?;
        let deliveries = pulled.deliveries.len();
        let (bad, good): (Vec<_>, Vec<_>) =
            pulled.deliveries.into_iter().partition(|delivery| delivery.attempt <= failures);
        if !bad.is_empty() {
            let nack = |delivery: Delivery| Nack { receipt: delivery.receipt, class: "timeout" };
            let nacks = Nacks { items: bad.into_iter().map(nack).collect() };
            settled(connection.post("/v1/subscriptions/bench/nack", &nacks).await?)?;
        }
        if !good.is_empty() {
            let receipts = good.into_iter().map(|delivery| delivery.receipt).collect();
            settled(connection.post("/v1/subscriptions/bench/ack", &Receipts { receipts }).await?)?;
        }
        if deliveries > 0 {
            count.add(began, deliveries);
        }
    }
    Ok(count)
}

fn settled(answer: Settled) -> Result<()> {
    if answer.items.iter().any(|item| item.error.is_some()) {
        return Err("an item was refused".into());
    }
    Ok(())
}

/// A topic and a subscription whose policy retries at once.
async fn prepare(address: SocketAddr) -> Result<()> {
    let mut connection = Connection::open(address).await?;
    let json = "application/json";
    connection.send(Method::PUT, "/v1/topics/bench", json, Bytes::from_static(b"{}")).await?;
    let subscription = br#"{"topic":"bench","retry":{"delay":"0s","jitter":"none","max_attempts":100}}"#;
    connection.send(Method::PUT, "/v1/subscriptions/bench", json, Bytes::from_static(subscription)).await?;
    Ok(())
}

/// Publishes more than can be consumed in the time.
async fn fill(address: SocketAddr, time: Duration, batch: usize) -> Result<()> {
    let per_second = if batch == 1 { 40_000 } else { 300_000 };
    let messages = per_second * usize::try_from(time.as_secs().max(1))?;
    let body = Bytes::from(encoded(1_000)?);
    let mut connections = JoinSet::new();
    for _ in 0..4 {
        let (body, batches) = (body.clone(), messages / 4_000);
        connections.spawn(async move {
            let mut connection = Connection::open(address).await?;
            for _ in 0..batches {
                connection.send(Method::POST, TOPIC, "application/msgpack", body.clone()).await?;
            }
            Result::Ok(())
        });
    }
    while let Some(done) = connections.join_next().await {
        done??;
    }
    Ok(())
}

fn encoded(batch: usize) -> Result<Vec<u8>> {
    let messages = (0..batch).map(|_| Message { payload_base64: &PAYLOAD }).collect();
    Ok(rmp_serde::to_vec_named(&Batch { messages })?)
}

/// Up to a minute; what takes longer counts as one.
fn histogram() -> std::result::Result<Histogram<u64>, hdrhistogram::CreationError> {
    Histogram::new_with_bounds(1, 60_000_000, 3)
}

/// What one connection got done.
struct Count {
    items: usize,
    micros: Histogram<u64>,
}

impl Count {
    fn new() -> Result<Self> {
        Ok(Self { items: 0, micros: histogram()? })
    }

    fn add(&mut self, began: Instant, items: usize) {
        self.items += items;
        self.micros.saturating_record(u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX));
    }

    fn figures(&self, time: Duration) -> Figures {
        Figures {
            per_second: self.items as f64 / time.as_secs_f64(),
            p50_micros: self.micros.value_at_quantile(0.5),
            p99_micros: self.micros.value_at_quantile(0.99),
        }
    }
}

async fn open(address: SocketAddr, connections: usize) -> Result<Vec<Connection>> {
    let mut open = Vec::with_capacity(connections);
    for _ in 0..connections {
        open.push(Connection::open(address).await?);
    }
    Ok(open)
}

async fn count<F>(work: Vec<F>, time: Duration) -> Result<Figures>
where
    F: Future<Output = Result<Count>> + Send + 'static,
{
    let mut running: JoinSet<_> = work.into_iter().collect();
    let mut total = Count::new()?;
    while let Some(count) = running.join_next().await {
        let count = count??;
        total.items += count.items;
        total.micros.add(count.micros)?;
    }
    Ok(total.figures(time))
}

/// The standard policy on an ordinary failure, on one thread.
pub(super) fn decisions(time: Duration) -> std::result::Result<Figures, Box<dyn std::error::Error>> {
    let sandbox = Sandbox::new(Limits::default())?;
    let (program, _) = sandbox.admit(STANDARD, "{}")?;
    let context = context()?;
    let mut count = Count { items: 0, micros: histogram()? };
    let end = Instant::now() + time;
    while Instant::now() < end {
        let began = Instant::now();
        program.decide(&context).result?;
        count.add(began, 1);
    }
    Ok(count.figures(time))
}

fn context() -> std::result::Result<Context, Box<dyn std::error::Error>> {
    let now = Timestamp::from_millis(1_800_000_000_000);
    let past = |attempt| PastFailure {
        attempt,
        at: now,
        cause: Cause::Nacked,
        class: "timeout".to_owned(),
        delay: Some(Duration::from_secs(5)),
    };
    let attribute = |n: u32| (format!("attribute-{n}"), format!("value-{n}"));
    Ok(Context {
        subscription: Name::new("bench")?,
        topic: Name::new("bench")?,
        message: ContextMessage {
            id: MessageId { topic: TopicId(1), sequence: 1 },
            key: None,
            attributes: (0..4).map(attribute).collect(),
            content_type: None,
            size: PAYLOAD.len() as u64,
            published_at: now,
            expires_at: None,
            payload: None,
        },
        failure: Failure {
            class: "timeout".to_owned(),
            code: Some("504".to_owned()),
            detail: Some("upstream timed out".to_owned()),
            ..Failure::of(Cause::Nacked)
        },
        attempt: 4,
        failures: 4,
        releases: 0,
        replays: 0,
        history: (1..=3).map(past).collect(),
        first_leased_at: Some(now),
        now,
        seed: 42,
        params: r#"{"max_attempts":5,"delay":"5s"}"#.into(),
        memo: Vec::new(),
        load: Load::default(),
    })
}
