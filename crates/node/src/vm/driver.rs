//! The owner task of one sandbox: the only one that changes its record, its VM and its rows.

use std::sync::Arc;

use space_node_proto::{common::ObservedSandbox, worker::HintKind};
use space_runtime::telemetry::chain;
use space_types::{ByteSize, SandboxId};
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;

use super::{
    LiveVm, NodeContext, Survivor, VmError,
    boot::{Boot, Booted, Outcome, remove_vm},
    classify::Hint,
    fleet::Ensure,
    requests::{Admission, Life, Request, admit},
};
use crate::{
    fail_point,
    journal::{Phase, SandboxRecord, now_ms},
    sys::ExitStatus,
    worker::{Assignment, WorkerEvent},
};

pub(super) type Reply<T> = oneshot::Sender<Result<T, VmError>>;

#[derive(Debug)]
pub(super) enum Command {
    Ensure { ensure: Box<Ensure>, reply: Reply<ObservedSandbox> },
    Remove { generation: u64, reply: Reply<()> },
}

/// Events of one sandbox are few: an answer, a hint, a loss.
const EVENTS: usize = 16;

pub(super) struct Driver {
    pub(super) node: Arc<NodeContext>,
    pub(super) sandbox: SandboxId,
    commands: mpsc::Receiver<Command>,
    shutdown: CancellationToken,
    events_sender: mpsc::Sender<WorkerEvent>,
    /// Lent to a boot while there is one.
    pub(super) events: Option<mpsc::Receiver<WorkerEvent>>,
    pub(super) record: Option<SandboxRecord>,
    pub(super) vm: Option<LiveVm>,
    pub(super) boot: Option<(JoinHandle<Booted>, CancellationToken)>,
    address: String,
    pub(super) hint: Option<Hint>,
    pub(super) waiting: Vec<Reply<ObservedSandbox>>,
}

/// What woke the owner up.
enum Wake {
    Stop,
    Command(Command),
    Booted(Box<Result<Booted, tokio::task::JoinError>>),
    Event(WorkerEvent),
    Ended(ExitStatus),
}

impl Driver {
    pub(super) fn new(
        node: Arc<NodeContext>,
        sandbox: SandboxId,
        commands: mpsc::Receiver<Command>,
        shutdown: CancellationToken,
    ) -> Self {
        let (events_sender, events) = mpsc::channel(EVENTS);
        Self {
            node,
            sandbox,
            commands,
            shutdown,
            events_sender,
            events: Some(events),
            record: None,
            vm: None,
            boot: None,
            address: String::new(),
            hint: None,
            waiting: Vec::new(),
        }
    }

    /// Runs until nothing of the sandbox is left and nobody asks for it, or until the daemon stops. VMs live on.
    pub(super) async fn run(mut self, survivor: Option<Survivor>) {
        match self.node.journal.sandbox(self.sandbox).await {
            Ok(record) => self.record = record,
            Err(error) => {
                tracing::error!(sandbox = %self.sandbox, error = %chain(&error), "cannot read a sandbox's row");
                return;
            }
        }
        if let Some(survivor) = survivor {
            self.take_over(survivor).await;
        }
        loop {
            match self.wake().await {
                Wake::Stop => return self.stop().await,
                Wake::Command(Command::Ensure { ensure, reply }) => self.ensure(*ensure, reply).await,
                Wake::Command(Command::Remove { generation, reply }) => self.remove(generation, reply).await,
                Wake::Booted(booted) => self.booted(*booted).await,
                Wake::Event(event) => self.event(event).await,
                Wake::Ended(status) => self.ended(status).await,
            }
            let gone = matches!(self.life(), Life::Unknown { .. });
            if gone && self.commands.is_empty() {
                // What comes in from here on is dropped, and its sender turns to a successor.
                return;
            }
        }
    }

    async fn wake(&mut self) -> Wake {
        let Self { commands, shutdown, events, vm, boot, .. } = self;
        tokio::select! {
            () = shutdown.cancelled() => Wake::Stop,
            command = commands.recv() => command.map_or(Wake::Stop, Wake::Command),
            booted = async { match boot { Some((task, _)) => task.await, None => std::future::pending().await } } => {
                Wake::Booted(Box::new(booted))
            }
            Some(event) = async { match events { Some(events) => events.recv().await, None => None } } => {
                Wake::Event(event)
            }
            status = async { match vm { Some(vm) => vm.ended().await, None => std::future::pending().await } } => {
                Wake::Ended(status)
            }
        }
    }

