//! A host that speaks with a guest that may answer anything: the rules of a connection and the checks of replies, against
//! a model that is told only what was accepted.
//!
//! - Nothing is accepted after something was refused.
//! - Events of a subscription come without holes and none behind the exit; output continues its stream and stays within
//!   the credit; an end has its reason.
//! - A reply answers a request of its kind that waits, and one that passes the checks is about the command that was asked
//!   for and contradicts neither itself nor what a command can be.

use std::collections::HashMap;

use bytes::Bytes;
use space_guest_proto::{
    GuestFrame, HostConnection, HostFrame, Output, OutputHead, Reply, Request, Stream, limits,
    message::{
        AttachCommandReply, AttachCommandRequest, Command, End, EndReason, Event, EventKind, Exit, Gap,
        GetCommandReply, GetCommandRequest, HealthReply, HealthRequest, Hello, Notice, Refusal, Started,
        WriteStdinReply, WriteStdinRequest,
    },
};
use space_sandbox::fuzz;

use crate::script::Script;

pub(crate) fn run(bytes: &[u8]) {
    let mut script = Script::new(bytes);
    let mut talk = Talk::default();
    while !script.is_over() {
        let step = script.byte();
        let id = u32::from(step >> 4 & 3);
        match step & 15 {
            0 => talk.send(&HostFrame::Hello(Hello::default())),
            1 => talk.send(&HostFrame::request(id, attach(&mut script))),
            2 => talk.send(&HostFrame::request(id, simple(&mut script))),
            3 => talk.send(&HostFrame::Credit { id, bytes: script.number() }),
            4 => talk.send(&HostFrame::Detach { id }),
            5 => talk.receive(&GuestFrame::Hello(Hello::default())),
            6 => talk.receive(&GuestFrame::Refusal { id, refusal: Refusal::default() }),
            7 | 8 => talk.receive(&GuestFrame::Reply { id, reply: reply(&mut script) }),
            9 => talk.receive(&GuestFrame::End { id, end: End { reason: script.byte().into() } }),
            10 => talk.receive(&GuestFrame::Notice(Notice { kind: script.byte().into() })),
            11 | 12 => talk.receive(&GuestFrame::Event { id, event: event(&mut script) }),
            _ => talk.receive(&GuestFrame::Output { id, output: output(&mut script) }),
        }
    }
}

fn attach(script: &mut Script<'_>) -> Request {
    let (after_sequence, credit) = (script.number(), script.number());
    AttachCommandRequest { command_id: "c".to_owned(), after_sequence, credit, create: None }.into()
}

fn simple(script: &mut Script<'_>) -> Request {
    match script.byte() % 3 {
        0 => GetCommandRequest { command_id: "c".to_owned() }.into(),
        1 => {
            let (command_id, offset) = ("c".to_owned(), script.number());
            WriteStdinRequest { command_id, offset, ..WriteStdinRequest::default() }.into()
        }
        _ => HealthRequest {}.into(),
    }
}

fn reply(script: &mut Script<'_>) -> Reply {
    match script.byte() % 4 {
        0 => AttachCommandReply { command: command(script) }.into(),
        1 => GetCommandReply { command: command(script) }.into(),
        2 => WriteStdinReply { next_offset: script.number() }.into(),
        _ => HealthReply::default().into(),
    }
}

fn command(script: &mut Script<'_>) -> Option<Command> {
    let bits = script.byte();
    (bits & 1 != 0).then(|| Command {
        command_id: if bits & 2 != 0 { "c".to_owned() } else { script.text() },
        state: (bits >> 2 & 7).into(),
        pid: u32::try_from(script.number()).unwrap_or(u32::MAX),
        exit: (bits & 32 != 0).then(|| exit(script)),
        ..Command::default()
    })
}

fn exit(script: &mut Script<'_>) -> Exit {
    let number = |script: &mut Script<'_>| i32::try_from(script.number()).unwrap_or(-1);
    Exit { code: number(script), signal: number(script), ..Exit::default() }
}

fn event(script: &mut Script<'_>) -> Event {
    let kind = match script.byte() % 4 {
        0 => None,
        1 => Some(EventKind::Started(Started::default())),
        2 => Some(EventKind::Exit(exit(script))),
        _ => {
            let (first_lost, last_lost) = (script.number(), script.number());
            Some(EventKind::Gap(Gap { first_lost, last_lost, ..Gap::default() }))
        }
    };
    Event { sequence: script.number(), kind, ..Event::default() }
}

fn output(script: &mut Script<'_>) -> Output {
    let stream = if script.byte() & 1 == 0 { Stream::Stdout } else { Stream::Stderr };
    let head =
        OutputHead { sequence: script.number(), generation: 1, at_ms: 0, stream, offset: script.number() };
    let data_bytes = usize::from(script.byte()).max(1);
    Output { head, data: Bytes::from(vec![b'x'; data_bytes]) }
}

/// The rules, and what was accepted by them.
#[derive(Default)]
struct Talk {
    rules: HostConnection,
    refused: bool,
    greeted: bool,
    waiting: HashMap<u32, Request>,
    streaming: HashMap<u32, Reader>,
}

struct Reader {
    sequence: u64,
    /// Of each stream; `None` where a gap, or a start in the middle, leaves it open.
    offsets: [Option<u64>; 2],
    granted: u128,
    received: u128,
    exited: bool,
    detached: bool,
}

