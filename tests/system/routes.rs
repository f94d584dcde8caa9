//! Every route, with one request that it takes and one that it refuses. The list is compared with the broker's own.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::events::Listener;
use crate::support::{Answer, Broker, Delivery, Stream, policies};

/// What the requests below need: names, receipts and ids that exist.
struct World {
    broker: Broker,
    held: Vec<Delivery>,
    dead: Vec<String>,
    message: String,
}

type Ask = fn(&World) -> Answer;

/// A route, the status with a request that it takes, and status and code with one that it refuses.
struct Case(&'static str, (u16, Ask), (u16, &'static str, Ask));

const CASES: &[Case] = &[
    Case(
        "GET /v1/topics",
        (200, |w| w.broker.get("/v1/topics?limit=1")),
        (400, "invalid_query", |w| w.broker.get("/v1/topics?limit=0")),
    ),
    Case(
        "PUT /v1/topics/{topic}",
        (201, |w| w.broker.put("/v1/topics/new", &json!({ "keep_acked": "1h" }))),
        (400, "invalid_body", |w| w.broker.put("/v1/topics/new", &json!({ "retention": "1h" }))),
    ),
    Case(
        "GET /v1/topics/{topic}",
        (200, |w| w.broker.get("/v1/topics/t")),
        (404, "topic_not_found", |w| w.broker.get("/v1/topics/missing")),
    ),
    Case(
        "DELETE /v1/topics/{topic}",
        (204, |w| w.broker.delete("/v1/topics/unused")),
        (409, "topic_in_use", |w| w.broker.delete("/v1/topics/t")),
    ),
    Case(
        "POST /v1/topics/{topic}/messages",
        (201, |w| w.broker.post("/v1/topics/t/messages", &json!({ "messages": [{ "payload": 1 }] }))),
        (404, "topic_not_found", |w| {
            w.broker.post("/v1/topics/missing/messages", &json!({ "messages": [{ "payload": 1 }] }))
        }),
    ),
    Case(
        "GET /v1/messages/{id}",
        (200, |w| w.broker.get(&format!("/v1/messages/{}", w.message))),
        (400, "invalid_id", |w| w.broker.get("/v1/messages/one")),
    ),
    Case(
        "GET /v1/subscriptions",
        (200, |w| w.broker.get("/v1/subscriptions")),
        (400, "invalid_cursor", |w| w.broker.get("/v1/subscriptions?cursor=!")),
    ),
    Case(
        "PUT /v1/subscriptions/{subscription}",
        (201, |w| w.broker.put("/v1/subscriptions/other", &json!({ "topic": "t" }))),
        (404, "topic_not_found", |w| w.broker.put("/v1/subscriptions/third", &json!({ "topic": "missing" }))),
    ),
    Case(
        "PATCH /v1/subscriptions/{subscription}",
        (200, |w| w.broker.patch("/v1/subscriptions/s", &json!({ "lease": "40s" }))),
        (404, "subscription_not_found", |w| {
            w.broker.patch("/v1/subscriptions/missing", &json!({ "lease": "40s" }))
        }),
    ),
    Case(
        "GET /v1/subscriptions/{subscription}",
        (200, |w| w.broker.get("/v1/subscriptions/s")),
        (400, "invalid_name", |w| w.broker.get("/v1/subscriptions/-s")),
    ),
    Case(
        "DELETE /v1/subscriptions/{subscription}",
        (204, |w| w.broker.delete("/v1/subscriptions/unused")),
        (404, "subscription_not_found", |w| w.broker.delete("/v1/subscriptions/missing")),
    ),
    Case(
        "POST /v1/subscriptions/{subscription}/pull",
        (200, |w| w.broker.post("/v1/subscriptions/s/pull", &json!({ "max": 1 }))),
        (400, "batch_size", |w| w.broker.post("/v1/subscriptions/s/pull", &json!({ "max": 0 }))),
    ),
    Case(
        "POST /v1/subscriptions/{subscription}/ack",
        (200, |w| w.broker.post("/v1/subscriptions/s/ack", &json!({ "receipts": [w.held[0].receipt] }))),
        (400, "batch_size", |w| w.broker.post("/v1/subscriptions/s/ack", &json!({ "receipts": [] }))),
    ),
    Case(
        "POST /v1/subscriptions/{subscription}/nack",
        (200, |w| {
            let items = json!([{ "receipt": w.held[1].receipt, "class": "timeout" }]);
            w.broker.post("/v1/subscriptions/s/nack", &json!({ "items": items }))
        }),
        (400, "invalid_body", |w| {
            w.broker.post("/v1/subscriptions/s/nack", &json!({ "items": [{ "class": "timeout" }] }))
        }),
    ),
    Case(
        "POST /v1/subscriptions/{subscription}/release",
        (200, |w| w.broker.post("/v1/subscriptions/s/release", &json!({ "receipts": [w.held[2].receipt] }))),
        (404, "subscription_not_found", |w| {
            w.broker.post("/v1/subscriptions/missing/release", &json!({ "receipts": ["r"] }))
        }),
    ),
    Case(
        "POST /v1/subscriptions/{subscription}/extend",
        (200, |w| {
            let items = json!([{ "receipt": w.held[3].receipt, "lease": "1m" }]);
            w.broker.post("/v1/subscriptions/s/extend", &json!({ "items": items }))
        }),
        (400, "invalid_body", |w| w.broker.post("/v1/subscriptions/s/extend", &json!({ "items": {} }))),
    ),
    Case(
        "GET /v1/topics/{topic}/messages",
        (200, |w| w.broker.get("/v1/topics/t/messages?limit=1")),
        (400, "invalid_query", |w| w.broker.get("/v1/topics/t/messages?from=1")),
    ),
    Case(
        "GET /v1/subscriptions/{subscription}/messages",
        (200, |w| w.broker.get("/v1/subscriptions/s/messages?limit=1")),
        (404, "subscription_not_found", |w| w.broker.get("/v1/subscriptions/missing/messages")),
    ),
    Case(
        "POST /v1/subscriptions/{subscription}/pause",
        (200, |w| w.broker.post("/v1/subscriptions/other/pause", &json!({ "reason": "deploy" }))),
        (400, "invalid_body", |w| {
            w.broker.post("/v1/subscriptions/other/pause", &json!({ "reason": "x".repeat(1_025) }))
        }),
    ),
    Case(
        "POST /v1/subscriptions/{subscription}/resume",
        (200, |w| w.broker.post("/v1/subscriptions/other/resume", &json!({}))),
        (400, "invalid_body", |w| w.broker.post("/v1/subscriptions/other/resume", &json!({ "now": true }))),
    ),
    Case(
        "POST /v1/subscriptions/{subscription}/seek",
        (200, |w| w.broker.post("/v1/subscriptions/other/seek", &json!({ "to": "earliest" }))),
        (400, "invalid_body", |w| w.broker.post("/v1/subscriptions/other/seek", &json!({ "to": 5 }))),
    ),
    Case(
        "POST /v1/subscriptions/{subscription}/purge",
        (200, |w| w.broker.post("/v1/subscriptions/other/purge", &json!({}))),
        (404, "subscription_not_found", |w| w.broker.post("/v1/subscriptions/missing/purge", &json!({}))),
    ),
    Case(
        "PUT /v1/subscriptions/{subscription}/policy",
        (201, |w| w.broker.upload("s", &policies::module("http-status"), None)),
        (422, "invalid_policy", |w| w.broker.upload("s", b"not a module", None)),
    ),
    Case(
        "GET /v1/subscriptions/{subscription}/policy",
        (200, |w| w.broker.get("/v1/subscriptions/s/policy")),
        (404, "subscription_not_found", |w| w.broker.get("/v1/subscriptions/missing/policy")),
    ),
    Case(
        "PUT /v1/subscriptions/{subscription}/policy/params",
        (201, |w| w.broker.put("/v1/subscriptions/s/policy/params", &json!({ "max_attempts": 3 }))),
        (422, "invalid_params", |w| {
            w.broker.put("/v1/subscriptions/s/policy/params", &json!({ "max_attempts": 0 }))
        }),
    ),
    Case(
        "GET /v1/subscriptions/{subscription}/policy/revisions",
        (200, |w| w.broker.get("/v1/subscriptions/s/policy/revisions")),
        (400, "invalid_query", |w| w.broker.get("/v1/subscriptions/s/policy/revisions?page=2")),
    ),
    Case(
        "POST /v1/subscriptions/{subscription}/policy/rollback",
        (200, |w| w.broker.post("/v1/subscriptions/s/policy/rollback", &json!({}))),
        (404, "revision_not_found", |w| {
            w.broker.post("/v1/subscriptions/s/policy/rollback", &json!({ "revision": 99 }))
        }),
    ),
    Case(
        "GET /v1/subscriptions/{subscription}/policy/failures",
        (200, |w| w.broker.get("/v1/subscriptions/s/policy/failures?limit=1")),
        (400, "invalid_cursor", |w| w.broker.get("/v1/subscriptions/s/policy/failures?cursor=!")),
    ),
    Case(
        "GET /v1/subscriptions/{subscription}/policy/failures/{number}/fixture",
        (200, |w| w.broker.get("/v1/subscriptions/s/policy/failures/1/fixture")),
        (404, "record_not_found", |w| w.broker.get("/v1/subscriptions/s/policy/failures/99/fixture")),
    ),
    Case(
        "POST /v1/subscriptions/{subscription}/policy/simulate",
        (200, |w| {
            w.broker.post("/v1/subscriptions/s/policy/simulate", &json!({ "scenario": "timeout, ok" }))
        }),
        (400, "invalid_scenario", |w| {
            w.broker.post("/v1/subscriptions/s/policy/simulate", &json!({ "scenario": "timeout**" }))
        }),
    ),
    Case(
        "POST /v1/subscriptions/{subscription}/policy/backtest",
        (200, |w| w.broker.post("/v1/subscriptions/s/policy/backtest", &json!({ "last": 5 }))),
        (409, "nothing_recorded", |w| w.broker.post("/v1/subscriptions/other/policy/backtest", &json!({}))),
    ),
    Case(
        "PUT /v1/subscriptions/{subscription}/policy/shadow",
        (201, |w| {
            w.broker.put("/v1/subscriptions/s/policy/shadow", &json!({ "params": { "max_attempts": 2 } }))
        }),
        (409, "shadow_is_active", |w| w.broker.put("/v1/subscriptions/s/policy/shadow", &json!({}))),
    ),
    Case(
        "GET /v1/subscriptions/{subscription}/policy/shadow",
        (200, |w| w.broker.get("/v1/subscriptions/s/policy/shadow")),
        (404, "shadow_not_found", |w| w.broker.get("/v1/subscriptions/other/policy/shadow")),
    ),
    Case(
        "DELETE /v1/subscriptions/{subscription}/policy/shadow",
        (204, |w| w.broker.delete("/v1/subscriptions/s/policy/shadow")),
        (404, "shadow_not_found", |w| w.broker.delete("/v1/subscriptions/s/policy/shadow")),
    ),
    // What it tells is read by a test of its own; here it is only refused, to a realm that is not there.
    Case(
        "GET /v1/events",
        (200, |w| Listener::open(&w.broker, None).answer()),
        (404, "realm_not_found", |w| {
            w.broker.send(w.broker.request("GET", "/v1/events").header("broker-realm", "other"))
        }),
    ),
    Case(
        "GET /v1/dead-letters",
        (200, |w| w.broker.get("/v1/dead-letters?subscription=s")),
        (404, "subscription_not_found", |w| w.broker.get("/v1/dead-letters?subscription=missing")),
    ),
    Case(
        "GET /v1/dead-letters/facets",
        (200, |w| w.broker.get("/v1/dead-letters/facets")),
        (400, "invalid_query", |w| w.broker.get("/v1/dead-letters/facets?colour=red")),
    ),
    Case(
        "POST /v1/dead-letters/jobs",
        (201, |w| {
            w.broker
                .post("/v1/dead-letters/jobs", &json!({ "action": "replay", "filter": { "class": "none" } }))
        }),
        (400, "filter_required", |w| w.broker.post("/v1/dead-letters/jobs", &json!({ "action": "replay" }))),
    ),
    Case(
        "GET /v1/dead-letters/jobs",
        (200, |w| w.broker.get("/v1/dead-letters/jobs?limit=1")),
        (400, "invalid_cursor", |w| w.broker.get("/v1/dead-letters/jobs?cursor=zzz")),
    ),
    Case(
        "GET /v1/dead-letters/jobs/{job}",
        (200, |w| w.broker.get("/v1/dead-letters/jobs/j1")),
        (404, "job_not_found", |w| w.broker.get("/v1/dead-letters/jobs/j9")),
    ),
    Case(
        "POST /v1/dead-letters/jobs/{job}/abort",
        (200, |w| w.broker.post("/v1/dead-letters/jobs/j1/abort", &json!({}))),
        (400, "invalid_id", |w| w.broker.post("/v1/dead-letters/jobs/1/abort", &json!({}))),
    ),
    Case(
        "POST /v1/dead-letters/jobs/{job}/start",
        (200, |w| w.broker.post("/v1/dead-letters/jobs/j1/start", &json!({}))),
        (404, "job_not_found", |w| w.broker.post("/v1/dead-letters/jobs/j9/start", &json!({}))),
    ),
    Case(
        "GET /v1/dead-letters/{id}",
        (200, |w| w.broker.get(&format!("/v1/dead-letters/{}", w.dead[0]))),
        (400, "invalid_id", |w| w.broker.get("/v1/dead-letters/one")),
    ),
    Case(
        "DELETE /v1/dead-letters/{id}",
        (204, |w| w.broker.delete(&format!("/v1/dead-letters/{}", w.dead[0]))),
        (404, "dead_letter_not_found", |w| w.broker.delete(&format!("/v1/dead-letters/{}", w.dead[0]))),
    ),
    Case(
        "POST /v1/dead-letters/{id}/replay",
        (200, |w| w.broker.post(&format!("/v1/dead-letters/{}/replay", w.dead[1]), &Value::Null)),
        (404, "dead_letter_not_found", |w| {
            w.broker.post(&format!("/v1/dead-letters/{}/replay", w.dead[1]), &Value::Null)
        }),
    ),
    Case(
        "GET /v1/subscriptions/{subscription}/stream",
        (101, |w| stream(w, "/v1/subscriptions/s/stream")),
        (404, "subscription_not_found", |w| stream(w, "/v1/subscriptions/missing/stream")),
    ),
    Case(
        "GET /v1/topics/{topic}/stream",
        (101, |w| stream(w, "/v1/topics/t/stream")),
        (426, "upgrade_required", |w| w.broker.get("/v1/topics/t/stream")),
    ),
    Case(
        "GET /v1/realms",
        (200, |w| w.broker.get("/v1/realms?limit=1")),
        (400, "invalid_cursor", |w| w.broker.get("/v1/realms?cursor=!")),
    ),
    Case(
        "PUT /v1/realms/{realm}",
        (201, |w| w.broker.put("/v1/realms/r", &json!({ "rate": { "per_second": 5, "burst": 10 } }))),
        (422, "invalid_setting", |w| {
            w.broker.put("/v1/realms/r", &json!({ "rate": { "per_second": 0, "burst": 10 } }))
        }),
    ),
    Case(
        "GET /v1/realms/{realm}",
        (200, |w| w.broker.get("/v1/realms/r")),
        (404, "realm_not_found", |w| w.broker.get("/v1/realms/missing")),
    ),
    Case(
        "DELETE /v1/realms/{realm}",
        (204, |w| w.broker.delete("/v1/realms/r")),
        (409, "realm_in_use", |w| w.broker.delete("/v1/realms/default")),
    ),
    Case(
        "GET /v1/tokens",
        (200, |w| w.broker.get("/v1/tokens?limit=1")),
        (400, "invalid_cursor", |w| w.broker.get("/v1/tokens?cursor=!")),
    ),
    Case(
        "POST /v1/tokens",
        (201, |w| w.broker.post("/v1/tokens", &json!({ "name": "worker", "scopes": ["consume"] }))),
        (409, "token_exists", |w| {
            w.broker.post("/v1/tokens", &json!({ "name": "worker", "scopes": ["publish"] }))
        }),
    ),
    Case(
        "GET /v1/tokens/{id}",
        (200, |w| w.broker.get("/v1/tokens/t00000001")),
        (400, "invalid_id", |w| w.broker.get("/v1/tokens/one")),
    ),
    Case(
        "PATCH /v1/tokens/{id}",
        (200, |w| w.broker.patch("/v1/tokens/t00000001", &json!({ "topics": ["orders-*"] }))),
        (422, "invalid_setting", |w| w.broker.patch("/v1/tokens/t00000001", &json!({ "topics": ["*-x"] }))),
    ),
    Case(
        "POST /v1/tokens/{id}/rotate",
        (200, |w| w.broker.post("/v1/tokens/t00000001/rotate", &json!({ "grace": "1h" }))),
        (404, "token_not_found", |w| w.broker.post("/v1/tokens/t000000ff/rotate", &json!({}))),
    ),
    Case(
        "DELETE /v1/tokens/{id}",
        (204, |w| w.broker.delete("/v1/tokens/t00000001")),
        (404, "token_not_found", |w| w.broker.delete("/v1/tokens/t00000001")),
    ),
    Case(
        "GET /v1/audit",
        (200, |w| w.broker.get("/v1/audit?verify=true&action=token.*")),
        (400, "invalid_cursor", |w| w.broker.get("/v1/audit?cursor=!")),
    ),
];

