//! Ctrl-C and its kind, taken for the whole of a command of ours, so that none is lost between two steps.

use space_api::Signal;
use tokio::signal::unix::{self, SignalKind};

pub(crate) struct Interrupts {
    int: unix::Signal,
    term: unix::Signal,
    hup: unix::Signal,
    quit: unix::Signal,
}

impl Interrupts {
    pub(crate) fn listen() -> anyhow::Result<Self> {
        Ok(Self {
            int: unix::signal(SignalKind::interrupt())?,
            term: unix::signal(SignalKind::terminate())?,
            hup: unix::signal(SignalKind::hangup())?,
            quit: unix::signal(SignalKind::quit())?,
        })
    }

    /// The next one. Cancel safe.
    pub(crate) async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.int.recv() => Signal::INT,
            _ = self.term.recv() => Signal::TERM,
            _ = self.hup.recv() => Signal::INT,
            _ = self.quit.recv() => Signal::QUIT,
        }
    }
}
