//! Operations: made with the change they stand for, finished with the observation that decides it.

use space_api::{
    Problem, ProblemCode, Timestamp,
    operations::{Operation, OperationKind, OperationStatus},
};
use space_types::{OperationId, ProjectId, Reason, SandboxId, SandboxState, TenantId};
use sqlx::{PgConnection, types::Json};
use uuid::Uuid;

use super::{Store, StoreError, coded};
use crate::grants::Reach;

#[derive(sqlx::FromRow)]
pub(super) struct OperationRow {
    id: Uuid,
    kind: String,
    sandbox_id: Uuid,
    status: String,
    problem: Option<Json<Problem>>,
    created_at: i64,
    finished_at: Option<i64>,
}

impl TryFrom<OperationRow> for Operation {
    type Error = StoreError;

    fn try_from(row: OperationRow) -> Result<Self, StoreError> {
        let kind = OperationKind::ALL.into_iter().find(|kind| kind.code() == row.kind);
        let status = OperationStatus::ALL.into_iter().find(|status| status.code() == row.status);
        Ok(Self {
            id: OperationId::from_uuid(row.id),
            kind: coded(kind, "kind", &row.kind)?,
            sandbox_id: SandboxId::from_uuid(row.sandbox_id),
            status: coded(status, "status", &row.status)?,
            problem: row.problem.map(|problem| problem.0),
            created_at: Timestamp::from_unix_milliseconds(row.created_at),
            finished_at: row.finished_at.map(Timestamp::from_unix_milliseconds),
        })
    }
}

/// How an operation ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Ending {
    Succeeded,
    Failed(Box<Problem>),
}

/// What an open operation of this kind comes to when its sandbox shows `state`. `None`: not decided yet.
pub(super) fn ending(kind: OperationKind, state: SandboxState, reason: Option<Reason>) -> Option<Ending> {
    let why = reason.map_or("nothing of it is left on its node", Reason::code);
    let failed =
        |detail: String| Some(Ending::Failed(Box::new(Problem::new(ProblemCode::CreateFailed, detail))));
    match (kind, state) {
        (OperationKind::Create, SandboxState::Running) | (OperationKind::Delete, SandboxState::Deleted) => {
            Some(Ending::Succeeded)
        }
        (OperationKind::Create, SandboxState::Stopped | SandboxState::Failed) => {
            failed(format!("the sandbox ended before its agent had answered: {why}"))
        }
        (OperationKind::Create, SandboxState::Deleting | SandboxState::Deleted) => {
            failed("the sandbox was deleted before it was running".to_owned())
        }
        (OperationKind::Create, SandboxState::Creating)
        | (
            OperationKind::Delete,
            SandboxState::Creating
            | SandboxState::Running
            | SandboxState::Stopped
            | SandboxState::Failed
            | SandboxState::Deleting,
        ) => None,
    }
}

pub(super) async fn insert(
    tx: &mut PgConnection,
    tenant: TenantId,
    sandbox: SandboxId,
    kind: OperationKind,
) -> Result<Operation, StoreError> {
    let row: OperationRow = sqlx::query_as(
        "insert into operations (id, tenant_id, sandbox_id, kind, status) values ($1, $2, $3, $4, $5) \
         returning id, kind, sandbox_id, status, problem, created_at, finished_at",
    )
    .bind(OperationId::new().uuid())
    .bind(tenant.uuid())
    .bind(sandbox.uuid())
    .bind(kind.code())
    .bind(OperationStatus::Running.code())
    .fetch_one(&mut *tx)
    .await?;
    row.try_into()
}

/// Finishes what the new state decides; answers those operations.
pub(super) async fn finish_decided(
    tx: &mut PgConnection,
    sandbox: SandboxId,
    state: SandboxState,
    reason: Option<Reason>,
) -> Result<Vec<Operation>, StoreError> {
    let mut finished = Vec::new();
    for kind in OperationKind::ALL {
        let (status, problem) = match ending(kind, state, reason) {
            None => continue,
            Some(Ending::Succeeded) => (OperationStatus::Succeeded, None),
            Some(Ending::Failed(problem)) => (OperationStatus::Failed, Some(Json(problem))),
        };
        let rows: Vec<OperationRow> = sqlx::query_as(
            "update operations set status = $3, problem = $4, finished_at = now_ms() \
             where sandbox_id = $1 and kind = $2 and finished_at is null \
             returning id, kind, sandbox_id, status, problem, created_at, finished_at",
        )
        .bind(sandbox.uuid())
        .bind(kind.code())
        .bind(status.code())
        .bind(problem)
        .fetch_all(&mut *tx)
        .await?;
        for row in rows {
            finished.push(row.try_into()?);
        }
    }
    Ok(finished)
}

/// The operation of this kind that is under way, or the last one.
pub(super) async fn latest(
    tx: &mut PgConnection,
    sandbox: SandboxId,
    kind: OperationKind,
) -> Result<Option<Operation>, StoreError> {
    let row: Option<OperationRow> = sqlx::query_as(
        "select id, kind, sandbox_id, status, problem, created_at, finished_at from operations \
         where sandbox_id = $1 and kind = $2 order by id desc limit 1",
    )
    .bind(sandbox.uuid())
    .bind(kind.code())
    .fetch_optional(&mut *tx)
    .await?;
    row.map(Operation::try_from).transpose()
}

impl Store {
    pub(crate) async fn operation_get(
        &self,
        reach: Reach,
        id: OperationId,
    ) -> Result<Option<Operation>, StoreError> {
        let row: Option<OperationRow> = sqlx::query_as(
            "select o.id, o.kind, o.sandbox_id, o.status, o.problem, o.created_at, o.finished_at \
             from operations o join sandboxes s on s.id = o.sandbox_id \
             where o.id = $1 and s.tenant_id = $2 and ($3::uuid is null or s.project_id = $3)",
        )
        .bind(id.uuid())
        .bind(reach.tenant_id.uuid())
        .bind(reach.project_id.map(ProjectId::uuid))
        .fetch_optional(self.pool())
        .await?;
        row.map(Operation::try_from).transpose()
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;

    #[test]
    fn what_a_state_decides_is_as_documented() {
        let mut table = String::new();
        for kind in OperationKind::ALL {
            for state in SandboxState::ALL {
                let end = match ending(kind, state, Some(Reason::GuestPanic)) {
                    None => "undecided".to_owned(),
                    Some(Ending::Succeeded) => "succeeded".to_owned(),
                    Some(Ending::Failed(problem)) => format!("failed: {problem}"),
                };
                writeln!(table, "{:<7} {:<9} {end}", kind.code(), state.code()).unwrap();
            }
        }
        insta::assert_snapshot!(table);
    }
}
