//! The guest's serial console: drained for as long as there is one, so that Firecracker never blocks on a full
//! pipe, and watched for a kernel panic.
//!
//! The text is the guest's. Its last [`limits::CONSOLE`] bytes are kept for whoever debugs the sandbox, and are
//! written to no log.

use std::{
    collections::VecDeque,
    io,
    os::fd::OwnedFd,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::io::Interest;

use crate::{limits, sys};

const PANIC: &[u8] = b"Kernel panic - not syncing";
const CHUNK: usize = 16 * 1024;

/// The console's last bytes.
#[derive(Debug, Default, Clone)]
pub(crate) struct ConsoleTail(Arc<Mutex<VecDeque<u8>>>);

impl ConsoleTail {
    /// A copy of what is kept. Bytes of a hostile guest: escape before showing.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().copied().collect()
    }

    fn push(&self, chunk: &[u8]) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let chunk = &chunk[chunk.len().saturating_sub(limits::CONSOLE)..];
        let excess = (kept.len() + chunk.len()).saturating_sub(limits::CONSOLE);
        kept.drain(..excess);
        kept.extend(chunk);
    }
}

/// Finds [`PANIC`] in a stream that arrives in pieces.
#[derive(Debug, Default)]
struct PanicFinder {
    matched: usize,
}

impl PanicFinder {
    /// True if the text ends within `chunk` for the first time.
    fn feed(&mut self, chunk: &[u8]) -> bool {
        for byte in chunk {
            if self.matched == PANIC.len() {
                return false;
            }
            // The text's first letter occurs in it nowhere else, so a mismatch can only begin anew here.
            self.matched = match *byte {
                byte if byte == PANIC[self.matched] => self.matched + 1,
                byte => usize::from(byte == PANIC[0]),
            };
            if self.matched == PANIC.len() {
                return true;
            }
        }
        false
    }
}

/// Drains `fifo` until its writers are gone, or for ever; calls `on_panic` at most once.
///
/// Cancel safe.
pub(crate) async fn watch(fifo: OwnedFd, tail: ConsoleTail, on_panic: impl FnOnce()) -> io::Result<()> {
    let fifo = sys::watched(fifo, Interest::READABLE)?;
    let mut chunk = vec![0; CHUNK];
    let mut finder = PanicFinder::default();
    let mut on_panic = Some(on_panic);
    loop {
        let mut ready = fifo.readable().await?;
        let closed = ready.ready().is_read_closed();
        match ready.try_io(|fifo| Ok(rustix::io::read(fifo.get_ref(), &mut chunk)?)) {
            Ok(Ok(0)) if closed => return Ok(()),
            // Nobody has opened the writing end yet. The kernel tells when somebody does and writes.
            Ok(Ok(0)) => ready.clear_ready(),
            Ok(Ok(length)) => {
                tail.push(&chunk[..length]);
                if finder.feed(&chunk[..length])
                    && let Some(on_panic) = on_panic.take()
                {
                    on_panic();
                }
            }
            Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
            Ok(Err(error)) => return Err(error),
            Err(_would_block) => {}
        }
    }
}

/// The same on pieces of text, without a FIFO: what is kept, and how many panics were found.
#[cfg(feature = "fuzz")]
pub(crate) fn replay(pieces: &[&[u8]]) -> (Vec<u8>, usize) {
    let (tail, mut finder) = (ConsoleTail::default(), PanicFinder::default());
    let mut panics = 0;
    for piece in pieces {
        tail.push(piece);
        panics += usize::from(finder.feed(piece));
    }
    (tail.bytes(), panics)
}

#[cfg(test)]
mod tests {
    use std::{io::Write as _, os::fd::OwnedFd, time::Duration};

    use proptest::prelude::*;

    use super::*;

    fn finds(text: &[u8], cuts: &[usize]) -> usize {
        let mut finder = PanicFinder::default();
        let mut from = 0;
        let mut found = 0;
        for cut in cuts.iter().copied().chain([text.len()]) {
            found += usize::from(finder.feed(&text[from..cut]));
            from = cut;
        }
        found
    }

    #[test]
    fn a_panic_is_found_wherever_its_text_is_cut() {
        let text = b"[    1.0] KKernel Kernel panic - not syncing: sysrq\n";
        for first in 0..=text.len() {
            for second in first..=text.len() {
                assert_eq!(finds(text, &[first, second]), 1, "cut at {first} and {second}");
            }
        }
    }

    #[test]
    fn a_second_panic_is_no_news() {
        assert_eq!(finds(&PANIC.repeat(3), &[5]), 1);
    }

    proptest! {
        #[test]
        fn the_finder_agrees_with_a_search_of_the_whole(text in "(Kernel panic - not syncing|Ker|nel panic|K| - not syncing|x){0,9}") {
            let expected = usize::from(text.as_bytes().windows(PANIC.len()).any(|window| window == PANIC));
            prop_assert_eq!(finds(text.as_bytes(), &[]), expected);
        }
    }

    #[test]
    fn only_the_last_bytes_are_kept() {
        let tail = ConsoleTail::default();
        tail.push(b"old");
        tail.push(&vec![b'x'; limits::CONSOLE - 1]);
        tail.push(b"end");
        let kept = tail.bytes();
        assert_eq!(kept.len(), limits::CONSOLE);
        assert!(kept.ends_with(b"xend"));
        assert!(!kept.contains(&b'o'));
    }

    #[tokio::test]
    async fn a_fifo_is_drained_until_its_writer_leaves_and_a_panic_told_once() {
        let (reader, writer) = std::io::pipe().unwrap();
        let tail = ConsoleTail::default();
        let (told, mut panics) = tokio::sync::mpsc::unbounded_channel();
        let watching =
            tokio::spawn(watch(OwnedFd::from(reader), tail.clone(), move || told.send(()).unwrap()));
        let flood = std::thread::spawn(move || {
            let mut writer = writer;
            writer.write_all(&vec![b'.'; 1 << 20]).unwrap();
            writer.write_all(b"Kernel pan").unwrap();
            writer.write_all(b"ic - not syncing: x\n").unwrap();
        });
        tokio::time::timeout(Duration::from_secs(10), watching).await.unwrap().unwrap().unwrap();
        flood.join().unwrap();
        assert_eq!(panics.recv().await, Some(()));
        assert_eq!(panics.recv().await, None);
        assert!(tail.bytes().ends_with(b"not syncing: x\n"));
    }

    #[tokio::test]
    async fn a_fifo_without_a_writer_yet_is_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("console");
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::NONBLOCK;
        let reader = rustix::fs::open(&path, flags, rustix::fs::Mode::empty()).unwrap();
        let tail = ConsoleTail::default();
        let watching = tokio::spawn(watch(reader, tail.clone(), || {}));
        tokio::task::yield_now().await;
        let mut writer = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        writer.write_all(b"late").unwrap();
        drop(writer);
        tokio::time::timeout(Duration::from_secs(10), watching).await.unwrap().unwrap().unwrap();
        assert_eq!(tail.bytes(), b"late");
    }
}
