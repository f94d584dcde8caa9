//! `GET /v1/audit`: who changed what, and who read payloads; for operators.

use axum::extract::State;
use axum::response::Response;
use serde::{Deserialize, Serialize};

use super::auth::{May, need};
use super::body::Format;
use super::query::{Asked, cursor, page};
use super::wire::{WireTime, name};
use super::{App, Problem};
use crate::domain::access::Pattern;
use crate::engine::{AuditChecked, AuditQuery, Command, Refusal};
use crate::store::row::AuditRow;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ListQuery {
    realm: Option<String>,
    action: Option<String>,
    actor: Option<String>,
    limit: Option<usize>,
    cursor: Option<String>,
    #[serde(default)]
    verify: bool,
}

#[derive(Serialize)]
struct ListAnswer {
    items: Vec<RowAnswer>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    chain: Option<ChainAnswer>,
}

#[derive(Serialize)]
struct RowAnswer {
    number: u64,
    at: WireTime,
    realm: String,
    actor: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<String>,
    action: &'static str,
    subject: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    detail: String,
    previous: String,
    hash: String,
}

/// Whether every row is there, as it was written.
#[derive(Serialize)]
#[serde(untagged)]
enum ChainAnswer {
    Holds { verified: bool, rows: u64, first: u64, before: String, last: String },
    Broken { verified: bool, broken_at: u64 },
}

pub(super) async fn list(
    State(app): State<App>,
    _: May<need::Operator>,
    Asked(query): Asked<ListQuery>,
    format: Format,
) -> Result<Response, Problem> {
    let action = query.action.as_deref().map(|text| Pattern::parse("action", text));
    let request = AuditQuery {
        realm: query.realm.as_deref().map(|text| name("realm", text)).transpose()?,
        action: action.transpose().map_err(Refusal::from)?,
        actor: query.actor,
        page: page(query.limit, query.cursor.as_deref(), |text| text.parse().ok())?,
    };
    let chain = if query.verify { Some(chain(&app).await?) } else { None };
    let listed = app.broker.call(|reply| Command::ListAudit(request, reply)).await?;
    let next = listed.next.map(cursor);
    Ok(format.ok(&ListAnswer { items: listed.items.into_iter().map(row).collect(), next, chain }))
}

/// Piece by piece, so that nobody waits for it long.
async fn chain(app: &App) -> Result<ChainAnswer, Problem> {
    let mut from = None;
    loop {
        match app.broker.call(|reply| Command::CheckAudit(from, reply)).await? {
            AuditChecked::Until(place) => from = Some(place),
            AuditChecked::Broken(number) => {
                tracing::error!(number, "the audit log was tampered with or is damaged");
                return Ok(ChainAnswer::Broken { verified: false, broken_at: number });
            }
            AuditChecked::Holds(head) => {
                return Ok(ChainAnswer::Holds {
                    verified: true,
                    rows: head.next - head.first,
                    first: head.first,
                    before: head.before.to_string(),
                    last: head.last.to_string(),
                });
            }
        }
    }
}

fn row((number, row): (u64, AuditRow)) -> RowAnswer {
    let AuditRow { at, entry, previous, hash } = row;
    RowAnswer {
        number,
        at: WireTime(at),
        realm: entry.realm.to_string(),
        actor: entry.actor,
        token: entry.token.map(|token| token.to_string()),
        action: entry.action.as_str(),
        subject: entry.subject,
        detail: entry.detail,
        previous: previous.to_string(),
        hash: hash.to_string(),
    }
}
