use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::{
    message::{
        AttachCommandReply, AttachCommandRequest, End, Gap, HealthReply, HealthRequest, Hello, Refusal,
        Started,
    },
    wire::{OutputHead, Stream},
};

fn open() -> HostConnection {
    let mut host = HostConnection::new();
    host.send(&HostFrame::Hello(Hello::default())).unwrap();
    host.receive(&GuestFrame::Hello(Hello::default())).unwrap();
    host
}

fn streaming(after_sequence: u64, credit: u64) -> HostConnection {
    let mut host = open();
    let attach = AttachCommandRequest { after_sequence, credit, ..AttachCommandRequest::default() };
    host.send(&HostFrame::request(1, attach)).unwrap();
    host.receive(&GuestFrame::reply(1, AttachCommandReply::default())).unwrap();
    host
}

fn event(sequence: u64, kind: EventKind) -> GuestFrame {
    GuestFrame::Event { id: 1, event: Event { sequence, kind: Some(kind), ..Event::default() } }
}

fn exit(sequence: u64) -> GuestFrame {
    event(sequence, EventKind::Exit(Exit::default()))
}

fn gap(first_lost: u64, last_lost: u64) -> GuestFrame {
    event(last_lost, EventKind::Gap(Gap { first_lost, last_lost, ..Gap::default() }))
}

fn output(sequence: u64, offset: u64, data: &'static [u8]) -> GuestFrame {
    let head = OutputHead { sequence, generation: 1, at_ms: 0, stream: Stream::Stdout, offset };
    GuestFrame::Output { id: 1, output: Output { head, data: Bytes::from_static(data) } }
}

fn end(reason: EndReason) -> GuestFrame {
    GuestFrame::End { id: 1, end: End { reason: reason.into() } }
}

#[test]
fn a_whole_command_passes_and_frees_its_id() {
    let mut host = streaming(0, 10);
    let frames = [
        event(1, EventKind::Started(Started { pid: 7 })),
        output(2, 0, b"hello"),
        output(3, 5, b"there"),
        exit(4),
        end(EndReason::Exited),
    ];
    for frame in frames {
        host.receive(&frame).unwrap();
    }
    assert_eq!(host.calls(), 0);
}

#[test]
fn nothing_comes_before_the_hello() {
    let mut host = HostConnection::new();
    assert_eq!(host.send(&HostFrame::request(1, HealthRequest {})), Err(Misuse(Violation::Hello)));
    assert_eq!(host.receive(&GuestFrame::Hello(Hello::default())), Err(Violation::Hello));
    assert_eq!(GuestConnection::new().receive(&HostFrame::Detach { id: 1 }), Err(Violation::Hello));
}

#[test]
fn a_reply_must_fit_its_request() {
    let mut host = open();
    assert_eq!(host.receive(&GuestFrame::reply(1, HealthReply::default())), Err(Violation::Unasked(1)));
    let mut host = open();
    host.send(&HostFrame::request(1, HealthRequest {})).unwrap();
    assert_eq!(
        host.receive(&GuestFrame::reply(1, AttachCommandReply::default())),
        Err(Violation::Unasked(1))
    );
}

#[test]
fn output_beyond_the_credit_is_a_violation_until_more_is_granted() {
    let mut host = streaming(1, 4);
    assert_eq!(host.receive(&output(2, 0, b"hello")), Err(Violation::Credit(1)));
    let mut host = streaming(1, 4);
    host.send(&HostFrame::Credit { id: 1, bytes: 1 }).unwrap();
    assert_eq!(host.receive(&output(2, 0, b"hello")), Ok(()));
}

#[test]
fn holes_must_be_called_gaps() {
    assert_eq!(
        streaming(0, 9).receive(&output(2, 0, b"x")),
        Err(Violation::Sequence { id: 1, expected: 1, found: 2 })
    );
    let mut host = streaming(4, 9);
    assert_eq!(host.receive(&gap(5, 9)), Ok(()));
    assert_eq!(host.receive(&output(10, 77, b"x")), Ok(()));
    assert_eq!(host.receive(&output(11, 79, b"x")), Err(Violation::Offset(1)));
    assert_eq!(streaming(4, 9).receive(&gap(6, 9)), Err(Violation::Gap(1)));
    assert_eq!(streaming(4, 9).receive(&gap(5, 4)), Err(Violation::Gap(1)));
}

