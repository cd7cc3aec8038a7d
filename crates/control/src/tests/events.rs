//! The event log and operations as streams.

use reqwest::Method;
use serde_json::json;
use space_node_proto::common::Phase;

use super::kit::World;

async fn kinds(world: &World, path: &str, after: &str, count: usize) -> Vec<(String, String)> {
    let request = world.admin.request(Method::GET, path).header("Last-Event-ID", after);
    let mut events = world.admin.stream(request).await;
    let mut seen = Vec::new();
    while seen.len() < count {
        let (kind, _, id) = events.next().await.unwrap();
        seen.push((kind, id.unwrap()));
    }
    seen
}

#[tokio::test]
async fn a_sandboxes_life_is_in_the_log_in_order() {
    let world = World::start().await;
    let _node = world.node().await;
    let id = world.running().await;
    world.admin.delete(&format!("/v1/sandboxes/{id}?wait=60")).await.expect(200);
    let seen = kinds(&world, &format!("/v1/sandboxes/{id}/events"), "0", 6).await;
    let names: Vec<&str> = seen.iter().map(|(kind, _)| kind.as_str()).collect();
    assert_eq!(
        names,
        [
            "sandbox.created",
            "sandbox.running",
            "operation.finished",
            "sandbox.deleting",
            "sandbox.deleted",
            "operation.finished"
        ]
    );
    assert!(seen.is_sorted_by_key(|(_, id)| id.parse::<i64>().unwrap()));
}

#[tokio::test]
async fn a_reader_resumes_behind_the_last_event_it_has() {
    let world = World::start().await;
    let _node = world.node().await;
    world.running().await;
    let all = kinds(&world, "/v1/events", "0", 3).await;
    let rest = kinds(&world, "/v1/events", &all[0].1, 2).await;
    assert_eq!(rest, all[1..]);
}

#[tokio::test]
async fn without_a_position_a_stream_begins_with_what_happens_next() {
    let world = World::start().await;
    let node = world.node().await;
    let id = world.running().await;
    let mut events = world.admin.stream(world.admin.request(Method::GET, "/v1/events")).await;
    node.change(&id, Phase::Failed, "guest_panic").await.unwrap();
    // Nothing of what was settled before; that it was created is long ago.
    let (kind, data, _) = loop {
        let event = events.next().await.unwrap();
        assert_ne!(event.0, "sandbox.created");
        if event.0 == "sandbox.failed" {
            break event;
        }
    };
    assert_eq!((kind.as_str(), &data["data"]["reason"]), ("sandbox.failed", &json!("guest_panic")));
    assert_eq!(data["sandbox_id"], id);
}

#[tokio::test]
async fn an_event_that_commits_late_is_not_skipped() {
    let world = World::start().await;
    let _node = world.node().await;
    let id = world.running().await;
    let tenant = world.app().authenticate(&world.admin.key).await.unwrap().tenant_id;
    // A writer that has its number and dawdles.
    let mut slow = world.app().store.pool().begin().await.unwrap();
    sqlx::query("insert into events (id, tenant_id, project_id, sandbox_id, kind, data) \
                 select gen_random_uuid(), $1, $1, gen_random_uuid(), 'sandbox.created', '{}' from pg_current_xact_id()")
        .bind(tenant.uuid())
        .execute(&mut *slow)
        .await
        .unwrap();
    world.admin.delete(&format!("/v1/sandboxes/{id}?wait=60")).await.expect(200);
    let request = world.admin.request(Method::GET, "/v1/events").header("Last-Event-ID", "0");
    let mut events = world.admin.stream(request).await;
    for _ in 0..3 {
        events.next().await.unwrap();
    }
    slow.commit().await.unwrap();
    let sequence = |event: &(String, serde_json::Value, Option<String>)| {
        event.2.clone().unwrap().parse::<i64>().unwrap()
    };
    let (late, after) = (events.next().await.unwrap(), events.next().await.unwrap());
    assert_eq!(late.0, "sandbox.created");
    assert!(sequence(&late) < sequence(&after));
    assert_eq!(after.0, "sandbox.deleting");
}

#[tokio::test]
async fn an_operation_can_be_followed_to_its_end() {
    let world = World::start().await;
    let _node = world.node().await;
    let created = world.admin.post("/v1/sandboxes", &json!({})).await.expect(202);
    let path = format!("/v1/operations/{}/events", created["operation"]["id"].as_str().unwrap());
    let events = world.admin.stream(world.admin.request(Method::GET, &path)).await.rest().await;
    assert_eq!(events.last().unwrap().1["status"], "succeeded");
    assert!(events.iter().all(|event| event.0 == "operation"));
}

#[tokio::test]
async fn another_replicas_changes_arrive_here() {
    let database = space_testkit::postgres::Database::create();
    let one = World::with(database.url(), "").await;
    let _node = one.node().await;
    let key = std::fs::read(one.dir.path().join("admin.key")).unwrap();
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("admin.key"), key).unwrap();
    let other = World::again(database.url(), "", dir).await;
    let there = other.admin.with_key(&one.admin.key);
    let mut events = there.stream(there.request(Method::GET, "/v1/events")).await;
    let id = one.running().await;
    assert_eq!(events.next().await.unwrap().1["sandbox_id"], id);
}