impl Talk {
    fn send(&mut self, frame: &HostFrame) {
        if self.rules.send(frame).is_err() {
            // A bug of the host's, which sends nothing then: the connection goes on.
            return;
        }
        assert!(!self.refused, "a frame for a guest that broke a rule");
        match frame {
            HostFrame::Request { id, request } => {
                assert!(*id != 0 && !self.streaming.contains_key(id));
                assert!(self.waiting.insert(*id, request.clone()).is_none(), "two requests of id {id}");
                if let Request::AttachCommand(attach) = request {
                    let start = (attach.after_sequence == 0).then_some(0);
                    let reader = Reader {
                        sequence: attach.after_sequence,
                        offsets: [start, start],
                        granted: attach.credit.into(),
                        received: 0,
                        exited: false,
                        detached: false,
                    };
                    self.streaming.insert(*id, reader);
                }
            }
            HostFrame::Credit { id, bytes } => {
                if let Some(reader) = self.streaming.get_mut(id) {
                    reader.granted += u128::from(*bytes);
                    let outstanding = reader.granted - reader.received;
                    assert!(outstanding <= limits::CREDIT_BYTES.into(), "{outstanding} of credit");
                }
            }
            HostFrame::Detach { id } => {
                if let Some(reader) = self.streaming.get_mut(id) {
                    reader.detached = true;
                }
            }
            HostFrame::Hello(_) | HostFrame::UnknownRequest { .. } | HostFrame::NoticeTaken => {}
        }
        assert!(self.waiting.len() + self.streaming.len() <= 2 * limits::CALLS_PER_CONNECTION);
    }

    fn receive(&mut self, frame: &GuestFrame) {
        let taken = self.rules.receive(frame);
        if self.refused {
            assert!(taken.is_err(), "{frame:?} was accepted of a guest that had broken a rule");
        }
        if taken.is_err() {
            self.refused = true;
            return;
        }
        match frame {
            GuestFrame::Hello(_) => assert!(!std::mem::replace(&mut self.greeted, true), "a second hello"),
            GuestFrame::Reply { id, reply } => self.replied(*id, reply),
            GuestFrame::Refusal { id, .. } => {
                assert!(self.waiting.remove(id).is_some(), "a refusal of nothing");
                self.streaming.remove(id);
            }
            GuestFrame::Event { id, event } => self.reader(*id).event(event),
            GuestFrame::Output { id, output } => self.reader(*id).output(output),
            GuestFrame::End { id, end } => {
                let reader = self.reader(*id);
                match end.reason() {
                    EndReason::Exited => assert!(reader.exited, "no exit came"),
                    EndReason::Detached => assert!(reader.detached, "nobody left"),
                    EndReason::Unspecified => panic!("an end without a reason"),
                }
                self.streaming.remove(id);
            }
            GuestFrame::Notice(_) => {}
        }
        assert!(self.greeted, "something before the hello");
    }

    fn replied(&mut self, id: u32, reply: &Reply) {
        let request = self.waiting.remove(&id);
        let request = request.unwrap_or_else(|| panic!("{reply:?} answers nothing"));
        assert_eq!(request.kind(), reply.request_kind(), "an answer to something else");
        if fuzz::reply_is_sound(&request, reply) {
            match (&request, reply) {
                (Request::AttachCommand(_), Reply::AttachCommand(got)) => is_command(got.command.as_ref()),
                (Request::GetCommand(_), Reply::GetCommand(got)) => is_command(got.command.as_ref()),
                (Request::WriteStdin(asked), Reply::WriteStdin(got)) => {
                    assert!(got.next_offset >= asked.offset, "bytes that were not sent");
                }
                _ => {}
            }
        }
    }

    fn reader(&mut self, id: u32) -> &mut Reader {
        assert!(!self.waiting.contains_key(&id), "an event before the reply");
        self.streaming.get_mut(&id).unwrap_or_else(|| panic!("an event for nobody, {id}"))
    }
}

impl Reader {
    fn event(&mut self, event: &Event) {
        assert!(!self.exited, "behind the exit");
        match &event.kind {
            Some(EventKind::Gap(gap)) => {
                assert!(gap.first_lost == self.sequence + 1 && gap.last_lost >= gap.first_lost, "{gap:?}");
                assert_eq!(event.sequence, gap.last_lost);
                self.offsets = [None, None];
            }
            Some(EventKind::Started(_)) => assert_eq!(event.sequence, self.sequence + 1),
            Some(EventKind::Exit(exit)) => {
                assert_eq!(event.sequence, self.sequence + 1);
                assert!((0..=255).contains(&exit.code) && (0..=64).contains(&exit.signal), "{exit:?}");
                self.exited = true;
            }
            None => panic!("an event of no kind"),
        }
        self.sequence = event.sequence;
    }

    fn output(&mut self, output: &Output) {
        assert!(!self.exited, "behind the exit");
        assert_eq!(output.head.sequence, self.sequence + 1);
        self.sequence += 1;
        self.received += output.data.len() as u128;
        assert!(self.received <= self.granted, "{} bytes for {} of credit", self.received, self.granted);
        let offset = &mut self.offsets[output.head.stream.index()];
        assert!(offset.is_none_or(|due| due == output.head.offset), "a hole in the stream");
        *offset = Some(output.head.offset + output.data.len() as u64);
    }
}

fn is_command(command: Option<&Command>) {
    let command = command.unwrap_or_else(|| panic!("no command"));
    assert_eq!(command.command_id, "c", "another command");
    assert_eq!(command.exit.is_some(), command.state == 3, "{command:?}");
    assert!((1..=3).contains(&command.state) && i32::try_from(command.pid).is_ok(), "{command:?}");
    if let Some(exit) = &command.exit {
        assert!((0..=255).contains(&exit.code) && (0..=64).contains(&exit.signal), "{exit:?}");
    }
}
