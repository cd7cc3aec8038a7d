//! Commands: exec, attach, resume, input, signals.

use reqwest::Method;
use serde_json::{Value, json};
use space_testkit::postgres::Database;

use super::kit::{Client, Events, World, output};

struct Made {
    path: String,
    token: String,
}

async fn make(world: &World, sandbox: &str, argv: Value) -> Made {
    let path = format!("/v1/sandboxes/{sandbox}/commands");
    let created = world.admin.post(&path, &json!({"argv": argv, "stdin": true})).await.expect(201);
    Made {
        path: format!("{path}/{}", created["command"]["id"].as_str().unwrap()),
        token: created["attach"]["token"].as_str().unwrap().to_owned(),
    }
}

async fn attach(client: &Client, made: &Made, after: Option<&str>) -> Events {
    let request = client.request(Method::GET, &format!("{}/attach?token={}", made.path, made.token));
    let request = match after {
        Some(after) => request.header("Last-Event-ID", after),
        None => request,
    };
    client.stream(request).await
}

/// With nothing but the token.
fn stranger(world: &World) -> Client {
    world.admin.with_key("")
}

#[tokio::test]
async fn exec_streams_the_command_and_its_output() {
    let world = World::start().await;
    let _node = world.node().await;
    let path = format!("/v1/sandboxes/{}/exec", world.running().await);
    let request = world.admin.request(Method::POST, &path).json(&json!({"argv": ["echo", "hello", "world"]}));
    let events = world.admin.stream(request).await;
    assert_eq!(events.response.headers()["x-accel-buffering"], "no");
    let events = events.rest().await;
    let names: Vec<&str> = events.iter().map(|event| event.0.as_str()).collect();
    assert_eq!(names, ["command", "started", "stdout", "exit"]);
    assert_eq!(output(&events, "stdout"), "hello world\n");
    assert_eq!(events[3].1["code"], 0);
    assert_eq!(events[3].2.as_deref(), Some("1.3"));
}

#[tokio::test]
async fn exec_answers_json_when_asked_to() {
    let world = World::start().await;
    let _node = world.node().await;
    let path = format!("/v1/sandboxes/{}/exec", world.running().await);
    let run = async |argv: Value| {
        let request = world.admin.request(Method::POST, &path).json(&json!({"argv": argv}));
        Client::send(request.header("Accept", "application/json")).await.expect(200)
    };
    let hello = run(json!(["echo", "hello"])).await;
    assert_eq!((&hello["stdout"], &hello["exit"]["code"]), (&json!("aGVsbG8K"), &json!(0)));
    assert_eq!(run(json!(["exit", "7"])).await["exit"]["code"], 7);
}

#[tokio::test]
async fn a_repeated_exec_meets_the_same_command() {
    let world = World::start().await;
    let node = world.node().await;
    let path = format!("/v1/sandboxes/{}/exec", world.running().await);
    let run = async |argv: Value| {
        let request = world.admin.request(Method::POST, &path).json(&json!({"argv": argv}));
        Client::send(request.header("Accept", "application/json").header("Idempotency-Key", "k")).await
    };
    let first = run(json!(["echo", "hello"])).await.expect(200);
    assert_eq!(run(json!(["echo", "hello"])).await.expect(200), first);
    run(json!(["echo", "other"])).await.problem(422, "idempotency_key_reused");
    assert_eq!(node.command_count(), 1);
}

#[tokio::test]
async fn a_reader_resumes_behind_what_it_has() {
    let world = World::start().await;
    let _node = world.node().await;
    let sandbox = world.running().await;
    let made = make(&world, &sandbox, json!(["count", "5"])).await;
    let all = attach(&stranger(&world), &made, None).await.rest().await;
    assert_eq!(output(&all, "stdout"), "1\n2\n3\n4\n5\n");
    let third = all[3].2.clone().unwrap();
    let rest = attach(&stranger(&world), &made, Some(&third)).await.rest().await;
    assert_eq!(rest, all[4..]);
    // Of another generation a position says nothing.
    let again = attach(&stranger(&world), &made, Some("9.3")).await.rest().await;
    assert_eq!(again, all);
}

#[tokio::test]
async fn a_bad_position_is_refused() {
    let world = World::start().await;
    let _node = world.node().await;
    let made = make(&world, &world.running().await, json!(["true"])).await;
    let request =
        world.admin.request(Method::GET, &format!("{}/attach", made.path)).header("Last-Event-ID", "x");
    let answer = Client::send(request).await;
    answer.problem(422, "invalid_field");
    assert_eq!(answer.body["field"], "Last-Event-ID");
}

#[tokio::test]
async fn a_token_opens_its_own_command_and_no_other() {
    let world = World::start().await;
    let _node = world.node().await;
    let (one, two) = (world.running().await, world.running().await);
    let made = make(&world, &one, json!(["true"])).await;
    let sibling = make(&world, &one, json!(["true"])).await;
    let foreign = make(&world, &two, json!(["true"])).await;
    for other in [&sibling, &foreign] {
        let path = format!("{}/attach?token={}", other.path, made.token);
        stranger(&world).get(&path).await.problem(401, "unauthorized");
    }
    let moved = foreign.path.replace(&two, &one);
    stranger(&world)
        .get(&format!("{moved}/attach?token={}", foreign.token))
        .await
        .problem(401, "unauthorized");
    // It is no key: it opens nothing but the stream.
    world.admin.with_key(&made.token).get(&made.path).await.problem(401, "unauthorized");
    world
        .admin
        .with_key(&made.token)
        .post(&format!("{}/stdin", made.path), &json!({"offset": 0}))
        .await
        .problem(401, "unauthorized");
}

