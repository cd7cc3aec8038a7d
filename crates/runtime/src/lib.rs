//! What every daemon needs before its own work begins, so that each `main.rs` stays short:
//! configuration, telemetry, named tasks with an ordered shutdown, the internal port, retries, and limits
//! on how fast requests come.

pub mod config;
pub mod internal;
pub mod process;
pub mod rate;
pub mod retry;
pub mod tasks;
pub mod telemetry;
