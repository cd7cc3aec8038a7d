//! A typed client of the public API.
//!
//! Every POST carries an `Idempotency-Key` of its own, so that every call may be repeated: what did not reach
//! the server, or was answered by one that was just going down, is sent again with growing pauses until the
//! client's patience is used up. Streams are continued where they broke off (see [`CommandStream`]).

mod admin;
mod backoff;
mod commands;
mod connection;
mod edge;
mod error;
mod events;
mod files;
mod ports;
mod sandboxes;
mod streams;
mod terminal;

use std::{
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};

use reqwest::{ClientBuilder, Method, RequestBuilder, Response, StatusCode, Url, header};
use serde::{Serialize, de::DeserializeOwned};

pub use edge::{EdgeClient, EdgeError};
pub use error::ClientError;
pub use files::{Download, FileWatch, Resume, Written};
pub use streams::{CommandStream, EventStream, StreamConfig};
pub use terminal::{Terminal, TerminalEvent};

use crate::{Problem, ProblemCode, headers};
use backoff::Backoff;
use connection::Connection;

/// How long to go on trying, and how long to wait for what.
#[derive(Debug, Clone)]
pub struct ClientConfig {
    /// The API's address: `http://127.0.0.1:8700`.
    pub url: String,
    /// An API key. Without one only what is public can be read.
    pub key: Option<String>,
    /// How long a call is repeated while the server can't be reached.
    pub patience: Duration,
    /// How long one answer may take, beyond what the call itself asks the server to wait.
    pub answer_deadline: Duration,
}

impl ClientConfig {
    pub fn new(url: impl Into<String>, key: Option<String>) -> Self {
        let (patience, answer_deadline) = (Duration::from_secs(2), Duration::from_secs(30));
        Self { url: url.into(), key, patience, answer_deadline }
    }
}

/// Cheap to clone; clones share their connections.
#[derive(Debug, Clone)]
pub struct Client {
    http: reqwest::Client,
    base: Url,
    key: Option<String>,
    patience: Duration,
    answer_deadline: Duration,
}

/// One call before it is sent.
struct Call<'a> {
    method: Method,
    path: &'a str,
    query: Vec<(&'static str, String)>,
    body: Option<Vec<u8>>,
    /// Seconds that the server was asked to wait.
    wait: u32,
}

impl Client {
    pub fn new(config: ClientConfig) -> Result<Self, ClientError> {
        let base = parse_base(&config.url)?;
        let http = http_builder(&base).build().map_err(|source| ClientError::Setup { source })?;
        let ClientConfig { key, patience, answer_deadline, .. } = config;
        Ok(Self { http, base, key, patience, answer_deadline })
    }

    /// The API's address.
    pub fn url(&self) -> &Url {
        &self.base
    }

    async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        self.call(Call::new(Method::GET, path)).await
    }

    async fn post<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, ClientError> {
        self.call(Call::new(Method::POST, path).body(body)?).await
    }

    async fn call<T: DeserializeOwned>(&self, call: Call<'_>) -> Result<T, ClientError> {
        let response = self.send(&call).await?;
        let status = response.status();
        let body = response.bytes().await.map_err(|source| self.unreachable(source))?;
        serde_json::from_slice(&body)
            .map_err(|source| ClientError::Answer { status: status.as_u16(), source })
    }

    /// Sends until there is an answer that repeating would not change.
    async fn send(&self, call: &Call<'_>) -> Result<Response, ClientError> {
        let key = idempotency_key();
        let mut backoff = Backoff::new(self.patience);
        loop {
            let error = match self.request(call, &key)?.send().await {
                Ok(response) if response.status().is_success() => return Ok(response),
                Ok(response) => self.refusal(response).await,
                Err(source) => self.unreachable(source),
            };
            if !error.is_worth_repeating() || !backoff.pause(error.retry_after()).await {
                return Err(error);
            }
        }
    }

    fn request(&self, call: &Call<'_>, idempotency_key: &str) -> Result<RequestBuilder, ClientError> {
        let deadline = self.answer_deadline + Duration::from_secs(call.wait.into());
        let request = self.stream_request(call, Some(idempotency_key))?;
        Ok(request.header(header::ACCEPT, headers::JSON).timeout(deadline))
    }

    /// A request whose answer has no end, so no deadline over all of it either.
    fn stream_request(
        &self,
        call: &Call<'_>,
        idempotency_key: Option<&str>,
    ) -> Result<RequestBuilder, ClientError> {
        let mut request = self.http.request(call.method.clone(), self.resolve(call.path)?).query(&call.query);
        if let Some(key) = &self.key {
            request = request.bearer_auth(key);
        }
        if let (Some(key), &Method::POST) = (idempotency_key, &call.method) {
            request = request.header(headers::IDEMPOTENCY_KEY, key);
        }
        if let Some(body) = &call.body {
            request = request.header(header::CONTENT_TYPE, headers::JSON).body(body.clone());
        }
        Ok(request)
    }

    /// Sends a stream's request; the answer's head must come within the deadline of any answer.
    async fn open_stream(
        &self,
        request: RequestBuilder,
        silence: Duration,
    ) -> Result<Connection, ClientError> {
        let lost = || ClientError::StreamLost { url: self.base.to_string() };
        let sent = tokio::time::timeout(self.answer_deadline, request.send());
        let response = sent.await.map_err(|_error| lost())?.map_err(|source| self.unreachable(source))?;
        if response.status().is_success() {
            Ok(Connection::new(response, silence))
        } else {
            Err(self.refusal(response).await)
        }
    }

    /// A path of the API, which may lie below a path of its own, as a URL.
    fn resolve(&self, path: &str) -> Result<Url, ClientError> {
        self.base
            .join(path.trim_start_matches('/'))
            .map_err(|_error| ClientError::Url { url: format!("{}{path}", self.base) })
    }

    /// What an answer that is no success says.
    async fn refusal(&self, response: Response) -> ClientError {
        let status = response.status();
        let body = match response.bytes().await {
            Ok(body) => body,
            Err(source) => return self.unreachable(source),
        };
        match serde_json::from_slice::<Problem>(&body) {
            Ok(problem) => ClientError::Problem(Box::new(problem)),
            Err(_) => ClientError::Status { status: status.as_u16(), url: self.base.to_string() },
        }
    }

    fn unreachable(&self, source: reqwest::Error) -> ClientError {
        ClientError::Unreachable { url: self.base.to_string(), source: source.without_url() }
    }
}

