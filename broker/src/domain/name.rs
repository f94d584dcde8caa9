//! Validated names of realms, topics, subscriptions and dead-letter queues.

use std::fmt;
use std::sync::Arc;

use super::limits::MAX_NAME_BYTES;

/// A name: 1 to [`MAX_NAME_BYTES`] of ASCII letters, digits, `-`, `_` and `.`, starting with a letter,
/// a digit or `_`. It needs no escaping in a URL, a file name or a terminal.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Arc<str>);

/// Why a text is not a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "a name has 1 to {MAX_NAME_BYTES} ASCII letters, digits, '-', '_' or '.', and starts with a letter, a digit or '_'"
)]
pub struct InvalidName;

impl Name {
    /// Checks and wraps a text.
    ///
    /// # Errors
    /// [`InvalidName`] if it breaks the rule above.
    pub fn new(text: &str) -> Result<Self, InvalidName> {
        let bytes = text.as_bytes();
        let starts_well = bytes.first().is_some_and(|b| b.is_ascii_alphanumeric() || *b == b'_');
        let allowed = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
        if starts_well && bytes.len() <= MAX_NAME_BYTES && bytes.iter().all(allowed) {
            Ok(Self(text.into()))
        } else {
            Err(InvalidName)
        }
    }

    /// The one that sorts first.
    pub fn least() -> Self {
        Self("-".into())
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &*self.0)
    }
}

impl std::borrow::Borrow<str> for Name {
    fn borrow(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_short_plain_and_start_well() {
        for good in ["a", "orders", "Orders-2.eu_west", "_x", "0", &"n".repeat(MAX_NAME_BYTES)] {
            assert_eq!(Name::new(good).map(|n| n.to_string()), Ok(good.to_owned()));
        }
        for bad in ["", ".", "-a", ".hidden", "a/b", "a b", "é", "a\n", "a*", &"n".repeat(MAX_NAME_BYTES + 1)]
        {
            assert_eq!(Name::new(bad), Err(InvalidName), "{bad:?}");
        }
    }
}
