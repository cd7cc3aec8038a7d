//! At the start: what the journal says against what is there.
//!
//! | the journal says | what is done |
//! |---|---|
//! | VM preparing, pooled or removing | removed |
//! | VM claimed by a running sandbox, and its process lives | adopted |
//! | the same, and it does not | the sandbox has ended: `node_restarted` after a reboot, `vmm_died` otherwise |
//! | VM claimed by a sandbox that was booting | removed with the sandbox: nobody was told that it runs |
//! | VM claimed by no sandbox | removed |
//! | VM ended | its process side is let go of again |
//! | sandbox removing | its removal is finished |
//! | anything in our directories that the journal does not know | removed |
//!
//! Workers die with the daemon; what is left of one is killed with its cgroup.

mod stray;

use std::{
    collections::HashSet,
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use space_runtime::telemetry::chain;
use space_types::Reason;

use crate::{
    cgroup::CgroupParent,
    disk::{JailDir, JailError},
    journal::{Journal, JournalError, Phase, SandboxRecord, VmRecord, VmStage},
    place::{Layout, VmId},
    slot::{ReleaseError, Releaser},
    sys::Pidfd,
    vm::{LiveVm, Observations, Survivor},
};

#[derive(Debug, thiserror::Error)]
pub(crate) enum AdoptError {
    #[error(transparent)]
    Journal(#[from] JournalError),
    #[error(transparent)]
    Release(#[from] ReleaseError),
    #[error(transparent)]
    Jail(#[from] JailError),
    #[error("cannot look at a process")]
    Process(#[source] std::io::Error),
    #[error("cannot clear away what the journal does not know")]
    Stray(#[source] std::io::Error),
}

/// What is left after the journal and the machine agree.
#[derive(Debug, Default)]
pub(crate) struct Adopted {
    /// Sandboxes whose VM runs.
    pub(crate) running: Vec<(SandboxRecord, Survivor)>,
    /// Sandboxes that have ended.
    pub(crate) ended: Vec<SandboxRecord>,
    /// Sandboxes whose removal must be finished.
    pub(crate) removing: Vec<SandboxRecord>,
}

#[derive(Debug)]
pub(crate) struct Adopter {
    pub(crate) layout: Layout,
    pub(crate) journal: Journal,
    pub(crate) releaser: Releaser,
    pub(crate) cgroups: CgroupParent,
    /// What workers listen on.
    pub(crate) worker_ip: IpAddr,
    /// The machine has booted since the journal was written.
    pub(crate) rebooted: bool,
}

impl Adopted {
    /// Says of everything that was found what it is. Before the first heartbeat: control takes what a heartbeat
    /// leaves out for lost, and an owner may wait long for its worker before it has something to say.
    pub(crate) fn publish(&self, observations: &Observations, vmm_version: &str) {
        for (record, survivor) in &self.running {
            observations.publish(record.id, record.observed(&survivor.address, vmm_version));
        }
        for record in self.ended.iter().chain(&self.removing) {
            observations.publish(record.id, record.observed("", vmm_version));
        }
    }
}

impl Adopter {
    /// Brings both into agreement.
    pub(crate) async fn run(&self) -> Result<Adopted, AdoptError> {
        let vms = self.journal.vms().await?;
        let mut adopted = Adopted::default();
        let mut kept = HashSet::new();
        for record in self.journal.sandboxes().await? {
            let vm = record.vm.and_then(|id| vms.iter().find(|vm| vm.place.vm == id));
            self.settle(record, vm, &mut adopted, &mut kept).await?;
        }
        for vm in &vms {
            if !kept.contains(&vm.place.vm) {
                tracing::info!(vm = %vm.place.vm, stage = ?vm.stage, "an orphaned VM is removed");
                self.releaser.remove(vm.place).await?;
            }
        }
        stray::sweep(&self.layout, &kept, &vms).map_err(AdoptError::Stray)?;
        Ok(adopted)
    }

    async fn settle(
        &self,
        record: SandboxRecord,
        vm: Option<&VmRecord>,
        adopted: &mut Adopted,
        kept: &mut HashSet<VmId>,
    ) -> Result<(), AdoptError> {
        match record.phase {
            Phase::Absent => {}
            Phase::Booting => {
                tracing::info!(sandbox = %record.id, "a boot that was cut off is undone");
                if let Some(vm) = vm {
                    self.releaser.remove(vm.place).await?;
                    kept.insert(vm.place.vm);
                }
                self.journal.drop_sandbox(record.id).await?;
            }
            Phase::Running => self.settle_running(record, vm, adopted, kept).await?,
            Phase::Stopped(_) | Phase::Failed(_) => {
                if let Some(vm) = vm {
                    self.releaser.end(vm.place).await?;
                    kept.insert(vm.place.vm);
                }
                adopted.ended.push(record);
            }
            Phase::Removing => {
                // Its owner finishes it; the VM stays in the journal for that.
                kept.extend(record.vm);
                adopted.removing.push(record);
            }
        }
        Ok(())
    }

    async fn settle_running(
        &self,
        mut record: SandboxRecord,
        vm: Option<&VmRecord>,
        adopted: &mut Adopted,
        kept: &mut HashSet<VmId>,
    ) -> Result<(), AdoptError> {
        kept.extend(record.vm);
        let found = vm.map(|vm| self.find(vm)).transpose()?.flatten();
        if let Some(vm) = found {
            tracing::info!(sandbox = %record.id, vm = %vm.place.vm, "a running VM is adopted");
            adopted.running.push(self.keep(record, vm).await?);
            return Ok(());
        }
        let reason = self.ending(vm);
        tracing::info!(sandbox = %record.id, %reason, "a VM ended while this daemon did not run");
        record.enter(Phase::Failed(reason), "its VM ended while the node's daemon did not run");
        match vm {
            Some(vm) => {
                self.journal.put_sandbox_and_vm(record.clone(), vm.place.vm, VmStage::Ended).await?;
                self.releaser.end(vm.place).await?;
            }
            None => self.journal.put_sandbox(record.clone()).await?,
        }
        adopted.ended.push(record);
        Ok(())
    }

    /// The report of an adoption is newer than whatever was said or concluded about the sandbox before it.
    async fn keep(
        &self,
        mut record: SandboxRecord,
        vm: LiveVm,
    ) -> Result<(SandboxRecord, Survivor), AdoptError> {
        record.enter(Phase::Running, "");
        self.journal.put_sandbox(record.clone()).await?;
        let port = self.journal.worker_port(record.tenant).await?;
        let address = port.map(|port| SocketAddr::new(self.worker_ip, port).to_string()).unwrap_or_default();
        Ok((record, Survivor { vm, address }))
    }

    fn ending(&self, vm: Option<&VmRecord>) -> Reason {
        let out_of_memory = vm.is_some_and(|vm| self.cgroups.leaf(&vm.place.vm.to_string()).oom_kills() > 0);
        match (self.rebooted, out_of_memory) {
            (true, _) => Reason::NodeRestarted,
            (false, true) => Reason::VmmOom,
            (false, false) => Reason::VmmDied,
        }
    }

    /// The VM, if the very process that was journaled lives, in its own cgroup.
    fn find(&self, vm: &VmRecord) -> Result<Option<LiveVm>, AdoptError> {
        let (Some(identity), false) = (vm.process, self.rebooted) else { return Ok(None) };
        let cgroup = self.cgroups.leaf(&vm.place.vm.to_string());
        let Some(process) = Pidfd::find(identity).map_err(AdoptError::Process)? else { return Ok(None) };
        if process.has_ended() || !cgroup.holds(identity.pid) {
            return Ok(None);
        }
        let uid = self.layout.uid(vm.place.slot);
        match JailDir::open(&self.layout.jail_root(vm.place.vm), uid) {
            Ok(jail) => Ok(Some(LiveVm { place: vm.place, process, jail: Arc::new(jail), cgroup })),
            Err(error) => {
                tracing::error!(vm = %vm.place.vm, error = %chain(&error), "a VM without a jail is not adopted");
                Ok(None)
            }
        }
    }
}

#[cfg(test)]
mod tests;
