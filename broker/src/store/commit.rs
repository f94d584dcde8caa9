//! A commit is data: an ordered list of row changes that can be encoded, replayed and shipped.
//!
//! ```text
//! commit  version u8 = 1 | number of changes | change ...
//! change  keyspace u8, its place in `Keyspace::ALL` | key length | key | 0 to delete,
//!                                                                      or value length + 1 | value
//! ```
//!
//! Lengths and the number are LEB128 varints. There is no checksum: whoever stores or sends a commit adds one.

use bytes::Bytes;

use super::StoreError;
use super::key::Keyspace;

/// The most that one encoded commit may take: so that it also fits one message of a replicated log.
pub const MAX_COMMIT_BYTES: usize = 1024 * 1024;

const VERSION: u8 = 1;

/// One row put or deleted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Change {
    /// Where.
    pub keyspace: Keyspace,
    /// Which row.
    pub key: Vec<u8>,
    /// The new value; `None` deletes the row.
    pub value: Option<Bytes>,
}

/// Changes that happen together or not at all. Applying one twice is harmless.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Commit {
    changes: Vec<Change>,
    /// What the changes take when encoded.
    changes_len: usize,
}

impl Commit {
    /// With room for this many changes.
    pub fn with_capacity(changes: usize) -> Self {
        Self { changes: Vec::with_capacity(changes), changes_len: 0 }
    }

    /// Adds or replaces a row.
    pub fn put(&mut self, keyspace: Keyspace, key: Vec<u8>, value: impl Into<Bytes>) {
        self.push(Change { keyspace, key, value: Some(value.into()) });
    }

    /// Removes a row, if it is there.
    pub fn delete(&mut self, keyspace: Keyspace, key: Vec<u8>) {
        self.push(Change { keyspace, key, value: None });
    }

    fn push(&mut self, change: Change) {
        self.changes_len += change.encoded_len();
        self.changes.push(change);
    }

    /// The changes in order.
    pub fn changes(&self) -> &[Change] {
        &self.changes
    }

    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// How many bytes [`encode`](Self::encode) makes, at the cost of an addition: to stay within
    /// [`MAX_COMMIT_BYTES`] while the commit grows.
    pub fn encoded_len(&self) -> usize {
        1 + varint_len(self.changes.len()) + self.changes_len
    }

    /// Moves what there is over to `pending` once it is large. Between two items of a batch each item stays whole, and
    /// all that is pending is applied as one.
    pub fn split_into(&mut self, pending: &mut Vec<Self>) {
        if self.encoded_len() > MAX_COMMIT_BYTES / 2 {
            pending.push(std::mem::take(self));
        }
    }

    /// The form drawn above.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.encoded_len());
        bytes.push(VERSION);
        write_varint(&mut bytes, self.changes.len());
        for change in &self.changes {
            bytes.push(change.keyspace as u8);
            write_varint(&mut bytes, change.key.len());
            bytes.extend_from_slice(&change.key);
            match &change.value {
                None => bytes.push(0),
                Some(value) => {
                    write_varint(&mut bytes, value.len() + 1);
                    bytes.extend_from_slice(value);
                }
            }
        }
        bytes
    }

    /// Reads what [`encode`](Self::encode) writes.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] for anything else, and for more than [`MAX_COMMIT_BYTES`].
    pub fn decode(bytes: &[u8]) -> Result<Self, StoreError> {
        read(bytes).map_err(|why| StoreError::Corrupt(format!("a commit cannot be read: {why}")))
    }
}

impl Change {
    fn encoded_len(&self) -> usize {
        let value = self.value.as_ref().map_or(1, |value| varint_len(value.len() + 1) + value.len());
        1 + varint_len(self.key.len()) + self.key.len() + value
    }
}

fn read(bytes: &[u8]) -> Result<Commit, &'static str> {
    if bytes.len() > MAX_COMMIT_BYTES {
        return Err("it is larger than a commit may be");
    }
    let mut rest = bytes;
    if read_u8(&mut rest)? != VERSION {
        return Err("its version is unknown");
    }
    let mut commit = Commit::default();
    for _ in 0..read_varint(&mut rest)? {
        let keyspace = Keyspace::ALL.get(usize::from(read_u8(&mut rest)?));
        let keyspace = *keyspace.ok_or("it names an unknown keyspace")?;
        let key_len = read_varint(&mut rest)?;
        let key = read_slice(&mut rest, key_len)?.to_vec();
        match read_varint(&mut rest)?.checked_sub(1) {
            None => commit.delete(keyspace, key),
            Some(len) => commit.put(keyspace, key, Bytes::copy_from_slice(read_slice(&mut rest, len)?)),
        }
    }
    if rest.is_empty() { Ok(commit) } else { Err("something follows it") }
}

