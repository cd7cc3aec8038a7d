//! Quotas: exact under concurrency, and given back exactly once.

use reqwest::Method;
use serde_json::{Value, json};
use space_node_proto::common::Phase;
use space_testkit::sim::Behaviour;

use super::kit::{Answer, Client, World};

async fn put(client: &Client, path: &str, body: &Value) -> Answer {
    Client::send(client.request(Method::PUT, path).json(body)).await
}

/// Sets a quota of the first project.
async fn limit(world: &World, body: &Value) {
    let projects = world.admin.get("/v1/projects").await.expect(200);
    let path = format!("/v1/projects/{}/quota", projects["items"][0]["id"].as_str().unwrap());
    put(&world.admin, &path, body).await.expect(200);
}

/// The sums of tenants and of projects are those of their sandboxes.
async fn assert_quotas_add_up(world: &World) {
    const HELD: &str = "select held_sandboxes, held_vcpus, held_memory, held_disk from ";
    for (table, column) in [("tenants", "tenant_id"), ("projects", "project_id")] {
        let sql = format!(
            "select count(*) from (({HELD} {table} order by id) except all \
             (select count(*) filter (where s.reserved), coalesce(sum(s.vcpus) filter (where s.reserved), 0), \
               coalesce(sum(s.memory_bytes) filter (where s.reserved), 0), \
               coalesce(sum(s.disk_bytes) filter (where s.state <> 'deleted'), 0) \
              from {table} t left join sandboxes s on s.{column} = t.id group by t.id)) wrong"
        );
        let (wrong,): (i64,) =
            sqlx::query_as(sqlx::AssertSqlSafe(sql)).fetch_one(world.app().store.pool()).await.unwrap();
        assert_eq!(wrong, 0, "{table}");
    }
}

#[tokio::test]
async fn a_full_quota_is_named_and_nothing_is_made() {
    let world = World::start().await;
    let _node = world.node().await;
    for (quota, resource, used, asked) in [
        (json!({"sandboxes": 1}), "sandboxes", 1, 1),
        (json!({"vcpus": 2}), "vcpus", 1, 2),
        (json!({"memory_mib": 1000}), "memory_mib", 512, 1024),
        (json!({"disk_mib": 2050}), "disk_mib", 2048, 2048),
    ] {
        if resource == "sandboxes" {
            world.running().await;
        }
        limit(&world, &quota).await;
        let refused = world.admin.post("/v1/sandboxes", &json!({"vcpus": 2, "memory_mib": 1024})).await;
        refused.problem(409, "quota_exceeded");
        let limit = quota[resource].clone();
        let told =
            json!({"of": "project", "resource": resource, "limit": limit, "used": used, "asked": asked});
        assert_eq!(refused.body["quota"], told);
    }
    assert_eq!(world.count("sandboxes").await, 1);
    assert_quotas_add_up(&world).await;
    limit(&world, &json!({})).await;
    world.running().await;
}

#[tokio::test]
async fn of_many_that_want_the_last_of_a_quota_one_gets_it() {
    let world = World::start().await;
    let _node = world.node().await;
    limit(&world, &json!({"sandboxes": 1})).await;
    let creates = (0..8).map(|_| {
        let admin = world.admin.clone();
        async move { admin.post("/v1/sandboxes", &json!({"memory_mib": 128})).await.status }
    });
    let answers = futures::future::join_all(creates).await;
    assert_eq!(answers.iter().filter(|status| **status == 202).count(), 1, "{answers:?}");
    assert!(answers.iter().all(|status| [202, 409].contains(status)), "{answers:?}");
    assert_quotas_add_up(&world).await;
}

#[tokio::test]
async fn a_tenants_quota_comes_from_the_configuration_until_an_admin_sets_one() {
    let database = space_testkit::postgres::Database::create();
    let world = World::with(database.url(), "[quota]\nsandboxes = 1\n").await;
    let _node = world.node().await;
    world.running().await;
    let refused = world.admin.post("/v1/sandboxes", &json!({})).await;
    refused.problem(409, "quota_exceeded");
    assert_eq!(refused.body["quota"]["of"], "tenant");
    let tenants = world.admin.get("/v1/tenants").await.expect(200);
    let path = format!("/v1/tenants/{}/quota", tenants["items"][0]["id"].as_str().unwrap());
    put(&world.admin, &path, &json!({"sandboxes": 2})).await.expect(200);
    world.running().await;
    let quota = world.admin.get("/v1/quota").await.expect(200);
    assert_eq!(quota["tenant"]["sandboxes"], json!({"limit": 2, "used": 2}));
    assert_eq!(quota["tenant"]["disk_mib"], json!({"used": 4096}));
    put(&world.admin, &path, &json!({"vcpus": -1})).await.problem(422, "invalid_field");
    put(&world.admin, &path, &json!({"vcpus": u64::MAX})).await.problem(422, "invalid_field");
}

#[tokio::test]
async fn whatever_happens_to_sandboxes_the_sums_are_right_and_end_at_nothing() {
    let world = World::start().await;
    let node = world.node().await;
    let mut seed = 7_u64;
    let mut random = |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    };
    let mut made = Vec::new();
    for _ in 0..40 {
        match random(6) {
            0 | 1 => {
                let created = world.admin.post("/v1/sandboxes?wait=60", &json!({"memory_mib": 256})).await;
                if created.status < 300 {
                    made.push(created.body["sandbox"]["id"].as_str().unwrap().to_owned());
                }
            }
            2 => {
                node.behave(Behaviour::Fail("agent_silent"));
                let created = world.admin.post("/v1/sandboxes?wait=60", &json!({"memory_mib": 128})).await;
                node.behave(Behaviour::Run);
                if created.status < 300 {
                    made.push(created.body["sandbox"]["id"].as_str().unwrap().to_owned());
                }
            }
            3 if !made.is_empty() => {
                let id = &made[usize::try_from(random(made.len() as u64)).unwrap()];
                // Some have ended or are deleted: then the node has nothing to say.
                drop(node.change(id, Phase::Stopped, "guest_shutdown").await);
            }
            4 => {
                // The node is lost, and back.
                for lost in [true, false] {
                    for id in &made {
                        world.app().store.sandbox_set_node_lost(id.parse().unwrap(), lost).await.unwrap();
                    }
                    assert_quotas_add_up(&world).await;
                }
            }
            _ if !made.is_empty() => {
                let id = &made[usize::try_from(random(made.len() as u64)).unwrap()];
                world.admin.delete(&format!("/v1/sandboxes/{id}?wait=60")).await.expect(200);
            }
            _ => {}
        }
        assert_quotas_add_up(&world).await;
        node.heartbeat().await.unwrap();
    }
    for id in &made {
        world.admin.delete(&format!("/v1/sandboxes/{id}?wait=60")).await.expect(200);
    }
    assert_quotas_add_up(&world).await;
    world.assert_reservations_add_up().await;
    let none = json!({"used": 0});
    let quota = world.admin.get("/v1/quota").await.expect(200)["tenant"].clone();
    assert_eq!(quota, json!({"sandboxes": none, "vcpus": none, "memory_mib": none, "disk_mib": none}));
}
