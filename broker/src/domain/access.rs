//! Who may do what: scopes, patterns of names, rates, and the secrets that prove it.

use std::fmt;
use std::sync::Arc;

use subtle::ConstantTimeEq as _;

use super::digest::hex;
use super::limits as limit;
use super::name::Name;
use super::settings::InvalidSetting;

/// Something that a token may be allowed to do.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Scope {
    /// Publish messages.
    Publish,
    /// Pull and settle deliveries.
    Consume,
    /// Configure topics and subscriptions.
    Topics,
    /// Configure, try and look into policies.
    Policies,
    /// List, inspect, replay and discard dead letters.
    DeadLetters,
    /// See payloads where messages are looked into, which takes nothing from anybody.
    ReadPayload,
    /// Everything, in every realm.
    Operator,
}

impl Scope {
    /// Every scope; the place in this list is its bit in [`Scopes`].
    pub const ALL: [Self; 7] = [
        Self::Publish,
        Self::Consume,
        Self::Topics,
        Self::Policies,
        Self::DeadLetters,
        Self::ReadPayload,
        Self::Operator,
    ];

    /// Its name on every surface.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Publish => "publish",
            Self::Consume => "consume",
            Self::Topics => "topics",
            Self::Policies => "policies",
            Self::DeadLetters => "dead_letters",
            Self::ReadPayload => "read_payload",
            Self::Operator => "operator",
        }
    }

    /// The scope of this name.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scope| scope.as_str() == text)
    }
}

/// A set of scopes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Scopes(u8);

impl Scopes {
    /// These, in any order.
    pub fn of(scopes: impl IntoIterator<Item = Scope>) -> Self {
        Self(scopes.into_iter().fold(0, |bits, scope| bits | 1 << scope as u8))
    }

    /// Whether they allow it. An operator may do everything.
    pub const fn allow(self, scope: Scope) -> bool {
        self.0 & (1 << scope as u8 | 1 << Scope::Operator as u8) != 0
    }

    /// In the order of [`Scope::ALL`].
    pub fn iter(self) -> impl Iterator<Item = Scope> {
        Scope::ALL.into_iter().filter(move |scope| self.0 & (1 << *scope as u8) != 0)
    }

    /// As a number.
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// From such a number, unless it has bits that mean nothing.
    pub const fn from_bits(bits: u8) -> Option<Self> {
        if bits < 1 << Scope::ALL.len() { Some(Self(bits)) } else { None }
    }
}

/// Names: one exactly, or with a `*` at its end all that begin so.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pattern(Arc<str>);

impl Pattern {
    /// Reads a name, a beginning of names with a `*` behind it, or `*` alone.
    ///
    /// # Errors
    /// [`InvalidSetting`] of `field` for anything else.
    pub fn parse(field: &'static str, text: &str) -> Result<Self, InvalidSetting> {
        let stem = text.strip_suffix('*').unwrap_or(text);
        if text == "*" || Name::new(stem).is_ok() {
            return Ok(Self(text.into()));
        }
        let reason = format!("{text:?} is neither a name nor the beginning of names with a * at its end");
        Err(InvalidSetting { field, reason })
    }

    /// Whether the name is one of them.
    pub fn allows(&self, name: &str) -> bool {
        match self.0.strip_suffix('*') {
            Some(stem) => name.starts_with(stem),
            None => *self.0 == *name,
        }
    }

    /// As it was given.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The names that any of some patterns allows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Patterns(Arc<[Pattern]>);

impl Patterns {
    /// All names.
    pub fn all() -> Self {
        Self([Pattern("*".into())].into())
    }

    /// What these allow; none of them allow nothing.
    ///
    /// # Errors
    /// [`InvalidSetting`] of `field` if there are too many.
    pub fn new(field: &'static str, patterns: Vec<Pattern>) -> Result<Self, InvalidSetting> {
        if patterns.len() > limit::MAX_PATTERNS {
            let reason = format!("at most {} patterns", limit::MAX_PATTERNS);
            return Err(InvalidSetting { field, reason });
        }
        Ok(Self(patterns.into()))
    }

    /// Whether they allow it.
    pub fn allow(&self, name: &Name) -> bool {
        self.0.iter().any(|pattern| pattern.allows(name.as_str()))
    }

    /// Whether they allow every name that begins so.
    pub fn allow_all(&self, stem: &str) -> bool {
        self.0.iter().any(|pattern| pattern.0.strip_suffix('*').is_some_and(|it| stem.starts_with(it)))
    }

    /// Each of them.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Pattern> {
        self.0.iter()
    }
}

/// What a token allows, within its realm.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rights {
    /// To do what.
    pub scopes: Scopes,
    /// With which topics.
    pub topics: Patterns,
    /// With which subscriptions.
    pub subscriptions: Patterns,
}

