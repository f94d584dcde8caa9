//! The parameters of a revision: JSON text, read on demand.
//!
//! Two ways to read. While deciding, a getter such as [`Params::duration`] answers `None` for what
//! is absent or unusable, since `check` has refused the unusable before. While checking, go through
//! [`Params::entries`] and the getters of [`Value`], whose [`ParamError`] says what is wrong.

use core::fmt;
use core::time::Duration;
use std::borrow::Cow;

use crate::duration;
use crate::json::{self, Decimal, Items};

/// A JSON object of parameters.
#[derive(Clone, Copy, Debug)]
pub struct Params<'a> {
    /// Starts with `{`, or is empty for no parameters.
    text: &'a str,
}

impl<'a> Params<'a> {
    /// Reads and validates the text of an object.
    ///
    /// # Errors
    ///
    /// [`ParamError`] if it is not JSON, not an object, or nests more than 32 levels.
    pub fn parse(text: &'a str) -> Result<Self, ParamError> {
        if let Err(at) = json::validate(text) {
            return Err(ParamError::whole(format!("not valid JSON (at byte {at})")));
        }
        let text = text.trim_ascii();
        if !text.starts_with('{') {
            return Err(ParamError::whole("parameters are a JSON object"));
        }
        Ok(Self { text })
    }

    /// Takes text that was validated when it was set. Anything but an object has no entries.
    pub(crate) fn trusted(text: &'a str) -> Self {
        let text = text.trim_ascii();
        let text = if text.starts_with('{') { text } else { "" };
        Self { text }
    }

    /// Every name with its value, in the order written.
    pub fn entries(self) -> impl Iterator<Item = (Cow<'a, str>, Value<'a>)> {
        let mut items = Items::of(self.text);
        core::iter::from_fn(move || {
            let (key, text) = items.next_entry()?;
            Some((json::unquote(key)?, Value { text }))
        })
    }

    /// The value of `name`; the first one if it is there twice.
    #[must_use]
    pub fn get(self, name: &str) -> Option<Value<'a>> {
        self.entries().find(|(key, _)| key == name).map(|(_, value)| value)
    }

    /// The duration `name`: text such as `"1h30m"`, or a number of seconds.
    #[must_use]
    pub fn duration(self, name: &str) -> Option<Duration> {
        self.get(name)?.duration().ok()
    }

    /// The number `name`.
    #[must_use]
    pub fn number(self, name: &str) -> Option<f64> {
        self.get(name)?.number().ok()
    }

    /// The whole number `name`.
    #[must_use]
    pub fn whole(self, name: &str) -> Option<u64> {
        self.get(name)?.whole().ok()
    }

    /// The text `name`.
    #[must_use]
    pub fn text(self, name: &str) -> Option<Cow<'a, str>> {
        self.get(name)?.text().ok()
    }

    /// The boolean `name`.
    #[must_use]
    pub fn boolean(self, name: &str) -> Option<bool> {
        self.get(name)?.boolean().ok()
    }

    /// The nested object `name`.
    #[must_use]
    pub fn object(self, name: &str) -> Option<Params<'a>> {
        self.get(name)?.object().ok()
    }

    /// The items of the list `name`.
    pub fn list(self, name: &str) -> Option<impl Iterator<Item = Value<'a>> + use<'a>> {
        self.get(name)?.list().ok()
    }

    /// The object's own JSON text.
    #[must_use]
    pub fn as_json(self) -> &'a str {
        if self.text.is_empty() { "{}" } else { self.text }
    }
}

/// One JSON value.
#[derive(Clone, Copy, Debug)]
pub struct Value<'a> {
    text: &'a str,
}

