//! Quotas: what a topic and a realm keep is counted as it comes and goes, and what does not fit is refused.

use std::time::Duration;

use super::{Engine, Refusal};
use crate::domain::id::{RealmId, TopicId};
use crate::domain::quota::{Quota, Usage};

/// How soon a full topic is looked at again for messages that nobody needs any more, at most.
const TRIM_FULL_EVERY: Duration = Duration::from_secs(1);

impl Engine {
    /// Sets how much every realm may keep that has no bounds of its own.
    pub fn limit_realms(&mut self, quota: Quota) {
        self.realm_quota = quota;
    }

    /// Says whether the disk has less room than is to be left free.
    pub fn disk_is_full(&mut self, is_full: bool) {
        self.disk_is_full = is_full;
    }

    /// Whether the disk, the topic and its realm have room for one message more, of so many bytes.
    pub(super) fn has_room(&self, id: TopicId, bytes: u64) -> Result<(), Refusal> {
        if self.disk_is_full {
            return Err(Refusal::InsufficientStorage);
        }
        let Some(topic) = self.topics.get(&id) else { return Ok(()) };
        if let Some((what, limit)) = topic.row.settings.quota.passed_by(topic.head.usage(), bytes) {
            return Err(Refusal::TopicFull { topic: topic.row.name.clone(), what, limit });
        }
        let quota = self.quota_of(topic.realm);
        if let Some((what, limit)) = quota.passed_by(self.realm_usage(topic.realm), bytes) {
            return Err(Refusal::RealmFull { what, limit });
        }
        Ok(())
    }

    /// Looks soon for room in a topic that was found full, or keeps more than it should.
    pub(super) fn trim_soon(&mut self, id: TopicId) {
        let soon = self.now + TRIM_FULL_EVERY;
        if let Some(topic) = self.topics.get_mut(&id)
            && topic.trim_at.is_some_and(|at| at > soon)
        {
            topic.trim_at = Some(soon);
            self.wake_topic(id);
        }
    }

    /// How much a realm may keep.
    pub(super) fn quota_of(&self, realm: RealmId) -> Quota {
        let own = self.realms.get(&realm).map(|row| row.quota);
        own.unwrap_or_default().or(self.realm_quota)
    }

    /// What a realm keeps: that of its topics together.
    pub fn realm_usage(&self, realm: RealmId) -> Usage {
        self.usage.get(&realm).copied().unwrap_or_default()
    }
}
