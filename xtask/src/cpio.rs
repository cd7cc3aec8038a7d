//! A writer for the "newc" cpio format that the kernel unpacks an initramfs from.
//!
//! Format: `Documentation/driver-api/early-userspace/buffer-format.rst` in the kernel. Every header is 110
//! bytes of ASCII hex; names and contents are padded to four bytes. Times and inodes are fixed, so the
//! same contents give the same bytes.

const DIRECTORY: u32 = 0o040_000;
const FILE: u32 = 0o100_000;
const CHARACTER_DEVICE: u32 = 0o020_000;

/// An archive under construction.
#[derive(Debug, Default)]
pub(crate) struct Archive {
    bytes: Vec<u8>,
    inode: u32,
}

impl Archive {
    pub(crate) fn directory(self, name: &str, mode: u32) -> Self {
        self.entry(name, DIRECTORY | mode, (0, 0), &[])
    }

    pub(crate) fn file(self, name: &str, mode: u32, content: &[u8]) -> Self {
        self.entry(name, FILE | mode, (0, 0), content)
    }

    pub(crate) fn character_device(self, name: &str, mode: u32, device: (u32, u32)) -> Self {
        self.entry(name, CHARACTER_DEVICE | mode, device, &[])
    }

    /// The finished archive.
    pub(crate) fn finish(self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, (0, 0), &[]).bytes
    }

    fn entry(mut self, name: &str, mode: u32, device: (u32, u32), content: &[u8]) -> Self {
        self.inode += 1;
        let size = u32::try_from(content.len()).unwrap_or(u32::MAX);
        let name_size = u32::try_from(name.len() + 1).unwrap_or(u32::MAX);
        let links = if mode & DIRECTORY == DIRECTORY { 2 } else { 1 };
        let fields = [self.inode, mode, 0, 0, links, 0, size, 0, 0, device.0, device.1, name_size, 0];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes.extend_from_slice(format!("{field:08X}").as_bytes());
        }
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(content);
        self.pad();
        self
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_entry_starts_on_a_multiple_of_four() {
        let bytes = Archive::default().file("init", 0o755, b"12345").finish();
        let trailer = bytes.windows(6).rposition(|window| window == b"070701").expect("a trailer");
        assert_eq!(trailer % 4, 0);
        assert_eq!(trailer, (110_usize + 5).next_multiple_of(4) + 8);
    }

    #[test]
    fn the_same_contents_give_the_same_bytes() {
        let make = || Archive::default().directory("dev", 0o755).finish();
        assert_eq!(make(), make());
    }
}
