//! `Idempotency-Key` on every POST.

use serde_json::json;

use super::kit::World;

const HOUR: i64 = 3_600_000;

#[tokio::test]
async fn the_same_key_and_body_get_the_same_answer() {
    let world = World::start().await;
    let _node = world.node().await;
    let files = format!("/v1/sandboxes/{}/files", world.running().await);
    let (directories, moved) = (format!("{files}/directories"), format!("{files}/move"));
    let tenant = world.admin.post("/v1/tenants", &json!({"name": "x"})).await.expect(201);
    let digest = format!("sha256:{}", "07".repeat(32));
    let posts = [
        ("/v1/sandboxes", json!({})),
        (directories.as_str(), json!({"path": "a"})),
        (moved.as_str(), json!({"from": "a", "to": "b"})),
        ("/v1/tenants", json!({"name": "t"})),
        ("/v1/keys", json!({"tenant_id": tenant["id"], "name": "k"})),
        ("/v1/join-tokens", json!({})),
        (
            "/v1/templates",
            json!({"name": "t", "digest": digest, "location": "file:///x", "size_bytes": 4096}),
        ),
    ];
    for (path, body) in posts {
        let first = world.admin.post_with_key(path, &body, path).await;
        let again = world.admin.post_with_key(path, &body, path).await;
        assert!(first.status < 300, "{path}: {}", first.body);
        assert_eq!(again.status, first.status, "{path}");
        assert_eq!(again.headers["idempotency-replayed"], "true", "{path}");
        let mut expected = first.body;
        for secret in ["secret", "token"] {
            expected.as_object_mut().unwrap().remove(secret);
        }
        assert_eq!(again.body, expected, "{path}");
        let other = world.admin.post_with_key(path, &json!({"name": "other"}), path).await;
        assert_eq!(other.status, 422, "{path}");
    }
    assert_eq!(world.count("sandboxes").await, 2);
}

#[tokio::test]
async fn another_body_or_path_under_the_same_key_is_refused() {
    let world = World::start().await;
    world.admin.post_with_key("/v1/tenants", &json!({"name": "a"}), "k").await.expect(201);
    let other = world.admin.post_with_key("/v1/tenants", &json!({"name": "b"}), "k").await;
    other.problem(422, "idempotency_key_reused");
    let other = world.admin.post_with_key("/v1/join-tokens", &json!({}), "k").await;
    other.problem(422, "idempotency_key_reused");
}

#[tokio::test]
async fn a_refused_request_does_not_use_the_key_up() {
    let world = World::start().await;
    world.admin.post_with_key("/v1/sandboxes", &json!({}), "k").await.problem(422, "template_not_found");
    let _node = world.node().await;
    world.admin.post_with_key("/v1/sandboxes", &json!({}), "k").await.expect(202);
}

#[tokio::test]
async fn keys_of_two_tenants_are_two_keys() {
    let world = World::start().await;
    let _node = world.node().await;
    let other = world.tenant("other").await;
    let ours = world.admin.post_with_key("/v1/sandboxes", &json!({}), "k").await.expect(202);
    let theirs = other.post_with_key("/v1/sandboxes", &json!({}), "k").await.expect(202);
    assert_ne!(ours["sandbox"]["id"], theirs["sandbox"]["id"]);
}

#[tokio::test]
async fn many_at_once_make_one_sandbox() {
    let world = World::start().await;
    let _node = world.node().await;
    let posts = (0..8).map(|_| {
        let admin = world.admin.clone();
        async move { admin.post_with_key("/v1/sandboxes", &json!({}), "k").await.status }
    });
    let answers = futures::future::join_all(posts).await;
    assert!(
        answers.contains(&202) && answers.iter().all(|status| [202, 409].contains(status)),
        "{answers:?}"
    );
    assert_eq!(world.count("sandboxes").await, 1);
}

