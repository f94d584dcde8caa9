//! How much may be kept, and how much is.

/// What a topic or a realm keeps: messages that were not trimmed yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Usage {
    /// How many.
    pub messages: u64,
    /// Their [`kept_bytes`](super::message::Message::kept_bytes) together.
    pub bytes: u64,
}

impl Usage {
    /// One message more.
    pub const fn add(&mut self, bytes: u64) {
        self.messages += 1;
        self.bytes += bytes;
    }

    /// That much less.
    pub const fn remove(&mut self, less: Self) {
        self.messages = self.messages.saturating_sub(less.messages);
        self.bytes = self.bytes.saturating_sub(less.bytes);
    }
}

/// How much may be kept; `None` sets no bound.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Quota {
    /// How many messages.
    pub max_messages: Option<u64>,
    /// Bytes of their payloads and attributes.
    pub max_bytes: Option<u64>,
}

impl Quota {
    /// This one, with the bounds of another where it sets none.
    pub fn or(self, other: Self) -> Self {
        Self {
            max_messages: self.max_messages.or(other.max_messages),
            max_bytes: self.max_bytes.or(other.max_bytes),
        }
    }

    /// The bound that one message more, of so many bytes, would pass: its name and value.
    pub fn passed_by(self, usage: Usage, bytes: u64) -> Option<(&'static str, u64)> {
        let passes = |limit: Option<u64>, total: u64| limit.filter(|limit| total > *limit);
        let messages = passes(self.max_messages, usage.messages.saturating_add(1));
        let bytes = passes(self.max_bytes, usage.bytes.saturating_add(bytes));
        messages.map(|limit| ("messages", limit)).or(bytes.map(|limit| ("bytes", limit)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_is_filled_to_its_last_message_and_byte() {
        let usage = Usage { messages: 9, bytes: 90 };
        let quota = |max_messages, max_bytes| Quota { max_messages, max_bytes };
        assert_eq!(Quota::default().passed_by(Usage { messages: u64::MAX, bytes: u64::MAX }, 1), None);
        assert_eq!(quota(Some(10), Some(100)).passed_by(usage, 10), None);
        assert_eq!(quota(Some(9), Some(100)).passed_by(usage, 10), Some(("messages", 9)));
        assert_eq!(quota(Some(10), Some(100)).passed_by(usage, 11), Some(("bytes", 100)));
    }
}