impl<'a> Call<'a> {
    fn new(method: Method, path: &'a str) -> Self {
        Self { method, path, query: Vec::new(), body: None, wait: 0 }
    }

    fn body(mut self, body: &impl Serialize) -> Result<Self, ClientError> {
        self.body = Some(serde_json::to_vec(body).map_err(|source| ClientError::Request { source })?);
        Ok(self)
    }

    fn query(mut self, pairs: impl IntoIterator<Item = (&'static str, String)>) -> Self {
        self.query.extend(pairs);
        self
    }

    fn wait(mut self, seconds: u32) -> Self {
        self.wait = seconds;
        self.query([("wait", seconds.to_string())])
    }
}

fn parse_base(text: &str) -> Result<Url, ClientError> {
    let invalid = || ClientError::Url { url: text.to_owned() };
    let mut base = Url::parse(text).map_err(|_error| invalid())?;
    if !matches!(base.scheme(), "http" | "https") || base.host().is_none() || base.query().is_some() {
        return Err(invalid());
    }
    if !base.path().ends_with('/') {
        base.set_path(&format!("{}/", base.path()));
    }
    Ok(base)
}

fn http_builder(base: &Url) -> ClientBuilder {
    let mut builder = reqwest::Client::builder()
        // A WebSocket begins as HTTP/1.1, and nothing here needs more.
        .http1_only()
        .user_agent(concat!("space/", env!("CARGO_PKG_VERSION")))
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(Duration::from_secs(10));
    if base.scheme() == "http" {
        // Machines without any certificate authority are common where SPACE runs; plain HTTP needs none.
        builder = builder.tls_certs_only([]);
    }
    let host = base.host_str().unwrap_or_default();
    if is_loopback(host) {
        builder = builder.no_proxy();
    }
    if is_below_localhost(host) {
        // Not every resolver knows them (RFC 6761, 6.3). Port 0 stands for the URL's.
        builder = builder.resolve(host, SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
    }
    builder
}

fn is_loopback(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost"
        || is_below_localhost(host)
        || address.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn is_below_localhost(host: &str) -> bool {
    host.ends_with(".localhost")
}

fn idempotency_key() -> String {
    uuid::Uuid::new_v4().simple().to_string()
}

/// A loss that waiting may mend. The command lives in the sandbox, so its node or agent being away for a
/// moment is one.
fn passes(error: &ClientError) -> bool {
    let away = |problem: &Problem| {
        is_about_the_server(problem.code)
            || matches!(
                problem.code,
                ProblemCode::NodeUnavailable | ProblemCode::GuestUnavailable | ProblemCode::Timeout
            )
    };
    error.is_worth_repeating() || error.problem().is_some_and(away)
}

/// A proxy's or a booting server's answer that says nothing about the request itself.
fn is_gateway_status(status: u16) -> bool {
    [StatusCode::BAD_GATEWAY, StatusCode::SERVICE_UNAVAILABLE, StatusCode::GATEWAY_TIMEOUT]
        .iter()
        .any(|known| known.as_u16() == status)
}

/// The server itself was in no state to answer, whatever was asked.
fn is_about_the_server(code: ProblemCode) -> bool {
    matches!(
        code,
        ProblemCode::Unavailable
            | ProblemCode::ShuttingDown
            | ProblemCode::IdempotencyKeyInUse
            | ProblemCode::RateLimited
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_api_below_a_path_is_reached() {
        let client = Client::new(ClientConfig::new("http://127.0.0.1:1/space", None)).unwrap();
        assert_eq!(client.resolve("/v1/nodes").unwrap().as_str(), "http://127.0.0.1:1/space/v1/nodes");
    }

    #[test]
    fn what_is_no_address_of_an_api_is_refused() {
        for url in ["", "localhost:8700", "ftp://x/", "http://", "http://x/?a=b"] {
            assert!(matches!(parse_base(url), Err(ClientError::Url { .. })), "{url}");
        }
    }

    #[test]
    fn loopback_is_recognised() {
        for host in ["localhost", "8000-x.localhost", "127.0.0.1", "[::1]"] {
            assert!(is_loopback(host), "{host}");
        }
        assert!(!is_loopback("example.org") && !is_loopback("notlocalhost"));
    }
}
