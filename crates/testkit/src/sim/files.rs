//! The `Files` service of one worker, on a temporary directory for each sandbox. Relative paths begin at `/root`.
//!
//! Users `missing` and `denied` are refused as their names say. Three paths are played: what is read from
//! `/sim/endless` never ends, `/sim/broken` breaks off in the middle, and `/sim/stuck` takes nothing that is written.

use std::{
    io::{Read as _, Seek as _, SeekFrom, Write as _},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    pin::Pin,
    sync::Arc,
};

use space_guest_proto::limits;
use space_node_proto::files::{
    FileChange, FileChanges, FileChunk, FileInfo, ListFilesReply, ListFilesRequest, MakeDirectoryRequest,
    MoveFileRequest, OpenWrite, Place, ReadArchiveRequest, ReadFileRequest, RemoveFileReply,
    RemoveFileRequest, StatFileRequest, WatchFilesRequest, WriteArchiveReply, WriteArchiveRequest,
    WriteFileReply, WriteFileRequest, file_change::Kind, files_server::Files,
};
use tokio::sync::{broadcast, mpsc};
use tokio_stream::{Stream, wrappers::ReceiverStream};
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, Streaming};

use super::{
    disk::{self, Root, refused},
    state::State,
};

const PIECE: usize = 32 * 1024;

pub(super) struct FileService {
    state: Arc<State>,
    stop: CancellationToken,
}

type Replies<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

impl FileService {
    pub(super) fn new(state: Arc<State>, stop: CancellationToken) -> Self {
        Self { state, stop }
    }

    /// Where the sandbox's files are, and the path that is meant.
    fn at(&self, place: Option<Place>) -> Result<(Root, Vec<u8>), Status> {
        let place = place.ok_or_else(|| Status::invalid_argument("place is missing"))?;
        let found =
            self.state.find(&place.sandbox_id).ok_or_else(|| Status::not_found("no such sandbox here"))?;
        if found.generation != place.generation {
            return Err(Status::failed_precondition("another generation"));
        }
        if place.path.is_empty() || place.path.contains(&0) || place.path.len() >= limits::PATH_BYTES {
            return Err(Status::invalid_argument("no path"));
        }
        match place.user.as_str() {
            "missing" => return Err(refused("no_user")),
            "denied" => return Err(refused("permission")),
            _ => {}
        }
        let root = self.state.files(&place.sandbox_id).map_err(|error| disk::status(&error))?;
        Ok((root, place.path))
    }

    fn tell(&self, root: &Root, kind: Kind, path: &[u8]) {
        let change = FileChange { kind: kind.into(), path: disk::absolute(path) };
        // Nobody may be watching.
        self.state.changes().send((root.sandbox.clone(), change)).ok();
    }

    /// Sends what `produce` makes until the reader leaves.
    fn spawn<T: Send + 'static, F>(
        &self,
        produce: impl FnOnce(mpsc::Sender<Result<T, Status>>) -> F,
    ) -> Replies<T>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (sender, receiver) = mpsc::channel(1);
        tokio::spawn(self.stop.clone().run_until_cancelled_owned(produce(sender)));
        Box::pin(ReceiverStream::new(receiver))
    }
}

fn data(data: Vec<u8>) -> FileChunk {
    FileChunk { info: None, data }
}

#[tonic::async_trait]
impl Files for FileService {
    type ReadFileStream = Replies<FileChunk>;
    type WatchFilesStream = Replies<FileChanges>;
    type ReadArchiveStream = Replies<FileChunk>;

    async fn stat_file(&self, request: Request<StatFileRequest>) -> Result<Response<FileInfo>, Status> {
        let asked = request.into_inner();
        let (root, path) = self.at(asked.place)?;
        Ok(Response::new(root.info(&path, asked.follow)?))
    }

    async fn list_files(
        &self,
        request: Request<ListFilesRequest>,
    ) -> Result<Response<ListFilesReply>, Status> {
        let asked = request.into_inner();
        let (root, path) = self.at(asked.place)?;
        let known = 1..=limits::LIST_DEPTH;
        if !known.contains(&asked.depth) || !(1..=limits::LIST_ENTRIES).contains(&asked.limit) {
            return Err(Status::invalid_argument("depth or limit out of range"));
        }
        let mut entries = root.list(&path, asked.depth, &asked.after)?;
        let limit = usize::try_from(asked.limit).unwrap_or(usize::MAX);
        let more = entries.len() > limit;
        entries.truncate(limit);
        Ok(Response::new(ListFilesReply { entries, more }))
    }

