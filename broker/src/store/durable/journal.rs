//! Reads fjall's journals before fjall does, and refuses those that its recovery would shorten.
//!
//! Recovery cuts a journal at the first record it cannot read and goes on with the next one: whole steps can
//! vanish from the middle. Every batch of ours begins with the row that counts steps, so a gap shows. Checksums
//! are left to fjall, which refuses a complete batch whose sum is wrong; the sequence, which none covers, must grow.
//! Nothing is written here.
//!
//! ```text
//! N.jnl  batch ... | zeros, as files are made longer than they need to be
//! batch  1 | items u32 | sequence u64 | item ... | 3 | checksum u64 | "FJL" 3
//! item   2 | kind u8 | compression u8 | keyspace u64 | key u16 | value u32 | stored u32 | key | value
//! ```
//!
//! Numbers are little-endian; a key and its value come with their lengths before them.

use std::fs::{self, File};
use std::io::{self, BufReader, ErrorKind, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use super::STEP;
use super::folder::{Mark, way_out};
use crate::store::StoreError;

const START: u8 = 1;
const ITEM: u8 = 2;
const END: u8 = 3;
const TRAILER: &[u8; 4] = b"FJL\x03";
const BUFFER_BYTES: usize = 128 * 1024;

/// Checks the journals in this folder against what was synced, and returns the last step they hold, if any.
///
/// # Errors
/// [`StoreError::Corrupt`] when a step after the mark's floor is missing.
pub(super) fn check(database: &Path, mark: Mark) -> Result<Option<u64>, StoreError> {
    let corrupt = |what: String| {
        let folder = database.parent().unwrap_or(database);
        StoreError::Corrupt(format!("{what}. {}", way_out(folder)))
    };
    let journals = list(database)?;
    let mut last = None;
    let mut sequence = None;
    for (place, (number, path)) in journals.iter().enumerate() {
        let is_active = place + 1 == journals.len();
        let mut journal = Journal::open(path, sequence).map_err(unreadable)?;
        while let Some(step) = journal.next_step().map_err(unreadable)? {
            if step > mark.floor && last.is_some_and(|last| step != last + 1) {
                return Err(corrupt(format!("the journals lack the steps before step {step}")));
            }
            last = Some(step);
        }
        sequence = journal.sequence;
        // The active journal may end in a batch that a crash cut short. The others were synced as a whole.
        if !is_active && !journal.rest_is_empty().map_err(unreadable)? {
            return Err(corrupt(format!("journal {number} is damaged at byte {}", journal.good)));
        }
    }
    match last {
        Some(last) if last < mark.synced => {
            let (first, synced) = (last + 1, mark.synced);
            Err(corrupt(format!(
                "steps {first} to {synced} were synced and the journal no longer holds them"
            )))
        }
        last => Ok(last),
    }
}

/// The journals, oldest first.
pub(super) fn list(database: &Path) -> Result<Vec<(u64, PathBuf)>, StoreError> {
    let files = match fs::read_dir(database) {
        Ok(files) => files,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(unreadable(error)),
    };
    let mut journals = Vec::new();
    for file in files {
        let path = file.map_err(unreadable)?.path();
        let name = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_suffix(".jnl"));
        // A name that is no number is for fjall to refuse.
        if let Some(number) = name.and_then(|name| name.parse().ok()) {
            journals.push((number, path));
        }
    }
    journals.sort_unstable();
    Ok(journals)
}

fn unreadable(error: io::Error) -> StoreError {
    StoreError::Io(format!("cannot read the journals: {error}"))
}

struct Journal {
    reader: BufReader<File>,
    /// Where the last complete batch ends.
    good: u64,
    /// Its sequence, or that of the last batch of the journal before.
    sequence: Option<u64>,
}

impl Journal {
    fn open(path: &Path, sequence: Option<u64>) -> io::Result<Self> {
        Ok(Self { reader: BufReader::with_capacity(BUFFER_BYTES, File::open(path)?), good: 0, sequence })
    }

    /// The step that the next batch records; `None` where no complete batch follows.
    fn next_step(&mut self) -> io::Result<Option<u64>> {
        match self.read_batch() {
            Ok((sequence, step)) => {
                self.good = self.reader.stream_position()?;
                self.sequence = Some(sequence);
                Ok(Some(step))
            }
            Err(error) if matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::InvalidData) => {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    fn read_batch(&mut self) -> io::Result<(u64, u64)> {
        self.expect(&[START])?;
        let items = u32::from_le_bytes(self.read()?);
        let sequence = u64::from_le_bytes(self.read()?);
        if items == 0 || self.sequence.is_some_and(|last| sequence <= last) {
            return Err(ErrorKind::InvalidData.into());
        }
        let step = self.read_step()?;
        for _ in 1..items {
            let (key, value) = self.read_item()?;
            self.reader.seek_relative(i64::from(key) + i64::from(value))?;
        }
        self.expect(&[END])?;
        let _checksum: [u8; 8] = self.read()?;
        self.expect(TRAILER)?;
        Ok((sequence, step))
    }

    /// The first item of every batch.
    fn read_step(&mut self) -> io::Result<u64> {
        let (key, value) = self.read_item()?;
        if usize::from(key) != STEP.len() || value != 8 {
            return Err(ErrorKind::InvalidData.into());
        }
        self.expect(STEP)?;
        Ok(u64::from_be_bytes(self.read()?))
    }

    /// The head of an item: the lengths of the key and the value that follow.
    fn read_item(&mut self) -> io::Result<(u16, u32)> {
        self.expect(&[ITEM])?;
        let [kind, compression] = self.read()?;
        let _keyspace: [u8; 8] = self.read()?;
        let key = u16::from_le_bytes(self.read()?);
        let value = u32::from_le_bytes(self.read()?);
        let stored = u32::from_le_bytes(self.read()?);
        // Put or deleted, and as it is: we write nothing else.
        if kind > 1 || compression != 0 || stored != value {
            return Err(ErrorKind::InvalidData.into());
        }
        Ok((key, value))
    }

    fn read<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.reader.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    fn expect(&mut self, bytes: &[u8]) -> io::Result<()> {
        for expected in bytes {
            if self.read()? != [*expected] {
                return Err(ErrorKind::InvalidData.into());
            }
        }
        Ok(())
    }

    /// Whether only zeros follow the last complete batch.
    fn rest_is_empty(&mut self) -> io::Result<bool> {
        self.reader.seek(SeekFrom::Start(self.good))?;
        let mut buffer = [0; 4096];
        loop {
            match self.reader.read(&mut buffer)? {
                0 => return Ok(true),
                read if buffer[..read].iter().any(|byte| *byte != 0) => return Ok(false),
                _ => {}
            }
        }
    }
}