impl<'a> Value<'a> {
    /// A duration: text such as `"1h30m"`, or a number of seconds.
    ///
    /// # Errors
    ///
    /// [`ParamError`] if it is another type, malformed, negative, or above one year.
    pub fn duration(self) -> Result<Duration, ParamError> {
        let parsed = match self.text.as_bytes().first() {
            Some(b'"') => duration::parse(&self.text()?),
            _ => match Decimal::read(self.text) {
                Some(number) => duration::from_seconds(number),
                None => Err(duration::DurationError::Malformed),
            },
        };
        parsed.map_err(|error| ParamError::whole(error.to_string()).found(self))
    }

    /// A finite number.
    ///
    /// # Errors
    ///
    /// [`ParamError`] if it is another type or too large for a float.
    pub fn number(self) -> Result<f64, ParamError> {
        match Decimal::read(self.text).map(Decimal::to_f64) {
            Some(number) if number.is_finite() => Ok(number),
            Some(_) => Err(ParamError::whole("the number is too large").found(self)),
            None => Err(ParamError::whole("must be a number").found(self)),
        }
    }

    /// A whole number from 0.
    ///
    /// # Errors
    ///
    /// [`ParamError`] if it is another type, negative, has a fraction, or is above `u64::MAX`.
    pub fn whole(self) -> Result<u64, ParamError> {
        Decimal::read(self.text)
            .and_then(Decimal::to_whole)
            .ok_or_else(|| ParamError::whole("must be a whole number from 0").found(self))
    }

    /// Text.
    ///
    /// # Errors
    ///
    /// [`ParamError`] if it is another type.
    pub fn text(self) -> Result<Cow<'a, str>, ParamError> {
        json::unquote(self.text).ok_or_else(|| ParamError::whole("must be text").found(self))
    }

    /// `true` or `false`.
    ///
    /// # Errors
    ///
    /// [`ParamError`] if it is another type.
    pub fn boolean(self) -> Result<bool, ParamError> {
        match self.text {
            "true" => Ok(true),
            "false" => Ok(false),
            _ => Err(ParamError::whole("must be true or false").found(self)),
        }
    }

    /// An object.
    ///
    /// # Errors
    ///
    /// [`ParamError`] if it is another type.
    pub fn object(self) -> Result<Params<'a>, ParamError> {
        if self.text.starts_with('{') {
            Ok(Params { text: self.text })
        } else {
            Err(ParamError::whole("must be an object").found(self))
        }
    }

    /// The items of a list.
    ///
    /// # Errors
    ///
    /// [`ParamError`] if it is another type.
    pub fn list(self) -> Result<impl Iterator<Item = Value<'a>> + use<'a>, ParamError> {
        if !self.text.starts_with('[') {
            return Err(ParamError::whole("must be a list").found(self));
        }
        let mut items = Items::of(self.text);
        Ok(core::iter::from_fn(move || items.next_item().map(|text| Value { text })))
    }

    /// Whether it is a list.
    #[must_use]
    pub fn is_list(self) -> bool {
        self.text.starts_with('[')
    }

    /// The value's own JSON text.
    #[must_use]
    pub fn as_json(self) -> &'a str {
        self.text
    }
}

/// Why parameters were refused, in words for the person who wrote them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParamError {
    /// Names from the outermost in, joined by dots; empty for the whole object.
    path: String,
    problem: String,
}

/// How much of a refused value is shown.
const SHOWN: usize = 40;

impl ParamError {
    /// A problem of the parameter `name`.
    pub fn new(name: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { path: name.into(), problem: problem.into() }
    }

    /// A problem of the value itself, to be placed by [`within`](Self::within).
    pub(crate) fn whole(problem: impl Into<String>) -> Self {
        Self::new("", problem)
    }

    /// The name is not one of `known`.
    #[must_use]
    pub fn unknown(name: &str, known: &[&str]) -> Self {
        let problem = if known.is_empty() {
            "unknown parameter; this policy has none".into()
        } else {
            format!("unknown parameter; known are {}", known.join(", "))
        };
        Self::new(name, problem)
    }

    /// The same problem seen from one level further out.
    #[must_use]
    pub fn within(mut self, name: &str) -> Self {
        if !self.path.is_empty() {
            self.path.insert(0, '.');
        }
        self.path.insert_str(0, name);
        self
    }

