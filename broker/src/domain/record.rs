//! What is kept of a decision, so that it can be looked into and made again.

use super::context::Context;
use super::decision::Evaluation;

/// One failure that a policy was asked about, with what it was shown and what it answered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RecordedFailure {
    /// Its place among those of its subscription, from 1.
    pub number: u64,
    /// The revision that answered.
    pub revision: u32,
    /// What it was shown. The parameters are those of the revision.
    pub context: Context,
    /// What it answered, unchecked, or how it broke.
    pub evaluation: Evaluation,
}
