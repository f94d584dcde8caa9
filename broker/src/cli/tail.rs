//! `broker tail`: what happens on a subscription, as it happens. Goes on when the broker comes back, behind what it told.

use std::error::Error;
use std::io::{self, BufRead, Read as _};
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::client::{Client, ClientError, Lines};
use super::connection::{Asking, Format};
use super::given::{flushed, name};
use super::note;
use super::output::{Output, Tone};
use super::policy::text;
use super::shown::{Raw, read};

/// The longest line of an event; what the broker writes is far shorter.
const MAX_LINE_BYTES: u64 = 1024 * 1024;
/// How long to wait before a broker that has gone is looked for again.
const PAUSE: Duration = Duration::from_secs(1);
/// An id that no event has: the broker begins with the first that it still knows.
const BEFORE_ALL: &str = "0-0";

#[derive(clap::Args, Debug)]
pub(super) struct Arguments {
    /// The subscription.
    #[arg(value_parser = name)]
    subscription: String,
    /// Begins with what the broker still knows, not with what comes.
    #[arg(long)]
    recent: bool,
    #[command(flatten)]
    asking: Asking,
}

/// An event as it came.
#[derive(Serialize, Default)]
struct Event {
    id: String,
    event: String,
    data: Raw,
}

pub(super) fn run(arguments: &Arguments) -> Result<ExitCode, Box<dyn Error>> {
    let Arguments { subscription, recent, asking } = arguments;
    let client = asking.connection.open()?;
    // That there is one, and that it may be seen.
    let _: Raw = client.get(&format!("/v1/subscriptions/{subscription}"))?;
    let mut tail = Tail {
        subscription,
        output: asking.output,
        people: Output::new(),
        last: recent.then(|| BEFORE_ALL.to_owned()),
    };
    let mut events = client.events(tail.last.as_deref())?;
    loop {
        tail.follow(&mut events)?;
        note("the broker has gone; waiting for it");
        events = tail.again(&client)?;
        note("it is back");
    }
}

struct Tail<'a> {
    subscription: &'a str,
    output: Format,
    people: Output,
    /// The id of the last event that was heard of.
    last: Option<String>,
}

impl Tail<'_> {
    /// Shows events until the connection ends.
    fn follow(&mut self, events: &mut impl BufRead) -> io::Result<()> {
        while let Ok(Some(event)) = next(events) {
            if !event.id.is_empty() {
                self.last = Some(event.id.clone());
            }
            let about: Value = read(&event.data).unwrap_or_default();
            // What was missed may have been about any.
            if about["subscription"] == self.subscription || event.event == "missed" {
                self.show(&event, &about)?;
                flushed()?;
            }
        }
        Ok(())
    }

    fn show(&self, event: &Event, about: &Value) -> io::Result<()> {
        if self.output != Format::Table {
            return self.output.write(event);
        }
        let field = |name: &str| text(&about[name]);
        let (tone, words) = match event.event.as_str() {
            "policy_activated" => (
                Tone::Good,
                format!("revision {} decides: {} {}", field("revision"), field("name"), field("digest")),
            ),
            "policy_quarantined" => {
                (Tone::Bad, format!("revision {} is out of service: {}", field("revision"), field("fault")))
            }
            "subscription_paused" => (
                Tone::Bad,
                format!(
                    "until {}, then at most {} at a time: {}",
                    field("until"),
                    field("probes"),
                    field("reason")
                ),
            ),
            "subscription_probing" => {
                (Tone::Waiting, format!("at most {} at a time: {}", field("probes"), field("reason")))
            }
            "subscription_resumed" => (Tone::Good, String::new()),
            "missed" => (Tone::Bad, format!("{} events are gone", field("count"))),
            _ => (Tone::Quiet, event.data.get().to_owned()),
        };
        let (at, what) = (field("at"), format!("{:<20}", event.event));
        let paint = |tone, text: &str| self.people.paint(tone, text);
        let line = [paint(Tone::Quiet, &at), paint(tone, &what), paint(Tone::Strong, &words)];
        let line = line.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("  ");
        self.people.line(line.trim_end())
    }

    /// Comes back to a broker that has gone.
    fn again(&self, client: &Client) -> Result<Lines, ClientError> {
        loop {
            match client.events(self.last.as_deref()) {
                Err(ClientError::Unreachable { .. }) => thread::sleep(PAUSE),
                answer => return answer,
            }
        }
    }
}

/// The next of a stream of server-sent events (<https://html.spec.whatwg.org/multipage/server-sent-events.html>), as far
/// as the broker writes them: each of id, event and data is one line. `None` at the end.
fn next(events: &mut impl BufRead) -> io::Result<Option<Event>> {
    let mut event = Event::default();
    let mut bytes = Vec::new();
    loop {
        bytes.clear();
        if events.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', &mut bytes)? == 0 {
            return Ok(None);
        }
        if bytes.last() != Some(&b'\n') {
            return Err(io::Error::other("a line without an end"));
        }
        let line = String::from_utf8_lossy(&bytes);
        match line.trim_end_matches(['\r', '\n']).split_once(": ") {
            // What begins with a colon is a sign of life.
            Some(("", _)) => {}
            Some(("id", id)) => id.clone_into(&mut event.id),
            Some(("event", name)) => name.clone_into(&mut event.event),
            Some(("data", data)) => {
                event.data = RawValue::from_string(data.to_owned()).map_err(io::Error::other)?;
            }
            None if line.trim_end().is_empty() && !event.event.is_empty() => return Ok(Some(event)),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Signs of life, unknown fields and events cut off by the end tell nothing.
    #[test]
    fn events_are_read_as_they_are_written() {
        let mut stream: &[u8] =
            b": events follow\n\nid: 5-1\nevent: a\ndata: {\"x\":1}\n\n: still here\n\nretry: 3\n\
            event: b\r\ndata: {\"y\": \": \"}\r\n\r\nevent: c\ndata: 1\n";
        let mut read = || {
            next(&mut stream).expect("it is a stream").map(|it| (it.id, it.event, it.data.get().to_owned()))
        };
        let text = str::to_owned;
        assert_eq!(read(), Some((text("5-1"), text("a"), text("{\"x\":1}"))));
        assert_eq!(read(), Some((text(""), text("b"), text("{\"y\": \": \"}"))));
        assert_eq!(read(), None);
        assert!(next(&mut &b"event: a\ndata: {\n\n"[..]).is_err(), "data that is no JSON");
        let endless = vec![b'x'; MAX_LINE_BYTES as usize + 1];
        assert!(next(&mut &endless[..]).is_err());
    }
}
