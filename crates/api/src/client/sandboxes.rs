//! Sandboxes and their operations.

use std::time::Duration;

use reqwest::Method;
use space_types::{OperationId, SandboxId};
use tokio::time::Instant;

use super::{Call, Client, ClientError};
use crate::{
    Page,
    operations::Operation,
    sandboxes::{CreateSandbox, ListSandboxes, Sandbox, SandboxOperation},
};

/// What one request asks the server to wait at most; a longer wait is made of several.
const WAIT_STEP: u32 = 60;

impl Client {
    /// Accepts the sandbox and waits up to `wait` seconds (at most 300) for its operation to finish.
    pub async fn sandbox_create(
        &self,
        body: &CreateSandbox,
        wait: u32,
    ) -> Result<SandboxOperation, ClientError> {
        self.call(Call::new(Method::POST, "/v1/sandboxes").body(body)?.wait(wait)).await
    }

    pub async fn sandbox_list(&self, query: &ListSandboxes) -> Result<Page<Sandbox>, ClientError> {
        self.call(Call::new(Method::GET, "/v1/sandboxes").query(query.to_pairs())).await
    }

    pub async fn sandbox_get(&self, id: SandboxId) -> Result<Sandbox, ClientError> {
        self.get(&format!("/v1/sandboxes/{id}")).await
    }

    /// Deleting what is being deleted answers the operation under way.
    pub async fn sandbox_delete(&self, id: SandboxId, wait: u32) -> Result<SandboxOperation, ClientError> {
        self.call(Call::new(Method::DELETE, &format!("/v1/sandboxes/{id}")).wait(wait)).await
    }

    pub async fn operation_get(&self, id: OperationId, wait: u32) -> Result<Operation, ClientError> {
        self.call(Call::new(Method::GET, &format!("/v1/operations/{id}")).wait(wait)).await
    }

    /// Waits until the operation has succeeded or failed.
    pub async fn operation_finish(
        &self,
        id: OperationId,
        deadline: Duration,
    ) -> Result<Operation, ClientError> {
        let until = Instant::now() + deadline;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let wait = u32::try_from(left.as_secs()).unwrap_or(WAIT_STEP).clamp(1, WAIT_STEP);
            let operation = self.operation_get(id, wait).await?;
            if operation.status.is_done() {
                return Ok(operation);
            }
            if Instant::now() >= until {
                return Err(ClientError::Deadline { after: deadline });
            }
        }
    }
}
