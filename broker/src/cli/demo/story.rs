//! The words of the demo: a line per attempt, a summary, the life of one message.

use std::collections::BTreeMap;
use std::io;
use std::time::Instant;

use super::check::{Findings, span};
use super::worker::{Attempted, Failed};
use super::{Entry, LEASE};
use crate::cli::answers::{Attempt, DeadLetter, Decision, Uploaded};
use crate::cli::output::{Output, Tone, plain};

/// Complaints shown; more say nothing new.
const MOST_COMPLAINTS: usize = 10;

/// Tells what happens.
#[derive(Debug)]
pub(super) struct Story {
    output: Output,
    began: Instant,
    counts: Counts,
}

/// How many orders are where.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    orders: usize,
    acked: usize,
    dead: usize,
}

impl Story {
    pub(super) fn new() -> Self {
        Self { output: Output::new(), began: Instant::now(), counts: Counts::default() }
    }

    pub(super) fn heading(&self, text: &str) -> io::Result<()> {
        self.output.line("")?;
        self.output.line(&self.output.paint(Tone::Strong, text))
    }

    /// A fact under a heading.
    pub(super) fn fact(&self, name: &str, text: &str) -> io::Result<()> {
        self.output.line(&format!("  {name:<20}  {}", plain(text)))
    }

    pub(super) fn policy(&self, policy: &Uploaded, from: &str) -> io::Result<()> {
        let Uploaded { name, version, revision, size, trial_fuel } = policy;
        let kilobytes = size.div_ceil(1_000);
        self.fact("policy", &format!("{name} {version}, {from}"))?;
        self.fact("", &format!("revision {revision}: {kilobytes} kB of wasm, {trial_fuel} fuel in its trial"))
    }

    /// The columns of what follows.
    pub(super) fn begin(&mut self, orders: usize) -> io::Result<()> {
        self.counts.orders = orders;
        self.began = Instant::now();
        self.heading("What happens to each order, and why")?;
        let columns = row("time", "order", "attempt", "result", "decision", "why");
        self.output.line(&self.output.paint(Tone::Quiet, &columns))
    }

    pub(super) fn acked(&mut self, entry: &Entry, attempted: &Attempted) -> io::Result<()> {
        self.counts.acked += 1;
        let why = if attempted.attempt == 1 { "" } else { "a retry helped" };
        self.attempt(Tone::Good, entry, attempted.attempt, "charged", "acked", why)
    }

    pub(super) fn died(&mut self, entry: &Entry, attempted: &Attempted) -> io::Result<()> {
        let why = format!("the worker is gone without a word; its lease ends in {LEASE}");
        self.attempt(Tone::Bad, entry, attempted.attempt, "crash", "", &why)
    }

    pub(super) fn late(&mut self, entry: &Entry, attempted: &Attempted, why: &str) -> io::Result<()> {
        self.attempt(Tone::Bad, entry, attempted.attempt, "too late", "", why)
    }

    pub(super) fn nacked(
        &mut self,
        entry: &Entry,
        attempted: &Attempted,
        failed: &Failed,
        decision: &Decision,
    ) -> io::Result<()> {
        self.decided(entry, attempted.attempt, failed.class, &failed.detail, decision)
    }

    /// A lease that ran out: the broker noticed, and asked the policy by itself.
    pub(super) fn lease_expired(&mut self, entry: &Entry, attempt: &Attempt) -> io::Result<()> {
        let number = attempt.attempt;
        self.decided(entry, number, &attempt.cause, "no answer before the lease ended", &attempt.decision)
    }

    fn decided(
        &mut self,
        entry: &Entry,
        attempt: u32,
        result: &str,
        detail: &str,
        decision: &Decision,
    ) -> io::Result<()> {
        let (tone, end) = match &decision.queue {
            None => (Tone::Waiting, in_words(decision)),
            Some(_) => (Tone::Bad, in_words(decision)),
        };
        self.counts.dead += usize::from(decision.is_final());
        self.attempt(tone, entry, attempt, result, &end, &why(detail, decision))
    }

    fn attempt(
        &mut self,
        tone: Tone,
        entry: &Entry,
        attempt: u32,
        result: &str,
        decision: &str,
        why: &str,
    ) -> io::Result<()> {
        let time = format!("{:.2}s", self.began.elapsed().as_secs_f64());
        let left = self.output.paint(Tone::Quiet, &format!("{time:>7}"));
        let number = format!("#{attempt}");
        let middle = self.output.paint(tone, &format!("{number:<7}  {result:<13}  {:<34}", plain(decision)));
        let right = if why.is_empty() { String::new() } else { format!("  {}", plain(why)) };
        self.output.line(&format!("{left}  {}  {middle}{right}", entry.order.id))?;
        self.count()
    }

    fn count(&mut self) -> io::Result<()> {
        let Counts { orders, acked, dead } = self.counts;
        let open = orders.saturating_sub(acked + dead);
        self.output.status(format!("{acked} acked   {open} on their way   {dead} dead letters"))
    }

