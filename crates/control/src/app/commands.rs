//! Command sessions. They live in the guest's agent; control finds the worker, passes requests on and signs attach
//! tokens. Nothing here touches the database but an idempotency key on a signal.

use std::{future::Future, time::Duration};

use aws_lc_rs::digest::{SHA256, digest};
use space_api::{
    Timestamp,
    commands::{
        Attach, Command, CommandCreated, CommandState, CreateCommand, SignalCommand, StdinWritten, WriteStdin,
    },
    terminal::TerminalSize,
};
use space_attach::{exit, is_transport};
use space_node_proto::commands as proto;
use space_types::{AttachClaims, CommandId, SandboxId, TenantId};
use tokio::time::timeout;
use tonic::{Code, Response, Status};

use super::{App, AppError, auth::Caller, error::Answer};
use crate::{
    fail_point,
    grants::Reach,
    store::{idempotency::Claim, sandboxes::Route},
};

/// Beyond the deadline of the call that a claim is for.
const CLAIM_MARGIN: Duration = Duration::from_secs(5);

/// Where a request for a command goes, and whether its id was derived from an idempotency key.
pub(crate) struct NewCommand {
    pub(crate) id: CommandId,
    pub(crate) derived: bool,
}

impl NewCommand {
    /// With a key the id follows from it, so that a repeated request meets the session that the first one made.
    pub(crate) fn new(tenant: TenantId, sandbox: SandboxId, key: Option<&str>) -> Self {
        let Some(key) = key else { return Self { id: CommandId::new(), derived: false } };
        let hash = digest(&SHA256, format!("space command\0{tenant}\0{sandbox}\0{key}").as_bytes());
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&hash.as_ref()[..16]);
        let id = uuid::Builder::from_custom_bytes(bytes).into_uuid();
        Self { id: CommandId::from_uuid(id), derived: true }
    }

    /// What an agent's refusal of the id means to the caller.
    pub(crate) fn refusal(&self, error: AppError) -> AppError {
        if self.derived && matches!(error, AppError::CommandExists) {
            return AppError::IdempotencyReused;
        }
        error
    }
}

/// As the worker wants it.
pub(crate) fn spec(request: &CreateCommand) -> proto::CommandSpec {
    proto::CommandSpec {
        argv: request.argv.clone(),
        env: request.env.clone().into_iter().collect(),
        cwd: request.cwd.clone().unwrap_or_default(),
        user: request.user.clone().unwrap_or_default(),
        timeout_ms: request.timeout_seconds.unwrap_or(0).saturating_mul(1000),
        stdin: takes_input(request),
        terminal: request.terminal.map(|size| proto::TerminalSize { rows: size.rows, columns: size.columns }),
    }
}

/// A terminal does, whatever else was asked for.
fn takes_input(request: &CreateCommand) -> bool {
    request.stdin || request.terminal.is_some()
}

impl App {
    pub(crate) async fn command_create(
        &self,
        reach: Reach,
        sandbox: SandboxId,
        request: &CreateCommand,
        key: Option<&str>,
    ) -> Result<CommandCreated, AppError> {
        request.validate()?;
        let new = NewCommand::new(reach.tenant_id, sandbox, key);
        let route = self.route(Some(reach), sandbox).await?;
        fail_point::EXEC_BEFORE_WORKER_CALL.pass();
        let asked = proto::CreateCommandRequest {
            sandbox_id: sandbox.to_string(),
            generation: route.generation,
            command_id: new.id.to_string(),
            spec: Some(spec(request)),
        };
        let mut client = self.worker(&route)?;
        let answer =
            self.call(&route, client.create_command(asked)).await.map_err(|error| new.refusal(error))?;
        fail_point::EXEC_AFTER_WORKER_CALL.pass();
        let mut command = command(sandbox, new.id, answer);
        fill_in(&mut command, request);
        Ok(CommandCreated { command, attach: self.attach(sandbox, new.id) })
    }

