//! What a publisher calls a message, so that sending it again does not store it again.

use std::fmt;

/// The first half of a BLAKE3 hash.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint(pub [u8; 16]);

impl Fingerprint {
    /// Of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        let mut half = [0; 16];
        half.copy_from_slice(&blake3::hash(bytes).as_bytes()[..16]);
        Self(half)
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&super::digest::hex(&self.0))
    }
}

/// The id that a publisher gave a message, and the payload that it stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DedupKey {
    /// Of the id.
    pub id: Fingerprint,
    /// Of the payload: the same id with another one is a mistake of the publisher's.
    pub payload: Fingerprint,
}
