//! Bytes to a port of a sandbox, by CONNECT through its edge. The connection is made as that of every other call is:
//! with the same TLS and the same addresses.
//!
//! Over plain HTTP no proxy of the environment is used: it would take the CONNECT, and the token with it, as its own.

use std::time::Duration;

use reqwest::{Method, Response, Url, header};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};

use super::{ClientError, http_builder, parse_base};
use crate::ports::EDGE_HEADER;

/// For all that an edge may wait for: control, the worker, and what listens in the guest.
const ANSWER: Duration = Duration::from_mins(1);
/// The code of a token that is none, or none any more.
const UNAUTHORIZED: &str = "port_unauthorized";

/// Why there is no connection to the port.
#[derive(Debug, thiserror::Error)]
pub enum EdgeError {
    /// The edge refused, and says why: one of `docs/problems/edge`.
    #[error("{detail}")]
    Refused { code: String, detail: String },
    /// Something answered that does not say to be an edge.
    #[error("{url} answered with status {status}, and not as an edge does")]
    NoEdge { status: u16, url: String },
    #[error("no answer from the edge at {url}")]
    Unreachable {
        url: String,
        #[source]
        source: reqwest::Error,
    },
    #[error("no answer from the edge at {url} within {} s", .after.as_secs())]
    Silent { url: String, after: Duration },
}

impl EdgeError {
    /// Whether another token may be taken where this one was not.
    pub fn is_unauthorized(&self) -> bool {
        matches!(self, Self::Refused { code, .. } if code == UNAUTHORIZED)
    }
}

/// The edge as the way to one port.
#[derive(Debug)]
pub struct EdgeClient {
    http: reqwest::Client,
    url: Url,
}

impl EdgeClient {
    /// `url` is the port's, as the API has it.
    pub fn new(url: &str) -> Result<Self, ClientError> {
        let url = parse_base(url)?;
        let mut builder = http_builder(&url).pool_max_idle_per_host(0);
        if url.scheme() == "http" {
            builder = builder.no_proxy();
        }
        let http = builder.build().map_err(|source| ClientError::Setup { source })?;
        Ok(Self { http, url })
    }

    /// A connection to the port. Each of its directions ends by itself, when it is shut down.
    pub async fn connect(
        &self,
        token: &str,
    ) -> Result<impl AsyncRead + AsyncWrite + Send + Unpin + use<>, EdgeError> {
        let opened = tokio::time::timeout(ANSWER, self.open(token)).await;
        opened.map_err(|_elapsed| EdgeError::Silent { url: self.origin(), after: ANSWER })?
    }

    async fn open(
        &self,
        token: &str,
    ) -> Result<impl AsyncRead + AsyncWrite + Send + Unpin + use<>, EdgeError> {
        let request = self.http.request(Method::CONNECT, self.url.clone());
        let request = request.header(header::PROXY_AUTHORIZATION, format!("Bearer {token}"));
        let response = request.send().await.map_err(|source| self.unreachable(source))?;
        if !response.status().is_success() {
            return Err(self.refusal(response).await);
        }
        response.upgrade().await.map_err(|source| self.unreachable(source))
    }

    async fn refusal(&self, response: Response) -> EdgeError {
        let status = response.status().as_u16();
        let code = response.headers().get(EDGE_HEADER).and_then(|code| code.to_str().ok());
        let Some(code) = code.map(str::to_owned) else {
            return EdgeError::NoEdge { status, url: self.origin() };
        };
        let body = response.bytes().await.unwrap_or_default();
        let problem: Value = serde_json::from_slice(&body).unwrap_or_default();
        let texts = ["detail", "title"].map(|field| problem[field].as_str().unwrap_or_default());
        let detail = texts.into_iter().find(|text| !text.is_empty()).unwrap_or("the edge refused").to_owned();
        EdgeError::Refused { code, detail }
    }

    fn unreachable(&self, source: reqwest::Error) -> EdgeError {
        EdgeError::Unreachable { url: self.origin(), source: source.without_url() }
    }

    fn origin(&self) -> String {
        self.url.origin().ascii_serialization()
    }
}
