//! The event log, followed.

use reqwest::{Method, header};

use super::StreamConfig;
use crate::{
    client::{Call, Client, ClientError, backoff::Backoff, connection::Connection},
    events::{Event, EventKind},
    headers,
};

/// Events as they happen, each once and in order, across lost connections. It never ends by itself.
#[derive(Debug)]
pub struct EventStream {
    client: Client,
    path: String,
    /// Sequence number of the last event handed out.
    after: Option<i64>,
    connection: Option<Connection>,
    backoff: Backoff,
    config: StreamConfig,
}

impl EventStream {
    pub(in crate::client) fn new(
        client: Client,
        path: &str,
        after: Option<i64>,
        config: StreamConfig,
    ) -> Result<Self, ClientError> {
        client.resolve(path)?;
        let backoff = Backoff::new(client.patience);
        Ok(Self { client, path: path.to_owned(), after, connection: None, backoff, config })
    }

    /// Cancel safe.
    pub async fn next(&mut self) -> Result<Event, ClientError> {
        loop {
            match self.step().await {
                Ok(Some(event)) => return Ok(event),
                Ok(None) => {}
                Err(error) => {
                    self.connection = None;
                    if !error.is_worth_repeating() || !self.backoff.pause(error.retry_after()).await {
                        return Err(error);
                    }
                }
            }
        }
    }

    async fn step(&mut self) -> Result<Option<Event>, ClientError> {
        if self.connection.is_none() {
            self.connection = Some(self.open().await?);
            self.backoff = Backoff::new(self.config.patience);
        }
        let Some(connection) = &mut self.connection else { return Ok(None) };
        let (name, data, _) = connection.next().await?;
        if EventKind::from_code(&name).is_none() {
            return Ok(None);
        }
        let event: Event =
            serde_json::from_str(&data).map_err(|source| ClientError::StreamEvent { name, source })?;
        let new = self.after.is_none_or(|after| event.sequence > after);
        self.after = self.after.max(Some(event.sequence));
        Ok(new.then_some(event))
    }

    async fn open(&self) -> Result<Connection, ClientError> {
        let call = Call::new(Method::GET, &self.path);
        let mut request =
            self.client.stream_request(&call, None)?.header(header::ACCEPT, headers::EVENT_STREAM);
        if let Some(after) = self.after {
            request = request.header(headers::LAST_EVENT_ID, after.to_string());
        }
        self.client.open_stream(request, self.config.silence).await
    }
}
