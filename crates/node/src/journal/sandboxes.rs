//! Rows of sandboxes: what control asked for and what became of it.
//!
//! A removed sandbox leaves a tombstone (phase `absent`) for a day, so that an older command that was
//! delayed on its way can't bring it back.

use std::time::{SystemTime, UNIX_EPOCH};

use prost::Message;
use rusqlite::{Row, Transaction, params};
use space_node_proto::{common, node::SandboxConfig};
use space_types::{Reason, SandboxId, TenantId};

use super::{
    Journal, JournalError,
    vms::{VmStage, parse_vm, set_stage},
};
use crate::place::VmId;

const SELECT: &str =
    "SELECT sandbox_id, tenant_id, generation, sequence, phase, reason, message, config, vm_id,
    agent_version, started_at_ms FROM sandboxes";
const TOMBSTONE_LIFE_MS: u64 = 24 * 3600 * 1000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    Booting,
    Running,
    Stopped(Reason),
    Failed(Reason),
    /// On its way out; resumed after a restart.
    Removing,
    Absent,
}

impl Phase {
    const fn code(self) -> &'static str {
        match self {
            Self::Booting => "booting",
            Self::Running => "running",
            Self::Stopped(_) => "stopped",
            Self::Failed(_) => "failed",
            Self::Removing => "removing",
            Self::Absent => "absent",
        }
    }

    pub(crate) const fn reason(self) -> Option<Reason> {
        match self {
            Self::Stopped(reason) | Self::Failed(reason) => Some(reason),
            Self::Booting | Self::Running | Self::Removing | Self::Absent => None,
        }
    }

    fn parse(code: &str, reason: Option<&str>) -> Option<Self> {
        let reason = reason.and_then(|reason| reason.parse().ok());
        match code {
            "booting" => Some(Self::Booting),
            "running" => Some(Self::Running),
            "stopped" => reason.map(Self::Stopped),
            "failed" => reason.map(Self::Failed),
            "removing" => Some(Self::Removing),
            "absent" => Some(Self::Absent),
            _ => None,
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SandboxRecord {
    pub(crate) id: SandboxId,
    pub(crate) tenant: TenantId,
    pub(crate) generation: u64,
    pub(crate) sequence: u64,
    pub(crate) phase: Phase,
    pub(crate) message: String,
    pub(crate) config: SandboxConfig,
    pub(crate) vm: Option<VmId>,
    pub(crate) agent_version: String,
    pub(crate) started_at_ms: u64,
}

impl SandboxRecord {
    pub(crate) fn new(id: SandboxId, tenant: TenantId, generation: u64, config: SandboxConfig) -> Self {
        Self {
            id,
            tenant,
            generation,
            sequence: 0,
            phase: Phase::Booting,
            message: String::new(),
            config,
            vm: None,
            agent_version: String::new(),
            started_at_ms: 0,
        }
    }

    /// Moves on to `phase`; the report of it is newer than all before it.
    pub(crate) fn enter(&mut self, phase: Phase, message: impl Into<String>) {
        self.phase = phase;
        self.message = message.into();
        self.sequence += 1;
    }

    pub(crate) fn observed(&self, data_address: &str, vmm_version: &str) -> common::ObservedSandbox {
        let phase = match self.phase {
            Phase::Booting => common::Phase::Booting,
            Phase::Running | Phase::Removing => common::Phase::Running,
            Phase::Stopped(_) => common::Phase::Stopped,
            Phase::Failed(_) => common::Phase::Failed,
            Phase::Absent => common::Phase::Absent,
        };
        common::ObservedSandbox {
            sandbox_id: self.id.to_string(),
            generation: self.generation,
            sequence: self.sequence,
            phase: phase.into(),
            reason: self.phase.reason().map_or_else(String::new, |reason| reason.code().to_owned()),
            message: self.message.clone(),
            data_address: data_address.to_owned(),
            agent_version: self.agent_version.clone(),
            vmm_version: vmm_version.to_owned(),
            started_at_ms: self.started_at_ms,
        }
    }
}

/// Unix time in milliseconds.
pub(crate) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

impl Journal {
    /// Writes the sandbox as it is now.
    pub(crate) async fn put_sandbox(&self, record: SandboxRecord) -> Result<(), JournalError> {
        self.transact(move |transaction| put(transaction, &record)).await
    }

    /// Writes the sandbox and moves its VM, in one transaction.
    pub(crate) async fn put_sandbox_and_vm(
        &self,
        record: SandboxRecord,
        vm: VmId,
        stage: VmStage,
    ) -> Result<(), JournalError> {
        self.transact(move |transaction| {
            set_stage(transaction, vm, stage)?;
            put(transaction, &record)
        })
        .await
    }

    /// As if it had never been asked for. Only for a boot that was never acknowledged.
    pub(crate) async fn drop_sandbox(&self, id: SandboxId) -> Result<(), JournalError> {
        self.transact(move |transaction| {
            transaction.execute("DELETE FROM sandboxes WHERE sandbox_id = ?1", [id.to_string()])?;
            Ok(())
        })
        .await
    }

    /// One sandbox, or its tombstone.
    pub(crate) async fn sandbox(&self, id: SandboxId) -> Result<Option<SandboxRecord>, JournalError> {
        self.transact(move |transaction| {
            let mut statement = transaction.prepare_cached(&format!("{SELECT} WHERE sandbox_id = ?1"))?;
            let mut rows = statement.query([id.to_string()])?;
            rows.next()?.map(read).transpose()
        })
        .await
    }

    /// All sandboxes, tombstones included; tombstones past their life are dropped.
    pub(crate) async fn sandboxes(&self) -> Result<Vec<SandboxRecord>, JournalError> {
        self.transact(|transaction| {
            let oldest = now_ms().saturating_sub(TOMBSTONE_LIFE_MS);
            let sql = "DELETE FROM sandboxes WHERE phase = 'absent' AND updated_at_ms < ?1";
            transaction.execute(sql, [oldest.cast_signed()])?;
            let mut statement = transaction.prepare_cached(SELECT)?;
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

fn put(transaction: &Transaction<'_>, record: &SandboxRecord) -> Result<(), JournalError> {
    let sql = "INSERT INTO sandboxes (sandbox_id, tenant_id, generation, sequence, phase, reason, message,
                   config, vm_id, agent_version, started_at_ms, updated_at_ms)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)
               ON CONFLICT (sandbox_id) DO UPDATE SET tenant_id = ?2, generation = ?3, sequence = ?4,
                   phase = ?5, reason = ?6, message = ?7, config = ?8, vm_id = ?9, agent_version = ?10,
                   started_at_ms = ?11, updated_at_ms = ?12";
    let values = params![
        record.id.to_string(),
        record.tenant.to_string(),
        record.generation.cast_signed(),
        record.sequence.cast_signed(),
        record.phase.code(),
        record.phase.reason().map(Reason::code),
        record.message,
        record.config.encode_to_vec(),
        record.vm.map(|vm| vm.to_string()),
        record.agent_version,
        record.started_at_ms.cast_signed(),
        now_ms().cast_signed(),
    ];
    transaction.execute(sql, values)?;
    Ok(())
}

fn read(row: &Row<'_>) -> Result<SandboxRecord, JournalError> {
    let id: String = row.get(0)?;
    let corrupt = |what: &str| JournalError::Corrupt(format!("{what} of sandbox {id}"));
    let (tenant, phase, reason): (String, String, Option<String>) = (row.get(1)?, row.get(4)?, row.get(5)?);
    let (config, vm): (Vec<u8>, Option<String>) = (row.get(7)?, row.get(8)?);
    Ok(SandboxRecord {
        id: id.parse().map_err(|_invalid| corrupt("id"))?,
        tenant: tenant.parse().map_err(|_invalid| corrupt("tenant"))?,
        generation: row.get::<_, i64>(2)?.cast_unsigned(),
        sequence: row.get::<_, i64>(3)?.cast_unsigned(),
        phase: Phase::parse(&phase, reason.as_deref()).ok_or_else(|| corrupt("phase"))?,
        message: row.get(6)?,
        config: SandboxConfig::decode(config.as_slice()).map_err(|_invalid| corrupt("configuration"))?,
        vm: vm.map(|vm| parse_vm(&vm)).transpose()?,
        agent_version: row.get(9)?,
        started_at_ms: row.get::<_, i64>(10)?.cast_unsigned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> SandboxRecord {
        let config = SandboxConfig { vcpus: 2, hostname: "box".to_owned(), ..SandboxConfig::default() };
        SandboxRecord::new(SandboxId::new(), TenantId::new(), 7, config)
    }

    #[tokio::test]
    async fn a_sandbox_is_read_back_as_written() {
        let journal = Journal::in_memory().unwrap();
        let mut record = record();
        record.enter(Phase::Failed(Reason::GuestPanic), "it panicked");
        journal.put_sandbox(record.clone()).await.unwrap();
        assert_eq!(journal.sandboxes().await.unwrap(), [record]);
    }

    #[tokio::test]
    async fn a_dropped_sandbox_leaves_nothing() {
        let journal = Journal::in_memory().unwrap();
        let record = record();
        journal.put_sandbox(record.clone()).await.unwrap();
        journal.drop_sandbox(record.id).await.unwrap();
        assert!(journal.sandboxes().await.unwrap().is_empty());
    }

    #[tokio::test]
    async fn a_claimed_vm_is_unlinked_when_it_is_forgotten() {
        let journal = Journal::in_memory().unwrap();
        let place = journal.begin_vm(1).await.unwrap();
        let record = SandboxRecord { vm: Some(place.vm), ..record() };
        journal.put_sandbox_and_vm(record, place.vm, VmStage::Claimed).await.unwrap();
        journal.forget_vm(place.vm).await.unwrap();
        assert_eq!(journal.sandboxes().await.unwrap()[0].vm, None);
    }
}
