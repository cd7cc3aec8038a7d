//! Files in sandboxes: control finds the worker and passes on what it is asked. Nothing is stored but, for a POST, what
//! its idempotency key was answered.

use crate::grants::Reach;
use std::future::Future;

use space_api::{
    Page,
    files::{
        CreateDirectory, FileInfo, FileMode, ListQuery, MoveFile, PlaceQuery, RemoveQuery, StatQuery,
        WatchQuery, cursor_of, path_of,
    },
    limits,
};
use space_attach::is_transport;
use space_node_proto::files as proto;
use space_types::SandboxId;
use tokio::time::{Duration, timeout};
use tonic::{Response, Status, Streaming, transport::Channel};

use super::{
    App, AppError,
    error::Answer,
    file_convert::info,
    file_error::from_status,
    file_stream::{FileBytes, Watching},
};
use crate::store::{idempotency::Claim, sandboxes::Route};

/// For what may have much to do: to remove a tree, to complete a large file. A little longer than the worker's own
/// deadline, which says more about the reason.
pub(super) const LONG: Duration = Duration::from_secs(330);

/// The worker of one sandbox.
pub(super) struct FilesAt<'a> {
    pub(super) app: &'a App,
    pub(super) route: Route,
    pub(super) sandbox: SandboxId,
    pub(super) client: proto::files_client::FilesClient<Channel>,
}

impl FilesAt<'_> {
    pub(super) fn place(&self, path: &[u8], user: Option<&str>) -> proto::Place {
        proto::Place {
            sandbox_id: self.sandbox.to_string(),
            generation: self.route.generation,
            user: user.unwrap_or_default().to_owned(),
            path: path.to_vec(),
        }
    }

    /// What an answer of the worker means.
    pub(super) fn answer<T>(&self, answer: Result<Response<T>, Status>) -> Result<T, AppError> {
        let status = match answer {
            Ok(answer) => return Ok(answer.into_inner()),
            Err(status) => status,
        };
        if is_transport(&status) {
            self.app.workers.forget(&self.route);
        }
        let error = from_status(status);
        if matches!(error, AppError::GuestUnavailable | AppError::NodeUnavailable) {
            // Perhaps it moved; the next request looks again.
            self.app.routes.forget(self.sandbox);
        }
        Err(error)
    }

    async fn within<T>(
        &self,
        deadline: Duration,
        call: impl Future<Output = Result<Response<T>, Status>>,
    ) -> Result<T, AppError> {
        let answer = timeout(deadline, call).await.map_err(|_elapsed| AppError::Timeout)?;
        self.answer(answer)
    }

    async fn stat(&mut self, query: &StatQuery) -> Result<proto::FileInfo, AppError> {
        let place = Some(self.place(query.path.as_bytes(), query.user.as_deref()));
        let mut client = self.client.clone();
        let call = client.stat_file(proto::StatFileRequest { place, follow: query.follow });
        self.within(self.app.limits.call_timeout, call).await
    }
}

