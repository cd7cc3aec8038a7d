//! One process of a worker, from its start to its end.

use std::{
    fs::File,
    io,
    net::TcpListener,
    os::fd::AsFd,
    process::{Command, Stdio},
    sync::Arc,
};

use space_node_proto::worker::{Configure, from_worker, to_worker};
use space_types::ByteSize;
use tokio::time::timeout;

use super::{
    certificate::{CertificateError, WorkerCertificate},
    channel::{ChannelError, WorkerChannel},
    renewal::Renewal,
};
use crate::{
    cgroup::{CgroupLimits, CgroupParent},
    config::NodeConfig,
    enrol::ControlLink,
    fail_point,
    journal::{Journal, JournalError, WorkerRecord},
    sys::{ChildSetup, Pidfd, Spawner},
};

/// What every worker's owner needs.
#[derive(Debug)]
pub(crate) struct WorkerContext {
    pub(crate) config: Arc<NodeConfig>,
    pub(crate) journal: Journal,
    pub(crate) spawner: Spawner,
    pub(crate) cgroups: CgroupParent,
    pub(crate) control: ControlLink,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum StartError {
    #[error("cannot have the worker's certificate signed")]
    Certificate(#[from] CertificateError),
    #[error("cannot start the worker")]
    Spawn(#[source] io::Error),
    #[error(transparent)]
    Journal(#[from] JournalError),
    #[error("cannot configure the worker")]
    Configure(#[from] ChannelError),
    #[error("the worker did not say in time that it is configured")]
    Silent,
}

/// A process that is configured.
#[derive(Debug)]
pub(super) struct Incarnation {
    pub(super) process: Pidfd,
    pub(super) channel: WorkerChannel,
    /// It runs as.
    pub(super) user: u32,
}

const LIMITS: CgroupLimits = CgroupLimits { memory: ByteSize::mib(512), cpu_percent: 200, tasks: 128 };

impl WorkerContext {
    pub(super) fn cgroup(&self, worker: &WorkerRecord) -> crate::cgroup::Cgroup {
        self.cgroups.leaf(&worker.tenant.label())
    }

    fn user(&self, worker: &WorkerRecord) -> u32 {
        self.config.worker_uids.first + worker.number
    }

    /// Starts and configures a process. What is left of an earlier one is killed first.
    pub(super) async fn start(
        &self,
        worker: WorkerRecord,
        listener: &TcpListener,
        renewal: &mut Renewal,
    ) -> Result<Incarnation, StartError> {
        let certificate = renewal.current().await?;
        let (channel, process) = self.spawn(&worker).await?;
        self.journal.set_worker_process(worker.tenant, process.identity()).await?;
        let configure = configuration(&worker, &certificate);
        channel.send(to_worker::Kind::Configure(configure), &[listener.as_fd()]).await?;
        let first = timeout(self.config.deadlines.worker(), channel.receive()).await;
        match first.map_err(|_elapsed| StartError::Silent)?? {
            from_worker::Kind::Configured(_) => {
                Ok(Incarnation { process, channel, user: self.user(&worker) })
            }
            from_worker::Kind::Connect(_)
            | from_worker::Kind::Ready(_)
            | from_worker::Kind::Unready(_)
            | from_worker::Kind::Hint(_) => {
                Err(ChannelError::Protocol("spoke before it was configured").into())
            }
        }
    }

    async fn spawn(&self, worker: &WorkerRecord) -> Result<(WorkerChannel, Pidfd), StartError> {
        let cgroup = self.cgroup(worker);
        let fresh = cgroup.clone();
        let made = tokio::task::spawn_blocking(move || {
            fresh.destroy()?;
            fresh.create()?;
            fresh.limit(LIMITS)
        });
        made.await.map_err(io::Error::other).and_then(|made| made).map_err(StartError::Spawn)?;
        let (channel, theirs) =
            WorkerChannel::pair(self.config.deadlines.worker()).map_err(StartError::Spawn)?;
        let setup = ChildSetup {
            cgroup: cgroup.entrance().map_err(StartError::Spawn)?,
            user: Some(self.user(worker)),
            channel: Some(theirs),
            die_with_parent: true,
        };
        let command = self.command().map_err(StartError::Spawn)?;
        let pid = self.spawner.spawn(command, setup).await.map_err(StartError::Spawn)?;
        fail_point::WORKER_SPAWNED.pass();
        let process = Pidfd::of_child(pid).map_err(StartError::Spawn)?;
        Ok((channel, process))
    }

    /// Its log goes where ours goes.
    fn command(&self) -> io::Result<Command> {
        let mut command = Command::new(&self.config.worker);
        let fail_point = space_fail_point::for_child("space-sandboxd").map_err(io::Error::other)?;
        let seconds = self.config.deadlines.boot().as_secs().max(1).to_string();
        command
            .env_clear()
            .env("SPACE_SANDBOXD_BOOT_DEADLINE", seconds)
            .envs(fail_point.map(|name| (space_fail_point::VARIABLE, name)))
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(stderr()?)
            .stderr(stderr()?);
        Ok(command)
    }
}

fn stderr() -> io::Result<File> {
    Ok(File::from(io::stderr().as_fd().try_clone_to_owned()?))
}

/// Also sent to a running worker to renew its certificate, without a socket then.
pub(super) fn configuration(worker: &WorkerRecord, certificate: &WorkerCertificate) -> Configure {
    Configure {
        tenant_id: worker.tenant.to_string(),
        certificate_pem: certificate.certificate_pem.clone(),
        private_key_pem: certificate.private_key_pem.clone(),
        authority_pem: certificate.authority_pem.clone(),
    }
}
