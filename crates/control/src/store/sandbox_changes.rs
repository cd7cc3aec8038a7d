//! Changes of a sandbox, each one transaction: created, deletion wanted, seen, its node lost or back.
//!
//! All of them end in [`settle`], which computes the state shown, keeps the sums of node, tenant and project right, finishes the
//! operations that the state decides and writes the events. So the column `state` and the reservation can't
//! drift from what they follow from.

use space_api::{
    events::{EventData, EventKind},
    operations::{Operation, OperationKind},
    quotas::QuotaExcess,
    sandboxes::{CreateSandbox, Sandbox, SandboxOperation},
};
use space_node_proto::common::ObservedSandbox;
use space_types::{
    ByteSize, Desired, MachineClass, NodeId, Observed, OperationId, ProjectId, SandboxId, SandboxState,
    TemplateRef, TenantId, shown_state,
};
use sqlx::{PgConnection, types::Json};
use uuid::Uuid;

use super::{
    Store, StoreError, coded,
    idempotency::{Claim, Claimed},
    operations, placement,
    quotas::{self, Holding, Owner},
    sandboxes::{SandboxRow, column, desired, disk_size, effective, observed, select_sandbox},
    signed, templates, triggers, unsigned,
};
use crate::grants::Reach;

#[derive(Debug, thiserror::Error)]
pub(crate) enum CreateSandboxError {
    #[error("there is no template {0}")]
    TemplateNotFound(TemplateRef),
    #[error("the template's image has {image_mib} MiB")]
    DiskTooSmall { image_mib: u64 },
    #[error("there is no such project")]
    NoProject,
    #[error("{0}")]
    QuotaExceeded(QuotaExcess),
    #[error("no node has room for {0:?}")]
    NoCapacity(MachineClass),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<quotas::Refusal> for CreateSandboxError {
    fn from(refusal: quotas::Refusal) -> Self {
        match refusal {
            quotas::Refusal::NoProject => Self::NoProject,
            quotas::Refusal::Exceeded(excess) => Self::QuotaExceeded(excess),
        }
    }
}

impl From<sqlx::Error> for CreateSandboxError {
    fn from(error: sqlx::Error) -> Self {
        Self::Store(error.into())
    }
}

/// What is written down of a report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Observation {
    pub(crate) observed: Observed,
    pub(crate) generation: u64,
    pub(crate) sequence: u64,
    pub(crate) message: String,
    pub(crate) data_address: String,
    pub(crate) agent_version: String,
    pub(crate) vmm_version: String,
    pub(crate) started_at_ms: u64,
}

/// Whether a report said something new.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Report {
    Applied,
    /// Older than what is known, or the same.
    Stale,
    /// No such sandbox on this node, as far as control knows.
    Unknown,
}

impl Report {
    pub(crate) const fn code(self) -> &'static str {
        match self {
            Self::Applied => "applied",
            Self::Stale => "stale",
            Self::Unknown => "unknown",
        }
    }
}

/// A change that was committed, for whoever waits for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Changed {
    pub(crate) tenant_id: TenantId,
    pub(crate) sandbox_id: SandboxId,
}

/// Who may be told the answer of an earlier create.
pub(crate) struct Created {
    pub(crate) answer: SandboxOperation,
    pub(crate) changed: Changed,
}

/// The columns that `settle` works on, locked.
#[derive(sqlx::FromRow)]
struct Locked {
    tenant_id: Uuid,
    project_id: Uuid,
    desired: String,
    observed: String,
    reason: Option<String>,
    node_lost: bool,
    state: String,
    node_id: Uuid,
    reserved: bool,
    vcpus: i32,
    held_memory: i64,
    memory_bytes: i64,
    disk_bytes: i64,
    generation: i64,
    observed_generation: i64,
    observed_sequence: i64,
}

impl Locked {
    fn owner(&self) -> Owner {
        Owner {
            tenant_id: TenantId::from_uuid(self.tenant_id),
            project_id: ProjectId::from_uuid(self.project_id),
        }
    }

    /// What counts against the quotas in this state.
    fn holding(&self, reserved: bool, state: SandboxState) -> Holding {
        let exists = state != SandboxState::Deleted;
        Holding::of(self.vcpus, self.memory_bytes, self.disk_bytes, reserved, exists)
    }

    fn state(&self) -> Result<SandboxState, StoreError> {
        coded(self.state.parse().ok(), "state", &self.state)
    }
}

