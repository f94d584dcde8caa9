//! Bad requests: each is a problem with its stable code, and nothing changes.

use reqwest::blocking::RequestBuilder;
use serde_json::{Value, json};

use crate::support::{Broker, Socket};

/// A broker with a topic `t`, a subscription `s`, one message held and one dead letter.
fn broker() -> Broker {
    let broker = Broker::start();
    let retry = json!({ "classes": { "fatal": { "action": "dead_letter" } } });
    broker.topic_and_subscription(json!({ "retry": retry }));
    for number in 0..3 {
        broker.publish("t", &json!(number));
    }
    let delivery = broker.next("s");
    broker.nack("s", &delivery.receipt, "fatal");
    broker.next("s");
    broker
}

/// Sends each request, expects its problem, and compares everything before and after.
#[track_caller]
fn refused(broker: &Broker, requests: impl IntoIterator<Item = (String, RequestBuilder, u16, &'static str)>) {
    let before = broker.everything();
    for (what, request, status, code) in requests {
        let answer = broker.send(request);
        assert_eq!(answer.problem(), (status, code.to_owned()), "{what}: {}", answer.text());
    }
    assert_eq!(broker.everything(), before);
}

/// A JSON request as a row of [`refused`].
fn row(
    broker: &Broker,
    method: &str,
    path: &str,
    body: &Value,
    status: u16,
    code: &'static str,
) -> (String, RequestBuilder, u16, &'static str) {
    let text = body.to_string();
    let what = format!("{method} {path} {}", &text[..text.floor_char_boundary(120)]);
    (what, broker.request(method, path).json(body), status, code)
}

/// Names with characters, beginnings or lengths that names may not have.
#[test]
fn bad_names_are_refused_everywhere() {
    let broker = broker();
    let long = "n".repeat(129);
    let names =
        ["-a", ".hidden", "..", "a%20b", "a%2Fb", "a%00b", "a%0Ab", "%C3%A9", "a*", "a:b", "%3Cb%3E", &long];
    for name in names {
        let rows = [
            ("PUT", format!("/v1/topics/{name}"), json!({})),
            ("GET", format!("/v1/topics/{name}"), json!({})),
            ("DELETE", format!("/v1/topics/{name}"), json!({})),
            ("POST", format!("/v1/topics/{name}/messages"), json!({ "messages": [{ "payload": 1 }] })),
            ("PUT", format!("/v1/subscriptions/{name}"), json!({ "topic": "t" })),
            ("PATCH", format!("/v1/subscriptions/{name}"), json!({})),
            ("GET", format!("/v1/subscriptions/{name}"), json!({})),
            ("DELETE", format!("/v1/subscriptions/{name}"), json!({})),
            ("POST", format!("/v1/subscriptions/{name}/pull"), json!({})),
            ("POST", format!("/v1/subscriptions/{name}/ack"), json!({ "receipts": ["x"] })),
            ("GET", format!("/v1/subscriptions/{name}/policy"), json!({})),
            ("PUT", format!("/v1/subscriptions/{name}/policy/params"), json!({})),
        ];
        // Two dots are a step up for every client, which then asks for another path.
        let rows = rows.into_iter().filter(|(_, path, _)| !path.contains(".."));
        let rows: Vec<_> = rows
            .map(|(method, path, body)| row(&broker, method, &path, &body, 400, "invalid_name"))
            .collect();
        refused(&broker, rows);
    }
    let forward = json!({ "topic": "t", "forward_to": ["../t"] });
    refused(
        &broker,
        [
            row(&broker, "PUT", "/v1/subscriptions/x", &json!({ "topic": "a b" }), 400, "invalid_name"),
            row(&broker, "PUT", "/v1/subscriptions/x", &forward, 400, "invalid_name"),
            row(&broker, "GET", "/v1/dead-letters?subscription=-", &json!({}), 400, "invalid_name"),
            row(&broker, "GET", "/v1/dead-letters?queue=a%20b", &json!({}), 400, "invalid_name"),
        ],
    );
}

/// A path that is no text is a problem like any other.
#[test]
fn a_path_that_is_no_text_is_refused() {
    let broker = broker();
    for path in ["/v1/topics/%FF", "/v1/subscriptions/%FF/policy", "/v1/messages/%FF", "/v1/dead-letters/%FF"]
    {
        let answer = broker.get(path);
        assert_eq!(answer.problem().0, 400, "{path}: {}", answer.text());
    }
}

/// Things that are not there.
#[test]
fn what_is_not_there_is_not_found() {
    let broker = broker();
    let none = json!({});
    let mut rows = vec![
        row(&broker, "GET", "/v1/topics/x", &none, 404, "topic_not_found"),
        row(&broker, "DELETE", "/v1/topics/x", &none, 404, "topic_not_found"),
        row(
            &broker,
            "POST",
            "/v1/topics/x/messages",
            &json!({ "messages": [{ "payload": 1 }] }),
            404,
            "topic_not_found",
        ),
        row(&broker, "PUT", "/v1/subscriptions/x", &json!({ "topic": "x" }), 404, "topic_not_found"),
        row(&broker, "GET", "/v1/messages/m000000010000000000000009", &none, 404, "message_not_found"),
        row(&broker, "GET", "/v1/messages/m000000090000000000000001", &none, 404, "message_not_found"),
        row(
            &broker,
            "GET",
            "/v1/dead-letters/d00000001000000010000000000000009",
            &none,
            404,
            "dead_letter_not_found",
        ),
        row(
            &broker,
            "DELETE",
            "/v1/dead-letters/d00000009000000090000000000000001",
            &none,
            404,
            "dead_letter_not_found",
        ),
        row(
            &broker,
            "POST",
            "/v1/dead-letters/dffffffffffffffffffffffffffffffff/replay",
            &none,
            404,
            "dead_letter_not_found",
        ),
    ];
    for (method, path, body) in [
        ("GET", "", json!({})),
        ("PATCH", "", json!({})),
        ("DELETE", "", json!({})),
        ("POST", "/pull", json!({})),
        ("POST", "/ack", json!({ "receipts": ["x"] })),
        ("POST", "/nack", json!({ "items": [{ "receipt": "x" }] })),
        ("POST", "/release", json!({ "receipts": ["x"] })),
        ("POST", "/extend", json!({ "items": [{ "receipt": "x" }] })),
        ("GET", "/policy", json!({})),
        ("PUT", "/policy/params", json!({})),
        ("GET", "/policy/revisions", json!({})),
    ] {
        rows.push(row(
            &broker,
            method,
            &format!("/v1/subscriptions/x{path}"),
            &body,
            404,
            "subscription_not_found",
        ));
    }
    for id in [
        "x",
        "m1",
        "m00000001000000000000000G",
        "d00000001000000010000000000000001",
        "m00000001000000000000000100",
    ] {
        rows.push(row(&broker, "GET", &format!("/v1/messages/{id}"), &none, 400, "invalid_id"));
    }
    rows.push(row(
        &broker,
        "GET",
        "/v1/dead-letters/m00000001000000010000000000000001",
        &none,
        400,
        "invalid_id",
    ));
    refused(&broker, rows);
}

/// Every duration of every route, with values that are none: negative, not finite, huge, malformed, of another type.
#[test]
fn bad_durations_are_refused_everywhere() {
    let broker = broker();
    let durations = [
        (json!(-1), "invalid_duration"),
        (json!(-0.001), "invalid_duration"),
        (json!(i64::MIN), "invalid_duration"),
        (json!(9_223_372_036_854_775_808_u64), "invalid_duration"),
        (json!(u64::MAX), "invalid_duration"),
        (json!(1e300), "invalid_duration"),
        (json!(31_536_001), "invalid_duration"),
        (json!("1e400"), "invalid_duration"),
        (json!("9223372036854775808s"), "invalid_duration"),
        (json!("366days"), "invalid_duration"),
        (json!("-5s"), "invalid_duration"),
        (json!("5 parsecs"), "invalid_duration"),
        (json!("5"), "invalid_duration"),
        (json!(""), "invalid_duration"),
        (json!("NaN"), "invalid_duration"),
        (json!("inf"), "invalid_duration"),
        (json!(true), "invalid_body"),
        (json!([5]), "invalid_body"),
        (json!({ "seconds": 5 }), "invalid_body"),
    ];
    let mut rows = Vec::new();
    for (value, code) in &durations {
        let topic = json!({ "keep_acked": value });
        rows.push(row(&broker, "PUT", "/v1/topics/t", &topic, 400, code));
        rows.push(row(&broker, "POST", "/v1/subscriptions/s/pull", &json!({ "wait": value }), 400, code));
        for field in ["lease", "max_lease", "min_delay", "max_delay", "fallback_delay"] {
            rows.push(row(&broker, "PATCH", "/v1/subscriptions/s", &json!({ field: value }), 400, code));
            let whole = json!({ "topic": "t", field: value });
            rows.push(row(&broker, "PUT", "/v1/subscriptions/new", &whole, 400, code));
        }
    }
    // A number that no double holds cannot be written by a client library.
    let request = broker.request("PATCH", "/v1/subscriptions/s").header("content-type", "application/json");
    rows.push(("1e400".to_owned(), request.body(r#"{"lease":1e400}"#), 400, "invalid_body"));
    refused(&broker, rows);
}

/// Settings out of their bounds, alone and against each other.
#[test]
fn settings_out_of_bounds_are_refused() {
    let broker = broker();
    let mut rows = vec![
        row(&broker, "PUT", "/v1/topics/t", &json!({ "max_message_bytes": 0 }), 422, "invalid_setting"),
        row(&broker, "PUT", "/v1/topics/t", &json!({ "max_message_bytes": 524_289 }), 422, "invalid_setting"),
        row(&broker, "PUT", "/v1/topics/t", &json!({ "max_message_bytes": -1 }), 400, "invalid_body"),
        row(&broker, "PUT", "/v1/topics/t", &json!({ "max_message_bytes": "1" }), 400, "invalid_body"),
        row(&broker, "PUT", "/v1/subscriptions/x", &json!({}), 400, "invalid_body"),
        row(&broker, "PUT", "/v1/subscriptions/x", &json!({ "topic": 5 }), 400, "invalid_body"),
        row(
            &broker,
            "PUT",
            "/v1/subscriptions/x",
            &json!({ "topic": "t", "mode": "alive" }),
            422,
            "invalid_setting",
        ),
        row(
            &broker,
            "PUT",
            "/v1/subscriptions/x",
            &json!({ "topic": "t", "start": "then" }),
            400,
            "invalid_body",
        ),
        row(
            &broker,
            "PUT",
            "/v1/subscriptions/x",
            &json!({ "topic": "t", "start": { "time": "yesterday" } }),
            400,
            "invalid_body",
        ),
        row(
            &broker,
            "PUT",
            "/v1/subscriptions/x",
            &json!({ "topic": "t", "filter": "a = " }),
            422,
            "invalid_filter",
        ),
        row(
            &broker,
            "PUT",
            "/v1/subscriptions/x",
            &json!({ "topic": "t", "mode": "live", "ordering": "key" }),
            422,
            "invalid_setting",
        ),
        row(
            &broker,
            "PUT",
            "/v1/subscriptions/x",
            &json!({ "topic": "t", "forward_to": ["t"] }),
            422,
            "invalid_setting",
        ),
    ];
    let many: Vec<_> = (0..17).map(|number| format!("t{number}")).collect();
    for (field, value, status, code) in [
        ("lease", json!("99ms"), 422, "invalid_setting"),
        ("lease", json!(0), 422, "invalid_setting"),
        ("lease", json!("61m"), 422, "invalid_setting"),
        ("max_lease", json!("29s"), 422, "invalid_setting"),
        ("max_lease", json!("8days"), 422, "invalid_setting"),
        ("min_delay", json!("25h"), 422, "invalid_setting"),
        ("max_delay", json!(0), 422, "invalid_setting"),
        ("fallback_delay", json!("999ms"), 422, "invalid_setting"),
        ("attempt_limit", json!(0), 422, "invalid_setting"),
        ("attempt_limit", json!(1_000_001), 422, "invalid_setting"),
        ("attempt_limit", json!(-1), 400, "invalid_body"),
        ("attempt_limit", json!(1.5), 400, "invalid_body"),
        ("attempt_limit", json!(u64::MAX), 400, "invalid_body"),
        ("fault_limit", json!(0), 422, "invalid_setting"),
        ("max_in_flight", json!(0), 422, "invalid_setting"),
        ("max_in_flight_per_consumer", json!(-1), 400, "invalid_body"),
        ("max_rate", json!(1_000_001), 422, "invalid_setting"),
        ("delivery_delay", json!("-1s"), 400, "invalid_duration"),
        ("ordering", json!("key"), 400, "invalid_body"),
        ("filter", json!("a = b"), 400, "invalid_body"),
        ("max_in_flight", json!(100_001), 422, "invalid_setting"),
        ("forward_to", json!(["t"]), 422, "invalid_setting"),
        ("forward_to", json!(many), 422, "invalid_setting"),
        ("forward_to", json!("t2"), 400, "invalid_body"),
        ("inspect_payload", json!("yes"), 400, "invalid_body"),
        ("inspect_payload", json!(1), 400, "invalid_body"),
        ("retry", json!([]), 422, "invalid_params"),
        ("retry", json!("5s"), 422, "invalid_params"),
        ("retry", json!({ "max_attempts": 0 }), 422, "invalid_params"),
        ("retry", json!({ "max_attempts": -1 }), 422, "invalid_params"),
        ("retry", json!({ "delay": "1e400" }), 422, "invalid_params"),
        ("retry", json!({ "delay": -1 }), 422, "invalid_params"),
        ("retry", json!({ "dely": 1 }), 422, "invalid_params"),
        ("retri", json!({}), 400, "invalid_body"),
    ] {
        rows.push(row(&broker, "PATCH", "/v1/subscriptions/s", &json!({ field: value }), status, code));
    }
    refused(&broker, rows);
}

/// Bodies that are no request: other syntax, other types, unknown fields, other media types.
#[test]
fn bodies_that_are_no_request_are_refused() {
    let broker = broker();
    let send = |method: &str, path: &str, media_type: &str, body: &str| {
        broker.request(method, path).header("content-type", media_type).body(body.to_owned())
    };
    let mut rows = Vec::new();
    for body in [
        "{",
        "[",
        "[]",
        "1",
        "\"x\"",
        "{}x",
        "{\"max\":1,}",
        "\u{feff}{}",
        "{'max':1}",
        "{\"max\":1,\"max\":2}",
        "nul",
    ] {
        let request = send("POST", "/v1/subscriptions/s/pull", "application/json", body);
        rows.push((body.to_owned(), request, 400, "invalid_body"));
    }
    for (path, body) in [
        ("/v1/subscriptions/s/pull", json!({ "max": -1 })),
        ("/v1/subscriptions/s/pull", json!({ "max": "1" })),
        ("/v1/subscriptions/s/pull", json!({ "max": 1.5 })),
        ("/v1/subscriptions/s/pull", json!({ "max": 1e30 })),
        ("/v1/subscriptions/s/pull", json!({ "payload_as": "hex" })),
        ("/v1/subscriptions/s/pull", json!({ "maxx": 1 })),
    ] {
        rows.push(row(&broker, "POST", path, &body, 400, "invalid_body"));
    }
    for max in [0, 1_001] {
        rows.push(row(
            &broker,
            "POST",
            "/v1/subscriptions/s/pull",
            &json!({ "max": max }),
            400,
            "batch_size",
        ));
    }
    for (method, path) in [
        ("PUT", "/v1/topics/t"),
        ("PUT", "/v1/subscriptions/s"),
        ("PATCH", "/v1/subscriptions/s"),
        ("POST", "/v1/subscriptions/s/pull"),
        ("POST", "/v1/subscriptions/s/ack"),
        ("PUT", "/v1/subscriptions/s/policy/params"),
    ] {
        for media_type in ["text/plain", "application/x-www-form-urlencoded", "nonsense", ""] {
            let request = send(method, path, media_type, "{}");
            let what = format!("{method} {path} {media_type:?}");
            rows.push((what, request, 415, "unsupported_media_type"));
        }
    }
    // Any other type is a raw body's; this one is what curl says of whatever it sends.
    let form = "application/x-www-form-urlencoded";
    let request = send("POST", "/v1/topics/t/messages", form, "{}");
    rows.push(("a publish as a form".to_owned(), request, 415, "unsupported_media_type"));
    refused(&broker, rows);
}

const LARGEST_BODY: usize = 2 * 1024 * 1024;

fn padded(bytes: usize) -> String {
    format!("{{{}}}", " ".repeat(bytes - 2))
}

/// Bodies that are too large are refused, whether they say so or not; the largest allowed is not.
#[test]
fn bodies_that_are_too_large_are_refused() {
    let broker = broker();
    let before = broker.everything();
    let expect_refusal = |(status, body): (u16, String), what: &str| {
        assert_eq!(status, 413, "{what}: {body}");
        let body: Value = serde_json::from_str(&body).expect("a problem is JSON");
        assert_eq!((&body["code"], &body["status"]), (&json!("body_too_large"), &json!(413)), "{what}");
    };
    for (method, path) in [
        ("PUT", "/v1/topics/t"),
        ("PATCH", "/v1/subscriptions/s"),
        ("POST", "/v1/topics/t/messages"),
        ("POST", "/v1/subscriptions/s/ack"),
    ] {
        let mut socket = Socket::connect(broker.address());
        expect_refusal(socket.announce(method, path, "application/json", LARGEST_BODY + 1), path);
    }
    let mut socket = Socket::connect(broker.address());
    socket.post_chunked("/v1/topics/t/messages", &padded(LARGEST_BODY + 1));
    expect_refusal(socket.read(), "chunked");
    assert_eq!(broker.everything(), before);
    let request = broker.request("PATCH", "/v1/subscriptions/s").header("content-type", "application/json");
    broker.send(request.body(padded(LARGEST_BODY))).expect(200);
}

/// A client that sends too much all the same, without waiting to be asked, is told so: it does not merely find the
/// connection broken.
#[test]
fn a_client_that_sends_too_much_is_told() {
    let broker = broker();
    let before = broker.everything();
    let refusals = [
        ("POST", "/v1/topics/t/messages", "application/json", 413),
        ("POST", "/v1/topics/t/nothing", "application/json", 404),
        ("PATCH", "/v1/topics/t/messages", "application/json", 405),
        ("POST", "/v1/topics/..../messages", "application/json", 400),
        ("POST", "/v1/subscriptions/s/pull", "text/plain", 415),
        ("PUT", "/v1/subscriptions/s/policy", "text/plain", 415),
        ("PUT", "/v1/subscriptions/nobody/policy", "application/wasm", 404),
    ];
    for attempt in 0..5 {
        for (method, path, media_type, expected) in refusals {
            let request = broker.request(method, path).header("content-type", media_type);
            let answer = request.body(padded(3 * LARGEST_BODY)).send();
            let status = answer.map(|answer| answer.status().as_u16()).map_err(|error| format!("{error:?}"));
            assert_eq!(status, Ok(expected), "attempt {attempt} of {method} {path}");
        }
    }
    assert_eq!(broker.everything(), before);
}

/// Query parameters that are malformed, unknown or out of bounds, and cursors that nobody gave out.
#[test]
fn bad_queries_are_refused() {
    let broker = broker();
    let mut rows = Vec::new();
    let none = json!({});
    for list in
        ["/v1/topics", "/v1/subscriptions", "/v1/subscriptions/s/policy/revisions", "/v1/dead-letters"]
    {
        for query in ["limit=0", "limit=1001", "limit=-1", "limit=x", "limit=", "page=1", "limit=1&limit=2"] {
            rows.push(row(&broker, "GET", &format!("{list}?{query}"), &none, 400, "invalid_query"));
        }
        for cursor in ["!", "AA==", "_w", "LQ", "8J-SqQ"] {
            rows.push(row(&broker, "GET", &format!("{list}?cursor={cursor}"), &none, 400, "invalid_cursor"));
        }
    }
    let message = "/v1/messages/m000000010000000000000001";
    rows.push(row(&broker, "GET", &format!("{message}?payload_as=hex"), &none, 400, "invalid_query"));
    rows.push(row(&broker, "GET", &format!("{message}?payload=base64"), &none, 400, "invalid_query"));
    refused(&broker, rows);
}
