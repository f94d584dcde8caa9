//! Create, change, show, list and delete topics.

use std::ops::Bound;

use super::command::{Listed, Page, Put, Refusal};
use super::state::Topic;
use super::window::Window;
use super::{Engine, Reply, or_refuse};
use crate::domain::access::Patterns;
use crate::domain::id::{RealmId, TopicId};
use crate::domain::limits::MAX_TOPICS;
use crate::domain::name::Name;
use crate::domain::settings::TopicSettings;
use crate::store::key::Owner;
use crate::store::row::{HeadRow, Row as _, TopicRow};
use crate::store::{Commit, Keyspace, key};

/// Creates a topic or replaces its settings.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PutTopic {
    /// Its name.
    pub name: Name,
    /// All of its settings.
    pub settings: TopicSettings,
}

/// A topic as people see it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TopicView {
    /// As configured.
    pub row: TopicRow,
    /// How far it has come.
    pub head: HeadRow,
    /// Subscriptions that read it.
    pub subscriptions: usize,
}

impl Engine {
    pub(super) fn put_topic(&mut self, realm: RealmId, request: PutTopic, reply: Reply<Put<TopicView>>) {
        or_refuse!(self, reply, request.settings.validate());
        let known = self.topic_names.get(&(realm, request.name.clone())).copied();
        let id = match known {
            Some(id) => id,
            None => or_refuse!(self, reply, self.create_topic(realm, &request)),
        };
        let Some(topic) = self.topics.get_mut(&id) else { return };
        topic.row.settings = request.settings;
        let mut commit = Commit::default();
        commit.put(Keyspace::Topics, key::topic(realm, id), topic.row.encode());
        let value = view(topic);
        topic.trim_at = None;
        // The window may be another.
        topic.forget_at = Some(self.now);
        self.pending.push(commit);
        self.arm_trim(id);
        self.wake_topic(id);
        self.answer(reply, Ok(Put { created: known.is_none(), value }));
    }

    fn create_topic(&mut self, realm: RealmId, request: &PutTopic) -> Result<TopicId, Refusal> {
        self.expect_realm(realm)?;
        if self.topics_of(realm).count() >= MAX_TOPICS {
            return Err(Refusal::LimitReached { what: "topics", limit: MAX_TOPICS });
        }
        let id = TopicId(self.next_topic);
        self.next_topic += 1;
        let row =
            TopicRow { name: request.name.clone(), created_at: self.now, settings: request.settings.clone() };
        let topic = Topic {
            realm,
            row,
            head: HeadRow::empty(),
            backlogs: Vec::new(),
            expiries: Window::empty(),
            trim_at: None,
            wake: None,
            forget_at: None,
            forgotten: None,
        };
        self.topics.insert(id, topic);
        self.topic_names.insert((realm, request.name.clone()), id);
        self.changed_topics.insert(id);
        self.join_patterns(realm, &request.name, id);
        self.save_counters();
        Ok(id)
    }

    pub(super) fn get_topic(&mut self, realm: RealmId, name: &Name, reply: Reply<TopicView>) {
        let id = or_refuse!(self, reply, self.topic_id(realm, name));
        let found = self.topics.get(&id).map(view).ok_or_else(|| Refusal::TopicNotFound(name.clone()));
        self.answer(reply, found);
    }

    pub(super) fn list_topics(
        &mut self,
        realm: RealmId,
        page: &Page<Name>,
        among: &Patterns,
        reply: Reply<Listed<TopicView>>,
    ) {
        let names = self.topic_names.range(behind(realm, page.after.as_ref()));
        let mut found = names
            .take_while(|((of, _), _)| *of == realm)
            .filter(|((_, name), _)| among.allow(name))
            .filter_map(|(_, id)| self.topics.get(id))
            .map(view);
        let items = found.by_ref().take(page.limit).collect();
        let more = found.next().is_some();
        self.answer(reply, Ok(Listed { items, more }));
    }

    pub(super) fn delete_topic(&mut self, realm: RealmId, name: &Name, reply: Reply<()>) {
        let id = or_refuse!(self, reply, self.topic_id(realm, name));
        let mut commit = Commit::default();
        or_refuse!(self, reply, self.leave_topic(id, &mut commit));
        commit.delete(Keyspace::Topics, key::topic(realm, id));
        commit.delete(Keyspace::Heads, key::topic(realm, id));
        self.doom(realm, Owner::Topic(id), &mut commit);
        self.pending.push(commit);
        self.topic_names.remove(&(realm, name.clone()));
        if let Some(topic) = self.topics.remove(&id) {
            if let Some(wake) = topic.wake {
                self.wakes.remove(&(wake, Owner::Topic(id)));
            }
            self.usage.entry(realm).or_default().remove(topic.head.usage());
        }
        self.answer(reply, Ok(()));
    }
}

type Names = (Bound<(RealmId, Name)>, Bound<(RealmId, Name)>);

/// The names of a realm behind this one.
pub(super) fn behind(realm: RealmId, after: Option<&Name>) -> Names {
    let from = match after {
        Some(name) => Bound::Excluded((realm, name.clone())),
        None => Bound::Included((realm, Name::least())),
    };
    (from, Bound::Unbounded)
}

fn view(topic: &Topic) -> TopicView {
    TopicView { row: topic.row.clone(), head: topic.head, subscriptions: topic.backlogs.len() }
}
