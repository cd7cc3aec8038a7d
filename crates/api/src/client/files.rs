//! Files. Contents are streams in both directions; a stream that breaks is the caller's to continue, who knows where
//! the bytes come from and go to.

use std::{io, time::Duration};

use bytes::Bytes;
use futures::Stream;
use reqwest::{Body, Method, RequestBuilder, Response, StatusCode, header};
use space_types::SandboxId;

use super::{Call, Client, ClientError, StreamConfig, connection::Connection};
use crate::{
    Page,
    files::{
        ArchiveWritten, CreateDirectory, FileInfo, FromQuery, ListQuery, MoveFile, PlaceQuery, RemoveQuery,
        StatQuery, UploadKept, WatchEvent, WatchQuery, WriteQuery,
    },
    headers,
};

/// A download without a byte for so long is lost: longer than the server itself waits for the sandbox.
const SILENCE: Duration = Duration::from_mins(1);

/// What a write led to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Written {
    /// The file is complete.
    File(Box<FileInfo>),
    /// The part is kept.
    Kept(UploadKept),
}

/// From where a download goes on, and of which version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resume {
    pub offset: u64,
    pub etag: String,
}

/// Bytes on their way from a sandbox.
#[derive(Debug)]
pub struct Download {
    response: Response,
    url: String,
    /// Where in the file the bytes begin: not 0 only when it went on as asked.
    pub offset: u64,
    /// Of the whole file, where it is known.
    pub size: Option<u64>,
    pub etag: Option<String>,
}

impl Download {
    fn new(response: Response) -> Self {
        let url = response.url().origin().ascii_serialization();
        let text = |name| response.headers().get(name).and_then(|value| value.to_str().ok());
        let range = (response.status() == StatusCode::PARTIAL_CONTENT)
            .then(|| text(header::CONTENT_RANGE).and_then(parse_range))
            .flatten();
        let length = text(header::CONTENT_LENGTH).and_then(|length| length.parse().ok());
        let (offset, size) = match range {
            Some((offset, size)) => (offset, Some(size)),
            None => (0, length),
        };
        let etag = text(header::ETAG).map(ToOwned::to_owned);
        Self { response, url, offset, size, etag }
    }

    /// The next bytes; none at the end, which was reached only then. Cancel safe.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, ClientError> {
        match tokio::time::timeout(SILENCE, self.response.chunk()).await {
            Ok(Ok(chunk)) => Ok(chunk),
            Ok(Err(_)) | Err(_) => Err(ClientError::StreamLost { url: self.url.clone() }),
        }
    }
}

/// `bytes 5-9/10`.
fn parse_range(value: &str) -> Option<(u64, u64)> {
    let (range, size) = value.strip_prefix("bytes ")?.split_once('/')?;
    Some((range.split_once('-')?.0.parse().ok()?, size.parse().ok()?))
}

/// Changes as they happen. Not resumable: after a loss a new watch begins, and what happened between is not told.
#[derive(Debug)]
pub struct FileWatch(Connection);

impl FileWatch {
    /// The next event. A watch that ends is lost. Cancel safe.
    pub async fn next(&mut self) -> Result<WatchEvent, ClientError> {
        loop {
            let (name, data, _) = self.0.next().await?;
            let parsed = WatchEvent::parse(&name, &data);
            let parsed = parsed.map_err(|source| ClientError::StreamEvent { name, source })?;
            match parsed {
                Some(WatchEvent::Error(error)) => return Err(ClientError::Problem(Box::new(error.problem))),
                Some(event) => return Ok(event),
                None => {}
            }
        }
    }
}

impl Client {
    pub async fn file_stat(&self, sandbox: SandboxId, query: &StatQuery) -> Result<FileInfo, ClientError> {
        self.get(&files(sandbox, "", query)).await
    }

    pub async fn file_list(
        &self,
        sandbox: SandboxId,
        query: &ListQuery,
    ) -> Result<Page<FileInfo>, ClientError> {
        self.get(&files(sandbox, "/entries", query)).await
    }

    /// A file's bytes; behind those that are there already, if the file is still the same.
    pub async fn file_read(
        &self,
        sandbox: SandboxId,
        query: &PlaceQuery,
        resume: Option<&Resume>,
    ) -> Result<Download, ClientError> {
        let path = files(sandbox, "/content", query);
        let mut request = self.stream_request(&Call::new(Method::GET, &path), None)?;
        if let Some(Resume { offset, etag }) = resume {
            request =
                request.header(header::RANGE, format!("bytes={offset}-")).header(header::IF_RANGE, etag);
        }
        Ok(Download::new(self.send_once(request).await?))
    }

