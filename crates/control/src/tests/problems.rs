//! Bad requests: what each is answered, as one table.

use std::fmt::Write as _;

use reqwest::Method;
use serde_json::{Value, json};

use super::kit::{Client, World};

#[tokio::test]
async fn bad_requests_name_what_is_wrong() {
    let world = World::start().await;
    let _node = world.node().await;
    let sandbox = world.running().await;
    let exec = format!("/v1/sandboxes/{sandbox}/exec");
    let stdin = format!("/v1/sandboxes/{sandbox}/commands/{}/stdin", space_types::CommandId::new());
    let files = |rest: &str| format!("/v1/sandboxes/{sandbox}/files{rest}");
    let [no_path, nul, long, twice, deep, mode] = [
        files(""),
        files("/content?path=a%00b"),
        files(&format!("/content?path={}", "x".repeat(4096))),
        files("/entries?path=a&path=b"),
        files("/entries?path=/&depth=65"),
        files("/content?path=/a&mode=8"),
    ];
    let [offset, unknown, directories, moved] = [
        files("/content?path=/a&offset=1"),
        files("/watch?path=/&deep=true"),
        files("/directories"),
        files("/move"),
    ];
    let table: Vec<(&str, &str, Value)> = vec![
        ("POST", "/v1/sandboxes", json!({"vcpu": 1})),
        ("POST", "/v1/sandboxes", json!({"vcpus": "1"})),
        ("POST", "/v1/sandboxes", json!({"vcpus": 3})),
        ("POST", "/v1/sandboxes", json!({"memory_mib": 500})),
        ("POST", "/v1/sandboxes", json!({"disk_mib": 1})),
        ("POST", "/v1/sandboxes", json!({"disk_mib": 64})),
        ("POST", "/v1/sandboxes", json!({"template": "../x"})),
        ("POST", "/v1/sandboxes", json!({"template": "nothing"})),
        ("POST", "/v1/sandboxes", json!({"env": {"A=B": ""}})),
        ("POST", "/v1/sandboxes", json!({"labels": {"a": "\u{0}"}})),
        ("POST", "/v1/sandboxes", json!([])),
        ("POST", "/v1/sandboxes?wait=301", json!({})),
        ("POST", "/v1/sandboxes?wait=x", json!({})),
        ("POST", "/v1/sandboxes?wiat=1", json!({})),
        ("GET", "/v1/sandboxes?limit=0", Value::Null),
        ("GET", "/v1/sandboxes?cursor=x", Value::Null),
        ("GET", "/v1/sandboxes?state=up", Value::Null),
        ("GET", "/v1/sandboxes?label=x", Value::Null),
        ("GET", "/v1/sandboxes?order=a", Value::Null),
        ("GET", "/v1/sandboxes/nonsense", Value::Null),
        ("GET", "/v1/sandboxes/op_0", Value::Null),
        ("GET", "/v1/templates/%00", Value::Null),
        ("GET", "/v1/templates/nothing", Value::Null),
        ("GET", "/v1/nothing", Value::Null),
        ("PUT", "/v1/sandboxes", Value::Null),
        ("POST", exec.as_str(), json!({})),
        ("POST", exec.as_str(), json!({"argv": []})),
        ("POST", exec.as_str(), json!({"argv": ["a", "b\u{0}"]})),
        ("POST", exec.as_str(), json!({"argv": ["a"], "cwd": "tmp"})),
        ("POST", exec.as_str(), json!({"argv": ["a"], "timeout_seconds": 0})),
        ("POST", stdin.as_str(), json!({"offset": -1})),
        ("POST", stdin.as_str(), json!({"offset": 0, "data": "???"})),
        ("POST", stdin.as_str(), json!({"offset": 0})),
        ("GET", no_path.as_str(), Value::Null),
        ("GET", nul.as_str(), Value::Null),
        ("GET", long.as_str(), Value::Null),
        ("GET", twice.as_str(), Value::Null),
        ("GET", deep.as_str(), Value::Null),
        ("PUT", mode.as_str(), Value::Null),
        ("PUT", offset.as_str(), Value::Null),
        ("GET", unknown.as_str(), Value::Null),
        ("POST", directories.as_str(), json!({"path": "a", "path_base64": "YQ=="})),
        ("POST", directories.as_str(), json!({"path": "a", "mode": "rwx"})),
        ("POST", moved.as_str(), json!({"from": "a"})),
        ("POST", "/v1/tenants", json!({"name": ""})),
        ("POST", "/v1/keys", json!({"tenant_id": "x", "name": "k"})),
        (
            "POST",
            "/v1/keys",
            json!({"tenant_id": space_types::TenantId::from_uuid(uuid::Uuid::nil()), "name": "k"}),
        ),
        ("POST", "/v1/join-tokens", json!({"valid_seconds": 0})),
        ("GET", "/v1/events?sandbox=x", Value::Null),
    ];
    let mut text = String::new();
    for (method, path, body) in table {
        let request = world.admin.request(method.parse().unwrap(), path);
        let request = if body.is_null() { request } else { request.json(&body) };
        let answer = Client::send(request).await;
        let shown = path.replace(&sandbox, "sbx").split("cmd_").next().unwrap_or_default().to_owned();
        let shown: String = shown.chars().take(80).collect();
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let said = |name: &str| answer.body[name].as_str().unwrap_or("-").to_owned();
        writeln!(text, "{method} {shown} {body}").unwrap();
        writeln!(text, "  {} {} {}: {}", answer.status, said("code"), said("field"), said("detail")).unwrap();
        assert_eq!(answer.headers["content-type"], "application/problem+json", "{method} {shown} {body}");
        assert_eq!(answer.body["request_id"], answer.headers["x-request-id"].to_str().unwrap());
    }
    insta::assert_snapshot!(text);
    assert_eq!(world.count("sandboxes").await, 1);
}

