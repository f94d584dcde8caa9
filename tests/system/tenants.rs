//! Realms: the same names in two of them never meet, and no route lets anybody look across. The same holds for names
//! outside a token's patterns.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::events::Listener;
use crate::routes;
use crate::support::{Answer, Broker, Client, guests, policies};
use crate::tokens::{guarded, holder, operator, secret, token};

/// All that a tenant's own token can be for.
const TENANT: &[&str] = &["publish", "consume", "topics", "policies", "dead_letters", "read_payload"];

/// The operator in a realm, which is made if it is not there.
pub(crate) fn realm(broker: &Broker, name: &str) -> Client {
    let operator = operator(broker);
    let answer = operator.put(&format!("/v1/realms/{name}"), &json!({}));
    assert!([200, 201].contains(&answer.status), "{}", answer.text());
    let token = std::fs::read_to_string(broker.folder().data().join("operator.token")).expect("a token");
    let bearer = format!("Bearer {}", token.trim());
    broker.with_headers(&[("authorization", &bearer), ("broker-realm", name)])
}

/// A token of a realm for all but operating.
fn tenant(broker: &Broker, name: &str) -> Client {
    holder(&realm(broker, name), "tenant", TENANT)
}

/// Things that somebody may name who has no right to.
struct Things {
    topic: &'static str,
    subscription: &'static str,
    message: String,
    letter: String,
    job: String,
    receipt: String,
    token: String,
}

impl Things {
    /// Of a kind that exists nowhere.
    fn absent() -> Self {
        Self {
            topic: "none-t",
            subscription: "none-s",
            message: "m00ffffff0000000000000001".to_owned(),
            letter: "d00ffffff00ffffff0000000000000001".to_owned(),
            job: "j4000000".to_owned(),
            receipt: "A".repeat(48),
            token: "t00ffffff".to_owned(),
        }
    }

    /// In this realm, each with something to lose.
    fn of(client: &Client, operator: &Client) -> Self {
        let (topic, subscription) = ("that-t", "that-s");
        client.topic(topic);
        let retry = json!({ "classes": { "fatal": { "action": "dead_letter" } } });
        client.subscribe(subscription, topic, json!({ "retry": retry }));
        client
            .put("/v1/subscriptions/that-s/policy/shadow", &json!({ "params": { "max_attempts": 2 } }))
            .expect(201);
        let message = client.publish(topic, &json!("secret payload"));
        client.publish(topic, &json!(2));
        let delivery = client.next(subscription);
        client.nack(subscription, &delivery.receipt, "fatal");
        let receipt = client.next(subscription).receipt;
        let letter = client.dead_letters(subscription)[0]["id"].as_str().expect("an id").to_owned();
        let job = json!({ "action": "discard", "filter": { "subscription": subscription } });
        let job =
            client.post("/v1/dead-letters/jobs", &job).expect(201)["id"].as_str().expect("an id").to_owned();
        let made = token(operator, "other", json!({ "scopes": ["consume"] }));
        let token = made["id"].as_str().expect("an id").to_owned();
        Self { topic, subscription, message, letter, job, receipt, token }
    }

    fn policy(&self, rest: &str) -> String {
        format!("/v1/subscriptions/{}/policy{rest}", self.subscription)
    }

    fn at(&self, rest: &str) -> String {
        format!("/v1/subscriptions/{}{rest}", self.subscription)
    }

    fn topic(&self, rest: &str) -> String {
        format!("/v1/topics/{}{rest}", self.topic)
    }
}

type Ask = fn(&Client, &Things) -> Answer;