    /// Writes a file, or a part of an upload. Sent once: what to do when it breaks depends on where `content` is from.
    pub async fn file_write<S>(
        &self,
        sandbox: SandboxId,
        query: &WriteQuery,
        content: S,
    ) -> Result<Written, ClientError>
    where
        S: Stream<Item = io::Result<Bytes>> + Send + 'static,
    {
        let response = self.put(&files(sandbox, "/content", query), headers::BYTES, content).await?;
        let status = response.status();
        let body = response.bytes().await.map_err(|source| self.unreachable(source))?;
        let written = if status == StatusCode::CREATED {
            serde_json::from_slice(&body).map(|info| Written::File(Box::new(info)))
        } else {
            serde_json::from_slice(&body).map(Written::Kept)
        };
        written.map_err(|source| ClientError::Answer { status: status.as_u16(), source })
    }

    pub async fn directory_create(
        &self,
        sandbox: SandboxId,
        body: &CreateDirectory,
    ) -> Result<FileInfo, ClientError> {
        self.post(&format!("/v1/sandboxes/{sandbox}/files/directories"), body).await
    }

    pub async fn file_move(&self, sandbox: SandboxId, body: &MoveFile) -> Result<FileInfo, ClientError> {
        self.post(&format!("/v1/sandboxes/{sandbox}/files/move"), body).await
    }

    /// A large tree takes its time.
    pub async fn file_remove(&self, sandbox: SandboxId, query: &RemoveQuery) -> Result<(), ClientError> {
        let path = files(sandbox, "", query);
        self.send_once(self.stream_request(&Call::new(Method::DELETE, &path), None)?).await?;
        Ok(())
    }

    pub async fn file_watch(&self, sandbox: SandboxId, query: &WatchQuery) -> Result<FileWatch, ClientError> {
        let path = files(sandbox, "/watch", query);
        let request = self.stream_request(&Call::new(Method::GET, &path), None)?;
        let request = request.header(header::ACCEPT, headers::EVENT_STREAM);
        Ok(FileWatch(self.open_stream(request, StreamConfig::default().silence).await?))
    }

    /// A tar stream of a file, or of what a directory holds.
    pub async fn archive_read(
        &self,
        sandbox: SandboxId,
        query: &PlaceQuery,
    ) -> Result<Download, ClientError> {
        let path = files(sandbox, "/archive", query);
        Ok(Download::new(self.send_once(self.stream_request(&Call::new(Method::GET, &path), None)?).await?))
    }

    pub async fn archive_write<S>(
        &self,
        sandbox: SandboxId,
        query: &PlaceQuery,
        content: S,
    ) -> Result<ArchiveWritten, ClientError>
    where
        S: Stream<Item = io::Result<Bytes>> + Send + 'static,
    {
        let response = self.put(&files(sandbox, "/archive", query), headers::TAR, content).await?;
        let status = response.status().as_u16();
        let body = response.bytes().await.map_err(|source| self.unreachable(source))?;
        serde_json::from_slice(&body).map_err(|source| ClientError::Answer { status, source })
    }

    async fn put<S>(&self, path: &str, kind: &str, content: S) -> Result<Response, ClientError>
    where
        S: Stream<Item = io::Result<Bytes>> + Send + 'static,
    {
        let request = self.stream_request(&Call::new(Method::PUT, path), None)?;
        self.send_once(request.header(header::CONTENT_TYPE, kind).body(Body::wrap_stream(content))).await
    }

    async fn send_once(&self, request: RequestBuilder) -> Result<Response, ClientError> {
        let response = request.send().await.map_err(|source| self.unreachable(source))?;
        if response.status().is_success() { Ok(response) } else { Err(self.refusal(response).await) }
    }
}

fn files(sandbox: SandboxId, place: &str, query: &impl FromQuery) -> String {
    format!("/v1/sandboxes/{sandbox}/files{place}?{}", query.to_query())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_content_range_tells_beginning_and_size() {
        assert_eq!(parse_range("bytes 5-9/10"), Some((5, 10)));
        assert_eq!(parse_range("bytes */10"), None);
        assert_eq!(parse_range("bytes 5-9/*"), None);
    }
}
