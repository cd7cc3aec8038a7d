//! A command's events, from its worker to a reader. Control serves them, and so does an edge; both lose workers and
//! find them again in the same way, and write the same bytes.
//!
//! ```text
//! worker ── messages ──▶ [`CommandStream`] ── [`Positioned`] ──▶ [`wire`] ── server-sent events ──▶ reader
//!                          │      ▲
//!                          ▼      │
//!                        [`Way`]: how to get to the worker, which each of the two knows in its own way
//! ```

mod event;
mod stream;
pub mod wire;

pub use event::{Positioned, exit};
pub use stream::{CommandStream, Ended, Way, is_transport};
