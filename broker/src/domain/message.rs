//! A published message: immutable.

use bytes::Bytes;

use super::time::Timestamp;

/// A payload with its key, attributes and times. Its id is where it is stored.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Message {
    /// When the broker accepted it.
    pub published_at: Timestamp,
    /// Not delivered before.
    pub available_at: Timestamp,
    /// When its time to live passes.
    pub expires_at: Option<Timestamp>,
    /// Topics it was forwarded through to get here.
    pub hops: u8,
    /// What it is ordered by.
    pub key: Option<String>,
    /// Names and values, in the order given; names are unique without regard to case.
    pub attributes: Vec<(String, String)>,
    /// The media type of the payload.
    pub content_type: Option<String>,
    /// The bytes as they were published.
    pub payload: Bytes,
}

impl Message {
    /// The memory that it takes, roughly.
    pub fn bytes(&self) -> usize {
        let attributes: usize =
            self.attributes.iter().map(|(name, value)| 64 + name.len() + value.len()).sum();
        size_of::<Self>() + self.payload.len() + attributes
    }

    /// What it counts for in a quota: its payload, and the names and values of its attributes.
    pub fn kept_bytes(&self) -> u64 {
        let attributes = self.attributes.iter().map(|(name, value)| name.len() + value.len());
        (self.payload.len() + attributes.sum::<usize>()) as u64
    }

    /// Whether its time to live has passed.
    pub fn is_expired(&self, now: Timestamp) -> bool {
        self.expires_at.is_some_and(|at| at <= now)
    }
}