fn read_u8(rest: &mut &[u8]) -> Result<u8, &'static str> {
    let (&first, tail) = rest.split_first().ok_or("it ends too early")?;
    *rest = tail;
    Ok(first)
}

fn read_slice<'a>(rest: &mut &'a [u8], len: usize) -> Result<&'a [u8], &'static str> {
    let (slice, tail) = rest.split_at_checked(len).ok_or("it ends too early")?;
    *rest = tail;
    Ok(slice)
}

/// Seven bits a byte, low ones first. Four bytes hold more than [`MAX_COMMIT_BYTES`]; what needs more is damage.
fn read_varint(rest: &mut &[u8]) -> Result<usize, &'static str> {
    let mut number = 0;
    for shift in [0, 7, 14, 21] {
        let byte = read_u8(rest)?;
        number |= usize::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Ok(number);
        }
    }
    Err("a length is too large")
}

fn write_varint(bytes: &mut Vec<u8>, mut number: usize) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

const fn varint_len(number: usize) -> usize {
    match number {
        0 => 1,
        _ => (number.ilog2() as usize) / 7 + 1,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// Few keys and keyspaces, so that changes meet each other.
    pub(in crate::store) fn any_commit() -> impl Strategy<Value = Commit> {
        let keyspace = prop::sample::select(Keyspace::ALL.to_vec());
        let key = vec(prop::sample::select(vec![0, 1, 0x7f, 0xff]), 1..4);
        let value = prop::option::of(prop_oneof![
            8 => vec(any::<u8>(), 0..40),
            1 => vec(any::<u8>(), 100..300),
            1 => Just(vec![7; 20_000]),
        ]);
        vec((keyspace, key, value), 0..8).prop_map(|changes| {
            let mut commit = Commit::default();
            for (keyspace, key, value) in changes {
                match value {
                    Some(value) => commit.put(keyspace, key, value),
                    None => commit.delete(keyspace, key),
                }
            }
            commit
        })
    }

    proptest! {
        /// What is written is read back, and its length is known beforehand.
        #[test]
        fn commits_read_back(commit in any_commit()) {
            let bytes = commit.encode();
            prop_assert_eq!(bytes.len(), commit.encoded_len());
            prop_assert_eq!(Commit::decode(&bytes).expect("own bytes"), commit);
        }

        /// A commit cut short is an error, wherever the cut is.
        #[test]
        fn a_cut_commit_is_refused(commit in any_commit(), cut in any::<prop::sample::Index>()) {
            let bytes = commit.encode();
            prop_assert!(Commit::decode(&bytes[..cut.index(bytes.len())]).is_err());
        }

        /// Garbage may be an error or a commit, never a panic.
        #[test]
        fn garbage_is_read_without_panic(mut bytes in vec(any::<u8>(), 0..200)) {
            let _ = Commit::decode(&bytes);
            if let Some(first) = bytes.first_mut() {
                *first = VERSION;
            }
            let _ = Commit::decode(&bytes);
        }
    }

    /// Each thing that may be wrong with a commit is said.
    #[test]
    fn what_is_wrong_is_said() {
        let mut commit = Commit::default();
        commit.put(Keyspace::Meta, vec![1], vec![2]);
        let good = commit.encode();
        let changed = |at: usize, byte| {
            let mut bytes = good.clone();
            bytes[at] = byte;
            bytes
        };
        for (bytes, why) in [
            (changed(0, 2), "its version is unknown"),
            (changed(1, 2), "it ends too early"),
            (changed(1, 0), "something follows it"),
            (changed(2, Keyspace::ALL.len() as u8), "it names an unknown keyspace"),
            (vec![VERSION, 0xff, 0xff, 0xff, 0xff, 0], "a length is too large"),
            (vec![VERSION; MAX_COMMIT_BYTES + 1], "it is larger than a commit may be"),
        ] {
            let error = Commit::decode(&bytes).expect_err(why).to_string();
            assert!(error.ends_with(why), "{error}");
        }
    }

    /// The number of a keyspace on disk is its place in the list, and lengths are predicted at every step.
    #[test]
    fn numbers_are_what_the_format_says() {
        for (place, keyspace) in Keyspace::ALL.into_iter().enumerate() {
            assert_eq!(keyspace as usize, place);
        }
        for number in [0, 1, 127, 128, 16_383, 16_384, 2_097_151, 2_097_152] {
            let mut bytes = Vec::new();
            write_varint(&mut bytes, number);
            assert_eq!(bytes.len(), varint_len(number));
            assert_eq!(read_varint(&mut &bytes[..]), Ok(number));
        }
    }
}
