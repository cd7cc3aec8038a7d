//! A control plane in a process of its own, with simulated nodes in this one.

use std::{
    net::{SocketAddr, TcpListener},
    process::Stdio,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use anyhow::{Context as _, Result, bail, ensure};
use reqwest::Method;
use serde_json::{Value, json};
use space_testkit::{
    postgres::Database,
    sim::{SimNode, SimOptions},
};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};
use tokio::{
    process::{Child, Command},
    task::JoinSet,
};

use crate::load::Load;

const PATIENCE: Duration = Duration::from_mins(1);
const HEARTBEAT: Duration = Duration::from_secs(5);

pub(crate) struct Installation {
    dir: tempfile::TempDir,
    database: Database,
    pub(crate) http: SocketAddr,
    pub(crate) registry: SocketAddr,
    client: reqwest::Client,
    key: String,
    control: Child,
    heartbeats: JoinSet<()>,
    ids: std::sync::Mutex<Vec<String>>,
    next: AtomicUsize,
}

pub(crate) fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}

impl Installation {
    /// With `interval` between rounds of the controllers that nobody asked for.
    pub(crate) async fn start(nodes: usize, interval: Duration) -> Result<Self> {
        let dir = tempfile::tempdir()?;
        let (http, registry) = (free_address()?, free_address()?);
        let database = Database::create();
        let path = dir.path().join("config.toml");
        let config = format!(
            "data_dir = '{dir}'\n[database]\nurl = '{url}'\n\
             [http]\nlisten = '{http}'\n[registry]\nlisten = '{registry}'\n[internal]\nlisten = '127.0.0.1:0'\n\
             [rate_limits]\nkey_per_second = 0\ntenant_per_second = 0\ncreates_per_second = 0\n\
             [controllers]\ninterval = '{interval}s'\n[telemetry]\nlog_filter = 'warn'\n",
            dir = dir.path().display(),
            url = database.url(),
            interval = interval.as_secs(),
        );
        std::fs::write(&path, config)?;
        let log = std::fs::File::create(dir.path().join("log"))?;
        let control = Command::new(env!("CARGO_BIN_EXE_space-controld"))
            .arg("--config")
            .arg(&path)
            .stdout(Stdio::null())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()?;
        let client = reqwest::Client::builder().timeout(PATIENCE).build()?;
        let mut installation = Self {
            dir,
            database,
            http,
            registry,
            client,
            key: String::new(),
            control,
            heartbeats: JoinSet::new(),
            ids: std::sync::Mutex::default(),
            next: AtomicUsize::new(0),
        };
        installation.answers().await?;
        installation.key = installation.read("admin.key")?;
        installation.publish().await?;
        for node in 0..nodes {
            installation.join(node, registry).await?;
        }
        Ok(installation)
    }

