//! The end of a seed: the disk is good, everything is pulled and acked, dead letters are replayed, and nothing is left.

use std::time::Duration;

use reprise_broker::domain::name::Name;
use reprise_broker::engine::{Ack, Command, Pull};
use reprise_broker::store::Keyspace;

use super::model::{End, LONGEST_WINDOW, Violation};
use super::pending::{Pending, read_heads};
use super::policies::SINK;
use super::topics::LATER;
use super::work::name;
use super::world::{REALM, World};

/// Far more than the longest delay, lease and pause take.
const ROUNDS: usize = 600;

impl World {
    pub(crate) fn drain(&mut self) -> Result<(), Violation> {
        self.crash()?;
        self.audit()?;
        for _ in 0..ROUNDS {
            if self.drain_once()? {
                self.audit()?;
                self.all_ended()?;
                // Nothing keeps it any more.
                self.delete_topic(&name(LATER), true)?;
                return self.all_forgotten();
            }
        }
        self.audit()?;
        let mut left = String::new();
        for name in self.model.subscriptions.keys().cloned().collect::<Vec<_>>() {
            let view = self.view(&name)?;
            let view = view.map(|view| (view.counts, view.cursor));
            left.push_str(&format!("\n  {name}: {view:?}"));
        }
        Err(format!("something never ends:{left}"))
    }

    /// Pulls what a subscription has to hand out, and acks it.
    pub(crate) fn pull_and_ack(&mut self, name: &Name) -> Result<(), Violation> {
        let before = self.model.subscriptions.get(name).map_or(0, |s| s.receipts.len());
        let (wait, max_bytes) = (Duration::ZERO, 100_000);
        let request = Pull { subscription: name.clone(), max: 100, wait, max_bytes, consumer: None };
        let answer = self.send(|reply| Command::Pull(REALM, request, reply));
        self.pending.push(Pending::Pull(name.clone(), answer));
        self.turn()?;
        let receipts = self.model.subscriptions.get(name).map(|s| s.receipts[before..].to_vec());
        if let Some(receipts) = receipts.filter(|receipts| !receipts.is_empty()) {
            let request = Ack { subscription: name.clone(), receipts: receipts.clone() };
            let answer = self.send(|reply| Command::Ack(REALM, request, reply));
            self.pending.push(Pending::Ack(name.clone(), receipts, answer));
        }
        Ok(())
    }

    /// Pulls and acks all that is there. Says whether nothing was left.
    fn drain_once(&mut self) -> Result<bool, Violation> {
        if self.random.percent(30) {
            // Some of them may have nothing but dead letters of it.
            self.delete_topic(&name(LATER), false)?;
        }
        let names: Vec<Name> = self.model.subscriptions.keys().cloned().collect();
        for name in names {
            self.pull_and_ack(&name)?;
            self.settle_dead_letters(&name, 100, true)?;
            self.turn()?;
        }
        // In one turn: what is forwarded is on its way from one to the other.
        let names: Vec<Name> = self.model.subscriptions.keys().cloned().collect();
        let ask = |name| self.send(|reply| Command::GetSubscription(REALM, name, reply));
        let mut views: Vec<_> = names.into_iter().map(ask).collect();
        let mut heads = self.ask_heads(|_| true);
        self.turn()?;
        let views = views.iter_mut().filter_map(|view| view.try_recv().ok()?.ok());
        let open: u64 = views.map(|view| view.counts.backlog + view.counts.dead).sum();
        let incoming: u64 = read_heads(&mut heads).values().map(|head| head.incoming).sum();
        let open = open + incoming;
        self.jump();
        self.turn()?;
        Ok(open == 0 && self.pending.is_empty())
    }

    /// Once every window has passed, nothing is left of the ids that producers gave.
    fn all_forgotten(&mut self) -> Result<(), Violation> {
        self.now = self.now + 2 * LONGEST_WINDOW;
        self.settle_down()?;
        let left = self.rows_left(&[Keyspace::Dedup, Keyspace::DedupTimes])?;
        if left == 0 { Ok(()) } else { Err(format!("{left} rows of ids are left")) }
    }

    fn all_ended(&mut self) -> Result<(), Violation> {
        for (name, subscription) in &self.model.subscriptions {
            for place in self.model.places(subscription) {
                let known = subscription.deliveries.get(&place);
                let ended = known.is_some_and(|known| known.end.is_some_and(|end| end != End::Dead));
                // Trimmed before anybody saw how it ended.
                let may_have = known.is_some_and(|known| !known.may.is_empty());
                if !ended && !may_have {
                    return Err(format!("{place:?} on {name} never ended: {known:?}"));
                }
            }
        }
        let sink = self.model.topics.get(&name(SINK)).ok_or("no sink")?;
        for (sequence, sent) in &sink.messages {
            let sent = &sent.payload;
            let copies = sink.messages.values().filter(|other| other.payload == *sent).count();
            let asked = self.model.forwards.iter().filter(|payload| *payload == sent).count();
            if copies > asked.max(1) {
                return Err(format!("{sequence} in the sink: {copies} copies of {asked} forwards"));
            }
        }
        Ok(())
    }
}
