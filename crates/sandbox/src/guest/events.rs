//! A guest's events as clients see them.

use space_guest_proto::{
    Output, Stream,
    message::{Event, EventKind, Exit, Gap, Started},
};
use space_node_proto::commands::{self, CommandEvent, command_event::Kind, output};

use super::{check::Broken, text::printable};

/// `newest` is the generation that the sandbox has now: nothing can have happened under a later one.
pub(super) fn event(event: Event, newest: u64) -> Result<CommandEvent, Broken> {
    let Event { sequence, generation, at_ms, kind } = event;
    check_generation(generation, newest)?;
    let kind = match kind {
        Some(EventKind::Started(Started { pid })) => Kind::Started(commands::Started { pid }),
        Some(EventKind::Exit(end)) => Kind::Exit(exit(end)),
        Some(EventKind::Gap(Gap { first_lost, last_lost, stdout_bytes, stderr_bytes })) => {
            Kind::Gap(commands::Gap { first_lost, last_lost, stdout_bytes, stderr_bytes })
        }
        None => return Err(Broken::Reply("no event")),
    };
    Ok(CommandEvent { sequence, generation, at_ms, kind: Some(kind) })
}

pub(super) fn output(piece: &Output, newest: u64) -> Result<CommandEvent, Broken> {
    let head = piece.head;
    check_generation(head.generation, newest)?;
    let stream = match head.stream {
        Stream::Stdout => output::Stream::Stdout,
        Stream::Stderr => output::Stream::Stderr,
    };
    let data = piece.data.to_vec();
    let kind = Kind::Output(commands::Output { stream: stream.into(), offset: head.offset, data });
    Ok(CommandEvent {
        sequence: head.sequence,
        generation: head.generation,
        at_ms: head.at_ms,
        kind: Some(kind),
    })
}

pub(crate) fn exit(exit: Exit) -> commands::Exit {
    let Exit { code, signal, timed_out, error } = exit;
    commands::Exit {
        code,
        signal,
        timed_out,
        error: printable(&error, space_guest_proto::limits::TEXT_BYTES),
    }
}

fn check_generation(found: u64, newest: u64) -> Result<(), Broken> {
    if (1..=newest).contains(&found) { Ok(()) } else { Err(Broken::Generation) }
}
