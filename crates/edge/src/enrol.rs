//! Who this edge is: its key, the certificate that control gave it, and how it joins and renews.
//!
//! The key is on disk before anybody is asked to certify it, and used again after a crash, for which control answers
//! the same token as before. Certificates are renewed two thirds into their life.

mod certificate;
mod identity;
mod join;
mod renew;

pub(crate) use certificate::{KeyError, unix_now};
pub(crate) use identity::Identity;
pub use join::JoinError;
pub(crate) use join::load_or_join;
pub(crate) use renew::renew_forever;
