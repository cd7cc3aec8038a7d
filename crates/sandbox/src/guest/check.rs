//! What a guest's reply may say. The protocol's own rules (who answers what when) are checked before this.

use space_guest_proto::{
    DecodeError, Reply, Request, Violation, limits,
    message::{Command, CommandState},
    validate,
};

use crate::spool::Discontinuity;

/// How the guest broke the protocol.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Broken {
    #[error("a malformed frame")]
    Frame(#[from] DecodeError),
    #[error("a broken rule")]
    Rule(#[from] Violation),
    #[error("a hello of a role that is not the guest's")]
    Role,
    #[error("an agent's version that is none")]
    AgentVersion,
    #[error("a reply about {0}")]
    Reply(&'static str),
    #[error("more unknown frames than allowed")]
    Ignored,
    #[error("more notices than a guest has ends")]
    Notices,
    #[error("a notice of an unknown kind")]
    Notice,
    #[error("frames without end on a subscription that was left")]
    Late,
    #[error(transparent)]
    Resumed(#[from] Discontinuity),
    #[error("an event of a generation that is yet to come")]
    Generation,
    #[error("a list of commands that doesn't end or repeats itself")]
    List,
    #[error("a refusal of what every guest must take")]
    Refused,
}

/// Checks a reply against its request.
pub(crate) fn reply(request: &Request, reply: &Reply) -> Result<(), Broken> {
    match (request, reply) {
        (Request::CreateCommand(asked), Reply::CreateCommand(got)) => {
            about(&asked.command_id, got.command.as_ref())
        }
        (Request::AttachCommand(asked), Reply::AttachCommand(got)) => {
            about(&asked.command_id, got.command.as_ref())
        }
        (Request::GetCommand(asked), Reply::GetCommand(got)) => {
            about(&asked.command_id, got.command.as_ref())
        }
        (Request::WriteStdin(asked), Reply::WriteStdin(got)) if got.next_offset < asked.offset => {
            Err(Broken::Reply("bytes that were not sent"))
        }
        (Request::ListCommands(_), Reply::ListCommands(got)) => {
            let page = got.commands().map_err(|_source| Broken::List)?;
            page.iter().try_for_each(command)
        }
        // The kinds fit: the rules saw to that. Nothing in the others is used.
        (_, _) => Ok(()),
    }
}

pub(super) fn about(asked: &str, got: Option<&Command>) -> Result<(), Broken> {
    let got = got.ok_or(Broken::Reply("no command"))?;
    if got.command_id != asked {
        return Err(Broken::Reply("another command"));
    }
    command(got)
}

fn command(command: &Command) -> Result<(), Broken> {
    validate::command_id(&command.command_id).map_err(|_source| Broken::Reply("an id that is none"))?;
    if let Some(spec) = &command.spec {
        validate::spec(spec)
            .map_err(|_source| Broken::Reply("a specification that nobody could have given"))?;
    }
    let exited = match CommandState::try_from(command.state) {
        Ok(CommandState::Exited) => true,
        Ok(CommandState::Created | CommandState::Running) => false,
        Ok(CommandState::Unspecified) | Err(_) => return Err(Broken::Reply("a state that is none")),
    };
    if exited != command.exit.is_some() || command.pid > i32::MAX.unsigned_abs() {
        return Err(Broken::Reply("a state that contradicts itself"));
    }
    match &command.exit {
        Some(exit) => exit_is_possible(exit),
        None => Ok(()),
    }
}

fn exit_is_possible(exit: &space_guest_proto::message::Exit) -> Result<(), Broken> {
    let possible = (0..=255).contains(&exit.code) && (0..=64).contains(&exit.signal);
    if possible && exit.error.len() <= limits::TEXT_BYTES {
        return Ok(());
    }
    Err(Broken::Reply("an exit that no process has"))
}
