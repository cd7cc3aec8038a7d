//! Rows of workers: one a tenant, from before its user is used until its cgroup is gone.

use rusqlite::{OptionalExtension, Transaction, params};
use space_types::TenantId;

use super::{Journal, JournalError, lowest_free, vms::process};
use crate::sys::ProcessIdentity;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WorkerRecord {
    pub(crate) tenant: TenantId,
    /// Counted from the first of the workers' users.
    pub(crate) number: u32,
    /// The port that it listened on last, to be taken again so that its address lasts.
    pub(crate) port: Option<u16>,
    pub(crate) process: Option<ProcessIdentity>,
}

impl Journal {
    /// The tenant's row, made with the lowest free number out of `count` where there is none.
    pub(crate) async fn begin_worker(
        &self,
        tenant: TenantId,
        count: u32,
    ) -> Result<WorkerRecord, JournalError> {
        self.transact(move |transaction| {
            if let Some(known) = find(transaction, tenant)? {
                return Ok(known);
            }
            let mut statement = transaction.prepare_cached("SELECT number FROM workers ORDER BY number")?;
            let taken = statement.query_map([], |row| row.get(0))?.collect::<Result<Vec<u32>, _>>()?;
            let number = lowest_free(&taken, count).ok_or(JournalError::NoWorkerUid)?;
            let sql = "INSERT INTO workers (tenant_id, number) VALUES (?1, ?2)";
            transaction.execute(sql, params![tenant.to_string(), number])?;
            Ok(WorkerRecord { tenant, number, port: None, process: None })
        })
        .await
    }

    pub(crate) async fn set_worker_port(&self, tenant: TenantId, port: u16) -> Result<(), JournalError> {
        self.transact(move |transaction| {
            let sql = "UPDATE workers SET port = ?2 WHERE tenant_id = ?1";
            transaction.execute(sql, params![tenant.to_string(), port])?;
            Ok(())
        })
        .await
    }

    /// The port that the tenant's worker listened on last. `None`: it never did, or there is no worker.
    pub(crate) async fn worker_port(&self, tenant: TenantId) -> Result<Option<u16>, JournalError> {
        self.transact(move |transaction| Ok(find(transaction, tenant)?.and_then(|worker| worker.port))).await
    }

    pub(crate) async fn set_worker_process(
        &self,
        tenant: TenantId,
        process: ProcessIdentity,
    ) -> Result<(), JournalError> {
        self.transact(move |transaction| {
            let sql = "UPDATE workers SET pid = ?2, start_time = ?3 WHERE tenant_id = ?1";
            let start_time = process.start_time.cast_signed();
            transaction.execute(sql, params![tenant.to_string(), process.pid, start_time])?;
            Ok(())
        })
        .await
    }

    pub(crate) async fn forget_worker(&self, tenant: TenantId) -> Result<(), JournalError> {
        self.transact(move |transaction| {
            transaction.execute("DELETE FROM workers WHERE tenant_id = ?1", [tenant.to_string()])?;
            Ok(())
        })
        .await
    }

    pub(crate) async fn workers(&self) -> Result<Vec<TenantId>, JournalError> {
        self.transact(|transaction| {
            let mut statement = transaction.prepare_cached("SELECT tenant_id FROM workers")?;
            let texts = statement.query_map([], |row| row.get(0))?.collect::<Result<Vec<String>, _>>()?;
            let corrupt = |text: &String| JournalError::Corrupt(format!("tenant id {text}"));
            texts.iter().map(|text| text.parse().map_err(|_invalid| corrupt(text))).collect()
        })
        .await
    }
}

fn find(transaction: &Transaction<'_>, tenant: TenantId) -> Result<Option<WorkerRecord>, JournalError> {
    let sql = "SELECT number, port, pid, start_time FROM workers WHERE tenant_id = ?1";
    let row = transaction.query_row(sql, [tenant.to_string()], |row| {
        let process = process(row.get(2)?, row.get(3)?);
        Ok(WorkerRecord { tenant, number: row.get(0)?, port: row.get(1)?, process })
    });
    Ok(row.optional()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_tenant_keeps_its_number_and_port() {
        let journal = Journal::in_memory().unwrap();
        let tenant = TenantId::new();
        let first = journal.begin_worker(tenant, 1).await.unwrap();
        journal.set_worker_port(tenant, 4711).await.unwrap();
        let again = journal.begin_worker(tenant, 1).await.unwrap();
        assert_eq!((again.number, again.port), (first.number, Some(4711)));
        assert_eq!(journal.worker_port(tenant).await.unwrap(), Some(4711));
        assert!(matches!(journal.begin_worker(TenantId::new(), 1).await, Err(JournalError::NoWorkerUid)));
        journal.forget_worker(tenant).await.unwrap();
        assert!(journal.workers().await.unwrap().is_empty());
    }
}
