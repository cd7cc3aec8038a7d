//! What goes wrong around the control plane, and what must not come of it.

use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::json;
use space_testkit::{postgres, sim::Behaviour};

use super::kit::{World, output};

#[tokio::test]
async fn a_crash_between_commit_and_node_call_is_healed() {
    let world = World::start().await;
    let node = world.node().await;
    let reach = world.app().authenticate(&world.admin.key).await.unwrap().reach();
    let owner = crate::store::quotas::Owner {
        tenant_id: reach.tenant_id,
        project_id: crate::store::projects::default_project(reach.tenant_id),
    };
    let request = space_api::sandboxes::CreateSandbox::default();
    let (reference, class) = (request.template.parse().unwrap(), request.machine_class().unwrap());
    // The transaction alone, as a process leaves it that dies right after.
    world.app().store.sandbox_create(owner, &request, &reference, class, None).await.unwrap();
    let id =
        world.admin.get("/v1/sandboxes").await.expect(200)["items"][0]["id"].as_str().unwrap().to_owned();
    world.app().store.trigger_all_due().await.unwrap();
    world.reaches(&id, "running").await;
    world.app().store.sandbox_delete(reach, id.parse().unwrap()).await.unwrap();
    world.app().store.trigger_all_due().await.unwrap();
    world.reaches(&id, "deleted").await;
    assert!(node.reports().is_empty());
    assert_eq!((world.count("triggers").await, world.assert_reservations_add_up().await), (0, 0));
}

#[tokio::test]
async fn a_restarted_control_plane_goes_on_where_it_stopped() {
    let database = postgres::Database::create();
    let world = World::with(database.url(), "").await;
    let node = world.node().await;
    node.behave(Behaviour::Unavailable);
    let created = world.admin.post("/v1/sandboxes", &json!({})).await.expect(202);
    let dir = world.stop().await;
    node.behave(Behaviour::Run);
    let world = World::again(database.url(), "", dir).await;
    // The old registry's address is gone with it, so the worker's certificate comes from nowhere; the node's side
    // of that is not what is tested here.
    node.behave(Behaviour::Fail("node_error"));
    world.reaches(created["sandbox"]["id"].as_str().unwrap(), "failed").await;
}

#[tokio::test]
async fn an_outage_of_the_database_is_answered_soon_and_recovered_from_and_ends_no_stream() {
    let postgres = postgres::Server::start().unwrap();
    let world = World::with(&postgres.create_database().unwrap(), "").await;
    let node = world.node().await;
    let sandbox = world.running().await;
    let path = format!("/v1/sandboxes/{sandbox}/exec");
    let request = world.admin.request(Method::POST, &path).json(&json!({"argv": ["cat"], "stdin": true}));
    let mut events = world.admin.stream(request).await;
    let command = events.next().await.unwrap().1["command"]["id"].as_str().unwrap().to_owned();
    events.next().await.unwrap();
    let stdin = format!("/v1/sandboxes/{sandbox}/commands/{command}/stdin");
    world.admin.post(&stdin, &json!({"offset": 0, "data": "aGk="})).await.expect(200);
    postgres.stop().unwrap();
    // The key's second is over for sure when this is refused.
    let begun = Instant::now();
    let refused = loop {
        let answer = world.admin.get("/v1/sandboxes").await;
        if answer.status != 200 {
            break answer;
        }
    };
    refused.problem(503, "unavailable");
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    assert_eq!(output(&[events.next().await.unwrap()], "stdout"), "hi");
    postgres.restart().unwrap();
    let end = Instant::now() + Duration::from_secs(30);
    while world.admin.get("/v1/sandboxes").await.status != 200 {
        assert!(Instant::now() < end, "it does not recover");
    }
    node.heartbeat().await.unwrap();
    assert_eq!(world.reaches(&sandbox, "running").await["id"], sandbox);
    world.admin.post(&stdin, &json!({"offset": 2, "data": "aGk=", "eof": true})).await.expect(200);
    assert_eq!(output(&events.rest().await, "stdout"), "hi");
}

#[tokio::test]
async fn at_shutdown_streams_end_and_nothing_hangs() {
    let world = World::start().await;
    let _node = world.node().await;
    let sandbox = world.running().await;
    let request = world.admin.request(Method::POST, &format!("/v1/sandboxes/{sandbox}/exec"));
    let mut command = world.admin.stream(request.json(&json!({"argv": ["sleep"]}))).await;
    command.next().await.unwrap();
    let log = world.admin.stream(world.admin.request(Method::GET, "/v1/events")).await;
    world.tasks.shutdown();
    let begun = Instant::now();
    assert_eq!(command.rest().await.last().unwrap().1["problem"]["code"], "shutting_down");
    log.rest().await;
    world.stop().await;
    assert!(begun.elapsed() < Duration::from_secs(15));
}