    pub(super) fn life(&self) -> Life {
        let Some(record) = &self.record else { return Life::Unknown { removed: None } };
        let generation = record.generation;
        match record.phase {
            Phase::Booting => Life::Booting { generation },
            Phase::Running => Life::Running { generation },
            Phase::Stopped(_) | Phase::Failed(_) => Life::Ended { generation },
            Phase::Removing => Life::Removing { generation },
            Phase::Absent => Life::Unknown { removed: Some(generation) },
        }
    }

    async fn ensure(&mut self, ensure: Ensure, reply: Reply<ObservedSandbox>) {
        match admit(self.life(), Request::Ensure { generation: ensure.generation }) {
            Admission::Begin => {
                self.waiting.push(reply);
                if let Err(error) = self.begin_boot(ensure).await {
                    self.refuse(error).await;
                }
            }
            Admission::Join => self.waiting.push(reply),
            Admission::AlreadyDone => self.answer(reply),
            Admission::Refresh => {
                self.refresh(ensure.generation).await;
                self.answer(reply);
            }
            Admission::Denied(denial) => send(reply, Err(denial.into())),
        }
    }

    async fn begin_boot(&mut self, ensure: Ensure) -> Result<(), VmError> {
        let overhead = self.node.config.capacity.overhead().as_bytes();
        let memory = ByteSize::bytes(ensure.config.memory_bytes.saturating_add(overhead));
        self.node.ledger.reserve(self.sandbox, memory).map_err(|error| VmError::Exhausted {
            reason: space_types::Reason::NoCapacity,
            message: error.to_string(),
        })?;
        let mut record = SandboxRecord::new(self.sandbox, ensure.tenant, ensure.generation, ensure.config);
        record.enter(Phase::Booting, "");
        record.started_at_ms = now_ms();
        self.record = Some(record.clone());
        self.put().await?;
        fail_point::ENSURE_RECORDED.pass();
        self.publish();
        self.node.workers.warm(ensure.tenant);
        let Some(events) = self.events.take() else { return Err(VmError::Internal) };
        let cancel = self.shutdown.child_token();
        let boot = Boot {
            node: Arc::clone(&self.node),
            record,
            events,
            events_sender: self.events_sender.clone(),
            cancel: cancel.clone(),
        };
        self.boot = Some((tokio::spawn(boot.run()), cancel));
        Ok(())
    }

    async fn booted(&mut self, booted: Result<Booted, tokio::task::JoinError>) {
        self.boot = None;
        let Ok(Booted { record, events, outcome }) = booted else {
            tracing::error!(sandbox = %self.sandbox, "a boot panicked");
            let (sender, events) = mpsc::channel(EVENTS);
            (self.events_sender, self.events) = (sender, Some(events));
            // What it left is known by the journal alone.
            self.record = self.node.journal.sandbox(self.sandbox).await.unwrap_or_default();
            return self.refuse(VmError::Internal).await;
        };
        self.record = Some(record);
        self.events = Some(events);
        match outcome {
            Outcome::Running { vm, address } => self.now_running(vm, address).await,
            Outcome::Failed { ending, message } => {
                self.node.ledger.release(self.sandbox);
                self.enter(ending.into(), message);
                if let Err(error) = self.put().await {
                    return self.refuse(error).await;
                }
                metrics::counter!("space_node_boot_failures_total").increment(1);
                self.publish();
                self.answer_all();
            }
            Outcome::Refused(error) => self.refuse(error).await,
            Outcome::Cancelled => self.refuse(VmError::Cancelled).await,
        }
    }

    async fn now_running(&mut self, vm: LiveVm, address: String) {
        self.vm = Some(vm);
        self.address = address;
        self.hint = None;
        self.enter(Phase::Running, "");
        let put = self.put().await;
        fail_point::ENSURE_RUNNING.pass();
        if let Err(error) = put {
            // It runs, and a restart would take it for a boot that was cut off: better none at all.
            return self.refuse(error).await;
        }
        metrics::counter!("space_node_boots_total").increment(1);
        self.publish();
        self.answer_all();
    }

    /// The boot came to nothing: no trace stays, and those who wait are told why.
    async fn refuse(&mut self, error: VmError) {
        self.vm = None;
        if let Err(left) = self.wipe().await {
            tracing::error!(sandbox = %self.sandbox, error = %left, "a refused boot left something; removal will retry");
            self.enter(Phase::Removing, "");
        } else {
            self.record = None;
            self.node.observations.forget(self.sandbox);
        }
        for reply in self.waiting.drain(..) {
            send(reply, Err(error.clone()));
        }
    }

