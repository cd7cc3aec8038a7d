//! The task that owns a guest: its connection, what was asked of it, and what its commands write.

use std::{
    collections::{BTreeMap, HashMap},
    os::fd::OwnedFd,
    sync::{Arc, OnceLock},
    time::Duration,
};

use space_guest_proto::{
    GuestFrame, HostFrame, Reply, Request, feature,
    message::{CommandSpec, Notice, NoticeKind, Refusal, RefusalCode},
};
use space_node_proto::worker::HintKind;
use tokio::{
    sync::{Notify, mpsc, oneshot},
    time::Instant,
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info, warn};

use super::{
    Fate, GuestClient,
    check::{self, Broken},
    client::{CallError, GuestCall},
    events,
    link::{Link, LinkError, QueueError},
    open::{Rest, refused},
    spoolers::Spoolers,
    text::printable,
};
use crate::{
    fail_point, limits,
    metrics::Metrics,
    node::NodeHandle,
    spool::{Shelf, SpoolLimits},
};

/// Who the guest is to be.
#[derive(Debug, Clone)]
pub(crate) struct Assignment {
    pub(crate) hostname: String,
    pub(crate) env: BTreeMap<String, String>,
    /// It has just been started, so nobody has personalised it.
    pub(crate) fresh: bool,
}

#[derive(Debug)]
pub(crate) struct Setup {
    pub(crate) assignment: Assignment,
    pub(crate) node: NodeHandle,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) boot_deadline: Duration,
    pub(crate) request_deadline: Duration,
    /// The sandbox's directory for output. Without one, output is kept in memory, and little of it.
    pub(crate) spool: Option<OwnedFd>,
    pub(crate) spool_limits: SpoolLimits,
}

#[derive(Debug)]
struct Pending {
    request: Request,
    answer: oneshot::Sender<Result<Reply, CallError>>,
}

pub(crate) struct Owner {
    pub(super) setup: Setup,
    pub(super) agent_version: String,
    /// What the agent said it can do beyond the first version of the protocol.
    pub(super) features: u64,
    ready: bool,
    calls: mpsc::Receiver<GuestCall>,
    wake: Arc<Notify>,
    fate: Arc<OnceLock<Fate>>,
    pending: HashMap<u32, Pending>,
    spoolers: Spoolers,
    client: GuestClient,
    notices: u32,
}

impl Owner {
    pub(crate) fn new(mut setup: Setup) -> (Self, GuestClient) {
        let (sender, calls) = mpsc::channel(limits::REQUESTS);
        let wake = Arc::new(Notify::new());
        let fate = Arc::new(OnceLock::new());
        let client = GuestClient { calls: sender, fate: Arc::clone(&fate), deadline: setup.request_deadline };
        let shelf = Shelf::new(setup.spool.take(), setup.spool_limits, Arc::clone(&wake));
        let owner = Self {
            setup,
            agent_version: String::new(),
            features: 0,
            ready: false,
            calls,
            wake,
            fate,
            pending: HashMap::new(),
            spoolers: Spoolers::new(shelf),
            client: client.clone(),
            notices: 0,
        };
        (owner, client)
    }

    pub(crate) fn sandbox_id(&self) -> String {
        self.setup.node.sandbox_id.clone()
    }

