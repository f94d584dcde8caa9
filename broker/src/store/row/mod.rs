//! How each row's value becomes bytes, one file per family.
//!
//! A row is a format byte and its fields in order: integers as LEB128, texts and bytes with their length,
//! options and variants with a tag byte. Reading anything else is [`StoreError::Corrupt`], never a panic.
//! Start with [`Row`].

mod access;
mod audit;
mod config;
mod dedup;
mod delivery;
mod jobs;
mod message;
mod recorded;

use std::time::Duration;

use bytes::{Buf as _, Bytes};

use super::StoreError;
use crate::domain::time::Timestamp;

pub use access::{RealmRow, TokenRow, TokenSecret};
pub use audit::{AuditHead, AuditRow};
pub use config::{BacklogRow, CursorRow, HeadRow, Paused, RevisionRow, SubscriptionRow, TopicRow};
pub use dedup::DedupRow;
pub use delivery::{DeadLetterRow, Ending, SettledRow};
pub use jobs::JobRow;
pub use recorded::{RecordedChunk, RecordedRow, RecordedSpan};

/// The format of all rows; a change that old code cannot read raises it together with the store's format.
const FORMAT: u8 = 1;

/// A value with a place on disk.
pub trait Row: Sized {
    /// Appends the fields.
    fn write(&self, out: &mut Writer);

    /// Reads them back.
    ///
    /// # Errors
    /// [`Damaged`] if the bytes are not such a row.
    fn read(from: &mut Reader) -> Result<Self, Damaged>;

    /// The whole value.
    fn encode(&self) -> Bytes {
        let mut out = Writer { bytes: Vec::with_capacity(64) };
        out.u8(FORMAT);
        self.write(&mut out);
        out.bytes.into()
    }

    /// Reads a whole value. Payloads share its memory.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] if it is anything else than exactly one such row.
    fn decode(bytes: Bytes) -> Result<Self, StoreError> {
        let mut from = Reader { bytes };
        let row = from.u8().and_then(|format| match format {
            FORMAT => Self::read(&mut from),
            _ => Err(Damaged),
        });
        match row {
            Ok(row) if from.bytes.is_empty() => Ok(row),
            _ => Err(StoreError::Corrupt(format!("a row is not a {}", std::any::type_name::<Self>()))),
        }
    }
}

/// Bytes that are not the row they should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Damaged;

/// Where fields are written.
pub struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    fn u8(&mut self, value: u8) {
        self.bytes.push(value);
    }

    fn u64(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.bytes.push(value as u8);
    }

    fn u32(&mut self, value: u32) {
        self.u64(value.into());
    }

    fn flag(&mut self, value: bool) {
        self.u8(value.into());
    }

    fn blob(&mut self, value: &[u8]) {
        self.u64(value.len() as u64);
        self.bytes.extend_from_slice(value);
    }

    fn text(&mut self, value: &str) {
        self.blob(value.as_bytes());
    }

    fn time(&mut self, value: Timestamp) {
        self.u64(value.as_millis());
    }

    fn duration(&mut self, value: Duration) {
        self.u64(value.as_secs());
        self.u32(value.subsec_nanos());
    }

    fn option<T>(&mut self, value: Option<T>, write: impl FnOnce(&mut Self, T)) {
        self.flag(value.is_some());
        if let Some(value) = value {
            write(self, value);
        }
    }

    fn list<T>(&mut self, values: &[T], mut write: impl FnMut(&mut Self, &T)) {
        self.u64(values.len() as u64);
        for value in values {
            write(self, value);
        }
    }

    fn pairs(&mut self, values: &[(String, String)]) {
        self.list(values, |out, (name, value)| {
            out.text(name);
            out.text(value);
        });
    }
}

/// Where fields are read from.
pub struct Reader {
    bytes: Bytes,
}

impl Reader {
    fn u8(&mut self) -> Result<u8, Damaged> {
        self.bytes.try_get_u8().map_err(|_| Damaged)
    }