fn stream(world: &World, path: &str) -> Answer {
    Stream::request(&world.broker, path, &[]).0
}

fn world() -> World {
    let broker = Broker::start();
    let retry = json!({ "classes": { "fatal": { "action": "dead_letter" } } });
    broker.topic_and_subscription(json!({ "retry": retry }));
    broker.topic("unused");
    broker.subscribe("unused", "t", json!({}));
    let ids: Vec<_> = (0..6).map(|number| broker.publish("t", &json!(number))).collect();
    for _ in 0..2 {
        let delivery = broker.next("s");
        broker.nack("s", &delivery.receipt, "fatal");
    }
    let letters = broker.dead_letters("s");
    let dead = letters.iter().map(|letter| letter["id"].as_str().expect("an id").to_owned()).collect();
    let held = broker.pull("s", 4, std::time::Duration::ZERO);
    World { broker, held, dead, message: ids[5].clone() }
}

/// Each route takes its good request and refuses its bad one with the right code.
#[test]
fn every_route_takes_and_refuses() {
    let world = world();
    for Case(route, (status, good), (refused, code, bad)) in CASES {
        let answer = good(&world);
        assert_eq!(answer.status, *status, "{route}: {}", answer.text());
        assert!(answer.header("x-request-id").is_some(), "{route}: no request id");
        let answer = bad(&world);
        assert_eq!(answer.problem(), (*refused, (*code).to_owned()), "{route}: {}", answer.text());
    }
}

