//! `broker top`: how the subscriptions of a realm do, again and again.
//!
//! The API counts what is there, not what goes through, so rates are the difference of two looks: what was published is
//! how far the topics came, and what ended is that less what the backlog grew by.

use std::collections::HashMap;
use std::error::Error;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::client::{Client, ClientError};
use super::connection::{Asking, Format, lines};
use super::given::flushed;
use super::interrupt::{EXIT_CODE, Interrupt, Interrupted};
use super::output::{Output, Screen, Tone};
use super::subscription::State;
use super::table;
use crate::domain::name::Name;
use crate::domain::pattern::TopicPattern;

/// How often an interruption is looked for.
const PULSE: Duration = Duration::from_millis(50);

#[derive(clap::Args, Debug)]
pub(super) struct Arguments {
    /// How long between two looks.
    #[arg(long, value_parser = interval, default_value = "1s")]
    interval: Duration,
    /// Looks for one interval, shows what it saw, and ends.
    #[arg(long)]
    once: bool,
    /// The most subscriptions to show, those with the largest backlog first.
    #[arg(long, default_value_t = 20)]
    rows: usize,
    #[command(flatten)]
    asking: Asking,
}

fn interval(text: &str) -> Result<Duration, String> {
    let least = Duration::from_millis(100);
    match humantime::parse_duration(text) {
        Ok(interval) if interval >= least => Ok(interval),
        Ok(_) => Err(format!("it is at least {least:?}")),
        Err(error) => Err(error.to_string()),
    }
}

/// What one look saw.
struct Look {
    at: Instant,
    topics: Vec<Topic>,
    subscriptions: Vec<Subscription>,
}

#[derive(Deserialize)]
struct Topic {
    name: String,
    next_sequence: u64,
}

#[derive(Deserialize)]
struct Subscription {
    name: String,
    topic: Option<String>,
    topic_pattern: Option<String>,
    backlog: u64,
    in_flight: u64,
    delayed: u64,
    dead_letters: u64,
    #[serde(flatten)]
    state: State,
}

/// How a subscription does.
#[derive(Serialize)]
struct Row {
    subscription: String,
    /// Messages published to its topics in a second; unknown before there were two looks at it.
    published_per_second: Option<f64>,
    /// Deliveries that ended in a second, however they did.
    ended_per_second: Option<f64>,
    backlog: u64,
    in_flight: u64,
    delayed: u64,
    dead_letters: u64,
    state: String,
}

pub(super) fn run(arguments: &Arguments) -> Result<ExitCode, Box<dyn Error>> {
    let Arguments { interval, once, rows, asking } = arguments;
    let client = asking.connection.open()?;
    let interrupt = Interrupt::listen()?;
    let people = Output::new();
    let mut before = Look::take(&client)?;
    let live = !once && asking.output == Format::Table;
    let mut screen = if live { Screen::open()? } else { None };
    if let Some(screen) = &mut screen {
        screen.draw(&before.lines(None, *rows, &people))?;
    }
    loop {
        if wait(*interval, &interrupt).is_err() {
            // The usual end of a display is no complaint.
            return Ok(ExitCode::from(EXIT_CODE));
        }
        let look = Look::take(&client)?;
        match (&mut screen, asking.output) {
            (Some(screen), _) => screen.draw(&look.lines(Some(&before), *rows, &people))?,
            (None, Format::Table) => {
                lines(look.lines(Some(&before), *rows, &Output::plain()))?;
                if !once {
                    lines([String::new()])?;
                }
            }
            (None, output) => output.write(&look.rows(Some(&before), *rows))?,
        }
        if *once {
            return Ok(ExitCode::SUCCESS);
        }
        flushed()?;
        before = look;
    }
}

fn wait(interval: Duration, interrupt: &Interrupt) -> Result<(), Interrupted> {
    let until = Instant::now() + interval;
    loop {
        interrupt.check()?;
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        thread::sleep(left.min(PULSE));
    }
}

impl Look {
    fn take(client: &Client) -> Result<Self, ClientError> {
        let topics = client.list("/v1/topics?limit=1000")?;
        let subscriptions = client.list("/v1/subscriptions?limit=1000")?;
        Ok(Self { at: Instant::now(), topics, subscriptions })
    }

    /// How far a subscription's topics came, all together.
    fn published(&self, subscription: &Subscription) -> u64 {
        let pattern = subscription.topic_pattern.as_ref().and_then(|text| TopicPattern::parse(text).ok());
        let reads = |topic: &&Topic| match (&subscription.topic, &pattern) {
            (Some(name), _) => topic.name == *name,
            (None, Some(pattern)) => Name::new(&topic.name).is_ok_and(|name| pattern.takes(&name)),
            (None, None) => false,
        };
        self.topics.iter().filter(reads).map(|topic| topic.next_sequence.saturating_sub(1)).sum()
    }

