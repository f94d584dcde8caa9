//! Dead letters by the many: found by what they have in common, counted by it, and replayed or discarded by jobs.

use serde_json::{Value, json};

use crate::support::{Answer, Broker, Client, Delivery, PATIENCE, wait_for};
use crate::tokens::{guarded, operator, secret, token};

/// Dead letters of two subscriptions, with all that they can be found by; gives their messages' payloads.
fn graveyard() -> Broker {
    let broker = Broker::start();
    fill(&broker);
    broker
}

fn fill(broker: &Client) {
    broker.topic("t");
    broker.topic("u");
    let classes = json!({
        "invalid": { "action": "dead_letter", "queue": "bad", "reason": "It can never work: no address" },
        "late": { "action": "dead_letter", "reason": "too late to matter" },
    });
    let retry = json!({ "max_attempts": 2, "delay": 0, "classes": classes });
    broker.subscribe("mail", "t", json!({ "retry": retry.clone() }));
    broker.subscribe("post", "u", json!({ "retry": retry }));
    for (payload, topic, tenant, class) in [
        (1, "t", "acme", "invalid"),
        (2, "t", "acme", "late"),
        (3, "t", "umbrella", "timeout"),
        (4, "u", "acme", "invalid"),
        (5, "u", "umbrella", "timeout"),
    ] {
        let subscription = if topic == "t" { "mail" } else { "post" };
        broker.publish_with(topic, json!({ "payload": payload, "attributes": { "tenant": tenant } }));
        let mut decided = Value::Null;
        while decided["decision"]["action"] != "dead_letter" {
            let delivery: Delivery = broker.next(subscription);
            decided = broker.nack(subscription, &delivery.receipt, class);
        }
    }
}

/// The payloads of what a query finds, in its order.
fn found(broker: &Client, query: &str) -> Vec<u64> {
    let page = broker.get(&format!("/v1/dead-letters?{query}")).expect(200);
    let items = page["items"].as_array().expect("a list");
    items.iter().map(|item| payload(broker, item)).collect()
}

fn payload(broker: &Client, letter: &Value) -> u64 {
    let whole = broker.dead_letter(letter["id"].as_str().expect("an id"));
    whole["message"]["payload"].as_u64().expect("a number")
}

fn values(counted: &Value, facet: &str) -> Value {
    let values = counted["facets"][facet].as_array().cloned().unwrap_or_default();
    let pair = |it: &Value| (it["value"].as_str().expect("a value").to_owned(), it["count"].clone());
    Value::Object(values.iter().map(pair).collect())
}

/// Each filter alone, and filters together, find what matches all of them.
#[test]
fn every_filter_finds_what_matches_it() {
    let mut broker = graveyard();
    let expected: &[(&str, &[u64])] = &[
        ("", &[1, 2, 3, 4, 5]),
        ("subscription=mail", &[1, 2, 3]),
        ("topic=u", &[4, 5]),
        ("queue=bad", &[1, 4]),
        ("queue=mail/bad", &[1]),
        ("queue=", &[2, 3, 5]),
        ("class=timeout", &[3, 5]),
        ("cause=nacked", &[1, 2, 3, 4, 5]),
        ("cause=lease_expired", &[]),
        ("revision=1", &[1, 2, 3, 4, 5]),
        ("revision=2", &[]),
        ("attempts=2", &[3, 5]),
        ("attempts=1", &[1, 2, 4]),
        ("reason=too+late+to+matter", &[2]),
        ("reason=too+late", &[]),
        ("text=LATE", &[2]),
        ("text=work+never", &[1, 4]),
        ("text=it", &[1, 4]),
        ("text=never+late", &[]),
        ("label=class%3Dinvalid", &[1, 4]),
        ("label=class%3D", &[]),
        ("attribute=tenant%3Dacme", &[1, 2, 4]),
        ("attribute=tenant%3Dacme&topic=t&class=invalid", &[1]),
        ("attribute=tenant%3Dacme&attribute=tenant%3Dumbrella", &[]),
        ("class=timeout&text=address", &[]),
        ("newer_than=1h", &[1, 2, 3, 4, 5]),
        ("older_than=1h", &[]),
        ("since=2000-01-01T00:00:00Z&until=2001-01-01T00:00:00Z", &[]),
        ("until=2000-01-01T00:00:00Z&since=2001-01-01T00:00:00Z", &[]),
        ("order=newest", &[5, 4, 3, 2, 1]),
        ("order=newest&attribute=tenant%3Dacme", &[4, 2, 1]),
    ];
    for start in [false, true] {
        for (query, payloads) in expected {
            assert_eq!(found(&broker, query), *payloads, "{query}");
        }
        if !start {
            broker.kill_and_start_again();
        }
    }
}

