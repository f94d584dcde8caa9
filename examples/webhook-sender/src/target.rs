//! The endpoint that webhooks are POSTed to, and its answers in the words of a failure.

use std::time::{Duration, SystemTime};

use reqwest::blocking::{Client, Response};
use reqwest::header::{CONTENT_TYPE, RETRY_AFTER};
use reqwest::redirect::Policy;

use crate::{Delivery, SenderError};

/// An endpoint that asks for more patience than this gets no more either.
const LONGEST_HINT: Duration = Duration::from_secs(24 * 60 * 60);

/// Where webhooks go.
#[derive(Clone, Debug)]
pub struct Target {
    http: Client,
    url: String,
}

/// How a POST ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// A 2xx.
    Taken,
    /// Anything else.
    Failed(Failure),
}

/// What the policy is told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// `http_` and the status, `timeout`, or `connection`.
    pub class: String,
    /// The status.
    pub code: Option<String>,
    /// For people.
    pub detail: String,
    /// From `Retry-After`.
    pub retry_after: Option<Duration>,
}

impl Target {
    /// An endpoint that has `timeout` for its answer.
    ///
    /// # Errors
    /// If the system does not allow it.
    pub fn new(url: &str, timeout: Duration) -> Result<Self, SenderError> {
        // A redirect would turn the POST into a GET, and show the payload to whoever is named.
        let http = Client::builder().redirect(Policy::none()).timeout(timeout).build()?;
        Ok(Self { http, url: url.to_owned() })
    }

    /// POSTs the exact bytes of a webhook.
    #[must_use]
    pub fn post(&self, delivery: &Delivery) -> Outcome {
        let request = self
            .http
            .post(&self.url)
            .header(CONTENT_TYPE, &delivery.content_type)
            .header("Webhook-Event", &delivery.event)
            // The same on each attempt, so that a receiver can tell a webhook that it had already.
            .header("Webhook-Id", &delivery.id)
            .header("Webhook-Attempt", delivery.attempt)
            .body(delivery.payload.clone());
        match request.send() {
            Ok(answer) if answer.status().is_success() => Outcome::Taken,
            Ok(answer) => Outcome::Failed(refused(&answer)),
            Err(error) => Outcome::Failed(unanswered(&error)),
        }
    }
}

fn refused(answer: &Response) -> Failure {
    let status = answer.status();
    let header = answer.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok());
    Failure {
        class: format!("http_{}", status.as_u16()),
        code: Some(status.as_u16().to_string()),
        detail: format!("the endpoint answered {status}"),
        retry_after: header.and_then(|text| hint(text, SystemTime::now())),
    }
}

fn unanswered(error: &reqwest::Error) -> Failure {
    let class = if error.is_timeout() { "timeout" } else { "connection" };
    let mut innermost: &dyn std::error::Error = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    let detail = format!("no answer: {innermost}");
    Failure { class: class.to_owned(), code: None, detail, retry_after: None }
}

/// `Retry-After` is a number of seconds or a date (RFC 9110, 10.2.3). One in the past is no hint.
fn hint(text: &str, now: SystemTime) -> Option<Duration> {
    let hint = match text.trim().parse() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => httpdate::parse_http_date(text.trim()).ok()?.duration_since(now).ok()?,
    };
    Some(hint.min(LONGEST_HINT))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Both forms of the header are read, and nonsense is no hint.
    #[test]
    fn retry_after_is_seconds_or_a_date() {
        let now = httpdate::parse_http_date("Sat, 11 Apr 2026 08:00:00 GMT").expect("a date");
        assert_eq!(hint("120", now), Some(Duration::from_secs(120)));
        assert_eq!(hint("Sat, 11 Apr 2026 08:00:30 GMT", now), Some(Duration::from_secs(30)));
        assert_eq!(hint("Sat, 11 Apr 2026 07:00:00 GMT", now), None);
        assert_eq!(hint("99999999999", now), Some(LONGEST_HINT));
        assert_eq!(hint("soon", now), None);
        assert_eq!(hint("-1", now), None);
    }
}
