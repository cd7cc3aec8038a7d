//! How the worker's service has jobs done in one sandbox.

use std::{sync::Arc, time::Duration};

use space_guest_proto::{
    PROTOCOL_MAX,
    job::{
        Done, FileInfo, GuestJobFrame, Job, ListDirectory, OpenJob, OpenTunnel, ReadFile, RemoveFile,
        WriteFile,
    },
    message::HealthRequest,
};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use super::{
    Broken, Changing, JobError, Reading, Tunnel, Writing,
    check::{self, Listing},
    link::{JobLink, NoLink},
    stream::Outcome,
};
use crate::{guest::GuestClient, limits, metrics::Metrics, node::NodeHandle};

/// Room for jobs: in one sandbox, and in all that the worker serves.
#[derive(Debug, Clone)]
pub(crate) struct JobPlaces {
    sandbox: Arc<Semaphore>,
    worker: Arc<Semaphore>,
}

impl JobPlaces {
    /// For a new sandbox, of which so many may run at once.
    pub(crate) fn new(sandbox: usize, worker: &Arc<Semaphore>) -> Self {
        Self { sandbox: Arc::new(Semaphore::new(sandbox)), worker: Arc::clone(worker) }
    }

    fn take(&self) -> Option<[OwnedSemaphorePermit; 2]> {
        let sandbox = Arc::clone(&self.sandbox).try_acquire_owned().ok()?;
        Some([sandbox, Arc::clone(&self.worker).try_acquire_owned().ok()?])
    }
}

/// Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct JobClient {
    pub(crate) node: NodeHandle,
    pub(crate) guest: GuestClient,
    pub(crate) places: JobPlaces,
    /// Of tunnels alone, so that neither they nor file operations take up the others' room.
    pub(crate) tunnel_places: JobPlaces,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) silence: Duration,
    pub(crate) stop: CancellationToken,
}

impl JobClient {
    /// A job whose result is all that there is: `Stat`, `MakeDirectory`, `Move` and `Remove`.
    pub(crate) async fn run(&self, user: String, job: Job) -> Result<Done, JobError> {
        let is_long = matches!(&job, Job::Remove(RemoveFile { recursive: true, .. }));
        let silence = if is_long { limits::JOB_LONG } else { self.silence };
        let mut link = self.open(user, job).await?;
        match link.expect_within(silence).await? {
            GuestJobFrame::Done(done) => {
                let done = link.done(*done)?;
                done.info.iter().try_for_each(check::info)?;
                Ok(done)
            }
            GuestJobFrame::Opened(_)
            | GuestJobFrame::Data(_)
            | GuestJobFrame::Entries(_)
            | GuestJobFrame::Changes(_) => Err(Broken::Order("something else than a result").into()),
        }
    }

    /// Entries, and whether there are more.
    pub(crate) async fn list(
        &self,
        user: String,
        job: ListDirectory,
    ) -> Result<(Vec<FileInfo>, bool), JobError> {
        let mut listing = Listing::new(job.clone());
        let mut link = self.open(user, Job::List(job)).await?;
        loop {
            match link.expect().await? {
                GuestJobFrame::Entries(entries) => listing.take(entries)?,
                GuestJobFrame::Done(done) => {
                    let done = link.done(*done)?;
                    let entries = listing.into_entries();
                    if done.more && entries.is_empty() {
                        return Err(Broken::Listing("no end").into());
                    }
                    return Ok((entries, done.more));
                }
                GuestJobFrame::Opened(_) | GuestJobFrame::Data(_) | GuestJobFrame::Changes(_) => {
                    return Err(Broken::Order("something else than entries").into());
                }
            }
        }
    }

    pub(crate) async fn read(&self, user: String, job: ReadFile) -> Result<(FileInfo, Reading), JobError> {
        let length = job.length;
        Reading::file(self.open(user, Job::Read(job)).await?, length).await
    }

    pub(crate) async fn read_archive(&self, user: String, job: Job) -> Result<Reading, JobError> {
        Reading::archive(self.open(user, job).await?).await
    }

    pub(crate) async fn write(&self, user: String, job: WriteFile) -> Result<Writing, JobError> {
        let result = match &job.upload {
            Some(upload) if !upload.complete => Outcome::Kept(upload.offset),
            Some(_) | None => Outcome::File,
        };
        Writing::new(self.open(user, Job::Write(job)).await?, result).await
    }

    pub(crate) async fn write_archive(&self, user: String, job: Job) -> Result<Writing, JobError> {
        Writing::new(self.open(user, job).await?, Outcome::Counts).await
    }

    pub(crate) async fn watch(&self, user: String, job: Job) -> Result<Changing, JobError> {
        Changing::new(self.open(user, job).await?).await
    }

    /// A connection to a port on the guest's own loopback.
    pub(crate) async fn tunnel(&self, port: u32) -> Result<Tunnel, JobError> {
        let places = self.tunnel_places.take().ok_or(JobError::TooMany)?;
        let job = Job::Tunnel(OpenTunnel { port });
        let opening = async { Tunnel::new(self.open_in(places, String::new(), job).await?).await };
        timeout(self.silence.min(limits::TUNNEL_OPEN), opening).await.unwrap_or(Err(JobError::Silent))
    }

    async fn open(&self, user: String, job: Job) -> Result<JobLink, JobError> {
        let places = self.places.take().ok_or(JobError::TooMany)?;
        self.metrics.jobs.add(1);
        self.open_in(places, user, job).await
    }

    async fn open_in(
        &self,
        places: [OwnedSemaphorePermit; 2],
        user: String,
        job: Job,
    ) -> Result<JobLink, JobError> {
        let job = OpenJob { protocol: PROTOCOL_MAX, user, job: Some(job) };
        let opening = async {
            let stream = self.node.connect().await.map_err(|error| NoLink::Error(error.into()))?;
            JobLink::open(stream, job, self.silence, self.stop.clone(), places).await
        };
        let opened = tokio::select! {
            () = self.stop.cancelled() => return Err(JobError::Ended),
            opened = opening => opened,
        };
        match opened {
            Ok(link) => Ok(link),
            Err(NoLink::Error(error)) => Err(error),
            Err(NoLink::Closed) => Err(self.why_closed().await),
        }
    }

    /// A guest that is rebooting closes its ports too: only an agent that answers is one without jobs.
    async fn why_closed(&self) -> JobError {
        match self.guest.call(HealthRequest {}).await {
            Ok(_health) => JobError::Unsupported,
            Err(error) => error.into(),
        }
    }
}