/// A moment splits them in two, whatever the order, and pages hold everything once in either.
#[test]
fn they_are_in_the_order_of_their_ends() {
    let broker = graveyard();
    let all = broker.get("/v1/dead-letters?order=newest").expect(200);
    let third = all["items"][2]["dead_at"].as_str().expect("a moment");
    let since = found(&broker, &format!("since={third}"));
    let until = found(&broker, &format!("until={third}"));
    assert!(since.contains(&3) && since.contains(&5) && until.len() + since.len() == 5);
    for (order, expected) in [("oldest", [1, 2, 3, 4, 5]), ("newest", [5, 4, 3, 2, 1])] {
        let mut paged = Vec::new();
        let mut cursor = String::new();
        loop {
            let page = broker.get(&format!("/v1/dead-letters?order={order}&limit=2{cursor}")).expect(200);
            let items = page["items"].as_array().expect("a list");
            assert!(!items.is_empty() && items.len() <= 2);
            paged.extend(items.iter().map(|item| payload(&broker, item)));
            // What dies meanwhile moves nothing that was there.
            let Some(next) = page["next"].as_str() else { break };
            cursor = format!("&cursor={next}");
        }
        assert_eq!(paged, expected, "{order}");
    }
}

/// How many there are of each kind, of all or of what a filter finds; what goes is counted no more.
#[test]
fn facets_count_what_is_there() {
    let mut broker = graveyard();
    let facets =
        |broker: &Client, query: &str| broker.get(&format!("/v1/dead-letters/facets?{query}")).expect(200);
    let all = facets(&broker, "");
    assert_eq!((&all["total"], &all["complete"]), (&json!(5), &json!(true)));
    assert_eq!(values(&all, "subscription"), json!({ "mail": 3, "post": 2 }));
    assert_eq!(values(&all, "topic"), json!({ "t": 3, "u": 2 }));
    assert_eq!(values(&all, "queue"), json!({ "": 3, "bad": 2 }));
    assert_eq!(values(&all, "class"), json!({ "invalid": 2, "timeout": 2, "late": 1 }));
    assert_eq!(values(&all, "cause"), json!({ "nacked": 5 }));
    assert_eq!(values(&all, "revision"), json!({ "1": 5 }));
    assert_eq!(values(&all, "label")["class=invalid"], 2);
    assert_eq!(values(&all, "reason")["too late to matter"], 1);
    let counts: Vec<_> = all["facets"]["class"].as_array().expect("values").iter().collect();
    assert!(counts.is_sorted_by_key(|it| std::cmp::Reverse(it["count"].as_u64())), "{counts:?}");
    assert_eq!(
        values(&facets(&broker, "subscription=mail"), "class"),
        json!({ "invalid": 1, "late": 1, "timeout": 1 })
    );
    let acme = facets(&broker, "attribute=tenant%3Dacme");
    assert_eq!((&acme["total"], &acme["complete"]), (&json!(3), &json!(true)));
    assert_eq!(values(&acme, "class"), json!({ "invalid": 2, "late": 1 }));
    assert_eq!(values(&facets(&broker, "subscription=mail&queue=post/bad"), "class"), json!({}));

    let ids = |broker: &Client, query: &str| -> Vec<String> {
        let page = broker.get(&format!("/v1/dead-letters?{query}")).expect(200);
        page["items"]
            .as_array()
            .expect("a list")
            .iter()
            .map(|it| it["id"].as_str().expect("an id").to_owned())
            .collect()
    };
    let timeouts = ids(&broker, "class=timeout");
    broker.post(&format!("/v1/dead-letters/{}/replay", timeouts[0]), &Value::Null).expect(200);
    broker.delete(&format!("/v1/dead-letters/{}", timeouts[1])).expect(204);
    broker.kill_and_start_again();
    let left = facets(&broker, "");
    assert_eq!((&left["total"], values(&left, "class")), (&json!(3), json!({ "invalid": 2, "late": 1 })));
    broker.delete("/v1/subscriptions/mail").expect(204);
    let gone =
        || Some(facets(&broker, "")).filter(|counted| values(counted, "class") == json!({ "invalid": 1 }));
    let left = wait_for("the dead letters of what was deleted", gone);
    assert_eq!((&left["total"], values(&left, "subscription")), (&json!(1), json!({ "post": 1 })));
    assert_eq!(found(&broker, "queue=bad"), [4]);
}

