//! HTTP/1.1 over one kept connection, with a deadline and small limits on everything that comes back.

use std::{os::fd::OwnedFd, time::Duration};

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::{Method, Request, StatusCode, client::conn::http1};
use hyper_util::rt::TokioIo;
use tokio::{net::UnixStream, task::JoinHandle, time::timeout};

const HEAD_LIMIT: usize = 8 * 1024;
const BODY_LIMIT: usize = 16 * 1024;

/// One call: always a PUT, answered without content.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(super) path: String,
    pub(super) body: serde_json::Value,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum FirecrackerError {
    #[error("cannot speak to Firecracker's socket")]
    Socket(#[source] std::io::Error),
    #[error("PUT {path}: the connection broke")]
    Http {
        path: String,
        #[source]
        source: hyper::Error,
    },
    #[error("PUT {path}: the request can't be built")]
    Request {
        path: String,
        #[source]
        source: hyper::http::Error,
    },
    #[error("PUT {path}: no answer in time")]
    Deadline { path: String },
    #[error("PUT {path}: {status}: {message}")]
    Refused { path: String, status: StatusCode, message: String },
}

/// A connection to one Firecracker.
#[derive(Debug)]
pub(crate) struct FirecrackerClient {
    sender: http1::SendRequest<Full<Bytes>>,
    connection: JoinHandle<()>,
    deadline: Duration,
}

impl FirecrackerClient {
    /// Over a connected, non-blocking socket.
    pub(crate) async fn new(socket: OwnedFd, deadline: Duration) -> Result<Self, FirecrackerError> {
        let stream = UnixStream::from_std(socket.into()).map_err(FirecrackerError::Socket)?;
        let handshake = http1::Builder::new().max_buf_size(HEAD_LIMIT).handshake(TokioIo::new(stream));
        let http_error = |source| FirecrackerError::Http { path: "/".to_owned(), source };
        let (sender, connection) = handshake.await.map_err(http_error)?;
        let connection = tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection to Firecracker ended");
            }
        });
        Ok(Self { sender, connection, deadline })
    }

    pub(crate) async fn put_all(&mut self, calls: Vec<Call>) -> Result<(), FirecrackerError> {
        for call in calls {
            self.put(call).await?;
        }
        Ok(())
    }

    /// Not cancel safe: a call that was dropped may have been carried out.
    pub(crate) async fn put(&mut self, call: Call) -> Result<(), FirecrackerError> {
        let path = call.path.clone();
        let answered = timeout(self.deadline, self.exchange(call)).await;
        answered.map_err(|_elapsed| FirecrackerError::Deadline { path })?
    }

    async fn exchange(&mut self, Call { path, body }: Call) -> Result<(), FirecrackerError> {
        let request = Request::builder()
            .method(Method::PUT)
            .uri(&path)
            .header("Host", "localhost")
            .header("Content-Type", "application/json")
            .body(Full::new(Bytes::from(body.to_string())))
            .map_err(|source| FirecrackerError::Request { path: path.clone(), source })?;
        let sent = self.sender.send_request(request).await;
        let answer = sent.map_err(|source| FirecrackerError::Http { path: path.clone(), source })?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), BODY_LIMIT).collect().await;
        if status.is_success() {
            return Ok(());
        }
        let bytes = body.map(http_body_util::Collected::to_bytes).unwrap_or_default();
        let message = String::from_utf8_lossy(&bytes).chars().filter(|c| !c.is_control()).take(512).collect();
        Err(FirecrackerError::Refused { path, status, message })
    }
}

impl Drop for FirecrackerClient {
    fn drop(&mut self) {
        self.connection.abort();
    }
}
