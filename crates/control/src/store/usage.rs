//! Usage, read. It is counted by the trigger `usage_accrue` on the sums of a project, in the transaction that changes
//! them: nothing here has to run in time. What was held since the last change is added while reading.

use space_api::usage::UsageDay;
use space_types::ProjectId;
use uuid::Uuid;

use super::{Store, StoreError, unsigned};
use crate::grants::Reach;

#[derive(sqlx::FromRow)]
struct UsageRow {
    project_id: Uuid,
    day: String,
    sandbox_seconds: i64,
    vcpu_seconds: i64,
    memory_mib_seconds: i64,
    disk_mib_seconds: i64,
    creates: i64,
}

impl From<UsageRow> for UsageDay {
    fn from(row: UsageRow) -> Self {
        Self {
            project_id: ProjectId::from_uuid(row.project_id),
            day: row.day,
            sandbox_seconds: unsigned(row.sandbox_seconds),
            vcpu_seconds: unsigned(row.vcpu_seconds),
            memory_mib_seconds: unsigned(row.memory_mib_seconds),
            disk_mib_seconds: unsigned(row.disk_mib_seconds),
            creates: unsigned(row.creates),
        }
    }
}

impl Store {
    /// Of the days from `from` to `to`, both `YYYY-MM-DD` and inclusive; deleted projects too. One statement, so that
    /// no change falls between the days and what was held since.
    pub(crate) async fn usage(
        &self,
        reach: Reach,
        from: &str,
        to: &str,
    ) -> Result<Vec<UsageDay>, StoreError> {
        let rows: Vec<UsageRow> = sqlx::query_as(
            "with counted as ( \
               select project_id, day, sandbox_ms, vcpu_ms, memory_byte_ms, disk_byte_ms, creates \
               from usage_days where tenant_id = $1 and ($2::uuid is null or project_id = $2) \
                 and day between $3::text::date and $4::text::date \
               union all \
               select p.id, s.day, p.held_sandboxes::numeric * s.ms, p.held_vcpus::numeric * s.ms, \
                 p.held_memory::numeric * s.ms, p.held_disk::numeric * s.ms, 0 \
               from projects p, usage_span(p.usage_at, greatest(p.usage_at, now_ms())) s \
               where p.tenant_id = $1 and ($2::uuid is null or p.id = $2) \
                 and (p.held_sandboxes > 0 or p.held_disk > 0) \
                 and s.day between $3::text::date and $4::text::date) \
             select project_id, to_char(day, 'YYYY-MM-DD') as day, \
               floor(sum(sandbox_ms) / 1000)::bigint as sandbox_seconds, \
               floor(sum(vcpu_ms) / 1000)::bigint as vcpu_seconds, \
               floor(sum(memory_byte_ms) / 1048576000)::bigint as memory_mib_seconds, \
               floor(sum(disk_byte_ms) / 1048576000)::bigint as disk_mib_seconds, \
               sum(creates)::bigint as creates \
             from counted group by project_id, counted.day order by counted.day, project_id",
        )
        .bind(reach.tenant_id.uuid())
        .bind(reach.project_id.map(ProjectId::uuid))
        .bind(from)
        .bind(to)
        .fetch_all(self.pool())
        .await?;
        Ok(rows.into_iter().map(UsageDay::from).collect())
    }
}
