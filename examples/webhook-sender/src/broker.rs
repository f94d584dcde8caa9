//! The calls of the broker's HTTP API that a sender needs.

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use reqwest::blocking::{Client, RequestBuilder};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{Failure, SenderError, Webhook};

/// Longer than a pull waits.
const TIMEOUT: Duration = Duration::from_secs(90);
/// Payload bytes of one publish; the broker takes three times as many.
const BATCH_BYTES: usize = 256 * 1024;
/// Messages of one publish.
const BATCH: usize = 500;

/// A broker.
#[derive(Clone, Debug)]
pub struct Broker {
    http: Client,
    url: String,
    token: Option<String>,
}

/// A subscription and its policy.
#[derive(Clone, Copy, Debug)]
pub struct Setup<'a> {
    /// Where webhooks are published.
    pub topic: &'a str,
    /// Who delivers them.
    pub subscription: &'a str,
    /// How long a worker holds one: longer than a POST can take.
    pub lease: Duration,
    /// The policy, a wasm module.
    pub policy: &'a [u8],
    /// Its parameters, a JSON object.
    pub params: &'a str,
}

/// A webhook that is to be delivered now.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// Proof of the lease.
    pub receipt: String,
    /// The message, the same on each attempt.
    pub id: String,
    /// Which attempt this is, from 1.
    pub attempt: u32,
    /// What happened.
    pub event: String,
    /// The media type of the payload.
    pub content_type: String,
    /// The bytes that were published.
    pub payload: Vec<u8>,
}

#[derive(Deserialize)]
struct Items<T> {
    items: Vec<T>,
    next: Option<String>,
}

#[derive(Deserialize)]
struct Published {
    id: Option<String>,
    error: Option<Value>,
}

#[derive(Deserialize)]
struct Pulled {
    deliveries: Vec<PulledDelivery>,
}

#[derive(Deserialize)]
struct PulledDelivery {
    receipt: String,
    attempt: u32,
    message: PulledMessage,
}

#[derive(Deserialize)]
struct PulledMessage {
    id: String,
    attributes: BTreeMap<String, String>,
    content_type: Option<String>,
    payload_base64: String,
}

#[derive(Deserialize)]
struct Backlog {
    backlog: u64,
}

#[derive(Deserialize)]
struct DeadLetter {
    queue: Option<String>,
}

impl Broker {
    /// The broker at `url`. The token is not needed where it runs with `--no-auth`.
    ///
    /// # Errors
    /// If the system does not allow it.
    pub fn new(url: &str, token: Option<String>) -> Result<Self, SenderError> {
        let http = Client::builder().no_proxy().timeout(TIMEOUT).build()?;
        Ok(Self { http, url: url.trim_end_matches('/').to_owned(), token })
    }

    /// Makes the topic and the subscription, and binds the policy. Doing it again changes nothing.
    ///
    /// # Errors
    /// If the broker does not take them.
    pub fn prepare(&self, setup: Setup<'_>) -> Result<(), SenderError> {
        let Setup { topic, subscription, lease, policy, params } = setup;
        let topic_path = format!("/v1/topics/{topic}");
        let _: Value = self.send(&topic_path, self.http.put(self.at(&topic_path)).json(&json!({})))?;
        let path = format!("/v1/subscriptions/{subscription}");
        let settings = json!({"topic": topic, "lease": lease.as_secs_f64()});
        let _: Value = self.send(&path, self.http.put(self.at(&path)).json(&settings))?;
        let path = format!("{path}/policy");
        let upload = self.http.put(self.at(&path)).header("Content-Type", "application/wasm");
        let upload = upload.header("Broker-Policy-Params", params).body(policy.to_vec());
        let _: Value = self.send(&path, upload)?;
        Ok(())
    }

    /// Publishes webhooks in their exact bytes and gives back the ids of their messages, in order.
    ///
    /// # Errors
    /// If the broker does not take one of them.
    pub fn publish(&self, topic: &str, webhooks: &[Webhook]) -> Result<Vec<String>, SenderError> {
        let path = format!("/v1/topics/{topic}/messages");
        let mut ids = Vec::with_capacity(webhooks.len());
        let mut rest = webhooks;
        while !rest.is_empty() {
            let (batch, later) = rest.split_at(batch_size(rest));
            let messages: Vec<Value> = batch.iter().map(message).collect();
            let request = self.http.post(self.at(&path)).json(&json!({"messages": messages}));
            let answer: Items<Published> = self.send(&path, request)?;
            for Published { id, error } in answer.items {
                let refused = || SenderError::Refused {
                    path: path.clone(),
                    problem: error.unwrap_or_default().to_string(),
                };
                ids.push(id.ok_or_else(refused)?);
            }
            rest = later;
        }
        Ok(ids)
    }

