//! Signs of life on standard error for what takes long enough to wonder about: a spinner, or for a transfer a bar.
//! Never in a pipe or a log.

use std::{
    future::Future,
    sync::{Arc, Once},
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Nothing is shown for what takes less.
const PATIENCE: Duration = Duration::from_millis(700);

/// Runs `work`, with a spinner and `message` once it takes long.
pub(crate) async fn during<T>(message: &str, work: impl Future<Output = T>) -> T {
    tokio::pin!(work);
    tokio::select! {
        done = &mut work => return done,
        () = tokio::time::sleep(PATIENCE) => {}
    }
    let spinner = spinner(message);
    let done = work.await;
    spinner.finish_and_clear();
    done
}

/// The progress of a transfer, shown once it takes long. Clones show the same one.
#[derive(Debug, Clone)]
pub(crate) struct Transfer {
    bar: ProgressBar,
    begun: Instant,
    show: Arc<Once>,
}

impl Transfer {
    /// `total` bytes, if that is known.
    pub(crate) fn new(message: &'static str, total: Option<u64>) -> Self {
        let bar = ProgressBar::with_draw_target(total, ProgressDrawTarget::hidden()).with_message(message);
        let template = match total {
            Some(_) => "{msg} {bar:30} {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left",
            None => "{spinner} {msg} {bytes}, {bytes_per_sec}",
        };
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        Self { bar, begun: Instant::now(), show: Arc::new(Once::new()) }
    }

    /// How many bytes there are by now.
    pub(crate) fn set(&self, bytes: u64) {
        if self.begun.elapsed() > PATIENCE {
            // Still hidden where that is no terminal.
            self.show.call_once(|| self.bar.set_draw_target(ProgressDrawTarget::stderr()));
        }
        self.bar.set_position(bytes);
    }

    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

fn spinner(message: &str) -> ProgressBar {
    // Standard error; hidden by itself where that is no terminal.
    let bar =
        ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr()).with_message(message.to_owned());
    if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} {elapsed}") {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(100));
    bar
}
