//! Rates and failed logins: who asks too often or guesses waits, and nobody else does.

use serde_json::json;

use crate::support::{Answer, Client};
use crate::tokens::{guarded, operator, secret, token};

/// Asks until it is refused, at most so often; how often it was let in, and the refusal.
fn until_refused(client: &Client, most: usize) -> (usize, Option<Answer>) {
    for count in 0..most {
        let answer = client.get("/v1/topics");
        if answer.status != 200 {
            return (count, Some(answer));
        }
    }
    (most, None)
}

#[track_caller]
fn assert_limited(refused: Option<Answer>) {
    let refused = refused.expect("it is refused in the end");
    assert_eq!(refused.problem(), (429, "rate_limited".to_owned()));
    assert_eq!(refused.json()["retryable"], true);
    let wait: u64 = refused.header("retry-after").and_then(|text| text.parse().ok()).expect("a number");
    assert!((1..=60).contains(&wait), "{wait}");
}

/// A token has its burst and then its rate; another token, and the operator, notice nothing. A change holds at once.
#[test]
fn a_token_keeps_its_rate() {
    let broker = guarded();
    let operator = operator(&broker);
    let slow =
        token(&operator, "slow", json!({ "scopes": ["topics"], "rate": { "per_second": 1, "burst": 5 } }));
    let other = token(&operator, "other", json!({ "scopes": ["topics"] }));
    let [client, other] = [&slow, &other].map(|token| operator.with_token(secret(token)));
    let (count, refused) = until_refused(&client, 100);
    assert!((5..20).contains(&count), "{count}");
    assert_limited(refused);
    assert!(until_refused(&other, 50).1.is_none() && until_refused(&operator, 50).1.is_none());
    let path = format!("/v1/tokens/{}", slow["id"].as_str().expect("an id"));
    operator.patch(&path, &json!({ "rate": null })).expect(200);
    assert!(until_refused(&client, 50).1.is_none());
}

/// All tokens of a realm share its rate; those of another, and operators, notice nothing.
#[test]
fn a_realm_keeps_its_rate() {
    let broker = guarded();
    let operator = operator(&broker);
    let in_realm = |name: &str, settings: serde_json::Value| {
        operator.put(&format!("/v1/realms/{name}"), &settings).expect(201);
        let body = |token: &str| json!({ "name": token, "scopes": ["topics"] });
        ["one", "two"].map(|token| {
            let request =
                operator.request("POST", "/v1/tokens").header("broker-realm", name).json(&body(token));
            broker.with_token(secret(&operator.send(request).expect(201)))
        })
    };
    let [one, two] = in_realm("a", json!({ "rate": { "per_second": 1, "burst": 4 } }));
    let [elsewhere, _] = in_realm("b", json!({}));
    let (count, refused) = until_refused(&one, 100);
    assert!((4..20).contains(&count), "{count}");
    assert_limited(refused);
    let (count, refused) = until_refused(&two, 100);
    assert!(count < 4, "{count}");
    assert_limited(refused);
    assert!(until_refused(&elsewhere, 50).1.is_none() && until_refused(&operator, 50).1.is_none());
}

/// Wrong tokens are told to wait, longer and longer; right ones are let in all the while, from the same address too.
#[test]
fn failed_logins_are_slowed_down() {
    let broker = guarded();
    let operator = operator(&broker);
    let guess = |n: usize| broker.with_token(&format!("rpr_t00000001_{n:064}")).get("/v1/topics");
    let (mut refused, mut longest) = (0, 0);
    for n in 0..60 {
        let answer = guess(n);
        match answer.problem() {
            (401, code) => assert_eq!(code, "unauthorized"),
            (status, code) => {
                assert_eq!((status, &*code), (429, "too_many_failed_logins"));
                assert_eq!(answer.json()["retryable"], true);
                let wait: u64 =
                    answer.header("retry-after").and_then(|it| it.parse().ok()).expect("a number");
                (refused, longest) = (refused + 1, longest.max(wait));
            }
        }
        assert_eq!(operator.get("/v1/topics").status, 200, "after {n}");
    }
    assert!(refused >= 20 && longest >= 1, "{refused} were refused, for up to {longest} s");
    assert_eq!(
        broker.get("/v1/topics").problem(),
        (401, "unauthorized".to_owned()),
        "without a token nobody guesses"
    );
}
