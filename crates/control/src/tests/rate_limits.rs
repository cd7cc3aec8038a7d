//! What comes too fast is refused, says when to come again, and costs nobody else anything.

use serde_json::json;
use space_testkit::postgres::Database;

use super::kit::{Answer, Client, PATIENCE, World};

/// Asks until it is refused for being too fast. How soon that is depends on the machine; that it comes does not.
async fn until_refused(ask: impl AsyncFn() -> Answer) -> Answer {
    let refused = async {
        loop {
            let answer = ask().await;
            if answer.status == 429 {
                return answer;
            }
        }
    };
    tokio::time::timeout(PATIENCE, refused).await.unwrap()
}

#[track_caller]
fn says_when(answer: &Answer, expected: std::ops::RangeInclusive<u64>) {
    answer.problem(429, "rate_limited");
    let seconds = answer.body["retry_after"].as_u64().unwrap();
    assert!(expected.contains(&seconds), "{seconds}");
    assert_eq!(answer.headers["retry-after"], seconds.to_string());
}

#[tokio::test]
async fn a_key_that_asks_too_often_waits_and_others_do_not() {
    let limits = "[rate_limits]\nkey_per_second = 1\nkey_burst = 4\n";
    let world = World::with(Database::create().url(), limits).await;
    let member = world.tenant("other").await;
    says_when(&until_refused(async || world.admin.get("/v1/sandboxes").await).await, 1..=1);
    member.get("/v1/sandboxes").await.expect(200);
}

#[tokio::test]
async fn creates_have_a_limit_of_their_own() {
    let limits = "[rate_limits]\ncreates_per_second = 1\ncreates_burst = 1\n";
    let world = World::with(Database::create().url(), limits).await;
    let _node = world.node().await;
    let created = world.admin.post("/v1/sandboxes", &json!({})).await.expect(202);
    says_when(&until_refused(async || world.admin.post("/v1/sandboxes", &json!({})).await).await, 1..=1);
    let path = format!("/v1/sandboxes/{}", created["sandbox"]["id"].as_str().unwrap());
    world.admin.delete(&path).await;
    world.admin.get(&path).await.expect(200);
}

#[tokio::test]
async fn an_address_that_failed_too_often_is_refused_whatever_it_shows() {
    let limits = "[rate_limits]\nfailed_authentications_per_minute = 1\nfailed_authentications_burst = 2\n";
    let world = World::with(Database::create().url(), limits).await;
    for _ in 0..3 {
        world.admin.get("/v1/sandboxes").await.expect(200);
    }
    world.admin.with_key("").get("/v1/sandboxes").await.problem(401, "unauthorized");
    let attach = format!(
        "/v1/sandboxes/{}/commands/{}/attach?token=space_attach_x",
        space_types::SandboxId::new(),
        space_types::CommandId::new(),
    );
    world.admin.get(&attach).await.problem(401, "unauthorized");
    for key in ["", "wrong", &world.admin.key] {
        says_when(&world.admin.with_key(key).get("/v1/sandboxes").await, 1..=60);
    }
    says_when(&world.admin.get(&attach).await, 1..=60);
    let http =
        reqwest::Client::builder().local_address(std::net::IpAddr::from([127, 0, 0, 2])).build().unwrap();
    Client { http, ..world.admin.clone() }.get("/v1/sandboxes").await.expect(200);
}
