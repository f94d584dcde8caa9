//! Compiled policies on disk, so that a start compiles nothing.
//!
//! ```text
//! compiled/HEX OF THE MODULE'S DIGEST
//!   "reprise\x01" | engine 32 | mac 32 | machine code
//! ```
//!
//! `engine` is a hash over wasmtime's version and configuration and this processor's features. The MAC is keyed by
//! the store's secret and covers everything, the digest included, as machine code is run as it is. A file that is
//! not as it should be is as good as none: it is compiled again and replaced. Files are bounded in bytes; those
//! that were not used for longest go first.

use std::fs::{self, DirBuilder, File};
use std::hash::{Hash as _, Hasher};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rustix::fs::{Timespec, Timestamps, UTIME_NOW, futimens};
use subtle::ConstantTimeEq as _;
use wasmtime::Engine;

use crate::domain::digest::{Digest, hex};
use crate::domain::receipt::Secret;

use super::limits::{CACHE_BYTES, COMPILED_BYTES};
use super::machine_code::MachineCode;

const MAGIC: [u8; 8] = *b"reprise\x01";
const HEADER_BYTES: usize = MAGIC.len() + 32 + 32;
/// What a file that is being written is called, before it gets its name.
const UNFINISHED: &str = "unfinished-";

/// A folder of compiled policies.
pub(super) struct Cache {
    pub(super) folder: PathBuf,
    pub(super) key: [u8; 32],
    pub(super) engine: [u8; 32],
    pub(super) most: u64,
}

/// Why a file is not used.
#[derive(Debug, thiserror::Error)]
enum Unusable {
    #[error("it was compiled by another version, or for another machine")]
    OtherEngine,
    #[error("it is damaged, or not ours")]
    NotOurs,
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl Cache {
    /// Opens the folder, or makes one for the owner alone.
    ///
    /// # Errors
    /// If the system does not allow it.
    pub(super) fn open(folder: &Path, secret: &Secret, engine: &Engine) -> io::Result<Self> {
        match DirBuilder::new().mode(0o700).create(folder) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
            _ => fs::set_permissions(folder, fs::Permissions::from_mode(0o700))?,
        }
        // Left by a process that was killed.
        for (path, _) in entries(folder)? {
            if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(UNFINISHED)) {
                fs::remove_file(path)?;
            }
        }
        let mut compatible = EngineHash(blake3::Hasher::new());
        engine.precompile_compatibility_hash().hash(&mut compatible);
        Ok(Self {
            folder: folder.to_owned(),
            key: blake3::derive_key("reprise 2026-11 compiled policies", &secret.0),
            engine: *compatible.0.finalize().as_bytes(),
            most: CACHE_BYTES,
        })
    }

    /// What a module was compiled to, if that is known and can be trusted.
    pub(super) fn get(&self, digest: Digest) -> Option<MachineCode> {
        let path = self.path(digest);
        match self.read(&path, digest) {
            Ok(code) => Some(MachineCode::of_our_own(code)),
            Err(Unusable::Io(error)) if error.kind() == ErrorKind::NotFound => None,
            Err(reason) => {
                tracing::warn!(path = %path.display(), %reason, "a compiled policy is not used");
                None
            }
        }
    }

    /// Keeps what a module was compiled to. Failing costs the next start some time and nothing else.
    pub(super) fn put(&self, digest: Digest, code: &MachineCode) {
        let path = self.path(digest);
        if let Err(error) = self.write(&path, digest, code.bytes()).and_then(|()| self.make_room(&path)) {
            tracing::warn!(path = %path.display(), %error, "a compiled policy is not kept");
        }
    }

    fn path(&self, digest: Digest) -> PathBuf {
        self.folder.join(hex(&digest.0))
    }

    fn read(&self, path: &Path, digest: Digest) -> Result<Vec<u8>, Unusable> {
        let file = File::open(path)?;
        let mut bytes = Vec::new();
        (&file).take((HEADER_BYTES + COMPILED_BYTES) as u64 + 1).read_to_end(&mut bytes)?;
        let (header, code) = bytes.split_at_checked(HEADER_BYTES).ok_or(Unusable::NotOurs)?;
        let (beginning, mac) = header.split_at(MAGIC.len() + 32);
        if beginning[..MAGIC.len()] != MAGIC {
            return Err(Unusable::NotOurs);
        }
        if beginning[MAGIC.len()..] != self.engine {
            return Err(Unusable::OtherEngine);
        }
        if !bool::from(self.mac(digest, code).ct_eq(mac)) {
            return Err(Unusable::NotOurs);
        }
        // The system's own now: nothing here reads a clock.
        let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
        futimens(&file, &Timestamps { last_access: now, last_modification: now }).map_err(io::Error::from)?;
        Ok(bytes.split_off(HEADER_BYTES))
    }

    fn write(&self, path: &Path, digest: Digest, code: &[u8]) -> io::Result<()> {
        // Readable by its owner alone, and gone if it does not get its name.
        let mut file = tempfile::Builder::new().prefix(UNFINISHED).tempfile_in(&self.folder)?;
        for part in [&MAGIC[..], &self.engine, &self.mac(digest, code), code] {
            file.write_all(part)?;
        }
        file.persist(path)?;
        Ok(())
    }

    fn mac(&self, digest: Digest, code: &[u8]) -> [u8; 32] {
        let mut mac = blake3::Hasher::new_keyed(&self.key);
        // All but the last have a fixed length.
        for part in [&MAGIC[..], &self.engine, &digest.0, code] {
            mac.update(part);
        }
        *mac.finalize().as_bytes()
    }

    /// Removes what was not used for longest until the bound is kept. The one just written stays.
    fn make_room(&self, newest: &Path) -> io::Result<()> {
        let mut files = entries(&self.folder)?;
        let mut total: u64 = files.iter().map(|(_, file)| file.len()).sum();
        files.retain(|(path, _)| path != newest);
        files.sort_by_cached_key(|(_, file)| file.modified().unwrap_or(SystemTime::UNIX_EPOCH));
        for (path, file) in files {
            if total <= self.most {
                break;
            }
            fs::remove_file(path)?;
            total -= file.len();
        }
        Ok(())
    }
}

fn entries(folder: &Path) -> io::Result<Vec<(PathBuf, fs::Metadata)>> {
    let entries = fs::read_dir(folder)?;
    entries.map(|entry| entry.and_then(|entry| Ok((entry.path(), entry.metadata()?)))).collect()
}

/// Makes all of a hash out of what wasmtime feeds to a hasher of 64 bits.
struct EngineHash(blake3::Hasher);

impl Hasher for EngineHash {
    fn write(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    fn finish(&self) -> u64 {
        self.0.finalize().as_bytes().first_chunk().copied().map_or(0, u64::from_le_bytes)
    }
}
