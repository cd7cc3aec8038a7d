//! Streams of files: bytes on their way out, and changes. Both are pulled; what a client doesn't read stays in the
//! guest.

use std::collections::VecDeque;

use bytes::Bytes;
use futures::{Stream, stream};
use space_api::{files::WatchEvent, sse::StreamError};
use space_node_proto::files as proto;
use tokio_util::sync::CancellationToken;
use tonic::Streaming;

use super::{AppError, file_convert::change, file_error::from_status};

/// A file's bytes, or an archive's.
#[derive(Debug)]
pub(crate) struct FileBytes {
    chunks: Streaming<proto::FileChunk>,
    /// Bytes that still have to come, where their number was promised.
    promised: Option<u64>,
}

/// A download that can't be finished. Too late for a status: it breaks the connection.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BrokenDownload {
    #[error("the sandbox gave up in the middle")]
    Failed(#[source] AppError),
    #[error("the file ended {missing} bytes before its size")]
    Short { missing: u64 },
}

impl FileBytes {
    pub(super) fn new(chunks: Streaming<proto::FileChunk>) -> Self {
        Self { chunks, promised: None }
    }

    /// Exactly so many bytes, or an error: a file that grows meanwhile is cut off, one that shrinks breaks the stream.
    pub(crate) fn promise(self, bytes: u64) -> Self {
        Self { promised: Some(bytes), ..self }
    }

    pub(crate) fn into_stream(self) -> impl Stream<Item = Result<Bytes, BrokenDownload>> {
        stream::try_unfold(self, |mut this| async { Ok(this.next().await?.map(|piece| (piece, this))) })
    }

    async fn next(&mut self) -> Result<Option<Bytes>, BrokenDownload> {
        if self.promised == Some(0) {
            return Ok(None);
        }
        let chunk = self.chunks.message().await.map_err(|status| {
            tracing::info!(%status, "a download broke off");
            BrokenDownload::Failed(from_status(status))
        })?;
        let Some(chunk) = chunk else {
            return match self.promised {
                Some(missing) => {
                    tracing::info!(missing, "a file became shorter while it was read");
                    Err(BrokenDownload::Short { missing })
                }
                None => Ok(None),
            };
        };
        let mut data = Bytes::from(chunk.data);
        if let Some(promised) = &mut self.promised {
            data.truncate(usize::try_from(*promised).unwrap_or(usize::MAX));
            *promised -= data.len() as u64;
        }
        Ok(Some(data))
    }
}

/// A watch that has begun.
#[derive(Debug)]
pub(crate) struct Watching {
    changes: Streaming<proto::FileChanges>,
    due: VecDeque<WatchEvent>,
    shutdown: CancellationToken,
    ended: bool,
}

impl Watching {
    pub(super) fn new(changes: Streaming<proto::FileChanges>, shutdown: CancellationToken) -> Self {
        Self { changes, due: VecDeque::from([WatchEvent::Watching]), shutdown, ended: false }
    }

    pub(crate) fn into_stream(self) -> impl Stream<Item = WatchEvent> {
        stream::unfold(self, |mut this| async { this.next().await.map(|event| (event, this)) })
    }

    async fn next(&mut self) -> Option<WatchEvent> {
        loop {
            if let Some(event) = self.due.pop_front() {
                return Some(event);
            }
            if self.ended {
                return None;
            }
            let told = tokio::select! {
                told = self.changes.message() => told,
                () = self.shutdown.cancelled() => return Some(self.end_with(&AppError::ShuttingDown)),
            };
            match told {
                Ok(Some(told)) => self.due.extend(told.changes.into_iter().filter_map(change)),
                Ok(None) => self.ended = true,
                Err(status) => return Some(self.end_with(&from_status(status))),
            }
        }
    }

    fn end_with(&mut self, error: &AppError) -> WatchEvent {
        self.ended = true;
        WatchEvent::Error(StreamError { problem: error.problem() })
    }
}