#[tokio::test]
async fn a_body_beyond_the_limit_is_refused_announced_or_not() {
    let world = World::start().await;
    let huge = vec![b' '; space_api::limits::BODY_BYTES + 1];
    let post =
        || world.admin.request(Method::POST, "/v1/sandboxes").header("Content-Type", "application/json");
    Client::send(post().body(huge.clone())).await.problem(413, "body_too_large");
    let chunks = futures::stream::iter([Ok::<_, std::io::Error>(huge)]);
    Client::send(post().body(reqwest::Body::wrap_stream(chunks))).await.problem(413, "body_too_large");
}

#[tokio::test]
async fn a_body_that_is_no_json_is_refused() {
    let world = World::start().await;
    let post = |kind: &str, body: &'static str| {
        world.admin.request(Method::POST, "/v1/sandboxes").header("Content-Type", kind).body(body)
    };
    Client::send(post("application/json", "{")).await.problem(400, "invalid_request");
    Client::send(post("text/plain", "{}")).await.problem(415, "unsupported_media_type");
    Client::send(post("application/json", "\u{0}")).await.problem(400, "invalid_request");
}

#[tokio::test]
async fn exec_in_a_form_that_nobody_has_is_refused() {
    let world = World::start().await;
    let _node = world.node().await;
    let path = format!("/v1/sandboxes/{}/exec", world.running().await);
    let request = world.admin.request(Method::POST, &path).json(&json!({"argv": ["true"]}));
    Client::send(request.header("Accept", "image/png")).await.problem(406, "not_acceptable");
}

#[tokio::test]
async fn a_bad_idempotency_key_is_refused() {
    let world = World::start().await;
    let answer = world.admin.post_with_key("/v1/sandboxes", &json!({}), &"k".repeat(129)).await;
    answer.problem(422, "invalid_field");
    assert_eq!(answer.body["field"], "Idempotency-Key");
}

#[tokio::test]
async fn a_callers_request_id_is_taken_over() {
    let world = World::start().await;
    let request = world.admin.request(Method::GET, "/v1/sandboxes/x").header("X-Request-Id", "mine-1");
    let answer = Client::send(request).await;
    assert_eq!(
        (&answer.headers["x-request-id"], &answer.body["request_id"]),
        (&"mine-1".parse().unwrap(), &json!("mine-1"))
    );
}

#[tokio::test]
async fn both_versions_of_http_are_spoken() {
    let world = World::start().await;
    let http2 = reqwest::Client::builder().http2_prior_knowledge().build().unwrap();
    let both = [world.admin.http.clone(), http2];
    for http in both {
        let client = Client { http, ..world.admin.clone() };
        client.get("/v1/sandboxes").await.expect(200);
    }
}
