//! How a sandbox's owner lets go: of a VM that ended, and of everything when it is removed.

use space_runtime::telemetry::chain;
use tokio::time::timeout;

use super::{
    Ending, VmError,
    boot::{Outcome, remove_vm, unready_reason},
    classify,
    classify::Hint,
    driver::{Driver, Reply, hint_of, send},
    requests::{Admission, Request, admit},
};
use crate::{
    fail_point,
    journal::{Phase, VmStage},
    sys::ExitStatus,
    worker::WorkerEvent,
};

impl Driver {
    pub(super) async fn event(&mut self, event: WorkerEvent) {
        match event {
            WorkerEvent::Ready { .. } => {}
            WorkerEvent::Hint(kind) => self.hint = hint_of(kind).or(self.hint),
            WorkerEvent::Unready(reason) => {
                let Some(vm) = &self.vm else { return };
                let (reason, message) = unready_reason(reason);
                if let Err(error) = vm.kill() {
                    tracing::error!(sandbox = %self.sandbox, %error, "cannot kill a VM");
                }
                self.conclude(Ending::Failed(reason), message).await;
            }
        }
    }

    pub(super) async fn ended(&mut self, status: ExitStatus) {
        fail_point::END_SEEN.pass();
        let Some(vm) = &self.vm else { return };
        let out_of_memory = vm.ran_out_of_memory();
        let orderly = matches!(status, ExitStatus::Code(0) | ExitStatus::Unknown);
        if orderly && self.hint.is_none() {
            self.hint = self.late_hint().await;
        }
        let ending = classify(status, out_of_memory, self.hint);
        tracing::info!(sandbox = %self.sandbox, ?status, out_of_memory, hint = ?self.hint, ?ending, "a VM ended");
        self.conclude(ending, "").await;
    }

    /// A hint that is still on its way through the worker.
    async fn late_hint(&mut self) -> Option<Hint> {
        let events = self.events.as_mut()?;
        let waiting = timeout(self.node.config.deadlines.hint(), async {
            while let Some(event) = events.recv().await {
                if let WorkerEvent::Hint(kind) = event
                    && let Some(hint) = hint_of(kind)
                {
                    return Some(hint);
                }
            }
            None
        });
        waiting.await.unwrap_or(None)
    }

    /// The VM is over: names it, lets go of everything but the disk.
    async fn conclude(&mut self, ending: Ending, message: &str) {
        let Some(vm) = self.vm.take() else { return };
        self.enter(ending.into(), message);
        let Some(record) = self.record.clone() else { return };
        let (tenant, place) = (record.tenant, vm.place);
        if let Err(error) = self.node.journal.put_sandbox_and_vm(record, place.vm, VmStage::Ended).await {
            tracing::error!(sandbox = %self.sandbox, error = %chain(&error), "cannot journal an end");
        }
        fail_point::END_RECORDED.pass();
        metrics::counter!("space_node_ends_total").increment(1);
        self.publish();
        self.node.workers.release(tenant, self.sandbox).await;
        if let Err(error) = self.node.releaser.end(place).await {
            tracing::error!(sandbox = %self.sandbox, error = %chain(&error), "cannot let go of a VM that ended");
        }
        self.node.ledger.release(self.sandbox);
    }

    pub(super) async fn remove(&mut self, generation: u64, reply: Reply<()>) {
        match admit(self.life(), Request::Remove { generation }) {
            Admission::Begin | Admission::Join | Admission::Refresh => {
                let removed = self.remove_now(generation).await;
                send(reply, removed);
            }
            Admission::AlreadyDone => send(reply, Ok(())),
            Admission::Denied(denial) => send(reply, Err(denial.into())),
        }
    }

    async fn remove_now(&mut self, generation: u64) -> Result<(), VmError> {
        self.cancel_boot().await;
        let Some(record) = &mut self.record else { return Ok(()) };
        record.generation = generation;
        record.enter(Phase::Removing, "");
        let (tenant, vm) = (record.tenant, record.vm);
        self.put().await?;
        fail_point::REMOVE_RECORDED.pass();
        self.node.workers.release(tenant, self.sandbox).await;
        fail_point::REMOVE_RELEASED.pass();
        if let Some(vm) = vm {
            remove_vm(&self.node, vm).await.map_err(|error| {
                tracing::error!(sandbox = %self.sandbox, error = %chain(error.as_ref()), "cannot remove a VM");
                VmError::Internal
            })?;
        }
        // Reaps Firecracker, which is dead by now.
        self.vm = None;
        self.node.ledger.release(self.sandbox);
        self.enter(Phase::Absent, "");
        if let Some(record) = &mut self.record {
            record.vm = None;
            record.config = space_node_proto::node::SandboxConfig::default();
        }
        self.put().await?;
        fail_point::REMOVE_FORGOTTEN.pass();
        metrics::counter!("space_node_removals_total").increment(1);
        self.publish();
        Ok(())
    }

    /// A boot under way is told to stop and waited for. Those who wait for it learn that it was cancelled;
    /// what it made stays in its record, for the removal.
    pub(super) async fn cancel_boot(&mut self) {
        let Some((task, cancel)) = self.boot.take() else { return };
        cancel.cancel();
        match task.await {
            Ok(booted) => {
                self.record = Some(booted.record);
                self.events = Some(booted.events);
                if let Outcome::Running { vm, .. } = booted.outcome {
                    self.vm = Some(vm);
                }
            }
            Err(error) => tracing::error!(sandbox = %self.sandbox, %error, "a boot panicked"),
        }
        for reply in self.waiting.drain(..) {
            send(reply, Err(VmError::Cancelled));
        }
    }
}
