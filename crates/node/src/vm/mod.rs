//! Sandboxes' virtual machines, each with one owner task.
//!
//! ```text
//!            Ensure            agent answers              process ends
//!   unknown ───────▶ booting ───────────────▶ running ───────────────────▶ ended{stopped|failed}
//!      ▲                │                        │                              │
//!      │                └── refused: nothing is left, the caller is told       │
//!      └──────────────────────── Remove, from any of them ─────────────────────┘
//! ```
//!
//! [`Fleet`] finds or makes the owner ([`driver`], with [`ending`] for the way out); [`requests`] decides, purely, what a request means in a
//! state; [`boot`] is the linear way from nothing to an agent that answered; [`classify()`] names an end.

mod boot;
mod capacity;
mod classify;
mod context;
mod driver;
mod ending;
mod error;
mod fleet;
mod live;
mod observations;
mod requests;

pub(crate) use capacity::{Ledger, Offer};
use classify::{Ending, classify};
pub(crate) use context::NodeContext;
pub(crate) use error::VmError;
pub(crate) use fleet::{Ensure, Fleet};
pub(crate) use live::{LiveVm, Survivor};
pub(crate) use observations::Observations;
pub(crate) use requests::Denial;
