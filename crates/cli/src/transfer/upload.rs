//! A file into a sandbox.
//!
//! A large one is sent as an upload whose id follows from what is sent: the source's path, size and time. So a call
//! that is repeated, also much later, finds what an earlier one left, and goes on behind it.

use std::{
    io::{self, SeekFrom},
    os::unix::{ffi::OsStrExt as _, fs::MetadataExt as _},
    path::Path,
};

use anyhow::Context as _;
use bytes::{Bytes, BytesMut};
use futures::{Stream, stream};
use sha2::{Digest as _, Sha256};
use space_api::{
    ProblemCode,
    client::{Client, ClientError, Written},
    files::{FileInfo, UploadPart, WriteQuery},
};
use space_types::SandboxId;
use tokio::{
    fs::File,
    io::{AsyncRead, AsyncReadExt as _, AsyncSeekExt as _},
};

use super::Attempts;
use crate::{error::CliError, progress::Transfer};

/// What is smaller is sent again from its beginning.
const SMALL: u64 = 1 << 20;
const PIECE: usize = 64 * 1024;

/// Copies a file; `query` tells where to and how.
pub(crate) async fn from_file(
    client: &Client,
    sandbox: SandboxId,
    query: &WriteQuery,
    source: &Path,
) -> Result<FileInfo, CliError> {
    let unreadable = || format!("cannot read {}", source.display());
    let metadata = tokio::fs::metadata(source).await.with_context(unreadable)?;
    let size = metadata.len();
    let id = (size >= SMALL).then(|| upload_id(source, &metadata));
    let progress = Transfer::new("sending", Some(size));
    let mut attempts = Attempts::new();
    let mut reached = 0;
    loop {
        let error =
            match attempt(client, sandbox, query, source, size, id.as_deref(), &progress, &mut reached)
                .await?
            {
                Ok(info) => {
                    progress.finish();
                    return Ok(info);
                }
                Err(error) => error,
            };
        attempts.rest(reached, error).await?;
    }
}

#[expect(clippy::too_many_arguments, reason = "one attempt at what its only caller holds")]
async fn attempt(
    client: &Client,
    sandbox: SandboxId,
    query: &WriteQuery,
    source: &Path,
    size: u64,
    id: Option<&str>,
    progress: &Transfer,
    reached: &mut u64,
) -> Result<Result<FileInfo, ClientError>, CliError> {
    let offset = match id {
        None => 0,
        Some(id) => match kept(client, sandbox, query, id, size).await {
            Ok(offset) => offset,
            Err(error) => return Ok(Err(error)),
        },
    };
    *reached = offset;
    let mut file = File::open(source).await.with_context(|| format!("cannot read {}", source.display()))?;
    file.seek(SeekFrom::Start(offset)).await.context("cannot find the place to go on at")?;
    let upload = id.map(|id| UploadPart { id: id.to_owned(), offset, complete: true });
    let query = WriteQuery { upload, ..query.clone() };
    let content = exactly(file, offset, size, progress.clone());
    Ok(match client.file_write(sandbox, &query, content).await {
        Ok(Written::File(info)) => Ok(*info),
        Ok(Written::Kept(_)) => return Err(anyhow::anyhow!("the server kept a part of a whole file").into()),
        Err(error) => Err(error),
    })
}

/// How much of an upload is there already. Asked by a part at the very end, which fits only where all is there.
async fn kept(
    client: &Client,
    sandbox: SandboxId,
    query: &WriteQuery,
    id: &str,
    size: u64,
) -> Result<u64, ClientError> {
    let upload = UploadPart { id: id.to_owned(), offset: size, complete: false };
    let probe = WriteQuery { upload: Some(upload), ..query.clone() };
    let next = match client.file_write(sandbox, &probe, stream::empty()).await {
        Ok(Written::Kept(kept)) => kept.next_offset,
        Ok(Written::File(_)) => 0,
        Err(ClientError::Problem(problem)) if problem.code == ProblemCode::UploadOffset => {
            problem.next_offset.unwrap_or(0)
        }
        Err(error) => return Err(error),
    };
    Ok(if next <= size { next } else { 0 })
}

fn upload_id(source: &Path, metadata: &std::fs::Metadata) -> String {
    let path = std::path::absolute(source).unwrap_or_else(|_error| source.to_owned());
    let mut hash = Sha256::new();
    hash.update(path.as_os_str().as_bytes());
    hash.update(format!("\0{}\0{}\0{}", metadata.len(), metadata.mtime(), metadata.mtime_nsec()));
    hex::encode(&hash.finalize()[..16])
}

/// The bytes of a file up to `size`; one that is shorter by now breaks the transfer.
fn exactly(
    file: File,
    offset: u64,
    size: u64,
    progress: Transfer,
) -> impl Stream<Item = io::Result<Bytes>> + Send + 'static {
    stream::try_unfold((file, offset), move |(mut file, at)| {
        let progress = progress.clone();
        async move {
            let left = size.saturating_sub(at);
            if left == 0 {
                return Ok(None);
            }
            let piece = piece(&mut file, left).await?;
            if piece.is_empty() {
                return Err(io::Error::other("the file became shorter while it was sent"));
            }
            let at = at + piece.len() as u64;
            progress.set(at);
            Ok(Some((piece, (file, at))))
        }
    })
}

async fn piece(source: &mut (impl AsyncRead + Unpin), most: u64) -> io::Result<Bytes> {
    let mut piece = BytesMut::with_capacity(PIECE);
    source.take(most.min(PIECE as u64)).read_buf(&mut piece).await?;
    Ok(piece.freeze())
}

/// Copies standard input, which can be read but once: what breaks is not repeated.
pub(crate) async fn from_standard_input(
    client: &Client,
    sandbox: SandboxId,
    query: &WriteQuery,
) -> Result<FileInfo, CliError> {
    let progress = Transfer::new("sending", None);
    let content = stream::try_unfold((tokio::io::stdin(), 0), {
        let progress = progress.clone();
        move |(mut input, at)| {
            let progress = progress.clone();
            async move {
                let piece = piece(&mut input, u64::MAX).await?;
                let at = at + piece.len() as u64;
                progress.set(at);
                io::Result::Ok((!piece.is_empty()).then_some((piece, (input, at))))
            }
        }
    });
    let written = client.file_write(sandbox, query, content).await?;
    progress.finish();
    match written {
        Written::File(info) => Ok(*info),
        Written::Kept(_) => Err(anyhow::anyhow!("the server kept a part of a whole file").into()),
    }
}