#[test]
fn nothing_follows_the_exit_but_the_end() {
    let mut host = streaming(0, 9);
    host.receive(&exit(1)).unwrap();
    assert_eq!(host.receive(&output(2, 0, b"x")), Err(Violation::BehindExit(1)));
    let mut host = streaming(0, 9);
    host.receive(&exit(1)).unwrap();
    assert_eq!(host.receive(&end(EndReason::Exited)), Ok(()));
    assert_eq!(host.receive(&end(EndReason::Exited)), Err(Violation::Unasked(1)));
}

#[test]
fn nothing_counts_of_a_guest_that_broke_a_rule() {
    let mut host = streaming(0, 9);
    assert_eq!(host.receive(&output(2, 0, b"x")), Err(Violation::Sequence { id: 1, expected: 1, found: 2 }));
    let broken = Violation::Sequence { id: 1, expected: 1, found: 2 };
    assert_eq!(host.receive(&output(1, 0, b"x")), Err(broken.clone()));
    assert_eq!(host.send(&HostFrame::Detach { id: 1 }), Err(Misuse(broken)));
}

#[test]
fn a_subscription_ends_early_only_when_detached() {
    let mut host = streaming(0, 9);
    assert_eq!(host.receive(&end(EndReason::Detached)), Err(Violation::EarlyEnd(1)));
    let mut host = streaming(0, 9);
    host.send(&HostFrame::Detach { id: 1 }).unwrap();
    assert_eq!(host.receive(&end(EndReason::Detached)), Ok(()));
    // It crossed with the end: no effect.
    assert_eq!(host.send(&HostFrame::Credit { id: 1, bytes: 5 }), Ok(()));
}

#[test]
fn calls_are_limited_and_ids_are_not_shared() {
    let mut guest = GuestConnection::new();
    guest.receive(&HostFrame::Hello(Hello::default())).unwrap();
    for id in 1..=u32::try_from(limits::CALLS_PER_CONNECTION).unwrap() {
        guest.receive(&HostFrame::request(id, HealthRequest {})).unwrap();
    }
    assert_eq!(guest.receive(&HostFrame::request(1, HealthRequest {})), Err(Violation::IdInUse(1)));
    assert_eq!(guest.receive(&HostFrame::request(9999, HealthRequest {})), Err(Violation::TooManyCalls));
    guest.finished(1);
    assert_eq!(guest.receive(&HostFrame::request(9999, HealthRequest {})), Ok(()));
}

/// What a host does on a connection, in the abstract.
#[derive(Debug, Clone)]
enum Step {
    Call,
    Attach { credit: u64 },
    Credit { pick: usize, bytes: u64 },
    Detach { pick: usize },
    Answer { pick: usize },
    Refuse { pick: usize },
    Output { pick: usize, bytes: usize },
    Finish { pick: usize },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        Just(Step::Call),
        (0..64_u64).prop_map(|credit| Step::Attach { credit }),
        (0..8_usize, 0..64_u64).prop_map(|(pick, bytes)| Step::Credit { pick, bytes }),
        (0..8_usize).prop_map(|pick| Step::Detach { pick }),
        (0..8_usize).prop_map(|pick| Step::Answer { pick }),
        (0..8_usize).prop_map(|pick| Step::Refuse { pick }),
        (0..8_usize, 1..32_usize).prop_map(|(pick, bytes)| Step::Output { pick, bytes }),
        (0..8_usize).prop_map(|pick| Step::Finish { pick }),
    ];
    prop::collection::vec(step, 0..200)
}

/// One call of the model: what an honest guest knows of it.
struct Model {
    id: u32,
    attach: bool,
    answered: bool,
    detached: bool,
    sequence: u64,
    offset: u64,
}