async fn lock(tx: &mut PgConnection, id: SandboxId) -> Result<Option<Locked>, StoreError> {
    Ok(sqlx::query_as(
        "select tenant_id, project_id, desired, observed, reason, node_lost, state, node_id, reserved, vcpus, \
                held_memory, memory_bytes, disk_bytes, generation, observed_generation, observed_sequence \
         from sandboxes where id = $1 for update",
    )
    .bind(id.uuid())
    .fetch_optional(&mut *tx)
    .await?)
}

/// Brings everything that follows from (desired, observed, node_lost) in line with them.
async fn settle(tx: &mut PgConnection, id: SandboxId, before: &Locked) -> Result<(), StoreError> {
    let now: Locked = lock(tx, id).await?.ok_or_else(|| StoreError::Corrupt(format!("{id} vanished")))?;
    let seen = effective(observed(&now.observed, now.reason.as_deref())?, now.node_lost);
    let state = shown_state(desired(&now.desired)?, seen);
    let reserved = state.holds_memory() && !seen.is_final();
    if reserved != now.reserved {
        let node = NodeId::from_uuid(now.node_id);
        placement::adjust(tx, node, now.vcpus, now.held_memory, reserved).await?;
    }
    let held = now.holding(now.reserved, now.state()?);
    quotas::adjust(tx, now.owner(), now.holding(reserved, state).since(held)).await?;
    let ended = matches!(seen, Observed::Stopped(_) | Observed::Failed(_) | Observed::Absent);
    sqlx::query(
        "update sandboxes set state = $2, reserved = $3, \
           ended_at = case when $4 then coalesce(ended_at, now_ms()) end where id = $1",
    )
    .bind(id.uuid())
    .bind(state.code())
    .bind(reserved)
    .bind(ended)
    .execute(&mut *tx)
    .await?;
    let finished = operations::finish_decided(tx, id, state, seen.reason()).await?;
    if is_settled(desired(&now.desired)?, seen) {
        triggers::clear(tx, id).await?;
    }
    if before.state != state.code() {
        let data = EventData { state: Some(state), reason: seen.reason(), operation: None };
        super::events::append(tx, id, kind_of(state), data).await?;
    }
    for operation in finished {
        let data = EventData { operation: Some(operation), ..EventData::default() };
        super::events::append(tx, id, EventKind::OperationFinished, data).await?;
    }
    Ok(())
}

/// Nothing is left for the controller to do.
pub(crate) const fn is_settled(desired: Desired, seen: Observed) -> bool {
    match desired {
        Desired::Running => seen.is_final() || matches!(seen, Observed::Running),
        Desired::Deleted => matches!(seen, Observed::Absent),
    }
}

const fn kind_of(state: SandboxState) -> EventKind {
    match state {
        SandboxState::Creating => EventKind::SandboxCreated,
        SandboxState::Running => EventKind::SandboxRunning,
        SandboxState::Stopped => EventKind::SandboxStopped,
        SandboxState::Failed => EventKind::SandboxFailed,
        SandboxState::Deleting => EventKind::SandboxDeleting,
        SandboxState::Deleted => EventKind::SandboxDeleted,
    }
}

impl Store {
    /// The transaction before the node is called.
    pub(crate) async fn sandbox_create(
        &self,
        owner: Owner,
        request: &CreateSandbox,
        reference: &TemplateRef,
        class: MachineClass,
        claim: Option<&Claim>,
    ) -> Result<Claimed<Created>, CreateSandboxError> {
        let mut tx = self.begin().await?;
        if let Some(earlier) = super::idempotency::begin(&mut tx, claim).await? {
            return Ok(earlier.into());
        }
        let release = templates::resolve(&mut tx, reference)
            .await?
            .ok_or_else(|| CreateSandboxError::TemplateNotFound(reference.clone()))?;
        let disk = disk_size(request.disk_mib.map(ByteSize::mib), release.size_bytes)
            .map_err(|image_mib| CreateSandboxError::DiskTooSmall { image_mib })?;
        let place = placement::reserve(&mut tx, class, disk, None)
            .await?
            .ok_or(CreateSandboxError::NoCapacity(class))?;
        let holding = Holding::of(i32::from(class.vcpus), column(class.memory), column(disk), true, true);
        quotas::take(&mut tx, owner, holding, &self.default_quota).await??;
        let id = SandboxId::new();
        let tag = match reference {
            TemplateRef::Tag { tag, .. } => Some(tag.as_str()),
            TemplateRef::Exact { .. } => None,
        };
        sqlx::query(
            "insert into sandboxes (id, tenant_id, desired, generation, vcpus, memory_bytes, disk_bytes, \
               release_id, template_name, template_tag, env, labels, node_id, held_memory, project_id, reserved, \
               observed, state) \
             values ($1, $2, 'running', 1, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, true, 'pending', \
               'creating')",
        )
        .bind(id.uuid())
        .bind(owner.tenant_id.uuid())
        .bind(i32::from(class.vcpus))
        .bind(column(class.memory))
        .bind(column(disk))
        .bind(release.id.uuid())
        .bind(reference.name())
        .bind(tag)
        .bind(Json(&request.env))
        .bind(Json(&request.labels))
        .bind(place.node.uuid())
        .bind(place.memory)
        .bind(owner.project_id.uuid())
        .execute(&mut *tx)
        .await?;
        triggers::set(&mut tx, id).await?;
        let operation = operations::insert(&mut tx, owner.tenant_id, id, OperationKind::Create).await?;
        let data = EventData { state: Some(SandboxState::Creating), ..EventData::default() };
        super::events::append(&mut tx, id, EventKind::SandboxCreated, data).await?;
        let sandbox = read(&mut tx, id).await?;
        let answer = SandboxOperation { sandbox, operation };
        super::idempotency::finish(&mut tx, claim, 202, &answer).await?;
        crate::fail_point::CREATE_BEFORE_COMMIT.pass();
        tx.commit().await?;
        let changed = Changed { tenant_id: owner.tenant_id, sandbox_id: id };
        Ok(Claimed::Done(Created { answer, changed }))
    }