/// Every route, asked for things by their name.
const ROUTES: &[(&str, Ask)] = &[
    ("GET /v1/topics", |c, _| c.get("/v1/topics")),
    ("GET /v1/topics/{topic}", |c, it| c.get(&it.topic(""))),
    ("DELETE /v1/topics/{topic}", |c, it| c.delete(&it.topic(""))),
    ("POST /v1/topics/{topic}/messages", |c, it| {
        c.post(&it.topic("/messages"), &json!({ "messages": [{ "payload": 1 }] }))
    }),
    ("GET /v1/topics/{topic}/messages", |c, it| c.get(&it.topic("/messages"))),
    ("GET /v1/topics/{topic}/stream", |c, it| upgrade(c, &it.topic("/stream"))),
    ("GET /v1/messages/{id}", |c, it| c.get(&format!("/v1/messages/{}", it.message))),
    ("GET /v1/subscriptions", |c, _| c.get("/v1/subscriptions")),
    ("PATCH /v1/subscriptions/{subscription}", |c, it| c.patch(&it.at(""), &json!({ "lease": "40s" }))),
    ("GET /v1/subscriptions/{subscription}", |c, it| c.get(&it.at(""))),
    ("DELETE /v1/subscriptions/{subscription}", |c, it| c.delete(&it.at(""))),
    ("POST /v1/subscriptions/{subscription}/pull", |c, it| c.post(&it.at("/pull"), &json!({}))),
    ("POST /v1/subscriptions/{subscription}/ack", |c, it| {
        c.post(&it.at("/ack"), &json!({ "receipts": [it.receipt] }))
    }),
    ("POST /v1/subscriptions/{subscription}/nack", |c, it| {
        c.post(&it.at("/nack"), &json!({ "items": [{ "receipt": it.receipt }] }))
    }),
    ("POST /v1/subscriptions/{subscription}/release", |c, it| {
        c.post(&it.at("/release"), &json!({ "receipts": [it.receipt] }))
    }),
    ("POST /v1/subscriptions/{subscription}/extend", |c, it| {
        c.post(&it.at("/extend"), &json!({ "items": [{ "receipt": it.receipt }] }))
    }),
    ("GET /v1/subscriptions/{subscription}/stream", |c, it| upgrade(c, &it.at("/stream"))),
    ("GET /v1/subscriptions/{subscription}/messages", |c, it| c.get(&it.at("/messages"))),
    ("POST /v1/subscriptions/{subscription}/pause", |c, it| c.post(&it.at("/pause"), &json!({}))),
    ("POST /v1/subscriptions/{subscription}/resume", |c, it| c.post(&it.at("/resume"), &json!({}))),
    ("POST /v1/subscriptions/{subscription}/seek", |c, it| {
        c.post(&it.at("/seek"), &json!({ "to": "latest" }))
    }),
    ("POST /v1/subscriptions/{subscription}/purge", |c, it| c.post(&it.at("/purge"), &json!({}))),
    ("PUT /v1/subscriptions/{subscription}/policy", |c, it| {
        c.upload(it.subscription, &policies::module("http-status"), None)
    }),
    ("GET /v1/subscriptions/{subscription}/policy", |c, it| c.get(&it.policy(""))),
    ("PUT /v1/subscriptions/{subscription}/policy/params", |c, it| {
        c.put(&it.policy("/params"), &json!({ "max_attempts": 3 }))
    }),
    ("GET /v1/subscriptions/{subscription}/policy/revisions", |c, it| c.get(&it.policy("/revisions"))),
    ("POST /v1/subscriptions/{subscription}/policy/rollback", |c, it| {
        c.post(&it.policy("/rollback"), &json!({ "revision": 1 }))
    }),
    ("GET /v1/subscriptions/{subscription}/policy/failures", |c, it| c.get(&it.policy("/failures"))),
    ("GET /v1/subscriptions/{subscription}/policy/failures/{number}/fixture", |c, it| {
        c.get(&it.policy("/failures/1/fixture"))
    }),
    ("POST /v1/subscriptions/{subscription}/policy/simulate", |c, it| {
        c.post(&it.policy("/simulate"), &json!({ "scenario": "timeout" }))
    }),
    ("POST /v1/subscriptions/{subscription}/policy/backtest", |c, it| {
        c.post(&it.policy("/backtest"), &json!({}))
    }),
    ("PUT /v1/subscriptions/{subscription}/policy/shadow", |c, it| {
        c.put(&it.policy("/shadow"), &json!({ "params": { "max_attempts": 4 } }))
    }),
    ("GET /v1/subscriptions/{subscription}/policy/shadow", |c, it| c.get(&it.policy("/shadow"))),
    ("DELETE /v1/subscriptions/{subscription}/policy/shadow", |c, it| c.delete(&it.policy("/shadow"))),
    ("GET /v1/dead-letters", |c, it| c.get(&format!("/v1/dead-letters?subscription={}", it.subscription))),
    ("GET /v1/dead-letters/facets", |c, it| {
        c.get(&format!("/v1/dead-letters/facets?subscription={}", it.subscription))
    }),
    ("GET /v1/dead-letters/jobs", |c, _| c.get("/v1/dead-letters/jobs")),
    ("POST /v1/dead-letters/jobs", |c, it| {
        let plan = json!({ "action": "discard", "filter": { "subscription": it.subscription } });
        c.post("/v1/dead-letters/jobs", &plan)
    }),
    ("GET /v1/dead-letters/jobs/{job}", |c, it| c.get(&format!("/v1/dead-letters/jobs/{}", it.job))),
    ("POST /v1/dead-letters/jobs/{job}/abort", |c, it| {
        c.post(&format!("/v1/dead-letters/jobs/{}/abort", it.job), &json!({}))
    }),
    ("POST /v1/dead-letters/jobs/{job}/start", |c, it| {
        c.post(&format!("/v1/dead-letters/jobs/{}/start", it.job), &json!({}))
    }),
    ("GET /v1/dead-letters/{id}", |c, it| c.get(&format!("/v1/dead-letters/{}", it.letter))),
    ("DELETE /v1/dead-letters/{id}", |c, it| c.delete(&format!("/v1/dead-letters/{}", it.letter))),
    ("POST /v1/dead-letters/{id}/replay", |c, it| {
        c.post(&format!("/v1/dead-letters/{}/replay", it.letter), &Value::Null)
    }),
    ("GET /v1/realms", |c, _| c.get("/v1/realms")),
    ("PUT /v1/realms/{realm}", |c, _| c.put("/v1/realms/a", &json!({}))),
    ("GET /v1/realms/{realm}", |c, _| c.get("/v1/realms/a")),
    ("DELETE /v1/realms/{realm}", |c, _| c.delete("/v1/realms/a")),
    ("GET /v1/tokens", |c, _| c.get("/v1/tokens")),
    ("POST /v1/tokens", |c, _| c.post("/v1/tokens", &json!({ "name": "x", "scopes": ["operator"] }))),
    ("GET /v1/tokens/{id}", |c, it| c.get(&format!("/v1/tokens/{}", it.token))),
    ("PATCH /v1/tokens/{id}", |c, it| c.patch(&format!("/v1/tokens/{}", it.token), &json!({ "topics": [] }))),
    ("DELETE /v1/tokens/{id}", |c, it| c.delete(&format!("/v1/tokens/{}", it.token))),
    ("POST /v1/tokens/{id}/rotate", |c, it| c.post(&format!("/v1/tokens/{}/rotate", it.token), &json!({}))),
    ("GET /v1/audit", |c, _| c.get("/v1/audit?realm=a")),
    // Last, as a stranger makes something of that name where it may.
    ("PUT /v1/topics/{topic}", |c, it| c.put(&it.topic(""), &json!({}))),
    ("PUT /v1/subscriptions/{subscription}", |c, it| c.put(&it.at(""), &json!({ "topic": it.topic }))),
];

