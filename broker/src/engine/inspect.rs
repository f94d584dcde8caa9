//! One message and what became of it on each subscription of its topic.

use super::backlog::Place;
use super::command::Refusal;
use super::{Engine, Reply, or_refuse};
use crate::domain::delivery::{Delivery, State};
use crate::domain::id::{DeadLetterId, MessageId, RealmId};
use crate::domain::message::Message;
use crate::domain::name::Name;
use crate::domain::time::Timestamp;
use crate::store::row::{DeadLetterRow, Ending, Row as _, SettledRow};
use crate::store::{Keyspace, StoreError, key};

/// A message and what became of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MessageView {
    /// Its id.
    pub id: MessageId,
    /// The topic's name.
    pub topic: Name,
    /// The message.
    pub message: Message,
    /// One entry for each subscription of the topic that still knows what became of it.
    pub deliveries: Vec<DeliveryView>,
}

/// What became of a message on one subscription.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeliveryView {
    /// The subscription.
    pub subscription: Name,
    /// Where the delivery stands.
    pub stands: Stands,
    /// Counters and history; `None` if no attempt was ever recorded, or it was acked at the first.
    pub delivery: Option<Delivery>,
}

/// Where a delivery stands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Stands {
    /// Published before the subscription began, or passed by at its last seek or purge.
    NotSubscribed,
    /// Its filter passed it by.
    Filtered,
    /// It can be pulled, unless others come first.
    Ready,
    /// It waits.
    Delayed {
        /// Until then.
        until: Timestamp,
    },
    /// A consumer holds it.
    Leased {
        /// Until then.
        until: Timestamp,
    },
    /// The policy is being asked.
    Deciding,
    /// It is over.
    Ended(Ending),
    /// Given up on.
    DeadLettered {
        /// The dead letter.
        id: DeadLetterId,
        /// When.
        at: Timestamp,
        /// Which queue; `None` is the default one.
        queue: Option<Name>,
        /// Why.
        reason: String,
    },
}

impl Stands {
    /// Whether it has yet to be settled.
    pub(super) const fn is_outstanding(&self) -> bool {
        matches!(self, Self::Ready | Self::Delayed { .. } | Self::Leased { .. } | Self::Deciding)
    }
}

impl Engine {
    pub(super) fn get_message(
        &mut self,
        realm: RealmId,
        id: MessageId,
        reply: Reply<MessageView>,
    ) -> Result<(), StoreError> {
        self.apply()?;
        // A topic of another realm is as unknown as none at all.
        let topic = self.topics.get(&id.topic).filter(|topic| topic.realm == realm);
        let topic = or_refuse!(try self, reply, topic.ok_or(Refusal::MessageNotFound));
        let name = topic.row.name.clone();
        let backlogs = topic.backlogs.clone();
        let exists = id.sequence > 0 && id.sequence < topic.head.next;
        let kept = self.store.get(Keyspace::Messages, &key::message(realm, id.topic, id.sequence))?;
        let mut message = kept.map(Message::decode).transpose()?;
        let mut deliveries = Vec::new();
        for backlog in backlogs {
            let Some(at) = self.backlogs.get(&backlog).map(|it| it.place(id.sequence)) else { continue };
            let Some((view, copy)) = self.inspect(at, message.as_ref())? else { continue };
            deliveries.push(view);
            message = message.or(copy);
        }
        let view = message
            .filter(|_| exists)
            .map(|message| MessageView { id, topic: name, message, deliveries })
            .ok_or(Refusal::MessageNotFound);
        self.answer(reply, view);
        Ok(())
    }

    /// How a delivery stands, and the copy of the message that it keeps; `None` if that is no longer known.
    pub(super) fn inspect(
        &self,
        at: Place,
        message: Option<&Message>,
    ) -> Result<Option<(DeliveryView, Option<Message>)>, StoreError> {
        let subscription = self.subscriptions.get(&at.subscription).filter(|it| !it.is_live());
        let Some((subscription, backlog)) = subscription.zip(self.backlogs.get(&at.backlog)) else {
            return Ok(None);
        };
        let key = at.key(backlog.realm);
        let view =
            |stands, delivery| DeliveryView { subscription: subscription.row.name.clone(), stands, delivery };
        let id = backlog.dead_letter_id(at.sequence);
        if let Some(row) = self.dead_letter(backlog.realm, id)?.filter(|row| row.backlog == at.backlog) {
            let DeadLetterRow { dead_at, queue, reason, delivery, message, .. } = row;
            let stands = Stands::DeadLettered { id, at: dead_at, queue, reason };
            return Ok(Some((view(stands, Some(delivery)), Some(message))));
        }
        let copy = self.store.get(Keyspace::Replayed, &key)?.map(Message::decode).transpose()?;
        let open = self.open_delivery(at)?;
        if let Some(delivery) = open {
            let stands = match &delivery.state {
                State::Deciding { .. } => Stands::Deciding,
                State::Leased { lease_until, .. } => Stands::Leased { until: *lease_until },
                State::Waiting { due_at } if *due_at <= self.now => Stands::Ready,
                State::Waiting { due_at } => Stands::Delayed { until: *due_at },
            };
            return Ok(Some((view(stands, Some(delivery)), copy)));
        }
        if let Some(row) = self.store.get(Keyspace::Settled, &key)? {
            let row = SettledRow::decode(row)?;
            return Ok(Some((view(Stands::Ended(row.ending), Some(row.delivery)), None)));
        }
        // What is left of it went with the message, which another subscription kept a copy of.
        if at.sequence < self.kept_from(at.backlog) {
            return Ok(None);
        }
        let stands = if at.sequence < backlog.row.first {
            Stands::NotSubscribed
        } else if message.is_some_and(|message| !subscription.wants(message)) {
            Stands::Filtered
        } else if at.sequence >= backlog.row.next {
            // The cursor has yet to come by and see its delay.
            let until = message.map_or(self.now, |message| subscription.available_at(message));
            if until > self.now { Stands::Delayed { until } } else { Stands::Ready }
        } else {
            // Acked at the first attempt leaves no row.
            Stands::Ended(Ending::Acked)
        };
        Ok(Some((view(stands, None), None)))
    }

    fn open_delivery(&self, at: Place) -> Result<Option<Delivery>, StoreError> {
        let Some(backlog) = self.backlogs.get(&at.backlog) else { return Ok(None) };
        if let Some(held) = backlog.held.get(&at.sequence) {
            return Ok(Some(held.delivery.clone()));
        }
        let row = self.store.get(Keyspace::Delayed, &at.key(backlog.realm))?;
        row.map(Delivery::decode).transpose()
    }
}
