//! A broker as commands see it: its HTTP API, and its errors as a person should read them.

use std::io::BufReader;
use std::time::Duration;

use reqwest::StatusCode;
use reqwest::blocking::{Client as Http, RequestBuilder, Response};
use reqwest::header::{ACCEPT, CONTENT_TYPE};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::answers::List;
use super::output::{escaped, plain};
use crate::domain::limits::MAX_PAGE;

/// Longer than any answer takes: a pull waits at most a minute.
const TIMEOUT: Duration = Duration::from_secs(90);
/// For what takes as long as it takes.
const LONG: Duration = Duration::from_secs(24 * 60 * 60);
/// After how long a connection without a word is asked whether the other side is still there.
const KEEP_ALIVE: Duration = Duration::from_secs(30);

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
    /// It says not how to get there.
    #[error("{0:?} is not the URL of a broker: it begins with http:// or https://")]
    NoUrl(String),
    /// The broker said no.
    #[error("the broker refused ({code}): {detail}")]
    Refused {
        /// Its error code.
        code: String,
        /// Its words.
        detail: String,
        /// What to make of it.
        refusal: Refusal,
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

/// What a refusal means for whoever asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Refusal {
    /// What was named is not there.
    NotFound,
    /// The same request will be refused again.
    Final,
    /// It may go well another time, or what answered is no broker.
    ForNow,
}

#[derive(Deserialize)]
struct Problem {
    code: String,
    detail: String,
    #[serde(default = "for_now")]
    retryable: bool,
}

const fn for_now() -> bool {
    true
}

/// A connection to a broker. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Client {
    http: Http,
    url: String,
    token: Option<String>,
    realm: Option<String>,
}

/// An answer that comes line by line.
pub(super) type Lines = BufReader<Response>;

/// A policy to be uploaded.
#[derive(Clone, Debug)]
pub(super) struct Module {
    pub(super) bytes: Vec<u8>,
    /// A JSON object.
    pub(super) params: String,
}

impl Client {
    /// Speaks to the broker at `url`, such as `http://127.0.0.1:7070`.
    ///
    /// # Errors
    /// [`ClientError::NoUrl`]; [`ClientError::Unreachable`] if the system does not allow it.
    pub(super) fn new(url: &str, token: Option<&str>) -> Result<Self, ClientError> {
        if !url.starts_with("http://") && !url.starts_with("https://") {
            return Err(ClientError::NoUrl(url.to_owned()));
        }
        // A broker is a neighbour: a proxy meant for the wide world would only be in the way.
        let http = Http::builder().no_proxy().timeout(TIMEOUT).tcp_keepalive(KEEP_ALIVE).build();
        let url = url.trim_end_matches('/').to_owned();
        match http {
            Ok(http) => Ok(Self { http, url, token: token.map(str::to_owned), realm: None }),
            Err(source) => Err(ClientError::Unreachable { url, source }),
        }
    }

