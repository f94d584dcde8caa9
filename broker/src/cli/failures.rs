//! What went wrong with some of many: told one by one, and in the exit code.

use std::process::ExitCode;

use super::answers::ItemError;
use super::client::{ClientError, Refusal};
use super::note;

/// Which kinds of failures there were. Where there were several, the first of them here is the exit code.
#[derive(Debug, Default)]
pub(super) struct Failures {
    for_now: bool,
    last: bool,
    not_found: bool,
}

impl Failures {
    /// Tells why something was not taken.
    pub(super) fn tell(&mut self, what: &str, error: &ItemError) {
        note(&format!("{what}: {} ({})", error.detail, error.code));
        if error.retryable { self.for_now = true } else { self.last = true }
    }

    /// Tells why something was refused.
    ///
    /// # Errors
    /// If nothing else is worth trying either.
    pub(super) fn of(&mut self, what: &str, error: ClientError) -> Result<(), ClientError> {
        let ClientError::Refused { refusal, .. } = &error else { return Err(error) };
        match refusal {
            Refusal::NotFound => self.not_found = true,
            Refusal::Final => self.last = true,
            Refusal::ForNow => self.for_now = true,
        }
        note(&format!("{what}: {error}"));
        Ok(())
    }

    /// Of a command that went on to its end.
    pub(super) fn code(&self) -> ExitCode {
        match self {
            Self { for_now: true, .. } => ExitCode::FAILURE,
            Self { last: true, .. } => ExitCode::from(super::REFUSED),
            Self { not_found: true, .. } => ExitCode::from(super::NOT_FOUND),
            _ => ExitCode::SUCCESS,
        }
    }
}
