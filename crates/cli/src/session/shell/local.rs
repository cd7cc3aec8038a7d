//! The terminal that this process was started on.

use std::{
    io::IsTerminal as _,
    sync::{Mutex, Once, PoisonError},
};

use anyhow::Context as _;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use space_api::{limits::TERMINAL_CELLS, terminal::TerminalSize};

use crate::error::CliError;

/// Of a terminal that doesn't know its own.
const USUAL: TerminalSize = TerminalSize { rows: 24, columns: 80 };

/// What the terminal was like before it was made raw; none: it isn't. Here, and not in its owner, so that a panic
/// finds it.
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);
static HOOK: Once = Once::new();

pub(crate) struct LocalTerminal(());

impl LocalTerminal {
    /// Standard input has to be one.
    pub(crate) fn open() -> Result<Self, CliError> {
        if std::io::stdin().is_terminal() {
            return Ok(Self(()));
        }
        Err(CliError::hinted(
            anyhow::anyhow!("standard input is not a terminal"),
            "`space exec` runs a command without one, and `space run` makes a sandbox for it",
        ))
    }

    pub(crate) fn size(&self) -> TerminalSize {
        let Self(()) = self;
        let Ok(size) = tcgetwinsize(std::io::stdin()) else { return USUAL };
        let cells = |cells: u16, usual: u32| match u32::from(cells) {
            0 => usual,
            cells => cells.min(TERMINAL_CELLS),
        };
        TerminalSize { rows: cells(size.ws_row, USUAL.rows), columns: cells(size.ws_col, USUAL.columns) }
    }

    /// Every key goes through, and everything that is put out is shown as it is, until the guard is dropped.
    pub(super) fn make_raw(&self) -> anyhow::Result<Raw> {
        let Self(()) = self;
        let before = tcgetattr(std::io::stdin()).context("cannot ask the terminal for its mode")?;
        HOOK.call_once(|| {
            let said = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |panic| {
                restore();
                said(panic);
            }));
        });
        let mut raw = before.clone();
        raw.make_raw();
        *BEFORE.lock().unwrap_or_else(PoisonError::into_inner) = Some(before);
        let guard = Raw(raw);
        tcsetattr(std::io::stdin(), OptionalActions::Now, &guard.0)
            .context("cannot make the terminal raw")?;
        Ok(guard)
    }
}

/// The terminal is raw while this is alive.
pub(super) struct Raw(Termios);

impl Raw {
    /// Whatever it has become meanwhile.
    pub(super) fn renew(&self) {
        // A terminal that is gone is seen by whoever reads it.
        tcsetattr(std::io::stdin(), OptionalActions::Now, &self.0).ok();
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        restore();
    }
}

fn restore() {
    let before = BEFORE.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(before) = before {
        tcsetattr(std::io::stdin(), OptionalActions::Now, &before).ok();
    }
}