proptest! {
    /// Whatever a host does within its rules and an honest guest answers, neither side sees a violation, both
    /// agree on the credit, and no id stays taken.
    #[test]
    fn honest_sides_never_accuse_each_other(steps in steps()) {
        let mut host = open();
        let mut guest = GuestConnection::new();
        guest.receive(&HostFrame::Hello(Hello::default())).unwrap();
        guest.hello_sent();
        let mut calls: Vec<Model> = Vec::new();
        let tell = |host: &mut HostConnection, guest: &mut GuestConnection, frame: HostFrame| {
            host.send(&frame).unwrap();
            guest.receive(&frame).unwrap();
        };
        for step in steps {
            match step {
                Step::Call => {
                    let id = host.free_id();
                    tell(&mut host, &mut guest, HostFrame::request(id, HealthRequest {}));
                    calls.push(Model { id, attach: false, answered: false, detached: false, sequence: 0, offset: 0 });
                }
                Step::Attach { credit } => {
                    let id = host.free_id();
                    let attach = AttachCommandRequest { credit, ..AttachCommandRequest::default() };
                    tell(&mut host, &mut guest, HostFrame::request(id, attach));
                    calls.push(Model { id, attach: true, answered: false, detached: false, sequence: 0, offset: 0 });
                }
                Step::Credit { pick, bytes } => {
                    if let Some(call) = calls.get(pick) {
                        tell(&mut host, &mut guest, HostFrame::Credit { id: call.id, bytes });
                    }
                }
                Step::Detach { pick } => {
                    if let Some(call) = calls.get_mut(pick) {
                        tell(&mut host, &mut guest, HostFrame::Detach { id: call.id });
                        call.detached = call.attach;
                    }
                }
                Step::Answer { pick } => {
                    if let Some(call) = calls.get_mut(pick).filter(|call| !call.answered) {
                        call.answered = true;
                        if call.attach {
                            host.receive(&GuestFrame::reply(call.id, AttachCommandReply::default())).unwrap();
                        } else {
                            host.receive(&GuestFrame::reply(call.id, HealthReply::default())).unwrap();
                            guest.finished(call.id);
                            calls.remove(pick);
                        }
                    }
                }
                Step::Refuse { pick } => {
                    if calls.get(pick).is_some_and(|call| !call.answered) {
                        let id = calls.remove(pick).id;
                        host.receive(&GuestFrame::Refusal { id, refusal: Refusal::default() }).unwrap();
                        guest.finished(id);
                    }
                }
                Step::Output { pick, bytes } => {
                    if let Some(call) = calls.get_mut(pick).filter(|call| call.attach && call.answered)
                        && guest.spend(call.id, bytes)
                    {
                        call.sequence += 1;
                        let head = OutputHead {
                            sequence: call.sequence,
                            generation: 1,
                            at_ms: 0,
                            stream: Stream::Stderr,
                            offset: call.offset,
                        };
                        call.offset += bytes as u64;
                        let output = Output { head, data: Bytes::from(vec![0; bytes]) };
                        host.receive(&GuestFrame::Output { id: call.id, output }).unwrap();
                    }
                }
                Step::Finish { pick } => {
                    if calls.get(pick).is_some_and(|call| call.attach && call.answered) {
                        let call = calls.remove(pick);
                        let mut reason = EndReason::Detached;
                        if !call.detached {
                            let exit = Event {
                                sequence: call.sequence + 1,
                                kind: Some(EventKind::Exit(Exit::default())),
                                ..Event::default()
                            };
                            host.receive(&GuestFrame::Event { id: call.id, event: exit }).unwrap();
                            reason = EndReason::Exited;
                        }
                        let end = End { reason: reason.into() };
                        host.receive(&GuestFrame::End { id: call.id, end }).unwrap();
                        guest.finished(call.id);
                    }
                }
            }
            prop_assert_eq!(host.calls(), calls.len());
        }
    }
}
