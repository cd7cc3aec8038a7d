//! Taking a VM's outside resources away, by its row in the journal alone. Each step is idempotent and holds
//! whatever was or was not made, so the same code serves a failed preparation, an end, a removal and a start
//! after a crash.

use std::{fs, io};

use crate::{
    cgroup::CgroupParent,
    disk::remove_tree,
    fail_point,
    journal::{Journal, JournalError, VmStage},
    place::{Layout, Place},
    sys::unmake_namespace,
};

#[derive(Debug, thiserror::Error)]
pub(crate) enum ReleaseError {
    #[error(transparent)]
    Journal(#[from] JournalError),
    #[error("cannot remove the {what} of VM {vm}")]
    Remove {
        what: &'static str,
        vm: String,
        #[source]
        source: io::Error,
    },
    #[error("the release was stopped")]
    Stopped,
}

#[derive(Debug, Clone)]
pub(crate) struct Releaser {
    pub(crate) layout: Layout,
    pub(crate) journal: Journal,
    pub(crate) cgroups: CgroupParent,
}

impl Releaser {
    /// Removes every trace, the journal's row last. Not cancelled by dropping: what was begun is finished.
    pub(crate) async fn remove(&self, place: Place) -> Result<(), ReleaseError> {
        self.journal.set_vm_stage(place.vm, VmStage::Removing).await?;
        self.end(place).await?;
        let jail = self.layout.jail(place.vm);
        self.step("jail", place, move || remove_tree(&jail)).await?;
        fail_point::REMOVE_JAIL_GONE.pass();
        Ok(self.journal.forget_vm(place.vm).await?)
    }

    /// Removes everything but the jail with the disk: process, cgroup, namespace, TAP, console, spool. Its worker has
    /// been told to let go of the spool, and may still write there.
    pub(crate) async fn end(&self, place: Place) -> Result<(), ReleaseError> {
        let cgroup = self.cgroups.leaf(&place.vm.to_string());
        self.step("cgroup", place, move || cgroup.destroy()).await?;
        fail_point::REMOVE_KILLED.pass();
        let namespace = self.layout.namespace(place.slot);
        self.step("namespace", place, move || unmake_namespace(&namespace)).await?;
        let console = self.layout.console(place.vm);
        self.step("console", place, move || ignore_missing(fs::remove_file(console))).await?;
        let spool = self.layout.spool(place.vm);
        self.step("spool", place, move || remove_tree(&spool)).await?;
        fail_point::REMOVE_NAMESPACE_GONE.pass();
        Ok(())
    }

    async fn step(
        &self,
        what: &'static str,
        place: Place,
        work: impl FnOnce() -> io::Result<()> + Send + 'static,
    ) -> Result<(), ReleaseError> {
        let done = tokio::task::spawn_blocking(work).await.map_err(|_stopped| ReleaseError::Stopped)?;
        done.map_err(|source| ReleaseError::Remove { what, vm: place.vm.to_string(), source })
    }
}

fn ignore_missing(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}
