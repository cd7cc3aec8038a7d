//! The pool of prepared VMs. One task owns it; claims and deaths arrive as messages.
//!
//! A claim takes a waiting VM at once, or the next one that gets ready. Every claim and every death makes the
//! pool prepare another until it is full again; after a failure it waits before it tries again, except for a
//! claim that somebody is waiting on.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use tokio::{
    sync::{mpsc, oneshot},
    task::JoinSet,
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;

use super::{PrepareError, PreparedVm, SlotMaker};

/// Preparations under way at once.
const PARALLEL: usize = 2;
const PAUSE_AFTER_FAILURE: Duration = Duration::from_secs(2);
const LOOK_FOR_DEATHS: Duration = Duration::from_secs(2);

type Claim = oneshot::Sender<Result<PreparedVm, PrepareError>>;

/// Where claims go.
#[derive(Debug, Clone)]
pub(crate) struct SlotPool {
    claims: mpsc::Sender<Claim>,
}

impl SlotPool {
    /// The pool and the task that keeps `target` VMs waiting; the task ends with `shutdown` and takes the
    /// waiting VMs away.
    pub(crate) fn new(
        maker: Arc<SlotMaker>,
        target: usize,
        shutdown: CancellationToken,
    ) -> (Self, impl Future<Output = ()> + Send) {
        let (claims, queue) = mpsc::channel(64);
        let task = PoolTask {
            maker,
            target,
            ready: VecDeque::new(),
            waiting: VecDeque::new(),
            preparing: JoinSet::new(),
            not_before: Instant::now(),
        };
        (Self { claims }, task.run(queue, shutdown))
    }

    /// A prepared VM, which is the caller's now. Cancel safe: a VM that nobody takes goes back to the pool.
    pub(crate) async fn claim(&self) -> Result<PreparedVm, PrepareError> {
        let (claim, answer) = oneshot::channel();
        self.claims.send(claim).await.map_err(|_stopped| PrepareError::Stopped)?;
        answer.await.map_err(|_stopped| PrepareError::Stopped)?
    }
}

struct PoolTask {
    maker: Arc<SlotMaker>,
    target: usize,
    ready: VecDeque<PreparedVm>,
    waiting: VecDeque<Claim>,
    preparing: JoinSet<Result<PreparedVm, PrepareError>>,
    not_before: Instant,
}

impl PoolTask {
    async fn run(mut self, mut queue: mpsc::Receiver<Claim>, shutdown: CancellationToken) {
        // A pidfd tells of a death by itself, but only to somebody who waits on every one; a waiting VM that
        // died is caught when it is claimed, and this look keeps the pool full in between.
        let mut look = tokio::time::interval(LOOK_FOR_DEATHS);
        loop {
            self.refill();
            tokio::select! {
                () = shutdown.cancelled() => break,
                claim = queue.recv() => match claim {
                    Some(claim) => self.waiting.push_back(claim),
                    None => break,
                },
                Some(done) = self.preparing.join_next() => self.take_prepared(done),
                () = sleep_until(self.not_before), if self.not_before > Instant::now() => {}
                _ = look.tick() => {}
            }
            self.drop_dead();
            self.serve();
            metrics::gauge!("space_node_pool_ready")
                .set(f64::from(u32::try_from(self.ready.len()).unwrap_or(0)));
        }
        self.finish().await;
    }

    fn refill(&mut self) {
        let wanted = if self.not_before > Instant::now() { 0 } else { self.target };
        let wanted = (wanted + self.waiting.len()).saturating_sub(self.ready.len());
        while self.preparing.len() < wanted.min(PARALLEL) {
            let maker = Arc::clone(&self.maker);
            self.preparing.spawn(async move { maker.prepare().await });
        }
    }

    fn take_prepared(&mut self, done: Result<Result<PreparedVm, PrepareError>, tokio::task::JoinError>) {
        match done.unwrap_or(Err(PrepareError::Stopped)) {
            Ok(prepared) => self.ready.push_back(prepared),
            Err(error) => {
                self.not_before = Instant::now() + PAUSE_AFTER_FAILURE;
                metrics::counter!("space_node_slot_failures_total").increment(1);
                match self.waiting.pop_front() {
                    Some(claim) => drop(claim.send(Err(error))),
                    None => {
                        tracing::warn!(error = %space_runtime::telemetry::chain(&error), "cannot fill the pool");
                    }
                }
            }
        }
    }

    fn drop_dead(&mut self) {
        let (dead, alive) = self.ready.drain(..).partition(|prepared| prepared.process.has_ended());
        self.ready = alive;
        for prepared in Vec::<PreparedVm>::from(dead) {
            tracing::warn!(vm = %prepared.place.vm, "a waiting Firecracker died");
            metrics::counter!("space_node_pool_deaths_total").increment(1);
            let maker = Arc::clone(&self.maker);
            tokio::spawn(async move { remove(&maker, prepared).await });
        }
    }

    fn serve(&mut self) {
        while let Some(prepared) = self.ready.pop_front() {
            let Some(claim) = self.waiting.pop_front() else {
                self.ready.push_front(prepared);
                return;
            };
            if let Err(Ok(untaken)) = claim.send(Ok(prepared)) {
                self.ready.push_front(untaken);
            }
        }
    }

    async fn finish(mut self) {
        while let Some(done) = self.preparing.join_next().await {
            self.take_prepared(done);
        }
        for prepared in self.ready.drain(..) {
            remove(&self.maker, prepared).await;
        }
    }
}

async fn remove(maker: &SlotMaker, prepared: PreparedVm) {
    let place = prepared.place;
    if let Err(error) = maker.releaser.remove(place).await {
        let error = space_runtime::telemetry::chain(&error);
        tracing::error!(vm = %place.vm, error, "cannot remove a waiting VM; the next start will");
    } else {
        // Reaps the child.
        prepared.process.ended().await;
    }
}
