//! The audit log: every deed is told once, in its own commit, and a row that was changed is found.

use reprise_broker::store::durable::{Durable, Options};
use reprise_broker::store::row::{AuditRow, Row as _};
use reprise_broker::store::{Commit, Keyspace, Store as _, key};
use serde_json::{Value, json};
use sha2::Digest as _;

use crate::support::{Broker, Client, guests, millis, policies, wait_for};
use crate::tokens::{guarded, holder, operator, secret, token};

/// The rows that a query finds, oldest first.
fn rows(client: &Client, query: &str) -> Vec<Value> {
    let mut rows = client.get(&format!("/v1/audit?limit=1000{query}")).expect(200)["items"].take();
    let rows = rows.as_array_mut().expect("a list");
    rows.reverse();
    std::mem::take(rows)
}

fn text<'a>(row: &'a Value, field: &str) -> &'a str {
    row[field].as_str().unwrap_or_default()
}

/// What was done, in order.
fn actions(rows: &[Value]) -> Vec<&str> {
    rows.iter().map(|row| text(row, "action")).collect()
}

fn chain(client: &Client) -> Value {
    client.get("/v1/audit?verify=true&limit=1").expect(200)["chain"].clone()
}

/// Each kind of deed is told once with who did it and to what; what is refused or changes nothing of all this is not.
#[test]
fn every_deed_is_told() {
    let broker = guarded();
    let operator = operator(&broker);
    let admin = holder(
        &operator,
        "admin",
        &["topics", "policies", "dead_letters", "read_payload", "publish", "consume"],
    );
    admin.topic_and_subscription(json!({ "retry": { "classes": { "fatal": { "action": "dead_letter" } } } }));
    let ids: Vec<_> = (0..2).map(|_| admin.publish("t", &json!({ "card": "visa-4111" }))).collect();
    for _ in 0..2 {
        let delivery = admin.next("s");
        admin.nack("s", &delivery.receipt, "fatal");
    }
    admin.upload("s", &policies::module("http-status"), None).expect(201);
    let digest = admin.revisions("s")[1]["digest"].clone();
    admin.put("/v1/subscriptions/s/policy/params", &json!({ "max_attempts": 3 })).expect(201);
    admin.post("/v1/subscriptions/s/policy/rollback", &json!({ "revision": 1 })).expect(200);
    admin.put("/v1/subscriptions/s/policy/shadow", &json!({ "revision": 2 })).expect(201);
    admin.delete("/v1/subscriptions/s/policy/shadow");
    let letters: Vec<_> =
        admin.dead_letters("s").iter().map(|letter| text(letter, "id").to_owned()).collect();
    admin.get(&format!("/v1/messages/{}", ids[0])).expect(200);
    admin.get(&format!("/v1/dead-letters/{}", letters[0])).expect(200);
    admin.post(&format!("/v1/dead-letters/{}/replay", letters[0]), &Value::Null).expect(200);
    assert_eq!(admin.delete(&format!("/v1/dead-letters/{}", letters[1])).status, 204);
    // None of these is told.
    admin.get(&format!("/v1/messages/{}?payload_as=none", ids[0])).expect(200);
    assert_eq!(admin.delete("/v1/topics/t").status, 409);
    assert_eq!(admin.put("/v1/realms/b", &json!({})).status, 403);
    assert_eq!(admin.get("/v1/messages/m00ffffff0000000000000001").status, 404);
    assert_eq!(admin.delete("/v1/subscriptions/s").status, 204);
    assert_eq!(admin.delete("/v1/topics/t").status, 204);

    let told = rows(&operator, "&actor=admin");
    let expected = [
        ("topic.put", "t"),
        ("subscription.put", "s"),
        ("policy.put", "s"),
        ("policy.params", "s"),
        ("policy.rollback", "s"),
        ("shadow.put", "s"),
        ("shadow.delete", "s"),
        ("payload.read", &ids[0]),
        ("payload.read", &letters[0]),
        ("dead_letter.replay", &letters[0]),
        ("dead_letter.discard", &letters[1]),
        ("subscription.delete", "s"),
        ("topic.delete", "t"),
    ];
    let found: Vec<_> = told.iter().map(|row| (text(row, "action"), text(row, "subject"))).collect();
    assert_eq!(found, expected);
    assert!(told.iter().all(|row| row["token"] == "t00000001" && row["realm"] == "default"));
    assert_eq!(told[2]["detail"], digest);
    assert!(!json!(told).to_string().contains("visa-4111"), "no payload is in it");
}