    /// Serves the guest until `stop` or until it can't be served any more, and tells noded which.
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        let client = self.client.clone();
        let fresh = self.setup.assignment.fresh;
        let reconciling = async {
            if !fresh {
                client.reconcile().await;
            }
            std::future::pending::<Fate>().await
        };
        let fate = tokio::select! {
            () = stop.cancelled() => Fate::Released,
            fate = self.live() => fate,
            fate = reconciling => fate,
        };
        self.fate.get_or_init(|| fate);
        if fate == Fate::Protocol {
            self.setup.metrics.guest_protocol_violations.add(1);
        }
        self.spoolers.end(fate);
        for (_id, pending) in self.pending.drain() {
            drop(pending.answer.send(Err(CallError::Ended(fate))));
        }
        info!(sandbox_id = self.setup.node.sandbox_id, fate = fate.text(), "a sandbox's connection ended");
        if let Some(reason) = fate.unready() {
            self.setup.node.unready(reason).await;
        }
    }

    async fn live(&mut self) -> Fate {
        self.spoolers.recover().await;
        let mut rest = Rest::default();
        loop {
            let mut link = match self.connect(&mut rest).await {
                Ok(link) => link,
                Err(fate) => return fate,
            };
            let since = Instant::now();
            let error = self.serve(&mut link).await;
            let sandbox_id = &self.setup.node.sandbox_id;
            match error {
                LinkError::Lost(error) => info!(sandbox_id, %error, "lost the connection to an agent"),
                LinkError::Version => return Fate::Version,
                LinkError::Broken(broken) => {
                    let error: &dyn std::error::Error = &broken;
                    warn!(sandbox_id, error, "an agent broke the protocol");
                    return Fate::Protocol;
                }
            }
            if since.elapsed() >= limits::STABLE {
                rest = Rest::default();
            }
        }
    }

    /// Serves one connection until it ends.
    async fn serve(&mut self, link: &mut Link) -> LinkError {
        self.resume(link);
        loop {
            match self.turn(link).await {
                Ok(true) => tokio::task::yield_now().await,
                Ok(false) => {}
                Err(error) => return error,
            }
        }
    }

    /// Handles what has arrived, sends what is due, waits for the next thing. True: the guest has more to say, and
    /// others should have their turn before.
    async fn turn(&mut self, link: &mut Link) -> Result<bool, LinkError> {
        while let Some(frame) = link.take()? {
            self.frame(link, frame).await?;
        }
        self.spoolers.commit(Some(link));
        link.flush()?;
        tokio::select! {
            more = link.transfer() => return more,
            Some(call) = self.calls.recv(), if link.has_room() => self.begin(link, call)?,
            () = self.wake.notified() => self.spoolers.tend(link),
        }
        Ok(false)
    }

    /// Repeats on a new connection what the old one left open.
    fn resume(&mut self, link: &mut Link) {
        for (_id, pending) in std::mem::take(&mut self.pending) {
            if may_be_repeated(&pending.request) {
                self.ask(link, pending);
            } else {
                drop(pending.answer.send(Err(CallError::Lost)));
            }
        }
        self.spoolers.resume(link);
    }

    fn begin(&mut self, link: &mut Link, call: GuestCall) -> Result<(), LinkError> {
        match call {
            GuestCall::Request { request, answer } => self.ask(link, Pending { request, answer }),
            GuestCall::Attach { request, opened } if !self.can(request.create.as_ref()) => {
                drop(opened.send(Err(too_old())));
            }
            GuestCall::Attach { request, opened } => {
                self.setup.metrics.streams_opened.add(1);
                self.spoolers.attach(link, request, opened);
            }
            GuestCall::Reconcile(known) => self.spoolers.reconcile(link, &known),
            GuestCall::Accuse(broken) => return Err(broken.into()),
        }
        Ok(())
    }

    fn ask(&mut self, link: &mut Link, pending: Pending) {
        let Pending { request, answer } = pending;
        if answer.is_closed() {
            return;
        }
        if let Request::CreateCommand(asked) = &request
            && !self.can(asked.spec.as_ref())
        {
            drop(answer.send(Err(too_old())));
            return;
        }
        if !link.may_call(limits::CALLS) {
            drop(answer.send(Err(CallError::TooMany)));
            return;
        }
        let id = link.rules.free_id();
        let frame = HostFrame::Request { id, request };
        let queued = link.queue(&frame);
        let HostFrame::Request { request, .. } = frame else { return };
        match queued {
            Ok(()) => {
                self.setup.metrics.guest_requests.add(1);
                self.pending.insert(id, Pending { request, answer });
            }
            Err(error) => {
                if let QueueError::Misuse(misuse) = &error {
                    error!(%misuse, "a request was not sent");
                }
                drop(answer.send(Err(error.into())));
            }
        }
    }

    /// Whether the agent understands all of a specification. An older one would skip the wish for a terminal in
    /// silence.
    fn can(&self, spec: Option<&CommandSpec>) -> bool {
        self.features & feature::TERMINAL != 0 || spec.is_none_or(|spec| spec.terminal.is_none())
    }

    async fn frame(&mut self, link: &mut Link, frame: GuestFrame) -> Result<(), LinkError> {
        let newest = self.setup.node.generation;
        match frame {
            GuestFrame::Reply { id, reply } => self.reply(id, reply)?,
            GuestFrame::Refusal { id: 0, refusal } => return Err(refused(&refusal)),
            GuestFrame::Refusal { id, refusal } => self.refusal(id, &refusal),
            GuestFrame::Event { id, event } => {
                self.spoolers.event(link, id, &events::event(event, newest)?)?;
            }
            GuestFrame::Output { id, output } => {
                self.setup.metrics.output_bytes.add(output.data.len() as u64);
                self.spoolers.event(link, id, &events::output(&output, newest)?)?;
            }
            GuestFrame::End { id, .. } => self.spoolers.ended(link, id),
            GuestFrame::Notice(notice) => self.notice(link, &notice).await?,
            // The rules let a second one through to nobody.
            GuestFrame::Hello(_) => return Err(Broken::Rule(space_guest_proto::Violation::Hello).into()),
        }
        Ok(())
    }

    fn reply(&mut self, id: u32, reply: Reply) -> Result<(), Broken> {
        if let Some(pending) = self.pending.remove(&id) {
            check::reply(&pending.request, &reply)?;
            // A caller whose deadline has passed does not hear it.
            drop(pending.answer.send(Ok(reply)));
            return Ok(());
        }
        match reply {
            Reply::AttachCommand(reply) => self.spoolers.accepted(id, &reply),
            Reply::Personalise(_)
            | Reply::Health(_)
            | Reply::SetClock(_)
            | Reply::AddEntropy(_)
            | Reply::Shutdown(_)
            | Reply::CreateCommand(_)
            | Reply::WriteStdin(_)
            | Reply::SignalCommand(_)
            | Reply::GetCommand(_)
            | Reply::ListCommands(_)
            | Reply::ResizeTerminal(_) => Err(space_guest_proto::Violation::Unasked(id).into()),
        }
    }

    fn refusal(&mut self, id: u32, refusal: &Refusal) {
        let code = RefusalCode::try_from(refusal.code).unwrap_or(RefusalCode::Unspecified);
        let error = CallError::Refused { code, message: printable(&refusal.message, limits::TEXT) };
        match self.pending.remove(&id) {
            Some(pending) => drop(pending.answer.send(Err(error))),
            None => self.spoolers.refused(id, &error),
        }
    }

    /// The guest is about to end: noded hears it before the guest is told to go on.
    pub(super) async fn notice(&mut self, link: &mut Link, notice: &Notice) -> Result<(), LinkError> {
        self.notices += 1;
        if self.notices > limits::NOTICES {
            return Err(Broken::Notices.into());
        }
        let hint = match NoticeKind::try_from(notice.kind) {
            Ok(NoticeKind::PowerOff) => HintKind::PowerOff,
            Ok(NoticeKind::Reboot) => HintKind::Reboot,
            Ok(NoticeKind::Unspecified) | Err(_) => return Err(Broken::Notice.into()),
        };
        debug!(sandbox_id = self.setup.node.sandbox_id, ?hint, "a guest is about to end");
        self.setup.node.hint(hint).await;
        if let Err(error) = link.queue(&HostFrame::NoticeTaken) {
            error!(%error, "a notice was not confirmed");
        }
        Ok(())
    }

    /// The guest has to be told who it is without asking.
    pub(super) const fn is_new(&self) -> bool {
        self.setup.assignment.fresh && !self.ready
    }

    pub(super) const fn is_ready(&self) -> bool {
        self.ready
    }

    pub(super) async fn mark_ready(&mut self) {
        self.ready = true;
        fail_point::GUEST_READY.pass();
        self.setup.node.ready(self.agent_version.clone()).await;
    }
}

/// As an agent refuses a request that it doesn't know.
fn too_old() -> CallError {
    CallError::Refused { code: RefusalCode::Unsupported, message: String::new() }
}

/// A signal would arrive twice; everything else carries an id, an offset or changes nothing.
const fn may_be_repeated(request: &Request) -> bool {
    match request {
        Request::SignalCommand(_) | Request::Shutdown(_) => false,
        Request::Personalise(_)
        | Request::Health(_)
        | Request::SetClock(_)
        | Request::AddEntropy(_)
        | Request::CreateCommand(_)
        | Request::AttachCommand(_)
        | Request::WriteStdin(_)
        | Request::GetCommand(_)
        | Request::ListCommands(_)
        | Request::ResizeTerminal(_) => true,
    }
}
