//! Webhooks in a file, one a line: `{"event": name, "payload": {...}}`.

use std::fs;
use std::path::Path;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::SenderError;

/// A webhook to deliver.
#[derive(Deserialize, Clone, Debug)]
pub struct Webhook {
    /// What happened.
    pub event: String,
    payload: Box<RawValue>,
}

impl Webhook {
    /// The payload as it stands in the file: receivers check signatures over these bytes, so not one may change.
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        self.payload.get().as_bytes()
    }
}

/// Reads a file.
///
/// # Errors
/// If it cannot be read, or a line is not a webhook.
pub fn read(path: &Path) -> Result<Vec<Webhook>, SenderError> {
    let name = || path.display().to_string();
    let text = fs::read_to_string(path).map_err(|error| SenderError::File(name(), error))?;
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    lines
        .map(|(index, line)| {
            serde_json::from_str(line).map_err(|source| SenderError::Line {
                path: name(),
                line: index + 1,
                source,
            })
        })
        .collect()
}
