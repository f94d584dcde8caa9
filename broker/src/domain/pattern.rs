//! Patterns of topics, for subscriptions that read many of them.
//!
//! Names are split at their dots. `*` stands for one part, `>` at the end for one part or more, anything else for
//! itself: `orders.*` takes `orders.eu` and not `orders.eu.retail`, `orders.>` takes both.

use std::fmt;
use std::sync::Arc;

use super::limits::MAX_NAME_BYTES;
use super::name::Name;

/// Some topics, those to come included.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct TopicPattern {
    text: Arc<str>,
    example: Name,
}

/// Why a text is not a pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "a pattern is the name of a topic with * for some of the parts between its dots, or with > for the last ones; it has at most {MAX_NAME_BYTES} bytes"
)]
pub struct InvalidPattern;

impl TopicPattern {
    /// Checks and wraps a text.
    ///
    /// # Errors
    /// [`InvalidPattern`] if it breaks the rule above, or stands for one topic alone.
    pub fn parse(text: &str) -> Result<Self, InvalidPattern> {
        let body = text.strip_suffix('>').unwrap_or(text);
        if body.len() < text.len() && !(body.is_empty() || body.ends_with('.')) {
            return Err(InvalidPattern);
        }
        let wild = body.len() < text.len() || body.split('.').any(|part| part == "*");
        if !wild || text.len() > MAX_NAME_BYTES {
            return Err(InvalidPattern);
        }
        let parts = text.split('.').map(|part| if matches!(part, "*" | ">") { "x" } else { part });
        let example = Name::new(&parts.collect::<Vec<_>>().join(".")).map_err(|_| InvalidPattern)?;
        Ok(Self { text: text.into(), example })
    }

    /// Whether it stands for this topic.
    pub fn takes(&self, topic: &Name) -> bool {
        let (mut pattern, mut name) = (self.text.split('.'), topic.as_str().split('.'));
        loop {
            match (pattern.next(), name.next()) {
                (Some(">"), Some(_)) | (None, None) => return true,
                (Some("*"), Some(_)) => {}
                (Some(part), Some(other)) if part == other => {}
                _ => return false,
            }
        }
    }

    /// A name that one of its topics could have.
    pub fn example(&self) -> &Name {
        &self.example
    }

    /// What the names of all its topics begin with.
    pub fn stem(&self) -> &str {
        let end = self.text.split_inclusive('.').take_while(|part| !matches!(*part, "*" | "*." | ">"));
        &self.text[..end.map(str::len).sum()]
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for TopicPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_take_the_topics_that_they_stand_for() {
        let cases = [
            ("orders.*", &["orders.eu", "orders.-"][..], &["orders", "orders.eu.retail", "order.eu"][..]),
            ("orders.>", &["orders.eu", "orders.eu.retail"], &["orders", "ordersx.eu"]),
            ("*.eu", &["orders.eu", "x.eu"], &["eu", "orders.eu.eu", "orders.us"]),
            ("a.*.c.>", &["a.b.c.d", "a.b.c.d.e"], &["a.b.c", "a.b.x.d"]),
            ("*", &["orders"], &["orders.eu"]),
            (">", &["orders", "orders.eu.retail"], &[]),
        ];
        for (text, taken, left) in cases {
            let pattern = TopicPattern::parse(text).expect(text);
            let name = |name: &&str| Name::new(name).expect("a name");
            assert!(taken.iter().map(name).all(|name| pattern.takes(&name)), "{text}");
            assert!(!left.iter().map(name).any(|name| pattern.takes(&name)), "{text}");
        }
    }

    #[test]
    fn nothing_else_is_a_pattern() {
        let long = format!("{}.*", "n".repeat(MAX_NAME_BYTES));
        for bad in [
            "",
            "orders",
            "orders.eu",
            "a*",
            "*a.b",
            "a.>.b",
            "a>",
            ">>",
            ".*",
            "-.*",
            "a/*.b",
            "* .b",
            &long,
        ] {
            assert_eq!(TopicPattern::parse(bad), Err(InvalidPattern), "{bad:?}");
        }
    }

    #[test]
    fn the_stem_is_what_all_have_in_common() {
        for (text, stem) in
            [("orders.*", "orders."), ("orders.>", "orders."), ("a.*.c", "a."), ("*", ""), (">", "")]
        {
            assert_eq!(
                TopicPattern::parse(text).map(|pattern| pattern.stem().to_owned()),
                Ok(stem.to_owned())
            );
        }
    }
}
