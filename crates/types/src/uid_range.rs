//! User ids that SPACE takes of a machine for processes that belong to nobody: one a microVM, one a worker.
//!
//! They have to be nobody else's. `useradd` gives subordinate ids (`/etc/subuid`, with which people run containers)
//! from 100000 to 600100000, systemd gives containers those up to 1879048191, and directory services map users up to
//! about 2000200000; systemd's next range begins at 2147352576. In between nobody has a claim.

use serde::Deserialize;

/// Consecutive user ids. The group ids of the same numbers belong to it too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UidRange {
    pub first: u32,
    pub count: u32,
}

/// Of microVMs, unless a node is told otherwise.
pub const VM_UIDS: UidRange = UidRange { first: 2_100_000_000, count: 1024 };
/// Of workers, likewise.
pub const WORKER_UIDS: UidRange = UidRange { first: 2_100_010_000, count: 1024 };

impl UidRange {
    /// Whether an id is in both.
    pub fn overlaps(self, other: Self) -> bool {
        let end = |range: Self| u64::from(range.first) + u64::from(range.count);
        u64::from(self.first) < end(other) && u64::from(other.first) < end(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_touch_do_not_overlap() {
        let range = |first, count| UidRange { first, count };
        assert!(range(10, 5).overlaps(range(14, 1)) && range(14, 1).overlaps(range(10, 5)));
        assert!(!range(10, 5).overlaps(range(15, 1)) && !range(15, 1).overlaps(range(10, 5)));
        assert!(range(u32::MAX, u32::MAX).overlaps(range(u32::MAX, 1)));
    }

    #[test]
    fn the_defaults_are_nobodys() {
        // /etc/login.defs (SUB_UID_MIN to SUB_UID_MAX), systemd's container ids, systemd's foreign ids.
        let claimed = [(100_000, 600_000_001), (524_288, 1_878_523_904), (2_147_352_576, 131_072)];
        for ours in [VM_UIDS, WORKER_UIDS] {
            for (first, count) in claimed {
                assert!(!ours.overlaps(UidRange { first, count }), "{ours:?} and {first}");
            }
        }
        assert!(!VM_UIDS.overlaps(WORKER_UIDS));
    }
}
