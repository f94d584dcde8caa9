//! Ids that publishers give their messages: within a topic's window the same one is stored once.
//!
//! The row of an id is written in the commit of its message and looked up on disk; ids of the turn at hand, which are
//! not applied yet, are in memory too. [`Engine::forget_ids`] removes what the window has passed by.

use super::{Engine, STEP_ROWS, TRIM_EVERY};
use crate::domain::dedup::DedupKey;
use crate::domain::id::{Sequence, TopicId};
use crate::store::row::{DedupRow, Row as _};
use crate::store::{Commit, Keyspace, StoreError, key};

impl Engine {
    /// The message that was published to the topic under this id, also if its window has passed by now.
    pub(super) fn published_as(&self, id: TopicId, key: &DedupKey) -> Result<Option<DedupRow>, StoreError> {
        if let Some(row) = self.remembered.get(&(id, key.id)) {
            return Ok(Some(*row));
        }
        let Some(topic) = self.topics.get(&id) else { return Ok(None) };
        let row = self.store.get(Keyspace::Dedup, &key::dedup(topic.realm, id, key.id))?;
        row.map(DedupRow::decode).transpose()
    }

    /// Writes down which message an id names. `replaced` is what the row of that id says until now.
    pub(super) fn remember(
        &mut self,
        id: TopicId,
        key: &DedupKey,
        sequence: Sequence,
        replaced: Option<DedupRow>,
        commit: &mut Commit,
    ) {
        let now = self.now;
        let Some(topic) = self.topics.get_mut(&id) else { return };
        let realm = topic.realm;
        if let Some(old) = replaced {
            commit.delete(Keyspace::DedupTimes, key::dedup_time(realm, id, old.at, old.sequence));
        }
        let row = DedupRow { sequence, payload: key.payload, at: now };
        commit.put(Keyspace::Dedup, key::dedup(realm, id, key.id), row.encode());
        commit.put(Keyspace::DedupTimes, key::dedup_time(realm, id, now, sequence), key.id.0.to_vec());
        self.remembered.insert((id, key.id), row);
        if topic.forget_at.is_none() {
            topic.forget_at = Some(now + topic.row.settings.dedup_window.max(TRIM_EVERY));
            self.wake_topic(id);
        }
    }

    /// Removes ids whose window has passed, oldest first.
    pub(super) fn forget_ids(&mut self, id: TopicId) -> Result<(), StoreError> {
        self.apply()?;
        let now = self.now;
        let Some(topic) = self.topics.get_mut(&id) else { return Ok(()) };
        let window = topic.row.settings.dedup_window;
        let mut range = key::prefixed(key::topic(topic.realm, id));
        // Not over what is left of the rows that were removed before.
        if let Some((at, sequence)) = topic.forgotten {
            range.start = key::dedup_time(topic.realm, id, at, sequence);
        }
        topic.forget_at = None;
        let mut commit = Commit::default();
        for (looked_at, row) in self.store.scan(Keyspace::DedupTimes, range).enumerate() {
            let (key, value) = row?;
            let entry =
                key::read_moment(&key).zip(key::read_sequence(&key)).zip(key::read_fingerprint(&value));
            let Some(((at, sequence), name)) = entry else {
                return Err(StoreError::Corrupt("a row of dedup_times is too short".to_owned()));
            };
            let goes_at = at + window;
            if goes_at > now {
                topic.forget_at = Some(goes_at.max(now + TRIM_EVERY));
                break;
            }
            if looked_at == STEP_ROWS {
                topic.forget_at = Some(now);
                break;
            }
            topic.forgotten = Some((at, sequence));
            commit.delete(Keyspace::DedupTimes, key.to_vec());
            commit.delete(Keyspace::Dedup, key::dedup(topic.realm, id, name));
        }
        self.pending.push(commit);
        Ok(())
    }
}
