//! `broker realm` and `broker token`: a tenant is set up, works, and is shut out again.

use serde_json::json;

use crate::run::{Ran, at, command};
use crate::support::{Broker, Launch};

/// A call with a token, as the environment gives it.
fn with(broker: &Broker, token: &str, arguments: &[&str]) -> Ran {
    let url = format!("http://{}", broker.address());
    Ran::of(command(arguments).env("BROKER_URL", url).env("BROKER_TOKEN", token))
}

/// From the first realm to the last token.
#[test]
fn a_tenant_comes_and_goes() {
    let broker = Broker::launch(Launch { listen: "127.0.0.1:0", more: &[] });
    let operator = std::fs::read_to_string(broker.folder().data().join("operator.token")).expect("a token");
    let operator = |arguments: &[&str]| with(&broker, operator.trim(), arguments);
    let made = operator(&["realm", "create", "acme", "--rate", "50", "--max-bytes", "1KiB"]).good();
    let lines: Vec<_> = made.lines().collect();
    assert_eq!(
        lines[0].split_whitespace().collect::<Vec<_>>(),
        ["realm", "created", "topics", "tokens", "messages", "bytes", "rate"]
    );
    assert!(
        lines[1].starts_with("acme ")
            && lines[1].ends_with("0       0       0         0      50/s, 50 at once"),
        "{made}"
    );

    let create = ["token", "create", "worker", "--realm", "acme", "--scope", "topics", "--scope", "consume"];
    let made = operator(&[&create[..], &["--topic", "orders-*", "--expires-in", "90d"]].concat()).good();
    let lines: Vec<_> = made.lines().collect();
    assert_eq!(lines[0], "t00000001 worker for consume topics");
    assert_eq!(lines[2], "Keep the secret: it is not shown again.");
    let worker = broker.with_token(lines[1]);
    worker.topic("orders-eu");
    assert_eq!(worker.put("/v1/topics/mail", &json!({})).status, 404);

    assert_eq!(operator(&["token", "list"]).good().lines().count(), 1, "none in the default realm");
    let listed = operator(&["token", "list", "--realm", "acme"]).good();
    let row: Vec<_> =
        listed.lines().nth(1).expect("a row").split("  ").filter(|cell| !cell.is_empty()).collect();
    assert_eq!(row[..5], ["t00000001", "worker", "consume topics", "orders-*", "*"], "{listed}");
    assert!(!listed.contains("rpr_"));

    let rotated =
        operator(&["token", "rotate", "t00000001", "--grace", "0s", "--realm", "acme", "--output", "json"]);
    let secret = rotated.json()["secret"].as_str().expect("a secret").to_owned();
    assert_eq!(worker.get("/v1/topics").status, 401);
    let explained = with(&broker, &secret, &["message", "explain", "m000000010000000000000001"]).failed(1);
    assert_eq!(
        explained,
        "broker: the broker refused (message_not_found): there is no such message, or no subscription needs it any more\n"
    );
    let refused = with(&broker, &secret, &["realm", "list"]).failed(1);
    assert!(refused.contains("(forbidden)") && refused.contains("operator"), "{refused}");

    let refused = operator(&["realm", "delete", "acme"]).failed(1);
    assert!(refused.contains("(realm_in_use)"), "{refused}");
    assert_eq!(operator(&["token", "revoke", "t00000001", "--realm", "acme"]).good(), "");
    let refused = with(&broker, &secret, &["policy", "revisions", "--subscription", "s"]).failed(1);
    assert!(refused.contains("(unauthorized)"), "{refused}");
    let missing = operator(&["token", "list", "--realm", "nowhere"]).failed(1);
    assert!(missing.contains("(realm_not_found)"), "{missing}");
    let realms = operator(&["realm", "list", "--output", "json"]).json();
    assert_eq!(
        (&realms[0]["name"], &realms[1]["name"], realms[2].is_null()),
        (&json!("acme"), &json!("default"), true)
    );
}

/// What is no name or id is refused before anybody is asked.
#[test]
fn wrong_names_are_refused_at_once() {
    let broker = Broker::start();
    for arguments in [
        &["realm", "delete", "../topics"][..],
        &["token", "revoke", "one"],
        &["token", "rotate", "t1"],
        &["token", "create", "worker"],
        &["realm", "create", "a", "--burst", "4"],
    ] {
        assert!(!at(&broker, arguments).failed(2).is_empty(), "{arguments:?}");
    }
}