    async fn read_file(
        &self,
        request: Request<ReadFileRequest>,
    ) -> Result<Response<Self::ReadFileStream>, Status> {
        let asked = request.into_inner();
        let (root, path) = self.at(asked.place)?;
        let state = Arc::clone(&self.state);
        if path.starts_with(b"/sim/") {
            let breaks = path == b"/sim/broken";
            let info = FileInfo { path, r#type: 1, mode: 0o644, size: 1 << 40, ..FileInfo::default() };
            return Ok(Response::new(self.spawn(move |sender| async move {
                let mut next = Ok(FileChunk { info: Some(info), data: Vec::new() });
                while sender.send(next).await.is_ok() {
                    let sent = state.count_file_bytes(PIECE);
                    let is_over = breaks && sent > 8 * PIECE;
                    next = if is_over { Err(Status::unavailable("gone")) } else { Ok(data(vec![0; PIECE])) };
                }
            })));
        }
        let info = root.info(&path, true)?;
        let mut file = root.open(&path)?;
        file.seek(SeekFrom::Start(asked.offset)).map_err(|error| disk::status(&error))?;
        let mut file = file.take(asked.length.unwrap_or(u64::MAX));
        Ok(Response::new(self.spawn(move |sender| async move {
            let mut next = FileChunk { info: Some(info), data: Vec::new() };
            while sender.send(Ok(next)).await.is_ok() {
                let mut piece = vec![0; PIECE];
                let Ok(length @ 1..) = file.read(&mut piece) else { return };
                piece.truncate(length);
                state.count_file_bytes(length);
                next = data(piece);
            }
        })))
    }

    async fn write_file(
        &self,
        request: Request<Streaming<WriteFileRequest>>,
    ) -> Result<Response<WriteFileReply>, Status> {
        let mut requests = request.into_inner();
        let first = requests.message().await?.and_then(|first| first.open);
        let open = first.ok_or_else(|| Status::invalid_argument("open is missing"))?;
        let OpenWrite { place, mode, parents, exclusive, upload, .. } = open;
        let (root, path) = self.at(place)?;
        if path == b"/sim/stuck" {
            std::future::pending::<()>().await;
        }
        let target = root.path(&path);
        root.check_target(&target, parents, exclusive)?;
        let mut draft =
            Draft::open(&target, upload.as_ref().map(|upload| (upload.id.as_str(), upload.offset)))?;
        loop {
            let message = requests.message().await?;
            let message = message.ok_or_else(|| Status::cancelled("the data broke off"))?;
            draft.file.write_all(&message.data).map_err(|error| disk::status(&error))?;
            if message.finish {
                break;
            }
        }
        if upload.is_some_and(|upload| !upload.complete) {
            let next_offset = draft.file.metadata().map_err(|error| disk::status(&error))?.len();
            return Ok(Response::new(WriteFileReply { info: None, next_offset }));
        }
        let replaced = std::fs::metadata(&target).map(|found| found.permissions().mode() & 0o7777);
        draft.complete(&target, mode.or(replaced.ok()).unwrap_or(0o644))?;
        self.tell(&root, Kind::Written, &path);
        Ok(Response::new(WriteFileReply { info: Some(root.info(&path, true)?), next_offset: 0 }))
    }

    async fn make_directory(
        &self,
        request: Request<MakeDirectoryRequest>,
    ) -> Result<Response<FileInfo>, Status> {
        let asked = request.into_inner();
        let (root, path) = self.at(asked.place)?;
        root.make_directory(&path, asked.parents, asked.mode.unwrap_or(0o755))?;
        self.tell(&root, Kind::Created, &path);
        Ok(Response::new(root.info(&path, false)?))
    }

    async fn move_file(&self, request: Request<MoveFileRequest>) -> Result<Response<FileInfo>, Status> {
        let asked = request.into_inner();
        let (root, from) = self.at(asked.place)?;
        root.rename(&from, &asked.to, asked.replace)?;
        self.tell(&root, Kind::Removed, &from);
        self.tell(&root, Kind::Moved, &asked.to);
        Ok(Response::new(root.info(&asked.to, false)?))
    }

    async fn remove_file(
        &self,
        request: Request<RemoveFileRequest>,
    ) -> Result<Response<RemoveFileReply>, Status> {
        let asked = request.into_inner();
        let (root, path) = self.at(asked.place)?;
        root.remove(&path, asked.recursive)?;
        self.tell(&root, Kind::Removed, &path);
        Ok(Response::new(RemoveFileReply {}))
    }

    async fn watch_files(
        &self,
        request: Request<WatchFilesRequest>,
    ) -> Result<Response<Self::WatchFilesStream>, Status> {
        let (root, path) = self.at(request.into_inner().place)?;
        let watched = root.info(&path, true)?.path;
        let mut changes = self.state.changes().subscribe();
        Ok(Response::new(self.spawn(move |sender| async move {
            let mut next = FileChanges::default();
            while sender.send(Ok(next)).await.is_ok() {
                next =
                    FileChanges { changes: vec![next_change(&mut changes, &root.sandbox, &watched).await] };
            }
        })))
    }

    async fn read_archive(
        &self,
        request: Request<ReadArchiveRequest>,
    ) -> Result<Response<Self::ReadArchiveStream>, Status> {
        let (root, path) = self.at(request.into_inner().place)?;
        let archive = root.archive(&path)?;
        Ok(Response::new(self.spawn(move |sender| async move {
            for piece in archive.chunks(PIECE) {
                if sender.send(Ok(data(piece.to_vec()))).await.is_err() {
                    return;
                }
            }
        })))
    }

    async fn write_archive(
        &self,
        request: Request<Streaming<WriteArchiveRequest>>,
    ) -> Result<Response<WriteArchiveReply>, Status> {
        let mut requests = request.into_inner();
        let first = requests.message().await?;
        let first = first.ok_or_else(|| Status::invalid_argument("place is missing"))?;
        let (root, path) = self.at(first.place)?;
        let (mut archive, mut finish) = (first.data, first.finish);
        while !finish {
            let message = requests.message().await?;
            let message = message.ok_or_else(|| Status::cancelled("the data broke off"))?;
            archive.extend(message.data);
            finish = message.finish;
        }
        let (entries, bytes) = root.unpack(&path, &archive)?;
        Ok(Response::new(WriteArchiveReply { entries, bytes }))
    }
}

/// What is written until it is complete.
struct Draft {
    file: std::fs::File,
    path: PathBuf,
    /// Stays when the write breaks.
    kept: bool,
}

impl Draft {
    fn open(target: &Path, upload: Option<(&str, u64)>) -> Result<Self, Status> {
        let id = upload.map_or("draft", |(id, _)| id);
        let path = target.with_file_name(format!(".{id}.space-upload"));
        let there = std::fs::metadata(&path).map_or(0, |found| found.len());
        let begins_anew = upload.is_none_or(|(_, offset)| offset == 0);
        if !begins_anew && upload.is_some_and(|(_, offset)| offset != there) {
            return Err(disk::elsewhere(there));
        }
        let opened = std::fs::OpenOptions::new()
            .create(true)
            .write(true)
            .append(!begins_anew)
            .truncate(begins_anew)
            .open(&path);
        let file = opened.map_err(|error| disk::status(&error))?;
        Ok(Self { file, path, kept: upload.is_some() })
    }

    fn complete(mut self, target: &Path, mode: u32) -> Result<(), Status> {
        disk::set_mode(&self.path, mode).map_err(|error| disk::status(&error))?;
        std::fs::rename(&self.path, target).map_err(|error| disk::status(&error))?;
        self.kept = true;
        Ok(())
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if !self.kept {
            std::fs::remove_file(&self.path).ok();
        }
    }
}

/// The next change of what is watched, or of what is in it.
async fn next_change(
    changes: &mut broadcast::Receiver<(String, FileChange)>,
    sandbox: &str,
    watched: &[u8],
) -> FileChange {
    loop {
        match changes.recv().await {
            Ok((of, change)) if of == sandbox && change.path.starts_with(watched) => return change,
            Ok(_) => {}
            Err(broadcast::error::RecvError::Lagged(_)) => {
                return FileChange { kind: Kind::Lost.into(), path: Vec::new() };
            }
            Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
        }
    }
}
