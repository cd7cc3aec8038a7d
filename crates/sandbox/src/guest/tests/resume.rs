//! Readers across lost connections and their own slowness: never lost, never doubled, in order.

use futures::StreamExt;
use proptest::prelude::*;
use space_guest_proto::message::AttachCommandRequest;
use space_node_proto::commands::{CommandEvent, command_event::Kind, output};

use super::{
    agent::{Agent, Said, script},
    *,
};
use crate::{
    guest::{CallError, CommandStream},
    limits,
};

/// What a reader must have heard at the end, if the ring still had all of it.
fn check(events: &[CommandEvent], script: &[Said]) {
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

async fn read(mut stream: CommandStream) -> Result<Vec<CommandEvent>, CallError> {
    let mut events = Vec::new();
    while let Some(event) = stream.next().await {
        events.push(event?);
    }
    Ok(events)
}

fn attach() -> AttachCommandRequest {
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
        let mut agent = Agent { script, first_kept: 0, attached: 0 };
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
async fn a_reader_slower_than_its_queue_is_parked_and_misses_nothing() {
    let script = script(&vec![1; 3 * limits::READER_EVENTS]);
    let mut bench = Bench::new(true, PATIENCE);
    let client = bench.client.clone();
    let mut agent = Agent { script: &script, first_kept: 0, attached: 0 };
    let guest = bench.accept().await;
    let reading = async {
        let mut stream = client.attach(attach()).await.unwrap();
        let mut events = Vec::new();
        while let Some(event) = stream.next().await {
            events.push(event.unwrap());
            // Slower than the guest: it gets several turns for each event.
            for _turn in 0..4 {
                tokio::task::yield_now().await;
            }
        }
        events
    };
    let events = tokio::select! {
        events = soon(reading) => events,
        () = agent.serve(guest, usize::MAX) => panic!("the owner left"),
    };
    check(&events, &script);
    assert!(agent.attached > 1, "the reader was never parked");
}

#[tokio::test]
async fn a_reader_that_stands_still_holds_no_more_than_its_window() {
    let script = script(&vec![32 * 1024; 40]);
    let mut bench = Bench::new(true, PATIENCE);
    let client = bench.client.clone();
    let mut agent = Agent { script: &script, first_kept: 0, attached: 0 };
    let guest = bench.accept().await;
    let standing = async {
        let stream = client.attach(attach()).await.unwrap();
        // Another reader that reads everything shows that the first has had its chance, and holds nobody up.
        let other = read(client.attach(attach()).await.unwrap()).await.unwrap();
        (stream, other)
    };
    let (stream, other) = tokio::select! {
        both = soon(standing) => both,
        () = agent.serve(guest, usize::MAX) => panic!("the owner left"),
    };
    check(&other, &script);
    let most = limits::READER_WINDOW as usize / (32 * 1024) + 1;
    assert!(stream.queued() <= most, "{} events are queued", stream.queued());
}

#[tokio::test]
async fn what_the_ring_has_lost_meanwhile_is_a_gap_and_the_stream_goes_on() {
    let script = script(&[100; 20]);
    let mut bench = Bench::new(true, PATIENCE);
    let client = bench.client.clone();
    let reading = async { read(client.attach(attach()).await.unwrap()).await.unwrap() };
    let serving = async {
        let mut agent = Agent { script: &script, first_kept: 0, attached: 0 };
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
async fn a_reader_that_leaves_detaches_its_subscription() {
    let (bench, mut guest) = Bench::booted().await;
    let (stream, id) =
        soon(async { tokio::join!(bench.client.attach(attach()), guest.accept_attach()) }).await;
    drop(stream);
    assert_eq!(soon(guest.receive()).await, Some(HostFrame::Detach { id }));
}

#[tokio::test]
async fn readers_have_a_limit() {
    let mut bench = Bench::new(true, PATIENCE);
    let client = bench.client.clone();
    let guest = bench.accept().await;
    let mut agent = Agent { script: &[], first_kept: 0, attached: 0 };
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
