//! Tokens: what each lets its holder do, and how secrets come and go.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::{Value, json};

use crate::routes;
use crate::support::{Answer, Broker, Client, Launch, Socket, wait_for};

const ALL: &[&str] =
    &["publish", "consume", "topics", "policies", "dead_letters", "read_payload", "operator"];
const POLICIES: &[&str] = &["policies"];
const OPERATOR: &[&str] = &["operator"];

/// Every route, and the scopes each of which is enough for it. An operator may do everything.
const NEEDS: &[(&str, &[&str])] = &[
    ("GET /v1/topics", ALL),
    ("PUT /v1/topics/{topic}", &["topics"]),
    ("GET /v1/topics/{topic}", ALL),
    ("DELETE /v1/topics/{topic}", &["topics"]),
    ("POST /v1/topics/{topic}/messages", &["publish"]),
    ("GET /v1/topics/{topic}/messages", &["consume", "dead_letters", "read_payload"]),
    ("GET /v1/topics/{topic}/stream", &["publish"]),
    ("GET /v1/messages/{id}", &["consume", "dead_letters", "read_payload"]),
    ("GET /v1/subscriptions", ALL),
    ("PUT /v1/subscriptions/{subscription}", &["topics"]),
    ("PATCH /v1/subscriptions/{subscription}", &["topics"]),
    ("GET /v1/subscriptions/{subscription}", ALL),
    ("DELETE /v1/subscriptions/{subscription}", &["topics"]),
    ("POST /v1/subscriptions/{subscription}/pull", &["consume"]),
    ("POST /v1/subscriptions/{subscription}/ack", &["consume"]),
    ("POST /v1/subscriptions/{subscription}/nack", &["consume"]),
    ("POST /v1/subscriptions/{subscription}/release", &["consume"]),
    ("POST /v1/subscriptions/{subscription}/extend", &["consume"]),
    ("GET /v1/subscriptions/{subscription}/stream", &["consume"]),
    ("GET /v1/subscriptions/{subscription}/messages", &["consume", "dead_letters", "read_payload"]),
    ("POST /v1/subscriptions/{subscription}/pause", &["topics"]),
    ("POST /v1/subscriptions/{subscription}/resume", &["topics"]),
    ("POST /v1/subscriptions/{subscription}/seek", &["topics"]),
    ("POST /v1/subscriptions/{subscription}/purge", &["topics"]),
    ("PUT /v1/subscriptions/{subscription}/policy", POLICIES),
    ("GET /v1/subscriptions/{subscription}/policy", POLICIES),
    ("PUT /v1/subscriptions/{subscription}/policy/params", POLICIES),
    ("GET /v1/subscriptions/{subscription}/policy/revisions", POLICIES),
    ("POST /v1/subscriptions/{subscription}/policy/rollback", POLICIES),
    ("GET /v1/subscriptions/{subscription}/policy/failures", POLICIES),
    ("GET /v1/subscriptions/{subscription}/policy/failures/{number}/fixture", POLICIES),
    ("POST /v1/subscriptions/{subscription}/policy/simulate", POLICIES),
    ("POST /v1/subscriptions/{subscription}/policy/backtest", POLICIES),
    ("PUT /v1/subscriptions/{subscription}/policy/shadow", POLICIES),
    ("GET /v1/subscriptions/{subscription}/policy/shadow", POLICIES),
    ("DELETE /v1/subscriptions/{subscription}/policy/shadow", POLICIES),
    ("GET /v1/events", ALL),
    ("GET /v1/dead-letters", &["dead_letters"]),
    ("GET /v1/dead-letters/facets", &["dead_letters"]),
    ("GET /v1/dead-letters/jobs", &["dead_letters"]),
    ("POST /v1/dead-letters/jobs", &["dead_letters"]),
    ("GET /v1/dead-letters/jobs/{job}", &["dead_letters"]),
    ("POST /v1/dead-letters/jobs/{job}/start", &["dead_letters"]),
    ("POST /v1/dead-letters/jobs/{job}/abort", &["dead_letters"]),
    ("GET /v1/dead-letters/{id}", &["dead_letters"]),
    ("DELETE /v1/dead-letters/{id}", &["dead_letters"]),
    ("POST /v1/dead-letters/{id}/replay", &["dead_letters"]),
    ("GET /v1/realms", OPERATOR),
    ("PUT /v1/realms/{realm}", OPERATOR),
    ("GET /v1/realms/{realm}", OPERATOR),
    ("DELETE /v1/realms/{realm}", OPERATOR),
    ("GET /v1/tokens", OPERATOR),
    ("POST /v1/tokens", OPERATOR),
    ("GET /v1/tokens/{id}", OPERATOR),
    ("PATCH /v1/tokens/{id}", OPERATOR),
    ("DELETE /v1/tokens/{id}", OPERATOR),
    ("POST /v1/tokens/{id}/rotate", OPERATOR),
    ("GET /v1/audit", OPERATOR),
];

