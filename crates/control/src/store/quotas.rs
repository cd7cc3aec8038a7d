//! Quotas: what the sandboxes of a tenant, and of each of its projects, hold together.
//!
//! The rows of tenant and project carry the sums. A create checks and takes both in one conditional update, the
//! tenant first, so that of two which want the last of a quota the second sees the first's once that commits. What a
//! sandbox holds changes in `sandbox_changes::settle` alone, by the difference between before and after: so it is
//! given back exactly once, whichever way a sandbox ends, and taken again if its node turns out to live.
//!
//! A trigger adds what a project held until then to its days (see `usage.rs`) whenever its sums change.

use space_api::quotas::{Quota, QuotaExcess, QuotaOwner, QuotaReport, QuotaUse, Resource};
use space_types::{ByteSize, ProjectId, TenantId};
use sqlx::PgConnection;

use super::{Store, StoreError, signed, unsigned};

/// Whose a sandbox is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) tenant_id: TenantId,
    pub(crate) project_id: ProjectId,
}

/// What a sandbox holds, or the difference between two such. Memory and disk in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Holding {
    pub(super) sandboxes: i64,
    pub(super) vcpus: i64,
    pub(super) memory: i64,
    pub(super) disk: i64,
}

/// Why there is none for a new sandbox.
#[derive(Debug)]
pub(super) enum Refusal {
    NoProject,
    Exceeded(QuotaExcess),
}

impl Holding {
    /// Of a sandbox of this size, in a state in which it holds its share of a node, or its disk, or not.
    pub(super) fn of(vcpus: i32, memory: i64, disk: i64, reserved: bool, exists: bool) -> Self {
        let (reserved, exists) = (i64::from(reserved), i64::from(exists));
        Self {
            sandboxes: reserved,
            vcpus: i64::from(vcpus) * reserved,
            memory: memory * reserved,
            disk: disk * exists,
        }
    }

    pub(super) fn since(self, before: Self) -> Self {
        Self {
            sandboxes: self.sandboxes - before.sandboxes,
            vcpus: self.vcpus - before.vcpus,
            memory: self.memory - before.memory,
            disk: self.disk - before.disk,
        }
    }

    /// In the unit of a quota, rounded up.
    fn get(&self, resource: Resource) -> u64 {
        match resource {
            Resource::Sandboxes => unsigned(self.sandboxes),
            Resource::Vcpus => unsigned(self.vcpus),
            Resource::MemoryMib => unsigned(self.memory).div_ceil(1 << 20),
            Resource::DiskMib => unsigned(self.disk).div_ceil(1 << 20),
        }
    }
}

/// Checks both quotas and takes from them.
pub(super) async fn take(
    tx: &mut PgConnection,
    owner: Owner,
    asked: Holding,
    default: &Quota,
) -> Result<Result<(), Refusal>, StoreError> {
    let default = Limits::from(default);
    let (tenant, project): (bool, bool) = sqlx::query_as(
        "with tenant as ( \
           update tenants set held_sandboxes = held_sandboxes + $3, held_vcpus = held_vcpus + $4, \
             held_memory = held_memory + $5, held_disk = held_disk + $6 \
           where id = $1 \
             and held_sandboxes + $3 <= coalesce(quota_sandboxes, $7, 9223372036854775807) \
             and held_vcpus + $4 <= coalesce(quota_vcpus, $8, 9223372036854775807) \
             and held_memory + $5 <= coalesce(quota_memory, $9, 9223372036854775807) \
             and held_disk + $6 <= coalesce(quota_disk, $10, 9223372036854775807) \
           returning id), \
         project as ( \
           update projects set held_sandboxes = held_sandboxes + $3, held_vcpus = held_vcpus + $4, \
             held_memory = held_memory + $5, held_disk = held_disk + $6, creates = creates + 1 \
           from tenant where projects.id = $2 and projects.tenant_id = tenant.id and deleted_at is null \
             and held_sandboxes + $3 <= coalesce(quota_sandboxes, 9223372036854775807) \
             and held_vcpus + $4 <= coalesce(quota_vcpus, 9223372036854775807) \
             and held_memory + $5 <= coalesce(quota_memory, 9223372036854775807) \
             and held_disk + $6 <= coalesce(quota_disk, 9223372036854775807) \
           returning projects.id) \
         select exists (select from tenant), exists (select from project)",
    )
    .bind(owner.tenant_id.uuid())
    .bind(owner.project_id.uuid())
    .bind(asked.sandboxes)
    .bind(asked.vcpus)
    .bind(asked.memory)
    .bind(asked.disk)
    .bind(default.sandboxes)
    .bind(default.vcpus)
    .bind(default.memory)
    .bind(default.disk)
    .fetch_one(&mut *tx)
    .await?;
    if tenant && project {
        return Ok(Ok(()));
    }
    let of = if tenant { QuotaOwner::Project } else { QuotaOwner::Tenant };
    let row = match of {
        QuotaOwner::Tenant => tenant_row(tx, owner.tenant_id).await?,
        QuotaOwner::Project => project_row(tx, owner.tenant_id, owner.project_id).await?,
    };
    let Some(row) = row else { return Ok(Err(Refusal::NoProject)) };
    let report = row.report(if tenant { Limits::default() } else { default });
    Ok(Err(Refusal::Exceeded(excess(of, &report, &asked))))
}

