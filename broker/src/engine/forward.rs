//! Forwarding: a message leaves for another topic through an outbox.
//!
//! The row in the outbox is written in the commit that settles the delivery here; moving it into the other topic
//! is a commit of its own, because the two may one day live in different places. A topic that is full when it comes to
//! that is asked again and again, at its leisure: nothing of what was forwarded is lost, and its head counts what waits.

use std::time::Duration;

use bytes::Bytes;

use super::backlog::Place;
use super::{Engine, Refusal, STEP_ROWS};
use crate::domain::id::{RealmId, TopicId};
use crate::domain::message::Message;
use crate::domain::name::Name;
use crate::domain::time::Timestamp;
use crate::store::key::Owner;
use crate::store::row::Row as _;
use crate::store::{Commit, Keyspace, StoreError, key};

/// How soon full topics are asked again.
const TRY_AGAIN: Duration = Duration::from_secs(1);
/// Rows that are read together: those behind one that has to stay are read for nothing.
const READ_AT_ONCE: usize = 64;

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
        let key = key::outbox(realm, to, at.backlog, at.sequence);
        commit.put(Keyspace::Outbox, key, forwarded.encode());
        self.outbox.add(self.now);
        if let Some(topic) = self.topics.get_mut(&to) {
            topic.head.incoming += 1;
            self.changed_topics.insert(to);
        }
    }

    /// Publishes what waits in the outbox, each message in one commit with the end of its row. What a full topic has no
    /// room for stays there, in its order, and is tried again later.
    pub(super) fn empty_outbox(&mut self) -> Result<(), StoreError> {
        if self.outbox.at.is_none_or(|at| at > self.now) {
            return Ok(());
        }
        self.apply()?;
        if self.outbox.from.is_empty() {
            self.outbox.more = false;
        }
        let mut looked_at = 0;
        while looked_at < STEP_ROWS {
            let range = self.outbox.from.clone()..key::everything().end;
            let rows = self.store.scan(Keyspace::Outbox, range).take(READ_AT_ONCE);
            let rows = rows.collect::<Result<Vec<_>, _>>()?;
            if rows.is_empty() {
                self.outbox.end_pass(self.now);
                break;
            }
            for (key, value) in rows {
                looked_at += 1;
                if !self.arrive(&key, value)? {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Moves one message into its topic, if that has room. Says whether others may follow it there.
    fn arrive(&mut self, key: &[u8], value: Bytes) -> Result<bool, StoreError> {
        let stranded = || StoreError::Corrupt("a message in the outbox has no topic to go to".to_owned());
        let realm = key::read_realm(key).ok_or_else(stranded)?;
        let to = key::read_owner(key).map(TopicId).ok_or_else(stranded)?;
        let message = Message::decode(value)?;
        let refused = match self.topics.get(&to) {
            Some(_) => self.has_room(to, message.kept_bytes()).err(),
            // Deleted, and what was on its way is about to be.
            None if self.doomed.contains(&(realm, Owner::Topic(to))) => {
                self.outbox.from = key::prefixed(key::topic(realm, to)).end;
                return Ok(false);
            }
            None => return Err(stranded()),
        };
        if let Some(refusal) = refused {
            self.outbox.block(&refusal);
            self.outbox.from = key::prefixed(key::topic(realm, to)).end;
            self.trim_soon(to);
            return Ok(false);
        }
        let now = self.now;
        let message = Message { published_at: now, available_at: now, ..message };
        let mut commit = Commit::default();
        self.append(to, message, &mut commit).ok_or_else(stranded)?;
        commit.delete(Keyspace::Outbox, key.to_vec());
        self.pending.push(commit);
        if let Some(topic) = self.topics.get_mut(&to) {
            topic.head.incoming = topic.head.incoming.saturating_sub(1);
        }
        self.unsynced = true;
        self.outbox.from = [key, &[0]].concat();
        Ok(true)
    }
}

/// How far the outbox was looked through. One pass goes from its first row to its last, in steps.
#[derive(Debug)]
pub(super) struct Outbox {
    /// When to look; `None` if nothing waits.
    pub(super) at: Option<Timestamp>,
    /// Where this pass goes on.
    from: Vec<u8>,
    /// Rows came in that this pass may not see.
    more: bool,
    /// Rows had to stay in this pass.
    blocked: bool,
    /// Rows had to stay in the one before.
    was_blocked: bool,
}

impl Outbox {
    /// One of which nothing is known.
    pub(super) const fn unread(now: Timestamp) -> Self {
        Self { at: Some(now), from: Vec::new(), more: false, blocked: false, was_blocked: false }
    }

    fn add(&mut self, now: Timestamp) {
        self.at = Some(now);
        self.more = true;
    }

    fn block(&mut self, refusal: &Refusal) {
        if !self.blocked && !self.was_blocked {
            tracing::warn!(%refusal, "forwarded messages wait for room");
        }
        self.blocked = true;
    }

    fn end_pass(&mut self, now: Timestamp) {
        self.from = Vec::new();
        self.was_blocked = std::mem::take(&mut self.blocked);
        let again = self.was_blocked.then(|| now + TRY_AGAIN);
        self.at = if self.more { Some(now) } else { again };
    }
}
