//! The floor under creates: the database alone, running the very statements of a create.
//!
//! It has a database of its own, whose control plane has ended, on the same server.

use std::{path::Path, process::Stdio, time::Duration};

use anyhow::{Context as _, Result, ensure};
use space_testkit::postgres::Database;
use tokio::process::Command;

use crate::{
    capture::{self, Script},
    installation::Installation,
};

/// Nothing but what is asked for is to be in the captured log.
const UNDISTURBED: Duration = Duration::from_hours(1);

pub(crate) struct Floor {
    database: Database,
    pub(crate) script: Script,
}

impl Floor {
    pub(crate) async fn capture(nodes: usize) -> Result<Self> {
        let mut installation = Installation::start(nodes, UNDISTURBED).await?;
        let script = capture::create(&mut installation).await?;
        Ok(Self { database: installation.into_database(), script })
    }

    /// Runs of the script a second.
    pub(crate) async fn per_second(&self, clients: usize, time: Duration) -> Result<f64> {
        let dir = tempfile::tempdir()?;
        let path = dir.path().join("create.sql");
        std::fs::write(&path, &self.script.text)?;
        let output = Command::new(program())
            .args(["--no-vacuum", "--protocol=prepared", "--jobs=2"])
            .arg(format!("--client={clients}"))
            .arg(format!("--time={}", time.as_secs()))
            .arg("--file")
            .arg(&path)
            .arg(self.database.url())
            .stdin(Stdio::null())
            .output()
            .await
            .context("cannot run pgbench")?;
        let told = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        let went_well = output.status.success() && !errors.contains("aborted");
        ensure!(went_well, "pgbench: {told}\n{errors}\n{}", self.script.text);
        let rate = told.lines().find_map(|line| line.strip_prefix("tps = ")?.split(' ').next()?.parse().ok());
        rate.with_context(|| format!("pgbench told no rate: {told}"))
    }
}

fn program() -> String {
    let beside = std::env::var("SPACE_POSTGRES_BIN").map(|dir| format!("{dir}/pgbench"));
    beside.ok().filter(|path| Path::new(path).exists()).unwrap_or_else(|| "pgbench".to_owned())
}
