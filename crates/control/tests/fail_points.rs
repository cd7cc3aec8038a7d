//! The daemon dies at each of its fail points, is started again, and the same requests come to their end: nothing that
//! was acknowledged is lost, nothing is done twice, nothing is left.

#![expect(clippy::unwrap_used, reason = "a test that can't go on ends")]

use std::{
    net::{SocketAddr, TcpListener},
    process::Stdio,
    time::Duration,
};

use serde_json::{Value, json};
use space_control::fail_point;
use space_testkit::{
    postgres::Database,
    sim::{SimNode, SimOptions},
};
use sqlx::Connection as _;
use tokio::process::{Child, Command};

const PATIENCE: Duration = Duration::from_mins(1);
const SIGABRT: i32 = 6;

struct Installation {
    dir: tempfile::TempDir,
    database: Database,
    http: SocketAddr,
    registry: SocketAddr,
    client: reqwest::Client,
}

fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

impl Installation {
    fn new() -> Self {
        let client = reqwest::Client::builder().timeout(PATIENCE).build().unwrap();
        let dir = tempfile::tempdir().unwrap();
        Self { dir, database: Database::create(), http: free_address(), registry: free_address(), client }
    }

    fn config(&self) -> String {
        format!(
            "data_dir = '{dir}'\njoin_token_file = '{dir}/join.token'\n[database]\nurl = '{url}'\n\
             [http]\nlisten = '{http}'\n[registry]\nlisten = '{registry}'\n[internal]\nlisten = '127.0.0.1:0'\n\
             [controllers]\ninterval = '100ms'\n[telemetry]\nlog_filter = 'warn'\n",
            dir = self.dir.path().display(),
            url = self.database.url(),
            http = self.http,
            registry = self.registry,
        )
    }

    /// A process that answers.
    async fn start(&self, point: Option<&str>) -> Child {
        let path = self.dir.path().join("config.toml");
        std::fs::write(&path, self.config()).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_space-controld"));
        command.arg("--config").arg(&path).stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
        if let Some(point) = point {
            command.env("SPACE_FAIL_POINT", point);
        }
        let child = command.spawn().unwrap();
        let end = tokio::time::Instant::now() + PATIENCE;
        // Another process's start gives no event.
        while self.client.get(format!("http://{}/openapi.json", self.http)).send().await.is_err() {
            assert!(tokio::time::Instant::now() < end, "the daemon does not start");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        child
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.dir.path().join(name)).unwrap().trim().to_owned()
    }

    /// `None`: the daemon died before it had answered.
    async fn send(
        &self,
        method: reqwest::Method,
        path: &str,
        body: Option<Value>,
        key: &str,
    ) -> Option<Value> {
        let request = self.client.request(method, format!("http://{}{path}", self.http));
        let request = request.bearer_auth(self.read("admin.key")).header("Idempotency-Key", key);
        let request = request.header("Accept", "application/json");
        let request = match body {
            Some(body) => request.json(&body),
            None => request,
        };
        let response = request.send().await.ok()?;
        let status = response.status();
        let body: Value = response.json().await.ok()?;
        assert!(status.is_success(), "{path}: {status} {body}");
        Some(body)
    }

    /// Create, run, delete, each under its own key.
    async fn lifecycle(&self) -> Option<Value> {
        use reqwest::Method;
        let created = self.send(Method::POST, "/v1/sandboxes?wait=60", Some(json!({})), "create").await?;
        assert_eq!(created["operation"]["status"], "succeeded", "{created}");
        let path = format!("/v1/sandboxes/{}", created["sandbox"]["id"].as_str().unwrap());
        // Unless the process died while it deleted the sandbox.
        if created["sandbox"]["state"] == "running" {
            let command = json!({"argv": ["echo", "hello"]});
            // The stream first: it passes the point before the first event, which the other form does not have.
            self.stream(&format!("{path}/exec"), &command).await?;
            let result = self.send(Method::POST, &format!("{path}/exec"), Some(command), "exec").await?;
            assert_eq!(result["stdout"], "aGVsbG8K");
        }
        self.send(Method::DELETE, &format!("{path}?wait=60"), None, "unused").await
    }

