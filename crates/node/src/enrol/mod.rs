//! Who this node is: its key, the certificate that control gave it, and the calls that it makes with them.
//!
//! A node joins with a one-time token and keeps its identity in files that only root can read. The key
//! never leaves the machine. Certificates are renewed two thirds into their life; the same rule holds for
//! workers'.

mod certificate;
mod identity;
mod join;
mod link;
mod renew;

pub(crate) use certificate::{KeyError, SigningRequest, renewal_instant, time_left};
pub(crate) use identity::Identity;
pub(crate) use join::{JoinError, load_or_join};
pub(crate) use link::{ControlLink, LinkError};
pub(crate) use renew::renew_forever;
