//! What every test binary needs: a real broker process, a client, compiled policies, hand-written guests.
//!
//! Helpers hide mechanics (sockets, JSON, waiting), never what a test expects. Start with [`Broker::start`].

#![allow(dead_code, unused_imports, reason = "each test binary uses a part of it")]

mod broker;
mod client;
pub(crate) mod guests;
pub(crate) mod policies;
mod process;
mod socket;
mod stream;

use std::time::{Duration, Instant};

pub(crate) use broker::{Broker, Folder, Launch};
pub(crate) use client::{Answer, Client, Delivery};
pub(crate) use process::Process;
pub(crate) use socket::Socket;
pub(crate) use stream::{MSGPACK, Stream};

/// The bound of every wait. It is only reached when something is broken.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Looks again and again until `look` finds something.
///
/// # Panics
/// If it does not within [`PATIENCE`].
pub(crate) fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(start.elapsed() < PATIENCE, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Milliseconds since 1970 of an RFC 3339 text as the broker writes it.
pub(crate) fn millis(text: &serde_json::Value) -> i64 {
    let text = text.as_str().expect("a moment is a text");
    let time = humantime::parse_rfc3339(text).expect("a moment is RFC 3339");
    let since = time.duration_since(std::time::UNIX_EPOCH).expect("a moment is after 1970");
    i64::try_from(since.as_millis()).expect("a moment fits")
}

/// A duration as the broker writes it.
pub(crate) fn duration(text: &serde_json::Value) -> Duration {
    humantime::parse_duration(text.as_str().expect("a duration is a text")).expect("a duration is humantime")
}
