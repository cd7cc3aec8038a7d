//! Keys: what they may hand on, how they end, how their secrets change.

use reqwest::Method;
use serde_json::{Value, json};

use super::kit::{Client, World};

/// The secret of a new key, made with `maker`'s.
async fn made(maker: &Client, body: &Value) -> Client {
    let made = maker.post("/v1/keys", body).await.expect(201);
    maker.with_key(made["secret"].as_str().unwrap())
}

/// The id of a client's own key.
fn id(client: &Client) -> String {
    format!("key_{}", client.key.split('_').nth(1).unwrap())
}

async fn rotated(by: &Client, key: &str, overlap: u64) -> Client {
    let path = format!("/v1/keys/{key}/rotate");
    let answer = by.post(&path, &json!({"overlap_seconds": overlap})).await.expect(200);
    by.with_key(answer["secret"].as_str().unwrap())
}

#[tokio::test]
async fn a_key_does_what_its_scopes_say_and_is_told_what_it_lacks() {
    let world = World::start().await;
    let _node = world.node().await;
    let reader = made(&world.admin, &json!({"name": "r", "scopes": ["sandboxes:read"]})).await;
    let sandbox = world.running().await;
    reader.get(&format!("/v1/sandboxes/{sandbox}")).await.expect(200);
    let refused = reader.post("/v1/sandboxes", &json!({})).await;
    refused.problem(403, "forbidden");
    assert_eq!(refused.body["detail"], "this takes a key with the scope `sandboxes:write`");
    reader.delete(&format!("/v1/sandboxes/{sandbox}")).await.problem(403, "forbidden");
    // Not even what they sent is looked at.
    reader.post(&format!("/v1/sandboxes/{sandbox}/exec"), &json!({"x": 1})).await.problem(403, "forbidden");
    world.reaches(&sandbox, "running").await;
}

#[tokio::test]
async fn a_key_hands_on_no_more_than_it_has() {
    let world = World::start().await;
    let other = world.tenant("other").await;
    let some = made(&other, &json!({"name": "k", "scopes": ["keys", "commands"]})).await;
    let made_by_some = made(&some, &json!({"name": "child"})).await;
    made_by_some.get("/v1/keys").await.expect(200);
    made_by_some.get("/v1/sandboxes").await.problem(403, "forbidden");
    for body in [
        json!({"name": "k", "scopes": ["commands", "sandboxes:read"]}),
        json!({"name": "k", "role": "admin"}),
        json!({"name": "k", "tenant_id": space_types::TenantId::new()}),
    ] {
        some.post("/v1/keys", &body).await.problem(403, "forbidden");
    }
    // The secret of a key is all that the key may do.
    some.post(&format!("/v1/keys/{}/rotate", id(&other)), &json!({})).await.problem(403, "forbidden");
    some.post(&format!("/v1/keys/{}/rotate", id(&world.admin)), &json!({})).await.problem(404, "not_found");
    some.delete(&format!("/v1/keys/{}", id(&world.admin))).await.problem(404, "not_found");
    let listed = some.get("/v1/keys").await.expect(200);
    assert_eq!(listed["items"].as_array().unwrap().len(), 3, "{listed}");
    other.get("/v1/sandboxes").await.expect(200);
}

#[tokio::test]
async fn an_admins_key_is_rotated_and_revoked_by_admins_alone() {
    let world = World::start().await;
    let member = made(&world.admin, &json!({"name": "m"})).await;
    let path = format!("/v1/keys/{}", id(&world.admin));
    member.delete(&path).await.problem(403, "forbidden");
    member.post(&format!("{path}/rotate"), &json!({})).await.problem(403, "forbidden");
    world.admin.get("/v1/nodes").await.expect(200);
}

#[tokio::test]
async fn a_key_ends_and_so_does_all_that_it_made() {
    let world = World::start().await;
    let short = made(&world.admin, &json!({"name": "s", "expires_in_seconds": 3600})).await;
    let child = short.post("/v1/keys", &json!({"name": "c"})).await.expect(201);
    let keys = world.admin.get("/v1/keys").await.expect(200);
    assert_eq!(child["key"]["expires_at"], keys["items"][1]["expires_at"]);
    let longer = json!({"name": "l", "expires_in_seconds": 7200});
    short.post("/v1/keys", &longer).await.problem(403, "forbidden");
    // A secret for a key without an end would outlive this one too.
    let path = format!("/v1/keys/{}/rotate", id(&made(&world.admin, &json!({"name": "t"})).await));
    short.post(&path, &json!({})).await.problem(403, "forbidden");
    assert_eq!(world.count("api_keys").await, 4);
    let child = short.with_key(child["secret"].as_str().unwrap());
    sqlx::query("update api_keys set expires_at = now_ms() where expires_at is not null")
        .execute(world.app().store.pool())
        .await
        .unwrap();
    child.get("/v1/sandboxes").await.problem(401, "unauthorized");
    let rotate = format!("/v1/keys/{}/rotate", id(&child));
    world.admin.post(&rotate, &json!({})).await.problem(409, "conflict");
}

