//! A blocking client of the HTTP API.

use std::time::Duration;

use reqwest::Method;
use reqwest::blocking::RequestBuilder;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use serde::Deserialize;
use serde_json::{Value, json};

use super::PATIENCE;

/// Speaks to one broker.
#[derive(Clone)]
pub(crate) struct Client {
    address: String,
    http: reqwest::blocking::Client,
}

/// What came back.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    /// The body as JSON.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        match serde_json::from_slice(&self.body) {
            Ok(value) => value,
            Err(error) => panic!("{}: not JSON ({error}): {}", self.status, self.text()),
        }
    }

    /// The body as JSON, of an answer with this status.
    #[track_caller]
    pub(crate) fn expect(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.text());
        if self.body.is_empty() { Value::Null } else { self.json() }
    }

    /// Status and code of a problem, whose form is checked.
    #[track_caller]
    pub(crate) fn problem(&self) -> (u16, String) {
        let text = self.text();
        assert!(self.status >= 400, "{}: no problem: {text}", self.status);
        let media_type = self.headers.get("content-type").expect("a problem has a media type");
        assert_eq!(media_type, "application/problem+json", "{}: {text}", self.status);
        let body = self.json();
        assert_eq!(body["status"], self.status, "{text}");
        assert!(body["title"].is_string() && body["detail"].is_string(), "{text}");
        assert!(body["type"].is_string() && body["retryable"].is_boolean(), "{text}");
        let request_id = self.headers.get("x-request-id").and_then(|value| value.to_str().ok());
        assert_eq!(body["request_id"].as_str(), request_id, "{text}");
        assert!(request_id.is_some_and(|id| !id.is_empty()), "{text}");
        (self.status, body["code"].as_str().expect("a problem has a code").to_owned())
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }
}

/// One delivery of a pull.
#[derive(Deserialize, Clone, PartialEq, Debug)]
#[serde(deny_unknown_fields)]
pub(crate) struct Delivery {
    /// Empty where it was settled as it was handed out.
    #[serde(default)]
    pub(crate) receipt: String,
    pub(crate) attempt: u64,
    pub(crate) failures: u64,
    pub(crate) redelivered: bool,
    #[serde(default)]
    pub(crate) lease_until: String,
    pub(crate) message: Value,
}

impl Delivery {
    /// The id of its message.
    pub(crate) fn id(&self) -> &str {
        self.message["id"].as_str().expect("a message has an id")
    }
}

impl Client {
    pub(crate) fn new(address: &str) -> Self {
        let http = reqwest::blocking::Client::builder().no_proxy().timeout(3 * PATIENCE).build();
        Self { address: address.to_owned(), http: http.expect("a client") }
    }

    /// The same broker, asked with this token.
    pub(crate) fn with_token(&self, token: &str) -> Self {
        self.with_headers(&[("authorization", &format!("Bearer {token}"))])
    }

