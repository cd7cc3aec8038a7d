//! Memory, as `/proc` has it. Where it can't be read the numbers are 0.

use std::fs;

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Memory {
    /// Of this process, resident.
    pub(crate) own: u64,
    pub(crate) total: u64,
    pub(crate) available: u64,
}

pub(crate) fn read() -> Memory {
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    Memory {
        own: field(&status, "VmRSS:"),
        total: field(&meminfo, "MemTotal:"),
        available: field(&meminfo, "MemAvailable:"),
    }
}

/// The value of a line such as `MemTotal:  16384 kB`, in bytes.
fn field(text: &str, name: &str) -> u64 {
    let kib =
        text.lines().find_map(|line| line.strip_prefix(name)?.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0).saturating_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_proc_are_read_in_bytes() {
        assert_eq!(field("A: 1 kB\nMemTotal:       16 kB\n", "MemTotal:"), 16384);
        assert_eq!(field("", "MemTotal:"), 0);
        assert!(read().total > 0);
    }
}
