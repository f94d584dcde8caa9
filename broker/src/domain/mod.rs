//! The words and rules of the broker, as pure values and transitions.
//!
//! Nothing here reads a clock, does IO, waits, or knows a wire or disk format: the wire, the disk and
//! the guest each convert at their own edge, and time enters as an argument. Start with [`delivery`],
//! the state machine everything else serves.

pub mod access;
pub mod audit;
pub mod bucket;
pub mod circuit;
pub mod context;
pub mod dead_letter;
pub mod decision;
pub mod dedup;
pub mod delivery;
pub mod digest;
pub mod failure;
pub mod filter;
pub mod id;
pub mod job;
pub mod limits;
pub mod message;
pub mod name;
pub mod pattern;
pub mod quota;
pub mod receipt;
pub mod record;
pub mod settings;
pub mod time;
