//! Nodes: joining, leases, reports.

use rcgen::{CertificateParams, KeyPair};
use serde_json::json;
use space_node_proto::{
    common::{ObservedSandbox, Phase},
    registry::{
        Capacity, EnrolReply, EnrolRequest, HeartbeatRequest, RenewRequest, SignWorkerRequest,
        registry_client::RegistryClient,
    },
};
use space_testkit::sim::{Behaviour, SimNode, channel};
use tonic::{
    Code, Status,
    transport::{Channel, Identity},
};

use super::kit::{PATIENCE, World};
use crate::controllers::leases;

const SHORT_LEASE: &str = "[registry]\nlisten = '127.0.0.1:0'\nlease = '3s'\nlease_margin = '1s'\n";

/// With leases that end soon, for tests that let them.
async fn short_leases() -> World {
    let database = space_testkit::postgres::Database::create();
    let world = World::with_registry(database.url(), SHORT_LEASE).await;
    world.publish("base", 1).await;
    world
}

#[tokio::test]
async fn a_join_token_is_good_once() {
    let world = World::start().await;
    let options = world.options("one", 1, 512).await;
    SimNode::join(options.clone()).await.unwrap();
    let again = space_testkit::sim::SimOptions { name: "two".into(), ..options };
    let error = SimNode::join(again).await.err().unwrap();
    assert!(error.to_string().contains("join token"), "{error:#}");
    let names = world.admin.get("/v1/nodes").await.expect(200);
    assert_eq!(names["items"].as_array().unwrap().len(), 1);
}

/// The answer was lost on its way, or the node died with it in its hands.
#[tokio::test]
async fn the_same_token_and_key_are_answered_again() {
    let world = World::start().await;
    let (token, key) = (token(&world).await, KeyPair::generate().unwrap());
    let first = enrol(&world, &token, "one", &key).await.unwrap();
    let again = enrol(&world, &token, "one", &key).await.unwrap();
    assert_eq!(again.node_id, first.node_id);
    heartbeat(&world, &key, &again).await.unwrap();
    assert_eq!(world.count("nodes").await, 1);
    for (name, key) in [("one", &KeyPair::generate().unwrap()), ("two", &key)] {
        let refused = enrol(&world, &token, name, key).await.unwrap_err();
        assert_eq!(refused.code(), Code::Unauthenticated);
    }
    sqlx::query("update join_tokens set expires_at = 0").execute(world.app().store.pool()).await.unwrap();
    assert_eq!(enrol(&world, &token, "one", &key).await.unwrap_err().code(), Code::Unauthenticated);
}

#[tokio::test]
async fn a_fresh_token_takes_over_the_name_of_a_node_that_was_never_heard() {
    let world = World::start().await;
    let (lost, key) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
    let (first, second) = (token(&world).await, token(&world).await);
    let unheard = enrol(&world, &first, "local", &lost).await.unwrap();
    let joined = enrol(&world, &second, "local", &key).await.unwrap();
    assert_ne!(joined.node_id, unheard.node_id);
    heartbeat(&world, &key, &joined).await.unwrap();
    let refused = heartbeat(&world, &lost, &unheard).await.unwrap_err();
    assert_eq!(refused.code(), Code::NotFound, "what it got is worth nothing now");
    assert_eq!(enrol(&world, &first, "local", &lost).await.unwrap_err().code(), Code::Unauthenticated);
    assert_eq!(world.count("nodes").await, 1);
}

#[tokio::test]
async fn a_node_that_was_heard_gives_its_name_to_its_own_key_alone() {
    let world = World::start().await;
    let key = KeyPair::generate().unwrap();
    let joined = enrol(&world, &token(&world).await, "local", &key).await.unwrap();
    heartbeat(&world, &key, &joined).await.unwrap();
    let fresh = token(&world).await;
    let other = enrol(&world, &fresh, "local", &KeyPair::generate().unwrap()).await.unwrap_err();
    assert_eq!(other.code(), Code::AlreadyExists);
    // A refusal leaves the token good; a node whose certificate has expired comes back with it.
    let back = enrol(&world, &fresh, "local", &key).await.unwrap();
    assert_eq!(back.node_id, joined.node_id);
    heartbeat(&world, &key, &back).await.unwrap();
}

