//! The public contract of SPACE, version 1: what requests and responses look like, which limits they keep,
//! and how errors and event streams are written. The server renders these types, the client (feature
//! `client`) parses them, and the OpenAPI document is generated from them, so that the three can't drift.
//!
//! Requests refuse fields that they don't know; responses may grow fields, and readers ignore those.
//! Everything but the client is pure: no clock, no I/O.

pub mod body;
#[cfg(feature = "client")]
pub mod client;
pub mod commands;
mod encoding;
pub mod events;
pub mod files;
pub mod headers;
pub mod keys;
pub mod limits;
pub mod nodes;
pub mod operations;
mod page;
pub mod ports;
pub mod problem;
pub mod projects;
pub mod quotas;
pub mod sandboxes;
pub mod scopes;
mod signal;
pub mod sse;
pub mod templates;
pub mod tenants;
pub mod terminal;
mod timestamp;
pub mod usage;
pub mod validate;

pub use encoding::Base64Bytes;
pub use page::{Page, PageQuery, WaitQuery};
pub use problem::{Problem, ProblemCode};
pub use signal::{Signal, UnknownSignal};
pub use timestamp::Timestamp;
pub use validate::{FieldError, FieldErrors};
