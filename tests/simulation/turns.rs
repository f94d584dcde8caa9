//! Turns among the topics of a subscription: a busy one starves no other.

use reprise_broker::domain::name::Name;
use reprise_broker::domain::settings::Ordering;
use reprise_broker::domain::time::Timestamp;
use reprise_broker::engine::Granted;

use super::model::{Model, Sent, Subscription, Topic, Violation};

impl Model {
    /// A pull is answered with these. Each pull that gets something takes it from one topic at least, and the next one
    /// begins behind that: who has something to hand out all the while is passed by no more often than there are topics.
    pub(crate) fn take_turns(
        &mut self,
        name: &Name,
        granted: &[Granted],
        now: Timestamp,
    ) -> Result<(), Violation> {
        let Some(subscription) = self.subscriptions.get_mut(name).filter(|_| !granted.is_empty()) else {
            return Ok(());
        };
        let most = subscription.first.len();
        for topic in subscription.first.keys().cloned().collect::<Vec<_>>() {
            // What nobody was told of may have to be looked at first.
            let hidden = self.unanswered.iter().any(|(to, _)| *to == topic);
            let waits = self.topics.get(&topic).is_some_and(|it| subscription.has_ready(&topic, it, now));
            if hidden || !waits || granted.iter().any(|granted| granted.topic == topic) {
                subscription.passed_by.remove(&topic);
                continue;
            }
            let passed_by = subscription.passed_by.entry(topic.clone()).or_default();
            *passed_by += 1;
            if *passed_by > most {
                return Err(format!("{topic} was passed by {passed_by} times on {name}"));
            }
        }
        Ok(())
    }
}

impl Subscription {
    /// Whether the next message there, behind those that were handed out, can be handed out without any doubt.
    fn has_ready(&self, name: &Name, topic: &Topic, now: Timestamp) -> bool {
        let (Some(first), Some(id)) = (self.first.get(name), topic.id) else { return false };
        if self.settings.ordering == Ordering::Key || self.lost > 0 {
            return false;
        }
        let known = |sequence| self.deliveries.get(&(id, sequence));
        let passed =
            |sequence| known(sequence).is_some_and(|it| it.attempt > 0 || it.replays > 0 || it.end.is_some());
        let next = topic.messages.range(*first..).find(|(sequence, _)| !passed(**sequence));
        let ready = |sent: &Sent| !sent.is_mortal && sent.available_at <= now;
        next.is_some_and(|(sequence, sent)| known(*sequence).is_none() && ready(sent))
    }
}
