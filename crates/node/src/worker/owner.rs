//! The owner task of one tenant's worker: keeps a process alive while there are sandboxes for it, and passes
//! messages and descriptors between it and them.

use std::{
    collections::HashMap,
    fs::File,
    io,
    net::{SocketAddr, TcpListener},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
    time::Duration,
};

use camino::Utf8Path;
use rustix::fs::{Gid, Mode, OFlags, Uid, fchown, open};
use space_node_proto::worker::{
    Connect, Connection, HintKind, Release, Shutdown, UnreadyReason, from_worker, to_worker,
};
use space_runtime::{retry::Backoff, telemetry::chain};
use space_types::{SandboxId, TenantId};
use tokio::{
    sync::{mpsc, oneshot, watch},
    task::JoinSet,
    time::{Instant, sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{
    assign::{Assignment, WorkerEvent},
    certificate::WorkerCertificate,
    channel::ChannelError,
    incarnation::{Incarnation, WorkerContext, configuration},
    renewal::Renewal,
};
use crate::{
    fail_point,
    journal::{JournalError, WorkerRecord},
    place::jail_names,
};

/// Connections under way for one worker; more are answered with an error.
const CONNECTS: usize = 64;
const LONGEST_AGENT_VERSION: usize = 64;
const BACKOFF: Backoff =
    Backoff { first: Duration::from_millis(200), cap: Duration::from_secs(10), give_up_after: Duration::MAX };
/// For a worker to leave after it was told to.
const LEAVE: Duration = Duration::from_secs(3);

#[derive(Debug)]
pub(super) enum Command {
    Assign { assignment: Box<Assignment>, taken: oneshot::Sender<()> },
    Release { sandbox: SandboxId, done: oneshot::Sender<()> },
}

/// Why a process is no longer served.
enum Ended {
    Idle,
    Stopping,
    Broken(String),
}

#[derive(Debug)]
pub(super) struct WorkerOwner {
    context: Arc<WorkerContext>,
    tenant: TenantId,
    commands: mpsc::Receiver<Command>,
    address: watch::Sender<Option<String>>,
    shutdown: CancellationToken,
    sandboxes: HashMap<SandboxId, Assignment>,
    /// Outlives every process.
    renewal: Renewal,
}

type Connected = (u64, Result<OwnedFd, String>);

impl WorkerOwner {
    pub(super) fn new(
        context: Arc<WorkerContext>,
        tenant: TenantId,
        commands: mpsc::Receiver<Command>,
        address: watch::Sender<Option<String>>,
        shutdown: CancellationToken,
    ) -> Self {
        let renewal = Renewal::new(context.control.clone(), tenant, context.config.worker_ip);
        Self { context, tenant, commands, address, shutdown, sandboxes: HashMap::new(), renewal }
    }

    pub(super) async fn run(mut self) {
        let (worker, listener) = match self.begin().await {
            Ok(begun) => begun,
            Err(error) => {
                tracing::error!(tenant = %self.tenant, error = %chain(&error), "cannot begin a worker");
                return;
            }
        };
        let mut failures = 0;
        loop {
            match self.live_once(worker, &listener, &mut failures).await {
                Ended::Stopping => return,
                Ended::Idle => break,
                Ended::Broken(why) => {
                    failures += 1;
                    metrics::counter!("space_node_worker_failures_total").increment(1);
                    tracing::warn!(tenant = %self.tenant, why, failures, "a worker is started again");
                    if self.pause(Instant::now() + BACKOFF.pause(failures)).await.is_err() {
                        return;
                    }
                }
            }
        }
        self.leave(&worker).await;
    }

    /// The journal's row, and the listening socket, which outlives every process so that the address lasts.
    async fn begin(&mut self) -> Result<(WorkerRecord, TcpListener), WorkersError> {
        let context = Arc::clone(&self.context);
        let worker = context.journal.begin_worker(self.tenant, context.config.worker_uids.count).await?;
        fail_point::WORKER_JOURNALED.pass();
        let ip = context.config.worker_ip;
        let again = worker.port.and_then(|port| TcpListener::bind((ip, port)).ok());
        let listener = again.map_or_else(|| TcpListener::bind((ip, 0)), Ok).map_err(WorkersError::Listen)?;
        listener.set_nonblocking(true).map_err(WorkersError::Listen)?;
        let address: SocketAddr = listener.local_addr().map_err(WorkersError::Listen)?;
        context.journal.set_worker_port(self.tenant, address.port()).await?;
        self.address.send_replace(Some(address.to_string()));
        Ok((worker, listener))
    }

    async fn live_once(&mut self, worker: WorkerRecord, listener: &TcpListener, failures: &mut u32) -> Ended {
        let context = Arc::clone(&self.context);
        let shutdown = self.shutdown.clone();
        let Self { commands, sandboxes, renewal, .. } = self;
        let started = tokio::select! {
            started = context.start(worker, listener, renewal) => started,
            stopped = remember(commands, sandboxes) => return stopped,
            () = shutdown.cancelled() => return Ended::Stopping,
        };
        let incarnation = match started {
            Ok(incarnation) => incarnation,
            Err(error) => return Ended::Broken(chain(&error)),
        };
        *failures = 0;
        metrics::counter!("space_node_worker_starts_total").increment(1);
        self.serve(worker, incarnation).await.unwrap_or_else(|error| Ended::Broken(chain(&error)))
    }

    async fn pause(&mut self, until: Instant) -> Result<(), Ended> {
        let shutdown = self.shutdown.clone();
        tokio::select! {
            () = sleep_until(until) => Ok(()),
            stopped = remember(&mut self.commands, &mut self.sandboxes) => Err(stopped),
            () = shutdown.cancelled() => Err(Ended::Stopping),
        }
    }

    async fn serve(&mut self, worker: WorkerRecord, now: Incarnation) -> Result<Ended, ChannelError> {
        for assignment in self.sandboxes.values_mut() {
            announce(&now, assignment).await?;
        }
        let mut connects = JoinSet::<Connected>::new();
        let mut idle_since = Instant::now();
        loop {
            if !self.sandboxes.is_empty() {
                idle_since = Instant::now();
            }
            let idle_until = idle_since + self.context.config.deadlines.worker_idle();
            tokio::select! {
                () = self.shutdown.cancelled() => return Ok(Ended::Stopping),
                status = now.process.ended() => return Ok(Ended::Broken(format!("it ended: {status:?}"))),
                message = now.channel.receive() => self.take(message?, &mut connects)?,
                Some(connected) = connects.join_next() => answer(&now, connected).await?,
                command = self.commands.recv() => match command {
                    Some(command) => self.obey(&now, command).await?,
                    None => return Ok(Ended::Stopping),
                },
                renewed = self.renewal.next() => renew(&now, &worker, &renewed).await?,
                () = sleep_until(idle_until), if self.sandboxes.is_empty() => {
                    // Whatever is in the queue is dropped with it, and its sender turns to a successor.
                    self.commands.close();
                    send_away(&now).await;
                    return Ok(Ended::Idle);
                }
            }
        }
    }

    async fn obey(&mut self, now: &Incarnation, command: Command) -> Result<(), ChannelError> {
        match command {
            Command::Assign { assignment, taken } => {
                let known = self.sandboxes.entry(assignment.sandbox).insert_entry(*assignment);
                confirm(taken);
                announce(now, known.into_mut()).await
            }
            Command::Release { sandbox, done } => {
                self.sandboxes.remove(&sandbox);
                let release = Release { sandbox_id: sandbox.to_string() };
                now.channel.send(to_worker::Kind::Release(release), &[]).await?;
                confirm(done);
                Ok(())
            }
        }
    }

    fn take(
        &mut self,
        message: from_worker::Kind,
        connects: &mut JoinSet<Connected>,
    ) -> Result<(), ChannelError> {
        match message {
            from_worker::Kind::Configured(_) => Ok(()),
            from_worker::Kind::Connect(connect) => self.connect(&connect, connects),
            from_worker::Kind::Ready(ready) => {
                let version = clean_version(&ready.agent_version)?;
                let event = WorkerEvent::Ready { agent_version: version };
                self.tell(&ready.sandbox_id, ready.generation, event)
            }
            from_worker::Kind::Unready(unready) => {
                let reason = UnreadyReason::try_from(unready.reason).unwrap_or(UnreadyReason::Unspecified);
                self.tell(&unready.sandbox_id, unready.generation, WorkerEvent::Unready(reason))
            }
            from_worker::Kind::Hint(hint) => {
                let kind = HintKind::try_from(hint.kind).unwrap_or(HintKind::Unspecified);
                self.tell(&hint.sandbox_id, hint.generation, WorkerEvent::Hint(kind))
            }
        }
    }

    /// Passes `event` on to the sandbox, if it is this worker's and of this generation. One that was
    /// released a moment ago is no violation.
    fn tell(&mut self, sandbox: &str, generation: u64, event: WorkerEvent) -> Result<(), ChannelError> {
        let sandbox = parse_sandbox(sandbox)?;
        let assignment =
            self.sandboxes.get(&sandbox).filter(|assignment| assignment.generation == generation);
        if let Some(assignment) = assignment {
            // Full means that the sandbox's owner is busy; a hostile worker must not make us wait for it, and
            // an honest one sends a handful in a lifetime.
            if assignment.events.try_send(event).is_err() {
                tracing::warn!(%sandbox, "a worker's event was dropped");
            }
        }
        Ok(())
    }

    fn connect(&mut self, connect: &Connect, connects: &mut JoinSet<Connected>) -> Result<(), ChannelError> {
        let sandbox = parse_sandbox(&connect.sandbox_id)?;
        let id = connect.request_id;
        let jail = self.sandboxes.get(&sandbox).map(|assignment| Arc::clone(&assignment.jail));
        let deadline = Instant::now() + self.context.config.deadlines.vsock();
        let busy = connects.len() >= CONNECTS;
        connects.spawn(async move {
            let Some(jail) = jail else { return (id, Err("no such sandbox".to_owned())) };
            if busy {
                return (id, Err("too many connections under way".to_owned()));
            }
            let connected = jail.connect(jail_names::VSOCK_SOCKET, deadline).await;
            (id, connected.map_err(|error| chain(&error)))
        });
        Ok(())
    }

    /// Removes what the worker's row stands for, and then the row.
    async fn leave(&self, worker: &WorkerRecord) {
        if let Err(error) = remove_worker(&self.context, worker.tenant).await {
            tracing::error!(tenant = %self.tenant, error = %chain(&error), "cannot remove a worker");
        }
    }
}

/// Keeps up with commands while there is no process. Ends only when nobody can send any more.
async fn remember(
    commands: &mut mpsc::Receiver<Command>,
    sandboxes: &mut HashMap<SandboxId, Assignment>,
) -> Ended {
    while let Some(command) = commands.recv().await {
        match command {
            Command::Assign { assignment, taken } => {
                sandboxes.insert(assignment.sandbox, *assignment);
                confirm(taken);
            }
            Command::Release { sandbox, done } => {
                sandboxes.remove(&sandbox);
                confirm(done);
            }
        }
    }
    Ended::Stopping
}

/// Removes everything of a tenant's worker by its name. Idempotent.
pub(crate) async fn remove_worker(context: &WorkerContext, tenant: TenantId) -> Result<(), WorkersError> {
    let cgroup = context.cgroups.leaf(&tenant.label());
    let destroyed = tokio::task::spawn_blocking(move || cgroup.destroy()).await;
    destroyed.map_err(io::Error::other).and_then(|done| done).map_err(WorkersError::Remove)?;
    Ok(context.journal.forget_worker(tenant).await?)
}

/// Tells the worker of the sandbox and hands it the console and the spool. Every worker after the first meets a guest that
/// may have been personalised.
async fn announce(now: &Incarnation, assignment: &mut Assignment) -> Result<(), ChannelError> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let console = match open(assignment.console.as_str(), flags, Mode::empty()) {
        Ok(console) => File::from(console),
        // It goes with its VM, whose end is being handled elsewhere.
        Err(error) => {
            tracing::debug!(sandbox = %assignment.sandbox, %error, "no console for the worker");
            return Ok(());
        }
    };
    let spool = hand_over(&assignment.spool, now.user).inspect_err(|error| {
        tracing::error!(sandbox = %assignment.sandbox, %error, "no spool for the worker");
    });
    let mut attached = vec![console.as_fd()];
    attached.extend(spool.iter().map(AsFd::as_fd));
    now.channel.send(to_worker::Kind::Assign(assignment.message()), &attached).await?;
    assignment.fresh = false;
    Ok(())
}

/// Makes a sandbox's directory for output the worker's own. Nobody else gets there: its parent is root's alone, and the
/// worker has no more than the descriptor.
fn hand_over(spool: &Utf8Path, user: u32) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = open(spool.as_str(), flags, Mode::empty())?;
    fchown(&directory, Some(Uid::from_raw(user)), Some(Gid::from_raw(user)))?;
    Ok(directory)
}

