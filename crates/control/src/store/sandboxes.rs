//! Sandboxes: the record, as asked for, placed, seen and shown. Changes are in `sandbox_changes.rs`.

use std::collections::{BTreeMap, HashMap};

use space_api::{
    Timestamp,
    sandboxes::{ListSandboxes, Sandbox, SandboxTemplate},
};
use space_types::{
    ByteSize, Desired, Digest, NodeId, Observed, OperationId, ProjectId, Reason, SandboxId, SandboxState,
    TenantId,
};
use sqlx::types::Json;
use uuid::Uuid;

use super::{Store, StoreError, coded, signed, unsigned};
use crate::grants::Reach;

/// Columns of [`SandboxRow`], from `sandboxes s` joined with `releases r`.
macro_rules! select_sandbox {
    ($($rest:tt)*) => {
        concat!(
            "select s.id, s.project_id, s.state, s.observed, s.reason, s.node_lost, s.template_name, s.template_tag, \
             r.digest, s.vcpus, s.memory_bytes, s.disk_bytes, s.env, s.labels, s.node_id, s.agent_version, \
             s.created_at, s.started_at, s.ended_at, \
             (select o.id from operations o where o.sandbox_id = s.id and o.finished_at is null \
              order by o.id desc limit 1) as operation \
             from sandboxes s join releases r on r.id = s.release_id ",
            $($rest)*
        )
    };
}
pub(super) use select_sandbox;

#[derive(sqlx::FromRow)]
pub(super) struct SandboxRow {
    id: Uuid,
    project_id: Uuid,
    state: String,
    observed: String,
    reason: Option<String>,
    node_lost: bool,
    template_name: String,
    template_tag: Option<String>,
    digest: String,
    vcpus: i32,
    memory_bytes: i64,
    disk_bytes: i64,
    env: Json<BTreeMap<String, String>>,
    labels: Json<BTreeMap<String, String>>,
    node_id: Uuid,
    agent_version: String,
    created_at: i64,
    started_at: Option<i64>,
    ended_at: Option<i64>,
    operation: Option<Uuid>,
}

impl TryFrom<SandboxRow> for Sandbox {
    type Error = StoreError;

    fn try_from(row: SandboxRow) -> Result<Self, StoreError> {
        let observed = observed(&row.observed, row.reason.as_deref())?;
        Ok(Self {
            id: SandboxId::from_uuid(row.id),
            project_id: ProjectId::from_uuid(row.project_id),
            state: coded(row.state.parse().ok(), "state", &row.state)?,
            reason: effective(observed, row.node_lost).reason(),
            template: SandboxTemplate {
                name: row.template_name,
                tag: row.template_tag,
                digest: coded(row.digest.parse().ok(), "digest", &row.digest)?,
            },
            vcpus: u32::try_from(row.vcpus).unwrap_or(0),
            memory_mib: ByteSize::bytes(unsigned(row.memory_bytes)).as_mib(),
            disk_mib: ByteSize::bytes(unsigned(row.disk_bytes)).as_mib(),
            env_names: row.env.0.into_keys().collect(),
            labels: row.labels.0,
            node_id: Some(NodeId::from_uuid(row.node_id)),
            agent_version: Some(row.agent_version).filter(|version| !version.is_empty()),
            operation: row.operation.map(OperationId::from_uuid),
            created_at: Timestamp::from_unix_milliseconds(row.created_at),
            started_at: row.started_at.map(Timestamp::from_unix_milliseconds),
            ended_at: row.ended_at.map(Timestamp::from_unix_milliseconds),
        })
    }
}

/// From its two columns.
pub(super) fn observed(code: &str, reason: Option<&str>) -> Result<Observed, StoreError> {
    let reason = match reason {
        Some(text) => Some(coded(text.parse::<Reason>().ok(), "reason", text)?),
        None => None,
    };
    let value = match (code, reason) {
        ("pending", None) => Some(Observed::Pending),
        ("booting", None) => Some(Observed::Booting),
        ("running", None) => Some(Observed::Running),
        ("absent", None) => Some(Observed::Absent),
        ("stopped", Some(reason)) => Some(Observed::Stopped(reason)),
        ("failed", Some(reason)) => Some(Observed::Failed(reason)),
        (_, _) => None,
    };
    coded(value, "observed", code)
}

pub(super) fn desired(code: &str) -> Result<Desired, StoreError> {
    coded(Desired::ALL.into_iter().find(|desired| desired.code() == code), "desired", code)
}

/// What counts as seen while the node is taken for lost. What it last reported stays in its columns, and counts
/// again as soon as the node is back. A sandbox of which nothing is left has nothing to lose.
pub(super) const fn effective(observed: Observed, node_lost: bool) -> Observed {
    match observed {
        Observed::Pending | Observed::Booting | Observed::Running if node_lost => {
            Observed::Failed(Reason::NodeLost)
        }
        Observed::Pending
        | Observed::Booting
        | Observed::Running
        | Observed::Stopped(_)
        | Observed::Failed(_)
        | Observed::Absent => observed,
    }
}