/// Realms and tokens: created, changed, rotated, revoked, without their secrets; filters and pages find what they name.
#[test]
fn operators_are_told_of_and_rows_are_found() {
    let broker = guarded();
    let operator = operator(&broker);
    operator.put("/v1/realms/b", &json!({ "rate": { "per_second": 9, "burst": 9 } })).expect(201);
    let made = token(&operator, "worker", json!({ "scopes": ["consume"], "topics": ["a*"] }));
    let path = format!("/v1/tokens/{}", text(&made, "id"));
    operator.patch(&path, &json!({ "scopes": ["publish", "topics"] })).expect(200);
    let rotated = operator.post(&format!("{path}/rotate"), &json!({})).expect(200);
    operator.with_token(secret(&rotated)).put("/v1/topics/abc", &json!({})).expect(201);
    assert_eq!(operator.delete(&path).status, 204);
    assert_eq!(operator.delete("/v1/realms/b").status, 204);
    let all = rows(&operator, "");
    assert_eq!(
        actions(&all),
        [
            "realm.put",
            "token.create",
            "token.change",
            "token.rotate",
            "topic.put",
            "token.revoke",
            "realm.delete"
        ]
    );
    let subject = format!("{} worker", text(&made, "id"));
    let of_tokens = rows(&operator, "&action=token.*");
    assert_eq!(of_tokens.len(), 4);
    assert!(
        of_tokens.iter().all(|row| row["subject"] == subject && row["actor"] == "operator"),
        "{of_tokens:?}"
    );
    assert_eq!(of_tokens[0]["detail"], "scopes consume; topics a*; subscriptions *");
    assert_eq!(of_tokens[1]["detail"], "scopes publish topics");
    assert_eq!(actions(&rows(&operator, "&realm=b")), ["realm.put", "realm.delete"]);
    assert_eq!(actions(&rows(&operator, "&actor=worker&realm=default")), ["topic.put"]);
    let text_of_all = json!(all).to_string();
    for made in [&made, &rotated] {
        let (_, random) = secret(made).rsplit_once('_').expect("a random part");
        assert!(!text_of_all.contains(random));
    }
    // Newest first, page by page.
    let (mut paged, mut cursor) = (Vec::new(), String::new());
    loop {
        let mut page = operator.get(&format!("/v1/audit?limit=2{cursor}")).expect(200);
        paged.extend(std::mem::take(page["items"].as_array_mut().expect("a list")));
        match page["next"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    paged.reverse();
    assert_eq!(paged, all);
}

/// Whoever has the rows can check them alone: each hash is what the documentation says.
#[test]
fn hashes_can_be_computed_by_anyone() {
    let broker = guarded();
    let operator = operator(&broker);
    operator.topic("t");
    let admin = holder(&operator, "admin", &["topics"]);
    admin.subscribe("s", "t", json!({}));
    let all = rows(&operator, "");
    assert!(all[2]["token"].is_string() && all[1]["detail"].is_string(), "each field is in some row");
    let mut previous = format!("sha256:{}", "0".repeat(64));
    for (row, number) in all.iter().zip(1..) {
        let lines = [
            previous.clone(),
            format!("{number}"),
            millis(&row["at"]).to_string(),
            text(row, "realm").to_owned(),
            text(row, "actor").to_owned(),
            text(row, "token").to_owned(),
            text(row, "action").to_owned(),
            text(row, "subject").to_owned(),
            text(row, "detail").to_owned(),
        ];
        let hash = sha2::Sha256::digest(lines.join("\n").as_bytes());
        let hash: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(
            (row["previous"].as_str(), row["hash"].as_str()),
            (Some(&*previous), Some(&*format!("sha256:{hash}")))
        );
        previous = text(row, "hash").to_owned();
    }
    let expected =
        json!({ "verified": true, "rows": 3, "first": 1, "before": all[0]["previous"], "last": previous });
    assert_eq!(chain(&operator), expected);
}

/// What the broker does to a policy by itself is told, too.
#[test]
fn a_quarantine_is_told() {
    let broker = Broker::start();
    broker.topic_and_subscription(json!({ "fault_limit": 1 }));
    broker.upload("s", &guests::after_trial("(unreachable)"), None).expect(201);
    broker.fail_one(json!({}));
    let told = rows(&broker, "&actor=broker");
    assert_eq!((actions(&told), &told[0]["subject"]), (vec!["policy.quarantine"], &json!("s")));
    assert!(text(&told[0], "detail").starts_with("revision 2: "), "{told:?}");
    assert_eq!(chain(&broker)["verified"], true);
}

/// A kill at any moment leaves a deed and its row, or neither.
#[test]
fn a_kill_parts_no_deed_from_its_row() {
    let mut broker = Broker::start();
    for round in 0..4 {
        let client: Client = broker.with_headers(&[]);
        let busy = std::thread::spawn(move || {
            for n in 0.. {
                let path = format!("/v1/topics/r{round}-{n}");
                if client.request("PUT", &path).json(&json!({})).send().is_err() {
                    break;
                }
            }
        });
        let some = || (broker.get(&format!("/v1/topics/r{round}-20")).status == 200).then_some(());
        wait_for("some topics", some);
        broker.kill();
        busy.join().expect("it ends with the broker");
        broker.start_again();
        let topics = broker.get("/v1/topics?limit=1000").expect(200)["items"].clone();
        let mut topics: Vec<_> =
            topics.as_array().expect("a list").iter().map(|it| text(it, "name").to_owned()).collect();
        let told = rows(&broker, "&action=topic.put");
        let mut told: Vec<_> = told.iter().map(|row| text(row, "subject").to_owned()).collect();
        topics.sort();
        told.sort();
        assert_eq!(told, topics, "round {round}");
        assert_eq!(chain(&broker)["verified"], true);
    }
}

/// Opens the store of a broker that does not run, and changes a row of the log.
fn tamper(broker: &Broker, number: u64, change: impl FnOnce(&mut AuditRow) -> bool) {
    let mut store = Durable::open(&broker.folder().data(), Options::default()).expect("a store");
    let row = store.get(Keyspace::Audit, &key::audit(number)).expect("it can be read").expect("a row");
    let mut row = AuditRow::decode(row).expect("a row");
    let mut commit = Commit::default();
    if change(&mut row) {
        commit.put(Keyspace::Audit, key::audit(number), row.encode());
    } else {
        commit.delete(Keyspace::Audit, key::audit(number));
    }
    store.apply(&[commit]).expect("it can be written");
    store.sync().expect("it can be synced");
}

/// A row that is changed, even with a hash that fits, or removed, wherever it is, is found.
#[test]
fn what_is_changed_or_missing_is_found() {
    type Change = fn(&mut AuditRow) -> bool;
    let changed: Change = |row| {
        row.entry.actor = "somebody".to_owned();
        true
    };
    let rehashed: Change = |row| {
        row.entry.actor = "somebody".to_owned();
        row.hash = row.entry.hash(row.previous, 3, row.at);
        true
    };
    let removed: Change = |_| false;
    let cases: [(&str, u64, Change, u64); 5] = [
        ("changed", 3, changed, 3),
        ("changed with its hash", 3, rehashed, 4),
        ("removed", 3, removed, 3),
        ("the oldest removed", 1, removed, 1),
        ("the newest removed", 5, removed, 5),
    ];
    for (what, number, change, broken_at) in cases {
        let mut broker = Broker::start();
        for n in 1..=5 {
            broker.topic(&format!("t{n}"));
        }
        assert_eq!(chain(&broker)["verified"], true, "{what}");
        broker.kill();
        tamper(&broker, number, change);
        broker.start_again();
        assert_eq!(chain(&broker), json!({ "verified": false, "broken_at": broken_at }), "{what}");
    }
}