    /// The next webhook to deliver; waits for one up to `wait`.
    ///
    /// # Errors
    /// If the broker does not answer.
    pub fn pull(&self, subscription: &str, wait: Duration) -> Result<Option<Delivery>, SenderError> {
        let path = format!("/v1/subscriptions/{subscription}/pull");
        let body = json!({"max": 1, "wait": wait.as_secs_f64(), "payload_as": "base64"});
        let pulled: Pulled = self.send(&path, self.http.post(self.at(&path)).json(&body))?;
        let Some(PulledDelivery { receipt, attempt, message }) = pulled.deliveries.into_iter().next() else {
            return Ok(None);
        };
        let PulledMessage { id, mut attributes, content_type, payload_base64 } = message;
        let payload = BASE64.decode(payload_base64);
        Ok(Some(Delivery {
            receipt,
            id,
            attempt,
            event: attributes.remove("event").unwrap_or_default(),
            content_type: content_type.unwrap_or_else(|| "application/octet-stream".to_owned()),
            payload: payload.map_err(|error| SenderError::Garbled(error.to_string()))?,
        }))
    }

    /// Says that a delivery is done.
    ///
    /// # Errors
    /// If the broker does not answer. A lease that ran out is no error: the webhook comes again.
    pub fn ack(&self, subscription: &str, receipt: &str) -> Result<(), SenderError> {
        let path = format!("/v1/subscriptions/{subscription}/ack");
        let body = json!({"receipts": [receipt]});
        let _: Value = self.send(&path, self.http.post(self.at(&path)).json(&body))?;
        Ok(())
    }

    /// Says how a delivery failed. What comes next is decided by the policy.
    ///
    /// # Errors
    /// As [`Broker::ack`].
    pub fn nack(&self, subscription: &str, receipt: &str, failure: &Failure) -> Result<(), SenderError> {
        let path = format!("/v1/subscriptions/{subscription}/nack");
        let item = json!({
            "receipt": receipt,
            "class": failure.class,
            "code": failure.code,
            "detail": failure.detail,
            "retry_after": failure.retry_after.map(|hint| hint.as_secs_f64()),
        });
        let _: Value = self.send(&path, self.http.post(self.at(&path)).json(&json!({"items": [item]})))?;
        Ok(())
    }

    /// Webhooks that are neither delivered nor given up.
    ///
    /// # Errors
    /// If the broker does not answer.
    pub fn backlog(&self, subscription: &str) -> Result<u64, SenderError> {
        let path = format!("/v1/subscriptions/{subscription}");
        let answer: Backlog = self.send(&path, self.http.get(self.at(&path)))?;
        Ok(answer.backlog)
    }

    /// How many webhooks were given up, by dead-letter queue.
    ///
    /// # Errors
    /// If the broker does not answer.
    pub fn dead_letters(&self, subscription: &str) -> Result<BTreeMap<String, u64>, SenderError> {
        let first = format!("/v1/dead-letters?subscription={subscription}");
        let mut queues = BTreeMap::new();
        let mut path = first.clone();
        loop {
            let page: Items<DeadLetter> = self.send(&path, self.http.get(self.at(&path)))?;
            for letter in page.items {
                *queues.entry(letter.queue.unwrap_or_else(|| "(default)".to_owned())).or_default() += 1;
            }
            match page.next {
                Some(cursor) => path = format!("{first}&cursor={cursor}"),
                None => return Ok(queues),
            }
        }
    }

    fn at(&self, path: &str) -> String {
        format!("{}{path}", self.url)
    }

    fn send<T: serde::de::DeserializeOwned>(
        &self,
        path: &str,
        request: RequestBuilder,
    ) -> Result<T, SenderError> {
        let request = match &self.token {
            Some(token) => request.bearer_auth(token),
            None => request,
        };
        let answer = request.send()?;
        if answer.status().is_success() {
            return answer.json().map_err(|error| SenderError::Garbled(format!("{error:?}")));
        }
        Err(SenderError::Refused { path: path.to_owned(), problem: answer.text()? })
    }
}

/// As JSON inside JSON a payload could be written anew on the way; in base64 it is what it is.
fn message(webhook: &Webhook) -> Value {
    json!({
        "payload_base64": BASE64.encode(webhook.payload()),
        "content_type": "application/json",
        "attributes": {"event": webhook.event},
    })
}

/// How many of these go into one publish: at least one.
fn batch_size(webhooks: &[Webhook]) -> usize {
    let mut bytes = 0;
    let fits = |webhook: &&Webhook| {
        bytes += webhook.payload().len();
        bytes <= BATCH_BYTES
    };
    webhooks.iter().take(BATCH).take_while(fits).count().max(1)
}
