//! An honest agent with one command whose events are known beforehand. Its connections break when told to.

use std::collections::HashMap;

use futures::FutureExt;
use prost::Message;
use space_guest_proto::{
    Output, OutputHead, Stream,
    message::{
        AttachCommandRequest, End, EndReason, Event, EventKind, Exit, Gap, ListCommandsReply, SetClockReply,
        Started,
    },
};

use tokio::sync::Notify;

use super::*;

/// One event of the command.
#[derive(Debug, Clone)]
pub(super) enum Said {
    Started,
    Output(Stream, u64, Vec<u8>),
    Exit,
}

/// Events of a command that writes `pieces`: alternately to both streams.
pub(super) fn script(pieces: &[usize]) -> Vec<Said> {
    let mut offsets = [0_u64; 2];
    let mut events = vec![Said::Started];
    for (index, length) in pieces.iter().enumerate() {
        let stream = if index % 3 == 2 { Stream::Stderr } else { Stream::Stdout };
        let offset = &mut offsets[stream.index()];
        let data = (0..*length).map(|at| (*offset as usize + at * 7 + index) as u8).collect();
        events.push(Said::Output(stream, *offset, data));
        *offset += *length as u64;
    }
    events.push(Said::Exit);
    events
}

#[derive(Debug)]
struct Subscription {
    next: u64,
    credit: u64,
}

pub(super) struct Agent<'a> {
    pub(super) script: &'a [Said],
    /// The ring holds nothing before this sequence number.
    pub(super) first_kept: u64,
    /// Subscriptions that were made, over all connections.
    pub(super) attached: usize,
    /// The most that were open at a time.
    pub(super) most: usize,
    /// Told of each subscription that is made, and of each that is left.
    pub(super) taken: Arc<Notify>,
    pub(super) left: Arc<Notify>,
    /// What it says when it is asked for its commands; with none it is silent.
    pub(super) listed: Option<Vec<Command>>,
}

impl<'a> Agent<'a> {
    pub(super) fn new(script: &'a [Said]) -> Self {
        Self {
            script,
            first_kept: 0,
            attached: 0,
            most: 0,
            taken: Arc::default(),
            left: Arc::default(),
            listed: None,
        }
    }
}

impl Agent<'_> {
    /// Serves one connection until it has written `budget` bytes, which may be in the middle of a frame, or until
    /// the owner leaves.
    pub(super) async fn serve(&mut self, mut guest: FakeGuest, mut budget: usize) {
        let mut subscriptions: HashMap<u32, Subscription> = HashMap::new();
        loop {
            let due = subscriptions.iter_mut().find_map(|(id, subscription)| {
                self.due(*id, subscription).map(|(frame, ended)| (*id, frame, ended))
            });
            let heard = match &due {
                // Somebody may have something to say in between.
                Some(_) => match guest.receive().now_or_never() {
                    Some(None) => return,
                    Some(Some(frame)) => Some(frame),
                    None => None,
                },
                None => match guest.receive().await {
                    Some(frame) => Some(frame),
                    None => return,
                },
            };
            let mut bytes = Vec::new();
            if let Some((id, frame, ended)) = due {
                bytes.extend(encoded(&frame));
                if ended {
                    subscriptions.remove(&id);
                    bytes.extend(encoded(&end(id, EndReason::Exited)));
                }
            }
            if let Some(frame) = heard {
                bytes.extend(self.answer(frame, &mut subscriptions));
            }
            let whole = bytes.len().min(budget);
            if guest.stream.write_all(&bytes[..whole]).await.is_err() || whole < bytes.len() {
                return;
            }
            budget -= whole;
            tokio::task::yield_now().await;
        }
    }

    fn answer(&mut self, frame: HostFrame, subscriptions: &mut HashMap<u32, Subscription>) -> Vec<u8> {
        match frame {
            HostFrame::Hello(_) => encoded(&GuestFrame::Hello(Hello { generation: GENERATION, ..hello() })),
            HostFrame::Request { id, request: Request::AttachCommand(request) } => {
                let AttachCommandRequest { command_id, after_sequence, credit, .. } = request;
                self.attached += 1;
                self.taken.notify_one();
                self.most = self.most.max(subscriptions.len() + 1);
                subscriptions.insert(id, Subscription { next: after_sequence + 1, credit });
                encoded(&GuestFrame::reply(id, AttachCommandReply { command: Some(running(&command_id)) }))
            }
            HostFrame::Request { id, request: Request::Personalise(_) } => {
                encoded(&GuestFrame::reply(id, PersonaliseReply::default()))
            }
            HostFrame::Request { id, request: Request::SetClock(_) } => {
                encoded(&GuestFrame::reply(id, SetClockReply::default()))
            }
            HostFrame::Request { id, request: Request::ListCommands(_) } => match &self.listed {
                Some(commands) => {
                    let encoded_commands = commands.iter().map(|c| c.encode_to_vec().into()).collect();
                    encoded(&GuestFrame::reply(id, ListCommandsReply { encoded_commands, more: false }))
                }
                None => Vec::new(),
            },
            HostFrame::Credit { id, bytes } => {
                if let Some(subscription) = subscriptions.get_mut(&id) {
                    subscription.credit += bytes;
                }
                Vec::new()
            }
            HostFrame::Detach { id } => match subscriptions.remove(&id) {
                Some(_) => {
                    self.left.notify_one();
                    encoded(&end(id, EndReason::Detached))
                }
                None => Vec::new(),
            },
            HostFrame::NoticeTaken => Vec::new(),
            other => panic!("{other:?}"),
        }
    }

    /// The next frame of a subscription that there is credit for, and whether it is the last.
    fn due(&self, id: u32, subscription: &mut Subscription) -> Option<(GuestFrame, bool)> {
        let sequence = subscription.next;
        let event = |sequence, kind| {
            let event = Event { sequence, generation: GENERATION, at_ms: 1, kind: Some(kind) };
            GuestFrame::Event { id, event }
        };
        if sequence < self.first_kept {
            let last_lost = self.first_kept - 1;
            subscription.next = self.first_kept;
            let gap = Gap { first_lost: sequence, last_lost, stdout_bytes: 0, stderr_bytes: 0 };
            return Some((event(last_lost, EventKind::Gap(gap)), false));
        }
        let said = self.script.get(usize::try_from(sequence).unwrap() - 1)?;
        let frame = match said {
            Said::Started => event(sequence, EventKind::Started(Started { pid: 7 })),
            Said::Exit => event(sequence, EventKind::Exit(Exit::default())),
            Said::Output(stream, offset, data) => {
                subscription.credit = subscription.credit.checked_sub(data.len() as u64)?;
                let head = OutputHead {
                    sequence,
                    generation: GENERATION,
                    at_ms: 1,
                    stream: *stream,
                    offset: *offset,
                };
                GuestFrame::Output { id, output: Output { head, data: data.clone().into() } }
            }
        };
        subscription.next += 1;
        Some((frame, matches!(said, Said::Exit)))
    }
}

fn end(id: u32, reason: EndReason) -> GuestFrame {
    GuestFrame::End { id, end: End { reason: reason.into() } }
}