    pub(crate) async fn command_list(
        &self,
        reach: Reach,
        sandbox: SandboxId,
    ) -> Result<Vec<Command>, AppError> {
        let route = self.route(Some(reach), sandbox).await?;
        let asked =
            proto::ListCommandsRequest { sandbox_id: sandbox.to_string(), generation: route.generation };
        let mut client = self.worker(&route)?;
        let answer = self.call(&route, client.list_commands(asked)).await?;
        let mut commands: Vec<Command> = answer
            .commands
            .into_iter()
            .filter_map(|found| Some(command(sandbox, found.command_id.parse().ok()?, found)))
            .collect();
        commands.sort_by_key(|command| std::cmp::Reverse(command.created_at));
        Ok(commands)
    }

    pub(crate) async fn command_get(
        &self,
        reach: Reach,
        sandbox: SandboxId,
        id: CommandId,
    ) -> Result<Command, AppError> {
        let route = self.route(Some(reach), sandbox).await?;
        let asked = proto::GetCommandRequest {
            sandbox_id: sandbox.to_string(),
            generation: route.generation,
            command_id: id.to_string(),
        };
        let mut client = self.worker(&route)?;
        Ok(command(sandbox, id, self.call(&route, client.get_command(asked)).await?))
    }

    /// An idempotency key needs no record here: the offset makes a repeated write harmless, and input must not
    /// wait for the database.
    pub(crate) async fn command_write_stdin(
        &self,
        reach: Option<Reach>,
        sandbox: SandboxId,
        id: CommandId,
        request: &WriteStdin,
    ) -> Result<StdinWritten, AppError> {
        request.validate()?;
        let route = self.route(reach, sandbox).await?;
        let asked = proto::WriteStdinRequest {
            sandbox_id: sandbox.to_string(),
            generation: route.generation,
            command_id: id.to_string(),
            offset: request.offset,
            data: request.data.0.clone(),
            eof: request.eof,
        };
        let mut client = self.worker(&route)?;
        match self.call(&route, client.write_stdin(asked)).await {
            Ok(answer) => Ok(StdinWritten { next_offset: answer.next_offset }),
            Err(AppError::StdinOffset(_)) => Err(AppError::StdinOffset(request.offset)),
            Err(error) => Err(error),
        }
    }

    pub(crate) async fn command_signal(
        &self,
        reach: Option<Reach>,
        sandbox: SandboxId,
        id: CommandId,
        request: &SignalCommand,
        claim: Option<&Claim>,
    ) -> Result<Answer<()>, AppError> {
        let route = self.route(reach, sandbox).await?;
        self.claimed(claim, 204, async {
            let asked = proto::SignalCommandRequest {
                sandbox_id: sandbox.to_string(),
                generation: route.generation,
                command_id: id.to_string(),
                signal: request.signal.number(),
            };
            let mut client = self.worker(&route)?;
            self.call(&route, client.signal_command(asked)).await?;
            Ok(())
        })
        .await
    }

    /// Of a running command with a terminal.
    pub(crate) async fn command_resize(
        &self,
        reach: Option<Reach>,
        sandbox: SandboxId,
        id: CommandId,
        size: TerminalSize,
    ) -> Result<(), AppError> {
        size.validate()?;
        let route = self.route(reach, sandbox).await?;
        let asked = proto::ResizeTerminalRequest {
            sandbox_id: sandbox.to_string(),
            generation: route.generation,
            command_id: id.to_string(),
            size: Some(proto::TerminalSize { rows: size.rows, columns: size.columns }),
        };
        let mut client = self.worker(&route)?;
        self.call(&route, client.resize_terminal(asked)).await?;
        Ok(())
    }