/// A broker that wants tokens.
pub(crate) fn guarded() -> Broker {
    Broker::launch(Launch { listen: "127.0.0.1:0", more: &[] })
}

/// Whoever has the operator's token.
pub(crate) fn operator(broker: &Broker) -> Client {
    let path = broker.folder().data().join("operator.token");
    broker.with_token(std::fs::read_to_string(path).expect("a token").trim())
}

/// A new token, as the answer that made it shows it.
#[track_caller]
pub(crate) fn token(operator: &Client, name: &str, mut settings: Value) -> Value {
    settings["name"] = json!(name);
    operator.post("/v1/tokens", &settings).expect(201)
}

pub(crate) fn secret(token: &Value) -> &str {
    token["secret"].as_str().expect("a secret")
}

/// Whoever has a new token with these scopes, for everything in the realm.
#[track_caller]
pub(crate) fn holder(operator: &Client, name: &str, scopes: &[&str]) -> Client {
    operator.with_token(secret(&token(operator, name, json!({ "scopes": scopes }))))
}

fn path_of(token: &Value) -> String {
    format!("/v1/tokens/{}", token["id"].as_str().expect("an id"))
}

fn is_let_in(client: &Client) -> bool {
    let answer = client.get("/v1/topics");
    match answer.status {
        200 => true,
        _ => {
            assert_eq!(answer.problem(), (401, "unauthorized".to_owned()));
            false
        }
    }
}

/// Asks a route for something that is not there, without waiting for the end of the answer.
fn ask(client: &Client, route: &str) -> (u16, Answer) {
    let (method, path) = route.split_once(' ').expect("a method and a path");
    let path = path
        .replace("{topic}", "missing")
        .replace("{subscription}", "missing")
        .replace("{realm}", "missing")
        .replace("{number}", "1")
        .replace("tokens/{id}", "tokens/tffffffff")
        .replace("{id}", "missing");
    let answer = client.request(method, &path).send().expect("an answer");
    let (status, headers) = (answer.status().as_u16(), answer.headers().clone());
    let body = if status == 200 { Vec::new() } else { answer.bytes().expect("a body").to_vec() };
    (status, Answer { status, headers, body })
}

/// A token with one scope may do what that is for, and nothing else: every route, with every scope.
#[test]
fn every_route_states_its_scopes() {
    assert_eq!(NEEDS.iter().map(|need| need.0.to_owned()).collect::<BTreeSet<_>>(), routes::all());
    let broker = guarded();
    let operator = operator(&broker);
    let holders: Vec<_> =
        ALL.iter().map(|scope| (*scope, holder(&operator, scope_name(scope), &[scope]))).collect();
    for (route, needs) in NEEDS {
        for (scope, client) in &holders {
            let (status, answer) = ask(client, route);
            if needs.contains(scope) || *scope == "operator" {
                assert!(![401, 403, 500].contains(&status), "{route} with {scope}: {}", answer.text());
            } else {
                assert_eq!(answer.problem(), (403, "forbidden".to_owned()), "{route} with {scope}");
                let detail = answer.json()["detail"].as_str().expect("a detail").to_owned();
                assert!(needs.iter().all(|needed| detail.contains(needed)), "{route}: {detail}");
            }
        }
    }
}

/// A name that is no scope: some are reserved.
fn scope_name(scope: &str) -> &str {
    if scope == "operator" { "second-operator" } else { scope }
}

