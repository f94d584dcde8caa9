//! Who may come in, and how many brokers a folder bears.

use std::os::unix::fs::PermissionsExt as _;

use serde_json::json;

use crate::support::{Broker, Folder, Launch};

const WITH_TOKEN: Launch = Launch { listen: "127.0.0.1:0", more: &[] };

fn token(broker: &Broker) -> String {
    std::fs::read_to_string(broker.folder().data().join("operator.token")).expect("a token").trim().to_owned()
}

/// The first start makes a token that only its owner can read; a restart keeps it.
#[test]
fn the_operator_token_is_made_once_and_private() {
    let mut broker = Broker::launch(WITH_TOKEN);
    let path = broker.folder().data().join("operator.token");
    let mode = std::fs::metadata(&path).expect("a token").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let first = token(&broker);
    assert!(first.len() >= 32);
    assert!(!broker.folder().log().contains(&first), "the log does not tell it");
    broker.kill_and_start_again();
    assert_eq!(token(&broker), first);
    let answer = broker.send(broker.request("GET", "/v1/topics").bearer_auth(&first));
    assert_eq!(answer.status, 200);
}

/// Without the token, or with another, every route of the API is a 401 and does nothing; health needs none.
#[test]
fn without_the_token_nothing_is_answered() {
    let broker = Broker::launch(WITH_TOKEN);
    let token = token(&broker);
    let wrong =
        ["", "Bearer", "Bearer ", "Bearer x", &format!("Basic {token}"), &format!("Bearer {token}x"), &token];
    for header in wrong {
        for (method, path) in [
            ("GET", "/v1/topics"),
            ("PUT", "/v1/topics/t"),
            ("POST", "/v1/subscriptions/s/pull"),
            ("GET", "/v1/dead-letters"),
            ("PUT", "/v1/subscriptions/s/policy"),
        ] {
            let request = broker.request(method, path).header("authorization", header).json(&json!({}));
            let answer = broker.send(request);
            assert_eq!(answer.problem(), (401, "unauthorized".to_owned()), "{header:?} {method} {path}");
            assert_eq!(answer.header("www-authenticate"), Some("Bearer"));
            assert!(!answer.text().contains(&token));
        }
    }
    assert_eq!(broker.put("/v1/topics/t", &json!({})).status, 401, "no header at all");
    let topics = broker.send(broker.request("GET", "/v1/topics").bearer_auth(&token)).expect(200);
    assert_eq!(topics["items"], json!([]));
    assert_eq!((broker.get("/healthz").status, broker.get("/readyz").status), (200, 200));
}

/// There is one realm yet: another is a 404, but only for those who may ask.
#[test]
fn another_realm_is_not_found() {
    let broker = Broker::launch(WITH_TOKEN);
    let token = token(&broker);
    let ask = |realm: &str| broker.request("GET", "/v1/topics").header("broker-realm", realm);
    assert_eq!(broker.send(ask("default").bearer_auth(&token)).status, 200);
    for realm in ["other", "", "DEFAULT"] {
        let answer = broker.send(ask(realm).bearer_auth(&token));
        assert_eq!(answer.problem(), (404, "realm_not_found".to_owned()), "{realm:?}");
        assert_eq!(broker.send(ask(realm)).problem(), (401, "unauthorized".to_owned()), "{realm:?}");
    }
}

/// A token file that holds no token is an error, not an open door.
#[test]
fn an_empty_token_file_is_refused() {
    let folder = Folder::new();
    std::fs::create_dir_all(folder.data()).expect("a folder");
    std::fs::write(folder.data().join("operator.token"), "\n").expect("a file");
    let output = WITH_TOKEN.output(&folder.data());
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("operator.token"), "{said}");
}

/// Without authentication the broker listens on loopback only.
#[test]
fn no_auth_is_for_loopback_only() {
    for listen in ["0.0.0.0:0", "[::]:0", "192.0.2.1:0"] {
        let folder = Folder::new();
        let output = Launch { listen, more: &["--no-auth"] }.output(&folder.data());
        assert_eq!(output.status.code(), Some(1), "{listen}");
        assert!(output.stdout.is_empty(), "{listen}");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("--no-auth") && said.contains("loopback"), "{said}");
        assert!(!folder.data().exists(), "nothing is made");
    }
}

/// A second process on the folder of a running broker is refused with a message that says so; the first goes on.
#[test]
fn a_folder_bears_one_process() {
    let mut broker = Broker::start();
    broker.topic("t");
    let output = Launch::default().output(&broker.folder().data());
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stdout.is_empty());
    let said = String::from_utf8_lossy(&output.stderr);
    let last = said.lines().last().unwrap_or_default();
    assert!(last.starts_with("broker: "), "{said}");
    let place = broker.folder().data();
    assert!(last.contains(place.to_str().expect("text")), "it names the folder: {said}");
    assert!(["in use", "locked", "another"].iter().any(|word| last.contains(word)), "it says why: {said}");
    broker.publish("t", &json!(1));
    broker.kill_and_start_again();
    assert_eq!(broker.get("/v1/topics/t").expect(200)["next_sequence"], 2);
}

/// An address that is taken is an error that names it, with exit code 1; a wrong command line is code 2.
#[test]
fn a_start_that_cannot_be_says_why() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address").to_string();
    let folder = Folder::new();
    let output = Launch { listen: address.leak(), more: &["--no-auth"] }.output(&folder.data());
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.lines().last().is_some_and(|line| line.starts_with("broker: ")), "{said}");
    let port = taken.local_addr().expect("an address").port().to_string();
    assert!(said.contains(&port), "it names the address: {said}");
    let output = Launch { listen: "nowhere", more: &[] }.output(&folder.data());
    assert_eq!(output.status.code(), Some(2));
}