/// Streams do not end: a test of their own shows what they tell.
/// Asks for a WebSocket.
fn upgrade(client: &Client, path: &str) -> Answer {
    let request = client.request("GET", path).header("connection", "upgrade").header("upgrade", "websocket");
    let request = request.header("sec-websocket-version", "13");
    client.send(request.header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="))
}

const STREAMS: &[&str] = &["GET /v1/events"];

/// An answer without what is different in any two: the names that were asked for, times, the request's id.
fn told(answer: &Answer, things: &Things) -> (u16, String) {
    let mut body: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    strip(&mut body);
    let text = body.to_string().replace(things.topic, "T").replace(things.subscription, "S");
    (answer.status, text)
}

fn strip(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|name, _| !["request_id", "created_at"].contains(&name.as_str()));
            fields.values_mut().for_each(strip);
        }
        Value::Array(items) => items.iter_mut().for_each(strip),
        _ => {}
    }
}

/// Whatever a stranger asks for by name, it is told what it would be of a thing that is not there, and changes nothing.
#[track_caller]
fn is_blind(stranger: &Client, owner: &Client, things: &Things) {
    for list in ["topics", "subscriptions", "dead-letters"] {
        let listed = stranger.get(&format!("/v1/{list}")).expect(200).to_string();
        for name in [things.topic, things.subscription, &things.letter] {
            assert!(!listed.contains(name), "{list}: {listed}");
        }
    }
    let before = owner.everything();
    let shadow = owner.get(&things.policy("/shadow")).expect(200);
    for (route, ask) in ROUTES {
        let (theirs, absent) = (ask(stranger, things), ask(stranger, &Things::absent()));
        assert_eq!(told(&theirs, things), told(&absent, &Things::absent()), "{route}");
        assert!(!theirs.text().contains("secret payload"), "{route}");
        assert_ne!(theirs.status, 500, "{route}: {}", theirs.text());
    }
    assert_eq!(owner.everything(), before);
    assert_eq!(owner.get(&things.policy("/shadow")).expect(200), shadow);
    owner.ack(things.subscription, &things.receipt);
}

