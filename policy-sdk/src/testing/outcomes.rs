//! What happens to a delivery, attempt by attempt.

use core::fmt;
use core::time::Duration;

use crate::{Cause, duration};

/// How one attempt ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was acked.
    Acked,
    /// It ended badly.
    Failed {
        /// Why.
        cause: Cause,
        /// The kind of error; empty for none.
        class: String,
        /// The error code.
        code: Option<String>,
        /// The consumer's hint.
        retry_after: Option<Duration>,
    },
}

impl Outcome {
    /// A nack of this class.
    #[must_use]
    pub fn nacked(class: impl Into<String>) -> Self {
        Self::Failed { cause: Cause::Nacked, class: class.into(), code: None, retry_after: None }
    }

    /// An end that says nothing but its cause.
    #[must_use]
    pub fn caused(cause: Cause) -> Self {
        Self::Failed { cause, class: String::new(), code: None, retry_after: None }
    }
}

/// A script: outcomes in order. After the last one the delivery is left pending.
///
/// As text, terms separated by commas:
///
/// | term | meaning |
/// |---|---|
/// | `ok` | acked |
/// | `lease_expired`, `disconnected`, `released`, `message_expired` | that cause, no class |
/// | `503` | nacked with this code, no class |
/// | any other name | nacked with this class |
/// | `name(30s)` | the same with a `retry_after` hint |
/// | `name*3`, `name*` | three times; for ever |
///
/// ```
/// use reprise_policy::testing::Outcomes;
///
/// let script: Outcomes = "timeout*3, rate_limited(30s), 503, ok".parse()?;
/// let built = Outcomes::new().fail("timeout").times(3);
/// # Ok::<(), reprise_policy::testing::ScriptError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcomes {
    runs: Vec<(Outcome, u32)>,
}

impl Outcomes {
    /// No outcome yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A nack of this class on every attempt.
    #[must_use]
    pub fn always(class: impl Into<String>) -> Self {
        Self::new().fail(class).times(u32::MAX)
    }

    /// Adds one outcome.
    #[must_use]
    pub fn then(mut self, outcome: Outcome) -> Self {
        self.runs.push((outcome, 1));
        self
    }

    /// Adds a nack of this class.
    #[must_use]
    pub fn fail(self, class: impl Into<String>) -> Self {
        self.then(Outcome::nacked(class))
    }

    /// Adds an ack.
    #[must_use]
    pub fn ok(self) -> Self {
        self.then(Outcome::Acked)
    }

    /// Makes the last outcome happen this many times.
    #[must_use]
    pub fn times(mut self, times: u32) -> Self {
        if let Some((_, count)) = self.runs.last_mut() {
            *count = times;
        }
        self
    }

    /// The outcomes one by one.
    pub fn iter(&self) -> impl Iterator<Item = &Outcome> {
        self.runs.iter().flat_map(|(outcome, times)| (0..*times).map(move |_| outcome))
    }
}

/// The term of a script that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScriptError {
    term: String,
}

impl fmt::Display for ScriptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "`{}` is not an outcome; write ok, a class, a code or a cause, then (hint) and *times",
            self.term
        )
    }
}

impl core::error::Error for ScriptError {}

impl core::str::FromStr for Outcomes {
    type Err = ScriptError;

    fn from_str(script: &str) -> Result<Self, ScriptError> {
        let mut outcomes = Self::new();
        for term in script.split(',') {
            let run = read_term(term.trim()).ok_or_else(|| ScriptError { term: term.into() })?;
            outcomes.runs.push(run);
        }
        Ok(outcomes)
    }
}

fn read_term(term: &str) -> Option<(Outcome, u32)> {
    let (term, times) = match term.rsplit_once('*') {
        Some((term, "")) => (term, u32::MAX),
        Some((term, times)) => (term, times.trim().parse().ok()?),
        None => (term, 1),
    };
    let (name, hint) = match term.trim().split_once('(') {
        Some((name, hint)) => (name, Some(duration::parse(hint.strip_suffix(')')?).ok()?)),
        None => (term, None),
    };
    let name = name.trim();
    if name.is_empty() || name.contains(|c: char| c.is_whitespace() || matches!(c, '*' | '(' | ')')) {
        return None;
    }
    if name == "ok" {
        return hint.is_none().then_some((Outcome::Acked, times));
    }
    let cause = Cause::ALL.into_iter().find(|cause| *cause != Cause::Nacked && cause.name() == name);
    let is_code = name.bytes().all(|byte| byte.is_ascii_digit());
    let outcome = Outcome::Failed {
        cause: cause.unwrap_or(Cause::Nacked),
        class: if cause.is_none() && !is_code { name.into() } else { String::new() },
        code: is_code.then(|| name.into()),
        retry_after: hint,
    };
    Some((outcome, times))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::duration::secs;

    /// Every kind of term is read, and means the same as the builder's words.
    #[test]
    fn scripts_read_as_documented() {
        let script: Outcomes =
            "timeout*2, rate_limited(30s) , lease_expired,503*1, ok".parse().expect("a script");
        let built = Outcomes::new()
            .fail("timeout")
            .times(2)
            .then(Outcome::Failed {
                cause: Cause::Nacked,
                class: "rate_limited".into(),
                code: None,
                retry_after: Some(secs(30)),
            })
            .then(Outcome::caused(Cause::LeaseExpired))
            .then(Outcome::Failed {
                cause: Cause::Nacked,
                class: String::new(),
                code: Some("503".into()),
                retry_after: None,
            })
            .ok();
        assert_eq!(script, built);
        assert_eq!(script.iter().count(), 6);
        let forever: Outcomes = "timeout*".parse().expect("a script");
        assert_eq!(forever, Outcomes::always("timeout"));
    }

    /// A slip in a script is named.
    #[test]
    fn bad_terms_are_named() {
        for script in
            ["", "ok,", "timeout(soon)", "timeout(5s", "timeout*x", "two words", "ok(5s)", "a**", "a(1s)(2s)"]
        {
            assert!(script.parse::<Outcomes>().is_err(), "{script}");
        }
    }
}
