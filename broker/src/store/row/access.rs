//! Rows of `realms` and `tokens`.

use super::delivery::name;
use super::{Damaged, Reader, Row, Writer};
use crate::domain::access::{Pattern, Patterns, Rate, Rights, Scopes, SecretHash};
use crate::domain::name::Name;
use crate::domain::quota::Quota;
use crate::domain::time::Timestamp;

/// A tenant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RealmRow {
    /// Its name.
    pub name: Name,
    /// When it was created.
    pub created_at: Timestamp,
    /// What all of its tokens together may ask for.
    pub rate: Option<Rate>,
    /// How much its topics may keep together.
    pub quota: Quota,
}

/// What lets a client into a realm.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TokenRow {
    /// What it is called, also in revisions and the audit log.
    pub name: Name,
    /// What it allows.
    pub rights: Rights,
    /// Until when.
    pub expires_at: Option<Timestamp>,
    /// How often it may ask.
    pub rate: Option<Rate>,
    /// When it was created.
    pub created_at: Timestamp,
    /// Who created it.
    pub created_by: String,
    /// The secret that was made last.
    pub secret: TokenSecret,
    /// The one before it, and until when it is good; without an end until the next one is made.
    pub previous: Option<(TokenSecret, Option<Timestamp>)>,
}

/// A secret, as far as it is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TokenSecret {
    /// Its hash.
    pub hash: SecretHash,
    /// When it was made.
    pub made_at: Timestamp,
}

impl TokenRow {
    /// Whether this is one of its live secrets, and it has not expired.
    pub fn admits(&self, given: SecretHash, now: Timestamp) -> bool {
        let previous = self.previous.as_ref().filter(|(_, until)| until.is_none_or(|until| until > now));
        let known = self.secret.hash == given || previous.is_some_and(|(secret, _)| secret.hash == given);
        known && self.is_live(now)
    }

    /// Whether it has not expired.
    pub fn is_live(&self, now: Timestamp) -> bool {
        self.expires_at.is_none_or(|at| at > now)
    }
}

impl Row for RealmRow {
    fn write(&self, out: &mut Writer) {
        out.text(self.name.as_str());
        out.time(self.created_at);
        out.option(self.rate, write_rate);
        self.quota.write(out);
    }

    fn read(from: &mut Reader) -> Result<Self, Damaged> {
        Ok(Self {
            name: name(from)?,
            created_at: from.time()?,
            rate: from.option(read_rate)?,
            quota: Quota::read(from)?,
        })
    }
}

impl Row for TokenRow {
    fn write(&self, out: &mut Writer) {
        out.text(self.name.as_str());
        out.u8(self.rights.scopes.bits());
        for patterns in [&self.rights.topics, &self.rights.subscriptions] {
            let texts: Vec<_> = patterns.iter().map(Pattern::as_str).collect();
            out.list(&texts, |out, text| out.text(text));
        }
        out.option(self.expires_at, Writer::time);
        out.option(self.rate, write_rate);
        out.time(self.created_at);
        out.text(&self.created_by);
        write_secret(out, self.secret);
        out.option(self.previous, |out, (secret, until)| {
            write_secret(out, secret);
            out.option(until, Writer::time);
        });
    }

    fn read(from: &mut Reader) -> Result<Self, Damaged> {
        Ok(Self {
            name: name(from)?,
            rights: Rights {
                scopes: Scopes::from_bits(from.u8()?).ok_or(Damaged)?,
                topics: read_patterns(from)?,
                subscriptions: read_patterns(from)?,
            },
            expires_at: from.option(Reader::time)?,
            rate: from.option(read_rate)?,
            created_at: from.time()?,
            created_by: from.text()?,
            secret: read_secret(from)?,
            previous: from.option(|from| Ok((read_secret(from)?, from.option(Reader::time)?)))?,
        })
    }
}

fn write_rate(out: &mut Writer, rate: Rate) {
    out.u32(rate.per_second);
    out.u32(rate.burst);
}

fn read_rate(from: &mut Reader) -> Result<Rate, Damaged> {
    Ok(Rate { per_second: from.u32()?, burst: from.u32()? })
}

fn write_secret(out: &mut Writer, secret: TokenSecret) {
    out.bytes.extend_from_slice(&secret.hash.0);
    out.time(secret.made_at);
}

fn read_secret(from: &mut Reader) -> Result<TokenSecret, Damaged> {
    Ok(TokenSecret { hash: SecretHash(from.array()?), made_at: from.time()? })
}

fn read_patterns(from: &mut Reader) -> Result<Patterns, Damaged> {
    let pattern = |from: &mut Reader| Pattern::parse("", &from.text()?).map_err(|_| Damaged);
    Patterns::new("", from.list(pattern)?).map_err(|_| Damaged)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::access::{Credential, Scope};

    fn token() -> TokenRow {
        let at = Timestamp::from_millis;
        let pattern = |text| Pattern::parse("topics", text).expect("a pattern");
        TokenRow {
            name: Name::new("worker").expect("a name"),
            rights: Rights {
                scopes: Scopes::of([Scope::Consume, Scope::ReadPayload]),
                topics: Patterns::new("topics", vec![pattern("orders"), pattern("mail-*")]).expect("few"),
                subscriptions: Patterns::new("subscriptions", Vec::new()).expect("few"),
            },
            expires_at: Some(at(90)),
            rate: Some(Rate { per_second: 3, burst: 4 }),
            created_at: at(1),
            created_by: "operator".to_owned(),
            secret: TokenSecret { hash: Credential::hash(&[1; 32]), made_at: at(2) },
            previous: Some((TokenSecret { hash: Credential::hash(&[2; 32]), made_at: at(1) }, Some(at(50)))),
        }
    }

    #[test]
    fn realms_and_tokens_read_back() {
        let realm = RealmRow {
            name: token().name,
            created_at: Timestamp::from_millis(1),
            rate: token().rate,
            quota: Quota { max_messages: Some(1), max_bytes: None },
        };
        assert_eq!(RealmRow::decode(realm.encode()).expect("a row"), realm);
        for row in [token(), TokenRow { expires_at: None, rate: None, previous: None, ..token() }] {
            assert_eq!(TokenRow::decode(row.encode()).expect("a row"), row);
        }
    }

    /// Two secrets at a time, each until its end, and none after the token's own.
    #[test]
    fn a_token_admits_its_live_secrets() {
        let [new, old, other] = [1, 2, 3].map(|byte| Credential::hash(&[byte; 32]));
        let at = Timestamp::from_millis;
        let token = token();
        for (now, admitted) in
            [(49, [true, true]), (50, [true, false]), (89, [true, false]), (90, [false; 2])]
        {
            assert_eq!([new, old].map(|hash| token.admits(hash, at(now))), admitted, "at {now}");
            assert!(!token.admits(other, at(now)));
        }
        let endless = TokenRow { previous: token.previous.map(|(secret, _)| (secret, None)), ..token };
        assert!(endless.admits(old, at(89)) && !endless.admits(old, at(90)));
    }
}