/// Bad filters are refused before anything is looked for, in the list and in the counts alike.
#[test]
fn bad_filters_are_refused() {
    let broker = graveyard();
    let long = format!("text={}", vec!["word"; 17].join("+"));
    for (query, code) in [
        ("subscription=nobody", "subscription_not_found"),
        ("topic=nothing", "topic_not_found"),
        ("subscription=not%20a%20name", "invalid_name"),
        ("queue=mail/not%20a%20name", "invalid_name"),
        ("cause=bad_luck", "invalid_query"),
        ("revision=first", "invalid_query"),
        ("revision=-1", "invalid_query"),
        ("attempts=99999999999", "invalid_query"),
        ("label=class", "invalid_query"),
        ("text=---", "invalid_query"),
        ("text=", "invalid_query"),
        ("since=yesterday", "invalid_query"),
        ("older_than=never", "invalid_duration"),
        ("older_than=-5", "invalid_duration"),
        ("class=a&class=b", "invalid_query"),
        ("revision=1&revision=1", "invalid_query"),
        ("newer_than=1h&newer_than=2h", "invalid_query"),
        ("colour=red", "invalid_query"),
        (&long, "invalid_query"),
    ] {
        for path in ["/v1/dead-letters", "/v1/dead-letters/facets"] {
            assert_eq!(broker.get(&format!("{path}?{query}")).problem().1, code, "{path}?{query}");
        }
    }
    for (query, code) in [
        ("order=random", "invalid_query"),
        ("limit=0", "invalid_query"),
        ("limit=many", "invalid_query"),
        ("limit=1&limit=1", "invalid_query"),
        ("cursor=zzz", "invalid_cursor"),
    ] {
        assert_eq!(broker.get(&format!("/v1/dead-letters?{query}")).problem().1, code, "{query}");
    }
    // Cursors are of any query: what is behind them is what this one asks for.
    let page = broker.get("/v1/dead-letters?limit=2").expect(200);
    let cursor = page["next"].as_str().expect("a cursor");
    assert_eq!(found(&broker, &format!("cursor={cursor}&until=2000-01-01T00:00:00Z")), [0; 0]);
    assert_eq!(found(&broker, &format!("cursor={cursor}&class=timeout")), [3, 5]);
}

/// A token finds and counts those of its own subscriptions alone.
#[test]
fn tokens_see_their_own_alone() {
    let broker = guarded();
    let admin = operator(&broker);
    fill(&admin);
    let rights = json!({ "scopes": ["dead_letters", "read_payload"], "subscriptions": ["post"] });
    let desk = broker.with_token(secret(&token(&admin, "desk", rights)));
    assert_eq!(found(&desk, ""), [4, 5]);
    assert_eq!(found(&desk, "queue=bad"), [4]);
    let counted = desk.get("/v1/dead-letters/facets").expect(200);
    assert_eq!((&counted["total"], values(&counted, "subscription")), (&json!(2), json!({ "post": 2 })));
    for path in ["/v1/dead-letters", "/v1/dead-letters/facets"] {
        let hidden = desk.get(&format!("{path}?subscription=mail")).problem();
        assert_eq!(hidden, (404, "subscription_not_found".to_owned()));
    }
}

/// Many dead letters go with their subscription, with all that they were found and counted by, and beside its records.
#[test]
fn many_go_with_their_subscription() {
    let broker = Broker::start();
    broker.topic_and_subscription(json!({ "retry": { "max_attempts": 1 } }));
    let messages = json!({ "messages": vec![json!({ "payload": 1, "attributes": { "a": "b" } }); 300] });
    broker.post("/v1/topics/t/messages", &messages).expect(201);
    let items: Vec<_> = broker
        .pull("s", 300, PATIENCE)
        .into_iter()
        .map(|it| json!({ "receipt": it.receipt, "class": "x" }))
        .collect();
    broker.post("/v1/subscriptions/s/nack", &json!({ "items": items })).expect(200);
    let facets = || broker.get("/v1/dead-letters/facets").expect(200);
    assert_eq!((facets()["total"].clone(), values(&facets(), "class")), (json!(300), json!({ "x": 300 })));
    broker.delete("/v1/subscriptions/s").expect(204);
    wait_for("all of them to go", || Some(()).filter(|()| facets()["total"] == 0));
    broker.subscribe("s", "t", json!({}));
    assert_eq!(values(&facets(), "class"), json!({}));
    assert_eq!(found(&broker, "attribute=a%3Db"), [0; 0]);
}

fn plan(broker: &Client, body: Value) -> Value {
    broker.post("/v1/dead-letters/jobs", &body).expect(201)
}

