//! Receipts: opaque proof of one lease.
//!
//! ```text
//! subscription u32 | backlog u32 | sequence u64 | replays u32 | attempt u32 | mac 16     base64url, 54 characters
//! ```
//!
//! The MAC also covers the realm, so that a receipt of another realm is as meaningless as random bytes.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use subtle::ConstantTimeEq as _;

use super::id::{BacklogId, RealmId, Sequence, SubscriptionId};

/// Which lease of which delivery.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Receipt {
    /// Who was granted it.
    pub subscription: SubscriptionId,
    /// Its backlog then: a seek or a purge ends all leases.
    pub backlog: BacklogId,
    /// The message.
    pub sequence: Sequence,
    /// The life of the delivery: each replay begins a new one, with attempts from 1.
    pub replays: u32,
    /// The lease within that life.
    pub attempt: u32,
}

/// Not a receipt that this broker gave out for this realm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InvalidReceipt;

/// The broker's own key for receipts and seeds: made at the first start, never shown.
#[derive(Clone)]
pub struct Secret(pub [u8; 32]);

const BODY: usize = 24;
const MAC: usize = 16;

impl Receipt {
    /// The text a consumer is given.
    pub fn seal(&self, realm: RealmId, secret: &Secret) -> String {
        let mut bytes = [0; BODY + MAC];
        bytes[..BODY].copy_from_slice(&self.body());
        bytes[BODY..].copy_from_slice(&secret.mac(realm, "receipt", &self.body()));
        BASE64.encode(bytes)
    }

    /// Checks and opens such a text, in constant time with regard to the MAC.
    ///
    /// # Errors
    /// [`InvalidReceipt`], whatever is wrong.
    pub fn open(text: &str, realm: RealmId, secret: &Secret) -> Result<Self, InvalidReceipt> {
        let mut bytes = [0; BODY + MAC];
        // The slice variant wants room for a multiple of three.
        let mut room = [0; BODY + MAC + 3];
        let length = BASE64.decode_slice(text, &mut room).map_err(|_| InvalidReceipt)?;
        if length != bytes.len() {
            return Err(InvalidReceipt);
        }
        bytes.copy_from_slice(&room[..BODY + MAC]);
        let (body, mac) = bytes.split_at(BODY);
        if !bool::from(secret.mac(realm, "receipt", body).ct_eq(mac)) {
            return Err(InvalidReceipt);
        }
        let u32_at = |at: usize| body[at..].first_chunk().map(|b| u32::from_be_bytes(*b));
        let u64_at = |at: usize| body[at..].first_chunk().map(|b| u64::from_be_bytes(*b));
        Ok(Self {
            subscription: SubscriptionId(u32_at(0).ok_or(InvalidReceipt)?),
            backlog: BacklogId(u32_at(4).ok_or(InvalidReceipt)?),
            sequence: u64_at(8).ok_or(InvalidReceipt)?,
            replays: u32_at(16).ok_or(InvalidReceipt)?,
            attempt: u32_at(20).ok_or(InvalidReceipt)?,
        })
    }

    /// The 64 random bits of this attempt. They come from the secret, so that a decision taken again after a
    /// crash draws the same ones.
    pub fn seed(&self, realm: RealmId, secret: &Secret) -> u64 {
        let mac = secret.mac(realm, "seed", &self.body());
        mac.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes))
    }

    fn body(&self) -> [u8; BODY] {
        let mut body = [0; BODY];
        body[..4].copy_from_slice(&self.subscription.0.to_be_bytes());
        body[4..8].copy_from_slice(&self.backlog.0.to_be_bytes());
        body[8..16].copy_from_slice(&self.sequence.to_be_bytes());
        body[16..20].copy_from_slice(&self.replays.to_be_bytes());
        body[20..].copy_from_slice(&self.attempt.to_be_bytes());
        body
    }
}

impl Secret {
    fn mac(&self, realm: RealmId, purpose: &str, body: &[u8]) -> [u8; MAC] {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        hasher.update(purpose.as_bytes()).update(&realm.0.to_be_bytes()).update(body);
        let mut mac = [0; MAC];
        mac.copy_from_slice(&hasher.finalize().as_bytes()[..MAC]);
        mac
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECEIPT: Receipt = Receipt {
        subscription: SubscriptionId(3),
        backlog: BacklogId(4),
        sequence: 9,
        replays: 1,
        attempt: 2,
    };

    #[test]
    fn only_what_was_sealed_for_this_realm_opens() {
        let secret = Secret([7; 32]);
        let text = RECEIPT.seal(RealmId(0), &secret);
        assert_eq!(text.len(), 54);
        assert_eq!(Receipt::open(&text, RealmId(0), &secret), Ok(RECEIPT));
        assert_eq!(Receipt::open(&text, RealmId(1), &secret), Err(InvalidReceipt));
        assert_eq!(Receipt::open(&text, RealmId(0), &Secret([8; 32])), Err(InvalidReceipt));
        for bad in ["", "a", &text[1..], &format!("{text}A"), &"A".repeat(54), "é", &"A".repeat(10_000)] {
            assert_eq!(Receipt::open(bad, RealmId(0), &secret), Err(InvalidReceipt), "{bad:?}");
        }
    }

    #[test]
    fn every_byte_of_a_receipt_is_covered() {
        let secret = Secret([7; 32]);
        let text = RECEIPT.seal(RealmId(0), &secret);
        for at in 0..text.len() {
            let mut other = text.clone().into_bytes();
            other[at] = if other[at] == b'A' { b'B' } else { b'A' };
            let other = String::from_utf8(other).expect("ASCII");
            assert_eq!(Receipt::open(&other, RealmId(0), &secret), Err(InvalidReceipt), "at {at}");
        }
    }

    #[test]
    fn seeds_differ_by_attempt_and_repeat_for_the_same_one() {
        let secret = Secret([7; 32]);
        let next = Receipt { attempt: 3, ..RECEIPT };
        assert_eq!(RECEIPT.seed(RealmId(0), &secret), RECEIPT.seed(RealmId(0), &secret));
        assert_ne!(RECEIPT.seed(RealmId(0), &secret), next.seed(RealmId(0), &secret));
    }
}
