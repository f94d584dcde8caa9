//! `broker publish`, `pull`, `ack`, `nack`, `release` and `extend`.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::Stdio;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};

use crate::explain::without_times;
use crate::run::{Ran, at, command, fed, json_lines};
use crate::snapshot;
use crate::support::{Broker, wait_for};

fn broker() -> Broker {
    let broker = Broker::start();
    broker.topic_and_subscription(json!({ "retry": { "delay": "1h", "jitter": "none" } }));
    broker
}

/// The receipts of what is pulled.
fn receipts(broker: &Broker, max: &str) -> Vec<String> {
    let pulled = at(broker, &["pull", "s", "--max", max, "--output", "jsonl"]).good();
    let text = |delivery: &Value| delivery["receipt"].as_str().expect("a receipt").to_owned();
    json_lines(&pulled).iter().map(text).collect()
}

/// The payload in every place that it can be in, with everything else that a message has.
#[test]
fn a_message_is_published_as_it_is_given() {
    let broker = broker();
    let described = [
        ["--key", "c-42"],
        ["--attribute", "tenant=acme"],
        ["--attribute", "note=a=b"],
        ["--ttl", "1h"],
        ["--dedup-id", "order-7"],
    ];
    let publish =
        [&["publish", "t", r#"{"n": 1.0, "b": 123456789012345678901234567890}"#], described.as_flattened()]
            .concat();
    let published = at(&broker, &publish).good();
    assert_eq!(
        published,
        "message                    sequence\nm000000010000000000000001   1\n".replace("   1", "  1")
    );
    let again = at(&broker, &publish).good();
    assert!(again.ends_with("  1         duplicate\n"), "{again}");
    let exact = at(&broker, &["pull", "s", "--output", "jsonl"]).good();
    assert!(exact.contains(r#""payload":{"n":1.0,"b":123456789012345678901234567890}"#), "{exact}");
    let message = &json_lines(&exact)[0]["message"];
    assert_eq!(message["attributes"], json!({ "tenant": "acme", "note": "a=b" }));
    assert_eq!((&message["key"], &message["content_type"]), (&json!("c-42"), &json!("application/json")));
    assert!(message["expires_at"].is_string());

    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), b"\x00\xff").expect("it can be written");
    let path = file.path().to_str().expect("a plain path");
    at(&broker, &["publish", "t", "--file", path, "--content-type", "image/x"]).good();
    fed(&broker, &["publish", "t"], b"{\"a\":1}\n").good();
    fed(&broker, &["publish", "t", "--file", "-"], b"hello\n").good();
    at(&broker, &["publish", "t", "-7"]).good();
    at(&broker, &["publish", "t", "7", "--content-type", "text/plain"]).good();
    fed(&broker, &["publish", "t"], b"").good();
    let bytes = |text: &[u8]| json!(BASE64.encode(text));
    for (field, payload, media_type) in [
        ("payload_base64", bytes(b"\x00\xff"), json!("image/x")),
        ("payload", json!({ "a": 1 }), json!("application/json")),
        ("payload_base64", bytes(b"hello\n"), json!(null)),
        ("payload", json!(-7), json!("application/json")),
        ("payload_base64", bytes(b"7"), json!("text/plain")),
        ("payload_base64", bytes(b""), json!(null)),
    ] {
        let message = &json_lines(&at(&broker, &["pull", "s", "--output", "jsonl"]).good())[0]["message"];
        assert_eq!((&message[field], &message["content_type"]), (&payload, &media_type), "{message}");
    }
    at(&broker, &["publish", "t", "1", "--delay", "1h"]).good();
    at(&broker, &["publish", "t", "2", "--deliver-at", "2100-01-01T00:00:00Z"]).failed(4);
    assert_eq!(at(&broker, &["pull", "s"]).stderr, "broker: s has nothing to deliver now\n");
}

/// Lines go out as they come, in order, also more than one batch takes.
#[test]
fn lines_are_messages() {
    let broker = broker();
    let mut publisher =
        command(&["publish", "t", "--lines", "--attribute", "from=pipe", "--output", "jsonl"]);
    publisher.env("BROKER_URL", format!("http://{}", broker.address()));
    let mut publisher = publisher.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it runs");
    let mut input = publisher.stdin.take().expect("it is piped");
    let mut output = BufReader::new(publisher.stdout.take().expect("it is piped"));
    let mut published = |input: &mut std::process::ChildStdin, line: &[u8]| {
        input.write_all(line).expect("it reads");
        let mut answer = String::new();
        output.read_line(&mut answer).expect("it answers");
        json_lines(&answer)[0]["sequence"].clone()
    };
    assert_eq!(published(&mut input, b"\n\n{\"n\":1}\n"), 1);
    assert_eq!(published(&mut input, b"second\r\n"), 2, "before the pipe ends");
    input.write_all(b"last").expect("it reads");
    drop(input);
    assert!(publisher.wait().expect("it ends").success());
    let texts: Vec<_> = (0..3).map(|_| broker.next("s").message["payload_base64"].clone()).collect();
    assert_eq!(texts, [json!(null), json!(BASE64.encode("second")), json!(BASE64.encode("last"))]);

    let lines: String = (0..2_500).map(|number| format!("{number}\n")).collect();
    let listed = fed(&broker, &["publish", "t", "--lines"], lines.as_bytes()).good();
    assert_eq!(listed.lines().count(), 2_501, "one head");
    assert_eq!(broker.get("/v1/topics/t").expect(200)["next_sequence"], 2_504);
}

/// What was refused is told by its number, the rest is published; the exit code says whether to try again.
#[test]
fn refused_messages_are_told_one_by_one() {
    let broker = Broker::start();
    at(&broker, &["topic", "put", "t", "--max-message-bytes", "4"]).good();
    let some = fed(&broker, &["publish", "t", "--lines"], b"12\n123456\n34\n");
    assert_eq!(some.stdout.lines().count(), 3, "{}", some.stdout);
    let complaint = some.failed(4);
    assert!(
        complaint.starts_with("broker: message 2: ") && complaint.ends_with("(message_too_large)\n"),
        "{complaint}"
    );
    let none = at(&broker, &["publish", "t", "123456"]);
    assert!(none.failed(4).contains("message 1: "));
    at(&broker, &["topic", "put", "full", "--max-messages", "1"]).good();
    at(&broker, &["publish", "full", "1"]).good();
    assert!(at(&broker, &["publish", "full", "1"]).failed(1).contains("(quota_exceeded)"));
    let long = vec![b'x'; 512 * 1024 + 1];
    let complaint = fed(&broker, &["publish", "t", "--lines"], &[b"1\n", &long[..]].concat()).failed(1);
    assert_eq!(complaint, "broker: line 2 has more than 524288 bytes\n");
    assert_eq!(broker.get("/v1/topics/t").expect(200)["messages"], 3, "what was before it is published");
    assert!(fed(&broker, &["publish", "t"], &long).failed(1).contains("-: more than 524288 bytes"));
}

/// A pull shows what it took; with --ack it is done, once it was printed.
#[test]
fn a_pull_acks_what_it_printed() {
    let broker = broker();
    fed(&broker, &["publish", "t", "--lines", "--key", "k"], b"{\"n\":1}\ntext\n3\n").good();
    let pulled = at(&broker, &["pull", "s", "--max", "2", "--wait", "5s"]).good();
    let masked =
        pulled.lines().map(|line| line.split_once("AAAA").map_or(line, |(before, _)| before).trim_end());
    let masked: Vec<_> = masked.collect();
    snapshot::same("pull", &format!("{}\n", without_times(&masked.join("\n"))));
    assert_eq!(broker.subscription("s")["in_flight"], 2);
    let acked = at(
        &broker,
        &["pull", "s", "--ack", "--consumer", "w-1", "--payload-as", "base64", "--output", "json"],
    );
    assert_eq!(acked.json()[0]["message"]["payload_base64"], BASE64.encode("3"));
    let stands = broker.subscription("s");
    assert_eq!((&stands["in_flight"], &stands["backlog"]), (&json!(2), &json!(2)));

    broker.publish("t", &json!(4));
    // Nobody reads, so nothing was printed.
    let mut closed = command(&["pull", "s", "--ack"]);
    closed.env("BROKER_URL", format!("http://{}", broker.address()));
    let full = std::fs::File::options().write(true).open("/dev/full").expect("it is there");
    let output = closed.stdin(Stdio::null()).stdout(full).output().expect("it runs");
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(broker.subscription("s")["in_flight"], 3, "it is not acked");

    at(&broker, &["publish", "t", "5"]).good();
    let event = at(&broker, &["pull", "s", "--payload-as", "cloudevents"]).good();
    assert!(event.lines().nth(1).expect("a row").contains("  AAAA"), "{event}");
    broker.post("/v1/subscriptions/s/pause", &json!({ "reason": "deploy" })).expect(200);
    let paused = at(&broker, &["pull", "s"]);
    assert!(
        paused.stderr.starts_with("broker: s is paused by ") && paused.stderr.ends_with(": deploy\n"),
        "{paused:?}"
    );
    paused.good();
}

/// Each verb does what it says; receipts come as arguments or on standard input.
#[test]
fn deliveries_are_settled() {
    let broker = broker();
    fed(&broker, &["publish", "t", "--lines"], b"1\n2\n3\n4\n5\n").good();
    let all = receipts(&broker, "5");
    let [acked, one, two, released, extended] = &all[..] else { panic!("{all:?}") };
    assert_eq!(
        at(&broker, &["ack", "s", acked]).good(),
        format!("outcome  until  receipt\nacked           {acked}\n")
    );
    let failure = ["--class", "timeout", "--code", "504", "--detail", "upstream", "--retry-after", "30m"];
    let nack = [&["nack", "s", "-", "--output", "jsonl"], &failure[..]].concat();
    let nacked = json_lines(&fed(&broker, &nack, format!("{one}\n\n {two} \n").as_bytes()).good());
    assert_eq!([&nacked[0]["decision"]["delay"], &nacked[1]["decision"]["delay"]], ["30m", "30m"]);
    let past = broker.delivery_of("m000000010000000000000002")["timeline"]["history"][0].clone();
    assert_eq!(
        [&past["class"], &past["code"], &past["detail"], &past["retry_after"]],
        ["timeout", "504", "upstream", "30m"]
    );
    let shown = at(&broker, &["release", "s", released]).good();
    assert!(shown.lines().nth(1).expect("a row").starts_with("retry in 0s  20"), "{shown}");
    let shown = at(&broker, &["extend", "s", extended, "--lease", "10m"]).good();
    assert!(shown.lines().nth(1).expect("a row").starts_with("extended  20"), "{shown}");
    assert_eq!(at(&broker, &["extend", "s", extended, "--output", "json"]).json()[0]["receipt"], **extended);

    let again = at(&broker, &["ack", "s", acked, extended]);
    assert_eq!(again.stdout.lines().count(), 2, "the other one is acked: {}", again.stdout);
    let complaint = again.failed(4);
    assert!(
        complaint.starts_with(&format!("broker: {acked}: ")) && complaint.contains("(stale_receipt)"),
        "{complaint}"
    );
    wait_for("nothing is out", || (broker.subscription("s")["in_flight"] == 0).then_some(()));
}

/// What is wrong on the command line is told before anybody is asked; what a broker refuses has its code.
#[test]
fn what_is_wrong_is_told() {
    let broker = broker();
    for (arguments, code, words) in [
        (&["publish"][..], 2, "<TOPIC>"),
        (&["publish", "x", "1"], 3, "(topic_not_found)"),
        (&["publish", "t?raw=true", "1"], 2, "a name has 1 to 128 ASCII letters"),
        (&["publish", "t", "1", "--file", "f"], 2, "cannot be used with"),
        (&["publish", "t", "1", "--lines"], 2, "cannot be used with"),
        (&["publish", "t", "--lines", "--dedup-id", "x"], 2, "cannot be used with"),
        (&["publish", "t", "--file", "nowhere"], 1, "nowhere: No such file"),
        (&["publish", "t", "--lines", "--file", "nowhere"], 1, "nowhere: No such file"),
        (&["publish", "t", "1", "--attribute", "novalue"], 2, "give NAME=VALUE"),
        (&["publish", "t", "1", "--attribute", "=v"], 2, "give NAME=VALUE"),
        (&["publish", "t", "1", "--attribute", "a=1", "--attribute", "A=2"], 4, "(invalid_attribute)"),
        (&["publish", "t", "1", "--delay", "soon"], 2, "give a text such as"),
        (&["publish", "t", "1", "--delay", "2y"], 4, "(invalid_duration)"),
        (&["publish", "t", "1", "--deliver-at", "noon"], 2, "give a moment in UTC"),
        (&["pull", "x"], 3, "(subscription_not_found)"),
        (&["pull", "s", "--max", "0"], 4, "(batch_size)"),
        (&["pull", "s", "--max", "many"], 2, "--max"),
        (&["pull", "s", "--wait", "long"], 2, "give a text such as"),
        (&["pull", "s", "--payload-as", "xml"], 2, "[possible values: auto, base64, cloudevents, none]"),
        (&["ack", "s"], 2, "<RECEIPTS>"),
        (&["ack", "x", "r"], 3, "(subscription_not_found)"),
        (&["ack", "s", "nonsense"], 4, "broker: nonsense: "),
        (&["nack", "s", "nonsense"], 4, "(invalid_receipt)"),
        (&["nack", "s", "r", "--retry-after", "later"], 2, "give a text such as"),
        (&["release", "s", "nonsense"], 4, "(invalid_receipt)"),
        (&["extend", "s", "nonsense"], 4, "(invalid_receipt)"),
        (&["extend", "s", "r", "--lease", "long"], 2, "give a text such as"),
    ] {
        let ran = at(&broker, arguments);
        let complaint = ran.stderr.clone();
        assert!(complaint.contains(words), "{arguments:?}: {complaint}");
        assert!(!ran.stdout.contains("nonsense"), "{arguments:?}: {}", ran.stdout);
        ran.failed(code);
    }
    assert_eq!(fed(&broker, &["ack", "s", "-"], b"").good(), "", "nothing to do");
    assert_eq!(broker.get("/v1/topics/t").expect(200)["messages"], 0, "nothing was published");
}

/// A token that does not open the broker, and none where one is needed, is exit code 4; no broker at all is 1.
#[test]
fn who_is_not_let_in_is_told() {
    use crate::support::Launch;
    let broker = Broker::launch(Launch { listen: "127.0.0.1:0", more: &[] });
    for arguments in
        [&["topic", "list"][..], &["pull", "s", "--token", "x"], &["publish", "t", "1"], &["tail", "s"]]
    {
        let complaint = at(&broker, arguments).failed(4);
        assert!(complaint.starts_with("broker: the broker refused (unauthorized): "), "{complaint}");
    }
    let nowhere = Ran::of(&mut command(&["topic", "list", "--url", "http://127.0.0.1:1"])).failed(1);
    assert!(nowhere.starts_with("broker: no answer from the broker at http://127.0.0.1:1: "), "{nowhere}");
}
