//! The kernel, as far as the libraries at hand leave it unsafe or raw: TAP devices, namespaces, children,
//! readiness.
//! Nothing outside this module says `unsafe`.

mod namespace;
mod process;
mod spawn;
mod tap;
mod watch;

pub(crate) use namespace::{make_namespace, unmake_namespace};
pub(crate) use process::{ExitStatus, Pidfd, ProcessIdentity};
pub(crate) use spawn::{ChildSetup, Spawner};
pub(crate) use tap::{bring_up, make_tap};
pub(crate) use watch::watch;
