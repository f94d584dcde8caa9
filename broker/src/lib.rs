//! Reprise: a message broker whose retry policies are programs.
//!
//! Start with [`dispatch::Broker`], which everything else is built around, and ARCHITECTURE.md, which has the map.

pub mod cli;
pub mod clock;
pub mod disk;
pub mod dispatch;
pub mod domain;
pub mod engine;
pub mod feed;
pub mod http;
pub mod lab;
pub mod policy;
pub mod programs;
pub mod store;
pub mod trials;
