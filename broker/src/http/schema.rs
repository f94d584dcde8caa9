//! JSON Schemas of topics: what may be one, and whether payloads follow it.
//!
//! The topic owns its schema. Here are validators made of those that publishes came for; the engine takes a publish only
//! if it was checked against the schema that the topic has at that moment, and else gives it back with that schema.
//! [`shape`] bounds what a schema may cost; no reference is ever fetched, and no pattern backtracks.

mod shape;

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use jsonschema::{PatternOptions, Validator};
use serde_json::Value;
use tokio::sync::Semaphore;

use self::shape::Shape;
use super::{ErrorCode, Problem};
use crate::domain::decision::cut;
use crate::domain::digest::Digest;
use crate::domain::id::RealmId;
use crate::domain::name::Name;
use crate::domain::settings::Schema;
use crate::engine::NewMessage;

/// Memory of one compiled pattern.
const PATTERN_BYTES: usize = 256 * 1024;
/// Memory of one subschema, roughly.
const NODE_BYTES: usize = 1024;
/// Memory of all validators; then they begin anew.
const MAX_BYTES: usize = 256 * 1024 * 1024;
/// Bytes of payload times subschemas that are checked at once, in less than a few milliseconds; what is more has to wait
/// for a place aside.
const AT_ONCE: usize = 1_000_000;
/// Places for what takes longer.
const ASIDE: usize = 2;

/// The validators in use, by topic.
pub(super) struct Schemas {
    known: RwLock<Known>,
    aside: Semaphore,
}

#[derive(Default)]
struct Known {
    checkers: HashMap<(RealmId, Name), Arc<Checker>>,
    bytes: usize,
}

/// A schema that payloads can be checked against.
pub(super) struct Checker {
    /// Of which schema.
    pub(super) digest: Digest,
    validator: Validator,
    shape: Shape,
}

impl Schemas {
    pub(super) fn new() -> Self {
        Self { known: RwLock::default(), aside: Semaphore::new(ASIDE) }
    }

    /// What is known of the topic's schema: the truth is the topic's.
    pub(super) fn of(&self, realm: RealmId, topic: &Name) -> Option<Arc<Checker>> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        if known.checkers.is_empty() {
            return None;
        }
        known.checkers.get(&(realm, topic.clone())).cloned()
    }

    /// The topic has another schema than was known, or none.
    ///
    /// # Errors
    /// Those of [`check`](Self::check).
    pub(super) async fn learn(
        &self,
        realm: RealmId,
        topic: Name,
        schema: Option<Schema>,
    ) -> Result<(), Problem> {
        let checker = match schema {
            Some(schema) => Some(Arc::new(self.check(schema).await?)),
            None => None,
        };
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let before = match &checker {
            Some(checker) => {
                if known.bytes + checker.bytes() > MAX_BYTES {
                    *known = Known::default();
                }
                known.bytes += checker.bytes();
                known.checkers.insert((realm, topic), Arc::clone(checker))
            }
            None => known.checkers.remove(&(realm, topic)),
        };
        known.bytes -= before.map_or(0, |checker| checker.bytes());
        Ok(())
    }

    /// Makes a validator of a schema.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidSchema`], saying why it is none.
    pub(super) async fn check(&self, schema: Schema) -> Result<Checker, Problem> {
        self.aside(move || Checker::new(&schema)).await?
    }

    /// What is wrong with each message.
    ///
    /// # Errors
    /// If the broker stops.
    pub(super) async fn violations<'a>(
        &self,
        checker: &Arc<Checker>,
        messages: impl Iterator<Item = Option<&'a NewMessage>>,
    ) -> Result<Vec<Option<Problem>>, Problem> {
        let payloads: Vec<_> =
            messages.map(|message| message.map(|message| message.payload.clone())).collect();
        let bytes: usize = payloads.iter().flatten().map(bytes::Bytes::len).sum();
        let checker = Arc::clone(checker);
        let light = bytes.saturating_mul(checker.shape.nodes) <= AT_ONCE;
        let look = move || payloads.iter().map(|payload| checker.violation(payload.as_deref()?)).collect();
        if light { Ok(look()) } else { self.aside(look).await }
    }

    /// Works on a thread that may be held up, of which there are a few.
    async fn aside<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Problem> {
        let stopped = || Problem::new(ErrorCode::ShuttingDown, "the broker is shutting down");
        let _place = self.aside.acquire().await.map_err(|_| stopped())?;
        let done = tokio::task::spawn_blocking(work).await;
        done.map_err(|error| Problem::new(ErrorCode::Internal, error.to_string()))
    }
}

impl Checker {
    fn new(schema: &Schema) -> Result<Self, Problem> {
        let invalid = |why: String| Problem::new(ErrorCode::InvalidSchema, cut(format!("schema: {why}")));
        let value: Value = serde_json::from_str(schema.text()).map_err(|error| invalid(error.to_string()))?;
        if !value.is_object() && !value.is_boolean() {
            return Err(invalid("it is an object, true or false".to_owned()));
        }
        let shape = Shape::of(&value).map_err(invalid)?;
        let patterns = PatternOptions::regex().size_limit(PATTERN_BYTES).dfa_size_limit(PATTERN_BYTES);
        let validator = jsonschema::options()
            .offline()
            .with_pattern_options(patterns)
            // Annotations in the current draft: some would be checked with engines that have no bounds.
            .should_validate_formats(false)
            .build(&value)
            .map_err(|error| invalid(format!("{}: {}", error.instance_path(), error.masked())))?;
        Ok(Self { digest: schema.digest(), validator, shape })
    }

    const fn bytes(&self) -> usize {
        self.shape.nodes * NODE_BYTES + self.shape.patterns * PATTERN_BYTES
    }

    /// The first thing that is wrong with a payload. The text shows none of it: it may be secret, and large.
    fn violation(&self, payload: &[u8]) -> Option<Problem> {
        let wrong = |why: String| Problem::new(ErrorCode::SchemaViolation, cut(why));
        let value: Value = match serde_json::from_slice(payload) {
            Ok(value) => value,
            Err(error) => return Some(wrong(format!("payload: not JSON: {error}"))),
        };
        let error = self.validator.validate(&value).err()?;
        Some(wrong(format!("payload{}: {}", error.instance_path(), error.masked())))
    }
}