    /// Wants the sandbox gone. A second time answers the operation of the first. `None`: no such sandbox.
    pub(crate) async fn sandbox_delete(
        &self,
        reach: Reach,
        id: SandboxId,
    ) -> Result<Option<SandboxOperation>, StoreError> {
        let mut tx = self.begin().await?;
        let Some(before) = lock(&mut tx, id).await? else { return Ok(None) };
        let Owner { tenant_id, project_id } = before.owner();
        if !reach.sees(tenant_id, project_id) {
            return Ok(None);
        }
        if desired(&before.desired)? == Desired::Deleted {
            let operation = operations::latest(&mut tx, id, OperationKind::Delete).await?;
            let operation =
                operation.ok_or_else(|| StoreError::Corrupt(format!("{id} has no delete operation")))?;
            return Ok(Some(SandboxOperation { sandbox: read(&mut tx, id).await?, operation }));
        }
        sqlx::query("update sandboxes set desired = 'deleted', generation = generation + 1 where id = $1")
            .bind(id.uuid())
            .execute(&mut *tx)
            .await?;
        super::ports::remove_all(&mut tx, id).await?;
        triggers::set(&mut tx, id).await?;
        let operation = operations::insert(&mut tx, tenant_id, id, OperationKind::Delete).await?;
        settle(&mut tx, id, &before).await?;
        let sandbox = read(&mut tx, id).await?;
        crate::fail_point::DELETE_BEFORE_COMMIT.pass();
        tx.commit().await?;
        Ok(Some(SandboxOperation { sandbox, operation }))
    }

    /// Writes down what `node` saw, unless something newer is known.
    pub(crate) async fn sandbox_observe(
        &self,
        node: NodeId,
        id: SandboxId,
        seen: &Observation,
    ) -> Result<(Report, Option<Changed>), StoreError> {
        let mut tx = self.begin().await?;
        let Some(before) = lock(&mut tx, id).await?.filter(|row| row.node_id == node.uuid()) else {
            return Ok((Report::Unknown, None));
        };
        let gone = before.desired == Desired::Deleted.code() && before.observed == Observed::Absent.code();
        if gone && seen.observed != Observed::Absent {
            return Ok((Report::Unknown, None));
        }
        let known = (unsigned(before.observed_generation), unsigned(before.observed_sequence));
        // A node can't have seen a generation that was never asked for.
        if known >= (seen.generation, seen.sequence) || seen.generation > unsigned(before.generation) {
            return Ok((Report::Stale, None));
        }
        sqlx::query(
            "update sandboxes set observed = $2, reason = $3, message = $4, observed_generation = $5, \
               observed_sequence = $6, data_address = $7, agent_version = $8, vmm_version = $9, \
               started_at = coalesce(started_at, $10) where id = $1",
        )
        .bind(id.uuid())
        .bind(seen.observed.code())
        .bind(seen.observed.reason().map(space_types::Reason::code))
        .bind(Some(&seen.message).filter(|message| !message.is_empty()))
        .bind(signed(seen.generation))
        .bind(signed(seen.sequence))
        .bind(&seen.data_address)
        .bind(&seen.agent_version)
        .bind(&seen.vmm_version)
        .bind(Some(signed(seen.started_at_ms)).filter(|ms| *ms != 0))
        .execute(&mut *tx)
        .await?;
        settle(&mut tx, id, &before).await?;
        crate::fail_point::OBSERVE_BEFORE_COMMIT.pass();
        tx.commit().await?;
        let tenant_id = TenantId::from_uuid(before.tenant_id);
        Ok((Report::Applied, Some(Changed { tenant_id, sandbox_id: id })))
    }

