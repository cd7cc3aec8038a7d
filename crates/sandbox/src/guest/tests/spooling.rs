//! Spoolers: how far they run ahead, how many there are, and that they outlive readers and workers.

use futures::StreamExt;
use space_guest_proto::message::{
    AttachCommandRequest, CommandSpec, CreateCommandReply, Exit, Refusal, RefusalCode,
};
use space_node_proto::commands::{CommandEvent, command_event::Kind};

use super::{
    agent::{Agent, Said, script},
    resume::{attach, check, read},
    *,
};
use crate::{guest::CallError, limits};

const PIECE: usize = 16 * 1024;

/// Serves every connection while `body` runs.
async fn beside<T>(bench: &mut Bench, agent: &mut Agent<'_>, body: impl Future<Output = T>) -> T {
    let serving = async {
        loop {
            let guest = bench.accept().await;
            agent.serve(guest, usize::MAX).await;
        }
    };
    tokio::select! {
        done = soon(body) => done,
        () = serving => unreachable!("it serves for ever"),
    }
}

fn of(command_id: &str) -> AttachCommandRequest {
    AttachCommandRequest { command_id: command_id.to_owned(), ..attach() }
}

/// As much as a spool and a half, nobody having read any of it.
fn more_than_a_spool() -> Vec<Said> {
    script(&vec![PIECE; SMALL.command as usize / PIECE * 3 / 2])
}

#[tokio::test]
async fn an_only_reader_slower_than_the_guest_misses_nothing() {
    let script = script(&vec![PIECE; SMALL.command as usize / PIECE * 4]);
    let mut bench = Bench::new(true, PATIENCE);
    let client = bench.client.clone();
    let mut agent = Agent::new(&script);
    let reading = async {
        let mut stream = client.attach(attach()).await.unwrap();
        let mut events = Vec::new();
        while let Some(event) = stream.next().await {
            events.push(event.unwrap());
            // Slower than the guest: it gets several turns for each event.
            for _turn in 0..8 {
                tokio::task::yield_now().await;
            }
        }
        events
    };
    let events = beside(&mut bench, &mut agent, reading).await;
    check(&events, &script);
    assert!(agent.attached > 1, "the spooler was never parked");
}

#[tokio::test]
async fn a_reader_that_stands_still_holds_one_read_and_nobody_up() {
    let script = script(&[PIECE; 20]);
    let mut bench = Bench::new(true, PATIENCE);
    let client = bench.client.clone();
    let reading = async {
        let mut standing = client.attach(attach()).await.unwrap();
        let other = read(client.attach(attach()).await.unwrap()).await.unwrap();
        standing.next().await.unwrap().unwrap();
        (standing.held(), other)
    };
    let (held, other) = beside(&mut bench, &mut Agent::new(&script), reading).await;
    check(&other, &script);
    assert!(held <= limits::READ / PIECE, "{held} events are held");
}

#[tokio::test]
async fn a_guest_that_nobody_reads_is_left_at_a_full_spool_and_asked_again_by_the_next_reader() {
    let script = more_than_a_spool();
    let mut bench = Bench::new(true, PATIENCE);
    let (client, spool) = (bench.client.clone(), Arc::clone(&bench.spool));
    let mut agent = Agent::new(&script);
    let left = Arc::clone(&agent.left);
    let reading = async {
        drop(client.attach(attach()).await.unwrap());
        left.notified().await;
        let full = size(&spool);
        assert!(full <= SMALL.command + 1024 && full > SMALL.command - SMALL.window, "{full}");
        read(client.attach(attach()).await.unwrap()).await.unwrap()
    };
    let events = beside(&mut bench, &mut agent, reading).await;
    check(&events, &script);
}

