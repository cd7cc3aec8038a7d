//! Rows of VMs: the outside resources behind each.

use rusqlite::{Row, Transaction, params};

use super::{Journal, JournalError, lowest_free};
use crate::{
    place::{Place, Slot, VmId},
    sys::ProcessIdentity,
};

/// How far a VM is, and so what of it may exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum VmStage {
    /// Anything of it may exist.
    Preparing,
    /// Firecracker waits for a sandbox.
    Pooled,
    /// A sandbox has it.
    Claimed,
    /// Its process, namespace, cgroup and FIFO are gone or about to be; the jail with the disk stays.
    Ended,
    /// Everything of it is to go.
    Removing,
}

impl VmStage {
    const ALL: [Self; 5] = [Self::Preparing, Self::Pooled, Self::Claimed, Self::Ended, Self::Removing];

    const fn code(self) -> &'static str {
        match self {
            Self::Preparing => "preparing",
            Self::Pooled => "pooled",
            Self::Claimed => "claimed",
            Self::Ended => "ended",
            Self::Removing => "removing",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct VmRecord {
    pub(crate) place: Place,
    pub(crate) stage: VmStage,
    pub(crate) process: Option<ProcessIdentity>,
}

impl Journal {
    /// Takes the lowest free of `slots` slots for a new VM, in stage [`VmStage::Preparing`].
    pub(crate) async fn begin_vm(&self, slots: u32) -> Result<Place, JournalError> {
        self.transact(move |transaction| {
            let mut statement = transaction.prepare_cached("SELECT slot FROM vms ORDER BY slot")?;
            let taken = statement.query_map([], |row| row.get(0))?.collect::<Result<Vec<u32>, _>>()?;
            let slot = lowest_free(&taken, slots).ok_or(JournalError::NoSlot)?;
            let place = Place { vm: VmId::new(), slot: Slot(slot) };
            let sql = "INSERT INTO vms (vm_id, slot, stage) VALUES (?1, ?2, ?3)";
            transaction.execute(sql, params![place.vm.to_string(), slot, VmStage::Preparing.code()])?;
            Ok(place)
        })
        .await
    }

    pub(crate) async fn set_vm_stage(&self, vm: VmId, stage: VmStage) -> Result<(), JournalError> {
        self.transact(move |transaction| set_stage(transaction, vm, stage)).await
    }

    pub(crate) async fn set_vm_process(
        &self,
        vm: VmId,
        process: ProcessIdentity,
    ) -> Result<(), JournalError> {
        self.transact(move |transaction| {
            let sql = "UPDATE vms SET pid = ?2, start_time = ?3 WHERE vm_id = ?1";
            transaction
                .execute(sql, params![vm.to_string(), process.pid, process.start_time.cast_signed()])?;
            Ok(())
        })
        .await
    }

    /// Forgets a VM of which nothing is left.
    pub(crate) async fn forget_vm(&self, vm: VmId) -> Result<(), JournalError> {
        self.transact(move |transaction| {
            transaction.execute("UPDATE sandboxes SET vm_id = NULL WHERE vm_id = ?1", [vm.to_string()])?;
            transaction.execute("DELETE FROM vms WHERE vm_id = ?1", [vm.to_string()])?;
            Ok(())
        })
        .await
    }

    pub(crate) async fn vms(&self) -> Result<Vec<VmRecord>, JournalError> {
        self.transact(|transaction| {
            let mut statement =
                transaction.prepare_cached("SELECT vm_id, slot, stage, pid, start_time FROM vms")?;
            let mut rows = statement.query([])?;
            let mut found = Vec::new();
            while let Some(row) = rows.next()? {
                found.push(read(row)?);
            }
            Ok(found)
        })
        .await
    }
}

pub(super) fn set_stage(transaction: &Transaction<'_>, vm: VmId, stage: VmStage) -> Result<(), JournalError> {
    let sql = "UPDATE vms SET stage = ?2 WHERE vm_id = ?1";
    transaction.execute(sql, params![vm.to_string(), stage.code()])?;
    Ok(())
}

fn read(row: &Row<'_>) -> Result<VmRecord, JournalError> {
    let (vm, stage): (String, String) = (row.get(0)?, row.get(2)?);
    let stage = VmStage::ALL.into_iter().find(|known| known.code() == stage);
    Ok(VmRecord {
        place: Place { vm: parse_vm(&vm)?, slot: Slot(row.get(1)?) },
        stage: stage.ok_or_else(|| JournalError::Corrupt(format!("stage of VM {vm}")))?,
        process: process(row.get(3)?, row.get(4)?),
    })
}

pub(super) fn process(pid: Option<i32>, start_time: Option<i64>) -> Option<ProcessIdentity> {
    Some(ProcessIdentity { pid: pid?, start_time: start_time?.cast_unsigned() })
}

pub(super) fn parse_vm(text: &str) -> Result<VmId, JournalError> {
    text.parse().map_err(|error| JournalError::Corrupt(format!("VM id {text}: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_slot_is_held_until_its_vm_is_forgotten() {
        let journal = Journal::in_memory().unwrap();
        let first = journal.begin_vm(2).await.unwrap();
        let second = journal.begin_vm(2).await.unwrap();
        assert_eq!((first.slot, second.slot), (Slot(0), Slot(1)));
        assert!(matches!(journal.begin_vm(2).await, Err(JournalError::NoSlot)));
        journal.set_vm_stage(first.vm, VmStage::Removing).await.unwrap();
        assert!(matches!(journal.begin_vm(2).await, Err(JournalError::NoSlot)));
        journal.forget_vm(first.vm).await.unwrap();
        assert_eq!(journal.begin_vm(2).await.unwrap().slot, Slot(0));
    }

    #[tokio::test]
    async fn what_was_written_is_read_back() {
        let journal = Journal::in_memory().unwrap();
        let place = journal.begin_vm(2).await.unwrap();
        let process = ProcessIdentity { pid: 17, start_time: 99 };
        journal.set_vm_process(place.vm, process).await.unwrap();
        journal.set_vm_stage(place.vm, VmStage::Pooled).await.unwrap();
        let wanted = VmRecord { place, stage: VmStage::Pooled, process: Some(process) };
        assert_eq!(journal.vms().await.unwrap(), [wanted]);
    }
}
