//! Which dead letters are meant: as query parameters, and as JSON.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::auth::Caller;
use super::wire::{GivenDuration, Pairs, WireTime, moment, name, optional};
use super::{App, ErrorCode, Problem};
use crate::domain::dead_letter::DeadLetterFilter;
use crate::domain::failure::Cause;
use crate::domain::limits::MAX_DEAD_LETTER_TERMS;
use crate::domain::name::Name;

/// A filter as given; all of it has to match.
#[derive(Deserialize, Default, Debug)]
#[serde(deny_unknown_fields, default)]
pub(super) struct GivenFilter {
    subscription: Option<String>,
    topic: Option<String>,
    /// As it is shown, with its subscription, or by its own name; empty for the default one.
    queue: Option<String>,
    class: Option<String>,
    cause: Option<String>,
    revision: Option<u32>,
    attempts: Option<u32>,
    reason: Option<String>,
    text: Option<String>,
    labels: Pairs,
    attributes: Pairs,
    since: Option<String>,
    until: Option<String>,
    newer_than: Option<GivenDuration>,
    older_than: Option<GivenDuration>,
}

impl GivenFilter {
    /// Takes a query parameter; gives it back if it is none of a filter's.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidQuery`].
    pub(super) fn take(&mut self, key: String, value: String) -> Result<Option<(String, String)>, Problem> {
        let twice = |key: &str| Problem::new(ErrorCode::InvalidQuery, format!("{key} is there twice"));
        let number = |key: &str, value: &str| {
            let detail = format!("{key}: a number is wanted");
            value.parse::<u32>().map_err(|_| Problem::new(ErrorCode::InvalidQuery, detail))
        };
        let text = match key.as_str() {
            "label" | "attribute" => {
                let detail = format!("{key}: NAME=VALUE is wanted");
                let (name, value) =
                    value.split_once('=').ok_or_else(|| Problem::new(ErrorCode::InvalidQuery, detail))?;
                let pairs = if key == "label" { &mut self.labels } else { &mut self.attributes };
                pairs.0.push((name.to_owned(), value.to_owned()));
                return Ok(None);
            }
            "revision" | "attempts" => {
                let number = number(&key, &value)?;
                let slot = if key == "revision" { &mut self.revision } else { &mut self.attempts };
                return if slot.replace(number).is_none() { Ok(None) } else { Err(twice(&key)) };
            }
            "newer_than" | "older_than" => {
                let slot = if key == "newer_than" { &mut self.newer_than } else { &mut self.older_than };
                let given = value.parse().map_or_else(|_| GivenDuration::Text(value), GivenDuration::Seconds);
                return if slot.replace(given).is_none() { Ok(None) } else { Err(twice(&key)) };
            }
            "subscription" => &mut self.subscription,
            "topic" => &mut self.topic,
            "queue" => &mut self.queue,
            "class" => &mut self.class,
            "cause" => &mut self.cause,
            "reason" => &mut self.reason,
            "text" => &mut self.text,
            "since" => &mut self.since,
            "until" => &mut self.until,
            _ => return Ok(Some((key, value))),
        };
        if text.replace(value).is_none() { Ok(None) } else { Err(twice(&key)) }
    }

    /// Checks it. `None` if it contradicts itself: nothing is both.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidName`], [`ErrorCode::InvalidQuery`], and what names of things that are not there give.
    pub(super) fn check(self, app: &App, caller: &Caller) -> Result<Option<DeadLetterFilter>, Problem> {
        let invalid = |detail: String| Problem::new(ErrorCode::InvalidQuery, detail);
        let Self { subscription, topic, queue, class, cause, revision, attempts, reason, text, .. } = self;
        let (of, queue) = match queue.as_deref().map(|text| (text, text.split_once('/'))) {
            Some((_, Some((of, queue)))) => (Some(of.to_owned()), Some(queue)),
            Some((queue, None)) => (None, Some(queue)),
            None => (None, None),
        };
        if subscription.is_some() && of.is_some() && subscription != of {
            return Ok(None);
        }
        let queue = queue.map(own_queue).transpose()?;
        let cause = cause.map(|text| {
            let known = Cause::ALL.into_iter().find(|cause| cause.as_str() == text);
            let all = Cause::ALL.map(Cause::as_str).join(", ");
            known.ok_or_else(|| invalid(format!("cause: one of {all}")))
        });
        if text.as_ref().is_some_and(|text| !text.contains(char::is_alphanumeric)) {
            return Err(invalid("text: there is no word in it".to_owned()));
        }
        let words = text.as_deref().map_or(0, |text| text.split_whitespace().count());
        if self.labels.0.len() + self.attributes.0.len() + words > MAX_DEAD_LETTER_TERMS {
            let detail = format!("at most {MAX_DEAD_LETTER_TERMS} labels, attributes and words together");
            return Err(invalid(detail));
        }
        let now = app.broker.clock().now();
        let ago = |given: Option<GivenDuration>, field: &str| {
            optional(given.as_ref(), field).map(|age| age.map(|age| now.back(age)))
        };
        let at = |given: Option<String>, field: &str| {
            let moment = given.map(|text| moment(field, &text)).transpose();
            moment.map_err(|problem| Problem { code: ErrorCode::InvalidQuery, ..problem })
        };
        let (since, until) = (at(self.since, "since")?, at(self.until, "until")?);
        let (newer, older) = (ago(self.newer_than, "newer_than")?, ago(self.older_than, "older_than")?);
        Ok(Some(DeadLetterFilter {
            subscription: subscription.or(of).map(|text| caller.subscription(&text)).transpose()?,
            topic: topic.map(|text| name("topic", &text)).transpose()?,
            queue,
            class,
            cause: cause.transpose()?,
            revision,
            attempts,
            reason,
            text,
            labels: self.labels.0,
            attributes: self.attributes.0,
            since: since.max(newer),
            until: [until, older].into_iter().flatten().min(),
        }))
    }
}

/// A filter as it was understood.
#[derive(Serialize)]
pub(super) struct FilterBody {
    #[serde(skip_serializing_if = "Option::is_none")]
    subscription: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    topic: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    queue: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    class: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cause: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    revision: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    attempts: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    labels: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    attributes: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    since: Option<WireTime>,
    #[serde(skip_serializing_if = "Option::is_none")]
    until: Option<WireTime>,
}

impl From<DeadLetterFilter> for FilterBody {
    fn from(filter: DeadLetterFilter) -> Self {
        Self {
            subscription: filter.subscription.map(|name| name.to_string()),
            topic: filter.topic.map(|name| name.to_string()),
            queue: filter.queue.map(|queue| queue.map_or_else(String::new, |name| name.to_string())),
            class: filter.class,
            cause: filter.cause.map(Cause::as_str),
            revision: filter.revision,
            attempts: filter.attempts,
            reason: filter.reason,
            text: filter.text,
            labels: filter.labels.into_iter().collect(),
            attributes: filter.attributes.into_iter().collect(),
            since: filter.since.map(WireTime),
            until: filter.until.map(WireTime),
        }
    }
}

fn own_queue(text: &str) -> Result<Option<Name>, Problem> {
    if text.is_empty() { Ok(None) } else { name("queue", text).map(Some) }
}
