//! `space-edged`: the front door of ports inside sandboxes, and of what their commands print.
//!
//! ```text
//! serve (limits, TLS) ──▶ proxy (shape, authorise, forward) ──▶ pool ──▶ tunnel ──▶ workers (gRPC over mTLS)
//!                          │    │            │                                        ▲
//!                          │  keys         routes ──▶ control (gRPC over mTLS)        │
//!                          └──▶ streams (authorise, follow, server-sent events) ──────┘
//! ```
//!
//! It is stateless and holds no secret but its own key: what it knows of sandboxes, control told it a few seconds ago.
//! Both sides are hostile, the visitor and the guest; everything read from either is in [`parse`] or in hyper.
//! The decision is `docs/design/0007-the-edge-and-ports.md`.

mod addresses;
mod answer;
mod codes;
pub mod config;
mod control;
mod enrol;
#[cfg(feature = "fuzz")]
pub mod fuzz;
mod keys;
mod network;
pub mod parse;
mod proxied;
mod proxy;
mod routes;
mod serve;
mod server;
mod streams;
mod tls;
mod tunnel;
mod turn_away;
mod upstream;
mod workers;

pub use codes::EdgeCode;
pub use server::{Server, StartError};
pub use tls::TlsError;

/// A body on its way through. Never collected.
type Body = http_body_util::combinators::UnsyncBoxBody<bytes::Bytes, BoxError>;
type BoxError = Box<dyn std::error::Error + Send + Sync>;
