//! Uploads: bytes on their way into a sandbox.
//!
//! ```text
//!   body ──piece──▶ one message in line ──▶ worker's window ──▶ guest
//!    │ its end: `finish`, and the worker completes the file
//!    └ breaks off, is silent, or the caller leaves: the line ends without `finish`, and nothing appears
//! ```

use crate::grants::Reach;
use std::{future::Future, pin::pin};

use bytes::Bytes;
use futures::{Stream, StreamExt as _};
use space_api::{
    files::{ArchiveWritten, FileInfo, FileMode, PlaceQuery, UploadKept, WriteQuery},
    limits,
};
use space_node_proto::files as proto;
use space_types::SandboxId;
use tokio::{
    sync::mpsc,
    time::{Duration, timeout},
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Response, Status};

use super::{
    App, AppError,
    file_convert::info,
    files::{FilesAt, LONG},
};

const SILENCE: Duration = Duration::from_secs(limits::UPLOAD_SILENCE_SECONDS);
/// Data in one message.
const PIECE: usize = 64 * 1024;

/// What a write led to.
#[derive(Debug)]
pub(crate) enum Written {
    File(Box<FileInfo>),
    Kept(UploadKept),
}

impl App {
    /// Reads `body` to its end, unless the sandbox gives up before.
    pub(crate) async fn file_write<E>(
        &self,
        reach: Reach,
        sandbox: SandboxId,
        query: &WriteQuery,
        body: &mut (impl Stream<Item = Result<Bytes, E>> + Unpin),
    ) -> Result<Written, AppError> {
        let at = self.files_at(reach, sandbox).await?;
        let upload = query.upload.as_ref().map(|upload| proto::Upload {
            id: upload.id.clone(),
            offset: upload.offset,
            complete: upload.complete,
        });
        let open = proto::OpenWrite {
            place: Some(at.place(query.path.as_bytes(), query.user.as_deref())),
            mode: query.mode.map(FileMode::bits),
            parents: query.parents,
            exclusive: query.exclusive,
            upload,
            owner: query.owner.clone().unwrap_or_default(),
        };
        let first = proto::WriteFileRequest { open: Some(open), ..proto::WriteFileRequest::default() };
        let (sender, requests) = line(first);
        let mut client = at.client.clone();
        let call = client.write_file(ReceiverStream::new(requests));
        let message = |data, finish| proto::WriteFileRequest { open: None, data, finish };
        let reply = pump(&at, call, sender, body, message).await?;
        match reply.info {
            Some(found) => Ok(Written::File(Box::new(info(found)))),
            None => Ok(Written::Kept(UploadKept { next_offset: reply.next_offset })),
        }
    }

    pub(crate) async fn archive_write<E>(
        &self,
        reach: Reach,
        sandbox: SandboxId,
        query: &PlaceQuery,
        body: &mut (impl Stream<Item = Result<Bytes, E>> + Unpin),
    ) -> Result<ArchiveWritten, AppError> {
        let at = self.files_at(reach, sandbox).await?;
        let place = Some(at.place(query.path.as_bytes(), query.user.as_deref()));
        let first = proto::WriteArchiveRequest { place, ..proto::WriteArchiveRequest::default() };
        let (sender, requests) = line(first);
        let mut client = at.client.clone();
        let call = client.write_archive(ReceiverStream::new(requests));
        let message = |data, finish| proto::WriteArchiveRequest { place: None, data, finish };
        let reply = pump(&at, call, sender, body, message).await?;
        Ok(ArchiveWritten { entries: reply.entries, bytes: reply.bytes })
    }
}

/// A line of one message, which is in it already.
fn line<T>(first: T) -> (mpsc::Sender<T>, mpsc::Receiver<T>) {
    let (sender, receiver) = mpsc::channel(1);
    // There is room for one.
    sender.try_send(first).ok();
    (sender, receiver)
}

/// Passes the body on until the worker answers.
async fn pump<T, R, E>(
    at: &FilesAt<'_>,
    call: impl Future<Output = Result<Response<R>, Status>>,
    sender: mpsc::Sender<T>,
    body: &mut (impl Stream<Item = Result<Bytes, E>> + Unpin),
    message: impl Fn(Vec<u8>, bool) -> T,
) -> Result<R, AppError> {
    let mut call = pin!(call);
    let sent = tokio::select! {
        biased;
        answer = &mut call => return at.answer(answer),
        sent = send(sender, body, message) => sent,
    };
    // An error here drops the call, behind a line that has ended without `finish`.
    sent?;
    let answer = timeout(LONG, call).await.map_err(|_elapsed| AppError::Timeout)?;
    at.answer(answer)
}

async fn send<T, E>(
    sender: mpsc::Sender<T>,
    body: &mut (impl Stream<Item = Result<Bytes, E>> + Unpin),
    message: impl Fn(Vec<u8>, bool) -> T,
) -> Result<(), AppError> {
    loop {
        let piece = timeout(SILENCE, body.next()).await.map_err(|_elapsed| AppError::BodySilent)?;
        let Some(piece) = piece else { break };
        let mut piece = piece.map_err(|_broken| AppError::BodyBroken)?;
        while !piece.is_empty() {
            let data = piece.split_to(piece.len().min(PIECE));
            if sender.send(message(data.into(), false)).await.is_err() {
                // The worker takes nothing any more; its answer says why.
                return Ok(());
            }
        }
    }
    sender.send(message(Vec::new(), true)).await.ok();
    Ok(())
}
