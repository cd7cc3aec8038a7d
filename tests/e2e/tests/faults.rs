//! Daemons that die under a stream, a dead database, a full disk. Runs alone, one test after another, because each
//! disturbs all.

use std::time::Duration;

use anyhow::{Result, ensure};
use space_api::{ProblemCode, operations::OperationStatus};
use space_e2e::{
    Sandbox, Server,
    daemons::Daemon,
    leftovers::Leftovers,
    sandbox::{Outcome, small, whole_life},
    server::BOOT_SECONDS,
    wait,
};
use space_types::SandboxState;

/// Waits until the sandbox's command has printed some lines.
async fn in_the_middle(sandbox: &Sandbox) -> Result<()> {
    wait::until("some lines", Duration::from_mins(1), || async {
        let commands = sandbox.server.client.command_list(sandbox.id).await?.items;
        ensure!(commands.iter().any(|command| command.last_sequence >= 5), "nothing yet: {commands:?}");
        Ok(())
    })
    .await
}

const EDGE: &str = "http://127.0.0.1:8710";
const LINES: &str = "for i in $(seq 1 40); do echo $i; sleep 0.25; done";

/// The same command goes on under new daemons; its reader sees every line once.
async fn a_stream_survives(daemon: Daemon) -> Result<()> {
    let sandbox = Sandbox::create().await?;
    let (outcome, killed) = tokio::join!(sandbox.sh(LINES), async {
        in_the_middle(&sandbox).await?;
        daemon.kill().await
    });
    killed?;
    every_line_once(&outcome?);
    assert_eq!(sandbox.sh("echo after").await?.stdout(), "after\n");
    Ok(())
}

fn every_line_once(outcome: &Outcome) {
    let expected: String = (1..=40).map(|n| format!("{n}\n")).collect();
    assert_eq!(outcome.stdout(), expected, "{outcome}");
}

/// Of the three that a reader of the edge depends on, it notices the edge's death alone, and that only as a break.
#[tokio::test(flavor = "multi_thread")]
async fn a_stream_through_the_edge_survives_every_death() -> Result<()> {
    let sandbox = Sandbox::create().await?;
    let (outcome, killed) = tokio::join!(sandbox.sh_through(EDGE, LINES), async {
        in_the_middle(&sandbox).await?;
        for daemon in [Daemon::Control, Daemon::Edge, Daemon::Worker] {
            daemon.kill().await?;
        }
        anyhow::Ok(())
    });
    killed?;
    every_line_once(&outcome?);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_survives_the_death_of_control() -> Result<()> {
    a_stream_survives(Daemon::Control).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_survives_the_death_of_the_node() -> Result<()> {
    a_stream_survives(Daemon::Node).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_survives_the_death_of_its_worker() -> Result<()> {
    a_stream_survives(Daemon::Worker).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_database_stops_no_sandbox_and_comes_back() -> Result<()> {
    a_stream_survives(Daemon::Postgres).await?;
    whole_life(&Server::get()?).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_node_disk_refuses_and_leaks_nothing() -> Result<()> {
    let server = Server::get()?;
    let filler = "/var/lib/space/node/filler";
    // `fallocate` reserves the extents; what is left is below the node's headroom.
    let free =
        std::process::Command::new("df").args(["--output=avail", "-B1", "/var/lib/space/node"]).output()?;
    let free: u64 = String::from_utf8(free.stdout)?.lines().nth(1).unwrap_or("0").trim().parse()?;
    let most = free.saturating_sub(64 << 20).to_string();
    let filled = std::process::Command::new("fallocate").args(["-l", &most, filler]).status()?;
    ensure!(filled.success(), "the disk could not be filled");
    let body = small();
    let accepted = server.client.sandbox_create(&body, BOOT_SECONDS).await;
    std::fs::remove_file(filler)?;
    let accepted = accepted?;
    let sandbox = Sandbox::adopt(&server, accepted.sandbox.id);
    assert_eq!(accepted.operation.status, OperationStatus::Failed, "{accepted:?}");
    let seen = sandbox.reaches(SandboxState::Failed).await?;
    assert_eq!(seen.reason.map(|reason| reason.code()), Some("no_disk_space"));
    sandbox.remove().await?;
    wait::until("room again", Duration::from_mins(1), || whole_life(&server)).await?;
    Leftovers::none_but_pool(&server).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_key_opens_nothing_at_once() -> Result<()> {
    let server = Server::get()?;
    let stranger = server.as_another_tenant("revoked").await?;
    stranger.sandboxes().await?;
    let keys = server.client.key_list(&Default::default()).await?;
    let key = keys.items.iter().find(|key| key.name == "revoked").map(|key| key.id);
    server.client.key_revoke(key.ok_or_else(|| anyhow::anyhow!("the key is not listed"))?).await?;
    let refused = stranger.client.sandbox_list(&Default::default()).await.unwrap_err();
    assert_eq!(refused.problem().map(|problem| problem.code), Some(ProblemCode::Unauthorized), "{refused}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn zz_nothing_is_left_at_the_end() -> Result<()> {
    Leftovers::none_at_all(&Server::get()?).await
}