#[tokio::test]
async fn a_request_that_does_not_parse_leaves_the_token_good() {
    let world = World::start().await;
    let (token, key) = (token(&world).await, KeyPair::generate().unwrap());
    let request = EnrolRequest { csr_der: b"nonsense".to_vec(), ..request(&token, "one", &key) };
    let refused = stranger(&world).enrol(request).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    enrol(&world, &token, "one", &key).await.unwrap();
}

#[tokio::test]
async fn an_expired_or_made_up_token_joins_nothing() {
    let world = World::start().await;
    let options = world.options("one", 1, 512).await;
    sqlx::query("update join_tokens set expires_at = 0").execute(world.app().store.pool()).await.unwrap();
    assert!(SimNode::join(options.clone()).await.is_err());
    for token in ["", "space_join_x", &format!("space_join_{}", "A".repeat(43)), &"x".repeat(100_000)] {
        let options = space_testkit::sim::SimOptions { join_token: token.to_owned(), ..options.clone() };
        assert!(SimNode::join(options).await.is_err());
    }
}

#[tokio::test]
async fn without_a_certificate_only_joining_is_possible() {
    let world = World::start().await;
    let renewal = stranger(&world).renew(RenewRequest { csr_der: Vec::new() }).await;
    assert_eq!(renewal.unwrap_err().code(), Code::Unauthenticated);
}

#[tokio::test]
async fn a_node_gets_no_worker_certificate_for_a_tenant_that_is_not_there() {
    let world = World::start().await;
    let node = world.node().await;
    let request =
        SignWorkerRequest { tenant_id: space_types::TenantId::new().to_string(), csr_der: Vec::new() };
    let error = node.registry().sign_worker(request).await.unwrap_err();
    assert_eq!(error.code(), Code::PermissionDenied);
}

#[tokio::test]
async fn one_nodes_word_on_anothers_sandbox_counts_for_nothing() {
    let world = World::start().await;
    let _node = world.node().await;
    let other = world.join("node-2", 1, 128).await;
    other.heartbeat().await.unwrap();
    let id = world.running().await;
    let lie = ObservedSandbox {
        sandbox_id: id.clone(),
        generation: 1,
        sequence: 99,
        phase: Phase::Failed.into(),
        reason: "guest_panic".into(),
        data_address: "127.0.0.1:1".into(),
        ..ObservedSandbox::default()
    };
    other.report(vec![lie]).await.unwrap();
    assert_eq!(world.admin.get(&format!("/v1/sandboxes/{id}")).await.expect(200)["state"], "running");
    // The liar is told to remove what it should not have; the real one is left alone.
    wait_until(|| other.calls().1 == 1).await;
    assert_eq!(world.admin.get(&format!("/v1/sandboxes/{id}")).await.expect(200)["state"], "running");
}

#[tokio::test]
async fn an_older_report_changes_nothing() {
    let world = World::start().await;
    let node = world.node().await;
    let id = world.running().await;
    let old = node.reports();
    node.change(&id, Phase::Stopped, "guest_shutdown").await.unwrap();
    let stopped = world.reaches(&id, "stopped").await;
    assert_eq!(stopped["reason"], "guest_shutdown");
    let events = world.count("events").await;
    node.report(old.clone()).await.unwrap();
    node.heartbeat_of("boot-1", old).await.unwrap();
    assert_eq!(world.admin.get(&format!("/v1/sandboxes/{id}")).await.expect(200), stopped);
    assert_eq!(world.count("events").await, events);
    assert_eq!(world.assert_reservations_add_up().await, 0);
}

#[tokio::test]
async fn a_report_from_a_generation_that_was_never_asked_for_is_dropped() {
    let world = World::start().await;
    let node = world.node().await;
    let id = world.running().await;
    let mut report = node.reports().remove(0);
    report.generation = 7;
    report.phase = Phase::Failed.into();
    report.reason = "vmm_died".into();
    node.report(vec![report]).await.unwrap();
    assert_eq!(world.admin.get(&format!("/v1/sandboxes/{id}")).await.expect(200)["state"], "running");
}

