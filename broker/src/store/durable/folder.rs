//! What stands in the data folder beside the database.
//!
//! ```text
//! lock      held while the store is open
//! format    its number in decimal; written last, when everything else is there
//! synced    floor u64 | synced u64 | the first 8 bytes of their BLAKE3; little-endian
//! database  fjall's
//! ```
//!
//! `synced` is overwritten after every sync and never synced itself: after a power cut it may be behind the
//! database, never ahead of it. So a database that is behind `synced` has lost what was promised.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use super::FORMAT;
use crate::store::StoreError;

/// How far the store is known to be good.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Mark {
    /// Steps up to this one are not asked for in the journals: an operator accepted that some are gone.
    pub(super) floor: u64,
    /// The last step that survives a power cut.
    pub(super) synced: u64,
}

/// A data folder that this process holds the lock of.
pub(super) struct Folder {
    path: PathBuf,
    lock: File,
    new: bool,
}

impl Folder {
    /// Makes the folder if need be, and locks it.
    pub(super) fn enter(path: &Path) -> Result<Self, StoreError> {
        make_private(path).map_err(|error| failed("open", path, &error))?;
        let lock_path = path.join("lock");
        let lock = OpenOptions::new().create(true).append(true).open(&lock_path);
        let lock = lock.map_err(|error| failed("open", &lock_path, &error))?;
        lock.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => StoreError::InUse,
            TryLockError::Error(error) => failed("lock", &lock_path, &error),
        })?;
        let folder = Self { path: path.to_owned(), lock, new: false };
        let new = folder.check_format()?;
        Ok(Self { new, ..folder })
    }

    /// Whether there was no store before.
    pub(super) fn is_new(&self) -> bool {
        self.new
    }

    pub(super) fn database(&self) -> PathBuf {
        self.path.join("database")
    }

    /// How far it was synced; `None` when it is new, or an operator removed the file.
    pub(super) fn read_mark(&self) -> Result<Option<Mark>, StoreError> {
        let path = self.synced();
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed("read", &path, &error)),
        };
        let damaged = || StoreError::Corrupt(format!("{} is unreadable. {}", path.display(), self.way_out()));
        Mark::decode(&bytes).map(Some).ok_or_else(damaged)
    }

    /// Records what was found at the start.
    pub(super) fn write_mark(&self, mark: Mark) -> Result<SyncedFile, StoreError> {
        let path = self.synced();
        let open = || -> io::Result<SyncedFile> {
            let file = OpenOptions::new().create(true).truncate(false).write(true).open(&path)?;
            let mut synced = SyncedFile { file, mark };
            synced.write()?;
            synced.file.sync_all()?;
            Ok(synced)
        };
        open().map_err(|error| failed("write", &path, &error))
    }

    /// Completes a new folder; the lock is the caller's from now on.
    pub(super) fn finish(self) -> Result<File, StoreError> {
        if self.new {
            let path = self.path.join("format");
            self.write_format(&path).map_err(|error| failed("write", &path, &error))?;
        }
        Ok(self.lock)
    }

    /// The database ends at step `found`, and step `promised` was there once.
    pub(super) fn missing_steps(&self, found: u64, promised: u64) -> StoreError {
        StoreError::Corrupt(format!(
            "steps {} to {promised} were synced and are gone. {}",
            found + 1,
            self.way_out()
        ))
    }

    fn way_out(&self) -> String {
        way_out(&self.path)
    }

    fn synced(&self) -> PathBuf {
        self.path.join("synced")
    }

    /// Whether the folder is new.
    fn check_format(&self) -> Result<bool, StoreError> {
        let path = self.path.join("format");
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return self.check_new(),
            Err(error) => return Err(failed("read", &path, &error)),
        };
        match text.trim().parse() {
            Ok(FORMAT) => Ok(false),
            Ok(found) => Err(StoreError::Format { found, expected: FORMAT }),
            Err(_) => Err(StoreError::Corrupt(format!("{} holds no number", path.display()))),
        }
    }

    fn check_new(&self) -> Result<bool, StoreError> {
        if self.database().exists() {
            return Err(StoreError::Corrupt(format!(
                "{} holds a database but no file `format`. If this was the first start and it was cut short, \
                 remove the folder; otherwise restore it from a backup",
                self.path.display()
            )));
        }
        Ok(true)
    }

    fn write_format(&self, path: &Path) -> io::Result<()> {
        let unfinished = self.path.join("format.new");
        let mut file = File::create(&unfinished)?;
        writeln!(file, "{FORMAT}")?;
        file.sync_all()?;
        fs::rename(&unfinished, path)?;
        sync_folder(&self.path)?;
        match self.path.canonicalize()?.parent() {
            Some(parent) => sync_folder(parent),
            None => Ok(()),
        }
    }
}

/// What an operator can do about damage.
pub(super) fn way_out(folder: &Path) -> String {
    format!(
        "Restore the data folder from a backup, or remove {} to go on with what is left",
        folder.join("synced").display()
    )
}

/// The file `synced`, open.
pub(super) struct SyncedFile {
    file: File,
    mark: Mark,
}

impl SyncedFile {
    pub(super) fn step(&self) -> u64 {
        self.mark.synced
    }

    /// Records that this step was synced. A plain write within one disk sector: neither slow nor torn.
    pub(super) fn advance(&mut self, step: u64) -> Result<(), StoreError> {
        self.mark.synced = step;
        self.write().map_err(|error| StoreError::Io(format!("cannot write the file `synced`: {error}")))
    }

    fn write(&mut self) -> io::Result<()> {
        self.file.seek(SeekFrom::Start(0))?;
        self.file.write_all(&self.mark.encode())
    }
}

impl Mark {
    fn encode(self) -> [u8; 24] {
        let mut bytes = [0; 24];
        bytes[..8].copy_from_slice(&self.floor.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.synced.to_le_bytes());
        let hash = blake3::hash(&bytes[..16]);
        bytes[16..].copy_from_slice(&hash.as_bytes()[..8]);
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let floor = u64::from_le_bytes(*bytes.first_chunk()?);
        let synced = u64::from_le_bytes(*bytes.get(8..)?.first_chunk()?);
        let mark = Self { floor, synced };
        (mark.encode() == bytes).then_some(mark)
    }
}

fn failed(verb: &str, path: &Path, error: &io::Error) -> StoreError {
    StoreError::Io(format!("cannot {verb} {}: {error}", path.display()))
}

fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

#[cfg(unix)]
fn make_private(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
    DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o700))
}

#[cfg(not(unix))]
fn make_private(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).create(path)
}
