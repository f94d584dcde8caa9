//! Room on the disk: the only place that asks the system for it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::domain::time::Timestamp;

/// How often the system is asked, at most.
const EVERY: Duration = Duration::from_secs(1);

/// The disk that a folder is on, and how much of it is to be left free.
#[derive(Debug)]
pub struct Disk {
    folder: PathBuf,
    least: u64,
    again: Timestamp,
    full: bool,
}

impl Disk {
    /// To leave at least so many bytes free; 0 for none.
    pub fn new(folder: &Path, least: u64) -> Self {
        Self { folder: folder.to_owned(), least, again: Timestamp::default(), full: false }
    }

    /// Whether less is free than is to be left. Where the system does not tell, it is as it was.
    pub fn is_full(&mut self, now: Timestamp) -> bool {
        if self.least > 0 && now >= self.again {
            self.again = now + EVERY;
            match rustix::fs::statvfs(&self.folder) {
                Ok(disk) => self.found(disk.f_bavail.saturating_mul(disk.f_frsize)),
                Err(error) => tracing::warn!(%error, "the system does not tell how much of the disk is free"),
            }
        }
        self.full
    }

    fn found(&mut self, free: u64) {
        let full = free < self.least;
        if full && !self.full {
            tracing::warn!(free, least = self.least, "the disk is nearly full: publishes are refused");
        } else if self.full && !full {
            tracing::info!(free, "the disk has room again");
        }
        self.full = full;
    }
}
