//! What is given on the command line and is more than a text: names, durations, points of a topic, files.
//!
//! Checked here is what would make another request than the one that is meant, or a mistake of the hand; the bounds of
//! a setting are the broker's.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::Path;

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::output::plain;
use crate::domain::id::DeadLetterId;
use crate::domain::name::{InvalidName, Name};

/// A topic, a subscription or a context: it is named in the path of a request or in a file of ours.
pub(super) fn name(text: &str) -> Result<String, InvalidName> {
    Name::new(text).map(|name| name.to_string())
}

/// A dead letter is named in the path of a request.
pub(super) fn dead_letter(id: &str) -> Result<String, &'static str> {
    DeadLetterId::parse(id).map(|id| id.to_string()).map_err(|_| "a dead letter's id is what the list gave")
}

/// A duration, sent on as it was written.
pub(super) fn duration(text: &str) -> Result<String, String> {
    match humantime::parse_duration(text) {
        Ok(_) => Ok(text.to_owned()),
        Err(error) => Err(format!("{error}; give a text such as \"500ms\", \"5s\" or \"1h30m\"")),
    }
}

/// A moment, sent on as it was written.
pub(super) fn moment(text: &str) -> Result<String, &'static str> {
    match humantime::parse_rfc3339(text) {
        Ok(_) => Ok(text.to_owned()),
        Err(_) => Err("give a moment in UTC such as \"2026-01-31T12:00:00Z\""),
    }
}

/// A point of a topic.
pub(super) fn point(text: &str) -> Result<Value, &'static str> {
    if matches!(text, "earliest" | "latest") {
        return Ok(json!(text));
    }
    if let Ok(sequence) = text.parse::<u64>() {
        return Ok(json!({ "sequence": sequence }));
    }
    let wrong =
        "give \"earliest\", \"latest\", a sequence, or a moment in UTC such as \"2026-01-31T12:00:00Z\"";
    moment(text).map(|time| json!({ "time": time })).map_err(|_| wrong)
}

/// An attribute and its value.
pub(super) fn attribute(text: &str) -> Result<(String, String), &'static str> {
    let pair = text.split_once('=').filter(|(name, _)| !name.is_empty());
    pair.map(|(name, value)| (name.to_owned(), value.to_owned())).ok_or("give NAME=VALUE")
}

/// A JSON object in the text that it was written in.
pub(super) fn object(text: &str) -> Result<Box<RawValue>, String> {
    let object: Result<Box<RawValue>, _> = serde_json::from_str(text);
    match object {
        Ok(object) if object.get().starts_with('{') => Ok(object),
        Ok(_) => Err("it is no JSON object".to_owned()),
        Err(error) => Err(format!("it is no JSON object: {error}")),
    }
}

/// A file of at most `most` bytes, or standard input where it is named `-`.
///
/// # Errors
/// If it cannot be read, or is larger.
pub(super) fn file(path: &Path, most: usize) -> io::Result<Vec<u8>> {
    let named = |error: io::Error| {
        io::Error::new(error.kind(), format!("{}: {error}", plain(&path.display().to_string())))
    };
    if path.as_os_str() == "-" {
        return all(io::stdin().lock(), most).map_err(named);
    }
    File::open(path).and_then(|file| all(file, most)).map_err(named)
}

fn all(from: impl io::Read, most: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(most as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > most {
        return Err(io::Error::other(format!("more than {most} bytes")));
    }
    Ok(bytes)
}

/// A value as a part of a query.
pub(super) fn in_query(value: &str) -> String {
    utf8_percent_encode(value, NON_ALPHANUMERIC).to_string()
}

/// Makes sure that what was printed is out before anything is done about it.
///
/// # Errors
/// If nobody reads any more.
pub(super) fn flushed() -> io::Result<()> {
    io::stdout().lock().flush()
}