/// Publisher, consumer, author and support each do their work with what they were given, and revisions tell who.
#[test]
fn roles_do_their_work() {
    let broker = guarded();
    let operator = operator(&broker);
    let admin = holder(&operator, "admin", &["topics"]);
    let [publisher, consumer] = ["publish", "consume"].map(|scope| holder(&operator, scope, &[scope]));
    let retry = json!({ "classes": { "fatal": { "action": "dead_letter" } } });
    admin.topic_and_subscription(json!({ "retry": retry }));
    let id = publisher.publish("t", &json!({ "card": "visa-4111" }));
    let delivery = consumer.next("s");
    assert_eq!(delivery.message["payload"]["card"], "visa-4111", "a consumer gets its payloads");
    consumer.nack("s", &delivery.receipt, "fatal");
    let author = holder(&operator, "author", &["policies"]);
    let put = author.put("/v1/subscriptions/s/policy/params", &json!({ "max_attempts": 3 })).expect(201);
    assert_eq!(put["created_by"], "author");

    let support = holder(&operator, "support", &["dead_letters"]);
    let reader = holder(&operator, "reader", &["dead_letters", "read_payload"]);
    let letter = support.get("/v1/dead-letters").expect(200)["items"][0]["id"].clone();
    let letter = format!("/v1/dead-letters/{}", letter.as_str().expect("an id"));
    for path in [format!("/v1/messages/{id}"), letter.clone()] {
        let (without, with) = (support.get(&path), reader.get(&path));
        assert!(!without.text().contains("visa-4111") && with.text().contains("visa-4111"), "{path}");
        assert!(without.text().contains("fatal"), "the timeline is no payload: {path}");
        let hidden = reader.get(&format!("{path}?payload_as=none"));
        assert_eq!(hidden.expect(200), without.expect(200), "{path}");
    }
    support.post(&format!("{letter}/replay"), &Value::Null).expect(200);
    let delivery = consumer.next("s");
    consumer.ack("s", &delivery.receipt);
}

/// What a policy was shown of a payload is for those who may read payloads, and nobody else has a policy shown any.
#[test]
fn payloads_do_not_leak_through_policies() {
    let broker = guarded();
    let operator = operator(&broker);
    operator.topic_and_subscription(json!({ "inspect_payload": true }));
    operator.publish("t", &json!({ "card": "visa-4111" }));
    let delivery = operator.next("s");
    operator.nack("s", &delivery.receipt, "timeout");
    let author = holder(&operator, "author", &["policies", "topics"]);
    let reader = holder(&operator, "reader", &["policies", "topics", "read_payload"]);
    let failures = "/v1/subscriptions/s/policy/failures";
    let listed = author.get(failures).expect(200);
    assert_eq!(
        (listed["items"][0]["number"].as_u64(), listed.to_string().contains("visa-4111")),
        (Some(1), false)
    );
    let fixture = format!("{failures}/1/fixture");
    let refused = author.get(&fixture);
    assert_eq!(refused.problem(), (403, "forbidden".to_owned()));
    assert!(refused.text().contains("read_payload") && !refused.text().contains("visa-4111"));
    assert!(reader.get(&fixture).expect(200).to_string().contains("visa-4111"));
    let showing = json!({ "inspect_payload": true });
    let refused = author.patch("/v1/subscriptions/s", &showing);
    assert_eq!(refused.problem(), (403, "forbidden".to_owned()));
    reader.change("s", &showing);
}

/// A secret is shown once; what is kept, listed and logged does not tell it.
#[test]
fn a_secret_is_shown_once() {
    let broker = guarded();
    let operator = operator(&broker);
    let made = token(&operator, "worker", json!({ "scopes": ["consume"] }));
    let secret = secret(&made);
    assert!(secret.starts_with(&format!("rpr_{}_", made["id"].as_str().expect("an id"))), "{secret}");
    let shown = operator.get(&path_of(&made)).expect(200);
    let mut without = made.clone();
    without.as_object_mut().expect("an object").remove("secret");
    assert_eq!(shown, without);
    assert_eq!(operator.get("/v1/tokens").expect(200)["items"], json!([shown]));
    let (_, random) = secret.rsplit_once('_').expect("a random part");
    assert_eq!(random.len(), 64);
    assert!(!broker.folder().log().contains(random));
    assert!(!contains(&broker.folder().data(), random.as_bytes()), "it is on disk");
    assert!(contains(&broker.folder().data(), b"worker"), "the search finds what is there");
}