    pub(super) async fn claimed<T: serde::Serialize>(
        &self,
        claim: Option<&Claim>,
        status: u16,
        work: impl Future<Output = Result<T, AppError>>,
    ) -> Result<Answer<T>, AppError> {
        match claim {
            None => Ok(Answer::New(work.await?)),
            Some(claim) => {
                let deadline = self.limits.call_timeout.saturating_add(CLAIM_MARGIN);
                let deadline = i64::try_from(deadline.as_millis()).unwrap_or(i64::MAX);
                Answer::from_claimed(self.store.idempotent(claim, status, deadline, work).await??)
            }
        }
    }

    /// A token and where to use it.
    pub(crate) fn attach(&self, sandbox: SandboxId, command: CommandId) -> Attach {
        let lifetime = i64::try_from(self.limits.token_lifetime.as_secs()).unwrap_or(i64::MAX);
        let expires_at = now_seconds().saturating_add(lifetime);
        let claims = AttachClaims { sandbox_id: sandbox, command_id: command, expires_at };
        let path = format!("/v1/sandboxes/{sandbox}/commands/{command}/attach");
        Attach {
            url: self.attach_url.as_ref().map_or(path.clone(), |edge| edge.url(&path)),
            token: self.authority.attach.sign(&claims),
            expires_at: Timestamp::from_unix_milliseconds(expires_at.saturating_mul(1000)),
        }
    }

    /// Whether a token is good for this command. A token for another one is no token.
    pub(crate) fn check_attach_token(
        &self,
        token: &str,
        sandbox: SandboxId,
        command: CommandId,
    ) -> Result<(), AppError> {
        let claims = self.authority.attach.verify(token, now_seconds()).ok_or(AppError::Unauthorized)?;
        let same = claims.sandbox_id == sandbox && claims.command_id == command;
        if same { Ok(()) } else { Err(AppError::Unauthorized) }
    }

    pub(super) fn worker(
        &self,
        route: &Route,
    ) -> Result<proto::commands_client::CommandsClient<tonic::transport::Channel>, AppError> {
        self.workers.client(route).map_err(|error| {
            tracing::warn!(address = route.data_address, %error, "a worker's address can't be used");
            AppError::NodeUnavailable
        })
    }

    /// One unary call to a worker, with the deadline for calls.
    pub(super) async fn call<T>(
        &self,
        route: &Route,
        call: impl Future<Output = Result<Response<T>, Status>>,
    ) -> Result<T, AppError> {
        match timeout(self.limits.call_timeout, call).await {
            Ok(Ok(answer)) => Ok(answer.into_inner()),
            Ok(Err(status)) => {
                if is_transport(&status) {
                    self.workers.forget(route);
                }
                Err(from_status(status))
            }
            Err(_) => Err(AppError::Timeout),
        }
    }
}

pub(crate) fn now_seconds() -> i64 {
    jiff::Timestamp::now().as_second()
}

/// By the table at the head of `commands.proto`; `space-refusal` tells refusals of one code apart.
pub(super) fn from_status(status: Status) -> AppError {
    let refusal =
        status.metadata().get("space-refusal").and_then(|word| word.to_str().ok()).unwrap_or_default();
    // A foreign enum with more codes than the protocol uses.
    match (status.code(), refusal) {
        (Code::NotFound, _) => AppError::NotFound("command"),
        (Code::FailedPrecondition, "stdin_closed") => AppError::StdinClosed,
        (Code::FailedPrecondition, "not_running") => AppError::CommandNotRunning,
        (Code::FailedPrecondition, "no_terminal") => AppError::NoTerminal,
        (Code::Unimplemented, "unsupported") => AppError::AgentTooOld,
        (Code::InvalidArgument, "stdin_hole") => AppError::StdinOffset(0),
        (Code::InvalidArgument, _) => AppError::Refused(status.message().chars().take(200).collect()),
        (Code::AlreadyExists, _) => AppError::CommandExists,
        (Code::ResourceExhausted, _) => AppError::TooManyCommands,
        (Code::DeadlineExceeded | Code::Cancelled, _) => AppError::Timeout,
        (Code::Unavailable, _) if is_transport(&status) => AppError::NodeUnavailable,
        // Of another generation, or the agent does not answer: the sandbox's next report tells.
        (Code::Unavailable | Code::FailedPrecondition, _) => AppError::GuestUnavailable,
        (_, _) if is_transport(&status) => AppError::NodeUnavailable,
        (_, _) => AppError::Worker(Box::new(status)),
    }
}