/// The table above has every route and method of the router, and no other.
#[test]
fn no_route_is_missing_from_the_table() {
    let table: BTreeSet<_> = CASES.iter().map(|case| case.0.to_owned()).collect();
    assert_eq!(table, all());
}

/// Every route and method, read off the router's source.
pub(crate) fn all() -> BTreeSet<String> {
    let source = include_str!("../../broker/src/http/mod.rs");
    let (_, routes) = source.split_once("fn routes()").expect("the router has its list");
    let (routes, _) = routes.split_once("\n}").expect("the list ends");
    let mut found = BTreeSet::new();
    for entry in routes.split(".route(").skip(1) {
        let path = entry.split('"').nth(1).expect("a route has a path");
        for method in ["get", "put", "post", "patch", "delete"] {
            if entry.contains(&format!("{method}(")) {
                found.insert(format!("{} {path}", method.to_uppercase()));
            }
        }
    }
    found
}

/// Outside the API: health and readiness need nothing, an unknown path and a wrong method are problems.
#[test]
fn health_is_open_and_strange_paths_are_problems() {
    let broker = Broker::start();
    for path in ["/healthz", "/readyz"] {
        assert_eq!(broker.get(path).status, 200, "{path}");
    }
    for path in ["/", "/v1", "/v1/topics/", "/v1/topics/a/b", "/v2/topics"] {
        assert_eq!(broker.get(path).problem(), (404, "not_found".to_owned()), "{path}");
    }
    for (method, path) in [("DELETE", "/v1/topics"), ("PATCH", "/v1/topics/t"), ("POST", "/v1/topics/t")] {
        let answer = broker.send(broker.request(method, path));
        assert_eq!(answer.problem(), (405, "method_not_allowed".to_owned()), "{method} {path}");
    }
}