fn contains(folder: &Path, what: &[u8]) -> bool {
    std::fs::read_dir(folder).expect("a folder").any(|entry| {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            contains(&path, what)
        } else {
            std::fs::read(path).expect("a file").windows(what.len()).any(|window| window == what)
        }
    })
}

/// Two secrets are good at a time: the one before the last until its grace is over or the next is made.
#[test]
fn secrets_rotate_without_a_gap() {
    let mut broker = guarded();
    let at = operator(&broker);
    let made = token(&at, "worker", json!({ "scopes": ["consume"] }));
    let rotate = |body: Value| at.post(&format!("{}/rotate", path_of(&made)), &body).expect(200);
    let holding = |token: &Value| at.with_token(secret(token));
    let second = rotate(json!({}));
    assert_eq!(second["previous_secret"]["until"], Value::Null);
    assert!(is_let_in(&holding(&made)) && is_let_in(&holding(&second)));
    let third = rotate(json!({ "grace": "1h" }));
    assert_eq!([&made, &second, &third].map(|token| is_let_in(&holding(token))), [false, true, true]);
    let fourth = rotate(json!({ "grace": "0s" }));
    assert_eq!([&second, &third, &fourth].map(|token| is_let_in(&holding(token))), [false, false, true]);
    assert_eq!(fourth.get("previous_secret"), None, "it is over at once");
    let fifth = rotate(json!({ "grace": "300ms" }));
    assert!(is_let_in(&holding(&fifth)));
    wait_for("the end of the grace", || (!is_let_in(&holding(&fourth))).then_some(()));
    assert!(is_let_in(&holding(&fifth)));
    let sixth = rotate(json!({ "grace": "1h" }));
    broker.kill_and_start_again();
    let after = |token: &Value| is_let_in(&broker.with_token(secret(token)));
    assert_eq!([&fourth, &fifth, &sixth].map(after), [false, true, true], "as before the kill");
}

/// A token that expires is worth nothing from then on; another time can be set, or none.
#[test]
fn tokens_expire() {
    let broker = guarded();
    let operator = operator(&broker);
    let made = token(&operator, "worker", json!({ "scopes": ["consume"], "expires_in": "300ms" }));
    let client = operator.with_token(secret(&made));
    wait_for("the end of the token", || (!is_let_in(&client)).then_some(()));
    let path = path_of(&made);
    let later = operator.patch(&path, &json!({ "expires_in": "1h" })).expect(200);
    assert!(later["expires_at"].is_string() && is_let_in(&client));
    let never = operator.patch(&path, &json!({ "expires_in": null })).expect(200);
    assert_eq!(never["expires_at"], Value::Null);
    assert!(
        operator.patch(&path, &json!({ "topics": [] })).expect(200)["expires_at"].is_null()
            && is_let_in(&client)
    );
}

/// A change or revocation holds from its answer on, and after a kill; a new token may have the name of an old one.
#[test]
fn changes_hold_at_once_and_for_good() {
    let mut broker = guarded();
    let first = operator(&broker);
    let made = token(&first, "worker", json!({ "scopes": ["consume"] }));
    let kept = token(&first, "kept", json!({ "scopes": ["consume"], "topics": ["a*"] }));
    let (client, path) = (first.with_token(secret(&made)), path_of(&made));
    for round in 0..20 {
        let (scopes, may) =
            if round % 2 == 0 { (json!(["topics"]), true) } else { (json!(["consume"]), false) };
        first.patch(&path, &json!({ "scopes": scopes })).expect(200);
        let status = client.put(&format!("/v1/topics/t{round}"), &json!({})).status;
        assert_eq!(status, if may { 201 } else { 403 }, "round {round}");
    }
    assert_eq!(first.delete(&path).status, 204);
    assert!(!is_let_in(&client));
    broker.kill_and_start_again();
    assert!(!is_let_in(&broker.with_token(secret(&made))));
    let again = operator(&broker);
    let shown = again.get(&path_of(&kept)).expect(200);
    assert_eq!((&shown["topics"], &shown["scopes"]), (&json!(["a*"]), &json!(["consume"])));
    assert!(is_let_in(&broker.with_token(secret(&kept))));
    let new = token(&again, "worker", json!({ "scopes": ["consume"] }));
    assert_ne!(new["id"], made["id"], "ids are never used again");
    assert!(!is_let_in(&broker.with_token(secret(&made))));
}

