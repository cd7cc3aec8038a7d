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
