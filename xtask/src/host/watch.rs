//! Is the host still there? Tells a host that hung or panicked from a program that fails inside it.
//!
//! The host writes a line a second to its second serial port for as long as it schedules anything, and
//! its kernel's last words go to the first one. A host whose heartbeat stands still is hung; emulated
//! hosts do that (rarely), and nothing that runs inside can be blamed for it.

use std::cell::Cell;
use std::fs;
use std::time::{Duration, Instant};

use super::machine::Machine;

/// The heartbeat may stumble under load; a minute and a half of silence isn't load.
const SILENCE: Duration = Duration::from_secs(90);

/// Texts on the console after which nothing good comes.
const LAST_WORDS: [&str; 3] = ["Kernel panic", "double fault", "BUG: unable to handle"];

/// What a look at the host shows.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Health {
    Alive,
    /// The host can't be used any more; the text says why.
    Lost(String),
}

/// Remembers the last heartbeat that was seen, and when.
#[derive(Debug)]
pub(crate) struct Watch<'a> {
    machine: &'a Machine,
    beats: Cell<u64>,
    seen: Cell<Instant>,
}

impl<'a> Watch<'a> {
    pub(crate) fn new(machine: &'a Machine) -> Self {
        Self { machine, beats: Cell::new(0), seen: Cell::new(Instant::now()) }
    }

    /// Looks once. Cheap; callers look about once a second.
    pub(crate) fn look(&self) -> Health {
        let console = fs::read(self.machine.console()).unwrap_or_default();
        if let Some(words) = last_words(&String::from_utf8_lossy(&console)) {
            return Health::Lost(format!("its kernel said \"{words}\""));
        }
        if !self.machine.lives() {
            return Health::Lost("QEMU ended".to_owned());
        }
        let beats = fs::metadata(self.machine.dir().join("heartbeat.log")).map_or(0, |m| m.len());
        if beats != self.beats.get() {
            self.beats.set(beats);
            self.seen.set(Instant::now());
        }
        if self.seen.get().elapsed() > SILENCE {
            return Health::Lost(format!("no heartbeat for {} s", SILENCE.as_secs()));
        }
        Health::Alive
    }
}

fn last_words(console: &str) -> Option<&'static str> {
    LAST_WORDS.into_iter().find(|words| console.contains(words))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_on_the_console_is_recognised() {
        let console = "[   12.3] Kernel panic - not syncing: stack-protector\n";
        assert_eq!(last_words(console), Some("Kernel panic"));
    }

    #[test]
    fn an_ordinary_console_is_no_panic() {
        assert_eq!(last_words("space-host: ready after 5.1 s\n"), None);
    }
}
