//! Daemons that die at the worst instant. Runs alone, one test after another, because each disturbs all.

use std::{env, time::Duration};

use anyhow::{Result, ensure};
use space_api::{ProblemCode, operations::OperationStatus};
use space_e2e::{
    Sandbox, Server, daemons::Daemon, leftovers::Leftovers, sandbox::small, server::BOOT_SECONDS, wait,
};
use space_types::SandboxState;

/// Slots that a node keeps waiting; `space up` configures as many.
fn pool() -> usize {
    env::var("SPACE_POOL_SLOTS").ok().and_then(|text| text.parse().ok()).unwrap_or(2)
}

/// Creates, runs, deletes; every step is repeated by the client until it is answered.
async fn whole_life(server: &Server) -> Result<()> {
    let sandbox = Sandbox::create_on(server).await?;
    let said = sandbox.sh("echo here").await?;
    ensure!(said.stdout() == "here\n", "{said}");
    sandbox.remove().await
}

/// At every fail point of the daemon: it dies there in the middle of a sandbox's life, and yet that life comes
/// to its end as if nothing had been, and nothing is left.
async fn dies_everywhere(daemon: Daemon) -> Result<()> {
    let server = Server::get()?;
    let points = daemon.fail_points()?;
    let mut reached = 0;
    for point in &points {
        let before = daemon.deaths_at(point)?;
        daemon.arm(point).await?;
        whole_life(&server).await.map_err(|error| error.context(format!("with {point} armed")))?;
        if daemon.deaths_at(point)? == before {
            println!("{point}: not on the path of create, exec and delete");
            daemon.restart().await?;
        } else {
            reached += 1;
        }
        Leftovers::none_but_pool(&server, pool()).await.map_err(|error| error.context(point.clone()))?;
    }
    println!("{}: died at {reached} of {} fail points", daemon.program(), points.len());
    ensure!(reached * 10 >= points.len() * 8, "only {reached} of {} were reached", points.len());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn control_may_die_anywhere() -> Result<()> {
    dies_everywhere(Daemon::Control).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_node_may_die_anywhere() -> Result<()> {
    dies_everywhere(Daemon::Node).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_may_die_anywhere() -> Result<()> {
    dies_everywhere(Daemon::Worker).await
}

/// The same command goes on under new daemons; its reader sees every line once.
async fn a_stream_survives(daemon: Daemon) -> Result<()> {
    let sandbox = Sandbox::create().await?;
    let script = "for i in $(seq 1 40); do echo $i; sleep 0.25; done";
    let (outcome, killed) = tokio::join!(sandbox.sh(script), async {
        tokio::time::sleep(Duration::from_secs(3)).await;
        daemon.kill().await
    });
    killed?;
    let outcome = outcome?;
    let expected: String = (1..=40).map(|n| format!("{n}\n")).collect();
    assert_eq!(outcome.stdout(), expected, "{outcome}");
    assert_eq!(sandbox.sh("echo after").await?.stdout(), "after\n");
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
    Leftovers::none_but_pool(&server, pool()).await
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
    Leftovers::none_but_pool(&Server::get()?, pool()).await
}
