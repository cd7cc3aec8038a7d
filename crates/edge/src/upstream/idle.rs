//! Connections that wait for their next request. Bounded in number and time.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use hyper::client::conn::{http1, http2};
use space_runtime::tasks::Tasks;

use super::Place;
use crate::Body;

/// Kept for one port. Each is one of the connections that a sandbox may have, of which others may be in need.
const MOST: usize = 8;
const KEPT: Duration = Duration::from_secs(30);
/// A request that can't be sent twice takes only a connection that waited no longer than this: servers close those that
/// wait, and the notice may still be on its way.
const TRUSTED: Duration = Duration::from_secs(1);
const SWEEP: Duration = Duration::from_secs(5);

struct Waiting<S> {
    since: Instant,
    sender: S,
}

#[derive(Default)]
struct Connections {
    http1: HashMap<Place, Vec<Waiting<http1::SendRequest<Body>>>>,
    http2: HashMap<Place, Waiting<http2::SendRequest<Body>>>,
}

/// Cheap to clone.
#[derive(Clone)]
pub(super) struct Idle {
    connections: Arc<Mutex<Connections>>,
    shutdown: tokio_util::sync::CancellationToken,
}

impl Idle {
    /// With a task that closes those that have waited too long, and all of them at shutdown.
    pub(super) fn start(tasks: &Tasks) -> Self {
        let idle = Self { connections: Arc::default(), shutdown: tasks.shutdown_token() };
        let swept = idle.clone();
        tasks.spawn("idle connections", async move {
            while swept.shutdown.run_until_cancelled(tokio::time::sleep(SWEEP)).await.is_some() {
                swept.sweep();
            }
            *swept.lock() = Connections::default();
        });
        idle
    }

    pub(super) fn take(&self, place: &Place, replayable: bool) -> Option<http1::SendRequest<Body>> {
        let longest = if replayable { KEPT } else { TRUSTED };
        let mut connections = self.lock();
        let waiting = connections.http1.get_mut(place)?;
        // The newest first.
        while let Some(last) = waiting.pop() {
            if last.since.elapsed() >= longest {
                waiting.push(last);
                return None;
            }
            if last.sender.is_ready() {
                return Some(last.sender);
            }
        }
        None
    }

    pub(super) fn put(&self, place: Place, sender: http1::SendRequest<Body>) {
        let mut connections = self.lock();
        let waiting = connections.http1.entry(place).or_default();
        if waiting.len() < MOST && !self.shutdown.is_cancelled() {
            waiting.push(Waiting { since: Instant::now(), sender });
        }
    }

    pub(super) fn shared(&self, place: &Place) -> Option<http2::SendRequest<Body>> {
        let mut connections = self.lock();
        let shared = connections.http2.get_mut(place)?;
        shared.since = Instant::now();
        (!shared.sender.is_closed()).then(|| shared.sender.clone())
    }

    pub(super) fn share(&self, place: Place, sender: http2::SendRequest<Body>) {
        if !self.shutdown.is_cancelled() {
            self.lock().http2.insert(place, Waiting { since: Instant::now(), sender });
        }
    }

    fn sweep(&self) {
        let mut connections = self.lock();
        connections.http1.retain(|_, waiting| {
            waiting.retain(|one| one.since.elapsed() < KEPT && !one.sender.is_closed());
            !waiting.is_empty()
        });
        connections.http2.retain(|_, one| one.since.elapsed() < KEPT && !one.sender.is_closed());
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Connections> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
