//! What tests stand on.
//!
//! - [`conformance`]: what holds of every node, simulated or real.
//! - [`postgres`]: a private PostgreSQL server per test process and a database per test.
//! - [`sim`]: nodes that run no VM and answer like ones that do, for tests of the control plane alone.
//!
//! For tests only: errors end the test with all of their context.

pub mod conformance;
pub mod postgres;
pub mod sim;
