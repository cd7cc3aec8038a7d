//! The gRPC service `Files`.
//!
//! Data is pulled, in both directions: from a guest when the client's window has room, from a client when the guest
//! has taken what came before. A call that is dropped drops its job.

use std::{pin::Pin, sync::Arc};

use bytes::Bytes;
use futures::{Stream, StreamExt as _, stream};
use space_guest_proto::job::{
    Done, Job, ListDirectory, MakeDirectory, MoveFile, ReadArchive, ReadFile, RemoveFile, StatFile, Upload,
    WatchFiles, WriteArchive, WriteFile,
};
use space_node_proto::files::{
    FileChanges, FileChunk, FileInfo, ListFilesReply, ListFilesRequest, MakeDirectoryRequest,
    MoveFileRequest, OpenWrite, Place, ReadArchiveRequest, ReadFileRequest, RemoveFileReply,
    RemoveFileRequest, StatFileRequest, WatchFilesRequest, WriteArchiveReply, WriteArchiveRequest,
    WriteFileReply, WriteFileRequest, files_server::Files,
};
use tonic::{Request, Response, Status, Streaming};

use super::{
    file_convert::{change, checked, info, missing, place},
    file_status::status,
    opening::first,
};
use crate::{
    job::{Changing, JobClient, JobError, Reading, Writing},
    metrics::Metrics,
    sandboxes::Sandboxes,
};

/// Data in one message of an upload.
const DATA: usize = 64 * 1024;

pub(super) struct FileService {
    pub(super) sandboxes: Arc<Sandboxes>,
    pub(super) metrics: Arc<Metrics>,
}

/// One call: in which sandbox, as whom, and what its errors become.
struct Call {
    jobs: JobClient,
    user: String,
    metrics: Arc<Metrics>,
}

/// Data, and whether it is the last.
type Piece = (Vec<u8>, bool);

type Replies<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

impl FileService {
    fn call(&self, asked: Option<Place>) -> Result<(Call, Bytes), Status> {
        let Place { sandbox_id, generation, user, path } = place(asked)?;
        let jobs = self.sandboxes.find_jobs(&sandbox_id, generation)?;
        Ok((Call { jobs, user, metrics: Arc::clone(&self.metrics) }, path.into()))
    }
}

impl Call {
    fn status(&self, error: JobError) -> Status {
        status(&self.metrics, &self.jobs.node.sandbox_id, error)
    }

    async fn run(self, job: Job) -> Result<Done, Status> {
        let (user, job) = checked(self.user.clone(), job)?;
        self.jobs.run(user, job).await.map_err(|error| self.status(error))
    }

    /// A job that answers with what the file is now.
    async fn run_for_info(self, job: Job) -> Result<Response<FileInfo>, Status> {
        let found = self.run(job).await?.info;
        found
            .map(|found| Response::new(info(found)))
            .ok_or_else(|| Status::unavailable("the guest told nothing"))
    }

    /// What comes from the guest, piece by piece.
    fn chunks(self, reading: Reading) -> impl Stream<Item = Result<FileChunk, Status>> {
        stream::try_unfold((self, reading), |(call, mut reading)| async {
            let data = reading.next().await.map_err(|error| call.status(error))?;
            let Some(data) = data else { return Ok(None) };
            call.metrics.file_bytes.add(data.len() as u64);
            Ok(Some((FileChunk { info: None, data: data.into() }, (call, reading))))
        })
    }

    fn changes(self, changing: Changing) -> impl Stream<Item = Result<FileChanges, Status>> {
        stream::try_unfold((self, changing), |(call, mut changing)| async {
            let told = changing.next().await.map_err(|error| call.status(error))?;
            let Some(told) = told else { return Ok(None) };
            let changes = told.into_iter().map(change).collect();
            Ok(Some((FileChanges { changes }, (call, changing))))
        })
    }

    /// Passes pieces on until `finish`; the guest may give up at any time before.
    async fn upload<T>(
        &self,
        mut writing: Writing,
        mut requests: Streaming<T>,
        first: Piece,
        parts: fn(T) -> Result<Piece, Status>,
    ) -> Result<Done, Status> {
        let (mut data, mut finish) = first;
        loop {
            if data.len() > DATA {
                return Err(Status::invalid_argument(format!("data is longer than {DATA}")));
            }
            self.metrics.file_bytes.add(data.len() as u64);
            writing.send(&data.into()).await.map_err(|error| self.status(error))?;
            if finish {
                return writing.finish().await.map_err(|error| self.status(error));
            }
            let next = tokio::select! {
                next = requests.message() => next?,
                error = writing.gives_up() => return Err(self.status(error)),
            };
            let next = next.ok_or_else(|| Status::cancelled("the data broke off before its end"))?;
            (data, finish) = parts(next)?;
        }
    }
}

#[tonic::async_trait]
impl Files for FileService {
    type ReadFileStream = Replies<FileChunk>;
    type WatchFilesStream = Replies<FileChanges>;
    type ReadArchiveStream = Replies<FileChunk>;

    async fn stat_file(&self, request: Request<StatFileRequest>) -> Result<Response<FileInfo>, Status> {
        let StatFileRequest { place, follow } = request.into_inner();
        let (call, path) = self.call(place)?;
        call.run_for_info(Job::Stat(StatFile { path, follow })).await
    }

