//! Jobs: something that is done to many dead letters, planned before it begins.

use std::fmt;

use super::dead_letter::DeadLetterFilter;
use super::id::{DeadLetterId, InvalidId};
use super::time::Timestamp;

/// Which job of a realm.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct JobId(pub u32);

impl JobId {
    /// Reads what [`Display`](fmt::Display) writes.
    ///
    /// # Errors
    /// [`InvalidId`] for anything else.
    pub fn parse(text: &str) -> Result<Self, InvalidId> {
        let id = text.strip_prefix('j').and_then(|number| number.parse().ok()).map(Self);
        id.filter(|id| id.to_string() == text).ok_or(InvalidId)
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "j{}", self.0)
    }
}

/// What is done to each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JobAction {
    /// It goes back to its subscription.
    Replay,
    /// It is given up for good.
    Discard,
}

impl JobAction {
    /// Its name on every surface.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Replay => "replay",
            Self::Discard => "discard",
        }
    }
}

/// How far a job has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JobState {
    /// What it is about is being counted.
    Planning,
    /// It waits to be started.
    Planned,
    /// It is at work.
    Running,
    /// It came to the end.
    Done,
    /// It was stopped; it can be started again, and goes on where it was.
    Aborted,
}

impl JobState {
    /// Its name on every surface.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Planning => "planning",
            Self::Planned => "planned",
            Self::Running => "running",
            Self::Done => "done",
            Self::Aborted => "aborted",
        }
    }

    /// Whether something happens by itself.
    pub const fn is_busy(self) -> bool {
        matches!(self, Self::Planning | Self::Running)
    }
}

/// What a job is to do, as it was asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JobPlan {
    /// To each of them.
    pub action: JobAction,
    /// Those that match this; its `until` is the moment of the plan at the latest, so that what dies later is not among them.
    pub filter: DeadLetterFilter,
    /// At most so many a second; 0 for as many as can be.
    pub rate: u32,
    /// Why, for people.
    pub reason: String,
    /// Who asked for it.
    pub by: String,
}

/// How far it has come.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct JobProgress {
    /// Dead letters that matched when it was planned.
    pub found: u64,
    /// The first few of them.
    pub sample: Vec<DeadLetterId>,
    /// What was replayed or discarded.
    pub done: u64,
    /// What could not be: its message is on its way again.
    pub skipped: u64,
    /// The last one that was looked at, and when it was given up.
    pub at: Option<(Timestamp, DeadLetterId)>,
}
