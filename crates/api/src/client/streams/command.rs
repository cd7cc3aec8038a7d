//! A command's events.

use std::time::Duration;

use reqwest::{Method, RequestBuilder, Url, header};
use tokio::time::Instant;

use super::StreamConfig;
use crate::{
    client::{Call, Client, ClientError, backoff::Backoff, connection::Connection, idempotency_key, passes},
    commands::{Attach, CommandCreated, CreateCommand},
    headers,
    sse::{CommandEvent, Position},
};

/// Longer than an attempt that leads nowhere takes.
const GOOD_CONNECTION: Duration = Duration::from_secs(5);

/// The events of one command, each once and in order, across lost connections.
#[derive(Debug)]
pub struct CommandStream {
    client: Client,
    source: Source,
    position: Option<Position>,
    connection: Option<Connection>,
    connected_at: Option<Instant>,
    backoff: Backoff,
    config: StreamConfig,
    done: bool,
}

#[derive(Debug)]
enum Source {
    /// Not made yet: repeated with the same idempotency key until the server names the session.
    Exec {
        path: String,
        body: Vec<u8>,
        key: String,
    },
    Attach {
        url: String,
        token: String,
    },
    /// With the client's own key.
    Session {
        path: String,
    },
}

impl CommandStream {
    pub(in crate::client) fn exec(
        client: Client,
        path: &str,
        body: &CreateCommand,
        config: StreamConfig,
    ) -> Result<Self, ClientError> {
        let body = serde_json::to_vec(body).map_err(|source| ClientError::Request { source })?;
        Ok(Self::new(
            client,
            Source::Exec { path: path.to_owned(), body, key: idempotency_key() },
            None,
            config,
        ))
    }

    pub(in crate::client) fn attach(
        client: Client,
        attach: &Attach,
        position: Option<Position>,
        config: StreamConfig,
    ) -> Self {
        Self::new(client, Source::from(attach), position, config)
    }

    pub(in crate::client) fn follow(
        client: Client,
        path: String,
        position: Option<Position>,
        config: StreamConfig,
    ) -> Self {
        Self::new(client, Source::Session { path }, position, config)
    }

    fn new(client: Client, source: Source, position: Option<Position>, config: StreamConfig) -> Self {
        // A server that was never there is given up as soon as by any other call.
        let backoff = Backoff::new(client.patience);
        Self { client, source, position, connection: None, connected_at: None, backoff, config, done: false }
    }

    /// The next event, or `None` after `Exit`. `Error` events are never handed out: what passes is waited
    /// for, the rest is this call's error. After an error the stream may be asked again: it reconnects.
    ///
    /// Cancel safe.
    pub async fn next(&mut self) -> Result<Option<CommandEvent>, ClientError> {
        while !self.done {
            match self.step().await {
                Ok(Some(event)) => {
                    self.done = matches!(event, CommandEvent::Exit(_));
                    return Ok(Some(event));
                }
                Ok(None) => {}
                Err(error) => {
                    self.connection = None;
                    self.count_connection();
                    if !passes(&error) || !self.backoff.pause(error.retry_after()).await {
                        return Err(error);
                    }
                }
            }
        }
        Ok(None)
    }

    /// Of the last event handed out.
    pub fn position(&self) -> Option<Position> {
        self.position
    }

    /// One that held for a while was a good one, though no event came: a command may be quiet for hours.
    fn count_connection(&mut self) {
        if self.connected_at.take().is_some_and(|at| at.elapsed() > GOOD_CONNECTION) {
            self.backoff = Backoff::new(self.config.patience);
        }
    }

    /// One event from the wire, or `None` when it is to be skipped.
    async fn step(&mut self) -> Result<Option<CommandEvent>, ClientError> {
        let connection = match &mut self.connection {
            Some(connection) => connection,
            none => {
                let opened = open(&self.client, &self.source, self.position, &self.config).await?;
                self.connected_at = Some(Instant::now());
                none.insert(opened)
            }
        };
        let (name, data, id) = connection.next().await?;
        let Some(parsed) = CommandEvent::parse(&name, &data) else { return Ok(None) };
        match parsed.map_err(|source| ClientError::StreamEvent { name, source })? {
            CommandEvent::Error(error) => Err(ClientError::Problem(Box::new(error.problem))),
            CommandEvent::Command(created) => Ok(self.made(created)),
            event @ (CommandEvent::Started(_)
            | CommandEvent::Stdout(_)
            | CommandEvent::Stderr(_)
            | CommandEvent::Exit(_)
            | CommandEvent::Gap(_)) => Ok(self.is_new(id.as_deref()).then_some(event)),
        }
    }

    /// The session has a name: from now on a lost connection is continued by attaching.
    fn made(&mut self, created: Box<CommandCreated>) -> Option<CommandEvent> {
        let first = matches!(self.source, Source::Exec { .. });
        self.source = Source::from(&created.attach);
        first.then_some(CommandEvent::Command(created))
    }

    fn is_new(&mut self, id: Option<&str>) -> bool {
        self.backoff = Backoff::new(self.config.patience);
        let Some(position) = id.and_then(|id| id.parse::<Position>().ok()) else { return true };
        let new = self.position.is_none_or(|last| position > last);
        if new {
            self.position = Some(position);
        }
        new
    }
}

impl From<&Attach> for Source {
    fn from(attach: &Attach) -> Self {
        Self::Attach { url: attach.url.clone(), token: attach.token.clone() }
    }
}

async fn open(
    client: &Client,
    source: &Source,
    position: Option<Position>,
    config: &StreamConfig,
) -> Result<Connection, ClientError> {
    let mut request = request(client, source)?.header(header::ACCEPT, headers::EVENT_STREAM);
    if let Some(position) = position {
        request = request.header(headers::LAST_EVENT_ID, position.to_string());
    }
    client.open_stream(request, config.silence).await
}

fn request(client: &Client, source: &Source) -> Result<RequestBuilder, ClientError> {
    match source {
        Source::Exec { path, body, key } => {
            let call = Call { body: Some(body.clone()), ..Call::new(Method::POST, path) };
            client.stream_request(&call, Some(key))
        }
        Source::Attach { url, token } => {
            let url = attach_url(client.url(), url)?;
            Ok(client.http.get(url).bearer_auth(token))
        }
        Source::Session { path } => client.stream_request(&Call::new(Method::GET, path), None),
    }
}

/// A relative URL is one of the API; an absolute one is another door to the same command.
fn attach_url(base: &Url, url: &str) -> Result<Url, ClientError> {
    let joined = if url.contains("://") { Url::parse(url) } else { base.join(url.trim_start_matches('/')) };
    joined.map_err(|_error| ClientError::Url { url: url.to_owned() })
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;
    use crate::client::ClientConfig;

    #[tokio::test(start_paused = true)]
    async fn a_quiet_command_outlives_any_number_of_lost_connections() {
        let client = Client::new(ClientConfig::new("http://127.0.0.1:1".to_owned(), None)).unwrap();
        let mut stream = CommandStream::follow(client, "/x".to_owned(), None, StreamConfig::default());
        assert!(stream.backoff.next(None).is_some(), "the first loss");
        for _ in 0..3 {
            stream.connected_at = Some(Instant::now());
            advance(Duration::from_hours(1)).await;
            stream.count_connection();
            assert!(stream.backoff.next(None).is_some());
        }
        // Connections that break at once are no progress.
        advance(Duration::from_secs(58)).await;
        stream.connected_at = Some(Instant::now());
        advance(GOOD_CONNECTION).await;
        stream.count_connection();
        assert!(stream.backoff.next(None).is_none());
    }
}
