//! Sandboxes: made, listed, read, deleted.

use std::time::Duration;

use space_api::{
    FieldErrors, Page,
    operations::{OperationKind, OperationStatus},
    sandboxes::{CreateSandbox, ListSandboxes, Sandbox, SandboxOperation},
};
use space_types::{SandboxId, TemplateRef, TenantId};

use super::{App, AppError, error::Answer, page};
use crate::{
    fail_point,
    store::idempotency::{Claim, Claimed},
};

impl App {
    /// Accepts a sandbox and waits for it up to `wait`. Nothing is written unless there is room for it.
    pub(crate) async fn sandbox_create(
        &self,
        tenant: TenantId,
        request: &CreateSandbox,
        claim: Option<&Claim>,
        wait: Duration,
    ) -> Result<Answer<SandboxOperation>, AppError> {
        request.validate()?;
        let (reference, class) = parsed(request)?;
        let claimed = self.store.sandbox_create(tenant, request, &reference, class, claim).await?;
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
        Ok(Answer::New(self.settled(tenant, answer, wait).await?))
    }

    pub(crate) async fn sandbox_list(
        &self,
        tenant: TenantId,
        query: &ListSandboxes,
    ) -> Result<Page<Sandbox>, AppError> {
        let before = page::parse_cursor(query.cursor.as_deref())?;
        let items = self.store.sandbox_list(tenant, query, before, query.limit() + 1).await?;
        Ok(page::page(items, query.limit(), |sandbox| sandbox.id))
    }

    pub(crate) async fn sandbox_get(&self, tenant: TenantId, id: SandboxId) -> Result<Sandbox, AppError> {
        self.store.sandbox_get(tenant, id).await?.ok_or(AppError::NotFound("sandbox"))
    }

    /// Wants the sandbox gone and waits for that up to `wait`. Deleting twice is harmless.
    pub(crate) async fn sandbox_delete(
        &self,
        tenant: TenantId,
        id: SandboxId,
        wait: Duration,
    ) -> Result<SandboxOperation, AppError> {
        let answer = self.store.sandbox_delete(tenant, id).await?.ok_or(AppError::NotFound("sandbox"))?;
        fail_point::DELETE_AFTER_COMMIT.pass();
        self.announce(crate::store::sandbox_changes::Changed { tenant_id: tenant, sandbox_id: id });
        if !answer.operation.status.is_done() {
            self.nudges.nudge(id);
        }
        self.settled(tenant, answer, wait).await
    }

    /// Both as they are when the operation is done or the time is over.
    async fn settled(
        &self,
        tenant: TenantId,
        answer: SandboxOperation,
        wait: Duration,
    ) -> Result<SandboxOperation, AppError> {
        if wait.is_zero() {
            return Ok(answer);
        }
        let operation = self.operation_wait(tenant, answer.operation.id, wait).await?;
        let now = self.store.sandbox_with_operation(tenant, answer.sandbox.id, operation.id).await?;
        now.ok_or(AppError::NotFound("sandbox"))
    }
}

/// Whether a create that was waited for has come to its end, for its status code.
pub(crate) fn is_created(answer: &SandboxOperation) -> bool {
    answer.operation.kind == OperationKind::Create && answer.operation.status == OperationStatus::Succeeded
}

fn parsed(request: &CreateSandbox) -> Result<(TemplateRef, space_types::MachineClass), FieldErrors> {
    let reference = request.template.parse().map_err(|error: space_types::ParseTemplateRefError| {
        FieldErrors::one("template", error.to_string())
    })?;
    let class =
        request.machine_class().ok_or_else(|| FieldErrors::one("memory_mib", "no such machine class"))?;
    Ok((reference, class))
}
