//! What a schema may be, so that no payload takes long to check against it.
//!
//! A validator follows each `$ref` wherever it stands, so that a few hundred bytes can mean more work than a machine does
//! in a year. Here a schema is counted as it would be walked: with every reference replaced by what it refers to. It may
//! not refer to itself, as then the payload would decide how often; and only by JSON pointer, so that the one who counts
//! and the one who walks cannot disagree about what is meant.

use std::collections::HashMap;

use percent_encoding::percent_decode_str;
use serde_json::Value;

/// Subschemas with every reference replaced: more than any schema in use has, and milliseconds for most payloads.
const MAX_NODES: usize = 5_000;
/// Patterns, each of which takes memory of its own.
const MAX_PATTERNS: usize = 64;
/// References that lead to references, and subschemas within each other.
const MAX_DEPTH: usize = 256;

/// What a schema costs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Shape {
    /// Subschemas to be looked at for one value, at most.
    pub(super) nodes: usize,
    /// Regular expressions to be compiled.
    pub(super) patterns: usize,
}

impl Shape {
    /// Counts a schema.
    ///
    /// # Errors
    /// Why it may not be used.
    pub(super) fn of(schema: &Value) -> Result<Self, String> {
        let mut counter = Counter { root: schema, known: HashMap::new(), depth: 0 };
        let shape = counter.schema(schema, true)?;
        if shape.nodes > MAX_NODES {
            return Err(format!("with its references it has more than {MAX_NODES} subschemas"));
        }
        if shape.patterns > MAX_PATTERNS {
            return Err(format!("with its references it has more than {MAX_PATTERNS} patterns"));
        }
        Ok(shape)
    }

    fn add(&mut self, other: Self) {
        self.nodes = self.nodes.saturating_add(other.nodes);
        self.patterns = self.patterns.saturating_add(other.patterns);
    }
}

struct Counter<'a> {
    root: &'a Value,
    /// What a pointer leads to; `None` while it is being counted.
    known: HashMap<&'a str, Option<Shape>>,
    depth: usize,
}

