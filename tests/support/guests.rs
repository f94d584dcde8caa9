//! Policies written by hand in WebAssembly text, for what no compiler would write: traps, loops, nonsense.
//!
//! Each behaves in the trial that every upload goes through, which runs for a subscription called `rehearsal`,
//! and shows its other side wherever the name has another length.

#[path = "../../broker/src/policy/tests/guest.rs"]
mod guest;

pub(crate) use guest::{Guest, deciding};

/// Where the decision is.
pub(crate) const DECISION: &str = "(i32.const 1024)";

/// A guest that behaves in its trial and does this afterwards.
pub(crate) fn after_trial(decide: &str) -> Vec<u8> {
    let trial = "(if (i32.eq (i32.load offset=4 (local.get $context)) (i32.const 9)) (then (return (i32.const 1024))))";
    deciding(&format!("{trial} {decide}")).module()
}

/// Puts a text of at most 128 bytes into memory and leaves its place and length in the two words at `at`.
fn text_at(at: u32, text: &str) -> String {
    assert!(text.len() <= 128, "a text has its own 128 bytes");
    let place = 2304 + (at - 1032) * 16;
    let stored = (place..).zip(text.bytes());
    let bytes: String =
        stored.map(|(at, byte)| format!("(i32.store8 (i32.const {at}) (i32.const {byte}))")).collect();
    let (length, after) = (text.len(), at + 4);
    format!(
        "{bytes} (i32.store (i32.const {at}) (i32.const {place})) (i32.store (i32.const {after}) (i32.const {length}))"
    )
}

/// Answers a retry after so many milliseconds.
pub(crate) fn retry(millis: u64) -> String {
    // The literal is signed: the bits are what counts.
    format!("(i64.store (i32.const 1032) (i64.const {})) {DECISION}", millis.cast_signed())
}

/// Answers a dead letter in this queue, `None` the default one.
pub(crate) fn dead_letter(queue: Option<&str>, reason: &str) -> String {
    let queue = match queue {
        None => "(i32.store (i32.const 1032) (i32.const 0))".to_owned(),
        Some(queue) => format!("(i32.store (i32.const 1032) (i32.const 1)) {}", text_at(1036, queue)),
    };
    format!("(i32.store8 (i32.const 1024) (i32.const 1)) {queue} {} {DECISION}", text_at(1044, reason))
}

/// Answers a forward to this topic.
pub(crate) fn forward(topic: &str) -> String {
    format!("(i32.store8 (i32.const 1024) (i32.const 2)) {} {DECISION}", text_at(1032, topic))
}

/// Answers a drop.
pub(crate) fn drop(reason: &str) -> String {
    format!("(i32.store8 (i32.const 1024) (i32.const 3)) {} {DECISION}", text_at(1032, reason))
}

/// Adds a pause to the answer that follows.
pub(crate) fn pause(millis: u64, probes: u32, reason: &str) -> String {
    format!(
        "(i32.store8 (i32.const 1064) (i32.const 1)) (i64.store (i32.const 1072) (i64.const {millis}))
         (i32.store (i32.const 1080) (i32.const {probes})) {}",
        text_at(1084, reason)
    )
}

/// Adds a memo to the answer that follows.
pub(crate) fn memo(text: &str) -> String {
    format!("(i32.store8 (i32.const 1096) (i32.const 1)) {}", text_at(1100, text))
}

/// Lets later messages of the same key pass, in the answer that follows.
pub(crate) fn release_key() -> String {
    "(i32.store8 (i32.const 1120) (i32.const 1))".to_owned()
}

/// Adds a note to the answer that follows.
pub(crate) fn note(text: &str) -> String {
    format!("(i32.store8 (i32.const 1108) (i32.const 1)) {}", text_at(1112, text))
}
