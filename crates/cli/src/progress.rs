//! A spinner on standard error for what takes long enough to wonder about. Never in a pipe or a log.

use std::{future::Future, time::Duration};

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
