//! How this node joins and what it asks control, beside what every daemon does (`space_enrol`).
//!
//! A node joins with a one-time token and keeps its identity in files that only root can read, its id with them.

mod join;
mod link;

pub(crate) use join::load_or_join;
pub(crate) use link::ControlLink;
