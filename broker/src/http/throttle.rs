//! Who asks too often, and who guesses. Both are told when to come back; nobody else waits for them.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::domain::access::{Rate, TokenId};
use crate::domain::id::RealmId;
use crate::domain::limits::{MAX_REALMS, MAX_TOKENS};
use crate::domain::time::Timestamp;

/// Wrong tokens that an address may send before it is slowed down: whoever mistypes notices by then.
const FREE_FAILURES: u32 = 20;
/// How long an address waits after the first one too many; twice as long after each further one.
const FIRST_WAIT: Duration = Duration::from_millis(250);
/// The longest wait.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// An address that sent no wrong token for so long begins anew.
const FORGET: Duration = Duration::from_secs(15 * 60);
/// Addresses that are remembered; beyond that the one that was quiet for longest is forgotten.
const MAX_ADDRESSES: usize = 4_096;

/// Where a request comes from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peer(pub(super) IpAddr);

/// Whose requests are counted.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Whose {
    Token(TokenId),
    Realm(RealmId),
}

/// What there is to remember of those who come.
#[derive(Default)]
pub(super) struct Throttle {
    /// For each rate the millisecond at which its burst is whole again; without an entry it is.
    whole_at: Mutex<HashMap<Whose, f64>>,
    failures: Mutex<HashMap<IpAddr, Failures>>,
}

struct Failures {
    count: u32,
    /// No further one is looked at before.
    until: Timestamp,
    forget_at: Timestamp,
}

impl Throttle {
    /// Takes one request out of a rate.
    ///
    /// # Errors
    /// How long until there is one again.
    pub(super) fn take(&self, whose: Whose, rate: Rate, now: Timestamp) -> Result<(), Duration> {
        let mut whole_at = self.whole_at.lock().unwrap_or_else(PoisonError::into_inner);
        let now = now.as_millis() as f64;
        if whole_at.len() >= MAX_TOKENS + MAX_REALMS {
            // Those of tokens that are gone.
            whole_at.retain(|_, at| *at > now);
        }
        let millis = 1_000.0 / f64::from(rate.per_second);
        let before = whole_at.get(&whose).copied().unwrap_or(now).max(now);
        let late = before + millis - now - millis * f64::from(rate.burst);
        // A hair of rounding is no reason to refuse.
        if late > millis / 1_000.0 {
            return Err(Duration::from_secs_f64(late / 1_000.0));
        }
        whole_at.insert(whose, before + millis);
        Ok(())
    }

    /// Counts a wrong token against the address that it came from.
    ///
    /// # Errors
    /// How long the address has to wait before its next one is looked at.
    pub(super) fn failed(&self, peer: IpAddr, now: Timestamp) -> Result<(), Duration> {
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        let peer = network(peer);
        if failures.len() >= MAX_ADDRESSES && !failures.contains_key(&peer) {
            make_room(&mut failures, now);
        }
        let entry =
            failures.entry(peer).or_insert(Failures { count: 0, until: now, forget_at: now + FORGET });
        if entry.forget_at <= now {
            *entry = Failures { count: 0, until: now, forget_at: now };
        }
        if entry.until > now {
            return Err(entry.until.since(now));
        }
        entry.count = entry.count.saturating_add(1);
        entry.forget_at = now + FORGET;
        if let Some(doublings) = entry.count.checked_sub(FREE_FAILURES) {
            let wait = FIRST_WAIT.saturating_mul(1_u32.checked_shl(doublings).unwrap_or(u32::MAX));
            entry.until = now + wait.min(LONGEST_WAIT);
        }
        Ok(())
    }
}

/// A customer has a network of version 6, not an address.
fn network(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
        address => address,
    }
}

fn make_room<K: Copy + Eq + Hash>(failures: &mut HashMap<K, Failures>, now: Timestamp) {
    failures.retain(|_, entry| entry.forget_at > now);
    let quiet = failures.iter().min_by_key(|(_, entry)| entry.forget_at).map(|(peer, _)| *peer);
    if let Some(quiet) = quiet.filter(|_| failures.len() >= MAX_ADDRESSES) {
        failures.remove(&quiet);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(1_800_000_000_000 + millis)
    }

    fn address(number: u32) -> IpAddr {
        std::net::Ipv4Addr::from(number).into()
    }

    #[test]
    fn a_rate_allows_a_burst_and_then_so_many_a_second() {
        let throttle = Throttle::default();
        let rate = Rate { per_second: 10, burst: 3 };
        let whose = Whose::Token(TokenId(1));
        let take = |millis| throttle.take(whose, rate, at(millis));
        assert_eq!([take(0), take(0), take(0)], [Ok(()); 3]);
        assert_eq!(take(0), Err(Duration::from_millis(100)));
        assert_eq!((take(99).is_err(), take(100), take(100).is_err()), (true, Ok(()), true));
        assert_eq!(throttle.take(Whose::Realm(RealmId(1)), rate, at(100)), Ok(()), "another's is its own");
        assert_eq!([take(900), take(900), take(900)], [Ok(()); 3], "a pause makes the burst whole");
        assert!(take(900).is_err());
        // In the long run it is the rate, also where a second holds no whole number of milliseconds for each.
        let fast = Rate { per_second: 3_000, burst: 1 };
        let taken =
            (0..10_000).filter(|_| throttle.take(Whose::Realm(RealmId(2)), fast, at(0)).is_ok()).count();
        assert_eq!(taken, 1);
        let odd = Rate { per_second: 7, burst: 1 };
        let taken =
            (0..10_000).filter(|at_ms| throttle.take(Whose::Realm(RealmId(3)), odd, at(*at_ms)).is_ok());
        assert!((69..=70).contains(&taken.count()));
    }

    #[test]
    fn wrong_tokens_slow_their_address_down_and_no_other() {
        let throttle = Throttle::default();
        let fail = |millis| throttle.failed(address(1), at(millis));
        assert!((0..FREE_FAILURES).all(|_| fail(0).is_ok()));
        assert_eq!(fail(0), Err(FIRST_WAIT));
        assert_eq!(throttle.failed(address(2), at(0)), Ok(()));
        assert_eq!((fail(249).is_err(), fail(250)), (true, Ok(())));
        assert_eq!(fail(250), Err(2 * FIRST_WAIT), "it grows");
        let mut now = 250;
        for _ in 0..40 {
            now += 60_000;
            assert_eq!(fail(now), Ok(()));
        }
        assert_eq!(fail(now), Err(LONGEST_WAIT));
        assert!((0..FREE_FAILURES).all(|_| fail(now + 900_000).is_ok()), "it is forgotten in the end");
    }

    #[test]
    fn memory_is_bounded_and_the_busiest_are_remembered() {
        let throttle = Throttle::default();
        for _ in 0..FREE_FAILURES {
            _ = throttle.failed(address(0), at(1));
        }
        for number in 1..3 * MAX_ADDRESSES as u32 {
            _ = throttle.failed(address(number), at(0));
        }
        assert_eq!(throttle.failures.lock().expect("it is free").len(), MAX_ADDRESSES);
        assert!(throttle.failed(address(0), at(2)).is_err(), "still slowed down");
        let of = |text: &str| network(text.parse().expect("an address"));
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1"));
        assert_eq!(of("::ffff:1.2.3.4"), of("1.2.3.4"));
    }
}
