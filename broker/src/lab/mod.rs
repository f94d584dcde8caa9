//! What a policy would do: nothing here changes a delivery.
//!
//! [`simulate`] plays a scenario against a policy, [`backtest`] runs one over recorded failures,
//! [`fixture`] asks it a case of its own tests. All use the broker's
//! own state machine, checks and sandbox. Knows `domain` and `policy`; no store, no socket, no clock.

pub mod backtest;
pub mod fixture;
pub mod simulate;
mod spread;

pub use backtest::{Backtest, Change, Report};
pub use simulate::{End, Rules, Scenario, Schedule, Step};
pub use spread::Spread;