#[tokio::test]
async fn while_a_rotation_lasts_both_secrets_are_good() {
    let world = World::start().await;
    let first = made(&world.admin, &json!({"name": "k", "scopes": ["sandboxes:read"]})).await;
    let second = rotated(&world.admin, &id(&first), 3600).await;
    assert_eq!(id(&first), id(&second));
    for client in [&first, &second] {
        client.get("/v1/sandboxes").await.expect(200);
    }
    let third = rotated(&world.admin, &id(&first), 0).await;
    third.get("/v1/sandboxes").await.expect(200);
    for client in [&first, &second] {
        client.get("/v1/sandboxes").await.problem(401, "unauthorized");
    }
    third.post("/v1/sandboxes", &json!({})).await.problem(403, "forbidden");
    let key = &world.admin.get("/v1/keys").await.expect(200)["items"][0];
    assert!(key["rotated_at"].is_string() && key["former_secret_until"].is_string(), "{key}");
}

#[tokio::test]
async fn a_repeated_rotation_makes_no_other_secret_and_shows_none() {
    let world = World::start().await;
    let first = made(&world.admin, &json!({"name": "k"})).await;
    let path = format!("/v1/keys/{}/rotate", id(&first));
    let body = json!({"overlap_seconds": 0});
    let rotated = world.admin.post_with_key(&path, &body, "k").await.expect(200);
    let again = world.admin.post_with_key(&path, &body, "k").await;
    assert_eq!(again.headers["idempotency-replayed"], "true");
    let again = again.expect(200);
    assert_eq!((&again["key"], again.get("secret")), (&rotated["key"], None));
    world.admin.with_key(rotated["secret"].as_str().unwrap()).get("/v1/sandboxes").await.expect(200);
}

#[tokio::test]
async fn a_new_secret_is_good_on_every_replica_at_once() {
    let database = space_testkit::postgres::Database::create();
    let one = World::with(database.url(), "").await;
    let dir = tempfile::tempdir().unwrap();
    std::fs::copy(one.dir.path().join("admin.key"), dir.path().join("admin.key")).unwrap();
    let other = World::again(database.url(), "", dir).await;
    let first = made(&one.admin, &json!({"name": "k"})).await;
    other.admin.with_key(&first.key).get("/v1/sandboxes").await.expect(200);
    let second = rotated(&one.admin, &id(&first), 0).await;
    other.admin.with_key(&second.key).get("/v1/sandboxes").await.expect(200);
}

#[tokio::test]
async fn use_is_written_down_at_most_once_a_minute() {
    let world = World::start().await;
    let member = made(&world.admin, &json!({"name": "k"})).await;
    let last_used = async || {
        member.get("/v1/sandboxes").await.expect(200);
        world.app().key_use_flush().await.unwrap();
        world.admin.get("/v1/keys").await.expect(200)["items"][0]["last_used_at"].clone()
    };
    let first = last_used().await;
    assert!(first.is_string());
    assert_eq!(last_used().await, first);
    sqlx::query("update api_keys set last_used_at = last_used_at - 60001")
        .execute(world.app().store.pool())
        .await
        .unwrap();
    assert!(last_used().await.as_str() >= first.as_str());
}

#[tokio::test]
async fn streams_of_a_revoked_key_end() {
    let world = World::with(
        space_testkit::postgres::Database::create().url(),
        "[http]\nlisten = '127.0.0.1:0'\nkey_recheck = '50ms'\n",
    )
    .await;
    let member = made(&world.admin, &json!({"name": "k"})).await;
    let theirs = member.stream(member.request(Method::GET, "/v1/events")).await;
    let mut ours = world.admin.stream(world.admin.request(Method::GET, "/v1/events")).await;
    world.admin.delete(&format!("/v1/keys/{}", id(&member))).await.expect(200);
    assert!(theirs.rest().await.is_empty());
    let _node = world.node().await;
    world.running().await;
    assert_eq!(ours.next().await.unwrap().0, "sandbox.created");
}
