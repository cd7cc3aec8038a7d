//! The gRPC services: `Commands`, here, `Files`, in [`files`], `Ports`, in [`ports`], and `Attach`, in [`attach`]. Each
//! finds the sandbox, checks the request, asks the guest.
//!
//! Callers are known by their certificates before a request is read (see `tls`): control, which may use all of them, and
//! edges, which may use `Ports` and `Attach` (see [`callers`]). They decide themselves which tenant may do what: a worker
//! serves one tenant and can't tell its users apart.

mod attach;
mod callers;
mod convert;
mod file_convert;
mod file_status;
mod files;
mod opening;
mod ports;
mod status;

use std::{io, sync::Arc, time::Duration};

use futures::{TryStreamExt, stream::MapErr};
use space_guest_proto::{
    Reply,
    message::{
        AttachCommandRequest as GuestAttach, Command as GuestCommand, CreateCommandRequest as GuestCreate,
        GetCommandRequest as GuestGet, ResizeTerminalRequest as GuestResize,
        SignalCommandRequest as GuestSignal, WriteStdinRequest as GuestWrite,
    },
    validate,
};
use space_node_proto::{
    attach::attach_server::AttachServer,
    commands::{
        AttachCommandRequest, Command, CreateCommandRequest, GetCommandRequest, ListCommandsReply,
        ListCommandsRequest, ResizeTerminalReply, ResizeTerminalRequest, SignalCommandReply,
        SignalCommandRequest, WriteStdinReply, WriteStdinRequest,
        commands_server::{Commands, CommandsServer},
    },
    files::files_server::FilesServer,
    ports::ports_server::PortsServer,
};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, service::interceptor::InterceptedService, transport::Server};
use tracing::error;

use crate::{
    fail_point,
    guest::{CallError, GuestClient},
    limits,
    listener::Connection,
    metrics::Metrics,
    sandboxes::Sandboxes,
    spool::CommandStream,
};

const PING: Duration = limits::RPC_KEEPALIVE;

/// A command's events, as a call streams them.
type Events = MapErr<CommandStream, fn(CallError) -> Status>;

pub(crate) struct CommandService {
    sandboxes: Arc<Sandboxes>,
    metrics: Arc<Metrics>,
}

/// Serves `connections` until `stop`.
pub(crate) async fn serve(
    sandboxes: Arc<Sandboxes>,
    metrics: Arc<Metrics>,
    connections: ReceiverStream<io::Result<Connection>>,
    stop: CancellationToken,
) {
    let files = files::FileService { sandboxes: Arc::clone(&sandboxes), metrics: Arc::clone(&metrics) };
    let ports = ports::PortService { sandboxes: Arc::clone(&sandboxes), metrics: Arc::clone(&metrics) };
    let attach = attach::AttachService { sandboxes: Arc::clone(&sandboxes) };
    let commands = CommandService { sandboxes, metrics };
    let commands = CommandsServer::new(commands).max_decoding_message_size(limits::RPC_REQUEST);
    let files = FilesServer::new(files).max_decoding_message_size(limits::RPC_REQUEST);
    let served = Server::builder()
        .max_concurrent_streams(limits::RPC_STREAMS)
        .initial_stream_window_size(limits::RPC_STREAM_WINDOW)
        .initial_connection_window_size(limits::RPC_CONNECTION_WINDOW)
        .http2_keepalive_interval(Some(PING))
        .http2_keepalive_timeout(Some(PING))
        .add_service(InterceptedService::new(commands, callers::control_only))
        .add_service(InterceptedService::new(files, callers::control_only))
        .add_service(AttachServer::new(attach).max_decoding_message_size(limits::RPC_REQUEST))
        .add_service(PortsServer::new(ports).max_decoding_message_size(limits::RPC_REQUEST))
        .serve_with_incoming_shutdown(connections, stop.cancelled_owned())
        .await;
    if let Err(error) = served {
        error!(%error, "the server ended");
    }
}

impl CommandService {
    fn guest(&self, sandbox_id: &str, generation: u64) -> Result<GuestClient, Status> {
        Ok(self.sandboxes.find(sandbox_id, generation)?)
    }
}

#[tonic::async_trait]
impl Commands for CommandService {
    type AttachCommandStream = Events;

    async fn create_command(
        &self,
        request: Request<CreateCommandRequest>,
    ) -> Result<Response<Command>, Status> {
        let CreateCommandRequest { sandbox_id, generation, command_id, spec } = request.into_inner();
        let guest = self.guest(&sandbox_id, generation)?;
        validate::command_id(&command_id).map_err(|error| status::invalid(&error))?;
        let spec = convert::checked_spec(spec)?;
        let asked = GuestCreate { command_id, spec: Some(spec.clone()) };
        fail_point::EXEC_RECEIVED.pass();
        let Reply::CreateCommand(reply) = guest.call(asked).await? else { return Err(unexpected()) };
        fail_point::EXEC_ACCEPTED.pass();
        Ok(Response::new(command(reply.command, Some(spec))?))
    }

