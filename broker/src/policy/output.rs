//! What comes out of a guest, in the words of the domain.

use std::time::Duration;

use crate::domain::decision::{Answer, AnswerAction, Pause};

use super::contract::types;

/// What a policy says about itself. Every text is the author's: shown, never trusted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Description {
    /// What it is called.
    pub name: String,
    /// Its version, in the author's scheme.
    pub version: String,
    /// One line.
    pub summary: String,
    /// The dead-letter queues that it may name.
    pub queues: Vec<String>,
    /// The parameters that it reads.
    pub params: Vec<Param>,
}

/// One parameter of a policy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Param {
    /// Its key in the params object.
    pub name: String,
    /// What its value is.
    pub kind: ParamKind,
    /// The value used when it is absent, as JSON text; `None` if it must be given.
    pub default: Option<String>,
    /// What it does.
    pub doc: String,
}

/// The kind of a parameter's value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the names say it")]
pub enum ParamKind {
    Text,
    Number,
    Boolean,
    Duration,
    Object,
}

impl ParamKind {
    /// Its name on every surface.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Number => "number",
            Self::Boolean => "boolean",
            Self::Duration => "duration",
            Self::Object => "object",
        }
    }
}

impl From<types::Description> for Description {
    fn from(said: types::Description) -> Self {
        Self {
            name: said.name,
            version: said.version,
            summary: said.summary,
            queues: said.queues,
            params: said.params.into_iter().map(Param::from).collect(),
        }
    }
}

impl From<types::Param> for Param {
    fn from(said: types::Param) -> Self {
        let kind = match said.kind {
            types::ParamKind::Text => ParamKind::Text,
            types::ParamKind::Number => ParamKind::Number,
            types::ParamKind::Boolean => ParamKind::Boolean,
            types::ParamKind::Duration => ParamKind::Duration,
            types::ParamKind::Object => ParamKind::Object,
        };
        Self { name: said.name, kind, default: said.default, doc: said.doc }
    }
}

/// Only reshaped: [`Answer::check`] judges it.
impl From<types::Decision> for Answer {
    fn from(said: types::Decision) -> Self {
        let action = match said.action {
            types::Action::Retry(delay) => AnswerAction::Retry { delay: Duration::from_millis(delay) },
            types::Action::DeadLetter(types::DeadLetter { queue, reason, labels }) => {
                let labels = labels.into_iter().map(|label| (label.name, label.value)).collect();
                AnswerAction::DeadLetter { queue, reason, labels }
            }
            types::Action::Forward(topic) => AnswerAction::Forward { topic },
            types::Action::Drop(reason) => AnswerAction::Drop { reason },
        };
        let pause = said.pause.map(|pause| Pause {
            duration: Duration::from_millis(pause.duration),
            probes: pause.probes,
            reason: pause.reason,
        });
        Self { action, pause, memo: said.memo, note: said.note, release_key: said.release_key }
    }
}
