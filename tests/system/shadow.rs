//! A shadow is asked what the active policy was asked, and changes nothing.

use serde_json::{Value, json};

use crate::support::{Answer, Broker, guests, policies};

const PATH: &str = "/v1/subscriptions/s/policy/shadow";

fn broker() -> Broker {
    let broker = Broker::start();
    broker.topic_and_subscription(json!({ "retry": { "delay": "5s", "jitter": "none" } }));
    broker
}

fn put_module(broker: &Broker, module: &[u8]) -> Answer {
    let request = broker.request("PUT", PATH).header("content-type", "application/wasm");
    broker.send(request.body(module.to_vec()))
}

/// The shadow once it has answered everything: it is asked off the path of the decision.
fn answered(broker: &Broker, asked: u64) -> Value {
    for _ in 0..2_000 {
        let shadow = broker.get(PATH).expect(200);
        if shadow["asked"] == asked {
            return shadow;
        }
    }
    panic!("{asked} are to be answered: {}", broker.get(PATH).text())
}

/// It counts agreement, tells classes and attempts apart where it differs, with examples, and decides nothing.
#[test]
fn a_shadow_is_compared_and_decides_nothing() {
    let broker = broker();
    let made = put_module(&broker, &policies::module("http-status")).expect(201);
    assert_eq!(
        (&made["name"], &made["asked"], made.get("agreement")),
        (&json!("http-status"), &json!(0), None)
    );
    let params =
        json!({ "params": { "delay": "5s", "jitter": "none", "classes": { "odd": { "action": "drop" } } } });
    broker.put(PATH, &params).expect(201);
    for class in ["timeout", "odd", "odd"] {
        let (_, decision) = broker.fail_one(json!({ "class": class }));
        assert_eq!((&decision["action"], &decision["revision"]), (&json!("retry"), &json!(1)));
    }
    let shadow = answered(&broker, 3);
    assert_eq!((&shadow["agreed"], &shadow["differed"]), (&json!(1), &json!(2)));
    assert!(shadow["agreement"].as_f64().is_some_and(|agreement| (0.33..0.34).contains(&agreement)));
    assert_eq!(shadow["differences"], json!([{ "class": "odd", "attempt": 1, "count": 2 }]));
    let example = &shadow["examples"][0];
    assert_eq!(
        (&example["before"]["action"], &example["after"]["action"]),
        (&json!("retry"), &json!("drop"))
    );
    assert_eq!(broker.subscription("s")["policy"]["revision"], 1);
}

/// It survives a kill, the same again is the same, and once deleted it is gone.
#[test]
fn a_shadow_stays_until_it_is_deleted() {
    let mut broker = broker();
    let module = guests::deciding(&guests::retry(5_000)).module();
    let made = put_module(&broker, &module).expect(201);
    assert_eq!(put_module(&broker, &module).expect(200)["created_at"], made["created_at"]);
    broker.kill_and_start_again();
    assert_eq!(broker.get(PATH).expect(200)["digest"], made["digest"]);
    broker.fail_one(json!({}));
    assert_eq!(answered(&broker, 1)["agreed"], 1);
    broker.delete(PATH);
    assert_eq!(broker.get(PATH).problem(), (404, "shadow_not_found".to_owned()));
    broker.kill_and_start_again();
    assert_eq!(broker.delete(PATH).problem(), (404, "shadow_not_found".to_owned()));
    broker.fail_one(json!({}));
}

/// One that breaks, or burns all it may, costs the others nothing: decisions come, faults are counted.
#[test]
fn a_hostile_shadow_holds_nobody_up() {
    let broker = broker();
    put_module(&broker, &guests::after_trial("(loop $on (br $on)) (unreachable)")).expect(201);
    for _ in 0..20 {
        let (_, decision) = broker.fail_one(json!({}));
        assert_eq!((&decision["decided_by"], &decision["delay"]), (&json!("policy"), &json!("5s")));
    }
    let shadow = answered(&broker, 20);
    assert_eq!((&shadow["faults"], &shadow["differed"]), (&json!({ "fuel": 20 }), &json!(20)));
    assert_eq!(broker.subscription("s")["policy"]["faults"], 0, "they are not the active revision's");
}

/// What is active already, or no policy, is no shadow.
#[test]
fn bad_shadows_are_refused() {
    let broker = broker();
    assert_eq!(broker.put(PATH, &json!({})).problem(), (409, "shadow_is_active".to_owned()));
    assert_eq!(broker.put(PATH, &json!({ "revision": 1 })).problem(), (409, "shadow_is_active".to_owned()));
    assert_eq!(broker.put(PATH, &json!({ "revision": 5 })).problem(), (404, "revision_not_found".to_owned()));
    assert_eq!(broker.put(PATH, &json!({ "params": { "delay": "x" } })).problem().1, "invalid_params");
    assert_eq!(broker.put(PATH, &json!({ "percent": 5 })).problem().1, "invalid_body");
    assert_eq!(put_module(&broker, b"no module").problem().1, "invalid_policy");
    let missing = broker.put("/v1/subscriptions/missing/policy/shadow", &json!({}));
    assert_eq!(missing.problem().1, "subscription_not_found");
    assert_eq!(broker.get(PATH).problem().1, "shadow_not_found");
}