    /// Where all orders ended, as the broker's own lists have it.
    pub(super) fn summary(&mut self, findings: &Findings, letters: &[DeadLetter]) -> io::Result<()> {
        self.output.status(String::new())?;
        self.heading("Where they ended")?;
        let Findings { acked_at_once, acked_later, .. } = findings;
        let acked = acked_at_once + acked_later;
        self.fact(
            "acked",
            &format!("{acked:>3}   {acked_at_once} at the first attempt, {acked_later} after retries"),
        )?;
        let mut queues: BTreeMap<&str, BTreeMap<&str, usize>> = BTreeMap::new();
        for letter in letters {
            let class = letter.class.as_deref().filter(|class| !class.is_empty());
            let class = class.or(letter.cause.as_deref()).unwrap_or_default();
            let queue = queues.entry(letter.queue.as_deref().unwrap_or("the default queue")).or_default();
            *queue.entry(class).or_default() += 1;
        }
        for (queue, classes) in queues {
            let total: usize = classes.values().sum();
            let classes: Vec<_> =
                classes.iter().map(|(class, count)| format!("last failure {class}: {count}")).collect();
            self.fact(queue, &format!("{total:>3}   {}", classes.join(", ")))?;
        }
        Ok(())
    }

    /// The life of one message, attempt by attempt.
    pub(super) fn timeline(&self, entry: &Entry, history: &[Attempt], state: &str) -> io::Result<()> {
        let order = &entry.order;
        self.heading(&format!("The life of {} ({}, {})", order.id, order.customer.name, order.country()))?;
        self.output
            .line(&self.output.paint(Tone::Quiet, &format!("  GET /v1/messages/{}", entry.message)))?;
        for attempt in history {
            let times = attempt.leased_at.as_deref().map(humantime::parse_rfc3339);
            let held = match (times, humantime::parse_rfc3339(&attempt.ended_at)) {
                (Some(Ok(leased)), Ok(ended)) => {
                    format!(", held for {:.2}s", span(leased, ended).as_secs_f64())
                }
                _ => String::new(),
            };
            let Attempt { ended_at, cause, class, decision, .. } = attempt;
            let class = if class.is_empty() { String::new() } else { format!(" ({class})") };
            self.output.line(&format!(
                "  #{}  {ended_at}  {cause}{}{held}",
                attempt.attempt,
                plain(&class)
            ))?;
            let fuel = decision.fuel.map(|fuel| format!(", {fuel} fuel")).unwrap_or_default();
            let revision =
                decision.revision.map(|number| format!(" (revision {number})")).unwrap_or_default();
            self.output.line(&format!(
                "      {}, by the {}{revision}{fuel}",
                plain(&in_words(decision)),
                decision.decided_by
            ))?;
            let why = why(attempt.detail.as_deref().unwrap_or_default(), decision);
            if !why.is_empty() {
                self.output.line(&format!("      {}", plain(&why)))?;
            }
            for (label, value) in &decision.labels {
                self.output.line(&format!("      label {}: {}", plain(label), plain(value)))?;
            }
        }
        self.output.line(&format!("  now: {}", plain(state)))
    }

    /// The verdict on the whole: the last lines.
    pub(super) fn verdict(&self, findings: &Findings, orders: usize) -> io::Result<()> {
        self.heading("Check")?;
        for complaint in findings.complaints.iter().take(MOST_COMPLAINTS) {
            self.output.line(&format!("  {}", plain(complaint)))?;
        }
        let more = findings.complaints.len().saturating_sub(MOST_COMPLAINTS);
        if more > 0 {
            self.output.line(&format!("  and {more} more"))?;
        }
        let Findings { right, decisions, complaints, .. } = findings;
        let (tone, word) = if complaints.is_empty() { (Tone::Good, "OK") } else { (Tone::Bad, "FAILED") };
        let text = format!(
            "{right} of {orders} orders ended where the orders policy should put them, after {decisions} decisions"
        );
        self.output.line(&format!("  {}  {text}", self.output.paint(tone, word)))
    }
}

fn row(time: &str, order: &str, attempt: &str, result: &str, decision: &str, why: &str) -> String {
    format!("{time:>7}  {order:<6}  {attempt:<7}  {result:<13}  {decision:<34}  {why}")
}

/// A decision in a few words.
fn in_words(decision: &Decision) -> String {
    let Decision { action, delay, queue, .. } = decision;
    match (action.as_str(), delay, queue) {
        ("retry", Some(delay), _) => format!("retry in {delay}"),
        ("dead_letter", _, Some(queue)) => format!("dead letter in {queue}"),
        ("dead_letter", _, None) => "dead letter".to_owned(),
        (other, _, _) => other.to_owned(),
    }
}

/// What the consumer said, then what the policy said.
fn why(detail: &str, decision: &Decision) -> String {
    let reason = decision.reason.as_deref().filter(|reason| *reason != detail);
    let parts = [Some(detail), reason, decision.note.as_deref()];
    let parts: Vec<&str> = parts.into_iter().flatten().filter(|part| !part.is_empty()).collect();
    parts.join("; ")
}
