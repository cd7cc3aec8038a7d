//! Who may do what. The cases are derived from the OpenAPI document: an operation that is added has a case, or the
//! test fails.

use reqwest::Method;
use serde_json::{Value, json};

use super::kit::{Client, World};

/// A body that passes every check of an operation, so that only authorisation can refuse it.
fn body(operation: &str, tenant: &str) -> Option<Value> {
    Some(match operation {
        "sandbox_create" | "join_token_create" | "key_rotate" => json!({}),
        "command_create" | "exec" => json!({"argv": ["true"]}),
        "command_stdin" => json!({"offset": 0}),
        "command_signal" => json!({"signal": "INT"}),
        "template_publish" => json!({"name": "t", "digest": format!("sha256:{}", "07".repeat(32)),
            "location": "file:///x", "size_bytes": 4096}),
        "tenant_create" => json!({"name": "another"}),
        "key_create" => json!({"tenant_id": tenant, "name": "k"}),
        "sandbox_list" | "sandbox_get" | "sandbox_delete" | "sandbox_events" | "operation_get"
        | "operation_events" | "events" | "command_list" | "command_get" | "command_attach"
        | "template_list" | "template_get" | "tenant_list" | "key_list" | "key_revoke" | "node_list" => {
            Value::Null
        }
        _ => return None,
    })
}

/// What a member of another tenant is answered for things of ours.
fn foreign(operation: &str) -> u16 {
    match operation {
        "template_publish" | "tenant_create" | "tenant_list" | "key_create" | "node_list"
        | "join_token_create" => 403,
        "sandbox_create" => 202,
        "sandbox_list" | "key_list" | "events" | "template_list" | "template_get" => 200,
        _ => 404,
    }
}

struct Case {
    operation: String,
    method: Method,
    path: String,
    body: Value,
}

async fn cases(world: &World) -> Vec<Case> {
    let sandbox = world.running().await;
    let created =
        world.admin.post(&format!("/v1/sandboxes/{sandbox}/commands"), &json!({"argv": ["true"]})).await;
    let command = created.expect(201)["command"]["id"].as_str().unwrap().to_owned();
    let operation = world.admin.delete(&format!("/v1/sandboxes/{}", world.running().await)).await.body;
    let operation = operation["operation"]["id"].as_str().unwrap().to_owned();
    let keys = world.admin.get("/v1/keys").await.expect(200);
    let ours = keys["items"].as_array().unwrap().last().unwrap();
    let (key, tenant) = (&ours["id"], &ours["tenant_id"]);
    let document: Value = serde_json::from_str(&crate::openapi_json()).unwrap();
    let mut cases = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, described) in item.as_object().unwrap() {
            let operation_id = described["operationId"].as_str().unwrap();
            let path = path
                .replace("{sandbox_id}", &sandbox)
                .replace("{command_id}", &command)
                .replace("{operation_id}", &operation)
                .replace("{key_id}", key.as_str().unwrap())
                .replace("{name}", "base");
            assert!(!path.contains('{'), "{operation_id} has a parameter without a value here: {path}");
            let body = body(operation_id, tenant.as_str().unwrap());
            cases.push(Case {
                operation: operation_id.to_owned(),
                method: method.to_uppercase().parse().unwrap(),
                path,
                body: body.unwrap_or_else(|| panic!("{operation_id} has no authorisation case")),
            });
        }
    }
    cases
}

/// Status and, for a refusal, its code; of a stream only the beginning is read.
async fn status(client: &Client, case: &Case) -> (u16, String) {
    let request = client.request(case.method.clone(), &case.path);
    let request = if case.body.is_null() { request } else { request.json(&case.body) };
    let response = request.send().await.unwrap();
    let status = response.status().as_u16();
    let stream = response.headers()["content-type"] == "text/event-stream";
    let body = if stream { Value::Null } else { response.json().await.unwrap_or(Value::Null) };
    (status, body["code"].as_str().unwrap_or_default().to_owned())
}

#[tokio::test]
async fn every_operation_refuses_who_is_nobody_and_hides_what_is_not_theirs() {
    let world = World::start().await;
    let node = world.node().await;
    let other = world.tenant("other").await;
    let cases = cases(&world).await;
    assert!(cases.len() > 20, "the document has {} operations", cases.len());
    let forged = format!("space_{}_{}", "0".repeat(32), "A".repeat(43));
    for case in &cases {
        for key in ["", "nonsense", forged.as_str(), "space_attach_AAAA"] {
            let nobody = world.admin.with_key(key);
            let answer = status(&nobody, case).await;
            assert_eq!(answer, (401, "unauthorized".to_owned()), "{} with {key:?}", case.operation);
        }
        // The cases together may take longer than a lease.
        node.heartbeat().await.unwrap();
        let (answer, code) = status(&other, case).await;
        assert_eq!(answer, foreign(&case.operation), "{}: {code}", case.operation);
    }
}

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
