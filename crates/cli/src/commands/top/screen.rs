//! A terminal's second screen, so that what was on it before is there again afterwards.

use std::io::{self, Write as _};

const OPEN: &str = "\x1b[?1049h\x1b[?25l";
const CLOSE: &str = "\x1b[?25h\x1b[?1049l";
/// To the upper left corner; then each line clears what is left of it, and the last one all below.
const HOME: &str = "\x1b[H";

pub(super) struct Screen {
    out: io::Stdout,
}

impl Screen {
    pub(super) fn open() -> anyhow::Result<Self> {
        let screen = Self { out: io::stdout() };
        screen.put(OPEN)?;
        Ok(screen)
    }

    /// In place of what is shown, without a flicker.
    pub(super) fn show(&self, text: &str) -> anyhow::Result<()> {
        let width = size().map_or(80, |size| usize::from(size.ws_col).max(1));
        let lines: Vec<_> = text.lines().map(|line| crate::output::cut(line, width)).collect();
        self.put(&format!("{HOME}{}\x1b[K\x1b[J", lines.join("\x1b[K\r\n")))
    }

    fn put(&self, text: &str) -> anyhow::Result<()> {
        let mut out = self.out.lock();
        out.write_all(text.as_bytes())?;
        Ok(out.flush()?)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // The terminal may be gone, and nobody is left to tell.
        drop(self.put(CLOSE));
    }
}

/// Lines of the terminal.
pub(super) fn height() -> u32 {
    size().map_or(24, |size| size.ws_row.into())
}

fn size() -> Option<rustix::termios::Winsize> {
    rustix::termios::tcgetwinsize(io::stdout()).ok().filter(|size| size.ws_row > 0)
}