/// A pull that is under way when its token is revoked, or may no more, gives back what it would have got.
#[test]
fn a_pull_under_way_ends_with_its_token() {
    let broker = guarded();
    let operator = operator(&broker);
    operator.topic_and_subscription(json!({ "retry": { "delay": "0s" } }));
    operator.publish("t", &json!(1));
    type End = fn(&Client, &str);
    let ends: [End; 2] = [
        |operator, path| assert_eq!(operator.delete(path).status, 204),
        |operator, path| drop(operator.patch(path, &json!({ "subscriptions": ["other"] })).expect(200)),
    ];
    for (end, name) in ends.iter().zip(["one", "two"]) {
        let made = token(&operator, name, json!({ "scopes": ["consume"] }));
        let mut socket = Socket::connect(broker.address());
        let body = json!({ "max": 5, "wait": "20s" }).to_string();
        // The next header begins where the media type ends. Once it asks for the body, the broker has let it in.
        let media_type = format!("application/json\r\nauthorization: Bearer {}", secret(&made));
        assert_eq!(socket.announce("POST", "/v1/subscriptions/s/pull", &media_type, body.len()).0, 100);
        end(&operator, &path_of(&made));
        socket.finish(&body);
        let (status, answer) = socket.read();
        assert_eq!(status, 401, "{answer}");
        assert!(!answer.contains("receipt"), "{answer}");
    }
    let delivery = operator.next("s");
    assert_eq!((delivery.attempt, delivery.failures), (3, 0), "both gave it back");
}

/// A secret that is not exactly right lets nobody in, whatever is wrong with it.
#[test]
fn wrong_secrets_are_refused() {
    let broker = guarded();
    let operator = operator(&broker);
    let [one, other] = ["one", "other"].map(|name| token(&operator, name, json!({ "scopes": ["consume"] })));
    let (one, other) = (secret(&one), secret(&other));
    let (id, random) = one.rsplit_once('_').expect("a random part");
    let (other_id, _) = other.rsplit_once('_').expect("a random part");
    let wrong = [
        id.to_owned(),
        format!("{id}_"),
        format!("{other_id}_{random}"),
        format!("{id}_{}", random.to_uppercase()),
        one[..one.len() - 1].to_owned(),
        format!("{one}0"),
        random.to_owned(),
        format!("rpr_tffffffff_{random}"),
    ];
    for wrong in wrong {
        // From another address each, as failures of one are slowed down.
        assert!(!is_let_in(&broker.with_token(&wrong)), "{wrong}");
    }
    assert!(is_let_in(&broker.with_token(one)) && is_let_in(&broker.with_token(other)));
}

/// What no token can be.
#[test]
fn bad_tokens_are_refused() {
    let broker = guarded();
    let operator = operator(&broker);
    let many: Vec<_> = (0..33).map(|n| format!("t{n}")).collect();
    let bad = [
        (json!({ "name": "a b" }), 400, "invalid_name"),
        (json!({ "name": "operator" }), 422, "invalid_setting"),
        (json!({ "name": "broker" }), 422, "invalid_setting"),
        (json!({ "scopes": [] }), 422, "invalid_setting"),
        (json!({ "scopes": ["everything"] }), 422, "invalid_setting"),
        (json!({ "topics": ["a*b"] }), 422, "invalid_setting"),
        (json!({ "subscriptions": many }), 422, "invalid_setting"),
        (json!({ "expires_in": "-1s" }), 400, "invalid_duration"),
        (json!({ "rate": { "per_second": 1, "burst": 0 } }), 422, "invalid_setting"),
        (json!({ "rate": { "per_second": 1 } }), 400, "invalid_body"),
        (json!({ "secret": "mine" }), 400, "invalid_body"),
    ];
    for (change, status, code) in bad {
        let mut body = json!({ "name": "worker", "scopes": ["consume"] });
        for (field, value) in change.as_object().expect("an object") {
            body[field] = value.clone();
        }
        let answer = operator.post("/v1/tokens", &body);
        assert_eq!(answer.problem(), (status, code.to_owned()), "{body}");
    }
    assert_eq!(operator.get("/v1/tokens").expect(200)["items"], json!([]));
}