async fn answer(
    now: &Incarnation,
    connected: Result<Connected, tokio::task::JoinError>,
) -> Result<(), ChannelError> {
    let Ok((request_id, result)) = connected else { return Ok(()) };
    let (error, socket) = match result {
        Ok(socket) => (String::new(), Some(socket)),
        Err(error) => (error, None),
    };
    let connection = to_worker::Kind::Connection(Connection { request_id, error });
    let attached: Vec<BorrowedFd<'_>> = socket.iter().map(AsFd::as_fd).collect();
    now.channel.send(connection, &attached).await
}

async fn renew(
    now: &Incarnation,
    worker: &WorkerRecord,
    renewed: &WorkerCertificate,
) -> Result<(), ChannelError> {
    now.channel.send(to_worker::Kind::Configure(configuration(worker, renewed)), &[]).await
}

async fn send_away(now: &Incarnation) {
    let told = now.channel.send(to_worker::Kind::Shutdown(Shutdown {}), &[]).await;
    if told.is_ok() && timeout(LEAVE, now.process.ended()).await.is_ok() {
        return;
    }
    if let Err(error) = now.process.kill() {
        tracing::debug!(%error, "cannot kill a worker that does not leave");
    }
}

fn confirm(done: oneshot::Sender<()>) {
    if done.send(()).is_err() {
        tracing::trace!("who asked has gone");
    }
}

fn parse_sandbox(text: &str) -> Result<SandboxId, ChannelError> {
    text.parse().map_err(|_invalid| ChannelError::Protocol("a sandbox id that is none"))
}

/// It comes from a guest, by way of the worker, and goes to control: letters that a version is made of, or
/// nothing.
fn clean_version(version: &str) -> Result<String, ChannelError> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'+' | b'_');
    if version.len() <= LONGEST_AGENT_VERSION && version.bytes().all(plain) {
        return Ok(version.to_owned());
    }
    Err(ChannelError::Protocol("an agent version that is none"))
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum WorkersError {
    #[error(transparent)]
    Journal(#[from] JournalError),
    #[error("cannot listen for the worker")]
    Listen(#[source] io::Error),
    #[error("cannot remove the worker's cgroup")]
    Remove(#[source] io::Error),
}