/// The quota without room. When another transaction has made room since: the one with the least.
fn excess(of: QuotaOwner, report: &QuotaReport, asked: &Holding) -> QuotaExcess {
    let all = Resource::ALL.map(|resource| {
        let QuotaUse { limit, used } = report.get(resource);
        QuotaExcess { of, resource, limit: limit.unwrap_or(u64::MAX), used, asked: asked.get(resource) }
    });
    let room =
        |excess: &QuotaExcess| i128::from(excess.limit) - i128::from(excess.used) - i128::from(excess.asked);
    let full = all.iter().find(|excess| room(excess) < 0).copied();
    full.unwrap_or_else(|| all.into_iter().min_by_key(room).unwrap_or(all[0]))
}

/// Adds a difference, whatever the quotas say: for sandboxes that are there already. Tenant before project, as when
/// taking.
pub(super) async fn adjust(tx: &mut PgConnection, owner: Owner, by: Holding) -> Result<(), StoreError> {
    if by == Holding::default() {
        return Ok(());
    }
    sqlx::query(
        "with tenant as ( \
           update tenants set held_sandboxes = held_sandboxes + $3, held_vcpus = held_vcpus + $4, \
             held_memory = held_memory + $5, held_disk = held_disk + $6 where id = $1 returning id) \
         update projects set held_sandboxes = held_sandboxes + $3, held_vcpus = held_vcpus + $4, \
           held_memory = held_memory + $5, held_disk = held_disk + $6 \
         from tenant where projects.id = $2 and projects.tenant_id = tenant.id",
    )
    .bind(owner.tenant_id.uuid())
    .bind(owner.project_id.uuid())
    .bind(by.sandboxes)
    .bind(by.vcpus)
    .bind(by.memory)
    .bind(by.disk)
    .execute(&mut *tx)
    .await?;
    Ok(())
}

/// A quota as its columns have it: bytes.
#[derive(Debug, Clone, Copy, Default)]
struct Limits {
    sandboxes: Option<i64>,
    vcpus: Option<i64>,
    memory: Option<i64>,
    disk: Option<i64>,
}

impl From<&Quota> for Limits {
    fn from(quota: &Quota) -> Self {
        let bytes = |mib: u64| signed(ByteSize::mib(mib).as_bytes());
        Self {
            sandboxes: quota.sandboxes.map(signed),
            vcpus: quota.vcpus.map(signed),
            memory: quota.memory_mib.map(bytes),
            disk: quota.disk_mib.map(bytes),
        }
    }
}

#[derive(sqlx::FromRow)]
struct QuotaRow {
    quota_sandboxes: Option<i64>,
    quota_vcpus: Option<i64>,
    quota_memory: Option<i64>,
    quota_disk: Option<i64>,
    held_sandboxes: i64,
    held_vcpus: i64,
    held_memory: i64,
    held_disk: i64,
}

/// Columns of [`QuotaRow`].
macro_rules! quota_columns {
    () => {
        "quota_sandboxes, quota_vcpus, quota_memory, quota_disk, held_sandboxes, held_vcpus, held_memory, held_disk"
    };
}

impl QuotaRow {
    fn report(&self, default: Limits) -> QuotaReport {
        let held = Holding {
            sandboxes: self.held_sandboxes,
            vcpus: self.held_vcpus,
            memory: self.held_memory,
            disk: self.held_disk,
        };
        let count = |limit: Option<i64>| limit.map(unsigned);
        let mib = |limit: Option<i64>| limit.map(|bytes| ByteSize::bytes(unsigned(bytes)).as_mib());
        let of = |limit, resource| QuotaUse { limit, used: held.get(resource) };
        QuotaReport {
            sandboxes: of(count(self.quota_sandboxes.or(default.sandboxes)), Resource::Sandboxes),
            vcpus: of(count(self.quota_vcpus.or(default.vcpus)), Resource::Vcpus),
            memory_mib: of(mib(self.quota_memory.or(default.memory)), Resource::MemoryMib),
            disk_mib: of(mib(self.quota_disk.or(default.disk)), Resource::DiskMib),
        }
    }
}

