//! The `Commands` service of one worker, and `Attach`, which is a part of it.

use std::{pin::Pin, sync::Arc};

use space_guest_proto::{
    InvalidRequest,
    message::{CommandSpec as GuestSpec, TerminalSize as GuestSize},
    validate,
};
use space_node_proto::attach::{FollowRequest, attach_server::Attach};
use space_node_proto::commands::{
    AttachCommandRequest, Command, CommandEvent, CommandSpec, CreateCommandRequest, GetCommandRequest,
    ListCommandsReply, ListCommandsRequest, ResizeTerminalReply, ResizeTerminalRequest, SignalCommandReply,
    SignalCommandRequest, WriteStdinReply, WriteStdinRequest, commands_server::Commands,
};
use tokio::sync::mpsc;
use tokio_stream::{Stream, wrappers::ReceiverStream};
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};

use super::{script::Session, state::State};

type Events = Pin<Box<dyn Stream<Item = Result<CommandEvent, Status>> + Send>>;

pub(super) struct CommandService {
    state: Arc<State>,
    stop: CancellationToken,
}

impl CommandService {
    pub(super) fn new(state: Arc<State>, stop: CancellationToken) -> Self {
        Self { state, stop }
    }

    fn check(&self, sandbox: &str, generation: u64) -> Result<(), Status> {
        let found = self.state.find(sandbox).ok_or_else(|| Status::not_found("no such sandbox here"))?;
        if found.generation == generation {
            Ok(())
        } else {
            Err(Status::failed_precondition("another generation"))
        }
    }

    fn session(&self, sandbox: &str, generation: u64, command: &str) -> Result<Arc<Session>, Status> {
        self.check(sandbox, generation)?;
        self.state.session(sandbox, command).ok_or_else(|| Status::not_found("no such command"))
    }

    fn create(
        &self,
        sandbox: &str,
        generation: u64,
        command: &str,
        spec: CommandSpec,
    ) -> Result<Arc<Session>, Status> {
        self.check(sandbox, generation)?;
        validate::command_id(command).map_err(|error| invalid(&error))?;
        check_spec(&spec)?;
        match self.state.session(sandbox, command) {
            Some(session) if *session.spec() == spec => Ok(session),
            Some(_) => Err(Status::already_exists("another specification")),
            None => {
                let session = Arc::new(Session::new(command, generation, spec));
                Ok(self.state.add_session(sandbox, command, session))
            }
        }
    }

    fn events(&self, session: Arc<Session>, after: u64) -> Events {
        let (sender, receiver) = mpsc::channel(16);
        tokio::spawn(self.stop.clone().run_until_cancelled_owned(follow(session, after, sender)));
        Box::pin(ReceiverStream::new(receiver))
    }
}

#[tonic::async_trait]
impl Attach for CommandService {
    type FollowStream = Events;

    async fn follow(&self, request: Request<FollowRequest>) -> Result<Response<Events>, Status> {
        let asked = request.into_inner();
        let session = self.session(&asked.sandbox_id, asked.generation, &asked.command_id)?;
        Ok(Response::new(self.events(session, asked.after_sequence)))
    }
}

#[tonic::async_trait]
impl Commands for CommandService {
    type AttachCommandStream = Events;

    async fn create_command(
        &self,
        request: Request<CreateCommandRequest>,
    ) -> Result<Response<Command>, Status> {
        let asked = request.into_inner();
        let spec = asked.spec.unwrap_or_default();
        let session = self.create(&asked.sandbox_id, asked.generation, &asked.command_id, spec)?;
        Ok(Response::new(session.describe()))
    }

    async fn attach_command(
        &self,
        request: Request<AttachCommandRequest>,
    ) -> Result<Response<Self::AttachCommandStream>, Status> {
        let asked = request.into_inner();
        let session = match asked.create {
            Some(spec) => self.create(&asked.sandbox_id, asked.generation, &asked.command_id, spec)?,
            None => self.session(&asked.sandbox_id, asked.generation, &asked.command_id)?,
        };
        Ok(Response::new(self.events(session, asked.after_sequence)))
    }

    async fn write_stdin(
        &self,
        request: Request<WriteStdinRequest>,
    ) -> Result<Response<WriteStdinReply>, Status> {
        let asked = request.into_inner();
        let session = self.session(&asked.sandbox_id, asked.generation, &asked.command_id)?;
        let next_offset = session.write(asked.offset, &asked.data, asked.eof)?;
        Ok(Response::new(WriteStdinReply { next_offset }))
    }

    async fn signal_command(
        &self,
        request: Request<SignalCommandRequest>,
    ) -> Result<Response<SignalCommandReply>, Status> {
        let asked = request.into_inner();
        let session = self.session(&asked.sandbox_id, asked.generation, &asked.command_id)?;
        validate::signal(asked.signal).map_err(|error| invalid(&error))?;
        if session.spec().argv == ["deaf"] {
            return std::future::pending().await;
        }
        session.signal(asked.signal)?;
        Ok(Response::new(SignalCommandReply {}))
    }

    async fn resize_terminal(
        &self,
        request: Request<ResizeTerminalRequest>,
    ) -> Result<Response<ResizeTerminalReply>, Status> {
        let asked = request.into_inner();
        let session = self.session(&asked.sandbox_id, asked.generation, &asked.command_id)?;
        session.resize(asked.size.unwrap_or_default())?;
        Ok(Response::new(ResizeTerminalReply {}))
    }

    async fn get_command(&self, request: Request<GetCommandRequest>) -> Result<Response<Command>, Status> {
        let asked = request.into_inner();
        Ok(Response::new(self.session(&asked.sandbox_id, asked.generation, &asked.command_id)?.describe()))
    }

    async fn list_commands(
        &self,
        request: Request<ListCommandsRequest>,
    ) -> Result<Response<ListCommandsReply>, Status> {
        let asked = request.into_inner();
        self.check(&asked.sandbox_id, asked.generation)?;
        let commands =
            self.state.sessions(&asked.sandbox_id).iter().map(|session| session.describe()).collect();
        Ok(Response::new(ListCommandsReply { commands }))
    }
}

/// By the rules that a worker goes by.
fn check_spec(spec: &CommandSpec) -> Result<(), Status> {
    let CommandSpec { argv, env, cwd, user, timeout_ms, stdin, terminal } = spec.clone();
    let terminal = terminal.map(|size| GuestSize { rows: size.rows, columns: size.columns });
    let spec = GuestSpec { argv, env: env.into_iter().collect(), cwd, user, timeout_ms, stdin, terminal };
    validate::spec(&spec).map_err(|error| invalid(&error))
}

fn invalid(error: &InvalidRequest) -> Status {
    Status::invalid_argument(error.to_string())
}

/// Starts the command and passes its events on, to the last.
async fn follow(session: Arc<Session>, mut after: u64, sender: mpsc::Sender<Result<CommandEvent, Status>>) {
    let mut lengths = session.lengths();
    session.start();
    loop {
        lengths.mark_unchanged();
        let (events, ended) = session.after(after);
        for event in events {
            after = event.sequence;
            if sender.send(Ok(event)).await.is_err() {
                return;
            }
        }
        if session.is_closed() {
            // The reader may be gone too.
            sender.send(Err(Status::unavailable("the guest is gone"))).await.ok();
            return;
        }
        if ended || lengths.changed().await.is_err() {
            return;
        }
    }
}
