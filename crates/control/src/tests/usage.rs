//! Usage: exact over random changes, split at midnight, and kept.

use serde_json::{Value, json};

use super::kit::World;

const DAY: i64 = 86_400_000;

/// The first project's row is taken back in time, as if its last change had been at `at`.
async fn last_change(world: &World, at: i64) {
    sqlx::query("update projects set usage_at = $1")
        .bind(at)
        .execute(world.app().store.pool())
        .await
        .unwrap();
}

async fn now(world: &World) -> i64 {
    let (now,): (i64,) = sqlx::query_as("select now_ms()").fetch_one(world.app().store.pool()).await.unwrap();
    now
}

async fn items(world: &World) -> Vec<Value> {
    world.admin.get("/v1/usage").await.expect(200)["items"].as_array().unwrap().clone()
}

fn sum(items: &[Value], field: &str) -> i64 {
    items.iter().map(|item| item[field].as_i64().unwrap()).sum()
}

#[tokio::test]
async fn what_is_held_over_midnights_is_split_by_day_and_not_counted_twice() {
    let world = World::start().await;
    let _node = world.node().await;
    let id = world.running().await;
    let midnight = now(&world).await / DAY * DAY;
    last_change(&world, midnight - DAY - 10_000).await;
    let read = items(&world).await;
    assert_eq!(read[0]["sandbox_seconds"], 10);
    assert_eq!(read[0]["memory_mib_seconds"], 10 * 512);
    assert_eq!(read[0]["disk_mib_seconds"], 10 * 2048);
    assert_eq!(read[1]["sandbox_seconds"], 86_400);
    assert_eq!(read.len(), 3);
    world.admin.delete(&format!("/v1/sandboxes/{id}?wait=60")).await.expect(200);
    let after = items(&world).await;
    assert_eq!(after[..2], read[..2]);
    assert_eq!(sum(&after, "creates"), 1);
    // Nothing is held any more: time adds nothing, whenever the last change was.
    last_change(&world, midnight - 5 * DAY).await;
    assert_eq!(items(&world).await, after);
}

#[tokio::test]
async fn random_changes_and_steps_of_time_add_up() {
    let world = World::start().await;
    let _node = world.node().await;
    let (mut seed, mut made, mut expected, mut creates) = (11_u64, Vec::new(), 0, 0);
    let began = now(&world).await;
    for _ in 0..24 {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let random = seed >> 33;
        if !made.is_empty() && random % 3 == 0 {
            let id: String = made.swap_remove(usize::try_from(random).unwrap() % made.len());
            world.admin.delete(&format!("/v1/sandboxes/{id}?wait=60")).await.expect(200);
        } else if made.len() < 6 {
            made.push(world.running().await);
            creates += 1;
        }
        let step = i64::try_from(random % 200_000).unwrap();
        sqlx::query("update projects set usage_at = usage_at - $1")
            .bind(step * 1000)
            .execute(world.app().store.pool())
            .await
            .unwrap();
        expected += step * i64::try_from(made.len()).unwrap();
        let read = items(&world).await;
        // Real time passes too, at most six sandboxes of it, and each day rounds down.
        let passed = (now(&world).await - began) / 1000 * 6 + 6;
        let found = sum(&read, "sandbox_seconds");
        assert!((expected - 31..=expected + passed).contains(&found), "{found} of {expected}");
        assert_eq!(sum(&read, "creates"), creates);
    }
}

#[tokio::test]
async fn a_deleted_project_keeps_its_days_and_others_see_none() {
    let world = World::start().await;
    let _node = world.node().await;
    let project = world.admin.post("/v1/projects", &json!({"name": "p"})).await.expect(201);
    let body = json!({"project_id": project["id"]});
    let made = world.admin.post("/v1/sandboxes?wait=60", &body).await.expect(201);
    let id = made["sandbox"]["id"].as_str().unwrap();
    world.admin.delete(&format!("/v1/sandboxes/{id}?wait=60")).await.expect(200);
    let own = project["id"].as_str().unwrap();
    assert_eq!(world.admin.delete(&format!("/v1/projects/{own}")).await.status, 204);
    let path = format!("/v1/usage?project_id={own}");
    let kept = world.admin.get(&path).await.expect(200);
    assert_eq!(kept["items"][0]["creates"], 1);
    let other = world.tenant("other").await;
    assert_eq!(other.get(&path).await.expect(200)["items"], json!([]));
    for (query, field) in [("from=x", "from"), ("to=2026-02-30", "to"), ("from=2020-01-01", "from")] {
        let refused = world.admin.get(&format!("/v1/usage?{query}")).await;
        refused.problem(422, "invalid_field");
        assert!(refused.body.to_string().contains(&format!("\"{field}\"")), "{}", refused.body);
    }
}
