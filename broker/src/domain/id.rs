//! Numbers that name things inside the broker, and the opaque ids that name them outside.

use std::fmt;

/// A tenant; never used again after it is deleted.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct RealmId(pub u32);

impl RealmId {
    /// The one that is there from the start, for those who have no tenants.
    pub const DEFAULT: Self = Self(0);
}

/// A topic; never used again after it is deleted.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TopicId(pub u32);

/// A subscription; never used again after it is deleted.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SubscriptionId(pub u32);

/// The outstanding deliveries of a subscription on one topic. A seek or a purge gives it a new one, with none in it; never used
/// again, so that what belonged to the old one can neither be mistaken nor settled.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct BacklogId(pub u32);

/// A message's place in its topic, from 1.
pub type Sequence = u64;

/// Names a message: its topic and sequence, so that finding it needs no index.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct MessageId {
    /// Where it was published.
    pub topic: TopicId,
    /// Its place there.
    pub sequence: Sequence,
}

/// Names a dead letter: the subscription that gave the message up, and the message.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct DeadLetterId {
    /// Who gave it up.
    pub subscription: SubscriptionId,
    /// Where it was published.
    pub topic: TopicId,
    /// Its place there.
    pub sequence: Sequence,
}

impl DeadLetterId {
    /// The message that was given up.
    pub const fn message(self) -> MessageId {
        MessageId { topic: self.topic, sequence: self.sequence }
    }
}

/// A text that is not an id of the kind asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InvalidId;

impl MessageId {
    /// Reads the form that `Display` writes.
    ///
    /// # Errors
    /// [`InvalidId`] if the text is anything else.
    pub fn parse(text: &str) -> Result<Self, InvalidId> {
        let mut digits = Digits::of('m', 24, text)?;
        Ok(Self { topic: TopicId(digits.u32()?), sequence: digits.u64()? })
    }
}

impl DeadLetterId {
    /// Reads the form that `Display` writes.
    ///
    /// # Errors
    /// [`InvalidId`] if the text is anything else.
    pub fn parse(text: &str) -> Result<Self, InvalidId> {
        let mut digits = Digits::of('d', 32, text)?;
        let (subscription, topic) = (SubscriptionId(digits.u32()?), TopicId(digits.u32()?));
        Ok(Self { subscription, topic, sequence: digits.u64()? })
    }
}

impl fmt::Display for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "m{:08x}{:016x}", self.topic.0, self.sequence)
    }
}

impl fmt::Display for DeadLetterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "d{:08x}{:08x}{:016x}", self.subscription.0, self.topic.0, self.sequence)
    }
}

/// A kind letter and lower-case hexadecimal digits: sorts like the numbers it holds.
struct Digits<'a>(&'a str);

impl<'a> Digits<'a> {
    fn of(kind: char, length: usize, text: &'a str) -> Result<Self, InvalidId> {
        let digits = text.strip_prefix(kind).ok_or(InvalidId)?;
        let plain = digits.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        if digits.len() == length && plain { Ok(Self(digits)) } else { Err(InvalidId) }
    }

    fn u32(&mut self) -> Result<u32, InvalidId> {
        u32::from_str_radix(self.next(8)?, 16).map_err(|_| InvalidId)
    }

    fn u64(&mut self) -> Result<u64, InvalidId> {
        u64::from_str_radix(self.next(16)?, 16).map_err(|_| InvalidId)
    }

    fn next(&mut self, length: usize) -> Result<&'a str, InvalidId> {
        let (next, rest) = self.0.split_at_checked(length).ok_or(InvalidId)?;
        self.0 = rest;
        Ok(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_read_back_and_nothing_else_does() {
        let id = MessageId { topic: TopicId(7), sequence: u64::MAX };
        assert_eq!(MessageId::parse(&id.to_string()), Ok(id));
        let dead = DeadLetterId { subscription: SubscriptionId(u32::MAX), topic: TopicId(2), sequence: 1 };
        assert_eq!(DeadLetterId::parse(&dead.to_string()), Ok(dead));
        assert_eq!(DeadLetterId::parse(&format!("{dead}0")), Err(InvalidId));
        let text = id.to_string();
        for bad in [
            "",
            "m",
            "x",
            &text[1..],
            &format!("{text}0"),
            &text.replace('f', "F"),
            &text.replace('m', "d"),
            "m+0000007000000000000000é",
        ] {
            assert_eq!(MessageId::parse(bad), Err(InvalidId), "{bad:?}");
        }
    }
}
