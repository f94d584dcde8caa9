//! Delivers webhooks through Reprise: each is published in its exact bytes, and POSTed in them until the endpoint
//! takes it or the policy of the subscription gives it up.
//!
//! [`read`] takes them from a file, [`Broker`] is the broker's HTTP API, [`Target`] the endpoint, [`deliver`] the
//! worker between the two. No line here decides about a retry: that is the policy's work.

mod broker;
mod target;
mod webhook;
mod worker;

pub use broker::{Broker, Delivery, Setup};
pub use target::{Failure, Outcome, Target};
pub use webhook::{Webhook, read};
pub use worker::{Summary, deliver};

/// Why the sender cannot go on. An endpoint that fails is none of these: that is what it is for.
#[derive(Debug, thiserror::Error)]
pub enum SenderError {
    /// A file cannot be read.
    #[error("{0}: {1}")]
    File(String, std::io::Error),
    /// A line is not a webhook.
    #[error("{path}, line {line}: {source}")]
    Line {
        /// The file.
        path: String,
        /// The line, from 1.
        line: usize,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// There is no answer from the broker.
    #[error("the broker does not answer: {0:?}")]
    Unreachable(#[from] reqwest::Error),
    /// The broker said no.
    #[error("the broker refused {path}: {problem}")]
    Refused {
        /// What was asked.
        path: String,
        /// Its answer.
        problem: String,
    },
    /// The broker's answer is not what it should be.
    #[error("the broker's answer is not understood: {0}")]
    Garbled(String),
}
