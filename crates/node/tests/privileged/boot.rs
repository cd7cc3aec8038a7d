//! The path itself: boot, repeat, adopt, remove.

use std::fs;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use space_node_proto::common::Phase;
use space_types::SandboxId;
use tonic::Code;

use crate::kit::Kit;

#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_boots_is_repeated_and_leaves_nothing() {
    let mut kit = Kit::started().await;
    let sandbox = SandboxId::new();
    let seen = kit.ensure(sandbox).await.unwrap();
    assert_eq!(seen.phase(), Phase::Running, "{seen:?}");
    assert!(!seen.data_address.is_empty() && !seen.agent_version.is_empty(), "{seen:?}");
    assert_eq!(kit.ensure(sandbox).await.unwrap(), seen, "a repetition answers what is there");

    kit.remove(sandbox, 2).await.unwrap();
    kit.remove(sandbox, 2).await.unwrap();
    assert!(kit.sandbox(sandbox).await.is_none());
    let late = kit.ensure(sandbox).await.unwrap_err();
    assert_eq!(late.code(), Code::FailedPrecondition, "a late command brings nothing back");
    assert!(!kit.registry.heartbeats().is_empty());
    kit.stop();
    kit.nothing_is_left();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_sandbox_survives_kill_9_of_the_daemon_and_a_stop() {
    let mut kit = Kit::started().await;
    let sandbox = SandboxId::new();
    let before = kit.ensure(sandbox).await.unwrap();
    assert_eq!(before.phase(), Phase::Running, "{before:?}");
    let vmm = firecracker_of(&kit);
    for graceful in [false, true] {
        if graceful {
            kit.stop();
        } else {
            kit.kill();
        }
        let heard = kit.registry.heartbeats().len();
        kit.restart().await;
        let after = kit.ensure(sandbox).await.unwrap();
        let first = kit.registry.heartbeat_after(heard).await;
        let said = first.iter().find(|seen| seen.sandbox_id == sandbox.to_string());
        let said = said.expect("control takes what a heartbeat leaves out for lost");
        assert_eq!(said.phase(), Phase::Running);
        assert!(said.sequence > before.sequence, "newer than what control knows");
        assert_eq!(after.phase(), Phase::Running, "{after:?}");
        assert_eq!(after.data_address, before.data_address, "the address lasts");
        assert!(firecracker_of(&kit).iter().any(|pid| vmm.contains(pid)), "the same process");
    }
    kit.remove(sandbox, 1).await.unwrap();
    kit.stop();
    kit.nothing_is_left();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slot_has_a_loopback_and_a_tap_and_no_way_out() {
    let kit = Kit::started().await;
    let sandbox = SandboxId::new();
    kit.ensure(sandbox).await.unwrap();
    let namespace = kit.path("run/netns/0");
    let (links, routes) = std::thread::spawn(move || {
        let file = fs::File::open(namespace).unwrap();
        move_into_link_name_space(rustix::fd::AsFd::as_fd(&file), Some(LinkNameSpaceType::Network)).unwrap();
        let read = |name: &str| fs::read_to_string(format!("/proc/thread-self/net/{name}")).unwrap();
        (read("dev"), read("route"))
    })
    .join()
    .unwrap();
    let mut names: Vec<&str> =
        links.lines().skip(2).map(|line| line.split(':').next().unwrap().trim()).collect();
    names.sort_unstable();
    assert_eq!(names, ["lo", "tap0"]);
    assert_eq!(routes.lines().count(), 1, "a heading alone: {routes}");
    kit.remove(sandbox, 1).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn only_control_may_call_and_only_with_a_current_fence() {
    let kit = Kit::started().await;
    for name in ["spiffe://space/node/x", "spiffe://space/node/x/tenant/y", "spiffe://space/controls"] {
        let mut client = kit.client_as(&kit.caller(name));
        let refused = client.ensure_sandbox(kit.request(SandboxId::new())).await.unwrap_err();
        assert_eq!(refused.code(), Code::PermissionDenied, "{name}");
    }
    let mut request = kit.request(SandboxId::new());
    request.fence = 0;
    assert_eq!(kit.ensure_with(request).await.unwrap_err().code(), Code::FailedPrecondition);
}

/// Pids of what runs as this node's VM users.
fn firecracker_of(kit: &Kit) -> Vec<String> {
    kit.leftovers().processes
}
