//! Sandboxes from create to delete.

use std::collections::BTreeSet;

use serde_json::json;
use space_testkit::sim::Behaviour;

use super::kit::World;
use crate::controllers::sandboxes::reconcile;

#[tokio::test]
async fn a_sandbox_is_created_read_listed_and_deleted() {
    let world = World::start().await;
    let node = world.node().await;
    let created = world.admin.post("/v1/sandboxes?wait=60", &json!({"labels": {"a": "1"}})).await.expect(201);
    let id = created["sandbox"]["id"].as_str().unwrap();
    assert_eq!(created["sandbox"]["state"], "running");
    assert_eq!(created["operation"]["status"], "succeeded");
    assert_eq!(created["sandbox"]["template"]["digest"], format!("sha256:{}", "01".repeat(32)));
    let path = format!("/v1/sandboxes/{id}");
    assert_eq!(world.admin.get(&path).await.expect(200), created["sandbox"]);
    let listed = world.admin.get("/v1/sandboxes?label=a=1").await.expect(200);
    assert_eq!(listed["items"], json!([created["sandbox"]]));
    let deleted = world.admin.delete(&format!("{path}?wait=60")).await.expect(200);
    assert_eq!(deleted["sandbox"]["state"], "deleted");
    assert_eq!(world.admin.get("/v1/sandboxes").await.expect(200)["items"], json!([]));
    assert!(node.reports().is_empty());
    assert_eq!(world.assert_reservations_add_up().await, 0);
    assert_eq!(world.count("triggers").await, 0);
}

#[tokio::test]
async fn without_waiting_the_operation_tells_how_it_goes() {
    let world = World::start().await;
    let _node = world.node().await;
    let created = world.admin.post("/v1/sandboxes", &json!({})).await.expect(202);
    let operation = created["operation"]["id"].as_str().unwrap();
    let done = world.admin.get(&format!("/v1/operations/{operation}?wait=60")).await.expect(200);
    assert_eq!(done["status"], "succeeded");
}

#[tokio::test]
async fn deleting_twice_is_harmless() {
    let world = World::start().await;
    let node = world.node().await;
    let path = format!("/v1/sandboxes/{}?wait=60", world.running().await);
    let first = world.admin.delete(&path).await.expect(200);
    assert_eq!(world.admin.delete(&path).await.expect(200), first);
    assert_eq!(node.calls().1, 1);
}

#[tokio::test]
async fn where_no_node_has_room_nothing_is_written() {
    let world = World::start().await;
    world.admin.post("/v1/sandboxes", &json!({})).await.problem(422, "template_not_found");
    world.publish("base", 1).await;
    world.admin.post("/v1/sandboxes", &json!({})).await.problem(503, "no_capacity");
    let node = world.join("small", 1, 600).await;
    world.admin.post("/v1/sandboxes", &json!({})).await.problem(503, "no_capacity");
    node.heartbeat().await.unwrap();
    world.running().await;
    world.admin.post("/v1/sandboxes", &json!({})).await.problem(503, "no_capacity");
    assert_eq!((world.count("sandboxes").await, world.count("operations").await), (1, 1));
}

#[tokio::test]
async fn concurrent_creates_never_overfill_a_node() {
    let world = World::start().await;
    let node = world.join("node", 8, 1024).await;
    node.heartbeat().await.unwrap();
    world.publish("base", 1).await;
    let creates = (0..12).map(|_| {
        let admin = world.admin.clone();
        async move { admin.post("/v1/sandboxes", &json!({"memory_mib": 256})).await.status }
    });
    let answers = futures::future::join_all(creates).await;
    assert_eq!(answers.iter().filter(|status| **status == 202).count(), 4, "{answers:?}");
    assert_eq!(world.assert_reservations_add_up().await, 1 << 30);
}

#[tokio::test]
async fn a_sandbox_that_can_not_start_fails_with_its_reason() {
    let world = World::start().await;
    let node = world.node().await;
    for (behaviour, reason) in
        [(Behaviour::Fail("agent_silent"), "agent_silent"), (Behaviour::Exhausted, "no_capacity")]
    {
        node.behave(behaviour);
        let answer = world.admin.post("/v1/sandboxes?wait=60", &json!({})).await.expect(202);
        assert_eq!(
            (&answer["sandbox"]["state"], &answer["sandbox"]["reason"]),
            (&json!("failed"), &json!(reason))
        );
        assert_eq!(answer["operation"]["status"], "failed");
        assert_eq!(answer["operation"]["problem"]["code"], "create_failed");
    }
    assert_eq!(world.assert_reservations_add_up().await, 0);
}

