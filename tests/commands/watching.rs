//! `broker tail` and `broker top`.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use serde_json::{Value, json};

use crate::explain::without_times;
use crate::run::{Ran, at, command, json_lines, on_terminal};
use crate::support::{Broker, PATIENCE, guests, wait_for};

/// A command that goes on, line by line. It ends with the test.
struct Running {
    child: Child,
    lines: Receiver<String>,
}

impl Running {
    fn start(broker: &Broker, arguments: &[&str]) -> Self {
        let mut command = command(arguments);
        Self::of(command.env("BROKER_URL", format!("http://{}", broker.address())))
    }

    fn of(command: &mut Command) -> Self {
        let piped = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = piped.spawn().expect("it runs");
        let output = BufReader::new(child.stdout.take().expect("it is piped"));
        let (told, lines) = channel();
        std::thread::spawn(move || output.lines().map_while(Result::ok).try_for_each(|line| told.send(line)));
        Self { child, lines }
    }

    #[track_caller]
    fn line(&self) -> String {
        self.lines.recv_timeout(PATIENCE).expect("another line")
    }

    /// Its exit code after Ctrl-C.
    fn interrupted(mut self) -> Option<i32> {
        let kill = Command::new("kill").args(["-INT", &self.child.id().to_string()]).status();
        assert!(kill.expect("kill runs").success());
        self.child.wait().expect("it ends").code()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

fn broker() -> Broker {
    let broker = Broker::start();
    broker.topic_and_subscription(json!({ "fault_limit": 1 }));
    broker.subscribe("other", "t", json!({}));
    broker
}

/// Makes an event on a subscription: a policy becomes active.
fn activate(broker: &Broker, subscription: &str, delay: u64) {
    let module = guests::deciding(&guests::retry(delay)).module();
    broker.upload(subscription, &module, None).expect(201);
}

/// Only what is of the subscription is told, in the words of each kind of event, those to come or those before.
#[test]
fn events_of_one_subscription_are_followed() {
    let broker = broker();
    activate(&broker, "s", 1_000);
    activate(&broker, "other", 1_000);
    let recent = Running::start(&broker, &["tail", "s", "--recent", "--output", "jsonl"]);
    let event: Value = serde_json::from_str(&recent.line()).expect("it is JSON");
    assert_eq!((&event["event"], &event["data"]["revision"]), (&json!("policy_activated"), &json!(2)));

    activate(&broker, "other", 2_000);
    broker.upload("s", &guests::after_trial("(unreachable)"), None).expect(201);
    let second: Value = serde_json::from_str(&recent.line()).expect("it is JSON");
    assert_eq!((&second["data"]["subscription"], &second["data"]["revision"]), (&json!("s"), &json!(3)));
    broker.fail_one(json!({}));
    let people = Running::start(&broker, &["tail", "s", "--recent"]);
    let told: Vec<_> = (0..3).map(|_| without_times(&people.line())).collect();
    assert!(told[0].starts_with("TIME  policy_activated      revision 2 decides: guest sha256:"), "{told:?}");
    let quarantined = "TIME  policy_quarantined    revision 3 is out of service: the policy trapped: ";
    assert!(told.iter().any(|line| line.starts_with(quarantined)), "{told:?}");
    let follows = Running::start(&broker, &["tail", "s"]);
    // It may be on its way still, so that events are made until one comes.
    let mut delay = 10_000;
    let first = wait_for("an event", || {
        delay += 1;
        activate(&broker, "s", delay);
        follows.lines.recv_timeout(Duration::from_millis(200)).ok()
    });
    assert!(first.contains("policy_activated"), "{first}");
}

/// Each kind of event has its words and, on a terminal, its colour; NO_COLOR is heard.
#[test]
fn events_are_coloured_on_a_terminal_alone() {
    let broker = broker();
    let paused =
        format!("{} {}", guests::pause(3_600_000, 1, "they are down\u{1b}[2J"), guests::retry(1_000));
    broker.upload("s", &guests::after_trial(&paused), None).expect(201);
    broker.fail_one(json!({}));
    let line = format!("{} tail s --recent", env!("CARGO_BIN_EXE_broker"));
    let coloured = Running::of(&mut on_terminal(&line, &broker));
    let told = [coloured.line(), coloured.line()].concat();
    assert!(
        told.contains("\u{1b}[32mpolicy_activated") && told.contains("\u{1b}[31msubscription_paused"),
        "{told:?}"
    );
    assert!(told.contains("they are down\u{fffd}[2J"), "{told:?}");
    let plain = Running::of(on_terminal(&line, &broker).env("NO_COLOR", "1"));
    let told = [plain.line(), plain.line()].concat();
    assert!(!told.contains("\u{1b}[3") && told.contains("subscription_paused   until "), "{told:?}");
    let piped = Running::start(&broker, &["tail", "s", "--recent"]);
    let told = [piped.line(), piped.line()].concat();
    assert!(
        !told.contains('\u{1b}') && told.contains(", then at most 1 at a time: they are down"),
        "{told:?}"
    );
}

/// When the broker comes back at its place, what happens there is told again.
#[test]
fn a_broker_that_comes_back_is_followed_again() {
    use crate::support::Launch;
    let port = std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address");
    let listen: &'static str = Box::leak(port.to_string().into_boxed_str());
    let mut broker = Broker::launch(Launch { listen, more: &["--no-auth"] });
    broker.topic_and_subscription(json!({}));
    activate(&broker, "s", 1_000);
    let tail = Running::start(&broker, &["tail", "s", "--recent", "--output", "jsonl"]);
    assert_eq!(json_lines(&tail.line())[0]["data"]["revision"], 2);
    broker.kill_and_start_again();
    activate(&broker, "s", 2_000);
    assert_eq!(json_lines(&tail.line())[0]["data"]["revision"], 3);
}

/// Two looks make rates; what is shown is what the API counts.
#[test]
fn the_table_of_subscriptions_has_rates() {
    let broker = broker();
    let client = (*broker).clone();
    let publishing = std::thread::spawn(move || {
        // Until after the first look, and long before the second.
        for number in 0..40 {
            client.publish("t", &json!(number));
            std::thread::sleep(Duration::from_millis(10));
        }
    });
    let top = ["top", "--once", "--interval", "2s", "--output", "jsonl"];
    let rows = json_lines(&at(&broker, &top).good());
    publishing.join().expect("it publishes");
    assert_eq!([&rows[0]["subscription"], &rows[1]["subscription"]], ["other", "s"]);
    assert!(rows[0]["published_per_second"].as_f64().is_some_and(|rate| rate > 0.0), "{rows:?}");
    assert_eq!((&rows[0]["ended_per_second"], &rows[0]["backlog"]), (&json!(0.0), &json!(40)));
    broker.post("/v1/subscriptions/s/pause", &json!({ "reason": "deploy" })).expect(200);
    broker.next("other");
    let table = at(&broker, &["top", "--once", "--interval", "100ms", "--rows", "9"]).good();
    crate::snapshot::same("top", &table);
    let cut = at(&broker, &["top", "--once", "--interval", "100ms", "--rows", "1"]).good();
    assert!(cut.ends_with("\nand 1 more: --rows shows as many as it says\n"), "{cut}");
}

/// Without a terminal tables follow each other; on one the picture is drawn over, and the screen is as it was at the end.
#[test]
fn the_table_is_drawn_again_and_again() {
    let broker = broker();
    let piped = Running::start(&broker, &["top", "--interval", "100ms"]);
    let lines: Vec<_> = (0..8).map(|_| piped.line()).collect();
    assert!(lines[0].starts_with("subscription ") && lines[4].starts_with("subscription "), "{lines:?}");
    assert_eq!(lines[3], "");
    assert!(!lines.concat().contains('\u{1b}'));
    assert_eq!(piped.interrupted(), Some(130));

    broker.post("/v1/subscriptions/s/pause", &json!({ "reason": "\u{1b}[2Jgone" })).expect(200);
    let line =
        format!("timeout --preserve-status -s INT 1 {} top --interval 100ms", env!("CARGO_BIN_EXE_broker"));
    let ran = Ran::of(&mut on_terminal(&line, &broker));
    let shown = ran.stdout;
    assert_eq!(ran.code, Some(130), "{shown:?}");
    assert!(shown.contains("\u{1b}[?1049h\u{1b}[?25l\u{1b}[?7l\u{1b}[H"), "{shown:?}");
    assert!(shown.trim_end().ends_with("\u{1b}[?7h\u{1b}[?25h\u{1b}[?1049l"), "{shown:?}");
    assert!(shown.contains("\u{1b}[33m") && shown.contains("paused: \u{fffd}[2Jgone"), "{shown:?}");
    assert!(shown.matches("\u{1b}[H").count() > 2 && !shown.contains("\u{1b}[2J"), "{shown:?}");
}

/// What is wrong on the command line is told before anybody is asked; what is not there has its code.
#[test]
fn what_is_wrong_is_told() {
    let broker = broker();
    for (arguments, code, words) in [
        (&["tail"][..], 2, "<SUBSCRIPTION>"),
        (&["tail", "a/b"], 2, "a name has 1 to 128 ASCII letters"),
        (&["tail", "x"], 3, "(subscription_not_found)"),
        (&["top", "--interval", "often"], 2, "--interval"),
        (&["top", "--interval", "1ms"], 2, "it is at least 100ms"),
        (&["top", "--rows", "-1"], 2, "unexpected argument"),
        (&["top", "--once", "--url", "http://127.0.0.1:1"], 1, "no answer"),
    ] {
        let complaint = at(&broker, arguments).failed(code);
        assert!(complaint.contains(words), "{arguments:?}: {complaint}");
    }
}
