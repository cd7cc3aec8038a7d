//! From an admitted request to an agent that answered, one step after the other.
//!
//! Before each step the journal says what may exist after it, and whatever goes wrong takes everything away
//! again. Cancelling is asked for, not done by dropping: a step that has begun is finished, so that nothing
//! goes on behind the back of the removal that follows.

use std::{io, sync::Arc};

use camino::Utf8PathBuf;
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use space_node_proto::worker::UnreadyReason;
use space_runtime::telemetry::chain;
use space_types::{ByteSize, Reason};
use tokio::{
    sync::mpsc,
    time::{Duration, Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;

use super::{Ending, LiveVm, NodeContext, VmError, classify, driver::hint_of};
use crate::{
    cgroup::CgroupLimits,
    disk::{CloneDiskError, clone_disk},
    fail_point,
    fc::{FirecrackerClient, FirecrackerError, MachineShape, claim_calls, start_call},
    image::ImageError,
    journal::{JournalError, SandboxRecord, VmStage},
    place::{Place, jail_names},
    slot::{BootGuard, PrepareError, PreparedVm},
    worker::{AssignError, Assignment, WorkerEvent},
};

/// What a boot came to.
#[derive(Debug)]
pub(super) enum Outcome {
    Running {
        vm: LiveVm,
        address: String,
    },
    /// It is over; everything of the VM is gone, the sandbox stays as a record.
    Failed {
        ending: Ending,
        message: String,
    },
    /// As if it had never been asked for.
    Refused(VmError),
    /// Cancelled by a removal; whatever is left of the VM is the removal's.
    Cancelled,
}

/// Why a step did not come to its end.
enum Stop {
    Ended(Ending, String),
    Refused(VmError),
    Cancelled,
}

pub(super) struct Boot {
    pub(super) node: Arc<NodeContext>,
    pub(super) record: SandboxRecord,
    pub(super) events: mpsc::Receiver<WorkerEvent>,
    pub(super) events_sender: mpsc::Sender<WorkerEvent>,
    pub(super) cancel: CancellationToken,
}

/// The record and the events come back to the owner.
pub(super) struct Booted {
    pub(super) record: SandboxRecord,
    pub(super) events: mpsc::Receiver<WorkerEvent>,
    pub(super) outcome: Outcome,
}

/// Tasks of a VM besides one for each vCPU.
const VMM_TASKS: u32 = 64;
/// Of a processor, for the VMM's own threads, in hundredths.
const VMM_CPU_PERCENT: u32 = 25;
/// The worker has the same deadline and says more about why; it gets to say it.
const WORKER_SPEAKS_FIRST: Duration = Duration::from_secs(5);

impl Boot {
    pub(super) async fn run(mut self) -> Booted {
        let outcome = match self.start().await {
            Ok((vm, address)) => Outcome::Running { vm, address },
            Err(Stop::Cancelled) => Outcome::Cancelled,
            Err(Stop::Ended(ending, message)) => match self.take_away().await {
                Ok(()) => Outcome::Failed { ending, message },
                Err(error) => Outcome::Refused(error),
            },
            Err(Stop::Refused(refusal)) => match self.take_away().await {
                Ok(()) => Outcome::Refused(refusal),
                Err(error) => Outcome::Refused(error),
            },
        };
        Booted { record: self.record, events: self.events, outcome }
    }

    async fn start(&mut self) -> Result<(LiveVm, String), Stop> {
        let image = self.fetch_image().await?;
        fail_point::ENSURE_IMAGE_READY.pass();
        let (prepared, _under_way) = self.claim_slot().await?;
        let PreparedVm { place, process, jail, cgroup, mut api } = prepared;
        let vm = LiveVm { place, process, jail: Arc::new(jail), cgroup };
        self.clone_disk(&vm, image).await?;
        fail_point::ENSURE_DISK_CLONED.pass();
        self.configure(&vm, &mut api).await?;
        fail_point::ENSURE_CONFIGURED.pass();
        self.check_cancelled()?;
        api.put(start_call()).await.map_err(not_started)?;
        fail_point::ENSURE_STARTED.pass();
        let deadline = Instant::now() + self.node.config.deadlines.boot();
        let address = self.assign(&vm).await?;
        fail_point::ENSURE_ASSIGNED.pass();
        self.wait_for_agent(&vm, deadline).await?;
        fail_point::ENSURE_AGENT_READY.pass();
        Ok((vm, address))
    }

    async fn fetch_image(&self) -> Result<Utf8PathBuf, Stop> {
        let config = &self.node.config;
        if !config.room().exceeds(config.capacity.disk_reserve()).map_err(|error| failed(&error))? {
            return Err(no_disk_space());
        }
        let template = self.record.config.template.clone().unwrap_or_default();
        tokio::select! {
            () = self.cancel.cancelled() => Err(Stop::Cancelled),
            fetched = self.node.images.ensure(&template) => fetched.map_err(|error| match error {
                ImageError::NoSpace => no_disk_space(),
                ImageError::Stopped => Stop::Refused(VmError::Stopping),
                ImageError::Digest(_)
                | ImageError::Location(_)
                | ImageError::Read { .. }
                | ImageError::Write { .. }
                | ImageError::Size { .. }
                | ImageError::Content { .. } => {
                    tracing::warn!(sandbox = %self.record.id, error = %chain(&error), "no image");
                    Stop::Ended(Ending::Failed(Reason::TemplateUnavailable), error.to_string())
                }
            }),
        }
    }

    async fn claim_slot(&mut self) -> Result<(PreparedVm, BootGuard), Stop> {
        let claimed = tokio::select! {
            () = self.cancel.cancelled() => return Err(Stop::Cancelled),
            claimed = self.node.pool.claim() => claimed,
        };
        let (prepared, under_way) = claimed.map_err(|error| match error {
            PrepareError::Journal(JournalError::NoSlot) => exhausted(Reason::NoCapacity, "no slot is free"),
            PrepareError::Stopped => Stop::Refused(VmError::Stopping),
            PrepareError::Make { source, .. } if is_full(&source) => no_disk_space(),
            PrepareError::Firecracker(error) => not_started(error),
            PrepareError::Journal(_)
            | PrepareError::Make { .. }
            | PrepareError::Jail(_)
            | PrepareError::Spawn(_)
            | PrepareError::Died(_)
            | PrepareError::Release(_) => failed(&error),
        })?;
        fail_point::ENSURE_SLOT_CLAIMED.pass();
        // Known to ourselves first: if the journal fails now, the VM is taken away all the same.
        self.record.vm = Some(prepared.place.vm);
        let written =
            self.node.journal.put_sandbox_and_vm(self.record.clone(), prepared.place.vm, VmStage::Claimed);
        written.await.map_err(|error| failed(&error))?;
        fail_point::ENSURE_VM_MAPPED.pass();
        self.check_cancelled()?;
        Ok((prepared, under_way))
    }

    async fn clone_disk(&self, vm: &LiveVm, image: Utf8PathBuf) -> Result<(), Stop> {
        let size = ByteSize::bytes(self.record.config.disk_bytes);
        let uid = self.node.layout.uid(vm.place.slot);
        let jail = Arc::clone(&vm.jail);
        let cloning =
            tokio::task::spawn_blocking(move || clone_disk(&image, &jail, jail_names::DISK, size, uid));
        let cloned = cloning.await.map_err(|error| failed(&error))?;
        cloned.map_err(|error| match error {
            CloneDiskError::NoSpace => no_disk_space(),
            CloneDiskError::Image { .. }
            | CloneDiskError::Jail(_)
            | CloneDiskError::TooSmall { .. }
            | CloneDiskError::Reflink(_)
            | CloneDiskError::Finish(_) => failed(&error),
        })
    }

    /// Limits first, then the machine: it must never have more than it may.
    async fn configure(&self, vm: &LiveVm, api: &mut FirecrackerClient) -> Result<(), Stop> {
        let config = &self.record.config;
        let memory = ByteSize::bytes(config.memory_bytes);
        let overhead = self.node.config.capacity.overhead().as_bytes();
        let limits = CgroupLimits {
            memory: ByteSize::bytes(config.memory_bytes.saturating_add(overhead)),
            cpu_percent: config.vcpus.saturating_mul(100) + VMM_CPU_PERCENT,
            tasks: VMM_TASKS + config.vcpus,
        };
        vm.cgroup.limit(limits).map_err(|error| failed(&error))?;
        limit_files(vm.process.identity().pid, config.disk_bytes).map_err(|error| failed(&error))?;
        let shape = MachineShape { vcpus: config.vcpus, memory };
        api.put_all(claim_calls(shape)).await.map_err(not_started)
    }

    async fn assign(&self, vm: &LiveVm) -> Result<String, Stop> {
        let assignment = Assignment {
            sandbox: self.record.id,
            generation: self.record.generation,
            hostname: self.record.config.hostname.clone(),
            env: self.record.config.env.clone(),
            fresh: true,
            console: self.node.layout.console(vm.place.vm),
            spool: self.node.layout.spool(vm.place.vm),
            jail: Arc::clone(&vm.jail),
            events: self.events_sender.clone(),
        };
        tokio::select! {
            () = self.cancel.cancelled() => Err(Stop::Cancelled),
            assigned = self.node.workers.assign(self.record.tenant, assignment) => {
                assigned.map_err(|error| match error {
                    AssignError::Stopped => Stop::Refused(VmError::Stopping),
                    AssignError::NoWorker => failed(&error),
                })
            }
        }
    }

    async fn wait_for_agent(&mut self, vm: &LiveVm, deadline: Instant) -> Result<(), Stop> {
        let deadline = deadline + WORKER_SPEAKS_FIRST;
        let mut hint = None;
        loop {
            tokio::select! {
                () = self.cancel.cancelled() => return Err(Stop::Cancelled),
                () = sleep_until(deadline) => {
                    let message = "the agent did not answer in time";
                    return Err(Stop::Ended(Ending::Failed(Reason::AgentSilent), message.to_owned()));
                }
                status = vm.ended() => {
                    let ending = classify(status, vm.ran_out_of_memory(), hint);
                    return Err(Stop::Ended(ending, "the VM ended while it booted".to_owned()));
                }
                event = self.events.recv() => match event {
                    Some(WorkerEvent::Ready { agent_version }) => {
                        self.record.agent_version = agent_version;
                        return Ok(());
                    }
                    Some(WorkerEvent::Unready(reason)) => {
                        let (reason, message) = unready_reason(reason);
                        return Err(Stop::Ended(Ending::Failed(reason), message.to_owned()));
                    }
                    Some(WorkerEvent::Hint(kind)) => hint = hint_of(kind).or(hint),
                    // We hold a sender ourselves.
                    None => return Err(Stop::Cancelled),
                },
            }
        }
    }

    /// Removes what there is of the VM.
    async fn take_away(&mut self) -> Result<(), VmError> {
        let Some(vm) = self.record.vm else { return Ok(()) };
        self.node.workers.release(self.record.tenant, self.record.id).await;
        let removed = remove_vm(&self.node, vm).await;
        removed.map_err(|error| {
            tracing::error!(sandbox = %self.record.id, error = %chain(error.as_ref()), "cannot take a VM away");
            VmError::Internal
        })?;
        self.record.vm = None;
        Ok(())
    }

    fn check_cancelled(&self) -> Result<(), Stop> {
        if self.cancel.is_cancelled() { Err(Stop::Cancelled) } else { Ok(()) }
    }
}

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Removes every trace of a VM that the journal knows. Idempotent.
pub(super) async fn remove_vm(node: &NodeContext, vm: crate::place::VmId) -> Result<(), BoxError> {
    let known = node.journal.vms().await?.into_iter().find(|known| known.place.vm == vm);
    if let Some(known) = known {
        let place: Place = known.place;
        node.releaser.remove(place).await?;
    }
    Ok(())
}

pub(super) fn unready_reason(reason: UnreadyReason) -> (Reason, &'static str) {
    match reason {
        UnreadyReason::Silent | UnreadyReason::Unspecified => {
            (Reason::AgentSilent, "the agent did not answer in time")
        }
        UnreadyReason::Protocol => (Reason::AgentProtocol, "the agent broke the protocol"),
        UnreadyReason::Version => {
            (Reason::AgentProtocol, "the agent speaks a version that nobody here knows")
        }
    }
}

/// The disk is the largest file that this Firecracker ever needs to write.
fn limit_files(pid: i32, largest: u64) -> io::Result<()> {
    let limit = Rlimit { current: Some(largest), maximum: Some(largest) };
    prlimit(Pid::from_raw(pid), Resource::Fsize, limit)?;
    Ok(())
}

fn failed(error: &(dyn std::error::Error + 'static)) -> Stop {
    tracing::error!(error = %chain(error), "a boot failed");
    Stop::Ended(
        Ending::Failed(Reason::NodeError),
        "the node could not start the VM; its log says why".to_owned(),
    )
}

/// A Firecracker that gives no answer in time is one that got no processor: the same boot goes well when fewer others
/// are under way, so it is refused, and control asks again for as long as the create may last.
fn not_started(error: FirecrackerError) -> Stop {
    match error {
        FirecrackerError::Deadline { path } => {
            tracing::warn!(path, "Firecracker does not answer; the boot is given up");
            Stop::Refused(VmError::Busy)
        }
        FirecrackerError::Socket(_)
        | FirecrackerError::Http { .. }
        | FirecrackerError::Request { .. }
        | FirecrackerError::Refused { .. } => failed(&error),
    }
}

fn exhausted(reason: Reason, message: &str) -> Stop {
    Stop::Refused(VmError::Exhausted { reason, message: message.to_owned() })
}

/// The sandbox stays as a record that says so: unlike memory, space is not counted when a node is chosen, so
/// trying again would end here again.
fn no_disk_space() -> Stop {
    Stop::Ended(Ending::Failed(Reason::NoDiskSpace), "the node's disk pool is full".to_owned())
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_firecracker_without_processor_time_refuses_the_boot_and_fails_no_sandbox() {
        let late = FirecrackerError::Deadline { path: "/actions".to_owned() };
        assert!(matches!(not_started(late), Stop::Refused(VmError::Busy)));
        let broken = FirecrackerError::Socket(io::Error::from(io::ErrorKind::ConnectionReset));
        assert!(matches!(not_started(broken), Stop::Ended(Ending::Failed(Reason::NodeError), _)));
    }
}