fn job(broker: &Client, verb: &str, job: &Value) -> Answer {
    broker.post(&format!("/v1/dead-letters/jobs/{}/{verb}", job["id"].as_str().expect("an id")), &json!({}))
}

fn done(broker: &Client, job: &Value) -> Value {
    let path = format!("/v1/dead-letters/jobs/{}", job["id"].as_str().expect("an id"));
    wait_for("the job to end", || Some(broker.get(&path).expect(200)).filter(|it| it["state"] == "done"))
}

/// A job is planned with what it is about, waits to be started, and takes what was there when it was planned and nothing else.
#[test]
fn a_job_does_what_it_planned() {
    let mut broker = graveyard();
    let filter = json!({ "attributes": { "tenant": "acme" }, "older_than": "0s" });
    let planned = plan(&broker, json!({ "action": "replay", "filter": filter, "reason": "fixed" }));
    let shown = ["action", "state", "found", "done", "reason", "by"].map(|field| planned[field].clone());
    assert_eq!(json!(shown), json!(["replay", "planned", 3, 0, "fixed", "anonymous"]), "{planned}");
    assert_eq!(planned["filter"]["attributes"], json!({ "tenant": "acme" }));
    assert_eq!(planned["sample"].as_array().map(Vec::len), Some(3));
    let other = plan(&broker, json!({ "action": "discard", "filter": { "class": "timeout" } }));
    // One more that matches dies after the plan.
    broker.publish_with("u", json!({ "payload": 6, "attributes": { "tenant": "acme" } }));
    let late = broker.next("post");
    assert_eq!(broker.nack("post", &late.receipt, "invalid")["decision"]["action"], "dead_letter");
    broker.kill_and_start_again();
    assert_eq!(broker.get("/v1/dead-letters/jobs").expect(200)["items"][1], planned, "the newest first");
    assert_eq!(found(&broker, ""), [1, 2, 3, 4, 5, 6], "nothing happens before it is started");

    assert_eq!(job(&broker, "start", &planned).expect(200)["state"], "running");
    let ended = done(&broker, &planned);
    assert_eq!((&ended["done"], &ended["skipped"]), (&json!(3), &json!(0)));
    assert_eq!(found(&broker, ""), [3, 5, 6]);
    assert_eq!(
        (broker.subscription("mail")["backlog"].clone(), broker.subscription("post")["backlog"].clone()),
        (json!(2), json!(1))
    );
    let again = broker.next("mail");
    assert_eq!((again.attempt, again.message["payload"].as_u64()), (1, Some(1)));
    job(&broker, "start", &other).expect(200);
    assert_eq!(done(&broker, &other)["done"], 2);
    assert_eq!(found(&broker, ""), [6]);
    for verb in ["start", "abort"] {
        assert_eq!(job(&broker, verb, &planned).problem(), (409, "job_state".to_owned()));
    }
}

/// What a job is told is checked before it is planned.
#[test]
fn bad_plans_are_refused() {
    let broker = graveyard();
    let of = |filter: Value| json!({ "action": "discard", "filter": filter });
    for (body, code) in [
        (json!({ "action": "discard" }), "filter_required"),
        (json!({ "action": "discard", "filter": {} }), "filter_required"),
        (json!({ "action": "burn", "all": true }), "invalid_body"),
        (json!({ "filter": { "class": "x" } }), "invalid_body"),
        (of(json!({ "subscription": "nobody" })), "subscription_not_found"),
        (of(json!({ "topic": "nothing" })), "topic_not_found"),
        (of(json!({ "colour": "red" })), "invalid_body"),
        (of(json!({ "cause": "bad_luck" })), "invalid_body"),
        (of(json!({ "subscription": "mail", "queue": "post/bad" })), "invalid_body"),
        (of(json!({ "older_than": "-1s" })), "invalid_duration"),
        (json!({ "action": "discard", "all": true, "rate": 0 }), "invalid_body"),
        (json!({ "action": "discard", "all": true, "rate": 100_001 }), "invalid_body"),
        (json!({ "action": "discard", "all": true, "reason": "x".repeat(2_000) }), "invalid_body"),
    ] {
        let refused = broker.post("/v1/dead-letters/jobs", &body).problem().1;
        assert_eq!(refused, code, "{body}");
    }
    assert_eq!(broker.get("/v1/dead-letters/jobs").expect(200)["items"], json!([]));
    let all = plan(&broker, json!({ "action": "discard", "all": true }));
    assert_eq!(all["found"], 5);
    for _ in 1..20 {
        plan(&broker, json!({ "action": "discard", "all": true }));
    }
    let more = broker.post("/v1/dead-letters/jobs", &json!({ "action": "discard", "all": true }));
    assert_eq!(more.problem(), (409, "limit_reached".to_owned()));
    assert_eq!(job(&broker, "abort", &all).expect(200)["state"], "aborted");
    plan(&broker, json!({ "action": "discard", "all": true }));
}

