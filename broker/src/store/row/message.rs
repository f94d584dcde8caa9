//! Rows of `messages`.

use super::{Damaged, Reader, Row, Writer};
use crate::domain::message::Message;

impl Row for Message {
    fn write(&self, out: &mut Writer) {
        out.time(self.published_at);
        // Nearly always the same moment: one byte for it.
        out.duration(self.available_at.since(self.published_at));
        out.option(self.expires_at, Writer::time);
        out.u8(self.hops);
        out.option(self.key.as_deref(), Writer::text);
        out.pairs(&self.attributes);
        out.option(self.content_type.as_deref(), Writer::text);
        out.blob(&self.payload);
    }

    fn read(from: &mut Reader) -> Result<Self, Damaged> {
        let published_at = from.time()?;
        Ok(Self {
            published_at,
            available_at: published_at + from.duration()?,
            expires_at: from.option(Reader::time)?,
            hops: from.u8()?,
            key: from.option(Reader::text)?,
            attributes: from.pairs()?,
            content_type: from.option(Reader::text)?,
            payload: from.blob()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;

    use super::*;
    use crate::domain::time::Timestamp;

    #[test]
    fn messages_read_back() {
        let now = Timestamp::from_millis(1_700_000_000_000);
        let plain = Message {
            published_at: now,
            available_at: now,
            expires_at: None,
            hops: 0,
            key: None,
            attributes: Vec::new(),
            content_type: None,
            payload: Bytes::new(),
        };
        let full = Message {
            available_at: now + Duration::from_secs(5),
            expires_at: Some(now + Duration::from_secs(9)),
            hops: 3,
            key: Some("k".to_owned()),
            attributes: vec![("a".to_owned(), "ä\0\r\n".to_owned()), ("b".to_owned(), String::new())],
            content_type: Some("application/json".to_owned()),
            payload: (0..=255).collect(),
            ..plain.clone()
        };
        for message in [plain, full] {
            assert_eq!(Message::decode(message.encode()).expect("a row"), message);
        }
    }
}
