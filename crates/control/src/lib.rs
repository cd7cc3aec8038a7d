//! The control plane: decides and remembers, and never parses a byte that a guest chose.
//!
//! ```text
//!   http_server/ ─▶ app/ ─▶ store/        one resource, one file in each
//!   registry/ ─▶ │ ▲
//!                ▼ │ nudges, changes
//!   node_client/ ◀─ controllers/
//! ```
//!
//! A request writes what is wanted in one transaction and nudges a controller; the controller calls the node and
//! writes what was seen in another. Either may die in between: the trigger that the first transaction wrote is
//! found by the timer.

mod app;
mod authority;
pub mod config;
mod controllers;
pub mod fail_point;
mod grants;
mod http_server;
mod node_client;
mod rate_limit;
mod registry;
mod server;
mod store;

#[cfg(test)]
mod tests;

pub use server::{Server, StartError};

/// The OpenAPI document, as `/openapi.json` has it.
pub fn openapi_json() -> String {
    let mut text = serde_json::to_string_pretty(&http_server::document()).unwrap_or_default();
    text.push('\n');
    text
}