    fn u64(&mut self) -> Result<u64, Damaged> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return Err(Damaged);
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Damaged)
    }

    fn u32(&mut self) -> Result<u32, Damaged> {
        self.u64()?.try_into().map_err(|_| Damaged)
    }

    fn flag(&mut self) -> Result<bool, Damaged> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Damaged),
        }
    }

    fn blob(&mut self) -> Result<Bytes, Damaged> {
        let length = usize::try_from(self.u64()?).map_err(|_| Damaged)?;
        if length > self.bytes.len() {
            return Err(Damaged);
        }
        Ok(self.bytes.split_to(length))
    }

    fn text(&mut self) -> Result<String, Damaged> {
        let bytes = self.blob()?;
        std::str::from_utf8(&bytes).map(str::to_owned).map_err(|_| Damaged)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Damaged> {
        let mut array = [0; N];
        self.bytes.try_copy_to_slice(&mut array).map_err(|_| Damaged)?;
        Ok(array)
    }

    fn time(&mut self) -> Result<Timestamp, Damaged> {
        self.u64().map(Timestamp::from_millis)
    }

    fn duration(&mut self) -> Result<Duration, Damaged> {
        let (seconds, nanos) = (self.u64()?, self.u32()?);
        if nanos >= 1_000_000_000 {
            return Err(Damaged);
        }
        Ok(Duration::new(seconds, nanos))
    }

    fn option<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, Damaged>,
    ) -> Result<Option<T>, Damaged> {
        self.flag()?.then(|| read(self)).transpose()
    }

    fn list<T>(&mut self, mut read: impl FnMut(&mut Self) -> Result<T, Damaged>) -> Result<Vec<T>, Damaged> {
        let length = self.u64()?;
        // Every item takes a byte at least: a damaged length cannot ask for more memory than the row has.
        if length > self.bytes.len() as u64 {
            return Err(Damaged);
        }
        (0..length).map(|_| read(self)).collect()
    }

    fn pairs(&mut self) -> Result<Vec<(String, String)>, Damaged> {
        self.list(|from| Ok((from.text()?, from.text()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::message::Message;

    impl Row for u64 {
        fn write(&self, out: &mut Writer) {
            out.u64(*self);
        }

        fn read(from: &mut Reader) -> Result<Self, Damaged> {
            from.u64()
        }
    }

    #[test]
    fn integers_of_every_length_read_back() {
        for shift in 0..64 {
            for value in [1_u64 << shift, (1 << shift) - 1, u64::MAX >> shift] {
                assert_eq!(u64::decode(value.encode()).expect("a row"), value);
            }
        }
    }

    #[test]
    fn an_integer_that_overflows_is_damage() {
        let mut bytes = vec![FORMAT];
        bytes.extend([0xff; 9]);
        bytes.push(0x02);
        assert!(u64::decode(bytes.into()).is_err());
    }

    /// Any bytes at all give a row or an error, without a panic or a large allocation.
    #[test]
    fn garbage_is_refused() {
        proptest::proptest!(|(mut bytes: Vec<u8>)| {
            bytes.insert(0, FORMAT);
            let bytes = Bytes::from(bytes);
            _ = Message::decode(bytes.clone());
            _ = TopicRow::decode(bytes.clone());
            _ = SubscriptionRow::decode(bytes.clone());
            _ = RevisionRow::decode(bytes.clone());
            _ = RecordedRow::decode(bytes.clone());
            _ = DedupRow::decode(bytes.clone());
            _ = RealmRow::decode(bytes.clone());
            _ = AuditRow::decode(bytes.clone());
            _ = TokenRow::decode(bytes.clone());
            _ = DeadLetterRow::decode(bytes);
        });
    }

    #[test]
    fn what_follows_a_row_is_damage() {
        let mut bytes = 7_u64.encode().to_vec();
        bytes.push(0);
        assert!(u64::decode(bytes.into()).is_err());
    }
}