    fn rows(&self, before: Option<&Self>, most: usize) -> Vec<Row> {
        let earlier: HashMap<&str, &Subscription> =
            before.iter().flat_map(|look| &look.subscriptions).map(|it| (it.name.as_str(), it)).collect();
        let row = |it: &Subscription| {
            let rates = before.zip(earlier.get(it.name.as_str())).map(|(look, was)| {
                let seconds = self.at.duration_since(look.at).as_secs_f64();
                let published = self.published(it).saturating_sub(look.published(was));
                let ended = (published + was.backlog).saturating_sub(it.backlog);
                [published, ended].map(|count| count as f64 / seconds)
            });
            Row {
                subscription: it.name.clone(),
                published_per_second: rates.map(|[published, _]| published),
                ended_per_second: rates.map(|[_, ended]| ended),
                backlog: it.backlog,
                in_flight: it.in_flight,
                delayed: it.delayed,
                dead_letters: it.dead_letters,
                state: it.state.in_words(),
            }
        };
        let mut rows: Vec<_> = self.subscriptions.iter().map(row).collect();
        rows.sort_by(|a, b| b.backlog.cmp(&a.backlog).then_with(|| a.subscription.cmp(&b.subscription)));
        rows.truncate(most);
        rows
    }

    fn lines(&self, before: Option<&Self>, most: usize, people: &Output) -> Vec<String> {
        let rows = self.rows(before, most);
        let rate = |rate: Option<f64>| rate.map_or_else(|| "-".to_owned(), |rate| format!("{rate:.1}"));
        let cells: Vec<_> = rows
            .iter()
            .map(|row| {
                let [backlog, in_flight, delayed, dead] =
                    [row.backlog, row.in_flight, row.delayed, row.dead_letters]
                        .map(|number| number.to_string());
                let rates = [row.published_per_second, row.ended_per_second].map(rate);
                let [published, ended] = rates;
                [
                    row.subscription.clone(),
                    published,
                    ended,
                    backlog,
                    in_flight,
                    delayed,
                    dead,
                    row.state.clone(),
                ]
            })
            .collect();
        let heads =
            ["subscription", "published/s", "ended/s", "backlog", "in flight", "delayed", "dead", "state"];
        let tone = |row: Option<&Row>| match row {
            None => Tone::Strong,
            Some(row) if !row.state.is_empty() => Tone::Waiting,
            Some(row) if row.dead_letters > 0 => Tone::Bad,
            Some(_) => Tone::Plain,
        };
        let of = std::iter::once(None).chain(rows.iter().map(Some));
        let lines = table::lines(heads, &cells);
        let mut lines: Vec<_> =
            lines.iter().zip(of).map(|(line, row)| people.paint(tone(row), line)).collect();
        let hidden = self.subscriptions.len().saturating_sub(rows.len());
        if hidden > 0 {
            lines.push(
                people.paint(Tone::Quiet, &format!("and {hidden} more: --rows shows as many as it says")),
            );
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn look(at: Instant, next: [u64; 2], backlog: u64) -> Look {
        let topics =
            json!([{ "name": "a.x", "next_sequence": next[0] }, { "name": "b", "next_sequence": next[1] }]);
        let one = |name: &str, reads: &str, topic: &str, backlog: u64| {
            json!({
                "name": name, reads: topic, "backlog": backlog, "in_flight": 1, "delayed": 2, "dead_letters": 3,
                "circuit": { "state": "closed" },
            })
        };
        let subscriptions = json!([one("all", "topic_pattern", "a.>", backlog), one("one", "topic", "b", 0)]);
        let read = "it is what the API says";
        Look {
            at,
            topics: serde_json::from_value(topics).expect(read),
            subscriptions: serde_json::from_value(subscriptions).expect(read),
        }
    }

    /// Ten published, four more outstanding: six ended, in two seconds. What came back from the dead ended nothing.
    #[test]
    fn rates_are_the_difference_of_two_looks() {
        let now = Instant::now();
        let before = look(now, [1, 5], 0);
        let after = look(now + Duration::from_secs(2), [11, 5], 4);
        let rates = |rows: Vec<Row>| {
            rows.into_iter()
                .map(|row| (row.subscription, row.published_per_second, row.ended_per_second))
                .collect::<Vec<_>>()
        };
        let expected = [("all".to_owned(), Some(5.0), Some(3.0)), ("one".to_owned(), Some(0.0), Some(0.0))];
        assert_eq!(rates(after.rows(Some(&before), 9)), expected);
        assert_eq!(rates(before.rows(None, 1)), [("all".to_owned(), None, None)]);
        let replayed = look(now + Duration::from_secs(2), [1, 5], 4);
        assert_eq!(rates(replayed.rows(Some(&before), 1))[0].2, Some(0.0));
    }

    /// What does not fit is counted.
    #[test]
    fn a_long_list_is_cut() {
        let lines = look(Instant::now(), [1, 1], 0).lines(None, 1, &Output::plain());
        assert_eq!(lines.len(), 3);
        assert_eq!(lines[2], "and 1 more: --rows shows as many as it says");
        assert!(lines[1].starts_with("all           -            -        0"), "{lines:?}");
    }
}