    async fn list_files(
        &self,
        request: Request<ListFilesRequest>,
    ) -> Result<Response<ListFilesReply>, Status> {
        let ListFilesRequest { place, depth, after, limit } = request.into_inner();
        let (call, path) = self.call(place)?;
        let asked = ListDirectory { path, depth, after: after.into(), limit };
        let (user, _job) = checked(call.user.clone(), Job::List(asked.clone()))?;
        let (entries, more) = call.jobs.list(user, asked).await.map_err(|error| call.status(error))?;
        let entries = entries.into_iter().map(info).collect();
        Ok(Response::new(ListFilesReply { entries, more }))
    }

    async fn read_file(
        &self,
        request: Request<ReadFileRequest>,
    ) -> Result<Response<Self::ReadFileStream>, Status> {
        let ReadFileRequest { place, offset, length } = request.into_inner();
        let (call, path) = self.call(place)?;
        let asked = ReadFile { path, offset, length };
        let (user, _job) = checked(call.user.clone(), Job::Read(asked.clone()))?;
        let (found, reading) = call.jobs.read(user, asked).await.map_err(|error| call.status(error))?;
        let head = FileChunk { info: Some(info(found)), data: Vec::new() };
        let chunks = stream::iter([Ok(head)]).chain(call.chunks(reading));
        Ok(Response::new(Box::pin(chunks)))
    }

    async fn write_file(
        &self,
        request: Request<Streaming<WriteFileRequest>>,
    ) -> Result<Response<WriteFileReply>, Status> {
        let mut requests = request.into_inner();
        let WriteFileRequest { open, data, finish } =
            first(&mut requests, self.sandboxes.request_deadline()).await?;
        let OpenWrite { place, mode, parents, exclusive, upload, owner } =
            open.ok_or_else(|| missing("open"))?;
        let (call, path) = self.call(place)?;
        let upload =
            upload.map(|upload| Upload { id: upload.id, offset: upload.offset, complete: upload.complete });
        let asked = WriteFile { path, mode, parents, exclusive, upload, owner };
        let (user, _job) = checked(call.user.clone(), Job::Write(asked.clone()))?;
        let writing = call.jobs.write(user, asked).await.map_err(|error| call.status(error))?;
        let parts = |next: WriteFileRequest| match next.open {
            None => Ok((next.data, next.finish)),
            Some(_) => Err(Status::invalid_argument("open comes first, and once")),
        };
        let done = call.upload(writing, requests, (data, finish), parts).await?;
        Ok(Response::new(WriteFileReply { info: done.info.map(info), next_offset: done.next_offset }))
    }

    async fn make_directory(
        &self,
        request: Request<MakeDirectoryRequest>,
    ) -> Result<Response<FileInfo>, Status> {
        let MakeDirectoryRequest { place, parents, mode } = request.into_inner();
        let (call, path) = self.call(place)?;
        call.run_for_info(Job::MakeDirectory(MakeDirectory { path, parents, mode })).await
    }

    async fn move_file(&self, request: Request<MoveFileRequest>) -> Result<Response<FileInfo>, Status> {
        let MoveFileRequest { place, to, replace } = request.into_inner();
        let (call, from) = self.call(place)?;
        call.run_for_info(Job::Move(MoveFile { from, to: to.into(), replace })).await
    }

    async fn remove_file(
        &self,
        request: Request<RemoveFileRequest>,
    ) -> Result<Response<RemoveFileReply>, Status> {
        let RemoveFileRequest { place, recursive } = request.into_inner();
        let (call, path) = self.call(place)?;
        call.run(Job::Remove(RemoveFile { path, recursive })).await?;
        Ok(Response::new(RemoveFileReply {}))
    }

    async fn watch_files(
        &self,
        request: Request<WatchFilesRequest>,
    ) -> Result<Response<Self::WatchFilesStream>, Status> {
        let WatchFilesRequest { place, recursive } = request.into_inner();
        let (call, path) = self.call(place)?;
        let (user, job) = checked(call.user.clone(), Job::Watch(WatchFiles { path, recursive }))?;
        let changing = call.jobs.watch(user, job).await.map_err(|error| call.status(error))?;
        let begun = stream::iter([Ok(FileChanges::default())]);
        Ok(Response::new(Box::pin(begun.chain(call.changes(changing)))))
    }

    async fn read_archive(
        &self,
        request: Request<ReadArchiveRequest>,
    ) -> Result<Response<Self::ReadArchiveStream>, Status> {
        let (call, path) = self.call(request.into_inner().place)?;
        let (user, job) = checked(call.user.clone(), Job::ReadArchive(ReadArchive { path }))?;
        let reading = call.jobs.read_archive(user, job).await.map_err(|error| call.status(error))?;
        Ok(Response::new(Box::pin(call.chunks(reading))))
    }

    async fn write_archive(
        &self,
        request: Request<Streaming<WriteArchiveRequest>>,
    ) -> Result<Response<WriteArchiveReply>, Status> {
        let mut requests = request.into_inner();
        let WriteArchiveRequest { place, data, finish } =
            first(&mut requests, self.sandboxes.request_deadline()).await?;
        let (call, path) = self.call(place)?;
        let (user, job) = checked(call.user.clone(), Job::WriteArchive(WriteArchive { path }))?;
        let writing = call.jobs.write_archive(user, job).await.map_err(|error| call.status(error))?;
        let parts = |next: WriteArchiveRequest| match next.place {
            None => Ok((next.data, next.finish)),
            Some(_) => Err(Status::invalid_argument("place comes first, and once")),
        };
        let done = call.upload(writing, requests, (data, finish), parts).await?;
        Ok(Response::new(WriteArchiveReply { entries: done.entries, bytes: done.bytes }))
    }
}
