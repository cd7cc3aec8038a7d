//! How a daemon joins an installation and stays in it, the same for nodes and edges.
//!
//! ```text
//! one-time token ──▶ join ──▶ identity (files) ──▶ link (mTLS to control) ──▶ what the daemon asks
//!                                 ▲                  │
//!                                 └───── renewal ◀───┘  two thirds into the certificate's life
//! ```
//!
//! The key is made here, is on disk before anybody is asked to certify it, and never leaves the machine. What a daemon
//! sends to join and to renew, and what it is told beside its certificate, is its own.

mod certificate;
mod config;
mod files;
mod identity;
mod join;
mod link;
mod renewal;

pub use certificate::{KeyError, Life, new_key, signing_request};
pub use config::ControlConfig;
pub use files::write_private;
pub use identity::Identity;
pub use join::{Asked, Granted, JoinError, Joining};
pub use link::{ControlChannel, LinkError};
pub use renewal::renew_forever;