    async fn attach_command(
        &self,
        request: Request<AttachCommandRequest>,
    ) -> Result<Response<Self::AttachCommandStream>, Status> {
        let AttachCommandRequest { sandbox_id, generation, command_id, after_sequence, create } =
            request.into_inner();
        let guest = self.guest(&sandbox_id, generation)?;
        validate::command_id(&command_id).map_err(|error| status::invalid(&error))?;
        let create = create.map(|spec| convert::checked_spec(Some(spec))).transpose()?;
        fail_point::EXEC_RECEIVED.pass();
        // The command's spooler fills in the credit.
        let stream = guest.attach(GuestAttach { command_id, after_sequence, credit: 0, create }).await?;
        fail_point::EXEC_ACCEPTED.pass();
        Ok(Response::new(stream.map_err(Status::from as fn(CallError) -> Status)))
    }

    async fn write_stdin(
        &self,
        request: Request<WriteStdinRequest>,
    ) -> Result<Response<WriteStdinReply>, Status> {
        let WriteStdinRequest { sandbox_id, generation, command_id, offset, data, eof } =
            request.into_inner();
        let guest = self.guest(&sandbox_id, generation)?;
        let asked = GuestWrite { command_id, offset, data: data.into(), eof };
        validate::write_stdin(&asked).map_err(|error| status::invalid(&error))?;
        self.metrics.stdin_bytes.add(asked.data.len() as u64);
        let Reply::WriteStdin(reply) = guest.call(asked).await? else { return Err(unexpected()) };
        Ok(Response::new(WriteStdinReply { next_offset: reply.next_offset }))
    }

    async fn signal_command(
        &self,
        request: Request<SignalCommandRequest>,
    ) -> Result<Response<SignalCommandReply>, Status> {
        let SignalCommandRequest { sandbox_id, generation, command_id, signal } = request.into_inner();
        let guest = self.guest(&sandbox_id, generation)?;
        validate::command_id(&command_id).map_err(|error| status::invalid(&error))?;
        validate::signal(signal).map_err(|error| status::invalid(&error))?;
        let Reply::SignalCommand(_) = guest.call(GuestSignal { command_id, signal }).await? else {
            return Err(unexpected());
        };
        Ok(Response::new(SignalCommandReply {}))
    }

    async fn resize_terminal(
        &self,
        request: Request<ResizeTerminalRequest>,
    ) -> Result<Response<ResizeTerminalReply>, Status> {
        let ResizeTerminalRequest { sandbox_id, generation, command_id, size } = request.into_inner();
        let guest = self.guest(&sandbox_id, generation)?;
        let asked = GuestResize { command_id, size: size.map(convert::guest_size) };
        validate::resize_terminal(&asked).map_err(|error| status::invalid(&error))?;
        let Reply::ResizeTerminal(_) = guest.call(asked).await? else { return Err(unexpected()) };
        Ok(Response::new(ResizeTerminalReply {}))
    }

    async fn get_command(&self, request: Request<GetCommandRequest>) -> Result<Response<Command>, Status> {
        let GetCommandRequest { sandbox_id, generation, command_id } = request.into_inner();
        let guest = self.guest(&sandbox_id, generation)?;
        validate::command_id(&command_id).map_err(|error| status::invalid(&error))?;
        let Reply::GetCommand(reply) = guest.call(GuestGet { command_id }).await? else {
            return Err(unexpected());
        };
        Ok(Response::new(command(reply.command, None)?))
    }

    async fn list_commands(
        &self,
        request: Request<ListCommandsRequest>,
    ) -> Result<Response<ListCommandsReply>, Status> {
        let ListCommandsRequest { sandbox_id, generation } = request.into_inner();
        let guest = self.guest(&sandbox_id, generation)?;
        let commands = guest.list().await?.into_iter().map(convert::command).collect();
        Ok(Response::new(ListCommandsReply { commands }))
    }
}

/// The guest leaves out the specification that it was just given.
fn command(
    command: Option<GuestCommand>,
    spec: Option<space_guest_proto::message::CommandSpec>,
) -> Result<Command, Status> {
    let mut command = command.ok_or_else(|| Status::internal("the guest's reply was not checked"))?;
    command.spec = command.spec.or(spec);
    Ok(convert::command(command))
}

/// The rules of the protocol pair replies with requests, so this is a bug here.
fn unexpected() -> Status {
    error!("a reply of another kind than its request");
    Status::internal("a reply of another kind than its request")
}
