//! A policy that is to be tried: the active revision, another one, either with other parameters, or a module that came
//! with the request.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::Request;
use axum::http::header;
use axum::http::request::Parts;
use bytes::Bytes;
use serde::de::DeserializeOwned;

use super::auth::Caller;
use super::body::{parse, read, spoken};
use super::policies::{params_text, upload_params};
use super::wire::JsonPayload;
use super::{App, ErrorCode, Problem};
use crate::domain::limits::{MAX_BODY_BYTES, MAX_MODULE_BYTES};
use crate::domain::name::Name;
use crate::engine::{AdmittedModule, Command, Refusal};
use crate::policy::{Program, Rehearsal};

/// Which one, as the request says.
pub(super) enum Candidate {
    /// A revision, `None` for the active one, and parameters in place of its own.
    Revision { number: Option<u32>, params: Option<JsonPayload> },
    /// A module and its parameters.
    Module { bytes: Bytes, params: Option<String> },
}

/// A candidate, ready to be asked.
pub(super) struct Ready {
    pub(super) program: Arc<Program>,
    pub(super) params: String,
    /// Its number, where it is a revision as it stands.
    pub(super) revision: Option<u32>,
    pub(super) rehearsal: Rehearsal,
    /// The module's bytes.
    pub(super) bytes: Bytes,
}

impl Ready {
    /// The module, for the broker to keep.
    pub(super) fn module(&self) -> AdmittedModule {
        let description = self.program.description();
        AdmittedModule {
            digest: self.program.digest(),
            bytes: self.bytes.clone(),
            name: description.name.clone(),
            version: description.version.clone(),
            trial_fuel: self.rehearsal.fuel,
        }
    }
}

/// A request that names a candidate: a module with the rest in the query, or a body with all of it.
pub(super) enum Trial<Query, Given> {
    /// A module, and what the query says.
    Module(Candidate, Query),
    /// A body.
    Body(Given),
}

/// Reads either form.
///
/// # Errors
/// As those of the query, the body and the parameters.
pub(super) async fn trial<Query, Given>(request: Request) -> Result<Trial<Query, Given>, Problem>
where
    Query: DeserializeOwned,
    Given: DeserializeOwned,
{
    let (parts, body) = request.into_parts();
    let is_module = parts.headers.get(header::CONTENT_TYPE).is_some_and(|it| it == "application/wasm");
    if is_module { module(parts, body).await } else { described(parts, body).await }
}

async fn module<Query, Given>(parts: Parts, body: Body) -> Result<Trial<Query, Given>, Problem>
where
    Query: DeserializeOwned,
{
    let query = axum::extract::Query::try_from_uri(&parts.uri)
        .map_err(|error| Problem::new(ErrorCode::InvalidQuery, error.body_text()))?;
    let params = upload_params(&parts.headers)?;
    let bytes = read(&parts.headers, body, MAX_MODULE_BYTES, ErrorCode::PolicyTooLarge).await?;
    Ok(Trial::Module(Candidate::Module { bytes, params }, query.0))
}

async fn described<Query, Given: DeserializeOwned>(
    parts: Parts,
    body: Body,
) -> Result<Trial<Query, Given>, Problem> {
    if parts.uri.query().is_some_and(|query| !query.is_empty()) {
        let detail = "with a JSON body everything is in the body; the query goes with a module";
        return Err(Problem::new(ErrorCode::InvalidQuery, detail));
    }
    let format = spoken(&parts.headers).ok_or_else(|| {
        let detail = "send application/json, application/msgpack, or a policy as application/wasm";
        Problem::new(ErrorCode::UnsupportedMediaType, detail)
    })?;
    let bytes = read(&parts.headers, body, MAX_BODY_BYTES, ErrorCode::BodyTooLarge).await?;
    parse(format, &bytes).map(Trial::Body)
}

impl Candidate {
    /// Admits or loads it, and has it check its parameters.
    ///
    /// # Errors
    /// What an upload of it would be refused for; [`ErrorCode::RevisionNotFound`].
    pub(super) async fn ready(
        self,
        app: &App,
        caller: &Caller,
        subscription: &Name,
    ) -> Result<Ready, Problem> {
        let programs = app.broker.programs();
        match self {
            Self::Module { bytes, params } => {
                let params = params.unwrap_or_else(|| "{}".to_owned());
                let admitted = programs.admit(bytes.clone(), params.clone()).await;
                let (program, rehearsal) = admitted.ok_or(Refusal::ShuttingDown)??;
                Ok(Ready { program, params, revision: None, rehearsal, bytes })
            }
            Self::Revision { number, params } => {
                let name = subscription.clone();
                let view =
                    app.broker.call(|reply| Command::GetPolicy(caller.realm, name, number, reply)).await?;
                let given = params.map(|params| params_text(&params.0)).transpose()?;
                let params = given.unwrap_or_else(|| view.row.params.clone());
                let revision = (params == view.row.params).then_some(view.number);
                let digest = view.row.digest;
                let module = app.broker.call(|reply| Command::GetModule(caller.realm, digest, reply)).await?;
                let bytes = Bytes::from(module.clone());
                let tried = programs.rehearse(digest, Some(module), params.clone()).await;
                let (program, rehearsal) = tried.ok_or(Refusal::ShuttingDown)??;
                Ok(Ready { program, params, revision, rehearsal, bytes })
            }
        }
    }
}
