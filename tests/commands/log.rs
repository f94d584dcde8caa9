//! The log: its two forms, and what is never in it.

use serde_json::{Value, json};

use crate::run::{Ran, command, text};
use crate::served::Served;
use crate::support::guests;

/// In everything that a client or a policy chooses and that is no name.
const HOSTILE: &str = "SESAME\u{1b}[2J\r\n2099-01-01T00:00:00Z ERROR forged";

/// What clients send, what policies answer and what opens a broker is in no line, at any level and in both forms; that
/// requests were refused and a policy failed is.
#[test]
fn no_payload_and_no_secret_is_logged() {
    for format in ["text", "json"] {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let (data, log) = (folder.path().join("data"), folder.path().join("log"));
        let mut command =
            command(&["serve", "--listen", "127.0.0.1:0", "--log", "trace", "--log-format", format]);
        let broker = Served::start(command.arg("--data-dir").arg(&data), &log);
        let token = std::fs::read_to_string(data.join("operator.token")).expect("a token");
        let operator = broker.with_token(token.trim());
        operator.topic_and_subscription(json!({}));
        let made =
            operator.post("/v1/tokens", &json!({ "name": "worker", "scopes": ["consume"] })).expect(201);
        let secret = made["secret"].as_str().expect("a secret");

        let mut refused = Vec::new();
        refused.push(broker.with_token("SESAME-of-nobody-0123456789abcdef").get("/v1/topics"));
        refused.push(broker.with_token(&format!("{secret}SESAME")).get("/v1/topics"));
        refused.push(broker.with_token(secret).delete("/v1/topics/SESAME"));
        refused.push(operator.get("/v1/SESAME?token=SESAME"));
        refused.push(operator.get("/v1/topics?limit=SESAME"));
        refused.push(operator.get("/v1/topics/SESAME"));
        refused.push(operator.send(operator.request("SESAME", "/v1/topics")));
        refused.push(broker.send(broker.request("SESAME", "/v1/topics")));
        refused.push(operator.post("/v1/topics/t/messages", &json!({ "messages": HOSTILE })));
        refused.push(operator.send(operator.request("PUT", "/v1/topics/t").body(HOSTILE)));
        let schema = json!({ "schema": { "type": "object" } });
        operator.put("/v1/topics/strict", &schema);
        let item = json!({ "messages": [{ "payload": HOSTILE }] });
        assert_eq!(operator.post("/v1/topics/strict/messages", &item).status, 422);

        // A policy that repeats what it may have been shown, as the name of a queue.
        let repeats = guests::after_trial(&guests::dead_letter(Some(HOSTILE), HOSTILE));
        operator.upload("s", &repeats, Some(r#"{"key":"SESAME"}"#)).expect(201);
        let message = json!({ "payload": HOSTILE, "key": "SESAME", "attributes": { "SESAME": HOSTILE } });
        operator.publish_with("t", message);
        let delivery = operator.next("s");
        let failure = json!({ "class": "SESAME", "code": "SESAME", "detail": HOSTILE });
        let nacked = operator.nack_with("s", &delivery.receipt, failure);
        assert!(
            nacked["decision"]["fault"]["detail"].as_str().is_some_and(|detail| detail.contains("SESAME"))
        );
        broker.stop();

        let lines = std::fs::read_to_string(&log).expect("a log");
        for never in ["SESAME", "forged", token.trim(), secret, &delivery.receipt] {
            assert!(!lines.contains(never), "{never} is in the log:\n{lines}");
        }
        assert!(!lines.chars().any(|c| c.is_control() && c != '\n'), "{lines:?}");
        assert!(lines.contains("policy fault") && lines.contains("bad_answer"), "{lines}");
        for answer in refused {
            let (status, code) = answer.problem();
            let id = answer.header("x-request-id").expect("a request has an id");
            let line = lines.lines().find(|line| line.contains(id));
            let line = line.unwrap_or_else(|| panic!("{status} {code} is not told:\n{lines}"));
            assert!(line.contains(&code) && line.contains(&status.to_string()), "{line}");
        }
        if format == "json" {
            let lines: Vec<Value> =
                lines.lines().map(|line| serde_json::from_str(line).expect("a line is an object")).collect();
            let fault = lines.iter().find(|line| line["message"] == "policy fault").expect("it is told");
            assert_eq!((&fault["level"], &fault["subscription"]), (&json!("WARN"), &json!("s")));
        }
    }
}

/// What ends the broker is an object too where the log has objects.
#[test]
fn the_last_word_of_a_json_log_is_an_object() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let taken = taken.local_addr().map(|address| (taken, address.to_string())).expect("an address");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let data = text(&folder.path().join("data"));
    let arguments = ["serve", "--data-dir", &data, "--listen", &taken.1, "--log-format", "json"];
    let complaint = Ran::of(&mut command(&arguments)).failed(1);
    let last: Value = serde_json::from_str(complaint.lines().last().expect("a line")).expect("an object");
    assert_eq!((&last["level"], &last["message"]), (&json!("ERROR"), &json!("the broker failed")));
    let error = last["error"].as_str().expect("it says why");
    assert!(error.starts_with(&format!("cannot listen on {}", taken.1)), "{error}");
}