#[tokio::test]
async fn what_the_ring_lost_while_the_spool_was_full_is_a_gap_in_its_place() {
    let script = more_than_a_spool();
    let mut bench = Bench::new(true, PATIENCE);
    let client = bench.client.clone();
    let last = script.len() as u64;
    let mut agent = Agent::new(&script);
    let left = Arc::clone(&agent.left);
    let guest = bench.accept().await;
    let filling = async {
        drop(client.attach(attach()).await.unwrap());
        left.notified().await;
    };
    tokio::select! {
        () = soon(filling) => {}
        () = agent.serve(guest, usize::MAX) => panic!("the owner left"),
    }
    // The owner leaves the old connection and finds a ring that went on.
    agent.first_kept = last - 2;
    let events =
        beside(&mut bench, &mut agent, async { read(client.attach(attach()).await.unwrap()).await.unwrap() })
            .await;
    let gaps: Vec<_> = events.iter().filter(|event| matches!(event.kind, Some(Kind::Gap(_)))).collect();
    let [CommandEvent { kind: Some(Kind::Gap(gap)), .. }] = gaps[..] else { panic!("{} gaps", gaps.len()) };
    assert!(gap.first_lost > SMALL.command / PIECE as u64 / 2 && gap.last_lost == last - 3, "{gap:?}");
    assert_eq!(events.last().unwrap().sequence, last);
}

#[tokio::test]
async fn a_reader_that_leaves_leaves_the_spooler_and_the_next_asks_the_guest_nothing() {
    let (bench, mut guest) = Bench::booted().await;
    let (stream, _id) =
        soon(async { tokio::join!(bench.client.attach(attach()), guest.accept_attach()) }).await;
    drop(stream);
    let again = soon(bench.client.attach(attach())).await;
    assert!(again.is_ok());
    let (_id, request) = {
        let client = bench.client.clone();
        tokio::spawn(async move { client.call(GetCommandRequest { command_id: "c".to_owned() }).await });
        guest.request().await
    };
    assert!(matches!(request, Request::GetCommand(_)), "{request:?}");
}

#[tokio::test]
async fn a_second_specification_of_a_spooled_command_is_the_guests_to_compare() {
    let (bench, mut guest) = Bench::booted().await;
    let exec = || AttachCommandRequest { create: Some(CommandSpec::default()), ..attach() };
    let first = soon(async { tokio::join!(bench.client.attach(exec()), guest.accept_attach()) }).await;
    assert!(first.0.is_ok());
    let same = async {
        let (id, Request::CreateCommand(_)) = guest.request().await else { panic!("not asked") };
        guest.send(&GuestFrame::reply(id, CreateCommandReply { command: Some(running("c")) })).await;
        let (id, Request::CreateCommand(_)) = guest.request().await else { panic!("not asked again") };
        let refusal = Refusal { code: RefusalCode::AlreadyExists.into(), message: String::new() };
        guest.send(&GuestFrame::Refusal { id, refusal }).await;
    };
    let attaching = async {
        let same = bench.client.attach(exec()).await;
        (same, bench.client.attach(exec()).await)
    };
    let ((same, other), ()) = soon(async { tokio::join!(attaching, same) }).await;
    assert!(same.is_ok());
    assert!(matches!(other, Err(CallError::Refused { code: RefusalCode::AlreadyExists, .. })), "{other:?}");
}

#[tokio::test]
async fn as_many_commands_as_a_guest_remembers_are_spooled_though_subscriptions_are_fewer() {
    let script = script(&[10; 3]);
    let running = &script[..script.len() - 1];
    let mut bench = Bench::new(true, PATIENCE);
    let client = bench.client.clone();
    let mut agent = Agent::new(running);
    let reading = async {
        let ids: Vec<_> = (0..limits::SPOOLS).map(|index| format!("c{index}")).collect();
        for id in &ids {
            drop(client.attach(of(id)).await.unwrap());
        }
        for id in &ids {
            let stream = client.attach(of(id)).await.unwrap();
            let events: Vec<_> = stream.take(running.len()).map(Result::unwrap).collect().await;
            check(&events, running);
        }
    };
    beside(&mut bench, &mut agent, reading).await;
    assert!(agent.most <= limits::SUBSCRIPTIONS, "{} subscriptions at a time", agent.most);
}

