//! Keys as such: secrets, revocation, the first one. Who may do what is in `authorisation.rs`.

use super::kit::World;

#[tokio::test]
async fn a_foreign_sandbox_and_one_that_never_was_can_not_be_told_apart() {
    let world = World::start().await;
    let _node = world.node().await;
    let other = world.tenant("other").await;
    let ours = world.running().await;
    let never = space_types::SandboxId::new().to_string();
    let mut answers = Vec::new();
    for id in [&ours, &never] {
        let mut body = other.get(&format!("/v1/sandboxes/{id}")).await.expect(404);
        body.as_object_mut().unwrap().remove("request_id");
        answers.push(body);
    }
    assert_eq!(answers[0], answers[1]);
    other.delete(&format!("/v1/sandboxes/{ours}")).await.problem(404, "not_found");
    world.reaches(&ours, "running").await;
}

#[tokio::test]
async fn a_revoked_key_is_refused_at_once() {
    let world = World::start().await;
    let member = world.tenant("t").await;
    member.get("/v1/sandboxes").await.expect(200);
    let keys = world.admin.get("/v1/keys").await.expect(200);
    let id = keys["items"][0]["id"].as_str().unwrap();
    for _ in 0..2 {
        let revoked = world.admin.delete(&format!("/v1/keys/{id}")).await.expect(200);
        assert!(revoked["revoked_at"].is_string());
    }
    member.get("/v1/sandboxes").await.problem(401, "unauthorized");
}

#[tokio::test]
async fn a_key_revoked_by_another_replica_is_refused_within_a_second() {
    let database = space_testkit::postgres::Database::create();
    let one = World::with(database.url(), "").await;
    let member = one.tenant("t").await;
    let key = std::fs::read(one.dir.path().join("admin.key")).unwrap();
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("admin.key"), key).unwrap();
    let other = World::again(database.url(), "", dir).await;
    let there = other.admin.with_key(&member.key);
    there.get("/v1/sandboxes").await.expect(200);
    let keys = one.admin.get("/v1/keys").await.expect(200);
    one.admin.delete(&format!("/v1/keys/{}", keys["items"][0]["id"].as_str().unwrap())).await.expect(200);
    // What is promised is a time, so a time is waited for.
    tokio::time::sleep(std::time::Duration::from_millis(1050)).await;
    there.get("/v1/sandboxes").await.problem(401, "unauthorized");
}

#[tokio::test]
async fn a_wrong_secret_of_a_real_key_is_refused() {
    let world = World::start().await;
    let key = world.admin.key.clone();
    let wrong = format!("{}{}", &key[..key.len() - 43], "A".repeat(43));
    world.admin.with_key(&wrong).get("/v1/sandboxes").await.problem(401, "unauthorized");
}

#[tokio::test]
async fn the_first_key_is_written_once_for_its_owner_alone() {
    use std::os::unix::fs::PermissionsExt as _;
    let database = space_testkit::postgres::Database::create();
    let world = World::with(database.url(), "").await;
    let path = world.dir.path().join("admin.key");
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let before = std::fs::read(&path).unwrap();
    let again = World::again(database.url(), "", world.stop().await).await;
    assert_eq!(std::fs::read(again.dir.path().join("admin.key")).unwrap(), before);
    assert_eq!(again.count("tenants").await, 1);
}
