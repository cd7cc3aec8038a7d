//! The kit of the end-to-end tests: a running SPACE, sandboxes that remove themselves, what is left over, and the guides.
//!
//! The tests run as root on a machine that can boot microVMs (usually the emulated host), next to a SPACE that
//! `space up` started. Its address and admin key come from `SPACE_URL` and `SPACE_API_KEY_FILE`.

pub mod daemons;
pub mod guide;
mod journal;
pub mod leftovers;
pub mod sandbox;
pub mod server;
pub mod wait;

pub use sandbox::{Outcome, Sandbox};
pub use server::Server;