#[tokio::test]
async fn reports_that_make_no_sense_do_no_harm() {
    let world = World::start().await;
    let node = world.node().await;
    let id = world.running().await;
    let good = node.reports().remove(0);
    let broken = [
        ObservedSandbox { sandbox_id: "../etc".into(), ..good.clone() },
        ObservedSandbox { phase: 99, sequence: 9, ..good.clone() },
        ObservedSandbox {
            phase: Phase::Failed.into(),
            reason: "\0<script>".into(),
            sequence: 9,
            ..good.clone()
        },
        ObservedSandbox { sequence: u64::MAX, message: "\0".repeat(10_000), ..good },
    ];
    node.report(broken.to_vec()).await.unwrap();
    assert_eq!(world.admin.get(&format!("/v1/sandboxes/{id}")).await.expect(200)["state"], "running");
}

#[tokio::test]
async fn a_silent_node_is_lost_after_its_lease_and_margin_and_back_when_heard() {
    let world = short_leases().await;
    let node = world.join("node", 8, 1024).await;
    node.heartbeat().await.unwrap();
    let id = world.running().await;
    // Before the lease and the margin are over nothing is lost.
    node.heartbeat().await.unwrap();
    leases::pass(world.app(), true).await.unwrap();
    assert_eq!(world.admin.get(&format!("/v1/sandboxes/{id}")).await.expect(200)["state"], "running");
    let lost = world.reaches(&id, "failed").await;
    assert_eq!(lost["reason"], "node_lost");
    assert_eq!(world.assert_reservations_add_up().await, 0);
    world.admin.post("/v1/sandboxes", &json!({})).await.problem(503, "no_capacity");
    let fence = node.heartbeat().await.unwrap().fence;
    let back = world.reaches(&id, "running").await;
    assert_eq!(back["reason"], serde_json::Value::Null);
    assert!(fence >= 2);
    assert_eq!(world.assert_reservations_add_up().await, 512 << 20);
}

#[tokio::test]
async fn a_sandbox_of_a_lost_node_can_be_deleted_and_is_removed_when_the_node_is_back() {
    let world = short_leases().await;
    let node = world.join("node", 8, 1024).await;
    node.heartbeat().await.unwrap();
    let id = world.running().await;
    world.reaches(&id, "failed").await;
    world.admin.delete(&format!("/v1/sandboxes/{id}?wait=60")).await.expect(200);
    assert_eq!(node.reports().len(), 1);
    node.heartbeat().await.unwrap();
    wait_until(|| node.reports().is_empty()).await;
}

#[tokio::test]
async fn a_sandbox_that_a_node_forgot_has_failed_and_is_not_made_anew() {
    let world = World::start().await;
    let node = world.node().await;
    let id = world.running().await;
    node.lose(&id);
    node.heartbeat().await.unwrap();
    world.reaches(&id, "failed").await;
    assert_eq!(node.calls().0, 1);
}

