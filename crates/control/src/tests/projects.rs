//! Projects: what belongs to one, and what its keys see.

use reqwest::Method;
use serde_json::{Value, json};
use uuid::Uuid;

use super::kit::{Client, World};
use crate::{grants::Reach, store::sandboxes::list_sql};

async fn project(world: &World, name: &str) -> (String, Client) {
    let project = world.admin.post("/v1/projects", &json!({"name": name})).await.expect(201);
    let body = json!({"name": name, "project_id": project["id"]});
    let key = world.admin.post("/v1/keys", &body).await.expect(201);
    (project["id"].as_str().unwrap().to_owned(), world.admin.with_key(key["secret"].as_str().unwrap()))
}

fn ids(page: &Value) -> Vec<String> {
    page["items"].as_array().unwrap().iter().map(|item| item["id"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn sandboxes_belong_to_the_project_that_is_named_or_follows() {
    let world = World::start().await;
    let _node = world.node().await;
    let (a, key_a) = project(&world, "a").await;
    let (b, key_b) = project(&world, "b").await;
    let created = async |client: &Client, body: Value| {
        let created = client.post("/v1/sandboxes?wait=60", &body).await.expect(201);
        let text = |name: &str| created["sandbox"][name].as_str().unwrap().to_owned();
        (text("id"), text("project_id"))
    };
    let (first, project) = created(&world.admin, json!({})).await;
    let default = world.admin.get(&format!("/v1/projects/{project}")).await.expect(200);
    assert_eq!((&default["name"], &default["is_default"]), (&json!("default"), &json!(true)));
    let (second, project) = created(&key_a, json!({})).await;
    assert_eq!(project, a);
    let (third, project) = created(&world.admin, json!({"project_id": b})).await;
    assert_eq!(project, b);
    let refused = key_a.post("/v1/sandboxes", &json!({"project_id": b})).await;
    refused.problem(422, "invalid_field");
    assert_eq!(refused.body["field"], "project_id");
    let list = async |client: &Client, query: &str| {
        ids(&client.get(&format!("/v1/sandboxes{query}")).await.expect(200))
    };
    assert_eq!(list(&world.admin, "").await, [third.clone(), second.clone(), first]);
    assert_eq!(list(&world.admin, &format!("?project_id={b}&state=running")).await, [&*third]);
    assert_eq!(list(&key_a, "").await, [&*second]);
    assert!(list(&key_a, &format!("?project_id={b}")).await.is_empty());
    key_b.get(&format!("/v1/sandboxes/{second}")).await.problem(404, "not_found");
    let request = key_b.request(Method::GET, "/v1/events").header("Last-Event-ID", "0");
    assert_eq!(key_b.stream(request).await.next().await.unwrap().1["sandbox_id"], third);
}

#[tokio::test]
async fn one_projects_idempotency_keys_answer_nothing_of_another() {
    let world = World::start().await;
    let _node = world.node().await;
    let ((_, key_a), (_, key_b)) = (project(&world, "a").await, project(&world, "b").await);
    let mut made = std::collections::BTreeSet::new();
    for client in [&key_a, &key_b, &world.admin] {
        let answer = client.post_with_key("/v1/sandboxes", &json!({}), "k").await.expect(202);
        made.insert(answer["sandbox"]["project_id"].as_str().unwrap().to_owned());
    }
    assert_eq!(made.len(), 3);
}

#[tokio::test]
async fn a_project_can_be_renamed_and_deleted_when_it_is_empty() {
    let world = World::start().await;
    let _node = world.node().await;
    let (id, key) = project(&world, "a").await;
    let path = format!("/v1/projects/{id}");
    let rename = world.admin.request(Method::PATCH, &path).json(&json!({"name": "b"}));
    assert_eq!(Client::send(rename).await.expect(200)["name"], "b");
    let rename = world.admin.request(Method::PATCH, &path).json(&json!({"name": "default"}));
    Client::send(rename).await.problem(409, "conflict");
    let created = key.post("/v1/sandboxes?wait=60", &json!({})).await.expect(201);
    world.admin.delete(&path).await.problem(409, "conflict");
    let sandbox = format!("/v1/sandboxes/{}?wait=60", created["sandbox"]["id"].as_str().unwrap());
    key.delete(&sandbox).await.expect(200);
    assert_eq!(world.admin.delete(&path).await.status, 204);
    key.get("/v1/sandboxes").await.problem(401, "unauthorized");
    world.admin.get(&path).await.problem(404, "not_found");
    let body = json!({"project_id": id});
    world.admin.post("/v1/sandboxes", &body).await.problem(422, "invalid_field");
    world.admin.post("/v1/projects", &json!({"name": "b"})).await.expect(201);
    let tenant = created["sandbox"]["project_id"].as_str().unwrap();
    assert_eq!(tenant, id);
    let default = world.admin.get("/v1/projects").await.expect(200)["items"][1]["id"].clone();
    let path = format!("/v1/projects/{}", default.as_str().unwrap());
    world.admin.delete(&path).await.problem(409, "conflict");
}

#[tokio::test]
async fn a_list_of_a_hundred_thousand_reads_an_index() {
    let world = World::start().await;
    let _node = world.node().await;
    let (project, _) = project(&world, "a").await;
    let id = world.running().await;
    let pool = world.app().store.pool();
    let tenant = world.app().authenticate(&world.admin.key).await.unwrap().tenant_id;
    let project: space_types::ProjectId = project.parse().unwrap();
    let id: space_types::SandboxId = id.parse().unwrap();
    let mut filling = pool.begin().await.unwrap();
    sqlx::query("set local statement_timeout = 0").execute(&mut *filling).await.unwrap();
    sqlx::query(
        "insert into sandboxes (id, tenant_id, project_id, desired, generation, vcpus, memory_bytes, disk_bytes, \
           release_id, template_name, env, labels, node_id, held_memory, reserved, observed, state) \
         select gen_random_uuid(), tenant_id, case when n % 100 = 0 then $2 else project_id end, 'deleted', 1, 1, 1, \
           1, release_id, 'base', '{}', '{}', node_id, 1, false, 'absent', \
           case when n % 2 = 0 then 'failed' else 'deleted' end \
         from sandboxes, generate_series(1, 100000) n where id = $1",
    )
    .bind(id.uuid())
    .bind(project.uuid())
    .execute(&mut *filling)
    .await
    .unwrap();
    filling.commit().await.unwrap();
    sqlx::query("analyze sandboxes").execute(pool).await.unwrap();
    for project_id in [None, Some(project)] {
        for state in [None, Some(space_types::SandboxState::Failed)] {
            let sql = format!("explain {}", list_sql(Reach { tenant_id: tenant, project_id }, state));
            let plan: Vec<(String,)> = sqlx::query_as(sqlx::AssertSqlSafe(sql))
                .bind(tenant.uuid())
                .bind(project_id.map(space_types::ProjectId::uuid))
                .bind(None::<Uuid>)
                .bind(state.map(space_types::SandboxState::code))
                .bind(json!({}))
                .bind(51_i64)
                .fetch_all(pool)
                .await
                .unwrap();
            let plan = plan.into_iter().map(|(line,)| line).collect::<Vec<_>>().join("\n");
            assert!(project_id.is_none() || plan.contains("sandboxes_project"), "{plan}");
            assert!(!plan.contains("Seq Scan on sandboxes"), "{plan}");
        }
    }
}