    async fn stream(&self, path: &str, command: &Value) -> Option<String> {
        let request =
            self.client.post(format!("http://{}{path}", self.http)).bearer_auth(self.read("admin.key"));
        let response = request.header("Idempotency-Key", "exec").json(command).send().await.ok()?;
        response.text().await.ok()
    }

    async fn left_over(&self) -> (i64, i64, i64, i64) {
        let mut connection = sqlx::PgConnection::connect(self.database.url()).await.unwrap();
        sqlx::query_as(
            "select (select count(*) from sandboxes), (select count(*) from triggers), \
             (select count(*) from operations where finished_at is null), \
             (select sum(reserved_memory + reserved_vcpus)::bigint from nodes)",
        )
        .fetch_one(&mut connection)
        .await
        .unwrap()
    }
}

async fn dies_at(point: &'static str) {
    let installation = Installation::new();
    let mut first = installation.start(None).await;
    let node = SimNode::join(SimOptions {
        name: "node".into(),
        registry: installation.registry,
        authority_pem: installation.read("authority/ca.pem"),
        join_token: installation.read("join.token"),
        vcpus: 8,
        memory_bytes: 4 << 30,
        overhead_bytes: 64 << 20,
    });
    let node = node.await.unwrap();
    node.heartbeat().await.unwrap();
    let digest = format!("sha256:{}", "07".repeat(32));
    let template = json!({"name": "base", "digest": digest, "location": "file:///x", "size_bytes": 4096});
    installation.send(reqwest::Method::POST, "/v1/templates", Some(template), "publish").await.unwrap();
    first.kill().await.unwrap();

    let mut dying = installation.start(Some(point)).await;
    assert!(installation.lifecycle().await.is_none(), "{point} was not met");
    let status = tokio::time::timeout(PATIENCE, dying.wait()).await.unwrap().unwrap();
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(SIGABRT), "{point}");

    let _last = installation.start(None).await;
    node.heartbeat().await.unwrap();
    let deleted = installation.lifecycle().await.unwrap();
    assert_eq!(deleted["sandbox"]["state"], "deleted", "{point}");
    assert_eq!(installation.left_over().await, (1, 0, 0, 0), "{point}");
    assert!(node.reports().is_empty(), "{point}");
    assert!(node.command_count() <= 1, "{point}: the command was made {} times", node.command_count());
}

fn names() -> Vec<&'static str> {
    fail_point::ALL.iter().map(|point| point.name()).collect()
}

macro_rules! fail_points {
    ($($test:ident = $point:literal;)*) => {
        $(
            #[tokio::test]
            async fn $test() {
                dies_at($point).await;
            }
        )*

        #[test]
        fn every_fail_point_has_its_test() {
            assert_eq!(names(), [$($point),*]);
        }
    };
}

fail_points! {
    create_before_commit = "create.before_commit";
    create_after_commit = "create.after_commit";
    create_before_node_call = "create.before_node_call";
    create_after_node_call = "create.after_node_call";
    observe_before_commit = "observe.before_commit";
    observe_after_commit = "observe.after_commit";
    exec_before_worker_call = "exec.before_worker_call";
    exec_after_worker_call = "exec.after_worker_call";
    exec_before_first_event = "exec.before_first_event";
    delete_before_commit = "delete.before_commit";
    delete_after_commit = "delete.after_commit";
    delete_before_node_call = "delete.before_node_call";
    delete_after_node_call = "delete.after_node_call";
    conclude_before_commit = "conclude.before_commit";
    conclude_after_commit = "conclude.after_commit";
}

#[test]
fn the_list_is_printed() {
    let output =
        std::process::Command::new(env!("CARGO_BIN_EXE_space-controld")).arg("fail-points").output().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    assert_eq!(printed.lines().collect::<Vec<_>>(), names());
}
