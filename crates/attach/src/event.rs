//! What a worker says, as the public contract has it.

use space_api::{
    commands::Exit,
    sse::{CommandEvent, Gap, Output, Position, Started},
};
use space_node_proto::commands::{self as proto, command_event::Kind};

/// One event with its position; events that tell of the stream itself have none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Positioned {
    pub position: Option<Position>,
    pub event: CommandEvent,
}

pub(crate) fn convert(kind: Kind) -> CommandEvent {
    match kind {
        Kind::Started(started) => CommandEvent::Started(Started { pid: started.pid }),
        Kind::Output(output) => {
            let is_stderr = output.stream() == proto::output::Stream::Stderr;
            let output = Output { offset: output.offset, data: output.data.into() };
            if is_stderr { CommandEvent::Stderr(output) } else { CommandEvent::Stdout(output) }
        }
        Kind::Exit(found) => CommandEvent::Exit(exit(found)),
        Kind::Gap(gap) => CommandEvent::Gap(Gap {
            first_lost: gap.first_lost,
            last_lost: gap.last_lost,
            stdout_bytes: gap.stdout_bytes,
            stderr_bytes: gap.stderr_bytes,
        }),
    }
}

/// A code or a signal, never both.
pub fn exit(found: proto::Exit) -> Exit {
    let killed = found.signal != 0;
    Exit {
        code: (!killed).then_some(found.code),
        signal: killed.then_some(found.signal),
        timed_out: found.timed_out,
        error: Some(found.error).filter(|error| !error.is_empty()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exit_is_a_code_or_a_signal() {
        let killed = exit(proto::Exit { signal: 9, ..proto::Exit::default() });
        assert_eq!((killed.code, killed.signal), (None, Some(9)));
        let done = exit(proto::Exit::default());
        assert_eq!((done.code, done.signal), (Some(0), None));
    }
}
