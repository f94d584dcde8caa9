//! What a policy says about itself. One list of parameters serves the console, the README tables
//! and the default `check`, so they cannot disagree.

use crate::{ParamError, Params, Value, bindings};

/// The type of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParamKind {
    /// Text.
    Text,
    /// A number.
    Number,
    /// `true` or `false`.
    Boolean,
    /// Text such as `"1h30m"`, or a number of seconds; from 0 to one year.
    Duration,
    /// A JSON object.
    Object,
}

impl ParamKind {
    /// The word for it: `text`, `number`, `boolean`, `duration` or `object`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Number => "number",
            Self::Boolean => "boolean",
            Self::Duration => "duration",
            Self::Object => "object",
        }
    }

    fn check(self, value: Value<'_>) -> Result<(), ParamError> {
        match self {
            Self::Text => value.text().map(drop),
            Self::Number => value.number().map(drop),
            Self::Boolean => value.boolean().map(drop),
            Self::Duration => value.duration().map(drop),
            Self::Object => value.object().map(drop),
        }
    }
}

/// A parameter: its name, type, default and meaning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Param {
    name: String,
    kind: ParamKind,
    default: Option<String>,
    doc: String,
}

impl Param {
    /// A parameter that must be given, until [`default`](Self::default) says otherwise.
    pub fn new(name: impl Into<String>, kind: ParamKind, doc: impl Into<String>) -> Self {
        Self { name: name.into(), kind, default: None, doc: doc.into() }
    }

    /// The value used when it is absent, as JSON text: `"\"5s\""`, `"5"`, `"{}"`; `"null"` where
    /// absence itself is the default.
    #[must_use]
    pub fn default(mut self, json: impl Into<String>) -> Self {
        self.default = Some(json.into());
        self
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its type.
    #[must_use]
    pub fn kind(&self) -> ParamKind {
        self.kind
    }

    /// Its default as JSON text; none if it must be given.
    #[must_use]
    pub fn default_json(&self) -> Option<&str> {
        self.default.as_deref()
    }

    /// What it means.
    #[must_use]
    pub fn doc(&self) -> &str {
        &self.doc
    }
}

/// What the command line and the console show about a policy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Description {
    name: String,
    version: String,
    summary: String,
    queues: Vec<String>,
    params: Vec<Param>,
}

impl Description {
    /// A description with a name and version of its own. `Description::default()` takes both, and
    /// the summary, from the crate.
    pub fn new(name: impl Into<String>, version: impl Into<String>) -> Self {
        Self { name: name.into(), version: version.into(), ..Self::default() }
    }

    /// One line on what it does.
    #[must_use]
    pub fn summary(mut self, summary: impl Into<String>) -> Self {
        self.summary = summary.into();
        self
    }

    /// Adds a dead-letter queue that a decision may name.
    #[must_use]
    pub fn queue(mut self, name: impl Into<String>) -> Self {
        self.queues.push(name.into());
        self
    }

    /// Adds a parameter.
    #[must_use]
    pub fn param(mut self, param: Param) -> Self {
        self.params.push(param);
        self
    }

    /// The parameters, in the order they were added.
    #[must_use]
    pub fn params(&self) -> &[Param] {
        &self.params
    }

    /// The dead-letter queues a decision may name.
    #[must_use]
    pub fn queues(&self) -> &[String] {
        &self.queues
    }

    /// The name; empty if it comes from the crate.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Refuses an unknown or repeated name, a value of the wrong type, a duration outside 0 to one
    /// year, and the absence of a parameter that has no default.
    ///
    /// # Errors
    ///
    /// A [`ParamError`] for the first such parameter.
    pub fn check(&self, params: Params<'_>) -> Result<(), ParamError> {
        self.check_names(params)?;
        for (name, value) in params.entries() {
            if let Some(param) = self.params.iter().find(|param| param.name == name) {
                param.kind.check(value).map_err(|error| error.within(&name))?;
            }
        }
        Ok(())
    }

    /// The part of [`check`](Self::check) that looks at names only, for a policy that reads the
    /// values itself.
    ///
    /// # Errors
    ///
    /// A [`ParamError`] for the first unknown, repeated or missing name.
    pub fn check_names(&self, params: Params<'_>) -> Result<(), ParamError> {
        let known: Vec<&str> = self.params.iter().map(Param::name).collect();
        let mut seen = Vec::new();
        for (name, _) in params.entries() {
            if !known.contains(&name.as_ref()) {
                return Err(ParamError::unknown(&name, &known));
            }
            if seen.contains(&name) {
                return Err(ParamError::new(name, "given twice"));
            }
            seen.push(name);
        }
        let missing = |param: &&Param| param.default.is_none() && params.get(&param.name).is_none();
        match self.params.iter().find(missing) {
            Some(param) => Err(ParamError::new(&param.name, "must be given")),
            None => Ok(()),
        }
    }

    /// Fills what was left empty from the policy's crate.
    pub(crate) fn fill_in(&mut self, name: &str, version: &str, summary: &str) {
        for (field, value) in
            [(&mut self.name, name), (&mut self.version, version), (&mut self.summary, summary)]
        {
            if field.is_empty() {
                field.push_str(value);
            }
        }
    }

    pub(crate) fn into_contract(self) -> bindings::Description {
        let param = |param: Param| bindings::Param {
            name: param.name,
            kind: match param.kind {
                ParamKind::Text => bindings::ParamKind::Text,
                ParamKind::Number => bindings::ParamKind::Number,
                ParamKind::Boolean => bindings::ParamKind::Boolean,
                ParamKind::Duration => bindings::ParamKind::Duration,
                ParamKind::Object => bindings::ParamKind::Object,
            },
            default: param.default,
            doc: param.doc,
        };
        bindings::Description {
            name: self.name,
            version: self.version,
            summary: self.summary,
            queues: self.queues,
            params: self.params.into_iter().map(param).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn description() -> Description {
        Description::new("sample", "1.0.0")
            .param(Param::new("delay", ParamKind::Duration, "wait").default("\"5s\""))
            .param(Param::new("queue", ParamKind::Text, "where"))
            .param(Param::new("loud", ParamKind::Boolean, "say so").default("false"))
            .param(Param::new("ratio", ParamKind::Number, "share").default("0.5"))
            .param(Param::new("more", ParamKind::Object, "rest").default("{}"))
    }

    /// The description refuses what it does not describe, by name and by type.
    #[test]
    fn checks_what_it_describes() {
        let check = |text| Params::parse(text).and_then(|params| description().check(params));
        assert_eq!(check(r#"{"queue":"q"}"#), Ok(()));
        assert_eq!(check(r#"{"queue":"q","delay":5,"loud":true,"ratio":1,"more":{"a":1}}"#), Ok(()));
        for (text, path) in [
            ("{}", "queue"),
            (r#"{"queue":"q","dealy":5}"#, "dealy"),
            (r#"{"queue":"q","queue":"r"}"#, "queue"),
            (r#"{"queue":5}"#, "queue"),
            (r#"{"queue":"q","delay":-5}"#, "delay"),
            (r#"{"queue":"q","delay":"366d"}"#, "delay"),
            (r#"{"queue":"q","delay":null}"#, "delay"),
            (r#"{"queue":"q","loud":"yes"}"#, "loud"),
            (r#"{"queue":"q","ratio":1e999}"#, "ratio"),
            (r#"{"queue":"q","more":[]}"#, "more"),
        ] {
            assert_eq!(check(text).expect_err(text).path(), path, "{text}");
        }
    }
}
