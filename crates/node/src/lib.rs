//! `space-noded`: root on one machine, and the only thing there that is.
//!
//! It owns what needs privilege: microVMs (Firecracker under its jailer), their slots (namespace, TAP, user,
//! cgroup), their disks, and the workers that speak to guests. It never parses a byte that a guest chose,
//! holds no secret of a tenant, and speaks to control alone.
//!
//! | module | what |
//! |---|---|
//! | [`config`] | what an operator sets |
//! | `journal` | the intent journal: what exists outside of this process, written down first |
//! | `place`, `cgroup`, `slot`, `disk`, `image`, `fc`, `sys` | one kind of outside resource each |
//! | `vm` | one owner task a sandbox |
//! | `worker` | one owner task a tenant's worker |
//! | `enrol`, `rpc`, `report` | identity, what control asks, what control is told |
//! | `adopt` | the start after whatever happened |
//! | [`fail_point`] | named instants to die at, for tests |
//! | [`daemon`] | all of it together |

mod adopt;
mod cgroup;
pub mod config;
pub mod daemon;
mod disk;
mod enrol;
pub mod fail_point;
mod fc;
mod fence;
mod image;
mod journal;
mod place;
mod report;
mod rpc;
mod slot;
mod sys;
mod vm;
mod worker;
