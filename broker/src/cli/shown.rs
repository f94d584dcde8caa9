//! How messages, and whatever else has fields, are shown to people.

use std::collections::BTreeMap;
use std::io;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::connection::{Format, lines};
use super::json::{bare, compact, fields};
use super::note;

/// As much of a payload as a table has room for, in characters.
const MAX_PAYLOAD: usize = 60;

/// A value in the text that the broker wrote it in.
pub(super) type Raw = Box<RawValue>;

/// A message as answers have it.
#[derive(Deserialize)]
pub(super) struct Message {
    pub(super) id: String,
    pub(super) topic: String,
    pub(super) sequence: u64,
    pub(super) key: Option<String>,
    #[serde(default)]
    pub(super) attributes: BTreeMap<String, String>,
    pub(super) published_at: String,
    payload: Option<Raw>,
    payload_base64: Option<String>,
}

impl Message {
    /// Its attributes on a line.
    pub(super) fn attributes(&self) -> String {
        let pairs: Vec<_> = self.attributes.iter().map(|(name, value)| format!("{name}={value}")).collect();
        cut(&pairs.join(" "))
    }

    /// The beginning of its payload: JSON, other text as it is, and of bytes how many there are.
    pub(super) fn payload(&self) -> String {
        let Some(encoded) = &self.payload_base64 else {
            return self.payload.as_ref().map(|payload| cut(&compact(payload.get()))).unwrap_or_default();
        };
        let bytes = BASE64.decode(encoded).unwrap_or_default();
        String::from_utf8(bytes)
            .map_or_else(|error| format!("({} bytes)", error.as_bytes().len()), |text| cut(text.trim_end()))
    }
}

/// The beginning of a text that may be long.
pub(super) fn cut(text: &str) -> String {
    match text.char_indices().nth(MAX_PAYLOAD) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

/// Shows an object: its fields one below the other.
///
/// # Errors
/// If nobody reads any more.
pub(super) fn object(object: &Raw, output: Format) -> io::Result<()> {
    if output != Format::Table {
        return output.write(object);
    }
    let fields: Vec<_> = fields(object).into_iter().map(|(name, value)| (name, bare(&value))).collect();
    let width = fields.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    let shown = fields.iter().filter(|(_, value)| !value.is_empty());
    lines(shown.map(|(name, value)| format!("{name:<width$}  {value}")))
}

/// Shows a list: for people as the lines of `table`.
///
/// # Errors
/// If nobody reads any more.
pub(super) fn list(
    items: &[Raw],
    output: Format,
    table: impl FnOnce(&[Raw]) -> Vec<String>,
) -> io::Result<()> {
    if output == Format::Table { lines(table(items)) } else { output.write(&items) }
}

/// Tells that a list is longer than what was asked for.
pub(super) fn there_are_more(more: bool) {
    if more {
        note("there are more: --limit shows as many as it says");
    }
}

/// What an item says, as far as it is of this shape: `None` for what another version of a broker may say.
pub(super) fn read<'a, T: Deserialize<'a>>(item: &'a RawValue) -> Option<T> {
    serde_json::from_str(item.get()).ok()
}