    /// The same broker, asked with these headers.
    pub(crate) fn with_headers(&self, given: &[(&'static str, &str)]) -> Self {
        let headers = given.iter().map(|(name, value)| {
            (HeaderName::from_static(name), HeaderValue::from_str(value).expect("a header"))
        });
        let http = reqwest::blocking::Client::builder().no_proxy().timeout(3 * PATIENCE);
        let http = http.default_headers(headers.collect()).build().expect("a client");
        Self { address: self.address.clone(), http }
    }

    /// Host and port.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// A request to be completed by hand.
    pub(crate) fn request(&self, method: &str, path: &str) -> RequestBuilder {
        let method = Method::from_bytes(method.as_bytes()).expect("a method");
        self.http.request(method, format!("http://{}{path}", self.address))
    }

    #[track_caller]
    pub(crate) fn send(&self, request: RequestBuilder) -> Answer {
        let response = request.send().expect("the broker answers");
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let body = response.bytes().expect("the body arrives").to_vec();
        Answer { status, headers, body }
    }

    #[track_caller]
    pub(crate) fn get(&self, path: &str) -> Answer {
        self.send(self.request("GET", path))
    }

    #[track_caller]
    pub(crate) fn delete(&self, path: &str) -> Answer {
        self.send(self.request("DELETE", path))
    }

    #[track_caller]
    pub(crate) fn put(&self, path: &str, body: &Value) -> Answer {
        self.send(self.request("PUT", path).json(body))
    }

    #[track_caller]
    pub(crate) fn patch(&self, path: &str, body: &Value) -> Answer {
        self.send(self.request("PATCH", path).json(body))
    }

    #[track_caller]
    pub(crate) fn post(&self, path: &str, body: &Value) -> Answer {
        self.send(self.request("POST", path).json(body))
    }

    /// A topic with default settings.
    #[track_caller]
    pub(crate) fn topic(&self, name: &str) -> Value {
        self.put(&format!("/v1/topics/{name}"), &json!({})).expect(201)
    }

    /// A new subscription of a topic.
    #[track_caller]
    pub(crate) fn subscribe(&self, name: &str, topic: &str, mut settings: Value) -> Value {
        settings["topic"] = json!(topic);
        self.put(&format!("/v1/subscriptions/{name}"), &settings).expect(201)
    }

    /// A topic `t` with a subscription `s`.
    #[track_caller]
    pub(crate) fn topic_and_subscription(&self, settings: Value) {
        self.topic("t");
        self.subscribe("s", "t", settings);
    }

    #[track_caller]
    pub(crate) fn change(&self, subscription: &str, settings: &Value) -> Value {
        self.patch(&format!("/v1/subscriptions/{subscription}"), settings).expect(200)
    }

    #[track_caller]
    pub(crate) fn subscription(&self, name: &str) -> Value {
        self.get(&format!("/v1/subscriptions/{name}")).expect(200)
    }

    /// Publishes one message and gives its id.
    #[track_caller]
    pub(crate) fn publish(&self, topic: &str, payload: &Value) -> String {
        self.publish_with(topic, json!({ "payload": payload }))
    }

    /// The same with other fields beside the payload.
    #[track_caller]
    pub(crate) fn publish_with(&self, topic: &str, message: Value) -> String {
        let path = format!("/v1/topics/{topic}/messages");
        let answer = self.post(&path, &json!({ "messages": [message] })).expect(201);
        answer["items"][0]["id"].as_str().unwrap_or_else(|| panic!("not accepted: {answer}")).to_owned()
    }

    #[track_caller]
    pub(crate) fn pull(&self, subscription: &str, max: usize, wait: Duration) -> Vec<Delivery> {
        let body = json!({ "max": max, "wait": humantime::format_duration(wait).to_string() });
        let mut answer = self.post(&format!("/v1/subscriptions/{subscription}/pull"), &body).expect(200);
        serde_json::from_value(answer["deliveries"].take()).expect("deliveries have their shape")
    }

    /// The next delivery, waited for.
    #[track_caller]
    pub(crate) fn next(&self, subscription: &str) -> Delivery {
        let mut pulled = self.pull(subscription, 1, PATIENCE);
        assert_eq!(pulled.len(), 1, "nothing is delivered on {subscription}");
        pulled.remove(0)
    }

    /// What can be delivered at once, one or nothing.
    #[track_caller]
    pub(crate) fn poll(&self, subscription: &str) -> Option<Delivery> {
        self.pull(subscription, 1, Duration::ZERO).pop()
    }

    #[track_caller]
    pub(crate) fn ack(&self, subscription: &str, receipt: &str) -> Value {
        self.settle(subscription, "ack", &json!({ "receipts": [receipt] }))
    }

    /// Nacks with a class; gives the item's answer.
    #[track_caller]
    pub(crate) fn nack(&self, subscription: &str, receipt: &str, class: &str) -> Value {
        self.nack_with(subscription, receipt, json!({ "class": class }))
    }

    #[track_caller]
    pub(crate) fn nack_with(&self, subscription: &str, receipt: &str, mut item: Value) -> Value {
        item["receipt"] = json!(receipt);
        self.settle(subscription, "nack", &json!({ "items": [item] }))
    }

    #[track_caller]
    pub(crate) fn release(&self, subscription: &str, receipt: &str) -> Value {
        self.settle(subscription, "release", &json!({ "receipts": [receipt] }))
    }

    #[track_caller]
    pub(crate) fn extend(&self, subscription: &str, receipt: &str, lease: &str) -> Value {
        self.settle(subscription, "extend", &json!({ "items": [{ "receipt": receipt, "lease": lease }] }))
    }

    /// One item of a settlement.
    #[track_caller]
    fn settle(&self, subscription: &str, verb: &str, body: &Value) -> Value {
        let mut answer = self.post(&format!("/v1/subscriptions/{subscription}/{verb}"), body).expect(200);
        assert_eq!(answer["items"].as_array().map(Vec::len), Some(1), "{answer}");
        answer["items"][0].take()
    }

    #[track_caller]
    pub(crate) fn message(&self, id: &str) -> Value {
        self.get(&format!("/v1/messages/{id}")).expect(200)
    }

    /// What became of a message on its topic's only subscription.
    #[track_caller]
    pub(crate) fn delivery_of(&self, id: &str) -> Value {
        let mut message = self.message(id);
        assert_eq!(message["deliveries"].as_array().map(Vec::len), Some(1), "{message}");
        message["deliveries"][0].take()
    }

    #[track_caller]
    pub(crate) fn dead_letters(&self, subscription: &str) -> Vec<Value> {
        let mut answer = self.get(&format!("/v1/dead-letters?subscription={subscription}")).expect(200);
        serde_json::from_value(answer["items"].take()).expect("dead letters are a list")
    }

    #[track_caller]
    pub(crate) fn dead_letter(&self, id: &str) -> Value {
        self.get(&format!("/v1/dead-letters/{id}")).expect(200)
    }

    /// Uploads a policy with its parameters as JSON text.
    #[track_caller]
    pub(crate) fn upload(&self, subscription: &str, module: &[u8], params: Option<&str>) -> Answer {
        let request = self.request("PUT", &format!("/v1/subscriptions/{subscription}/policy"));
        let request = request.header("content-type", "application/wasm").body(module.to_vec());
        self.send(match params {
            Some(params) => request.header("broker-policy-params", params),
            None => request,
        })
    }

    /// Publishes a message on `t`, pulls it on `s` and nacks it with this item; gives its id and the decision.
    #[track_caller]
    pub(crate) fn fail_one(&self, item: Value) -> (String, Value) {
        let id = self.publish("t", &json!(1));
        let delivery = self.next("s");
        (id, self.nack_with("s", &delivery.receipt, item)["decision"].clone())
    }

    #[track_caller]
    pub(crate) fn revisions(&self, subscription: &str) -> Vec<Value> {
        let path = format!("/v1/subscriptions/{subscription}/policy/revisions");
        serde_json::from_value(self.get(&path).expect(200)["items"].take()).expect("revisions are a list")
    }

    /// All that a client can see of topics, subscriptions, revisions and dead letters.
    #[track_caller]
    pub(crate) fn everything(&self) -> Value {
        let subscriptions = self.get("/v1/subscriptions").expect(200);
        let names = subscriptions["items"].as_array().expect("a list").iter();
        let names = names.map(|item| item["name"].as_str().expect("a name").to_owned());
        let revisions: Vec<_> = names.map(|name| self.revisions(&name)).collect();
        json!({
            "topics": self.get("/v1/topics").expect(200),
            "dead_letters": self.get("/v1/dead-letters").expect(200),
            "revisions": revisions,
            "subscriptions": subscriptions,
        })
    }
}
