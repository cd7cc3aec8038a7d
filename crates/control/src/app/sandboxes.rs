//! Sandboxes: made, listed, read, deleted.

use std::time::Duration;

use space_api::{
    FieldErrors, Page,
    operations::{OperationKind, OperationStatus},
    sandboxes::{CreateSandbox, ListSandboxes, Sandbox, SandboxOperation},
};
use space_types::{SandboxId, TemplateRef};

use super::{App, AppError, error::Answer, page};
use crate::{
    fail_point,
    grants::Reach,
    store::{
        idempotency::{Claim, Claimed},
        projects::default_project,
        quotas::Owner,
    },
};

impl App {
    /// Accepts a sandbox and waits for it up to `wait`. Nothing is written unless there is room for it.
    pub(crate) async fn sandbox_create(
        &self,
        reach: Reach,
        request: &CreateSandbox,
        claim: Option<&Claim>,
        wait: Duration,
    ) -> Result<Answer<SandboxOperation>, AppError> {
        request.validate()?;
        let (reference, class) = parsed(request)?;
        let owner = owner(reach, request)?;
        let claimed = self.store.sandbox_create(owner, request, &reference, class, claim).await?;
        let answer = match claimed {
            Claimed::Done(created) => {
                fail_point::CREATE_AFTER_COMMIT.pass();
                self.announce(created.changed);
                self.nudges.nudge(created.changed.sandbox_id);
                created.answer
            }
            Claimed::Repeated(response) if wait.is_zero() => return Ok(Answer::Repeated(response)),
            // Who waits again wants to know how it ended, as the first request did.
            Claimed::Repeated(response) => match serde_json::from_value(response.body.clone()) {
                Ok(answer) => answer,
                Err(_) => return Ok(Answer::Repeated(response)),
            },
            Claimed::Reused => return Err(AppError::IdempotencyReused),
            Claimed::InUse => return Err(AppError::IdempotencyInUse),
        };
        Ok(Answer::New(self.settled(reach, answer, wait).await?))
    }

    pub(crate) async fn sandbox_list(
        &self,
        reach: Reach,
        query: &ListSandboxes,
    ) -> Result<Page<Sandbox>, AppError> {
        let before = page::parse_cursor(query.cursor.as_deref())?;
        let Some(reach) = reach.within(query.project_id) else {
            return Ok(Page { items: Vec::new(), next_cursor: None });
        };
        let items = self.store.sandbox_list(reach, query, before, query.limit() + 1).await?;
        Ok(page::page(items, query.limit(), |sandbox| sandbox.id))
    }

    pub(crate) async fn sandbox_get(&self, reach: Reach, id: SandboxId) -> Result<Sandbox, AppError> {
        self.store.sandbox_get(reach, id).await?.ok_or(AppError::NotFound("sandbox"))
    }

    /// Wants the sandbox gone and waits for that up to `wait`. Deleting twice is harmless.
    pub(crate) async fn sandbox_delete(
        &self,
        reach: Reach,
        id: SandboxId,
        wait: Duration,
    ) -> Result<SandboxOperation, AppError> {
        let answer = self.store.sandbox_delete(reach, id).await?.ok_or(AppError::NotFound("sandbox"))?;
        fail_point::DELETE_AFTER_COMMIT.pass();
        self.announce(crate::store::sandbox_changes::Changed { tenant_id: reach.tenant_id, sandbox_id: id });
        if !answer.operation.status.is_done() {
            self.nudges.nudge(id);
        }
        self.settled(reach, answer, wait).await
    }

    /// Both as they are when the operation is done or the time is over.
    async fn settled(
        &self,
        reach: Reach,
        answer: SandboxOperation,
        wait: Duration,
    ) -> Result<SandboxOperation, AppError> {
        if wait.is_zero() {
            return Ok(answer);
        }
        let operation = self.operation_wait(reach, answer.operation.id, wait).await?;
        let now = self.store.sandbox_with_operation(reach, answer.sandbox.id, operation.id).await?;
        now.ok_or(AppError::NotFound("sandbox"))
    }
}

/// Whether a create that was waited for has come to its end, for its status code.
pub(crate) fn is_created(answer: &SandboxOperation) -> bool {
    answer.operation.kind == OperationKind::Create && answer.operation.status == OperationStatus::Succeeded
}

/// Where a new sandbox belongs. A project beyond the caller's reach is none.
fn owner(reach: Reach, request: &CreateSandbox) -> Result<Owner, FieldErrors> {
    let reach = reach.within(request.project_id);
    let reach = reach.ok_or_else(|| FieldErrors::one("project_id", "there is no such project"))?;
    let project_id = reach.project_id.unwrap_or(default_project(reach.tenant_id));
    Ok(Owner { tenant_id: reach.tenant_id, project_id })
}

fn parsed(request: &CreateSandbox) -> Result<(TemplateRef, space_types::MachineClass), FieldErrors> {
    let reference = request.template.parse().map_err(|error: space_types::ParseTemplateRefError| {
        FieldErrors::one("template", error.to_string())
    })?;
    let class =
        request.machine_class().ok_or_else(|| FieldErrors::one("memory_mib", "no such machine class"))?;
    Ok((reference, class))
}