/// The table has every route of the router.
#[test]
fn no_route_is_missing_from_the_table() {
    let table: BTreeSet<_> = ROUTES.iter().map(|(route, _)| *route).chain(STREAMS.iter().copied()).collect();
    assert_eq!(table.into_iter().map(str::to_owned).collect::<BTreeSet<_>>(), routes::all());
}

/// A tenant finds nothing of another realm by any name or id, on any route.
#[test]
fn what_is_in_another_realm_is_absent() {
    let broker = guarded();
    let [a, b] = ["a", "b"].map(|name| tenant(&broker, name));
    let things = Things::of(&a, &realm(&broker, "a"));
    is_blind(&b, &a, &things);
}

/// A token finds nothing outside its patterns, on any route.
#[test]
fn what_is_outside_the_patterns_is_absent() {
    let broker = guarded();
    let operator = realm(&broker, "a");
    let owner = tenant(&broker, "a");
    let things = Things::of(&owner, &operator);
    let limited = json!({ "scopes": TENANT, "topics": ["my-*"], "subscriptions": ["my-*"] });
    let stranger = operator.with_token(secret(&token(&operator, "limited", limited)));
    stranger.topic("my-t");
    stranger.subscribe("my-s", "my-t", json!({}));
    is_blind(&stranger, &owner, &things);

    // Its own it sees, and nothing else in any list, whatever the page.
    for list in ["topics", "subscriptions"] {
        let listed = stranger.get(&format!("/v1/{list}?limit=1")).expect(200);
        assert_eq!(
            (listed["items"][0]["name"].as_str(), listed.get("next")),
            (Some(&*format!("my-{}", &list[..1])), None)
        );
    }
    assert_eq!(stranger.get("/v1/dead-letters").expect(200), json!({ "items": [] }));
    stranger.publish("my-t", &json!(1));
    assert_eq!(stranger.next("my-s").message["payload"], 1);

    // No way leads out: not a subscription of its own to a topic of others, nor a policy that forwards there.
    let put = |settings: Value| stranger.put("/v1/subscriptions/my-other", &settings).problem();
    assert_eq!(put(json!({ "topic": "that-t" })), (404, "topic_not_found".to_owned()));
    assert_eq!(
        put(json!({ "topic": "my-t", "forward_to": ["that-t"] })),
        (404, "topic_not_found".to_owned())
    );
}

/// A message shows its deliveries on those subscriptions that exist for who asks.
#[test]
fn a_message_shows_what_exists_for_the_token() {
    let broker = guarded();
    let operator = operator(&broker);
    operator.topic("t");
    for name in ["mine", "theirs"] {
        operator.subscribe(name, "t", json!({}));
    }
    let id = operator.publish("t", &json!(1));
    let limited = json!({ "scopes": ["consume"], "subscriptions": ["mine"] });
    let limited = operator.with_token(secret(&token(&operator, "limited", limited)));
    let names = |client: &Client| {
        let message = client.get(&format!("/v1/messages/{id}")).expect(200);
        let names = message["deliveries"].as_array().expect("a list").iter();
        names.map(|it| it["subscription"].as_str().expect("a name").to_owned()).collect::<Vec<_>>()
    };
    assert_eq!((names(&operator).len(), names(&limited)), (2, vec!["mine".to_owned()]));
}

