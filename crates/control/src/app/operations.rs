//! Operations, and waiting for them.

use std::time::Duration;

use space_api::operations::Operation;
use space_types::OperationId;
use tokio::time::{Instant, timeout_at};

use super::{App, AppError, changes::Interest};
use crate::grants::Reach;

/// A waiter looks again after so long even if nobody woke it: a message between replicas may be lost.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

impl App {
    pub(crate) async fn operation_get(&self, reach: Reach, id: OperationId) -> Result<Operation, AppError> {
        self.store.operation_get(reach, id).await?.ok_or(AppError::NotFound("operation"))
    }

    /// The operation as soon as it is done, or as it is after `wait`. At shutdown at once.
    pub(crate) async fn operation_wait(
        &self,
        reach: Reach,
        id: OperationId,
        wait: Duration,
    ) -> Result<Operation, AppError> {
        let end = Instant::now() + wait;
        let mut operation = self.operation_get(reach, id).await?;
        if operation.status.is_done() || wait.is_zero() {
            return Ok(operation);
        }
        let mut watch = self.changes.watch(Interest::Sandbox(operation.sandbox_id));
        loop {
            // Read after the watch began, so that no change falls between the two.
            operation = self.operation_get(reach, id).await?;
            if operation.status.is_done() || Instant::now() >= end || self.shutdown.is_cancelled() {
                return Ok(operation);
            }
            let look_again = end.min(Instant::now() + LOOK_AGAIN);
            tokio::select! {
                // Whether it changed or time is up, the loop looks.
                result = timeout_at(look_again, watch.changed()) => result.unwrap_or_default(),
                () = self.shutdown.cancelled() => {}
            }
        }
    }
}
