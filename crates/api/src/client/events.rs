//! The event log.

use space_types::SandboxId;

use super::{Client, ClientError, EventStream, StreamConfig};

impl Client {
    /// The tenant's events, or those of one sandbox. `after`: continue behind that sequence number (0: from
    /// the log's beginning); without it with what happens next.
    pub fn event_stream(
        &self,
        sandbox: Option<SandboxId>,
        after: Option<i64>,
        config: StreamConfig,
    ) -> Result<EventStream, ClientError> {
        let path = sandbox.map_or_else(|| "/v1/events".to_owned(), |id| format!("/v1/sandboxes/{id}/events"));
        EventStream::new(self.clone(), &path, after, config)
    }
}
