//! The event log as a stream.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use futures::{Stream, stream};
use space_api::events::Event;
use space_types::SandboxId;

use super::{
    App, AppError,
    changes::{Interest, Watch},
};
use crate::grants::Reach;

/// Events read at once.
const BATCH: u32 = 256;
/// A reader looks again after so long even if nobody woke it.
const LOOK_AGAIN: Duration = Duration::from_secs(5);
/// And this soon while a transaction holds back the next event: PostgreSQL says nothing when one ends.
const LOOK_AGAIN_PENDING: Duration = Duration::from_millis(20);

struct Reader {
    app: Arc<App>,
    reach: Reach,
    sandbox: Option<SandboxId>,
    after: i64,
    watch: Watch,
    ready: VecDeque<Event>,
}

impl App {
    /// Events within `reach`, or of one sandbox there, after `after`; none: what happens from now on. Ends at
    /// shutdown. An outage of the database holds the stream up and does not end it.
    pub(crate) async fn event_stream(
        self: &Arc<Self>,
        reach: Reach,
        sandbox: Option<SandboxId>,
        after: Option<i64>,
    ) -> Result<impl Stream<Item = Event> + use<>, AppError> {
        if let Some(id) = sandbox {
            self.sandbox_get(reach, id).await?;
        }
        let watch = self.changes.watch(sandbox.map_or(Interest::Tenant(reach.tenant_id), Interest::Sandbox));
        let after = match after {
            Some(after) => after,
            None => self.store.event_tail(reach).await?,
        };
        let reader = Reader { app: Arc::clone(self), reach, sandbox, after, watch, ready: VecDeque::new() };
        Ok(stream::unfold(reader, |mut reader| async { reader.next().await.map(|event| (event, reader)) }))
    }
}

impl Reader {
    async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            let wait = self.fill().await;
            if !self.ready.is_empty() {
                continue;
            }
            tokio::select! {
                // Whether it changed or time is up, the loop looks.
                result = tokio::time::timeout(wait, self.watch.changed()) => result.unwrap_or_default(),
                () = self.app.shutdown.cancelled() => return None,
            }
        }
    }

    /// Reads the next batch; answers how long to wait when there is none.
    async fn fill(&mut self) -> Duration {
        match self.app.store.event_read(self.reach, self.sandbox, self.after, BATCH).await {
            Ok(batch) => {
                self.after = batch.events.last().map_or(self.after, |event| event.sequence);
                self.ready.extend(batch.events);
                if batch.pending { LOOK_AGAIN_PENDING } else { LOOK_AGAIN }
            }
            Err(error) => {
                tracing::debug!(error = space_runtime::telemetry::chain(&error), "an event stream waits");
                Duration::from_secs(1)
            }
        }
    }
}
