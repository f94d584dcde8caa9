//! Every route, with one request that it takes and one that it refuses. The list is compared with the broker's own.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::support::{Answer, Broker, Delivery, policies};

/// What the requests below need: names, receipts and ids that exist.
struct World {
    broker: Broker,
    held: Vec<Delivery>,
    dead: Vec<String>,
    message: String,
}

type Ask = fn(&World) -> Answer;

/// A route, a request that it takes with the status, and one that it refuses with status and code.
struct Case(&'static str, Ask, u16, Ask, u16, &'static str);

const CASES: &[Case] = &[
    Case(
        "GET /v1/topics",
        |w| w.broker.get("/v1/topics?limit=1"),
        200,
        |w| w.broker.get("/v1/topics?limit=0"),
        400,
        "invalid_query",
    ),
    Case(
        "PUT /v1/topics/{topic}",
        |w| w.broker.put("/v1/topics/new", &json!({ "keep_acked": "1h" })),
        201,
        |w| w.broker.put("/v1/topics/new", &json!({ "retention": "1h" })),
        400,
        "invalid_body",
    ),
    Case(
        "GET /v1/topics/{topic}",
        |w| w.broker.get("/v1/topics/t"),
        200,
        |w| w.broker.get("/v1/topics/missing"),
        404,
        "topic_not_found",
    ),
    Case(
        "DELETE /v1/topics/{topic}",
        |w| w.broker.delete("/v1/topics/unused"),
        204,
        |w| w.broker.delete("/v1/topics/t"),
        409,
        "topic_in_use",
    ),
    Case(
        "POST /v1/topics/{topic}/messages",
        |w| w.broker.post("/v1/topics/t/messages", &json!({ "messages": [{ "payload": 1 }] })),
        201,
        |w| w.broker.post("/v1/topics/missing/messages", &json!({ "messages": [{ "payload": 1 }] })),
        404,
        "topic_not_found",
    ),
    Case(
        "GET /v1/messages/{id}",
        |w| w.broker.get(&format!("/v1/messages/{}", w.message)),
        200,
        |w| w.broker.get("/v1/messages/one"),
        400,
        "invalid_id",
    ),
    Case(
        "GET /v1/subscriptions",
        |w| w.broker.get("/v1/subscriptions"),
        200,
        |w| w.broker.get("/v1/subscriptions?cursor=!"),
        400,
        "invalid_cursor",
    ),
    Case(
        "PUT /v1/subscriptions/{subscription}",
        |w| w.broker.put("/v1/subscriptions/other", &json!({ "topic": "t" })),
        201,
        |w| w.broker.put("/v1/subscriptions/third", &json!({ "topic": "missing" })),
        404,
        "topic_not_found",
    ),
    Case(
        "PATCH /v1/subscriptions/{subscription}",
        |w| w.broker.patch("/v1/subscriptions/s", &json!({ "lease": "40s" })),
        200,
        |w| w.broker.patch("/v1/subscriptions/missing", &json!({ "lease": "40s" })),
        404,
        "subscription_not_found",
    ),
    Case(
        "GET /v1/subscriptions/{subscription}",
        |w| w.broker.get("/v1/subscriptions/s"),
        200,
        |w| w.broker.get("/v1/subscriptions/-s"),
        400,
        "invalid_name",
    ),
    Case(
        "DELETE /v1/subscriptions/{subscription}",
        |w| w.broker.delete("/v1/subscriptions/unused"),
        204,
        |w| w.broker.delete("/v1/subscriptions/missing"),
        404,
        "subscription_not_found",
    ),
    Case(
        "POST /v1/subscriptions/{subscription}/pull",
        |w| w.broker.post("/v1/subscriptions/s/pull", &json!({ "max": 1 })),
        200,
        |w| w.broker.post("/v1/subscriptions/s/pull", &json!({ "max": 0 })),
        400,
        "batch_size",
    ),
    Case(
        "POST /v1/subscriptions/{subscription}/ack",
        |w| w.broker.post("/v1/subscriptions/s/ack", &json!({ "receipts": [w.held[0].receipt] })),
        200,
        |w| w.broker.post("/v1/subscriptions/s/ack", &json!({ "receipts": [] })),
        400,
        "batch_size",
    ),
    Case(
        "POST /v1/subscriptions/{subscription}/nack",
        |w| {
            let items = json!([{ "receipt": w.held[1].receipt, "class": "timeout" }]);
            w.broker.post("/v1/subscriptions/s/nack", &json!({ "items": items }))
        },
        200,
        |w| w.broker.post("/v1/subscriptions/s/nack", &json!({ "items": [{ "class": "timeout" }] })),
        400,
        "invalid_body",
    ),
    Case(
        "POST /v1/subscriptions/{subscription}/release",
        |w| w.broker.post("/v1/subscriptions/s/release", &json!({ "receipts": [w.held[2].receipt] })),
        200,
        |w| w.broker.post("/v1/subscriptions/missing/release", &json!({ "receipts": ["r"] })),
        404,
        "subscription_not_found",
    ),
    Case(
        "POST /v1/subscriptions/{subscription}/extend",
        |w| {
            let items = json!([{ "receipt": w.held[3].receipt, "lease": "1m" }]);
            w.broker.post("/v1/subscriptions/s/extend", &json!({ "items": items }))
        },
        200,
        |w| w.broker.post("/v1/subscriptions/s/extend", &json!({ "items": {} })),
        400,
        "invalid_body",
    ),
    Case(
        "PUT /v1/subscriptions/{subscription}/policy",
        |w| w.broker.upload("s", &policies::module("http-status"), None),
        201,
        |w| w.broker.upload("s", b"not a module", None),
        422,
        "invalid_policy",
    ),
    Case(
        "GET /v1/subscriptions/{subscription}/policy",
        |w| w.broker.get("/v1/subscriptions/s/policy"),
        200,
        |w| w.broker.get("/v1/subscriptions/missing/policy"),
        404,
        "subscription_not_found",
    ),
    Case(
        "PUT /v1/subscriptions/{subscription}/policy/params",
        |w| w.broker.put("/v1/subscriptions/s/policy/params", &json!({ "max_attempts": 3 })),
        201,
        |w| w.broker.put("/v1/subscriptions/s/policy/params", &json!({ "max_attempts": 0 })),
        422,
        "invalid_params",
    ),
    Case(
        "GET /v1/subscriptions/{subscription}/policy/revisions",
        |w| w.broker.get("/v1/subscriptions/s/policy/revisions"),
        200,
        |w| w.broker.get("/v1/subscriptions/s/policy/revisions?page=2"),
        400,
        "invalid_query",
    ),
    Case(
        "GET /v1/dead-letters",
        |w| w.broker.get("/v1/dead-letters?subscription=s"),
        200,
        |w| w.broker.get("/v1/dead-letters?subscription=missing"),
        404,
        "subscription_not_found",
    ),
    Case(
        "GET /v1/dead-letters/{id}",
        |w| w.broker.get(&format!("/v1/dead-letters/{}", w.dead[0])),
        200,
        |w| w.broker.get("/v1/dead-letters/one"),
        400,
        "invalid_id",
    ),
    Case(
        "DELETE /v1/dead-letters/{id}",
        |w| w.broker.delete(&format!("/v1/dead-letters/{}", w.dead[0])),
        204,
        |w| w.broker.delete(&format!("/v1/dead-letters/{}", w.dead[0])),
        404,
        "dead_letter_not_found",
    ),
    Case(
        "POST /v1/dead-letters/{id}/replay",
        |w| w.broker.post(&format!("/v1/dead-letters/{}/replay", w.dead[1]), &Value::Null),
        200,
        |w| w.broker.post(&format!("/v1/dead-letters/{}/replay", w.dead[1]), &Value::Null),
        404,
        "dead_letter_not_found",
    ),
];

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
    for Case(route, good, status, bad, refused, code) in CASES {
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
    let table: BTreeSet<_> = CASES.iter().map(|case| case.0.to_owned()).collect();
    assert_eq!(table, found);
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
