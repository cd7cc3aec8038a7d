//! Terminals: asked only of agents that have them.

use space_guest_proto::{
    feature,
    message::{
        AttachCommandRequest, CommandSpec, CreateCommandRequest, RefusalCode, ResizeTerminalReply,
        ResizeTerminalRequest, TerminalSize,
    },
};

use super::*;
use crate::guest::CallError;

fn spec() -> CommandSpec {
    let terminal = Some(TerminalSize { rows: 24, columns: 80 });
    CommandSpec { argv: vec!["sh".to_owned()], terminal, ..CommandSpec::default() }
}

fn attach() -> AttachCommandRequest {
    AttachCommandRequest {
        command_id: "c".to_owned(),
        create: Some(spec()),
        ..AttachCommandRequest::default()
    }
}

fn is_unsupported<T>(answer: &Result<T, CallError>) -> bool {
    matches!(answer, Err(CallError::Refused { code: RefusalCode::Unsupported, .. }))
}

#[tokio::test]
async fn an_agent_without_terminals_never_hears_of_one() {
    let (bench, mut guest) = Bench::booted().await;
    let create = CreateCommandRequest { command_id: "c".to_owned(), spec: Some(spec()) };
    assert!(is_unsupported(&soon(bench.client.call(create)).await));
    assert!(is_unsupported(&soon(bench.client.attach(attach())).await));
    // The next thing that it hears is something else.
    assert!(bench.answers(&mut guest).await);
}

#[tokio::test]
async fn an_agent_with_terminals_is_asked_for_them() {
    let mut bench = Bench::new(true, PATIENCE);
    let mut guest = bench.accept().await;
    guest.greet_as(Hello { features: feature::TERMINAL, ..hello() }).await;
    assert!(matches!(bench.told().await, from_worker::Kind::Ready(_)));
    let asked = bench.client.attach(attach());
    let (opened, _subscription) = soon(async { tokio::join!(asked, guest.accept_attach()) }).await;
    assert!(opened.is_ok());
    let size = Some(TerminalSize { rows: 1, columns: 2 });
    let asked = bench.client.call(ResizeTerminalRequest { command_id: "c".to_owned(), size });
    let answer = async {
        let (id, Request::ResizeTerminal(heard)) = guest.request().await else { panic!("no resize") };
        assert_eq!(heard.size, size);
        guest.send(&GuestFrame::reply(id, ResizeTerminalReply {})).await;
    };
    let (resized, ()) = soon(async { tokio::join!(asked, answer) }).await;
    assert!(resized.is_ok());
}
