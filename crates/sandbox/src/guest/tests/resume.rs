//! Readers across lost connections: never lost, never doubled, in order.

use futures::StreamExt;
use proptest::prelude::*;
use space_guest_proto::message::AttachCommandRequest;
use space_node_proto::commands::{CommandEvent, command_event::Kind, output};

use super::{
    agent::{Agent, Said, script},
    *,
};
use crate::{guest::CallError, limits, spool::CommandStream};

/// What a reader must have heard at the end, if the ring still had all of it.
pub(super) fn check(events: &[CommandEvent], script: &[Said]) {
    assert_eq!(events.len(), script.len());
    for (index, (event, said)) in events.iter().zip(script).enumerate() {
        assert_eq!(event.sequence, index as u64 + 1);
        match (event.kind.as_ref().unwrap(), said) {
            (Kind::Started(_), Said::Started) | (Kind::Exit(_), Said::Exit) => {}
            (Kind::Output(heard), Said::Output(stream, offset, data)) => {
                let expected = match stream {
                    space_guest_proto::Stream::Stdout => output::Stream::Stdout,
                    space_guest_proto::Stream::Stderr => output::Stream::Stderr,
                };
                assert_eq!((heard.stream(), heard.offset, &heard.data), (expected, *offset, data));
            }
            (heard, said) => panic!("{heard:?} for {said:?}"),
        }
    }
}

pub(super) async fn read(mut stream: CommandStream) -> Result<Vec<CommandEvent>, CallError> {
    let mut events = Vec::new();
    while let Some(event) = stream.next().await {
        events.push(event?);
    }
    Ok(events)
}

pub(super) fn attach() -> AttachCommandRequest {
    AttachCommandRequest { command_id: "c".to_owned(), ..AttachCommandRequest::default() }
}

/// Two readers while each connection breaks after the next of `budgets`.
async fn read_through(script: &[Said], budgets: &[usize]) {
    let mut bench = Bench::new(true, PATIENCE);
    let client = bench.client.clone();
    let reading = async {
        let (first, second) = tokio::join!(client.attach(attach()), client.attach(attach()));
        tokio::join!(read(first.unwrap()), read(second.unwrap()))
    };
    let serving = async {
        let mut agent = Agent::new(script);
        for budget in budgets.iter().copied().chain(std::iter::repeat(usize::MAX)) {
            let guest = bench.accept().await;
            agent.serve(guest, budget).await;
        }
    };
    let (first, second) = tokio::select! {
        heard = soon(reading) => heard,
        () = serving => unreachable!("it serves for ever"),
    };
    check(&first.unwrap(), script);
    check(&second.unwrap(), script);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
    #[test]
    fn breaks_anywhere_keep_every_byte_in_order_and_once(
        pieces in prop::collection::vec(1_usize..20_000, 1..60),
        budgets in prop::collection::vec(0_usize..60_000, 0..6),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(read_through(&script(&pieces), &budgets));
    }
}

#[tokio::test]
async fn what_the_ring_has_lost_meanwhile_is_a_gap_and_the_stream_goes_on() {
    let script = script(&[100; 20]);
    let mut bench = Bench::new(true, PATIENCE);
    let client = bench.client.clone();
    let reading = async { read(client.attach(attach()).await.unwrap()).await.unwrap() };
    let serving = async {
        let mut agent = Agent::new(&script);
        let guest = bench.accept().await;
        agent.serve(guest, 1000).await;
        agent.first_kept = 15;
        let guest = bench.accept().await;
        agent.serve(guest, usize::MAX).await;
    };
    let events = tokio::select! {
        events = soon(reading) => events,
        () = serving => panic!("the owner left"),
    };
    let gaps: Vec<_> = events.iter().filter(|event| matches!(event.kind, Some(Kind::Gap(_)))).collect();
    let [gap] = gaps[..] else { panic!("{} gaps", gaps.len()) };
    assert_eq!(gap.sequence, 14);
    assert_eq!(events.last().unwrap().sequence, script.len() as u64);
}

#[tokio::test]
async fn readers_have_a_limit() {
    let mut bench = Bench::new(true, PATIENCE);
    let client = bench.client.clone();
    let guest = bench.accept().await;
    let mut agent = Agent::new(&[]);
    let attaching = async {
        let mut streams = Vec::new();
        for _reader in 0..limits::READERS {
            streams.push(client.attach(attach()).await.unwrap());
        }
        client.attach(attach()).await.map(|_stream| ())
    };
    let refused = tokio::select! {
        refused = soon(attaching) => refused,
        () = agent.serve(guest, usize::MAX) => panic!("the owner left"),
    };
    assert!(matches!(refused, Err(CallError::TooMany)), "{refused:?}");
}
