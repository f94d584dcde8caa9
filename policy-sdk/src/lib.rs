//! Write a Reprise retry policy.
//!
//! A policy is one function: a failure comes in with everything known about the delivery, a
//! [`Decision`] goes out. It runs in a sandbox, imports nothing, and is a fresh value on each call,
//! so time, randomness and load are part of the [`Context`].
//!
//! ```
//! use reprise_policy::prelude::*;
//!
//! #[derive(Default)]
//! struct Payments;
//!
//! impl Policy for Payments {
//!     fn decide(&self, cx: &Context) -> Decision {
//!         match cx.failure().class() {
//!             "validation" => Decision::dead_letter("invalid").reason("can never succeed"),
//!             "rate_limited" => Decision::retry(cx.failure().retry_after().unwrap_or(secs(30))),
//!             _ if cx.failures() >= 8 => Decision::dead_letter("exhausted"),
//!             _ => Decision::retry(backoff::exponential(secs(1)).cap(mins(10)).full_jitter(cx)),
//!         }
//!     }
//! }
//!
//! export!(Payments);
//! # fn main() {}
//! ```
//!
//! Start reading at [`Policy`], then [`Context`] and [`Decision`]. [`backoff`] computes delays,
//! [`Params`] reads the settings of a revision, and `testing` (feature `testing`) runs a policy
//! through whole deliveries natively.

pub mod backoff;
mod context;
mod decision;
mod description;
pub mod duration;
mod json;
mod params;
mod policy;
mod random;
#[cfg(all(feature = "testing", not(target_arch = "wasm32")))]
pub mod testing;
mod timestamp;

#[doc(hidden)]
pub mod bindings;
#[cfg(all(target_arch = "wasm32", feature = "bump-allocator"))]
mod bump;
mod export;

pub use context::{Cause, Context, Failure, Load, Message, PastFailure};
pub use decision::{Action, DeadLetter, Decision, MEMO_LIMIT, Pause, default_queue, queue};
pub use description::{Description, Param, ParamKind};
pub use params::{ParamError, Params, Value};
pub use policy::Policy;
pub use random::Random;
pub use timestamp::Timestamp;

/// The README's code, as doc tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;

/// Everything a policy names, for one `use`.
pub mod prelude {
    pub use crate::duration::{days, hours, millis, mins, secs};
    pub use crate::{
        Action, Cause, Context, DeadLetter, Decision, Description, Failure, Load, Message, Param, ParamError,
        ParamKind, Params, PastFailure, Pause, Policy, Random, Timestamp, Value, backoff, default_queue,
        export, queue,
    };
    pub use core::time::Duration;
}

/// What the expansion of [`export!`] names. Not part of the API.
#[doc(hidden)]
pub mod __private {
    pub use crate::bindings;
    pub use crate::export::{Exported, Origin};
}