/// What the agent says of a command. Its texts were chosen inside the sandbox; they go into JSON and nowhere else.
fn command(sandbox: SandboxId, id: CommandId, found: proto::Command) -> Command {
    let state = match found.state() {
        proto::CommandState::Unspecified | proto::CommandState::Created => CommandState::Created,
        proto::CommandState::Running => CommandState::Running,
        proto::CommandState::Exited => CommandState::Exited,
    };
    let spec = found.spec.unwrap_or_default();
    let mut env_names: Vec<String> = spec.env.into_keys().collect();
    env_names.sort();
    Command {
        id,
        sandbox_id: sandbox,
        argv: spec.argv,
        env_names,
        cwd: Some(spec.cwd).filter(|cwd| !cwd.is_empty()),
        user: Some(spec.user).filter(|user| !user.is_empty()),
        timeout_seconds: Some(spec.timeout_ms.div_ceil(1000)).filter(|seconds| *seconds != 0),
        stdin: spec.stdin,
        terminal: spec.terminal.map(|size| TerminalSize { rows: size.rows, columns: size.columns }),
        state,
        pid: Some(found.pid).filter(|pid| *pid != 0),
        exit: found.exit.map(exit),
        last_sequence: found.last_sequence,
        created_at: Timestamp::from_proto_milliseconds(found.created_at_ms)
            .unwrap_or_else(|| Timestamp::from_unix_milliseconds(0)),
        started_at: Timestamp::from_proto_milliseconds(found.started_at_ms),
        exited_at: Timestamp::from_proto_milliseconds(found.exited_at_ms),
    }
}

/// What was asked for, from who asked: a guest that answers something else deceives nobody but itself.
fn fill_in(command: &mut Command, request: &CreateCommand) {
    command.argv.clone_from(&request.argv);
    command.env_names = request.env.keys().cloned().collect();
    command.cwd.clone_from(&request.cwd);
    command.user.clone_from(&request.user);
    command.timeout_seconds = request.timeout_seconds;
    command.stdin = takes_input(request);
    command.terminal = request.terminal;
}

/// A command as it is right after it was made, without asking.
pub(super) fn fresh(sandbox: SandboxId, id: CommandId, request: &CreateCommand) -> Command {
    let now = u64::try_from(jiff::Timestamp::now().as_millisecond()).unwrap_or(0);
    let mut command =
        command(sandbox, id, proto::Command { created_at_ms: now, ..proto::Command::default() });
    fill_in(&mut command, request);
    command
}

/// Who attaches: a key, or whoever holds a token for this command.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Attacher {
    Caller(Caller),
    Token,
}

impl Attacher {
    pub(crate) fn reach(&self) -> Option<Reach> {
        match self {
            Self::Caller(caller) => Some(caller.reach()),
            Self::Token => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_key_gives_the_same_command_and_another_does_not() {
        let (tenant, sandbox) = (TenantId::new(), SandboxId::new());
        let id = |tenant, sandbox, key| NewCommand::new(tenant, sandbox, Some(key)).id;
        assert_eq!(id(tenant, sandbox, "a"), id(tenant, sandbox, "a"));
        assert_ne!(id(tenant, sandbox, "a"), id(tenant, sandbox, "b"));
        assert_ne!(id(tenant, sandbox, "a"), id(TenantId::new(), sandbox, "a"));
        assert_ne!(id(tenant, sandbox, "a"), id(tenant, SandboxId::new(), "a"));
    }
}
