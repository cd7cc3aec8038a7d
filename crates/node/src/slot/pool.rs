//! The pool of prepared VMs. One task owns it; claims and deaths arrive as messages.
//!
//! A claim takes a waiting VM at once, or the next one that gets ready. Every claim and every death makes the
//! pool prepare another until it is full again; after a failure it waits before it tries again, except for a
//! claim that somebody is waiting on.
//!
//! While a claimed VM boots, somebody waits for it, and for a waiting VM nobody does: the pool then prepares only the
//! one that the next claim would take.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use tokio::{
    sync::{mpsc, oneshot, watch},
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

/// The boot of a claimed VM is under way for as long as this lives.
#[derive(Debug)]
pub(crate) struct BootGuard(watch::Sender<usize>);

impl BootGuard {
    fn new(boots: &watch::Sender<usize>) -> Self {
        boots.send_modify(|under_way| *under_way += 1);
        Self(boots.clone())
    }
}

impl Drop for BootGuard {
    fn drop(&mut self) {
        self.0.send_modify(|under_way| *under_way -= 1);
    }
}

/// Where claims go.
#[derive(Debug, Clone)]
pub(crate) struct SlotPool {
    claims: mpsc::Sender<Claim>,
    boots: watch::Sender<usize>,
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
        let (boots, under_way) = watch::channel(0);
        let task = PoolTask {
            maker,
            target,
            ready: VecDeque::new(),
            waiting: VecDeque::new(),
            preparing: JoinSet::new(),
            not_before: Instant::now(),
            boots: under_way,
        };
        (Self { claims, boots }, task.run(queue, shutdown))
    }

    /// A prepared VM, which is the caller's now, and what to hold while it boots. Cancel safe: a VM that nobody takes
    /// goes back to the pool.
    pub(crate) async fn claim(&self) -> Result<(PreparedVm, BootGuard), PrepareError> {
        let boot = BootGuard::new(&self.boots);
        let (claim, answer) = oneshot::channel();
        self.claims.send(claim).await.map_err(|_stopped| PrepareError::Stopped)?;
        let prepared = answer.await.map_err(|_stopped| PrepareError::Stopped)??;
        Ok((prepared, boot))
    }
}

struct PoolTask {
    maker: Arc<SlotMaker>,
    target: usize,
    ready: VecDeque<PreparedVm>,
    waiting: VecDeque<Claim>,
    preparing: JoinSet<Result<PreparedVm, PrepareError>>,
    not_before: Instant,
    /// How many claimed VMs boot.
    boots: watch::Receiver<usize>,
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
                Ok(()) = self.boots.changed() => {}
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
        let target = if self.not_before > Instant::now() { 0 } else { self.target };
        let boots = *self.boots.borrow_and_update();
        let wanted = wanted(target, boots, self.waiting.len(), self.ready.len());
        while self.preparing.len() < wanted {
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

/// How many preparations should be under way.
fn wanted(target: usize, boots: usize, waiting: usize, ready: usize) -> usize {
    let target = if boots > 0 { target.min(1) } else { target };
    (target + waiting).saturating_sub(ready).min(PARALLEL)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_boot_goes_before_filling_the_pool_and_a_claim_before_everything() {
        for (target, boots, waiting, ready, expected) in [
            (4, 0, 0, 4, 0),
            (4, 0, 0, 3, 1),
            (4, 1, 0, 3, 0),
            (4, 1, 0, 0, 1),
            (4, 1, 1, 0, 2),
            (0, 1, 1, 0, 1),
            (0, 0, 0, 0, 0),
            (9, 0, 9, 0, PARALLEL),
        ] {
            let found = wanted(target, boots, waiting, ready);
            assert_eq!(found, expected, "{target} {boots} {waiting} {ready}");
        }
    }

    #[test]
    fn a_boot_counts_for_as_long_as_its_guard_lives() {
        let (boots, count) = watch::channel(0);
        let (first, second) = (BootGuard::new(&boots), BootGuard::new(&boots));
        assert_eq!(*count.borrow(), 2);
        drop((first, second));
        assert_eq!(*count.borrow(), 0);
    }
}
