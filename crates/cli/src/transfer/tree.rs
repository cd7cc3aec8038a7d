//! Directories, as tar streams. They are not resumed: what has been put out stays.

use std::{
    io::{self, Read, Write},
    path::Path,
};

use anyhow::Context as _;
use bytes::Bytes;
use futures::{Stream, stream};
use space_api::{
    client::Client,
    files::{ArchiveWritten, PlaceQuery},
};
use space_types::SandboxId;
use tokio::{sync::mpsc, task::spawn_blocking};

use crate::{error::CliError, progress::Transfer};

/// Pieces between the network and the disk.
const PIECES: usize = 4;
const PIECE: usize = 64 * 1024;

/// Puts what a directory in the sandbox holds into `target`, which is made if it is missing. Answers the bytes of the
/// stream.
///
/// The archive was made by a hostile guest: no entry leaves `target`, and none becomes set-uid.
pub(crate) async fn receive(
    client: &Client,
    sandbox: SandboxId,
    query: &PlaceQuery,
    target: &Path,
) -> Result<u64, CliError> {
    let mut download = client.archive_read(sandbox, query).await?;
    let (sender, pieces) = mpsc::channel(PIECES);
    let directory = target.to_owned();
    let unpacking = spawn_blocking(move || unpack(&mut Pieces { pieces, rest: Bytes::new() }, &directory));
    let progress = Transfer::new("receiving", None);
    let mut bytes = 0;
    let ended = loop {
        match download.chunk().await {
            Ok(Some(chunk)) => {
                bytes += chunk.len() as u64;
                progress.set(bytes);
                if sender.send(Ok(chunk)).await.is_err() {
                    // It says why below.
                    break Ok(());
                }
            }
            Ok(None) => break Ok(()),
            Err(error) => {
                // The disk's side must not take this for the end. It may have given up itself.
                sender.send(Err(io::ErrorKind::UnexpectedEof.into())).await.ok();
                break Err(error);
            }
        }
    };
    drop(sender);
    let unpacked = unpacking.await.context("unpacking was interrupted")?;
    ended?;
    unpacked.with_context(|| format!("cannot put everything into {}", target.display()))?;
    progress.finish();
    Ok(bytes)
}

fn unpack(archive: &mut Pieces, target: &Path) -> io::Result<()> {
    std::fs::create_dir_all(target)?;
    let mut entries = tar::Archive::new(&mut *archive);
    entries.set_preserve_mtime(true);
    for entry in entries.entries()? {
        let mut entry = entry?;
        if !entry.unpack_in(target)? {
            let path = entry.path_bytes().escape_ascii().to_string();
            return Err(io::Error::other(format!("the archive has an entry outside of it: {path}")));
        }
    }
    // To the end of the stream, which may be padded.
    io::copy(archive, &mut io::sink())?;
    Ok(())
}

/// Puts what `source` holds into a directory in the sandbox.
pub(crate) async fn send(
    client: &Client,
    sandbox: SandboxId,
    query: &PlaceQuery,
    source: &Path,
) -> Result<ArchiveWritten, CliError> {
    let (sender, pieces) = mpsc::channel(PIECES);
    let directory = source.to_owned();
    let packing = spawn_blocking(move || pack(&sender, &directory));
    let progress = Transfer::new("sending", None);
    let written = client.archive_write(sandbox, query, counted(pieces, progress.clone())).await;
    // An error here is the reason of the other one.
    packing
        .await
        .context("packing was interrupted")?
        .or_else(|error| if error.kind() == io::ErrorKind::BrokenPipe { Ok(()) } else { Err(error) })
        .with_context(|| format!("cannot read all of {}", source.display()))?;
    progress.finish();
    Ok(written?)
}

fn pack(sender: &mpsc::Sender<io::Result<Bytes>>, source: &Path) -> io::Result<()> {
    let sink = io::BufWriter::with_capacity(PIECE, Sink(sender.clone()));
    let mut archive = tar::Builder::new(sink);
    archive.follow_symlinks(false);
    let packed = archive
        .append_dir_all(".", source)
        .and_then(|()| archive.into_inner())
        .and_then(|mut sink| sink.flush());
    if packed.is_err() {
        // The other side must not take this for the end. It may have gone.
        sender.blocking_send(Err(io::ErrorKind::UnexpectedEof.into())).ok();
    }
    packed
}

fn counted(
    pieces: mpsc::Receiver<io::Result<Bytes>>,
    progress: Transfer,
) -> impl Stream<Item = io::Result<Bytes>> + Send + 'static {
    stream::try_unfold((pieces, 0), move |(mut pieces, sent)| {
        let progress = progress.clone();
        async move {
            let Some(piece) = pieces.recv().await.transpose()? else { return Ok(None) };
            let sent = sent + piece.len() as u64;
            progress.set(sent);
            Ok(Some((piece, (pieces, sent))))
        }
    })
}

/// What comes from the network, for code that blocks.
struct Pieces {
    pieces: mpsc::Receiver<io::Result<Bytes>>,
    rest: Bytes,
}

impl Read for Pieces {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.rest.is_empty() {
            match self.pieces.blocking_recv() {
                Some(piece) => self.rest = piece?,
                None => return Ok(0),
            }
        }
        let piece = self.rest.split_to(self.rest.len().min(buffer.len()));
        buffer[..piece.len()].copy_from_slice(&piece);
        Ok(piece.len())
    }
}

/// What goes to the network, from code that blocks.
struct Sink(mpsc::Sender<io::Result<Bytes>>);

impl Write for Sink {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let sent = self.0.blocking_send(Ok(Bytes::copy_from_slice(data)));
        sent.map(|()| data.len()).map_err(|_gone| io::ErrorKind::BrokenPipe.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
