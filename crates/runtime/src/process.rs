//! What the kernel says about this process.

/// Resident memory in bytes, or nothing where `/proc` is missing.
pub fn resident_bytes() -> Option<u64> {
    parse_resident(&std::fs::read_to_string("/proc/self/status").ok()?)
}

/// The `VmRSS` line of proc_pid_status(5), which counts in KiB.
fn parse_resident(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_resident_size_is_read_in_bytes() {
        assert_eq!(parse_resident("Name:\tx\nVmRSS:\t    1024 kB\n"), Some(1 << 20));
        assert_eq!(parse_resident("Name:\tx\n"), None);
    }

    #[test]
    fn this_process_has_a_resident_size() {
        assert!(resident_bytes().unwrap() > 100_000);
    }
}