    /// In this realm, where the token allows to name one.
    pub(super) fn within(self, realm: Option<&str>) -> Self {
        Self { realm: realm.map(str::to_owned), ..self }
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

    /// # Errors
    /// [`ClientError`].
    pub(super) fn delete(&self, path: &str) -> Result<(), ClientError> {
        self.answer(self.http.delete(self.at(path))).map(drop)
    }

    /// Puts a policy where one is taken.
    ///
    /// # Errors
    /// [`ClientError`]; refused if it is not a policy or takes no such parameters.
    pub(super) fn put_module<T: DeserializeOwned>(
        &self,
        path: &str,
        module: Module,
    ) -> Result<T, ClientError> {
        self.send(path, with(module, self.http.put(self.at(path))))
    }

    /// # Errors
    /// [`ClientError`].
    pub(super) fn patch<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, ClientError> {
        self.send(path, self.http.patch(self.at(path)).json(body))
    }

    /// Publishes a batch, whose items are answered one by one, also where none was taken.
    ///
    /// # Errors
    /// [`ClientError`] if the batch was refused as a whole.
    pub(super) fn publish<T: DeserializeOwned>(
        &self,
        topic: &str,
        batch: &impl Serialize,
    ) -> Result<T, ClientError> {
        let path = format!("/v1/topics/{topic}/messages");
        let answer = self.asked(self.http.post(self.at(&path)).json(batch))?;
        let status = answer.status();
        let body = answer.bytes().map_err(|source| self.unreachable(source))?;
        let published = serde_json::from_slice(&body);
        if status.is_success() {
            published.map_err(|source| ClientError::Garbled { path, source })
        } else {
            published.map_err(|_| refused(status, &body))
        }
    }

    /// Events of the realm as they come, behind the one with this id.
    ///
    /// # Errors
    /// [`ClientError`].
    pub(super) fn events(&self, last: Option<&str>) -> Result<Lines, ClientError> {
        let request = self.http.get(self.at("/v1/events")).timeout(LONG);
        let request = match last {
            Some(id) => request.header("Last-Event-ID", id),
            None => request,
        };
        Ok(BufReader::new(self.answer(request)?))
    }

    /// An answer that comes line by line.
    ///
    /// # Errors
    /// [`ClientError`].
    pub(super) fn stream(&self, path: &str, body: &impl Serialize) -> Result<Lines, ClientError> {
        self.lines(self.http.post(self.at(path)).json(body))
    }

    /// The same with a policy.
    ///
    /// # Errors
    /// [`ClientError`].
    pub(super) fn stream_module(&self, path: &str, module: Module) -> Result<Lines, ClientError> {
        self.lines(with(module, self.http.post(self.at(path))))
    }

    fn lines(&self, request: RequestBuilder) -> Result<Lines, ClientError> {
        // It takes as long as it takes.
        let request = request.header(ACCEPT, "application/x-ndjson").timeout(LONG);
        Ok(BufReader::new(self.answer(request)?))
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

    /// The first items of a list, and whether there are more; `path` has no query or one that ends with `&`.
    ///
    /// # Errors
    /// [`ClientError`].
    pub(super) fn first<T: DeserializeOwned>(
        &self,
        path: &str,
        most: usize,
    ) -> Result<(Vec<T>, bool), ClientError> {
        let start = if path.contains('?') { path.to_owned() } else { format!("{path}?") };
        let mut items = Vec::new();
        let mut behind = String::new();
        loop {
            let limit = (most - items.len()).min(MAX_PAGE);
            let mut page: List<T> = self.get(&format!("{start}limit={limit}{behind}"))?;
            items.append(&mut page.items);
            match page.next {
                None => return Ok((items, false)),
                Some(_) if items.len() >= most => return Ok((items, true)),
                Some(cursor) => behind = format!("&cursor={cursor}"),
            }
        }
    }

    fn at(&self, path: &str) -> String {
        format!("{}{path}", self.url)
    }

    fn send<T: DeserializeOwned>(&self, path: &str, request: RequestBuilder) -> Result<T, ClientError> {
        let body = self.answer(request)?.bytes().map_err(|source| self.unreachable(source))?;
        serde_json::from_slice(&body).map_err(|source| ClientError::Garbled { path: path.to_owned(), source })
    }

    /// The answer, if it is a good one.
    fn answer(&self, request: RequestBuilder) -> Result<Response, ClientError> {
        let answer = self.asked(request)?;
        let status = answer.status();
        if status.is_success() {
            return Ok(answer);
        }
        let body = answer.bytes().map_err(|source| self.unreachable(source))?;
        Err(refused(status, &body))
    }

    /// The answer, whatever it is.
    fn asked(&self, request: RequestBuilder) -> Result<Response, ClientError> {
        let request = match &self.token {
            Some(token) => request.bearer_auth(token),
            None => request,
        };
        let request = match &self.realm {
            Some(realm) => request.header("Broker-Realm", realm),
            None => request,
        };
        request.send().map_err(|source| self.unreachable(source))
    }

    fn unreachable(&self, source: reqwest::Error) -> ClientError {
        ClientError::Unreachable { url: plain(&self.url), source }
    }
}

fn refused(status: StatusCode, body: &[u8]) -> ClientError {
    let problem = serde_json::from_slice(body).unwrap_or_else(|_| Problem {
        code: status.to_string(),
        detail: "it is not a broker".to_owned(),
        retryable: true,
    });
    let refusal = match problem.retryable {
        true => Refusal::ForNow,
        false if status == StatusCode::NOT_FOUND => Refusal::NotFound,
        false => Refusal::Final,
    };
    ClientError::Refused { code: plain(&problem.code), detail: plain(&problem.detail), refusal }
}

fn with(module: Module, request: RequestBuilder) -> RequestBuilder {
    let request = request.header(CONTENT_TYPE, "application/wasm");
    request.header("Broker-Policy-Params", escaped(&module.params)).body(module.bytes)
}

/// The outer layers say no more than that there was a request.
fn innermost(error: &dyn std::error::Error) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}
