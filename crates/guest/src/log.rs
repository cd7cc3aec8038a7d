//! Lines for whoever reads the guest's console or `dmesg`: few, and never from a guest's process.
//!
//! They go to `/dev/kmsg`, which stamps them and never blocks; to stderr where that can't be opened. With the
//! kernel's `quiet` only errors reach the console.

use std::{
    fmt::Arguments,
    fs::{File, OpenOptions},
    io::Write,
    sync::OnceLock,
};

static KERNEL_LOG: OnceLock<File> = OnceLock::new();

/// Sends what follows to the kernel's log.
pub(crate) fn use_kernel_log() {
    if let Ok(file) = OpenOptions::new().write(true).open("/dev/kmsg") {
        // A second call changes nothing, and the file it opened is closed.
        drop(KERNEL_LOG.set(file));
    }
}

pub(crate) fn info(text: Arguments<'_>) {
    line(6, text);
}

pub(crate) fn error(text: Arguments<'_>) {
    line(3, text);
}

/// One write per line, as `/dev/kmsg` wants it. There is nowhere to report that a log line was lost.
fn line(level: u8, text: Arguments<'_>) {
    let written = match KERNEL_LOG.get() {
        Some(mut file) => file.write_all(format!("<{level}>space-guestd: {text}\n").as_bytes()),
        None => std::io::stderr().write_all(format!("space-guestd: {text}\n").as_bytes()),
    };
    drop(written);
}