/// Everything that the controller needs to bring one sandbox where it should be.
#[derive(Debug, Clone)]
pub(crate) struct SandboxWork {
    pub(crate) id: SandboxId,
    pub(crate) tenant_id: TenantId,
    pub(crate) desired: Desired,
    pub(crate) observed: Observed,
    pub(crate) node_lost: bool,
    pub(crate) generation: u64,
    pub(crate) age_ms: i64,
    pub(crate) node_id: NodeId,
    pub(crate) node_address: String,
    pub(crate) node_is_live: bool,
    pub(crate) fence: u64,
    pub(crate) vcpus: u32,
    pub(crate) memory: ByteSize,
    pub(crate) disk: ByteSize,
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) digest: Digest,
    pub(crate) location: String,
    pub(crate) image_size: u64,
}

#[derive(sqlx::FromRow)]
struct WorkRow {
    tenant_id: Uuid,
    desired: String,
    observed: String,
    reason: Option<String>,
    node_lost: bool,
    generation: i64,
    age_ms: i64,
    node_id: Uuid,
    address: String,
    live: bool,
    fence: i64,
    vcpus: i32,
    memory_bytes: i64,
    disk_bytes: i64,
    env: Json<BTreeMap<String, String>>,
    digest: String,
    location: String,
    size_bytes: i64,
}

/// How to reach the worker that serves a sandbox's commands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Route {
    pub(crate) tenant_id: TenantId,
    pub(crate) project_id: ProjectId,
    pub(crate) node_id: NodeId,
    pub(crate) state: SandboxState,
    pub(crate) reason: Option<Reason>,
    pub(crate) generation: u64,
    pub(crate) data_address: String,
}

/// A list of sandboxes. One text for each pair of conditions, so that each is planned for its own index; all take the
/// same parameters, and those that a text does not need are null.
pub(crate) const fn list_sql(reach: Reach, state: Option<SandboxState>) -> &'static str {
    macro_rules! list {
        ($project:literal, $state:literal) => {
            select_sandbox!(
                "where s.tenant_id = $1 and ",
                $project,
                " and s.id < coalesce($3::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff') and ",
                $state,
                " and s.labels @> $5 order by s.id desc limit $6"
            )
        };
    }
    match (reach.project_id, state) {
        (None, None) => list!("$2::uuid is null", "$4::text is null and s.state <> 'deleted'"),
        (None, Some(_)) => list!("$2::uuid is null", "s.state = $4"),
        (Some(_), None) => list!("s.project_id = $2", "$4::text is null and s.state <> 'deleted'"),
        (Some(_), Some(_)) => list!("s.project_id = $2", "s.state = $4"),
    }
}

impl Store {
    pub(crate) async fn sandbox_get(
        &self,
        reach: Reach,
        id: SandboxId,
    ) -> Result<Option<Sandbox>, StoreError> {
        let row: Option<SandboxRow> = sqlx::query_as(select_sandbox!(
            "where s.id = $1 and s.tenant_id = $2 and ($3::uuid is null or s.project_id = $3)"
        ))
        .bind(id.uuid())
        .bind(reach.tenant_id.uuid())
        .bind(reach.project_id.map(ProjectId::uuid))
        .fetch_optional(self.pool())
        .await?;
        row.map(Sandbox::try_from).transpose()
    }

    /// Newest first, those older than `before`.
    pub(crate) async fn sandbox_list(
        &self,
        reach: Reach,
        query: &ListSandboxes,
        before: Option<SandboxId>,
        limit: u32,
    ) -> Result<Vec<Sandbox>, StoreError> {
        // Two conditions on one key with different values can't both hold; a map would lose one of them.
        let labels: BTreeMap<&String, &String> =
            query.label.iter().map(|(key, value)| (key, value)).collect();
        if query.label.iter().any(|(key, value)| labels.get(key) != Some(&value)) {
            return Ok(Vec::new());
        }
        let rows: Vec<SandboxRow> = sqlx::query_as(list_sql(reach, query.state))
            .bind(reach.tenant_id.uuid())
            .bind(reach.project_id.map(ProjectId::uuid))
            .bind(before.map(SandboxId::uuid))
            .bind(query.state.map(SandboxState::code))
            .bind(Json(labels))
            .bind(i64::from(limit))
            .fetch_all(self.pool())
            .await?;
        rows.into_iter().map(Sandbox::try_from).collect()
    }

    pub(crate) async fn sandbox_route(&self, id: SandboxId) -> Result<Option<Route>, StoreError> {
        #[derive(sqlx::FromRow)]
        struct Row {
            tenant_id: Uuid,
            project_id: Uuid,
            node_id: Uuid,
            state: String,
            observed: String,
            reason: Option<String>,
            node_lost: bool,
            observed_generation: i64,
            data_address: String,
        }
        let row: Option<Row> = sqlx::query_as(
            "select tenant_id, project_id, node_id, state, observed, reason, node_lost, observed_generation, data_address \
             from sandboxes where id = $1",
        )
        .bind(id.uuid())
        .fetch_optional(self.pool())
        .await?;
        let Some(row) = row else { return Ok(None) };
        let seen = observed(&row.observed, row.reason.as_deref())?;
        Ok(Some(Route {
            tenant_id: TenantId::from_uuid(row.tenant_id),
            project_id: ProjectId::from_uuid(row.project_id),
            node_id: NodeId::from_uuid(row.node_id),
            state: coded(row.state.parse().ok(), "state", &row.state)?,
            reason: effective(seen, row.node_lost).reason(),
            generation: unsigned(row.observed_generation),
            data_address: row.data_address,
        }))
    }

