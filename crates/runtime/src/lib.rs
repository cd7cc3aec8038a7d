//! What every daemon needs before its own work begins, so that each `main.rs` stays short:
//! configuration, telemetry, named tasks with an ordered shutdown, the internal port, and retries.

pub mod config;
pub mod internal;
pub mod process;
pub mod retry;
pub mod tasks;
pub mod telemetry;
