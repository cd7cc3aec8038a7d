//! The machinery behind the tests: a server, a node, clients.

use std::{sync::Arc, time::Duration};

use camino::Utf8PathBuf;
use reqwest::Method;
use serde_json::{Value, json};
use space_runtime::tasks::Tasks;
use space_testkit::{
    postgres::Database,
    sim::{SimNode, SimOptions},
};

use crate::{Server, app::App, config::Config};

/// No test waits longer for anything.
pub(super) const PATIENCE: Duration = Duration::from_mins(1);

/// An edge's domain.
const PORTS: &str = "[ports]\nbase_url = 'http://localhost:8710'\n";

pub(super) struct World {
    pub(super) server: Server,
    pub(super) admin: Client,
    pub(super) tasks: Tasks,
    pub(super) dir: tempfile::TempDir,
}

impl World {
    pub(super) async fn start() -> Self {
        Self::with(Database::create().url(), "").await
    }

    /// With further lines of configuration.
    pub(super) async fn with(url: &str, extra: &str) -> Self {
        Self::again(url, extra, tempfile::tempdir().unwrap()).await
    }

    /// With another `[registry]`.
    pub(super) async fn with_registry(url: &str, registry: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let config = config(url, registry, "", &dir);
        Self::of(&config, dir).await
    }

    /// On what an earlier one left.
    pub(super) async fn again(url: &str, extra: &str, dir: tempfile::TempDir) -> Self {
        let config = config(url, "[registry]\nlisten = '127.0.0.1:0'\n", extra, &dir);
        Self::of(&config, dir).await
    }

    async fn of(config: &Config, dir: tempfile::TempDir) -> Self {
        let tasks = Tasks::new();
        let server = Server::start(config, &tasks, None).await.unwrap();
        let key = std::fs::read_to_string(dir.path().join("admin.key")).unwrap();
        let admin = Client::new(&format!("http://{}", server.http_address()), key.trim());
        Self { server, admin, tasks, dir }
    }

    pub(super) fn app(&self) -> &Arc<App> {
        &self.server.app
    }

    pub(super) async fn stop(self) -> tempfile::TempDir {
        self.server.stop(Duration::from_secs(20)).await;
        self.dir
    }

    /// A node with room, a lease, and the template `base`.
    pub(super) async fn node(&self) -> SimNode {
        let node = self.join("node-1", 8, 4096).await;
        node.heartbeat().await.unwrap();
        self.publish("base", 1).await;
        node
    }

    /// A node without a lease yet.
    pub(super) async fn join(&self, name: &str, vcpus: u32, memory_mib: u64) -> SimNode {
        let options = self.options(name, vcpus, memory_mib).await;
        SimNode::join(options).await.unwrap()
    }

    pub(super) async fn options(&self, name: &str, vcpus: u32, memory_mib: u64) -> SimOptions {
        let token = self.admin.post("/v1/join-tokens", &json!({})).await.expect(201);
        SimOptions {
            name: name.to_owned(),
            registry: self.server.registry_address(),
            authority_pem: self.app().authority.certificates.authority_pem().to_owned(),
            join_token: token["token"].as_str().unwrap().to_owned(),
            vcpus,
            memory_bytes: memory_mib << 20,
            overhead_bytes: 0,
        }
    }

    pub(super) async fn publish(&self, name: &str, version: u8) -> Value {
        let digest = space_types::Digest::from_sha256([version; 32]);
        let body =
            json!({"name": name, "digest": digest, "location": "file:///base.img", "size_bytes": 1 << 30});
        self.admin.post("/v1/templates", &body).await.expect(201)
    }

    /// A tenant of its own with a member's key.
    pub(super) async fn tenant(&self, name: &str) -> Client {
        let tenant = self.admin.post("/v1/tenants", &json!({"name": name})).await.expect(201);
        let body = json!({"tenant_id": tenant["id"], "name": "k"});
        let key = self.admin.post("/v1/keys", &body).await.expect(201);
        self.admin.with_key(key["secret"].as_str().unwrap())
    }

    /// A sandbox that runs; its id.
    pub(super) async fn running(&self) -> String {
        let created = self.admin.post("/v1/sandboxes?wait=60", &json!({})).await.expect(201);
        created["sandbox"]["id"].as_str().unwrap().to_owned()
    }

