//! Who may do what. The cases come from the OpenAPI document: an operation without a row in [`TABLE`] fails the test.

use reqwest::Method;
use serde_json::{Value, json};

use super::kit::{Client, World};

/// What a key needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Needs {
    Scope(&'static str),
    AnyKey,
    Admin,
}

/// What somebody meets who has all that it takes, and asks for what is another's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Foreign {
    /// It names something, which is not there for them.
    Hidden,
    /// It names nothing: they get what is theirs.
    Own,
}

use Foreign::{Hidden, Own};
use Needs::{Admin, AnyKey, Scope};

/// Operation, what it needs, what it answers about what is another's, and a body that is right. One row each.
const TABLE: &[(&str, Needs, Foreign, &str)] = &[
    ("sandbox_create", Scope("sandboxes:write"), Own, "{}"),
    ("sandbox_list", Scope("sandboxes:read"), Own, ""),
    ("sandbox_get", Scope("sandboxes:read"), Hidden, ""),
    ("sandbox_delete", Scope("sandboxes:write"), Hidden, ""),
    ("sandbox_events", Scope("sandboxes:read"), Hidden, ""),
    ("operation_get", Scope("sandboxes:read"), Hidden, ""),
    ("operation_events", Scope("sandboxes:read"), Hidden, ""),
    ("events", Scope("sandboxes:read"), Own, ""),
    ("command_create", Scope("commands"), Hidden, r#"{"argv": ["true"]}"#),
    ("command_list", Scope("commands"), Hidden, ""),
    ("command_get", Scope("commands"), Hidden, ""),
    ("command_attach", Scope("commands"), Hidden, ""),
    ("command_stdin", Scope("commands"), Hidden, r#"{"offset": 0}"#),
    ("command_signal", Scope("commands"), Hidden, r#"{"signal": "INT"}"#),
    ("exec", Scope("commands"), Hidden, r#"{"argv": ["true"]}"#),
    ("command_resize", Scope("commands"), Hidden, r#"{"rows": 24, "columns": 80}"#),
    ("command_terminal", Scope("commands"), Hidden, ""),
    ("file_stat", Scope("files"), Hidden, ""),
    ("file_list", Scope("files"), Hidden, ""),
    ("file_read", Scope("files"), Hidden, ""),
    ("file_write", Scope("files"), Hidden, ""),
    ("file_move", Scope("files"), Hidden, r#"{"from": "a", "to": "b"}"#),
    ("file_remove", Scope("files"), Hidden, ""),
    ("file_watch", Scope("files"), Hidden, ""),
    ("directory_create", Scope("files"), Hidden, r#"{"path": "d"}"#),
    ("archive_read", Scope("files"), Hidden, ""),
    ("archive_write", Scope("files"), Hidden, ""),
    ("port_list", Scope("ports"), Hidden, ""),
    ("port_get", Scope("ports"), Hidden, ""),
    ("port_set", Scope("ports"), Hidden, r#"{"visibility": "private"}"#),
    ("port_token_create", Scope("ports"), Hidden, "{}"),
    ("port_tokens_revoke", Scope("ports"), Hidden, ""),
    ("template_publish", Admin, Own, PUBLISH),
    ("template_list", AnyKey, Own, ""),
    ("template_get", AnyKey, Own, ""),
    ("tenant_create", Admin, Own, r#"{"name": "another"}"#),
    ("tenant_list", Admin, Own, ""),
    ("tenant_set_quota", Admin, Own, "{}"),
    ("key_create", Scope("keys"), Own, r#"{"name": "k"}"#),
    ("key_list", Scope("keys"), Own, ""),
    ("key_revoke", Scope("keys"), Hidden, ""),
    ("key_rotate", Scope("keys"), Hidden, "{}"),
    ("project_create", Scope("projects"), Own, r#"{"name": "p"}"#),
    ("project_list", AnyKey, Own, ""),
    ("project_get", AnyKey, Hidden, ""),
    ("project_update", Scope("projects"), Hidden, r#"{"name": "q"}"#),
    ("project_delete", Scope("projects"), Hidden, ""),
    ("project_set_quota", Scope("projects"), Hidden, "{}"),
    ("quota_get", Scope("usage:read"), Own, ""),
    ("usage_get", Scope("usage:read"), Own, ""),
    ("node_list", Admin, Own, ""),
    ("join_token_create", Admin, Own, "{}"),
];

const PUBLISH: &str = concat!(
    r#"{"name": "t", "digest": "sha256:0707070707070707070707070707070707070707070707070707070707070707","#,
    r#" "location": "file:///x", "size_bytes": 4096}"#
);

struct Case {
    operation: String,
    method: Method,
    path: String,
    needs: Needs,
    foreign: Foreign,
    body: Value,
}

/// Things of ours, by the names that they have in paths.
async fn things(world: &World) -> Vec<(&'static str, String)> {
    let project = world.admin.post("/v1/projects", &json!({"name": "ours"})).await.expect(201);
    let key = world.admin.post("/v1/keys", &json!({"name": "ours"})).await.expect(201);
    let sandbox = world.running().await;
    let commands = format!("/v1/sandboxes/{sandbox}/commands");
    let command = world.admin.post(&commands, &json!({"argv": ["true"]})).await.expect(201);
    let deleted = world.admin.delete(&format!("/v1/sandboxes/{}", world.running().await)).await.body;
    let id = |value: &Value| value["id"].as_str().unwrap().to_owned();
    vec![
        ("sandbox_id", sandbox),
        ("command_id", id(&command["command"])),
        ("operation_id", id(&deleted["operation"])),
        ("project_id", id(&project)),
        ("key_id", id(&key["key"])),
        ("tenant_id", project["tenant_id"].as_str().unwrap().to_owned()),
        ("name", "base".to_owned()),
        ("port", "8000".to_owned()),
    ]
}

async fn cases(world: &World) -> Vec<Case> {
    let things = things(world).await;
    let document: Value = serde_json::from_str(&crate::openapi_json()).unwrap();
    let mut cases = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, described) in item.as_object().unwrap() {
            let operation = described["operationId"].as_str().unwrap();
            let row = TABLE.iter().find(|(name, ..)| *name == operation);
            let (_, needs, foreign, body) =
                *row.unwrap_or_else(|| panic!("{operation} has no authorisation case"));
            let path =
                things.iter().fold(path.clone(), |path, (name, id)| path.replace(&format!("{{{name}}}"), id));
            let path = if path.contains("/files") { format!("{path}?path=/root") } else { path };
            assert!(!path.contains('{'), "{operation} has a parameter without a value here: {path}");
            cases.push(Case {
                operation: operation.to_owned(),
                method: method.to_uppercase().parse().unwrap(),
                path,
                needs,
                foreign,
                body: if body.is_empty() { Value::Null } else { serde_json::from_str(body).unwrap() },
            });
        }
    }
    assert_eq!(cases.len(), TABLE.len(), "a row is of an operation that is gone");
    cases
}

/// Status and, for a refusal, its code and detail; of a stream only the beginning is read.
async fn answer(client: &Client, case: &Case) -> (u16, String, String) {
    let request = client.request(case.method.clone(), &case.path);
    let request = if case.body.is_null() { request } else { request.json(&case.body) };
    let response = request.send().await.unwrap();
    let status = response.status().as_u16();
    let stream = response.headers().get("content-type").is_some_and(|kind| kind == "text/event-stream");
    let body = if stream { Value::Null } else { response.json().await.unwrap_or(Value::Null) };
    let text = |name: &str| body[name].as_str().unwrap_or_default().to_owned();
    (status, text("code"), text("detail"))
}

async fn key(maker: &Client, body: Value) -> Client {
    let made = maker.post("/v1/keys", &body).await.expect(201);
    maker.with_key(made["secret"].as_str().unwrap())
}

/// Keys that are none, or none any more.
async fn nobodies(world: &World) -> Vec<(&'static str, Client)> {
    let revoked = key(&world.admin, json!({"name": "revoked"})).await;
    let id = world.admin.get("/v1/keys").await.expect(200)["items"][0]["id"].as_str().unwrap().to_owned();
    world.admin.delete(&format!("/v1/keys/{id}")).await.expect(200);
    let expired = key(&world.admin, json!({"name": "expired", "expires_in_seconds": 3600})).await;
    sqlx::query("update api_keys set expires_at = now_ms() where name = 'expired'")
        .execute(world.app().store.pool())
        .await
        .unwrap();
    let with = |text: &str| world.admin.with_key(text);
    vec![
        ("no key", with("")),
        ("a malformed key", with("nonsense")),
        ("a key that never was", with(&format!("space_{}_{}", "0".repeat(32), "A".repeat(43)))),
        ("an attach token of nobody", with("space_attach_AAAA")),
        ("a revoked key", revoked),
        ("an expired key", expired),
    ]
}

#[tokio::test]
async fn every_operation_refuses_who_is_nobody() {
    let world = World::start().await;
    let _node = world.node().await;
    let cases = cases(&world).await;
    for (who, nobody) in nobodies(&world).await {
        for case in &cases {
            let (status, code, _) = answer(&nobody, case).await;
            assert_eq!((status, code.as_str()), (401, "unauthorized"), "{} with {who}", case.operation);
        }
    }
}

#[tokio::test]
async fn every_operation_refuses_a_key_that_lacks_what_it_takes_and_names_that() {
    let world = World::start().await;
    let _node = world.node().await;
    let cases = cases(&world).await;
    let all: Vec<&str> = space_api::scopes::Scope::ALL.iter().map(|scope| scope.code()).collect();
    for case in &cases {
        let lacked = match case.needs {
            AnyKey => continue,
            Admin => "",
            Scope(scope) => scope,
        };
        let scopes: Vec<_> = all.iter().filter(|scope| **scope != lacked).collect();
        let member = key(&world.admin, json!({"name": "member", "scopes": scopes})).await;
        let (status, code, detail) = answer(&member, case).await;
        assert_eq!((status, code.as_str()), (403, "forbidden"), "{}", case.operation);
        assert!(detail.contains(if lacked.is_empty() { "admin" } else { lacked }), "{detail}");
    }
}

#[tokio::test]
async fn what_is_another_tenants_or_another_projects_is_not_there() {
    let world = World::start().await;
    let node = world.node().await;
    let cases = cases(&world).await;
    let other = world.tenant("other").await;
    let project = world.admin.post("/v1/projects", &json!({"name": "a"})).await.expect(201);
    let narrow = key(&world.admin, json!({"name": "a", "project_id": project["id"]})).await;
    for case in &cases {
        // The cases together may take longer than a lease.
        node.heartbeat().await.unwrap();
        for (who, client) in [("another tenant", &other), ("another project", &narrow)] {
            let (status, code, _) = answer(client, case).await;
            let forbidden =
                case.needs == Admin || (who == "another project" && case.needs == Scope("projects"));
            let expected = match case.foreign {
                _ if forbidden => status == 403,
                Hidden => status == 404,
                Own => (200..300).contains(&status),
            };
            assert!(expected, "{} by {who}: {status} {code}", case.operation);
        }
    }
    // And nothing of it has happened.
    assert_eq!(world.admin.get("/v1/sandboxes").await.expect(200)["items"].as_array().unwrap().len(), 2);
    for listed in [narrow.get("/v1/sandboxes").await, other.get("/v1/sandboxes").await] {
        assert_eq!(listed.expect(200)["items"].as_array().unwrap().len(), 1);
    }
}
