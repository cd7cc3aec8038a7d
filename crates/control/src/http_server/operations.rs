//! `/v1/operations`.

use std::{sync::Arc, time::Duration};

use axum::{Json, extract::State, response::Response};
use futures::{StreamExt as _, stream};
use space_api::{Problem, WaitQuery, operations::Operation};
use space_runtime::telemetry::chain;
use space_types::OperationId;

use super::{
    caller::SandboxesRead,
    extract::{Path, Query},
    problem::Failure,
    sse,
};
use crate::{
    app::{App, AppError},
    grants::Reach,
    store::StoreError,
};

/// Get an operation
///
/// With `wait` as soon as it is done.
#[utoipa::path(get, path = "/v1/operations/{operation_id}", tag = "operations",
    params(("operation_id" = OperationId, Path), WaitQuery),
    responses(
        (status = 200, description = "The operation.", body = Operation),
        (status = "default", description = "A problem.", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn operation_get(
    SandboxesRead(caller): SandboxesRead,
    State(app): State<Arc<App>>,
    Path(id): Path<OperationId>,
    Query(query): Query<WaitQuery>,
) -> Result<Json<Operation>, Failure> {
    query.validate()?;
    let wait = Duration::from_secs(u64::from(query.wait));
    Ok(Json(app.operation_wait(caller.reach(), id, wait).await?))
}

/// Follow an operation
///
/// Server-sent events named `operation`, each with the whole operation: as it is now, and as it ends.
#[utoipa::path(get, path = "/v1/operations/{operation_id}/events", tag = "operations",
    params(("operation_id" = OperationId, Path)),
    responses(
        (status = 200, description = "A stream of operations.", body = Operation, content_type = "text/event-stream"),
        (status = "default", description = "A problem.", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn operation_events(
    SandboxesRead(caller): SandboxesRead,
    State(app): State<Arc<App>>,
    Path(id): Path<OperationId>,
) -> Result<Response, Failure> {
    let now = app.operation_get(caller.reach(), id).await?;
    let key_ended = sse::key_ended(&app, caller.key_id);
    let follow = Follow { app, reach: caller.reach(), id, step: Step::First(Box::new(now)) };
    let operations = stream::unfold(follow, |mut follow| async {
        let operation = follow.next().await?;
        Some((sse::operation_event(&operation), follow))
    });
    Ok(sse::response(operations.take_until(key_ended)))
}

/// A wait is renewed after so long.
const WAIT: Duration = Duration::from_mins(1);

enum Step {
    First(Box<Operation>),
    Wait,
    Ended,
}

struct Follow {
    app: Arc<App>,
    reach: Reach,
    id: OperationId,
    step: Step,
}

impl Follow {
    /// The present state, then the last one. An outage of the database holds the stream up.
    async fn next(&mut self) -> Option<Operation> {
        match std::mem::replace(&mut self.step, Step::Ended) {
            Step::First(operation) => {
                self.step = if operation.status.is_done() { Step::Ended } else { Step::Wait };
                Some(*operation)
            }
            Step::Wait => self.wait().await,
            Step::Ended => None,
        }
    }

    async fn wait(&self) -> Option<Operation> {
        while !self.app.shutdown.is_cancelled() {
            match self.app.operation_wait(self.reach, self.id, WAIT).await {
                Ok(operation) if operation.status.is_done() => return Some(operation),
                Ok(_) => {}
                Err(AppError::Store(StoreError::Unavailable(_))) => {
                    // Each attempt waits for a connection first, so this is no busy loop.
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
                Err(error) => {
                    tracing::warn!(error = chain(&error), "an operation can't be followed any more");
                    return None;
                }
            }
        }
        None
    }
}