    async fn wipe(&mut self) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        if let Some(record) = &self.record {
            self.node.workers.release(record.tenant, self.sandbox).await;
            if let Some(vm) = record.vm {
                remove_vm(&self.node, vm).await?;
            }
        }
        self.node.ledger.release(self.sandbox);
        Ok(self.node.journal.drop_sandbox(self.sandbox).await?)
    }

    async fn refresh(&mut self, generation: u64) {
        let Some(record) = &mut self.record else { return };
        record.generation = generation;
        record.enter(Phase::Running, "");
        // The caller has the answer in hand; a row that could not be written shows as a stale generation.
        drop(self.put().await);
        self.assign().await;
        self.publish();
    }

    /// An adopted VM: its memory, its worker. That it runs was published when it was found.
    async fn take_over(&mut self, Survivor { vm, address }: Survivor) {
        let Some(record) = &self.record else { return };
        let overhead = self.node.config.capacity.overhead().as_bytes();
        let memory = ByteSize::bytes(record.config.memory_bytes.saturating_add(overhead));
        self.node.ledger.adopt(self.sandbox, memory);
        self.vm = Some(vm);
        self.address = address;
        self.assign().await;
    }

    async fn assign(&mut self) {
        let (Some(record), Some(vm)) = (&self.record, &self.vm) else { return };
        let assignment = Assignment {
            sandbox: self.sandbox,
            generation: record.generation,
            hostname: record.config.hostname.clone(),
            env: record.config.env.clone(),
            fresh: false,
            console: self.node.layout.console(vm.place.vm),
            spool: self.node.layout.spool(vm.place.vm),
            jail: Arc::clone(&vm.jail),
            events: self.events_sender.clone(),
        };
        match self.node.workers.assign(record.tenant, assignment).await {
            Ok(address) if address == self.address => {}
            Ok(address) => self.moved(address).await,
            Err(error) => {
                tracing::error!(sandbox = %self.sandbox, error = %chain(&error), "a running sandbox has no worker");
            }
        }
    }

    /// Its commands are served elsewhere now. Without a sequence of its own that would be old news to control.
    async fn moved(&mut self, address: String) {
        self.address = address;
        self.enter(Phase::Running, "");
        // A row that could not be written is logged; where the sandbox is reached has to be known all the same.
        drop(self.put().await);
        self.publish();
    }

    /// The daemon stops. A running VM is left alone; a boot that nobody was told of is undone.
    async fn stop(&mut self) {
        if self.boot.is_none() {
            return;
        }
        self.cancel_boot().await;
        self.refuse(VmError::Stopping).await;
    }

    pub(super) fn enter(&mut self, phase: Phase, message: impl Into<String>) {
        if let Some(record) = &mut self.record {
            record.enter(phase, message);
        }
    }

    pub(super) async fn put(&self) -> Result<(), VmError> {
        let Some(record) = self.record.clone() else { return Ok(()) };
        self.node.journal.put_sandbox(record).await.map_err(|error| {
            tracing::error!(sandbox = %self.sandbox, error = %chain(&error), "cannot journal a sandbox");
            VmError::Internal
        })
    }

    fn observed(&self) -> Option<ObservedSandbox> {
        let version = &self.node.vmm_version;
        self.record.as_ref().map(|record| record.observed(&self.address, version))
    }

    pub(super) fn publish(&self) {
        if let Some(observed) = self.observed() {
            self.node.observations.publish(self.sandbox, observed);
        }
    }

    fn answer(&self, reply: Reply<ObservedSandbox>) {
        send(reply, self.observed().ok_or(VmError::Internal));
    }

    fn answer_all(&mut self) {
        for reply in std::mem::take(&mut self.waiting) {
            self.answer(reply);
        }
    }
}

pub(super) fn send<T>(reply: Reply<T>, result: Result<T, VmError>) {
    // Who asked may have gone; the result stands all the same.
    drop(reply.send(result));
}

pub(super) fn hint_of(kind: HintKind) -> Option<Hint> {
    match kind {
        HintKind::PowerOff => Some(Hint::PowerOff),
        HintKind::Reboot => Some(Hint::Reboot),
        HintKind::Panic => Some(Hint::Panic),
        HintKind::Unspecified => None,
    }
}