#[tokio::test]
async fn readers_are_sent_to_the_edge_where_there_is_one() {
    let extra = "[commands]\nattach_base_url = 'http://127.0.0.1:8710/'\n";
    let world = World::with(Database::create().url(), extra).await;
    let _node = world.node().await;
    let sandbox = world.running().await;
    let path = format!("/v1/sandboxes/{sandbox}/commands");
    let made = world.admin.post(&path, &json!({"argv": ["true"]})).await.expect(201);
    let id = made["command"]["id"].as_str().unwrap();
    assert_eq!(made["attach"]["url"], format!("http://127.0.0.1:8710{path}/{id}/attach"));
    // Here it is served all the same.
    let token = made["attach"]["token"].as_str().unwrap();
    stranger(&world).get(&format!("{path}/{id}/attach?token={token}")).await.expect(200);
}

#[tokio::test]
async fn input_goes_in_and_comes_out() {
    let world = World::start().await;
    let _node = world.node().await;
    let made = make(&world, &world.running().await, json!(["cat"])).await;
    let mut events = attach(&world.admin, &made, None).await;
    events.next().await.unwrap();
    let write = async |offset: u64, data: &str, eof: bool| {
        let body = json!({"offset": offset, "data": data, "eof": eof});
        world.admin.post(&format!("{}/stdin", made.path), &body).await
    };
    assert_eq!(write(0, "aGk=", false).await.expect(200)["next_offset"], 2);
    assert_eq!(write(0, "aGk=", false).await.expect(200)["next_offset"], 2);
    write(9, "aGk=", false).await.problem(409, "stdin_offset");
    write(2, "", true).await.expect(200);
    let rest = events.rest().await;
    assert_eq!(output(&rest, "stdout"), "hi");
    write(2, "", true).await.problem(409, "command_not_running");
}

#[tokio::test]
async fn a_signal_ends_a_command() {
    let world = World::start().await;
    let _node = world.node().await;
    let sandbox = world.running().await;
    let made = make(&world, &sandbox, json!(["sleep"])).await;
    let mut events = attach(&world.admin, &made, None).await;
    events.next().await.unwrap();
    let path = format!("{}/signal", made.path);
    for _ in 0..2 {
        let answer = world.admin.post_with_key(&path, &json!({"signal": "INT"}), "k").await;
        assert_eq!(answer.status, 204);
    }
    assert_eq!(events.rest().await[0].1["signal"], 2);
    world.admin.post(&path, &json!({"signal": "INT"})).await.problem(409, "command_not_running");
    let described = world.admin.get(&made.path).await.expect(200);
    assert_eq!((&described["state"], &described["exit"]["signal"]), (&json!("exited"), &json!(2)));
    let listed = world.admin.get(&format!("/v1/sandboxes/{sandbox}/commands")).await.expect(200);
    assert_eq!(listed["items"], json!([described]));
}

#[tokio::test]
async fn a_stream_survives_its_workers_restart() {
    let world = World::start().await;
    let node = world.node().await;
    let made = make(&world, &world.running().await, json!(["cat"])).await;
    let mut events = attach(&world.admin, &made, None).await;
    events.next().await.unwrap();
    let write = async |offset: u64, data: &str, eof: bool| {
        let body = json!({"offset": offset, "data": data, "eof": eof});
        world.admin.post(&format!("{}/stdin", made.path), &body).await
    };
    write(0, "aGk=", false).await.expect(200);
    assert_eq!(events.next().await.unwrap().0, "stdout");
    node.restart_workers().await.unwrap();
    write(2, "aGk=", true).await.expect(200);
    let rest = events.rest().await;
    assert_eq!(output(&rest, "stdout"), "hi");
    assert_eq!(rest.iter().map(|event| event.2.as_deref().unwrap()).collect::<Vec<_>>(), ["1.3", "1.4"]);
}

#[tokio::test]
async fn a_stream_ends_with_an_error_when_its_sandbox_does() {
    let world = World::start().await;
    let _node = world.node().await;
    let sandbox = world.running().await;
    let made = make(&world, &sandbox, json!(["sleep"])).await;
    let mut events = attach(&world.admin, &made, None).await;
    events.next().await.unwrap();
    world.admin.delete(&format!("/v1/sandboxes/{sandbox}?wait=60")).await.expect(200);
    let rest = events.rest().await;
    assert_eq!((rest[0].0.as_str(), &rest[0].1["problem"]["code"]), ("error", &json!("sandbox_not_running")));
    let path = format!("/v1/sandboxes/{sandbox}/exec");
    world.admin.post(&path, &json!({"argv": ["true"]})).await.problem(409, "sandbox_not_running");
}
