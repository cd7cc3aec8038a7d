//! Named, tracked tasks and an ordered end.
//!
//! A daemon makes one [`Tasks`]. SIGTERM or SIGINT ([`Tasks::until_signal`]) cancels the token that every task
//! watches; [`Tasks::finish`] then waits for them up to a deadline and names those that did not end. A task that
//! panics brings the whole process down in order: a daemon that lost one of its tasks is not healthy.

use std::{
    collections::BTreeMap,
    future::Future,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

#[derive(Debug, Clone, Default)]
pub struct Tasks {
    tracker: TaskTracker,
    shutdown: CancellationToken,
    running: Arc<Mutex<BTreeMap<&'static str, usize>>>,
}

impl Tasks {
    pub fn new() -> Self {
        Self::default()
    }

    /// Cancelled when the process is to end. Child tokens are for parts that end earlier.
    pub fn shutdown_token(&self) -> CancellationToken {
        self.shutdown.clone()
    }

    /// Begins the end.
    pub fn shutdown(&self) {
        self.shutdown.cancel();
    }

    /// Runs `future` as a task with a name. It should watch [`Tasks::shutdown_token`].
    pub fn spawn<F>(&self, name: &'static str, future: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let guard = Running::enter(name, self.clone());
        self.tracker.spawn(async move {
            let _guard = guard;
            future.await;
        });
    }

    /// As [`Tasks::spawn`], but `future` is simply dropped at shutdown. For work without an end of its own
    /// that may stop at any await.
    pub fn spawn_cancellable<F>(&self, name: &'static str, future: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let token = self.shutdown.clone();
        self.spawn(name, async move {
            token.run_until_cancelled_owned(future).await;
        });
    }

    /// Returns when the process was asked to end, by SIGTERM, SIGINT or [`Tasks::shutdown`].
    pub async fn until_signal(&self) -> std::io::Result<()> {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        tokio::select! {
            _ = terminate.recv() => tracing::info!(signal = "SIGTERM", "asked to end"),
            _ = interrupt.recv() => tracing::info!(signal = "SIGINT", "asked to end"),
            () = self.shutdown.cancelled() => {}
        }
        self.shutdown.cancel();
        Ok(())
    }

    /// Cancels everything and waits; answers the names of the tasks that did not end by then.
    pub async fn finish(&self, deadline: Duration) -> Vec<&'static str> {
        self.shutdown.cancel();
        self.tracker.close();
        if tokio::time::timeout(deadline, self.tracker.wait()).await.is_ok() {
            return Vec::new();
        }
        let left: Vec<_> =
            self.running.lock().unwrap_or_else(PoisonError::into_inner).keys().copied().collect();
        tracing::warn!(tasks = ?left, "tasks did not end in time");
        left
    }
}

/// Counts a task while it lives, also when it panics.
struct Running {
    name: &'static str,
    tasks: Tasks,
}

impl Running {
    fn enter(name: &'static str, tasks: Tasks) -> Self {
        *tasks.running.lock().unwrap_or_else(PoisonError::into_inner).entry(name).or_default() += 1;
        Self { name, tasks }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if std::thread::panicking() {
            tracing::error!(task = self.name, "task panicked; ending the process");
            self.tasks.shutdown.cancel();
        }
        let mut running = self.tasks.running.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = running.get_mut(self.name) {
            *count -= 1;
            if *count == 0 {
                running.remove(self.name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn finish_waits_for_a_task_that_watches_the_token() {
        let tasks = Tasks::new();
        let token = tasks.shutdown_token();
        tasks.spawn("watcher", async move { token.cancelled().await });
        assert!(tasks.finish(Duration::from_secs(5)).await.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn finish_names_a_task_that_hangs() {
        let tasks = Tasks::new();
        tasks.spawn("stuck", std::future::pending());
        assert_eq!(tasks.finish(Duration::from_secs(1)).await, ["stuck"]);
    }

    #[tokio::test]
    async fn a_panicking_task_ends_the_process_in_order() {
        let tasks = Tasks::new();
        tasks.spawn("bad", async { panic!("on purpose") });
        tasks.until_signal().await.unwrap();
        assert!(tasks.finish(Duration::from_secs(5)).await.is_empty());
    }

    #[tokio::test]
    async fn a_cancellable_task_needs_no_token() {
        let tasks = Tasks::new();
        tasks.spawn_cancellable("forever", std::future::pending());
        assert!(tasks.finish(Duration::from_secs(5)).await.is_empty());
    }
}
