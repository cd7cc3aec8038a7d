//! A number of bytes, so that no signature has to say in its name whether it means MiB.

use std::fmt;

use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ByteSize(u64);

impl ByteSize {
    pub const fn bytes(bytes: u64) -> Self {
        Self(bytes)
    }

    pub const fn mib(mib: u64) -> Self {
        Self(mib * 1024 * 1024)
    }

    pub const fn gib(gib: u64) -> Self {
        Self::mib(gib * 1024)
    }

    pub const fn as_bytes(self) -> u64 {
        self.0
    }

    /// Whole mebibytes, rounded down.
    pub const fn as_mib(self) -> u64 {
        self.0 / (1024 * 1024)
    }
}

/// The largest unit that leaves at least one, with one decimal where it isn't whole.
impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(&str, u64); 4] =
            [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
        for (unit, size) in UNITS {
            if self.0 >= size {
                let tenths = self.0 * 10 / size;
                return match tenths % 10 {
                    0 => write!(f, "{} {unit}", tenths / 10),
                    rest => write!(f, "{}.{rest} {unit}", tenths / 10),
                };
            }
        }
        write!(f, "{} B", self.0)
    }
}

impl fmt::Debug for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::ByteSize;

    #[test]
    fn sizes_read_as_people_write_them() {
        let shown = [ByteSize::bytes(17), ByteSize::mib(256), ByteSize::mib(1536), ByteSize::gib(2)]
            .map(|s| s.to_string());
        assert_eq!(shown, ["17 B", "256 MiB", "1.5 GiB", "2 GiB"]);
    }
}