/// A node that dies in the middle of a boot undoes it at its next start. Nobody was told that the sandbox runs, so
/// nothing is lost by making it again.
#[tokio::test]
async fn a_sandbox_that_a_node_forgot_while_it_booted_is_made_again() {
    let world = World::start().await;
    let node = world.node().await;
    node.behave(Behaviour::Unavailable);
    let created = world.admin.post("/v1/sandboxes", &json!({})).await.expect(202);
    let id = created["sandbox"]["id"].as_str().unwrap().to_owned();
    let booting = ObservedSandbox {
        sandbox_id: id.clone(),
        generation: 1,
        phase: Phase::Booting.into(),
        ..ObservedSandbox::default()
    };
    node.report(vec![booting]).await.unwrap();
    let missed = world.app().store.node_sandboxes(node.id().parse().unwrap()).await.unwrap();
    assert_eq!(missed, []);
    node.heartbeat().await.unwrap();
    node.behave(Behaviour::Run);
    let end = tokio::time::Instant::now() + PATIENCE;
    while world.admin.get(&format!("/v1/sandboxes/{id}")).await.expect(200)["state"] != "running" {
        assert!(tokio::time::Instant::now() < end, "it is not made again");
        node.heartbeat().await.unwrap();
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
}

#[tokio::test]
async fn another_boot_gets_another_fence() {
    let world = World::start().await;
    let node = world.node().await;
    let first = node.heartbeat().await.unwrap().fence;
    assert_eq!(node.heartbeat().await.unwrap().fence, first);
    assert_eq!(node.heartbeat_of("boot-2", Vec::new()).await.unwrap().fence, first + 1);
}

async fn wait_until(holds: impl Fn() -> bool) {
    let end = tokio::time::Instant::now() + PATIENCE;
    while !holds() {
        assert!(tokio::time::Instant::now() < end, "it never came to that");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn what_a_microvm_takes_beyond_its_guest_counts() {
    let world = World::start().await;
    world.publish("base", 1).await;
    // Room for two guests of 512 MiB, and for one with what its VMM needs.
    let options = world.options("one", 8, 1100).await;
    let options = space_testkit::sim::SimOptions { overhead_bytes: 64 << 20, ..options };
    let node = SimNode::join(options).await.unwrap();
    node.heartbeat().await.unwrap();
    let first = world.running().await;
    world.admin.post("/v1/sandboxes", &json!({})).await.problem(503, "no_capacity");
    assert_eq!(world.assert_reservations_add_up().await, (512 + 64) << 20);
    world.admin.delete(&format!("/v1/sandboxes/{first}?wait=60")).await.expect(200);
    assert_eq!(world.assert_reservations_add_up().await, 0);
    world.running().await;
}

#[tokio::test]
async fn a_sandbox_that_its_node_refuses_goes_to_another() {
    let world = World::start().await;
    let full = world.node().await;
    full.behave(Behaviour::Exhausted);
    let other = world.join("node-2", 4, 2048).await;
    other.heartbeat().await.unwrap();
    let id = world.running().await;
    let (tried, _) = full.calls();
    assert!(tried > 0, "the node with the most room is asked first");
    assert_eq!((full.reports().len(), other.reports().len()), (0, 1), "{id}");
    assert_eq!(world.assert_reservations_add_up().await, 512 << 20);
    let nodes = world.admin.get("/v1/nodes").await.expect(200);
    let used = |name: &str| {
        let node = nodes["items"].as_array().unwrap().iter().find(|node| node["name"] == name).unwrap();
        node["used"]["memory_mib"].clone()
    };
    assert_eq!((used("node-1"), used("node-2")), (json!(0), json!(512)));
}

async fn token(world: &World) -> String {
    let token = world.admin.post("/v1/join-tokens", &json!({})).await.expect(201);
    token["token"].as_str().unwrap().to_owned()
}

/// The registry as one sees it who has no certificate.
fn stranger(world: &World) -> RegistryClient<Channel> {
    let authority = world.app().authority.certificates.authority_pem();
    RegistryClient::new(channel(world.server.registry_address(), authority, None).unwrap())
}

fn request(token: &str, name: &str, key: &KeyPair) -> EnrolRequest {
    EnrolRequest {
        join_token: token.to_owned(),
        csr_der: CertificateParams::default().serialize_request(key).unwrap().der().to_vec(),
        name: name.to_owned(),
        address: "127.0.0.1:1".to_owned(),
    }
}

async fn enrol(world: &World, token: &str, name: &str, key: &KeyPair) -> Result<EnrolReply, Status> {
    Ok(stranger(world).enrol(request(token, name, key)).await?.into_inner())
}

/// The first of a node that has joined so.
async fn heartbeat(world: &World, key: &KeyPair, joined: &EnrolReply) -> Result<(), Status> {
    let identity = Identity::from_pem(&joined.certificate_pem, key.serialize_pem());
    let registry = channel(world.server.registry_address(), &joined.authority_pem, Some(identity)).unwrap();
    let beat = HeartbeatRequest {
        boot_id: "boot-1".to_owned(),
        address: "127.0.0.1:1".to_owned(),
        capacity: Some(Capacity::default()),
        sandboxes: Vec::new(),
        version: "test".to_owned(),
    };
    RegistryClient::new(registry).heartbeat(beat).await.map(|_| ())
}
