//! From no connection to a sandbox that is ready, and all the ways not to get there.

use space_guest_proto::message::{
    Notice, NoticeKind, PersonaliseReply, Refusal, RefusalCode, SetClockReply, SignalCommandRequest,
};
use space_node_proto::worker::{Hint, HintKind};

use super::*;
use crate::guest::CallError;

#[tokio::test]
async fn a_fresh_guest_is_personalised_in_one_message_and_is_ready() {
    let mut bench = Bench::new(true, PATIENCE);
    let mut guest = bench.accept().await;
    guest.greet().await;
    let from_worker::Kind::Ready(ready) = bench.told().await else { panic!("not ready") };
    assert_eq!((ready.agent_version.as_str(), ready.generation), ("1.2.3", GENERATION));
    assert!(bench.answers(&mut guest).await);
}

#[tokio::test]
async fn a_guest_that_was_personalised_before_gets_its_clock_alone() {
    let mut bench = Bench::new(false, PATIENCE);
    let mut guest = bench.accept().await;
    guest.greet_again().await;
    let (id, Request::SetClock(_)) = guest.request().await else { panic!("no clock") };
    guest.send(&GuestFrame::reply(id, SetClockReply::default())).await;
    assert!(matches!(bench.told().await, from_worker::Kind::Ready(_)));
}

#[tokio::test]
async fn a_guest_that_was_adopted_before_it_was_personalised_is_personalised() {
    let mut bench = Bench::new(false, PATIENCE);
    let mut guest = bench.accept().await;
    guest.greet().await;
    assert!(matches!(bench.told().await, from_worker::Kind::Ready(_)));
}

#[tokio::test]
async fn a_port_that_is_closed_at_first_is_tried_again() {
    let mut bench = Bench::new(true, PATIENCE);
    for _attempt in 0..3 {
        drop(bench.raw_connection().await);
    }
    bench.accept().await.greet().await;
    assert!(matches!(bench.told().await, from_worker::Kind::Ready(_)));
}

#[tokio::test]
async fn a_guest_that_never_answers_is_silent_at_the_deadline() {
    let mut bench = Bench::new(true, Duration::from_millis(100));
    bench.reachable.store(false, Ordering::Relaxed);
    assert_eq!(bench.unready().await, UnreadyReason::Silent);
    let error = bench.client.call(GetCommandRequest { command_id: "c".to_owned() }).await.unwrap_err();
    assert!(matches!(error, CallError::Ended(crate::guest::Fate::Silent)), "{error}");
}

#[tokio::test]
async fn an_agent_that_takes_the_connection_and_says_nothing_is_silent() {
    let mut bench = Bench::new(true, Duration::from_millis(100));
    let _mute = bench.accept().await;
    assert_eq!(bench.unready().await, UnreadyReason::Silent);
}

#[tokio::test]
async fn an_agent_of_other_versions_is_told_apart() {
    let mut bench = Bench::new(true, PATIENCE);
    let mut guest = bench.accept().await;
    guest.send(&GuestFrame::Hello(Hello { protocol_min: 99, protocol_max: 99, ..hello() })).await;
    assert_eq!(bench.unready().await, UnreadyReason::Version);

    let mut bench = Bench::new(true, PATIENCE);
    let mut guest = bench.accept().await;
    let refusal = Refusal { code: RefusalCode::Version.into(), message: String::new() };
    guest.send(&GuestFrame::Refusal { id: 0, refusal }).await;
    assert_eq!(bench.unready().await, UnreadyReason::Version);
}

#[tokio::test]
async fn lies_before_the_sandbox_is_ready_are_protocol_errors() {
    let wrong_role = GuestFrame::Hello(Hello { role: Role::Host.into(), ..hello() });
    let early = GuestFrame::reply(1, PersonaliseReply::default());
    let refused = GuestFrame::Refusal { id: 1, refusal: Refusal::default() };
    let refused = [encoded(&GuestFrame::Hello(hello())), encoded(&refused)].concat();
    let named = |version: &str| encoded(&GuestFrame::Hello(Hello { version: version.to_owned(), ..hello() }));
    let (wild, long) = (named("1.0\u{1b}[2J"), named(&"1".repeat(65)));
    for lie in [encoded(&wrong_role), encoded(&early), refused, wild, long] {
        let mut bench = Bench::new(true, PATIENCE);
        let mut guest = bench.accept().await;
        guest.write(&lie).await;
        assert_eq!(bench.unready().await, UnreadyReason::Protocol);
    }
    let mut bench = Bench::new(true, PATIENCE);
    let mut firecracker = bench.raw_connection().await;
    firecracker.write_all(b"OK yes\n").await.unwrap();
    assert_eq!(bench.unready().await, UnreadyReason::Protocol);
}

#[tokio::test]
async fn a_notice_reaches_noded_before_the_guest_hears_that_it_was_taken() {
    let (mut bench, mut guest) = Bench::booted().await;
    guest.send(&GuestFrame::Notice(Notice { kind: NoticeKind::Reboot.into() })).await;
    assert_eq!(soon(guest.receive()).await, Some(HostFrame::NoticeTaken));
    let from_worker::Kind::Hint(Hint { kind, .. }) = bench.told.try_recv().unwrap() else {
        panic!("no hint")
    };
    assert_eq!(kind, i32::from(HintKind::Reboot));
}

#[tokio::test]
async fn a_lost_connection_repeats_questions_and_not_signals() {
    let (mut bench, mut guest) = Bench::booted().await;
    let client = bench.client.clone();
    let get =
        tokio::spawn(async move { client.call(GetCommandRequest { command_id: "c".to_owned() }).await });
    guest.request().await;
    let client = bench.client.clone();
    let signal = tokio::spawn(async move {
        client.call(SignalCommandRequest { command_id: "c".to_owned(), signal: 15 }).await
    });
    guest.request().await;
    drop(guest);

    let mut guest = bench.accept().await;
    guest.greet_again().await;
    let (id, request) = guest.request().await;
    assert!(matches!(request, Request::GetCommand(_)), "{request:?}");
    guest.send(&GuestFrame::reply(id, GetCommandReply { command: Some(running("c")) })).await;
    assert!(get.await.unwrap().is_ok());
    assert!(matches!(signal.await.unwrap(), Err(CallError::Lost)));
}

#[tokio::test]
async fn the_text_of_a_refusal_is_made_printable() {
    let (bench, mut guest) = Bench::booted().await;
    let ask = bench.client.call(GetCommandRequest { command_id: "c".to_owned() });
    let refuse = async {
        let (id, _request) = guest.request().await;
        let message = format!("\u{1b}]0;owned\u{7}{}", "x".repeat(2000));
        let refusal = Refusal { code: RefusalCode::NotFound.into(), message };
        guest.send(&GuestFrame::Refusal { id, refusal }).await;
    };
    let (reply, ()) = tokio::join!(ask, refuse);
    let Err(CallError::Refused { code: RefusalCode::NotFound, message }) = reply else { panic!("{reply:?}") };
    assert!(message.starts_with("\\u{1b}]0;owned\\u{7}xxx") && message.len() <= 256, "{message}");
}