#[tokio::test]
async fn a_sandbox_that_hangs_in_creation_can_be_deleted() {
    let world = World::start().await;
    let node = world.node().await;
    node.behave(Behaviour::Hang);
    let created = world.admin.post("/v1/sandboxes", &json!({})).await.expect(202);
    let path = format!("/v1/sandboxes/{}?wait=60", created["sandbox"]["id"].as_str().unwrap());
    world.admin.delete(&path).await.expect(200);
    let operation = format!("/v1/operations/{}", created["operation"]["id"].as_str().unwrap());
    assert_eq!(world.admin.get(&operation).await.expect(200)["status"], "failed");
}

#[tokio::test]
async fn a_controller_run_twice_is_harmless() {
    let world = World::start().await;
    let node = world.node().await;
    let id = world.running().await;
    let before =
        (world.admin.get(&format!("/v1/sandboxes/{id}")).await.expect(200), world.count("events").await);
    for _ in 0..3 {
        reconcile(world.app(), id.parse().unwrap()).await.unwrap();
    }
    let after =
        (world.admin.get(&format!("/v1/sandboxes/{id}")).await.expect(200), world.count("events").await);
    assert_eq!(after, before);
    assert_eq!(node.calls(), (1, 0));
}

#[tokio::test]
async fn pages_neither_repeat_nor_skip_while_sandboxes_are_made() {
    let world = World::start().await;
    let node = world.join("big", 1000, 1 << 20).await;
    node.heartbeat().await.unwrap();
    world.publish("base", 1).await;
    let create = || async {
        let made = world.admin.post("/v1/sandboxes", &json!({"memory_mib": 128})).await.expect(202);
        made["sandbox"]["id"].as_str().unwrap().to_owned()
    };
    let mut first = BTreeSet::new();
    for _ in 0..7 {
        first.insert(create().await);
    }
    let (mut seen, mut path) = (Vec::new(), "/v1/sandboxes?limit=2".to_owned());
    loop {
        let page = world.admin.get(&path).await.expect(200);
        seen.extend(
            page["items"].as_array().unwrap().iter().map(|item| item["id"].as_str().unwrap().to_owned()),
        );
        create().await;
        let Some(cursor) = page["next_cursor"].as_str() else { break };
        path = format!("/v1/sandboxes?limit=2&cursor={cursor}");
    }
    assert!(seen.is_sorted_by(|a, b| a > b), "{seen:?}");
    assert_eq!(seen.into_iter().collect::<BTreeSet<_>>(), first);
}

#[tokio::test]
async fn a_list_can_be_narrowed_by_labels_and_state() {
    let world = World::start().await;
    let _node = world.node().await;
    for labels in [json!({"a": "1"}), json!({"a": "1", "b": "2"}), json!({"a": "2"})] {
        world.admin.post("/v1/sandboxes?wait=60", &json!({"labels": labels})).await.expect(201);
    }
    for (query, count) in [
        ("label=a=1", 2),
        ("label=a=1&label=b=2", 1),
        ("label=a=1&label=a=2", 0),
        ("state=running", 3),
        ("state=deleted", 0),
        ("", 3),
    ] {
        let page = world.admin.get(&format!("/v1/sandboxes?{query}")).await.expect(200);
        assert_eq!(page["items"].as_array().unwrap().len(), count, "{query}");
    }
}

#[tokio::test]
async fn a_tag_that_moves_does_not_move_what_runs() {
    let world = World::start().await;
    let _node = world.node().await;
    let id = world.running().await;
    let second = world.publish("base", 2).await;
    let old = world.admin.get(&format!("/v1/sandboxes/{id}")).await.expect(200);
    let new = world.admin.post("/v1/sandboxes", &json!({})).await.expect(202);
    assert_ne!(old["template"]["digest"], second["digest"]);
    assert_eq!(new["sandbox"]["template"]["digest"], second["digest"]);
    let template = world.admin.get("/v1/templates/base").await.expect(200);
    assert_eq!(template["releases"].as_array().unwrap().len(), 2);
}