#[tokio::test]
async fn a_sandbox_over_its_budget_forgets_the_output_of_the_oldest_exited_commands() {
    let script = script(&vec![PIECE; SMALL.command as usize / PIECE - 1]);
    let commands = SMALL.sandbox / SMALL.command + 4;
    let mut bench = Bench::new(true, PATIENCE);
    let (client, spool) = (bench.client.clone(), Arc::clone(&bench.spool));
    let mut agent = Agent::new(&script);
    let reading = async {
        for index in 0..commands {
            let events = read(client.attach(of(&format!("c{index}"))).await.unwrap()).await.unwrap();
            check(&events, &script);
            assert!(size(&spool) <= SMALL.sandbox + SMALL.window);
        }
        // The newest is there; the oldest has to come from the guest again.
        for index in [commands - 1, 0] {
            read(client.attach(of(&format!("c{index}"))).await.unwrap()).await.unwrap();
        }
    };
    beside(&mut bench, &mut agent, reading).await;
    assert_eq!(agent.attached as u64, commands + 1);
}

#[tokio::test]
async fn another_worker_goes_on_with_the_spool_before_anybody_reads() {
    let script = script(&[PIECE; 20]);
    let mut bench = Bench::new(true, PATIENCE);
    let (client, spool) = (bench.client.clone(), Arc::clone(&bench.spool));
    let mut agent = Agent::new(&script[..12]);
    let reading = async {
        let mut stream = client.attach(attach()).await.unwrap();
        let mut events = Vec::new();
        while events.len() < 12 {
            events.push(stream.next().await.unwrap().unwrap());
        }
        events.truncate(7);
        events
    };
    let mut events = beside(&mut bench, &mut agent, reading).await;
    drop(bench);
    soon(client.ended_wholly()).await;

    let mut bench = Bench::on(spool, false, PATIENCE);
    let client = bench.client.clone();
    // The ring holds nothing that was spooled already.
    let mut agent = Agent { first_kept: 13, listed: Some(vec![running("c")]), ..Agent::new(&script) };
    let taken = Arc::clone(&agent.taken);
    let resumed = AttachCommandRequest { after_sequence: 7, ..attach() };
    let reading = async {
        taken.notified().await;
        read(client.attach(resumed).await.unwrap()).await.unwrap()
    };
    events.extend(beside(&mut bench, &mut agent, reading).await);
    check(&events, &script);
    assert_eq!(agent.attached, 1);
}

#[tokio::test]
async fn the_spool_of_a_command_that_the_guest_has_forgotten_goes_at_the_next_start() {
    let script = script(&[PIECE; 3]);
    let mut bench = Bench::new(true, PATIENCE);
    let (client, spool) = (bench.client.clone(), Arc::clone(&bench.spool));
    let reading = async { read(client.attach(attach()).await.unwrap()).await.unwrap() };
    beside(&mut bench, &mut Agent::new(&script), reading).await;
    drop(bench);
    soon(client.ended_wholly()).await;
    assert!(size(&spool) > 0);

    let mut bench = Bench::on(Arc::clone(&spool), false, PATIENCE);
    let other =
        Command { state: CommandState::Exited.into(), exit: Some(Exit::default()), ..running("another") };
    let mut agent = Agent { listed: Some(vec![other]), ..Agent::new(&script) };
    let gone = async {
        while size(&spool) > 0 {
            tokio::task::yield_now().await;
        }
    };
    beside(&mut bench, &mut agent, gone).await;
    assert_eq!(agent.attached, 0);
}

fn size(directory: &tempfile::TempDir) -> u64 {
    let entries = std::fs::read_dir(directory.path()).unwrap();
    entries.map(|entry| entry.unwrap().metadata().map_or(0, |found| found.len())).sum()
}
