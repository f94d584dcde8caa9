//! A broker as commands see it: its HTTP API, and its errors as a person should read them.

use std::time::Duration;

use reqwest::blocking::{Client as Http, RequestBuilder};
use reqwest::header::CONTENT_TYPE;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::answers::{List, Uploaded};

/// Longer than any answer takes: a pull waits at most a minute.
const TIMEOUT: Duration = Duration::from_secs(90);

/// Why a broker did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub(super) enum ClientError {
    /// There was no answer.
    #[error("no answer from the broker at {url}: {}", innermost(source))]
    Unreachable {
        /// Where it should be.
        url: String,
        /// What the connection says.
        source: reqwest::Error,
    },
    /// The broker said no.
    #[error("the broker refused ({code}): {detail}")]
    Refused {
        /// Its error code.
        code: String,
        /// Its words.
        detail: String,
    },
    /// The answer is not one of a broker of this version.
    #[error("the answer to {path} is not understood: {source}")]
    Garbled {
        /// What was asked.
        path: String,
        /// What is wrong with the answer.
        source: serde_json::Error,
    },
}

#[derive(Deserialize)]
struct Problem {
    code: String,
    detail: String,
}

/// A connection to a broker. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Client {
    http: Http,
    url: String,
}

impl Client {
    /// Speaks to the broker at `url`, such as `http://127.0.0.1:7070`.
    ///
    /// # Errors
    /// [`ClientError::Unreachable`] if the system does not allow it.
    pub(super) fn new(url: &str) -> Result<Self, ClientError> {
        // A broker is a neighbour: a proxy meant for the wide world would only be in the way.
        let http = Http::builder().no_proxy().timeout(TIMEOUT).build();
        let url = url.trim_end_matches('/').to_owned();
        match http {
            Ok(http) => Ok(Self { http, url }),
            Err(source) => Err(ClientError::Unreachable { url, source }),
        }
    }

    /// # Errors
    /// [`ClientError`].
    pub(super) fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        self.send(path, self.http.get(self.at(path)))
    }

    /// # Errors
    /// [`ClientError`].
    pub(super) fn put<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, ClientError> {
        self.send(path, self.http.put(self.at(path)).json(body))
    }

    /// # Errors
    /// [`ClientError`].
    pub(super) fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, ClientError> {
        self.send(path, self.http.post(self.at(path)).json(body))
    }

    /// Makes a module the policy of a subscription. `params` is a JSON object.
    ///
    /// # Errors
    /// [`ClientError`]; refused if it is not a policy or takes no such parameters.
    pub(super) fn put_policy(
        &self,
        subscription: &str,
        module: Vec<u8>,
        params: &str,
    ) -> Result<Uploaded, ClientError> {
        let path = format!("/v1/subscriptions/{subscription}/policy");
        let request = self.http.put(self.at(&path)).header(CONTENT_TYPE, "application/wasm");
        self.send(&path, request.header("Broker-Policy-Params", params).body(module))
    }

    /// All items of a list; `path` has a query.
    ///
    /// # Errors
    /// [`ClientError`].
    pub(super) fn list<T: DeserializeOwned>(&self, path: &str) -> Result<Vec<T>, ClientError> {
        let mut page: List<T> = self.get(path)?;
        let mut items = page.items;
        while let Some(cursor) = page.next {
            page = self.get(&format!("{path}&cursor={cursor}"))?;
            items.append(&mut page.items);
        }
        Ok(items)
    }

    fn at(&self, path: &str) -> String {
        format!("{}{path}", self.url)
    }

    fn send<T: DeserializeOwned>(&self, path: &str, request: RequestBuilder) -> Result<T, ClientError> {
        let unreachable = |source| ClientError::Unreachable { url: self.url.clone(), source };
        let answer = request.send().map_err(unreachable)?;
        let status = answer.status();
        let body = answer.bytes().map_err(unreachable)?;
        if !status.is_success()
            && let Ok(Problem { code, detail }) = serde_json::from_slice(&body)
        {
            return Err(ClientError::Refused { code, detail });
        }
        serde_json::from_slice(&body).map_err(|source| ClientError::Garbled { path: path.to_owned(), source })
    }
}

/// The outer layers say no more than that there was a request.
fn innermost(error: &dyn std::error::Error) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}