    /// Another process's start gives no event.
    async fn answers(&mut self) -> Result<()> {
        let end = tokio::time::Instant::now() + PATIENCE;
        let url = format!("http://{}/openapi.json", self.http);
        while self.client.get(&url).send().await.is_err() {
            if let Some(status) = self.control.try_wait()? {
                bail!("space-controld ended with {status}: {}", self.read("log")?);
            }
            ensure!(tokio::time::Instant::now() < end, "space-controld does not answer");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    fn read(&self, name: &str) -> Result<String> {
        Ok(std::fs::read_to_string(self.dir.path().join(name))?.trim().to_owned())
    }

    /// Whom nodes and edges trust.
    pub(crate) fn authority(&self) -> Result<String> {
        self.read("authority/ca.pem")
    }

    async fn publish(&self) -> Result<()> {
        let digest = format!("sha256:{}", "07".repeat(32));
        let body = json!({"name": "base", "digest": digest, "location": "file:///x", "size_bytes": 4096});
        self.send(Method::POST, "/v1/templates", Some(body)).await.map(drop)
    }

    async fn join(&mut self, node: usize, registry: SocketAddr) -> Result<()> {
        let token = self.send(Method::POST, "/v1/join-tokens", Some(json!({}))).await?;
        let node = SimNode::join(SimOptions {
            name: format!("node-{node}"),
            registry,
            authority_pem: self.authority()?,
            join_token: token["token"].as_str().context("a token")?.to_owned(),
            vcpus: 1_000_000,
            memory_bytes: 1 << 50,
            overhead_bytes: 0,
        })
        .await?;
        let node = Arc::new(node);
        node.heartbeat().await?;
        self.heartbeats.spawn(async move {
            loop {
                tokio::time::sleep(HEARTBEAT).await;
                if let Err(error) = node.heartbeat().await {
                    eprintln!("a heartbeat failed: {error:#}");
                }
            }
        });
        Ok(())
    }

    pub(crate) fn database_url(&self) -> &str {
        self.database.url()
    }

    /// One after the other, on one connection.
    pub(crate) async fn sql(&self, statements: &[&str]) -> Result<()> {
        let mut connection = PgConnection::connect(self.database.url()).await?;
        for sql in statements {
            sqlx::raw_sql(AssertSqlSafe(*sql)).execute(&mut connection).await?;
        }
        Ok(())
    }

    pub(crate) async fn send(&self, method: Method, path: &str, body: Option<Value>) -> Result<Value> {
        let request =
            self.client.request(method, format!("http://{}{path}", self.http)).bearer_auth(&self.key);
        let request = match body {
            Some(body) => request.json(&body),
            None => request,
        };
        let response = request.header("Accept", "application/json").send().await?;
        let status = response.status();
        let body: Value = response.json().await?;
        ensure!(status.is_success(), "{path}: {status} {body}");
        Ok(body)
    }

    /// Until it runs.
    pub(crate) async fn create(&self) -> Result<()> {
        self.create_one().await.map(drop)
    }

    /// The id of one that runs.
    pub(crate) async fn create_one(&self) -> Result<String> {
        let created = self.send(Method::POST, "/v1/sandboxes?wait=60", Some(json!({}))).await?;
        ensure!(created["operation"]["status"] == "succeeded", "{created}");
        let id = created["sandbox"]["id"].as_str().context("an id")?.to_owned();
        self.ids().push(id.clone());
        Ok(id)
    }

    fn ids(&self) -> std::sync::MutexGuard<'_, Vec<String>> {
        self.ids.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Another one each time, all over the table.
    pub(crate) async fn get(&self) -> Result<()> {
        let path = {
            let ids = self.ids();
            // A prime near the golden ratio of 2^32 spreads over whatever is there.
            let at = self.next.fetch_add(2_654_435_761, Ordering::Relaxed) % ids.len();
            format!("/v1/sandboxes/{}", ids[at])
        };
        self.send(Method::GET, &path, None).await.map(drop)
    }

    /// The first page.
    pub(crate) async fn list(&self) -> Result<()> {
        let page = self.send(Method::GET, "/v1/sandboxes?limit=50", None).await?;
        ensure!(page["items"].as_array().is_some_and(|items| items.len() == 50), "a short page");
        Ok(())
    }

    pub(crate) async fn count(&self) -> Result<i64> {
        let mut connection = PgConnection::connect(self.database.url()).await?;
        Ok(sqlx::query_scalar("select count(*) from sandboxes").fetch_one(&mut connection).await?)
    }

    pub(crate) async fn fill_up_to(&self, count: usize) -> Result<()> {
        let missing = count.saturating_sub(usize::try_from(self.count().await?)?);
        if missing > 0 {
            let load = Load::for_count(32, missing, || self.create()).await?;
            eprintln!("{missing} more sandboxes, {:.0} a second", load.per_second());
        }
        // As autovacuum would have, had it had the time.
        self.sql(&["vacuum analyze"]).await
    }

    /// No heartbeat from now on.
    pub(crate) async fn hush_nodes(&mut self) {
        self.heartbeats.shutdown().await;
    }

    /// Without the control plane and its nodes.
    pub(crate) fn into_database(self) -> Database {
        self.database
    }

    pub(crate) fn pid(&self) -> Result<u32> {
        self.control.id().context("space-controld runs")
    }
}

/// Of a process.
pub(crate) fn resident_kib(pid: u32) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|rest| rest.trim().split(' ').next()?.parse().ok()).context("a resident size")
}