impl<'a> Counter<'a> {
    fn schema(&mut self, schema: &'a Value, is_root: bool) -> Result<Shape, String> {
        let mut shape = Shape { nodes: 1, patterns: 0 };
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(format!("it is nested more than {MAX_DEPTH} deep"));
        }
        match schema {
            Value::Object(keywords) => {
                for (keyword, value) in keywords {
                    shape.add(self.keyword(keyword, value, is_root)?);
                }
                // What was evaluated is found by evaluating again.
                if keywords.keys().any(|keyword| keyword.starts_with("unevaluated")) {
                    shape.nodes = shape.nodes.saturating_mul(4);
                }
            }
            Value::Array(schemas) => {
                for schema in schemas {
                    shape.add(self.schema(schema, false)?);
                }
            }
            _ => {}
        }
        self.depth -= 1;
        Ok(shape)
    }

    fn keyword(&mut self, keyword: &str, value: &'a Value, is_root: bool) -> Result<Shape, String> {
        let one = Shape { nodes: 1, patterns: 0 };
        match (keyword, value) {
            ("$ref", Value::String(pointer)) => self.reference(pointer),
            ("$dynamicRef" | "$recursiveRef", _) => Err(format!("{keyword}: use $ref with a JSON pointer")),
            ("$id" | "id", Value::String(_)) if !is_root => Err(format!("{keyword}: only at its top")),
            // Walked only where something refers to them.
            ("$defs" | "definitions", _) => Ok(one),
            ("enum", Value::Array(values)) => Ok(Shape { nodes: values.len(), patterns: 0 }),
            ("const" | "default" | "examples", _) => Ok(one),
            ("pattern", _) => Ok(Shape { nodes: 1, patterns: 1 }),
            (
                "properties" | "patternProperties" | "dependentSchemas" | "dependencies",
                Value::Object(named),
            ) => {
                let is_patterns = keyword == "patternProperties";
                let mut shape = Shape { nodes: 1, patterns: if is_patterns { named.len() } else { 0 } };
                for schema in named.values() {
                    shape.add(self.schema(schema, false)?);
                }
                Ok(shape)
            }
            (_, Value::Object(_) | Value::Array(_)) => self.schema(value, false),
            _ => Ok(Shape::default()),
        }
    }

    fn reference(&mut self, reference: &'a str) -> Result<Shape, String> {
        match self.known.get(reference) {
            Some(Some(shape)) => return Ok(*shape),
            Some(None) => return Err(format!("$ref: {reference:?} leads back to itself")),
            None => {}
        }
        let nothing = || format!("$ref: {reference:?} is not a JSON pointer to a part of this schema");
        let pointer = reference.strip_prefix('#').ok_or_else(nothing)?;
        let pointer = percent_decode_str(pointer).decode_utf8().map_err(|_| nothing())?;
        let target = self.root.pointer(&pointer).ok_or_else(nothing)?;
        self.known.insert(reference, None);
        let shape = self.schema(target, false)?;
        self.known.insert(reference, Some(shape));
        Ok(shape)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn nodes(schema: &Value) -> usize {
        Shape::of(schema).expect("it may be used").nodes
    }

    #[test]
    fn references_count_as_what_they_lead_to() {
        assert_eq!(nodes(&json!(true)), 1);
        let plain = json!({ "properties": { "a": { "type": "string" }, "b": { "enum": [1, 2] } } });
        let defs = json!({ "$defs": { "ä b": plain }, "allOf": [{ "$ref": "#/$defs/%C3%A4%20b" }] });
        assert!(nodes(&defs) > nodes(&plain), "{}", nodes(&defs));
        let named = json!({ "properties": { "$ref": { "type": "string" }, "definitions": plain } });
        assert!(nodes(&named) > nodes(&plain), "names are no keywords");
    }

    /// Each doubles the one before: 2 to the power of 40 steps for any payload.
    #[test]
    fn what_grows_without_end_is_refused() {
        let mut defs = serde_json::Map::new();
        for level in 0..40 {
            let next = json!({ "$ref": format!("#/$defs/d{}", level + 1) });
            defs.insert(format!("d{level}"), json!({ "allOf": [next, next] }));
        }
        defs.insert("d40".to_owned(), json!({ "type": "object" }));
        let laughs = json!({ "$defs": defs, "$ref": "#/$defs/d0" });
        assert!(Shape::of(&laughs).expect_err("too much").contains("more than 5000"));
        let mut again = json!({ "unevaluatedProperties": false });
        for _ in 0..20 {
            again = json!({ "unevaluatedProperties": false, "allOf": [again] });
        }
        assert!(Shape::of(&again).is_err());
        let mut deep = json!(true);
        for _ in 0..300 {
            deep = json!({ "not": deep });
        }
        assert!(Shape::of(&deep).expect_err("too deep").contains("deep"));
    }

    #[test]
    fn only_pointers_that_end_are_references() {
        for (schema, why) in [
            (json!({ "$ref": "#" }), "itself"),
            (json!({ "properties": { "next": { "$ref": "#" } } }), "itself"),
            (
                json!({ "$defs": { "a": { "$ref": "#/$defs/b" }, "b": { "$ref": "#/$defs/a" } }, "$ref": "#/$defs/a" }),
                "itself",
            ),
            (json!({ "$ref": "#/$defs/missing" }), "pointer"),
            (json!({ "$ref": "https://example.com/schema.json" }), "pointer"),
            (json!({ "$ref": "file:///etc/passwd" }), "pointer"),
            (json!({ "$defs": { "a": { "$anchor": "x" } }, "$ref": "#x" }), "pointer"),
            (json!({ "$dynamicRef": "#x" }), "$dynamicRef"),
            (json!({ "properties": { "a": { "$id": "https://example.com/a" } } }), "$id"),
        ] {
            let refused = Shape::of(&schema).expect_err("it may not be used");
            assert!(refused.contains(why), "{schema}: {refused}");
        }
        assert!(
            Shape::of(
                &json!({ "$id": "https://example.com/a", "properties": { "$id": { "type": "string" } } })
            )
            .is_ok()
        );
    }
}
