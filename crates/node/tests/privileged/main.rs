//! The node on a real machine: root, `/dev/kvm`, `/dev/net/tun`, cgroup v2 and btrfs under `TMPDIR`.
//!
//! `SPACE_BIN` is where `space-noded` and `space-sandboxd` lie, `SPACE_ASSETS` where Firecracker, its jailer,
//! the guest kernel and the initramfs do. Nothing is skipped: without these every test
//! fails and says what is missing. `cargo xtask e2e` runs it in the emulated host.

#![expect(clippy::unwrap_used, reason = "a test ends where it is surprised")]

mod authority;
mod boot;
mod conformance;
mod fail_points;
mod faults;
mod hostile;
mod kit;
mod leftovers;
mod registry;
