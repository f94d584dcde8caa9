//! `/v1/tokens`: who is let into a realm, for operators. A secret is shown in the answer that made it, and never again.

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use serde::{Deserialize, Serialize};

use super::auth::{ANONYMOUS, May, OPERATOR, need};
use super::body::{Format, Given};
use super::query::{Asked, PageQuery, cursor};
use super::realms::RateBody;
use super::shape::ListBody;
use super::wire::{GivenDuration, WireTime, name, optional, some};
use super::{App, ErrorCode, Problem};
use crate::domain::access::{Credential, Pattern, Patterns, Rate, Rights, Scope, Scopes, TokenId};
use crate::domain::audit::Action;
use crate::domain::settings::InvalidSetting;
use crate::engine::{BROKER, Command, NewToken, Refusal, Rotation, TokenChange, TokenView};
use crate::store::row::TokenSecret;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NewTokenBody {
    name: String,
    scopes: Vec<String>,
    topics: Option<Vec<String>>,
    subscriptions: Option<Vec<String>>,
    expires_in: Option<GivenDuration>,
    rate: Option<RateBody>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ChangeBody {
    scopes: Option<Vec<String>>,
    topics: Option<Vec<String>>,
    subscriptions: Option<Vec<String>>,
    /// Null: it does not expire.
    #[serde(default, deserialize_with = "some")]
    expires_in: Option<Option<GivenDuration>>,
    /// Null: as often as it likes.
    #[serde(default, deserialize_with = "some")]
    rate: Option<Option<RateBody>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RotateBody {
    grace: Option<GivenDuration>,
}

#[derive(Serialize)]
struct TokenAnswer {
    id: String,
    name: String,
    scopes: Vec<&'static str>,
    topics: Vec<String>,
    subscriptions: Vec<String>,
    expires_at: Option<WireTime>,
    rate: Option<RateBody>,
    created_at: WireTime,
    created_by: String,
    secret_made_at: WireTime,
    #[serde(skip_serializing_if = "Option::is_none")]
    previous_secret: Option<PreviousAnswer>,
}

/// The secret before the last one, while it is good.
#[derive(Serialize)]
struct PreviousAnswer {
    made_at: WireTime,
    /// Null: until the next rotation.
    until: Option<WireTime>,
}

#[derive(Serialize)]
struct SecretAnswer {
    #[serde(flatten)]
    token: TokenAnswer,
    secret: String,
}

pub(super) async fn create(
    State(app): State<App>,
    caller: May<need::Operator>,
    format: Format,
    Given(body): Given<NewTokenBody>,
) -> Result<Response, Problem> {
    let name = name("token", &body.name)?;
    if [OPERATOR, ANONYMOUS, BROKER].contains(&name.as_str()) {
        let reason = format!("{name} is what the broker itself calls somebody");
        return Err(Refusal::from(InvalidSetting { field: "name", reason }).into());
    }
    let secret = fresh_secret()?;
    let every = || Ok(Patterns::all());
    let request = Box::new(NewToken {
        name,
        rights: Rights {
            scopes: scopes(&body.scopes)?,
            topics: body.topics.map_or_else(every, |texts| patterns("topics", &texts))?,
            subscriptions: body
                .subscriptions
                .map_or_else(every, |texts| patterns("subscriptions", &texts))?,
        },
        expires_in: optional(body.expires_in.as_ref(), "expires_in")?,
        rate: body.rate.map(Rate::from),
        hash: Credential::hash(&secret),
        by: caller.name().to_owned(),
    });
    let NewToken { rights, rate, .. } = &*request;
    let given = given(Some(rights.scopes), Some(&rights.topics), Some(&rights.subscriptions), *rate);
    let entry = caller.does(Action::TokenCreate, &request.name).with(given);
    let view = app.broker.audited(entry, |reply| Command::CreateToken(caller.realm, request, reply)).await?;
    let secret = Credential::write(view.id, &secret);
    Ok(format.answer(StatusCode::CREATED, &SecretAnswer { token: answer(&app, view), secret }))
}

pub(super) async fn get(
    State(app): State<App>,
    caller: May<need::Operator>,
    Path(id): Path<String>,
    format: Format,
) -> Result<Response, Problem> {
    let id = token_id(&id)?;
    let view = app.broker.call(|reply| Command::GetToken(caller.realm, id, reply)).await?;
    Ok(format.ok(&answer(&app, view)))
}

pub(super) async fn list(
    State(app): State<App>,
    caller: May<need::Operator>,
    Asked(query): Asked<PageQuery>,
    format: Format,
) -> Result<Response, Problem> {
    let page = query.page(TokenId::parse)?;
    let listed = app.broker.call(|reply| Command::ListTokens(caller.realm, page, reply)).await?;
    Ok(format.ok(&ListBody::new(listed, |view| cursor(view.id), |view| answer(&app, view))))
}

pub(super) async fn patch(
    State(app): State<App>,
    caller: May<need::Operator>,
    Path(id): Path<String>,
    format: Format,
    Given(body): Given<ChangeBody>,
) -> Result<Response, Problem> {
    let id = token_id(&id)?;
    let good = |given: Option<GivenDuration>| optional(given.as_ref(), "expires_in");
    let change = Box::new(TokenChange {
        scopes: body.scopes.map(|texts| scopes(&texts)).transpose()?,
        topics: body.topics.map(|texts| patterns("topics", &texts)).transpose()?,
        subscriptions: body.subscriptions.map(|texts| patterns("subscriptions", &texts)).transpose()?,
        expires_in: body.expires_in.map(good).transpose()?,
        rate: body.rate.map(|rate| rate.map(Rate::from)),
    });
    let TokenChange { scopes, topics, subscriptions, rate, .. } = &*change;
    let given = given(*scopes, topics.as_ref(), subscriptions.as_ref(), rate.flatten());
    let entry = caller.does(Action::TokenChange, id).with(given);
    let view =
        app.broker.audited(entry, |reply| Command::ChangeToken(caller.realm, id, change, reply)).await?;
    Ok(format.ok(&answer(&app, view)))
}

pub(super) async fn rotate(
    State(app): State<App>,
    caller: May<need::Operator>,
    Path(id): Path<String>,
    format: Format,
    Given(body): Given<RotateBody>,
) -> Result<Response, Problem> {
    let id = token_id(&id)?;
    let secret = fresh_secret()?;
    let rotation =
        Rotation { hash: Credential::hash(&secret), grace: optional(body.grace.as_ref(), "grace")? };
    let entry = caller.does(Action::TokenRotate, id);
    let view =
        app.broker.audited(entry, |reply| Command::RotateToken(caller.realm, id, rotation, reply)).await?;
    let secret = Credential::write(id, &secret);
    Ok(format.ok(&SecretAnswer { token: answer(&app, view), secret }))
}

pub(super) async fn delete(
    State(app): State<App>,
    caller: May<need::Operator>,
    Path(id): Path<String>,
) -> Result<Response, Problem> {
    let id = token_id(&id)?;
    let entry = caller.does(Action::TokenRevoke, id);
    app.broker.audited(entry, |reply| Command::DeleteToken(caller.realm, id, reply)).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

fn token_id(text: &str) -> Result<TokenId, Problem> {
    let detail = "a token's id is what the list gave";
    TokenId::parse(text).ok_or_else(|| Problem::new(ErrorCode::InvalidId, detail))
}

fn fresh_secret() -> Result<[u8; 32], Problem> {
    let mut secret = [0; 32];
    getrandom::fill(&mut secret).map_err(|error| Problem::new(ErrorCode::Internal, error.to_string()))?;
    Ok(secret)
}

fn scopes(texts: &[String]) -> Result<Scopes, Problem> {
    let names = Scope::ALL.map(Scope::as_str).join(", ");
    let invalid = |reason| Problem::from(Refusal::from(InvalidSetting { field: "scopes", reason }));
    if texts.is_empty() {
        return Err(invalid(format!("at least one of {names}")));
    }
    let scope =
        |text: &String| Scope::parse(text).ok_or_else(|| invalid(format!("{text:?} is none of {names}")));
    Ok(Scopes::of(texts.iter().map(scope).collect::<Result<Vec<_>, _>>()?))
}

fn patterns(field: &'static str, texts: &[String]) -> Result<Patterns, Problem> {
    let patterns = texts.iter().map(|text| Pattern::parse(field, text)).collect::<Result<Vec<_>, _>>();
    let patterns = patterns.and_then(|patterns| Patterns::new(field, patterns));
    patterns.map_err(|invalid| Refusal::from(invalid).into())
}

/// What a token was given, for the audit log.
fn given(
    scopes: Option<Scopes>,
    topics: Option<&Patterns>,
    subscriptions: Option<&Patterns>,
    rate: Option<Rate>,
) -> String {
    let names = |patterns: &Patterns| patterns.iter().map(Pattern::as_str).collect::<Vec<_>>().join(" ");
    let scopes = scopes.map(|scopes| scopes.iter().map(Scope::as_str).collect::<Vec<_>>().join(" "));
    let given = [
        scopes.map(|scopes| format!("scopes {scopes}")),
        topics.map(|topics| format!("topics {}", names(topics))),
        subscriptions.map(|subscriptions| format!("subscriptions {}", names(subscriptions))),
        rate.map(|rate| format!("rate {rate}")),
    ];
    given.into_iter().flatten().collect::<Vec<_>>().join("; ")
}

fn answer(app: &App, view: TokenView) -> TokenAnswer {
    let TokenView { id, row } = view;
    let now = app.broker.clock().now();
    let texts = |patterns: &Patterns| patterns.iter().map(|pattern| pattern.as_str().to_owned()).collect();
    let previous = row.previous.filter(|(_, until)| until.is_none_or(|until| until > now));
    TokenAnswer {
        id: id.to_string(),
        name: row.name.to_string(),
        scopes: row.rights.scopes.iter().map(Scope::as_str).collect(),
        topics: texts(&row.rights.topics),
        subscriptions: texts(&row.rights.subscriptions),
        expires_at: row.expires_at.map(WireTime),
        rate: row.rate.map(RateBody::from),
        created_at: WireTime(row.created_at),
        created_by: row.created_by.clone(),
        secret_made_at: WireTime(row.secret.made_at),
        previous_secret: previous.map(|(TokenSecret { made_at, .. }, until)| PreviousAnswer {
            made_at: WireTime(made_at),
            until: until.map(WireTime),
        }),
    }
}
