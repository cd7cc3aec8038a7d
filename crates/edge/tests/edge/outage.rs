//! Control or a worker is away.

use std::sync::atomic::Ordering;

use crate::kit::{Kit, guest, mark, within};

#[tokio::test]
async fn many_who_ask_at_once_ask_control_once() {
    let kit = Kit::new().await;
    let port = kit.port(guest::mirror().await, true);
    let asked = (0..50).map(|_| kit.get(port, "/", &[]));
    for response in within(futures::future::join_all(asked)).await {
        assert_eq!(response.status(), 200);
    }
    assert_eq!(kit.control.resolved.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn an_outage_of_control_is_told_of_what_is_not_known() {
    let kit = Kit::new().await;
    let (known, unknown) = (kit.port(guest::mirror().await, true), kit.port(guest::mirror().await, true));
    assert_eq!(kit.get(known, "/", &[]).await.status(), 200);
    kit.control.away.store(true, Ordering::Relaxed);
    assert_eq!(kit.get(known, "/", &[]).await.status(), 200);
    let response = kit.get(unknown, "/", &[]).await;
    assert_eq!((response.status().as_u16(), mark(&response)), (503, "edge_unavailable"));
}

/// However long it took, what control said is what a visitor is told.
#[tokio::test]
async fn a_slow_answer_is_an_answer() {
    let kit = Kit::new().await;
    kit.control.thinking.store(1500, Ordering::Relaxed);
    let (public, private) = (kit.port(guest::mirror().await, true), kit.port(guest::mirror().await, false));
    let mut nowhere = private;
    nowhere.0.sandbox_id = space_types::SandboxId::new();
    let asked = [public, private, nowhere].map(|port| kit.get(port, "/", &[]));
    let [public, private, nowhere] = within(futures::future::join_all(asked)).await.try_into().unwrap();
    assert_eq!(public.status(), 200);
    assert_eq!((private.status().as_u16(), nowhere.status().as_u16()), (401, 401));
}

/// Names that strangers make up cost control a few questions at a time, and hold up nobody who has a token.
#[tokio::test]
async fn a_crowd_of_strangers_asks_little() {
    let kit = Kit::new().await;
    kit.control.thinking.store(3000, Ordering::Relaxed);
    let port = kit.port(guest::mirror().await, false);
    let token = kit.token(port);
    let strangers = (0..30).map(|_| {
        let mut made_up = port;
        made_up.0.sandbox_id = space_types::SandboxId::new();
        kit.get(made_up, "/", &[])
    });
    let bearer = async {
        // Behind them all.
        while kit.control.resolved.load(Ordering::Relaxed) < 8 {
            tokio::task::yield_now().await;
        }
        let response = kit.get(port, "/", &[("x-space-port-token", &token)]).await;
        assert_eq!(response.status(), 200);
        assert_eq!(kit.control.resolved.load(Ordering::Relaxed), 9);
    };
    let (answers, ()) = within(futures::future::join(futures::future::join_all(strangers), bearer)).await;
    let refused = answers.iter().filter(|answer| answer.status() == 503).count();
    assert_eq!((refused, answers.len() - refused), (22, 8), "who waited for too long is told so");
}

#[tokio::test]
async fn a_worker_that_moved_is_found_again() {
    let kit = Kit::new().await;
    let port = kit.port(guest::mirror().await, true);
    assert_eq!(kit.get(port, "/", &[]).await.status(), 200);
    within(kit.worker.restart()).await;
    kit.control.set(port.0, kit.route(true, 1));
    assert_eq!(kit.get(port, "/", &[]).await.status(), 200);
    assert_eq!(kit.control.resolved.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn a_new_route_is_authorised_anew() {
    let kit = Kit::new().await;
    let port = kit.port(guest::mirror().await, true);
    assert_eq!(kit.get(port, "/", &[]).await.status(), 200);
    within(kit.worker.restart()).await;
    kit.control.set(port.0, kit.route(false, 1));
    let response = kit.get(port, "/", &[]).await;
    assert_eq!((response.status().as_u16(), mark(&response)), (401, "port_unauthorized"));
}