/// The same names in two realms: each has its own messages, policies, dead letters, records and counts.
#[test]
fn the_same_names_never_meet() {
    let broker = guarded();
    let tenants = ["a", "b", "default"].map(|name| (name, tenant(&broker, name)));
    for (name, client) in &tenants {
        client.topic_and_subscription(
            json!({ "retry": { "classes": { "fatal": { "action": "dead_letter" } } } }),
        );
        for _ in 0..2 {
            client.publish("t", &json!(format!("of {name}")));
        }
    }
    // Each has another policy decide: they are modules of their own, asked by digest.
    let millis = |at: usize| 1_000 * (at as u64 + 1);
    for (at, (_, client)) in tenants.iter().enumerate() {
        client.upload("s", &guests::deciding(&guests::retry(millis(at))).module(), None).expect(201);
    }
    for (at, (name, client)) in tenants.iter().enumerate() {
        let delivery = client.next("s");
        assert_eq!(delivery.message["payload"], format!("of {name}"));
        let nacked = client.nack("s", &delivery.receipt, "fatal");
        assert_eq!(nacked["decision"]["delay"], format!("{}s", at + 1));
        let simulated =
            client.post("/v1/subscriptions/s/policy/simulate", &json!({ "scenario": "timeout" })).expect(200);
        assert_eq!(simulated["steps"][0]["decision"]["delay"], format!("{}s", at + 1));
        let failures = client.get("/v1/subscriptions/s/policy/failures").expect(200);
        assert_eq!(failures["items"].as_array().map(Vec::len), Some(1), "{name}");
    }
    let (_, a) = &tenants[0];
    a.post("/v1/subscriptions/s/policy/rollback", &json!({ "revision": 1 })).expect(200);
    let delivery = a.next("s");
    a.nack("s", &delivery.receipt, "fatal");
    for (name, client) in &tenants {
        let (dead, revision) = if *name == "a" { (1, 1) } else { (0, 2) };
        assert_eq!(client.dead_letters("s").len(), dead, "{name}");
        let shown = client.subscription("s");
        assert_eq!(
            (&shown["policy"]["revision"], &shown["dead_letters"]),
            (&json!(revision), &json!(dead)),
            "{name}"
        );
        assert_eq!(client.get("/v1/topics").expect(200)["items"].as_array().map(Vec::len), Some(1), "{name}");
    }
    assert_eq!(a.delete("/v1/subscriptions/s").status, 204);
    assert_eq!(a.delete("/v1/topics/t").status, 204);
    assert_eq!(tenants[1].1.next("s").message["payload"], "of b");
}

/// A receipt of one realm is worth as much in another as random bytes, also where all names are the same.
#[test]
fn receipts_hold_in_their_realm_alone() {
    let broker = guarded();
    let [a, b] = ["a", "b"].map(|name| tenant(&broker, name));
    for client in [&a, &b] {
        client.topic_and_subscription(json!({}));
        client.publish("t", &json!(1));
    }
    let [of_a, of_b] = [&a, &b].map(|client| client.next("s").receipt);
    let garbage = "A".repeat(48);
    for (verb, field) in [("ack", false), ("nack", true), ("release", false), ("extend", true)] {
        let ask = |receipt: &str| {
            let path = format!("/v1/subscriptions/s/{verb}");
            let body = if field {
                json!({ "items": [{ "receipt": receipt }] })
            } else {
                json!({ "receipts": [receipt] })
            };
            b.post(&path, &body).expect(200)["items"][0]["error"].clone()
        };
        assert_eq!(ask(&of_a)["code"], "invalid_receipt", "{verb}");
        assert_eq!(ask(&of_a), ask(&garbage), "{verb}");
    }
    for (client, receipt) in [(&a, of_a), (&b, of_b)] {
        assert_eq!(client.ack("s", &receipt)["status"], "acked");
    }
}

/// A stream of events tells of its own realm and of what exists for its token, with numbers of its own.
#[test]
fn events_stay_in_their_realm() {
    let broker = guarded();
    let operators = ["a", "b"].map(|name| realm(&broker, name));
    let [a, b] = ["a", "b"].map(|name| tenant(&broker, name));
    let limited = json!({ "scopes": ["policies"], "subscriptions": ["x*"] });
    let limited = token(&operators[0], "limited", limited);
    let limited_client = broker.with_token(secret(&limited));
    let mut of_a = Listener::open(&a, None);
    let mut of_limited = Listener::open(&limited_client, None);
    let change = |client: &Client, subscription: &str, n: u32| {
        let path = format!("/v1/subscriptions/{subscription}/policy/params");
        client.put(&path, &json!({ "max_attempts": n })).expect(201);
    };
    for client in [&b, &a] {
        client.topic_and_subscription(json!({}));
        client.subscribe("x", "t", json!({}));
    }
    for n in 1..5 {
        change(&b, "x", n);
        change(&b, "s", n);
    }
    change(&a, "s", 8);
    change(&a, "x", 9);
    let [first, second] = [of_a.hear(), of_a.hear()].map(|event| event.expect("an event"));
    assert_eq!((&first.2["subscription"], &first.2["revision"]), (&json!("s"), &json!(2)));
    assert_eq!(second.2["subscription"], "x");
    assert!(first.0.ends_with("-1") && second.0.ends_with("-2"), "{} {}", first.0, second.0);
    assert_eq!(of_limited.hear().expect("an event").2["subscription"], "x");
    let earlier = Listener::open(&a, Some(&first.0)).hear();
    assert_eq!(earlier.expect("an event"), second);

    // Nobody takes the room of another realm.
    let crowd: Vec<_> = (0..64).map(|_| Listener::open(&b, None)).collect();
    assert_eq!(b.get("/v1/events").problem(), (429, "too_many_listeners".to_owned()));
    drop(Listener::open(&a, None));
    drop(crowd);

    // A token that is revoked hears no more.
    operators[0].delete(&format!("/v1/tokens/{}", limited["id"].as_str().expect("an id")));
    change(&a, "x", 10);
    assert_eq!(of_limited.hear(), None);
    assert_eq!(of_a.hear().expect("an event").2["revision"], 3);
}