    /// Shows the value that was refused.
    fn found(mut self, value: Value<'_>) -> Self {
        let shown: String = value.text.chars().take(SHOWN).collect();
        let more = if shown.len() < value.text.len() { "..." } else { "" };
        self.problem.push_str(&format!(", not {shown}{more}"));
        self
    }

    /// The parameter at fault, such as `classes.timeout.delay`; empty for the whole object.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// What is wrong with it.
    #[must_use]
    pub fn problem(&self) -> &str {
        &self.problem
    }
}

impl fmt::Display for ParamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.path.is_empty() {
            f.write_str(&self.problem)
        } else {
            write!(f, "`{}`: {}", self.path, self.problem)
        }
    }
}

impl core::error::Error for ParamError {}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each getter reads its type, wherever the value stands.
    #[test]
    fn getters_read_their_type() {
        let params = Params::parse(
            r#" {"delay":"1h30m","wait":2.5,"factor":1.5,"n":7,"name":"a\"b","on":true,
                 "classes":{"timeout":{"delay":1}},"list":["1s",[2],{"x":3}],"esc\u0061ped":false} "#,
        )
        .expect("valid");
        assert_eq!(params.duration("delay"), Some(Duration::from_secs(5_400)));
        assert_eq!(params.duration("wait"), Some(Duration::from_millis(2_500)));
        assert_eq!(params.number("factor"), Some(1.5));
        assert_eq!(params.whole("n"), Some(7));
        assert_eq!(params.text("name").as_deref(), Some("a\"b"));
        assert_eq!(params.boolean("on"), Some(true));
        assert_eq!(params.boolean("escaped"), Some(false));
        let timeout = params.object("classes").and_then(|classes| classes.object("timeout"));
        assert_eq!(timeout.and_then(|class| class.duration("delay")), Some(Duration::from_secs(1)));
        let list: Vec<&str> = params.list("list").expect("a list").map(Value::as_json).collect();
        assert_eq!(list, ["\"1s\"", "[2]", "{\"x\":3}"]);
        assert_eq!(params.duration("absent"), None);
        assert_eq!(params.duration("name"), None);
        assert_eq!(params.entries().count(), 9);
    }

    /// Nothing is there in an empty object, and text that is no object reads as one.
    #[test]
    fn empty_and_untrusted_text_have_no_entries() {
        for text in ["{}", "", "[1]", "null", "{ }", "{\"a", "{\"a\":", "\u{7f}"] {
            assert_eq!(Params::trusted(text).entries().count(), 0, "{text}");
        }
    }

    /// A refusal names the parameter, the problem and the value.
    #[test]
    fn errors_say_what_to_change() {
        let refusal = |text: &str| {
            let params = Params::parse(text)?;
            for (name, value) in params.entries() {
                value.duration().map_err(|error| error.within(&name).within("classes"))?;
            }
            Ok::<(), ParamError>(())
        };
        for (text, message) in [
            ("{\"d\":-1}", "`classes.d`: a duration cannot be negative, not -1"),
            ("{\"d\":\"-1s\"}", "`classes.d`: a duration cannot be negative, not \"-1s\""),
            ("{\"d\":1e400}", "`classes.d`: a duration is at most one year, not 1e400"),
            ("{\"d\":NaN}", "not valid JSON (at byte 5)"),
            ("[]", "parameters are a JSON object"),
        ] {
            let error = refusal(text).expect_err(text);
            assert_eq!(error.to_string(), message);
        }
        let long = format!("{{\"d\":\"{}\"}}", "x".repeat(1_000));
        let error = refusal(&long).expect_err("malformed");
        assert!(error.to_string().len() < 250);
        assert!(error.to_string().ends_with("..."));
        assert_eq!(
            ParamError::unknown("dealy", &["delay", "jitter"]).to_string(),
            "`dealy`: unknown parameter; known are delay, jitter"
        );
    }
}
