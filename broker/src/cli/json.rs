//! JSON text laid out anew. Every value keeps the very text that it came in: a number that a program cannot hold, the
//! order of fields, a name that occurs twice.

use std::fmt;

use serde::Deserializer as _;
use serde::de::{MapAccess, Visitor};
use serde_json::value::RawValue;

/// Deeper levels are not indented any further: a payload of nothing but brackets would fill the disk with spaces.
const MAX_INDENT: usize = 32;

/// On one line, without spaces.
pub(super) fn compact(json: &str) -> String {
    let mut compact = String::with_capacity(json.len());
    let mut text = Text::default();
    compact.extend(json.chars().filter(|c| text.within(*c) || !c.is_ascii_whitespace()));
    compact
}

/// On many lines, for people.
pub(super) fn pretty(json: &str) -> String {
    let json = compact(json);
    let mut pretty = String::with_capacity(json.len() * 2);
    let mut text = Text::default();
    let mut depth = 0_usize;
    let mut chars = json.chars().peekable();
    let line = |pretty: &mut String, depth: usize| {
        pretty.push('\n');
        pretty.extend(std::iter::repeat_n("  ", depth.min(MAX_INDENT)));
    };
    while let Some(c) = chars.next() {
        let within = text.within(c);
        match c {
            _ if within => pretty.push(c),
            '{' | '[' if chars.peek().is_some_and(|next| matches!(next, '}' | ']')) => {
                pretty.push(c);
                pretty.extend(chars.next());
            }
            '{' | '[' => {
                pretty.push(c);
                depth += 1;
                line(&mut pretty, depth);
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                line(&mut pretty, depth);
                pretty.push(c);
            }
            ',' => {
                pretty.push(c);
                line(&mut pretty, depth);
            }
            ':' => pretty.push_str(": "),
            c => pretty.push(c),
        }
    }
    pretty
}

/// The fields of an object in their order; none of what is no object.
pub(super) fn fields(object: &RawValue) -> Vec<(String, Box<RawValue>)> {
    struct Fields;
    impl<'de> Visitor<'de> for Fields {
        type Value = Vec<(String, Box<RawValue>)>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut fields = Vec::new();
            while let Some(field) = map.next_entry()? {
                fields.push(field);
            }
            Ok(fields)
        }
    }
    serde_json::Deserializer::from_str(object.get()).deserialize_map(Fields).unwrap_or_default()
}

/// A value as people read it: a text without its quotes, nothing for null.
pub(super) fn bare(value: &RawValue) -> String {
    match value.get() {
        "null" => String::new(),
        text if text.starts_with('"') => serde_json::from_str(text).unwrap_or_default(),
        other => compact(other),
    }
}

/// Whether a place in a JSON text is within a text of it.
#[derive(Default)]
struct Text {
    open: bool,
    escaped: bool,
}

impl Text {
    /// Whether this next character belongs to a text, its quotes included.
    fn within(&mut self, c: char) -> bool {
        let was_open = self.open;
        if self.escaped {
            self.escaped = false;
        } else if c == '"' {
            self.open = !self.open;
        } else if self.open && c == '\\' {
            self.escaped = true;
        }
        was_open || self.open
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIVEN: &str =
        " {\"b\" : [1.0, 123456789012345678901234567890,{ }],\n\"a\": \"x\\\"{ ,: \\\\\", \"c\":[ ]} ";

    #[test]
    fn values_keep_their_text_on_one_line() {
        let expected = r#"{"b":[1.0,123456789012345678901234567890,{}],"a":"x\"{ ,: \\","c":[]}"#;
        assert_eq!(compact(GIVEN), expected);
    }

    #[test]
    fn values_keep_their_text_on_many_lines() {
        let expected = "{\n  \"b\": [\n    1.0,\n    123456789012345678901234567890,\n    {}\n  ],\n  \"a\": \"x\\\"{ ,: \\\\\",\n  \"c\": []\n}";
        assert_eq!(pretty(GIVEN), expected);
        assert_eq!(compact(&pretty(GIVEN)), compact(GIVEN));
    }

    /// The output is no more than a small multiple of what came.
    #[test]
    fn brackets_do_not_blow_up() {
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        assert!(pretty(&deep).len() < 200_000 * (2 * MAX_INDENT + 2));
    }

    #[test]
    fn fields_come_in_their_order() {
        let object: Box<RawValue> = serde_json::from_str(GIVEN).expect("it is JSON");
        let names: Vec<_> = fields(&object).into_iter().map(|(name, value)| (name, bare(&value))).collect();
        let expected = [("b", "[1.0,123456789012345678901234567890,{}]"), ("a", "x\"{ ,: \\"), ("c", "[]")];
        assert_eq!(names, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
        let list: Box<RawValue> = serde_json::from_str("[1]").expect("it is JSON");
        assert!(fields(&list).is_empty());
    }
}