    /// The sandbox as soon as it shows `state`.
    pub(super) async fn reaches(&self, id: &str, state: &str) -> Value {
        let end = tokio::time::Instant::now() + PATIENCE;
        loop {
            let sandbox = self.admin.get(&format!("/v1/sandboxes/{id}")).await.expect(200);
            if sandbox["state"] == state {
                return sandbox;
            }
            assert!(tokio::time::Instant::now() < end, "{id} is {sandbox}, not {state}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// What sandboxes hold on all nodes, by the nodes' sums and by the sandboxes themselves.
    pub(super) async fn assert_reservations_add_up(&self) -> i64 {
        let (sums, held): (i64, i64) = sqlx::query_as(
            "select (select coalesce(sum(reserved_memory), 0)::bigint from nodes), \
             (select coalesce(sum(held_memory), 0)::bigint from sandboxes where reserved)",
        )
        .fetch_one(self.app().store.pool())
        .await
        .unwrap();
        assert_eq!(sums, held);
        sums
    }

    pub(super) async fn count(&self, table: &'static str) -> i64 {
        let sql = format!("select count(*) from {table}");
        let (count,): (i64,) =
            sqlx::query_as(sqlx::AssertSqlSafe(sql)).fetch_one(self.app().store.pool()).await.unwrap();
        count
    }
}

fn config(url: &str, registry: &str, extra: &str, dir: &tempfile::TempDir) -> Config {
    let data = dir.path().display();
    let http = if extra.contains("[http]") { "" } else { "[http]\nlisten = '127.0.0.1:0'\n" };
    // All tests of a server come from one address, and many are about keys that are refused.
    let rates = if extra.contains("[rate_limits]") {
        ""
    } else {
        "[rate_limits]\nfailed_authentications_per_minute = 0\n"
    };
    let ports = if extra.contains("[ports]") { "" } else { PORTS };
    let text = format!(
        "data_dir = '{data}'\n[database]\nurl = '{url}'\nacquire_timeout = '1s'\n{http}{registry}{ports}\
         [controllers]\ninterval = '100ms'\n{rates}{extra}"
    );
    let path = Utf8PathBuf::from_path_buf(dir.path().join("config.toml")).unwrap();
    std::fs::write(&path, text).unwrap();
    space_runtime::config::load_with(Some(&path), "SPACE_CONTROLD", []).unwrap()
}

#[derive(Clone)]
pub(super) struct Client {
    pub(super) base: String,
    pub(super) key: String,
    pub(super) http: reqwest::Client,
}

#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) headers: http::HeaderMap,
    pub(super) body: Value,
}

impl Answer {
    /// The body of an answer that has to have this status.
    #[track_caller]
    pub(super) fn expect(self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.body);
        self.body
    }

    #[track_caller]
    pub(super) fn problem(&self, status: u16, code: &str) {
        assert_eq!((self.status, self.body["code"].as_str()), (status, Some(code)), "{}", self.body);
        assert_eq!(self.headers["content-type"], "application/problem+json");
    }
}

impl Client {
    pub(super) fn new(base: &str, key: &str) -> Self {
        let http = reqwest::Client::builder().timeout(PATIENCE).build().unwrap();
        Self { base: base.to_owned(), key: key.to_owned(), http }
    }

    /// The same server with another key. Shares connections: a client of its own takes long to make.
    pub(super) fn with_key(&self, key: &str) -> Self {
        Self { key: key.to_owned(), ..self.clone() }
    }

    pub(super) fn request(&self, method: Method, path: &str) -> reqwest::RequestBuilder {
        let request = self.http.request(method, format!("{}{path}", self.base));
        if self.key.is_empty() { request } else { request.bearer_auth(&self.key) }
    }

    pub(super) async fn send(request: reqwest::RequestBuilder) -> Answer {
        let response = request.send().await.unwrap();
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let bytes = response.bytes().await.unwrap();
        let body = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
        Answer { status, headers, body }
    }

    pub(super) async fn get(&self, path: &str) -> Answer {
        Self::send(self.request(Method::GET, path)).await
    }

    pub(super) async fn delete(&self, path: &str) -> Answer {
        Self::send(self.request(Method::DELETE, path)).await
    }

    pub(super) async fn post(&self, path: &str, body: &Value) -> Answer {
        Self::send(self.request(Method::POST, path).json(body)).await
    }

    pub(super) async fn post_with_key(&self, path: &str, body: &Value, key: &str) -> Answer {
        Self::send(self.request(Method::POST, path).json(body).header("Idempotency-Key", key)).await
    }

    /// Opens a stream.
    pub(super) async fn stream(&self, request: reqwest::RequestBuilder) -> Events {
        let request = request.header("Accept", "text/event-stream").timeout(PATIENCE);
        let response = request.send().await.unwrap();
        assert_eq!(response.status().as_u16(), 200, "{:?}", response.text().await);
        Events { response, parser: space_api::sse::Parser::default(), frames: Vec::new() }
    }
}

/// A stream of events, one by one.
pub(super) struct Events {
    pub(super) response: reqwest::Response,
    parser: space_api::sse::Parser,
    frames: Vec<space_api::sse::Frame>,
}

/// Name, data, id.
pub(super) type SseEvent = (String, Value, Option<String>);

impl Events {
    /// The next event; none at the end.
    pub(super) async fn next(&mut self) -> Option<SseEvent> {
        loop {
            if !self.frames.is_empty() {
                match self.frames.remove(0) {
                    space_api::sse::Frame::Event { name, data, id } => {
                        return Some((name, serde_json::from_str(&data).unwrap(), id));
                    }
                    space_api::sse::Frame::Comment => continue,
                }
            }
            let chunk = self.response.chunk().await.unwrap()?;
            self.parser.push(&chunk, &mut self.frames).unwrap();
        }
    }

    /// All events to the end.
    pub(super) async fn rest(mut self) -> Vec<SseEvent> {
        let mut events = Vec::new();
        while let Some(event) = self.next().await {
            events.push(event);
        }
        events
    }
}

/// The output in these events, as text.
pub(super) fn output(events: &[SseEvent], name: &str) -> String {
    use base64::Engine as _;
    let of = |event: &&SseEvent| event.0 == name;
    let bytes = events.iter().filter(of).flat_map(|event| {
        base64::engine::general_purpose::STANDARD.decode(event.1["data"].as_str().unwrap()).unwrap()
    });
    String::from_utf8(bytes.collect()).unwrap()
}