    /// Writes down what control itself concluded about `generation`: that nothing is left after a removal, or
    /// that the sandbox can't be started. Later reports of the node about this generation still count, except
    /// after a removal.
    pub(crate) async fn sandbox_conclude(
        &self,
        id: SandboxId,
        generation: u64,
        seen: Observed,
    ) -> Result<Option<Changed>, StoreError> {
        let mut tx = self.begin().await?;
        let Some(before) = lock(&mut tx, id).await?.filter(|row| unsigned(row.generation) == generation)
        else {
            return Ok(None);
        };
        if observed(&before.observed, before.reason.as_deref())?.is_final() && seen != Observed::Absent {
            return Ok(None);
        }
        sqlx::query(
            "update sandboxes set observed = $2, reason = $3, node_lost = false, \
               observed_sequence = case when observed_generation < $4 then 0 else observed_sequence end, \
               observed_generation = greatest(observed_generation, $4) where id = $1",
        )
        .bind(id.uuid())
        .bind(seen.code())
        .bind(seen.reason().map(space_types::Reason::code))
        .bind(signed(generation))
        .execute(&mut *tx)
        .await?;
        settle(&mut tx, id, &before).await?;
        crate::fail_point::CONCLUDE_BEFORE_COMMIT.pass();
        tx.commit().await?;
        Ok(Some(Changed { tenant_id: TenantId::from_uuid(before.tenant_id), sandbox_id: id }))
    }

    /// Takes one sandbox for lost with its node, or for back with it.
    pub(crate) async fn sandbox_set_node_lost(
        &self,
        id: SandboxId,
        lost: bool,
    ) -> Result<Option<Changed>, StoreError> {
        let mut tx = self.begin().await?;
        let Some(before) = lock(&mut tx, id).await?.filter(|row| row.node_lost != lost) else {
            return Ok(None);
        };
        sqlx::query("update sandboxes set node_lost = $2 where id = $1")
            .bind(id.uuid())
            .bind(lost)
            .execute(&mut *tx)
            .await?;
        settle(&mut tx, id, &before).await?;
        tx.commit().await?;
        Ok(Some(Changed { tenant_id: TenantId::from_uuid(before.tenant_id), sandbox_id: id }))
    }

    /// The sandbox and an operation of it, as they are now.
    pub(crate) async fn sandbox_with_operation(
        &self,
        reach: Reach,
        id: SandboxId,
        operation: OperationId,
    ) -> Result<Option<SandboxOperation>, StoreError> {
        let sandbox: Option<Sandbox> = self.sandbox_get(reach, id).await?;
        let operation: Option<Operation> = self.operation_get(reach, operation).await?;
        Ok(sandbox.zip(operation).map(|(sandbox, operation)| SandboxOperation { sandbox, operation }))
    }
}

async fn read(tx: &mut PgConnection, id: SandboxId) -> Result<Sandbox, StoreError> {
    let row: SandboxRow =
        sqlx::query_as(select_sandbox!("where s.id = $1")).bind(id.uuid()).fetch_one(&mut *tx).await?;
    row.try_into()
}

/// A report as it came, checked. `None`: it names no sandbox, phase or reason that exists; a node of another
/// version, or a broken one. Texts are cut to a sane length.
pub(crate) fn parse_report(report: &ObservedSandbox) -> Option<(SandboxId, Observation)> {
    use space_node_proto::common::Phase;
    let id = report.sandbox_id.parse().ok()?;
    let reason = || report.reason.parse().ok();
    let seen = match Phase::try_from(report.phase).ok()? {
        Phase::Unspecified => return None,
        Phase::Booting => Observed::Booting,
        Phase::Running => Observed::Running,
        Phase::Stopped => Observed::Stopped(reason()?),
        Phase::Failed => Observed::Failed(reason()?),
        Phase::Absent => Observed::Absent,
    };
    let cut =
        |text: &str, longest: usize| text.chars().filter(|c| *c != '\0').take(longest).collect::<String>();
    Some((
        id,
        Observation {
            observed: seen,
            generation: report.generation,
            sequence: report.sequence,
            message: cut(&report.message, 1024),
            data_address: cut(&report.data_address, 256),
            agent_version: cut(&report.agent_version, 64),
            vmm_version: cut(&report.vmm_version, 64),
            started_at_ms: report.started_at_ms,
        },
    ))
}