/// Whoever has some subscriptions alone plans over one of them, and sees jobs about these.
#[test]
fn jobs_are_within_the_rights_of_a_token() {
    let broker = guarded();
    let admin = operator(&broker);
    fill(&admin);
    let rights = json!({ "scopes": ["dead_letters"], "subscriptions": ["post"] });
    let desk = broker.with_token(secret(&token(&admin, "desk", rights)));
    let theirs = plan(&admin, json!({ "action": "discard", "filter": { "subscription": "mail" } }));
    for body in [
        json!({ "action": "discard", "all": true }),
        json!({ "action": "discard", "filter": { "class": "timeout" } }),
    ] {
        assert_eq!(desk.post("/v1/dead-letters/jobs", &body).problem(), (403, "forbidden".to_owned()));
    }
    for verb in ["start", "abort"] {
        assert_eq!(job(&desk, verb, &theirs).problem(), (404, "job_not_found".to_owned()));
    }
    let own = plan(&desk, json!({ "action": "discard", "filter": { "subscription": "post" } }));
    assert_eq!((&own["found"], &own["by"]), (&json!(2), &json!("desk")));
    assert_eq!(desk.get("/v1/dead-letters/jobs").expect(200)["items"], json!([own]));
    job(&desk, "start", &own).expect(200);
    done(&desk, &own);
    assert_eq!(found(&admin, ""), [1, 2, 3]);
    let told = admin.get("/v1/audit").expect(200).to_string();
    for action in ["job.plan", "job.start"] {
        assert!(told.contains(action), "{told}");
    }
}

/// A replay can carry another payload, content type or attributes: the delivery is of the same message, and says so.
#[test]
fn a_replay_can_change_the_message() {
    let mut broker = graveyard();
    let letter = |payload: usize, broker: &Broker| {
        let page = broker.get("/v1/dead-letters").expect(200);
        page["items"][payload - 1].clone()
    };
    let first = letter(1, &broker);
    let path = format!("/v1/dead-letters/{}/replay", first["id"].as_str().expect("an id"));
    for (body, code) in [
        (json!({ "payload": 1, "payload_base64": "MQ==" }), "invalid_message"),
        (json!({ "payload_base64": "?" }), "invalid_body"),
        (json!({ "attributes": { "a b": "c" } }), "invalid_attribute"),
        (json!({ "colour": "red" }), "invalid_body"),
    ] {
        assert_eq!(broker.post(&path, &body).problem().1, code, "{body}");
    }
    broker.put("/v1/topics/t", &json!({ "max_message_bytes": 20 })).expect(200);
    let long = json!({ "payload": "longer than the topic takes" });
    assert_eq!(broker.post(&path, &long).problem(), (413, "message_too_large".to_owned()));
    assert_eq!(found(&broker, ""), [1, 2, 3, 4, 5], "what was refused changed nothing");
    broker.post(&path, &json!({ "payload": { "fixed": 1 }, "attributes": { "tenant": "new" } })).expect(200);
    broker.kill_and_start_again();
    let delivery = broker.next("mail");
    assert_eq!(delivery.id(), first["message_id"].as_str().expect("an id"));
    assert_eq!(delivery.message["payload"], json!({ "fixed": 1 }));
    assert_eq!(delivery.message["attributes"], json!({ "tenant": "new" }));
    let timeline = broker.delivery_of(delivery.id())["timeline"].clone();
    assert_eq!((&timeline["edited"], &timeline["replays"]), (&json!(true), &json!(1)));
    // It dies again as it was changed, and is found as such.
    broker.nack("mail", &delivery.receipt, "invalid");
    let page = broker.get("/v1/dead-letters?attribute=tenant%3Dnew").expect(200);
    assert_eq!((&page["items"][0]["id"], &page["items"][0]["replays"]), (&first["id"], &json!(1)));
    // A replay without changes keeps the one before.
    broker.post(&path, &Value::Null).expect(200);
    let delivery = broker.next("mail");
    assert_eq!(delivery.message["payload"], json!({ "fixed": 1 }));
    assert_eq!(broker.delivery_of(delivery.id())["timeline"]["edited"], true);
}
