//! Forwarding: a message leaves for another topic through an outbox.
//!
//! The row in the outbox is written in the commit that settles the delivery here; moving it into the other topic
//! is a commit of its own, because the two may one day live in different places.

use super::state::Place;
use super::{Engine, STEP_ROWS};
use crate::domain::id::{RealmId, TopicId};
use crate::domain::message::Message;
use crate::domain::name::Name;
use crate::store::row::Row as _;
use crate::store::{Commit, Keyspace, StoreError, key};

impl Engine {
    pub(super) fn forward(
        &mut self,
        realm: RealmId,
        to: &Name,
        from: TopicId,
        at: Place,
        message: Message,
        commit: &mut Commit,
    ) {
        // Checked just now, as part of the same transition.
        let Ok(to) = self.topic_id(realm, to) else { return };
        let hops = message.hops + 1;
        let forwarded = Message { hops, expires_at: None, ..message };
        tracing::debug!(topic = from.0, sequence = at.sequence, "forwarded");
        let key = key::outbox(realm, to, at.subscription, at.sequence);
        commit.put(Keyspace::Outbox, key, forwarded.encode());
        self.outbox = true;
    }

    /// Publishes what waits in the outbox, each message in one commit with the end of its row.
    pub(super) fn empty_outbox(&mut self) -> Result<(), StoreError> {
        if !self.outbox {
            return Ok(());
        }
        self.apply()?;
        let rows = self.store.scan(Keyspace::Outbox, key::everything()).take(STEP_ROWS);
        let rows = rows.collect::<Result<Vec<_>, _>>()?;
        self.outbox = rows.len() == STEP_ROWS;
        self.unsynced |= !rows.is_empty();
        for (key, value) in rows {
            let message = Message::decode(value)?;
            let now = self.now;
            let message = Message { published_at: now, available_at: now, ..message };
            let mut commit = Commit::default();
            let to = key::read_owner(&key).map(TopicId);
            let arrived = to.and_then(|to| self.append(to, message, &mut commit));
            if arrived.is_none() {
                return Err(StoreError::Corrupt("a message in the outbox has no topic to go to".to_owned()));
            }
            commit.delete(Keyspace::Outbox, key.to_vec());
            self.pending.push(commit);
        }
        Ok(())
    }
}