impl App {
    pub(super) async fn files_at(&self, reach: Reach, sandbox: SandboxId) -> Result<FilesAt<'_>, AppError> {
        let route = self.route(Some(reach), sandbox).await?;
        let client = self.workers.files(&route).map_err(|error| {
            tracing::warn!(address = route.data_address, %error, "a worker's address can't be used");
            AppError::NodeUnavailable
        })?;
        Ok(FilesAt { app: self, route, sandbox, client })
    }

    pub(crate) async fn file_stat(
        &self,
        reach: Reach,
        sandbox: SandboxId,
        query: &StatQuery,
    ) -> Result<FileInfo, AppError> {
        Ok(info(self.files_at(reach, sandbox).await?.stat(query).await?))
    }

    pub(crate) async fn file_list(
        &self,
        reach: Reach,
        sandbox: SandboxId,
        query: &ListQuery,
    ) -> Result<Page<FileInfo>, AppError> {
        let mut at = self.files_at(reach, sandbox).await?;
        let asked = proto::ListFilesRequest {
            place: Some(at.place(query.path.as_bytes(), query.user.as_deref())),
            depth: query.depth.unwrap_or(1),
            after: query.cursor.as_deref().and_then(path_of).unwrap_or_default(),
            limit: query.limit.unwrap_or(limits::FILES_DEFAULT),
        };
        let depth = asked.depth;
        let mut client = at.client.clone();
        let found = at.within(self.limits.call_timeout, client.list_files(asked)).await?;
        let next_cursor = match found.entries.last() {
            Some(last) if found.more => Some(at.cursor(query, depth, &last.path).await?),
            Some(_) | None => None,
        };
        Ok(Page { items: found.entries.into_iter().map(info).collect(), next_cursor })
    }

    pub(crate) async fn directory_create(
        &self,
        reach: Reach,
        sandbox: SandboxId,
        body: &CreateDirectory,
        claim: Option<&Claim>,
    ) -> Result<Answer<FileInfo>, AppError> {
        let path = body.checked_path()?;
        let at = self.files_at(reach, sandbox).await?;
        self.claimed(claim, 201, async {
            let asked = proto::MakeDirectoryRequest {
                place: Some(at.place(path.as_bytes(), body.user.as_deref())),
                parents: body.parents,
                mode: body.mode.map(FileMode::bits),
            };
            let mut client = at.client.clone();
            Ok(info(at.within(self.limits.call_timeout, client.make_directory(asked)).await?))
        })
        .await
    }

    pub(crate) async fn file_move(
        &self,
        reach: Reach,
        sandbox: SandboxId,
        body: &MoveFile,
        claim: Option<&Claim>,
    ) -> Result<Answer<FileInfo>, AppError> {
        let (from, to) = body.checked_paths()?;
        let at = self.files_at(reach, sandbox).await?;
        self.claimed(claim, 200, async {
            let asked = proto::MoveFileRequest {
                place: Some(at.place(from.as_bytes(), body.user.as_deref())),
                to: to.into_bytes(),
                replace: body.replace,
            };
            let mut client = at.client.clone();
            Ok(info(at.within(self.limits.call_timeout, client.move_file(asked)).await?))
        })
        .await
    }

    pub(crate) async fn file_remove(
        &self,
        reach: Reach,
        sandbox: SandboxId,
        query: &RemoveQuery,
    ) -> Result<(), AppError> {
        let at = self.files_at(reach, sandbox).await?;
        let asked = proto::RemoveFileRequest {
            place: Some(at.place(query.path.as_bytes(), query.user.as_deref())),
            recursive: query.recursive,
        };
        let deadline = if query.recursive { LONG } else { self.limits.call_timeout };
        let mut client = at.client.clone();
        at.within(deadline, client.remove_file(asked)).await?;
        Ok(())
    }

    /// The file as it is now, and its bytes from `offset` on, as they are read.
    pub(crate) async fn file_read(
        &self,
        reach: Reach,
        sandbox: SandboxId,
        query: &PlaceQuery,
        offset: u64,
        length: Option<u64>,
    ) -> Result<(FileInfo, FileBytes), AppError> {
        let at = self.files_at(reach, sandbox).await?;
        let place = Some(at.place(query.path.as_bytes(), query.user.as_deref()));
        let mut client = at.client.clone();
        let opened = async {
            let answer = client.read_file(proto::ReadFileRequest { place, offset, length }).await;
            let mut chunks = at.answer(answer)?;
            let first = at.answer(chunks.message().await.map(Response::new))?;
            let found = first.and_then(|chunk| chunk.info).ok_or(AppError::GuestUnavailable)?;
            Ok((info(found), FileBytes::new(chunks)))
        };
        timeout(self.limits.call_timeout, opened).await.map_err(|_elapsed| AppError::Timeout)?
    }

    pub(crate) async fn archive_read(
        &self,
        reach: Reach,
        sandbox: SandboxId,
        query: &PlaceQuery,
    ) -> Result<FileBytes, AppError> {
        let at = self.files_at(reach, sandbox).await?;
        let place = Some(at.place(query.path.as_bytes(), query.user.as_deref()));
        let mut client = at.client.clone();
        let call = client.read_archive(proto::ReadArchiveRequest { place });
        Ok(FileBytes::new(at.within(self.limits.call_timeout, call).await?))
    }

    /// From when this returns on, no change is missed.
    pub(crate) async fn file_watch(
        &self,
        reach: Reach,
        sandbox: SandboxId,
        query: &WatchQuery,
    ) -> Result<Watching, AppError> {
        let at = self.files_at(reach, sandbox).await?;
        let place = Some(at.place(query.path.as_bytes(), query.user.as_deref()));
        let mut client = at.client.clone();
        let call = client.watch_files(proto::WatchFilesRequest { place, recursive: query.recursive });
        let begun = async {
            let mut changes: Streaming<proto::FileChanges> = at.answer(call.await)?;
            at.answer(changes.message().await.map(Response::new))?.ok_or(AppError::GuestUnavailable)?;
            Ok(Watching::new(changes, self.shutdown.clone()))
        };
        timeout(self.limits.call_timeout, begun).await.map_err(|_elapsed| AppError::Timeout)?
    }
}

impl FilesAt<'_> {
    /// A cursor is the last entry's path relative to the directory. Where a relative directory lies, only the guest
    /// knows; its own entries need no more than their names.
    async fn cursor(&mut self, query: &ListQuery, depth: u32, last: &[u8]) -> Result<String, AppError> {
        let last = space_api::files::FilePath::from(last);
        if depth == 1 {
            return Ok(cursor_of(last.names().last().unwrap_or_default()));
        }
        let root = if query.path.is_absolute() {
            query.path.clone()
        } else {
            let asked = StatQuery { path: query.path.clone(), follow: false, user: query.user.clone() };
            self.stat(&asked).await?.path.into()
        };
        let mut names = last.names();
        if !root.names().all(|name| names.next() == Some(name)) {
            return Err(AppError::GuestUnavailable);
        }
        Ok(cursor_of(&names.collect::<Vec<_>>().join(&b'/')))
    }
}