/// Requests within a time: so many a second in the long run, and at most a burst at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rate {
    /// In the long run.
    pub per_second: u32,
    /// At once, after a pause.
    pub burst: u32,
}

impl Rate {
    /// Whether both are within their bounds.
    ///
    /// # Errors
    /// [`InvalidSetting`].
    pub fn validate(self) -> Result<(), InvalidSetting> {
        let allowed = 1..=limit::MAX_RATE;
        if allowed.contains(&self.per_second) && allowed.contains(&self.burst) {
            return Ok(());
        }
        let reason = format!("per_second and burst must be from 1 to {}", limit::MAX_RATE);
        Err(InvalidSetting { field: "rate", reason })
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} a second, {} at once", self.per_second, self.burst)
    }
}

/// A token; never used again after it is deleted.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TokenId(pub u32);

impl TokenId {
    /// Reads the form that `Display` writes.
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.strip_prefix('t').filter(|digits| digits.len() == 8)?;
        let plain = digits.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        if plain { u32::from_str_radix(digits, 16).ok().map(Self) } else { None }
    }
}

/// The letter `t` and 8 lower-case hexadecimal digits.
impl fmt::Display for TokenId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "t{:08x}", self.0)
    }
}

/// What is kept of a token's secret. It has 256 random bits, so that a plain hash gives nothing away.
#[derive(Clone, Copy, Debug)]
pub struct SecretHash(pub [u8; 32]);

/// In constant time.
impl PartialEq for SecretHash {
    fn eq(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl Eq for SecretHash {}

/// What a client sends to prove who it is: `rpr_`, the token's id, `_`, and the secret in hexadecimal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Credential {
    /// Whose secret it should be.
    pub token: TokenId,
    /// Of the secret.
    pub hash: SecretHash,
}

/// What secrets begin with, so that those who look for lost ones find them.
const PREFIX: &str = "rpr_";

impl Credential {
    /// The text that a client is given, once.
    pub fn write(token: TokenId, secret: &[u8; 32]) -> String {
        format!("{PREFIX}{token}_{}", hex(secret))
    }

    /// What is kept of this secret.
    pub fn hash(secret: &[u8; 32]) -> SecretHash {
        hash(&hex(secret))
    }

    /// Reads such a text; whether the secret is the right one is for the hash to say.
    pub fn parse(text: &str) -> Option<Self> {
        let (token, secret) = text.strip_prefix(PREFIX)?.split_once('_')?;
        Some(Self { token: TokenId::parse(token)?, hash: hash(secret) })
    }
}

fn hash(secret: &str) -> SecretHash {
    SecretHash(blake3::derive_key("reprise 2026 secret of a token", secret.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_a_name_or_a_beginning() {
        let cases: [(&str, &[&str], &[&str]); 3] = [
            ("orders", &["orders"], &["orders2", "order", ""]),
            ("orders-*", &["orders-", "orders-eu"], &["orders", "xorders-"]),
            ("*", &["a", "orders"], &[]),
        ];
        for (text, inside, outside) in cases {
            let pattern = Pattern::parse("topics", text).expect("a pattern");
            assert!(inside.iter().all(|name| pattern.allows(name)), "{text}");
            assert!(!outside.iter().any(|name| pattern.allows(name)), "{text}");
        }
        for bad in ["", "**", "a*b", "*a", "a b", "-", "-*", "a/*", "é*"] {
            assert!(Pattern::parse("topics", bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn scopes_allow_what_they_hold_and_operators_everything() {
        for scope in Scope::ALL {
            assert_eq!(Scope::parse(scope.as_str()), Some(scope));
            assert!(Scopes::of([Scope::Operator]).allow(scope));
            let others = Scope::ALL.into_iter().filter(|it| ![scope, Scope::Operator].contains(it));
            assert!(!Scopes::of(others).allow(scope) && Scopes::of([scope]).allow(scope));
            assert_eq!(Scopes::of([scope]).iter().collect::<Vec<_>>(), [scope]);
        }
        assert_eq!(Scopes::from_bits(0x80), None);
    }

    #[test]
    fn a_credential_reads_back_and_another_secret_is_another() {
        let text = Credential::write(TokenId(7), &[1; 32]);
        let credential = Credential::parse(&text).expect("a credential");
        assert_eq!((credential.token, credential.hash), (TokenId(7), Credential::hash(&[1; 32])));
        assert_ne!(credential.hash, Credential::hash(&[2; 32]));
        let upper = text.to_uppercase();
        for bad in ["", "rpr_", "rpr_t00000007", &text[1..], &upper, "rpr_t+0000007_00", "rpr_x00000007_00"] {
            assert_eq!(Credential::parse(bad), None, "{bad:?}");
        }
    }
}
