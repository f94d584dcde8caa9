//! Producers and consumers that come, go, hang and crash at random, on one subscription over two topics that is ordered
//! by key: nothing is lost, nobody holds what another holds, and each key stays in order. `SOAK_SECONDS` sets how long
//! (10 unless it is given), `SOAK_SEED` what happens.

#[path = "../support/mod.rs"]
mod support;

mod ledger;

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tungstenite::Message;

use ledger::Ledger;
use support::{Broker, Client, Delivery, PATIENCE, Stream, wait_for};

const PRODUCERS: u64 = 2;
const CONSUMERS: u64 = 6;
const KEYS: u64 = 10;
/// Producers wait while so many are open: consumers that hang and crash are slow, however long it goes on.
const MOST_OPEN: usize = 1_000;
const LEASE: &str = "700ms";

/// Splitmix: the same numbers from the same seed.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }
}

struct Soak {
    client: Client,
    ledger: Mutex<Ledger>,
    over: AtomicBool,
}

fn topic(producer: u64) -> String {
    format!("soak.{producer}")
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

#[test]
fn nothing_is_lost_doubled_or_out_of_order() {
    let seconds = number("SOAK_SECONDS").unwrap_or(10);
    let seed = number("SOAK_SEED").unwrap_or(1);
    let broker = Broker::start();
    broker.topic(&topic(0));
    let retry = json!({ "delay": "30ms", "jitter": "full", "max_attempts": 1_000_000 });
    let settings = json!({ "topic_pattern": "soak.*", "ordering": "key", "lease": LEASE, "retry": retry,
        "attempt_limit": 1_000_000 });
    broker.put("/v1/subscriptions/s", &settings).expect(201);
    (1..PRODUCERS).for_each(|producer| _ = broker.topic(&topic(producer)));
    let soak = Soak { client: (*broker).clone(), ledger: Mutex::default(), over: AtomicBool::new(false) };
    let end = Instant::now() + Duration::from_secs(seconds);
    std::thread::scope(|scope| {
        for producer in 0..PRODUCERS {
            let (soak, random) = (&soak, Random(seed * 1_000 + producer));
            scope.spawn(move || soak.produce(producer, random, end));
        }
        for consumer in 0..CONSUMERS {
            let (soak, random) = (&soak, Random(seed * 1_000 + 100 + consumer));
            scope.spawn(move || soak.consume(random, end));
        }
    });
    soak.drain();
    let ledger = soak.ledger.into_inner().expect("nobody panicked");
    let published = ledger.all_are_acked();
    assert!(published > 20 * seconds, "only {published} messages: no work was done");
    let shown = broker.subscription("s");
    let counts = ["backlog", "in_flight", "delayed", "dead_letters"].map(|count| shown[count].clone());
    assert_eq!(counts, [json!(0), json!(0), json!(0), json!(0)]);
}

impl Soak {
    fn goes_on(&self, end: Instant) -> bool {
        Instant::now() < end && !self.over.load(Ordering::Relaxed)
    }

    /// What one producer publishes of a key is in its order, and on a topic of its own.
    fn produce(&self, producer: u64, mut random: Random, end: Instant) {
        while self.goes_on(end) {
            if self.ledger.lock().expect("nobody panicked").open() > MOST_OPEN {
                std::thread::sleep(Duration::from_millis(20));
                continue;
            }
            let mut messages = Vec::new();
            for _ in 0..=random.below(8) {
                let key = producer * KEYS + random.below(KEYS);
                let number = self.ledger.lock().expect("nobody panicked").publishes(key);
                messages
                    .push(json!({ "payload": { "key": key, "number": number }, "key": format!("k{key}") }));
            }
            let path = format!("/v1/topics/{}/messages", topic(producer));
            let answer = self.client.post(&path, &json!({ "messages": messages })).expect(201);
            let items = answer["items"].as_array().expect("items");
            assert!(items.iter().all(|item| item["id"].is_string()), "{answer}");
            std::thread::sleep(Duration::from_millis(random.below(15)));
        }
    }

    /// A consumer lives a while, as a pull or as a stream, and comes back as another.
    fn consume(&self, mut random: Random, end: Instant) {
        while self.goes_on(end) {
            let life = 1 + random.below(30);
            if random.below(2) == 0 {
                for _ in 0..life {
                    let pulled =
                        self.client.pull("s", 1 + random.below(8) as usize, Duration::from_millis(100));
                    self.handle(&pulled, &mut random, |verb, body| {
                        self.client.post(&format!("/v1/subscriptions/s/{verb}"), &body).expect(200)
                    });
                }
            } else {
                self.stream(life, &mut random);
            }
        }
    }

    /// Ends without a word, as a crash does; what it holds is free from then on.
    fn stream(&self, life: u64, random: &mut Random) {
        let mut stream = Stream::consume(&self.client, "s");
        let timeout = Some(Duration::from_millis(100));
        stream.socket.get_ref().set_read_timeout(timeout).expect("it can be set");
        let mut held = Vec::new();
        for _ in 0..life {
            stream.credit(1 + random.below(4) as u32);
            let Some(mut frame) = read(&mut stream) else { continue };
            if frame["type"] != "deliveries" {
                continue;
            }
            let deliveries: Vec<Delivery> =
                serde_json::from_value(frame["deliveries"].take()).expect("deliveries");
            held.extend(deliveries.iter().cloned());
            self.handle(&deliveries, random, |verb, mut body| {
                body["type"] = json!(verb);
                body["id"] = json!("1");
                stream.send(&body);
                // Deliveries that come first are left as they are: their leases run out, or end with the stream.
                let answer = loop {
                    match read(&mut stream) {
                        Some(mut frame) if frame["type"] == "deliveries" => {
                            held.extend(self.leave(&mut frame))
                        }
                        Some(frame) => break frame,
                        None => {}
                    }
                };
                assert_ne!(answer["type"], "error", "{answer}");
                answer
            });
        }
        let mut ledger = self.ledger.lock().expect("nobody panicked");
        held.iter().for_each(|delivery| ledger.gives_up(delivery));
    }

    fn leave(&self, frame: &mut Value) -> Vec<Delivery> {
        let deliveries: Vec<Delivery> =
            serde_json::from_value(frame["deliveries"].take()).expect("deliveries");
        for delivery in &deliveries {
            self.ledger.lock().expect("nobody panicked").delivered(delivery);
        }
        deliveries
    }

    /// Acks most, nacks and releases some, and leaves some to their leases.
    fn handle(
        &self,
        deliveries: &[Delivery],
        random: &mut Random,
        mut settle: impl FnMut(&str, Value) -> Value,
    ) {
        for delivery in deliveries {
            self.ledger.lock().expect("nobody panicked").delivered(delivery);
        }
        for delivery in deliveries {
            let ledger = || self.ledger.lock().expect("nobody panicked");
            match random.below(20) {
                0 => {}
                1..4 => {
                    ledger().gives_up(delivery);
                    let body = json!({ "items": [{ "receipt": delivery.receipt, "class": "timeout" }] });
                    settle("nack", body);
                }
                4 => {
                    ledger().gives_up(delivery);
                    settle("release", json!({ "receipts": [delivery.receipt] }));
                }
                _ => {
                    ledger().acks(delivery);
                    let answer = settle("ack", json!({ "receipts": [delivery.receipt] }));
                    ledger().acked(delivery, answer["items"][0]["status"] == "acked");
                }
            }
        }
    }

    /// A consumer that does its work takes what is left.
    fn drain(&self) {
        let start = Instant::now();
        wait_for("everything is acked", || {
            for delivery in self.client.pull("s", 100, Duration::from_millis(100)) {
                self.ledger.lock().expect("nobody panicked").delivered(&delivery);
                self.ledger.lock().expect("nobody panicked").acks(&delivery);
                let answer = self.client.ack("s", &delivery.receipt);
                self.ledger.lock().expect("nobody panicked").acked(&delivery, answer["status"] == "acked");
            }
            assert!(start.elapsed() < 4 * PATIENCE, "it is never empty");
            (self.client.subscription("s")["backlog"] == 0).then_some(())
        });
    }
}

/// The next frame, if one comes soon.
fn read(stream: &mut Stream) -> Option<Value> {
    loop {
        match stream.socket.read() {
            Ok(Message::Text(text)) => return serde_json::from_str(&text).ok(),
            Ok(_) => {}
            Err(tungstenite::Error::Io(error)) if error.kind() == std::io::ErrorKind::WouldBlock => {
                return None;
            }
            Err(error) => panic!("the stream broke: {error}"),
        }
    }
}