async fn tenant_row(connection: &mut PgConnection, tenant: TenantId) -> Result<Option<QuotaRow>, StoreError> {
    Ok(sqlx::query_as(concat!("select ", quota_columns!(), " from tenants where id = $1"))
        .bind(tenant.uuid())
        .fetch_optional(connection)
        .await?)
}

async fn project_row(
    connection: &mut PgConnection,
    tenant: TenantId,
    project: ProjectId,
) -> Result<Option<QuotaRow>, StoreError> {
    Ok(sqlx::query_as(concat!(
        "select ",
        quota_columns!(),
        " from projects where id = $1 and tenant_id = $2 and deleted_at is null"
    ))
    .bind(project.uuid())
    .bind(tenant.uuid())
    .fetch_optional(connection)
    .await?)
}

impl Store {
    pub(crate) async fn tenant_quota(&self, tenant: TenantId) -> Result<Option<QuotaReport>, StoreError> {
        let mut connection = self.pool().acquire().await?;
        let row = tenant_row(&mut connection, tenant).await?;
        Ok(row.map(|row| row.report(Limits::from(&self.default_quota))))
    }

    pub(crate) async fn project_quota(
        &self,
        tenant: TenantId,
        project: ProjectId,
    ) -> Result<Option<QuotaReport>, StoreError> {
        let mut connection = self.pool().acquire().await?;
        let row = project_row(&mut connection, tenant, project).await?;
        Ok(row.map(|row| row.report(Limits::default())))
    }

    /// `None`: no such tenant. A limit below what is used stops nothing that is there.
    pub(crate) async fn tenant_set_quota(
        &self,
        tenant: TenantId,
        quota: &Quota,
    ) -> Result<Option<QuotaReport>, StoreError> {
        let limits = Limits::from(quota);
        let row: Option<QuotaRow> = sqlx::query_as(concat!(
            "update tenants set quota_sandboxes = $2, quota_vcpus = $3, quota_memory = $4, quota_disk = $5 \
             where id = $1 returning ",
            quota_columns!()
        ))
        .bind(tenant.uuid())
        .bind(limits.sandboxes)
        .bind(limits.vcpus)
        .bind(limits.memory)
        .bind(limits.disk)
        .fetch_optional(self.pool())
        .await?;
        Ok(row.map(|row| row.report(Limits::from(&self.default_quota))))
    }

    /// `None`: no such project of this tenant.
    pub(crate) async fn project_set_quota(
        &self,
        tenant: TenantId,
        project: ProjectId,
        quota: &Quota,
    ) -> Result<Option<QuotaReport>, StoreError> {
        let limits = Limits::from(quota);
        let row: Option<QuotaRow> = sqlx::query_as(concat!(
            "update projects set quota_sandboxes = $3, quota_vcpus = $4, quota_memory = $5, quota_disk = $6 \
             where id = $1 and tenant_id = $2 and deleted_at is null returning ",
            quota_columns!()
        ))
        .bind(project.uuid())
        .bind(tenant.uuid())
        .bind(limits.sandboxes)
        .bind(limits.vcpus)
        .bind(limits.memory)
        .bind(limits.disk)
        .fetch_optional(self.pool())
        .await?;
        Ok(row.map(|row| row.report(Limits::default())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_quota_without_room_is_named() {
        let report = QuotaReport {
            vcpus: QuotaUse { limit: Some(4), used: 3 },
            memory_mib: QuotaUse { limit: Some(1024), used: 1000 },
            ..QuotaReport::default()
        };
        let small = Holding::of(1, 24 << 20, 1 << 30, true, true);
        let large = Holding::of(1, 25 << 20, 1 << 30, true, true);
        let found = excess(QuotaOwner::Project, &report, &large);
        let expected = QuotaExcess {
            of: QuotaOwner::Project,
            resource: Resource::MemoryMib,
            limit: 1024,
            used: 1000,
            asked: 25,
        };
        assert_eq!(found, expected);
        // Another transaction made room meanwhile: the tightest is told.
        assert_eq!(excess(QuotaOwner::Project, &report, &small).resource, Resource::Vcpus);
    }

    #[test]
    fn what_is_given_back_is_what_was_taken() {
        let taken = Holding::of(2, 7, 9, true, true);
        let stopped = Holding::of(2, 7, 9, false, true);
        let gone = Holding::of(2, 7, 9, false, false);
        let back = [stopped.since(taken), gone.since(stopped), taken];
        let sum = back.iter().fold(Holding::default(), |sum, by| Holding {
            sandboxes: sum.sandboxes + by.sandboxes,
            vcpus: sum.vcpus + by.vcpus,
            memory: sum.memory + by.memory,
            disk: sum.disk + by.disk,
        });
        assert_eq!(sum, Holding::default());
    }
}
