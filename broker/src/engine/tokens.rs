//! Create, change, rotate, show, list and delete tokens. Secrets are made at the edge: only their hashes come here.

use std::sync::Arc;
use std::time::Duration;

use super::command::{Listed, Page, Refusal};
use super::{Engine, Reply, or_refuse};
use crate::domain::access::{Patterns, Rate, Rights, Scopes, SecretHash, TokenId};
use crate::domain::id::RealmId;
use crate::domain::limits::MAX_TOKENS;
use crate::domain::name::Name;
use crate::store::row::{Row as _, TokenRow, TokenSecret};
use crate::store::{Commit, Keyspace, key};

/// A token to be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewToken {
    /// What it is called; no two of a realm have the same name.
    pub name: Name,
    /// What it allows.
    pub rights: Rights,
    /// How long it is good; `None` is for ever.
    pub expires_in: Option<Duration>,
    /// How often it may ask.
    pub rate: Option<Rate>,
    /// Of its first secret.
    pub hash: SecretHash,
    /// Who asks for it.
    pub by: String,
}

/// What is to change of a token; what is `None` is not.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[expect(missing_docs, reason = "each is documented at the new token")]
pub struct TokenChange {
    pub scopes: Option<Scopes>,
    pub topics: Option<Patterns>,
    pub subscriptions: Option<Patterns>,
    pub expires_in: Option<Option<Duration>>,
    pub rate: Option<Option<Rate>>,
}

/// A new secret for a token.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rotation {
    /// Of the new one.
    pub hash: SecretHash,
    /// How long the one before it stays good; `None` until the next rotation.
    pub grace: Option<Duration>,
}

/// A token as people see it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TokenView {
    /// Its id.
    pub id: TokenId,
    /// Everything else.
    pub row: Arc<TokenRow>,
}

impl Engine {
    pub(super) fn create_token(&mut self, realm: RealmId, request: NewToken, reply: Reply<TokenView>) {
        or_refuse!(self, reply, self.expect_realm(realm));
        or_refuse!(self, reply, request.rate.map_or(Ok(()), Rate::validate));
        if self.tokens.len() >= MAX_TOKENS {
            return self.answer(reply, Err(Refusal::LimitReached { what: "tokens", limit: MAX_TOKENS }));
        }
        if self.tokens_of(realm).any(|(_, row)| row.name == request.name) {
            return self.answer(reply, Err(Refusal::TokenExists(request.name)));
        }
        let id = TokenId(self.next_token);
        self.next_token += 1;
        self.save_registry();
        let row = TokenRow {
            name: request.name,
            rights: request.rights,
            expires_at: request.expires_in.map(|good| self.now + good),
            rate: request.rate,
            created_at: self.now,
            created_by: request.by,
            secret: TokenSecret { hash: request.hash, made_at: self.now },
            previous: None,
        };
        self.save_token(realm, id, row, reply);
    }

    pub(super) fn change_token(
        &mut self,
        realm: RealmId,
        id: TokenId,
        change: TokenChange,
        reply: Reply<TokenView>,
    ) {
        let old = or_refuse!(self, reply, self.token(realm, id));
        or_refuse!(self, reply, change.rate.flatten().map_or(Ok(()), Rate::validate));
        let mut row = TokenRow::clone(&old);
        row.rights = Rights {
            scopes: change.scopes.unwrap_or(row.rights.scopes),
            topics: change.topics.unwrap_or(row.rights.topics),
            subscriptions: change.subscriptions.unwrap_or(row.rights.subscriptions),
        };
        if let Some(expires_in) = change.expires_in {
            row.expires_at = expires_in.map(|good| self.now + good);
        }
        row.rate = change.rate.unwrap_or(row.rate);
        self.save_token(realm, id, row, reply);
    }

    /// The new secret is good at once; the one before it for a while; any older one no more.
    pub(super) fn rotate_token(
        &mut self,
        realm: RealmId,
        id: TokenId,
        rotation: Rotation,
        reply: Reply<TokenView>,
    ) {
        let old = or_refuse!(self, reply, self.token(realm, id));
        let mut row = TokenRow::clone(&old);
        row.previous = Some((row.secret, rotation.grace.map(|grace| self.now + grace)));
        row.secret = TokenSecret { hash: rotation.hash, made_at: self.now };
        self.save_token(realm, id, row, reply);
    }

    pub(super) fn get_token(&mut self, realm: RealmId, id: TokenId, reply: Reply<TokenView>) {
        let found = self.token(realm, id).map(|row| TokenView { id, row });
        self.answer(reply, found);
    }

    pub(super) fn list_tokens(
        &mut self,
        realm: RealmId,
        page: &Page<TokenId>,
        reply: Reply<Listed<TokenView>>,
    ) {
        let mut found = self
            .tokens_of(realm)
            .filter(|(id, _)| page.after.is_none_or(|after| *id > after))
            .map(|(id, row)| TokenView { id, row: Arc::clone(row) });
        let items = found.by_ref().take(page.limit).collect();
        let more = found.next().is_some();
        drop(found);
        self.answer(reply, Ok(Listed { items, more }));
    }

    pub(super) fn delete_token(&mut self, realm: RealmId, id: TokenId, reply: Reply<()>) {
        let row = or_refuse!(self, reply, self.token(realm, id));
        self.tell_of_token(id, &row.name);
        let mut commit = Commit::default();
        commit.delete(Keyspace::Tokens, key::token(realm, id));
        self.pending.push(commit);
        self.tokens.remove(&(realm, id));
        let directory = Arc::clone(&self.directory);
        self.answers.push(Box::new(move || directory.delete_token(id)));
        self.answer(reply, Ok(()));
    }

    fn token(&self, realm: RealmId, id: TokenId) -> Result<Arc<TokenRow>, Refusal> {
        self.tokens.get(&(realm, id)).map(Arc::clone).ok_or(Refusal::TokenNotFound)
    }

    fn save_token(&mut self, realm: RealmId, id: TokenId, row: TokenRow, reply: Reply<TokenView>) {
        self.tell_of_token(id, &row.name);
        let row = Arc::new(row);
        let mut commit = Commit::default();
        commit.put(Keyspace::Tokens, key::token(realm, id), row.encode());
        self.pending.push(commit);
        self.tokens.insert((realm, id), Arc::clone(&row));
        let (directory, known) = (Arc::clone(&self.directory), Arc::clone(&row));
        self.answers.push(Box::new(move || directory.put_token(realm, id, known)));
        self.answer(reply, Ok(TokenView { id, row }));
    }

    /// The audit log names tokens by both, as a name can be given again.
    fn tell_of_token(&mut self, id: TokenId, name: &Name) {
        if let Some(entry) = &mut self.telling {
            entry.subject = format!("{id} {name}");
        }
    }
}