    pub(crate) async fn sandbox_work(&self, id: SandboxId) -> Result<Option<SandboxWork>, StoreError> {
        let row: Option<WorkRow> = sqlx::query_as(
            "select s.tenant_id, s.desired, s.observed, s.reason, s.node_lost, s.generation, \
                    now_ms() - s.created_at as age_ms, \
                    s.node_id, n.address, n.lease_until > now_ms() as live, n.fence, s.vcpus, s.memory_bytes, \
                    s.disk_bytes, s.env, r.digest, r.location, r.size_bytes \
             from sandboxes s join nodes n on n.id = s.node_id join releases r on r.id = s.release_id \
             where s.id = $1",
        )
        .bind(id.uuid())
        .fetch_optional(self.pool())
        .await?;
        let Some(row) = row else { return Ok(None) };
        Ok(Some(SandboxWork {
            id,
            tenant_id: TenantId::from_uuid(row.tenant_id),
            desired: desired(&row.desired)?,
            observed: observed(&row.observed, row.reason.as_deref())?,
            node_lost: row.node_lost,
            generation: unsigned(row.generation),
            age_ms: row.age_ms,
            node_id: NodeId::from_uuid(row.node_id),
            node_address: row.address,
            node_is_live: row.live,
            fence: unsigned(row.fence),
            vcpus: u32::try_from(row.vcpus).unwrap_or(0),
            memory: ByteSize::bytes(unsigned(row.memory_bytes)),
            disk: ByteSize::bytes(unsigned(row.disk_bytes)),
            env: row.env.0,
            digest: coded(row.digest.parse().ok(), "digest", &row.digest)?,
            location: row.location,
            image_size: unsigned(row.size_bytes),
        }))
    }

    /// The newest reports of those of `ids` that are on `node` and not deleted.
    pub(crate) async fn sandbox_known(
        &self,
        node: NodeId,
        ids: &[SandboxId],
    ) -> Result<HashMap<SandboxId, (u64, u64)>, StoreError> {
        let ids: Vec<Uuid> = ids.iter().map(|id| id.uuid()).collect();
        let rows: Vec<(Uuid, i64, i64)> = sqlx::query_as(
            "select id, observed_generation, observed_sequence from sandboxes \
             where id = any($1) and node_id = $2 and state <> 'deleted'",
        )
        .bind(&ids)
        .bind(node.uuid())
        .fetch_all(self.pool())
        .await?;
        let seen = |(id, generation, sequence)| {
            (SandboxId::from_uuid(id), (unsigned(generation), unsigned(sequence)))
        };
        Ok(rows.into_iter().map(seen).collect())
    }

    /// The newest report of a sandbox, by its generation and sequence.
    pub(crate) async fn sandbox_seen(&self, id: SandboxId) -> Result<Option<(u64, u64)>, StoreError> {
        let row: Option<(i64, i64)> =
            sqlx::query_as("select observed_generation, observed_sequence from sandboxes where id = $1")
                .bind(id.uuid())
                .fetch_optional(self.pool())
                .await?;
        Ok(row.map(|(generation, sequence)| (unsigned(generation), unsigned(sequence))))
    }

    /// How many sandboxes show each state.
    pub(crate) async fn sandbox_counts(&self) -> Result<Vec<(String, i64)>, StoreError> {
        Ok(sqlx::query_as("select state, count(*) from sandboxes group by state")
            .fetch_all(self.pool())
            .await?)
    }

    /// Forgets sandboxes that were deleted longer than `age_ms` ago; says how many.
    pub(crate) async fn sandbox_expire(&self, age_ms: i64, limit: u32) -> Result<u64, StoreError> {
        let result = sqlx::query(
            "delete from sandboxes where id in (select id from sandboxes \
               where state = 'deleted' and ended_at < now_ms() - $1 order by ended_at limit $2)",
        )
        .bind(age_ms)
        .bind(i64::from(limit))
        .execute(self.pool())
        .await?;
        Ok(result.rows_affected())
    }
}

/// What a new sandbox gets when its caller names no disk size, and whether the named one fits the image.
pub(super) fn disk_size(asked: Option<ByteSize>, image: u64) -> Result<ByteSize, u64> {
    let image_mib = image.div_ceil(1024 * 1024);
    match asked {
        Some(asked) if asked.as_bytes() < image => Err(image_mib),
        Some(asked) => Ok(asked),
        None => Ok(ByteSize::mib(image_mib.max(space_api::limits::DISK_MIB_DEFAULT))),
    }
}

/// For the columns that hold sizes.
pub(super) fn column(size: ByteSize) -> i64 {
    signed(size.as_bytes())
}
