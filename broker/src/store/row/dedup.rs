//! Rows of `dedup`.

use super::{Damaged, Reader, Row, Writer};
use crate::domain::dedup::Fingerprint;
use crate::domain::id::Sequence;
use crate::domain::time::Timestamp;

/// The message that was published under an id.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DedupRow {
    /// Which one.
    pub sequence: Sequence,
    /// Of its payload.
    pub payload: Fingerprint,
    /// When it was published.
    pub at: Timestamp,
}

impl Row for DedupRow {
    fn write(&self, out: &mut Writer) {
        out.u64(self.sequence);
        out.bytes.extend_from_slice(&self.payload.0);
        out.time(self.at);
    }

    fn read(from: &mut Reader) -> Result<Self, Damaged> {
        Ok(Self { sequence: from.u64()?, payload: Fingerprint(from.array()?), at: from.time()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remembered_ids_read_back() {
        let at = Timestamp::from_millis(1_700_000_000_000);
        let row = DedupRow { sequence: u64::MAX, payload: Fingerprint([7; 16]), at };
        assert_eq!(DedupRow::decode(row.encode()).expect("a row"), row);
    }
}