/// Operators name a realm in the header; a tenant has its own, and any other is absent.
#[test]
fn the_realm_is_the_credentials_own() {
    let broker = guarded();
    let a = tenant(&broker, "a");
    a.topic("t");
    assert_eq!(realm(&broker, "a").get("/v1/topics/t").status, 200);
    assert_eq!(operator(&broker).get("/v1/topics/t").status, 404);
    let named = |client: &Client, name: &str| {
        client.send(client.request("GET", "/v1/topics").header("broker-realm", name))
    };
    assert_eq!(named(&a, "a").status, 200);
    let absent = named(&a, "missing");
    for name in ["default", "b", "A"] {
        let answer = named(&a, name);
        assert_eq!(answer.problem(), (404, "realm_not_found".to_owned()));
        assert_eq!(answer.json()["detail"], absent.json()["detail"]);
    }
    // A second operator goes everywhere, and is at home where it was made.
    let second = holder(&realm(&broker, "a"), "second", &["operator"]);
    assert_eq!(second.get("/v1/topics/t").status, 200);
    assert_eq!(named(&second, "default").expect(200)["items"], json!([]));
}

/// Without authentication everyone is an operator, and may name a realm.
#[test]
fn without_authentication_everyone_is_an_operator() {
    let broker = Broker::start();
    broker.put("/v1/realms/a", &json!({})).expect(201);
    let in_a = broker.with_headers(&[("broker-realm", "a")]);
    in_a.topic("t");
    assert_eq!((broker.get("/v1/topics/t").status, in_a.get("/v1/topics/t").status), (404, 200));
    let missing = broker.with_headers(&[("broker-realm", "missing")]);
    assert_eq!(missing.get("/v1/topics").problem(), (404, "realm_not_found".to_owned()));
}

/// A realm with topics stays; without, it goes with its tokens. One of the same name later is another.
#[test]
fn realms_come_and_go() {
    let mut broker = guarded();
    let a = tenant(&broker, "a");
    a.topic_and_subscription(json!({}));
    a.upload("s", &policies::module("http-status"), None).expect(201);
    let first = operator(&broker);
    let shown = first.get("/v1/realms/a").expect(200);
    assert_eq!((&shown["topics"], &shown["tokens"], &shown["rate"]), (&json!(1), &json!(1), &Value::Null));
    assert_eq!(first.delete("/v1/realms/a").problem(), (409, "realm_in_use".to_owned()));
    assert_eq!(first.delete("/v1/realms/default").problem(), (409, "realm_in_use".to_owned()));
    a.delete("/v1/subscriptions/s");
    a.delete("/v1/topics/t");
    assert_eq!(first.delete("/v1/realms/a").status, 204);
    assert_eq!(first.get("/v1/realms/a").problem(), (404, "realm_not_found".to_owned()));
    assert_eq!(a.get("/v1/topics").problem(), (401, "unauthorized".to_owned()), "its tokens went with it");
    let again = tenant(&broker, "a");
    assert_eq!(again.get("/v1/topics").expect(200)["items"], json!([]));
    assert_eq!(a.get("/v1/topics").status, 401);
    again.topic("t");
    broker.kill_and_start_again();
    let after = operator(&broker);
    let names: Vec<_> = after.get("/v1/realms").expect(200)["items"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|realm| (realm["name"].clone(), realm["topics"].clone()))
        .collect();
    assert_eq!(names, [(json!("a"), json!(1)), (json!("default"), json!(0))]);
    let kept = realm(&broker, "a");
    kept.subscribe("s", "t", json!({ "retry": { "delay": "3s", "jitter": "none" } }));
    let (_, decision) = kept.fail_one(json!({}));
    assert_eq!((&decision["decided_by"], &decision["delay"]), (&json!("policy"), &json!("3s")));
}