#[tokio::test]
async fn while_the_first_runs_the_second_is_told_so() {
    let world = World::start().await;
    let tenant = world.admin.post("/v1/tenants", &json!({"name": "t"})).await.expect(201);
    // What a request under way holds.
    let mut held = world.app().store.pool().begin().await.unwrap();
    let caller = world.app().authenticate(&world.admin.key).await.unwrap();
    sqlx::query("select pg_advisory_xact_lock(hashtextextended($1, 0))")
        .bind(format!("{}/k", caller.tenant_id))
        .execute(&mut *held)
        .await
        .unwrap();
    let body = json!({"tenant_id": tenant["id"], "name": "k"});
    world.admin.post_with_key("/v1/keys", &body, "k").await.problem(409, "idempotency_key_in_use");
    held.rollback().await.unwrap();
    world.admin.post_with_key("/v1/keys", &body, "k").await.expect(201);
}

/// The pool has 16 connections. A tenant's guests decide how long its signals take.
#[tokio::test]
async fn guests_that_never_answer_do_not_take_the_database_from_others() {
    let world = World::start().await;
    let _node = world.node().await;
    let sandbox = world.running().await;
    let other = world.tenant("other").await;
    let commands = format!("/v1/sandboxes/{sandbox}/commands");
    let made = world.admin.post(&commands, &json!({"argv": ["deaf"]})).await.expect(201);
    let path = format!("{commands}/{}/signal", made["command"]["id"].as_str().unwrap());
    let signals: Vec<_> = (0..24)
        .map(|number| {
            let (admin, path) = (world.admin.clone(), path.clone());
            tokio::spawn(async move {
                admin.post_with_key(&path, &json!({"signal": "INT"}), &number.to_string()).await
            })
        })
        .collect();
    while world.count("idempotency where unanswered_until is not null").await < 24 {
        tokio::task::yield_now().await;
    }
    other.get("/v1/sandboxes").await.expect(200);
    let again = world.admin.post_with_key(&path, &json!({"signal": "INT"}), "7").await;
    again.problem(409, "idempotency_key_in_use");
    signals.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test]
async fn a_request_that_was_left_unanswered_may_be_made_again() {
    let world = World::start().await;
    let _node = world.node().await;
    let sandbox = world.running().await;
    let commands = format!("/v1/sandboxes/{sandbox}/commands");
    let made = world.admin.post(&commands, &json!({"argv": ["sleep"]})).await.expect(201);
    let attach = world.admin.request(reqwest::Method::GET, made["attach"]["url"].as_str().unwrap());
    let mut events = world.admin.stream(attach).await;
    events.next().await.unwrap();
    let path = format!("{commands}/{}/signal", made["command"]["id"].as_str().unwrap());
    let signal = json!({"signal": "INT"});
    // What a control plane that died in the middle leaves.
    world.admin.post_with_key(&path, &signal, "k").await;
    let mark = "update idempotency set status = 0, unanswered_until = now_ms() + $1";
    for (left_ms, code) in [(60_000_i64, "idempotency_key_in_use"), (-1, "command_not_running")] {
        sqlx::query(mark).bind(left_ms).execute(world.app().store.pool()).await.unwrap();
        world.admin.post_with_key(&path, &signal, "k").await.problem(409, code);
    }
    assert_eq!(world.count("idempotency").await, 0, "a refused request uses no key up");
}

#[tokio::test]
async fn answers_are_kept_for_a_day() {
    let world = World::start().await;
    let caller = world.app().authenticate(&world.admin.key).await.unwrap();
    world.admin.post_with_key("/v1/join-tokens", &json!({}), "k").await.expect(201);
    for (age, kept) in [(23 * HOUR, 1), (2 * HOUR, 0)] {
        world.app().store.idempotency_age(caller.tenant_id.uuid(), age).await.unwrap();
        world.app().store.idempotency_expire(24 * HOUR, 100).await.unwrap();
        assert_eq!(world.count("idempotency").await, kept);
    }
}
