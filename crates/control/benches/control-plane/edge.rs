//! An edge in a process of its own, before the control plane of an [`Installation`].

use std::{net::SocketAddr, path::Path, process::Stdio, time::Duration};

use anyhow::{Context as _, Result, bail, ensure};
use reqwest::Method;
use serde_json::json;
use tokio::process::{Child, Command};

use crate::installation::{Installation, free_address};

const PATIENCE: Duration = Duration::from_mins(1);

pub(crate) struct Edge {
    pub(crate) address: SocketAddr,
    process: Child,
    _dir: tempfile::TempDir,
}

impl Edge {
    /// Of the program beside control's, which `cargo xtask bench control` builds.
    pub(crate) async fn start(installation: &Installation) -> Result<Self> {
        let program = Path::new(env!("CARGO_BIN_EXE_space-controld")).with_file_name("space-edged");
        ensure!(program.exists(), "{} is not built", program.display());
        let (dir, address) = (tempfile::tempdir()?, free_address()?);
        let token = installation.send(Method::POST, "/v1/join-tokens", Some(json!({"kind": "edge"}))).await?;
        let token = token["token"].as_str().context("a token")?;
        let write = |name: &str, text: &str| {
            let path = dir.path().join(name);
            std::fs::write(&path, text).map(|()| path)
        };
        let authority = write("authority.pem", &installation.authority()?)?;
        let token = write("join.token", token)?;
        let config = format!(
            "data_dir = '{dir}/data'\nlisten = '{address}'\ndomain = 'localhost'\n\
             [control]\nurl = 'https://{registry}'\nauthority = '{authority}'\njoin_token_file = '{token}'\n\
             [limits]\nconnections = 65536\naddress_connections = 0\naddress_requests_per_second = 0\n\
             [telemetry]\nlog_filter = 'warn'\n",
            dir = dir.path().display(),
            registry = installation.registry,
            authority = authority.display(),
            token = token.display(),
        );
        let path = write("edged.toml", &config)?;
        let log = std::fs::File::create(dir.path().join("log"))?;
        let process = Command::new(program)
            .arg("--config")
            .arg(&path)
            .stdout(Stdio::null())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()?;
        let mut edge = Self { address, process, _dir: dir };
        edge.answers().await?;
        Ok(edge)
    }

    /// Another process's start gives no event.
    async fn answers(&mut self) -> Result<()> {
        let end = tokio::time::Instant::now() + PATIENCE;
        while tokio::net::TcpStream::connect(self.address).await.is_err() {
            if let Some(status) = self.process.try_wait()? {
                bail!("space-edged ended with {status}");
            }
            ensure!(tokio::time::Instant::now() < end, "space-edged does not answer");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    pub(crate) fn pid(&self) -> Result<u32> {
        self.process.id().context("space-edged runs")
    }
}
