//! Daemons that die at each of their fail points. Runs alone, one test after another, because each disturbs all.

use anyhow::{Result, ensure};
use space_e2e::{Server, daemons::Daemon, leftovers::Leftovers, sandbox::whole_life};

/// At every fail point of the daemon: it dies there in the middle of a sandbox's life, and yet that life comes
/// to its end as if nothing had been, and nothing is left. `elsewhere`: those that such a life does not meet.
async fn dies_everywhere(daemon: Daemon, elsewhere: &[&str]) -> Result<()> {
    let server = Server::get()?;
    let points = daemon.fail_points()?;
    // The first use of a template takes a minute; what waits for it meanwhile, armed, would be gone by then.
    whole_life(&server).await?;
    let mut missed = Vec::new();
    for point in &points {
        let before = daemon.deaths_at(point)?;
        daemon.arm(point).await?;
        whole_life(&server).await.map_err(|error| error.context(format!("with {point} armed")))?;
        if daemon.deaths_at(point)? == before {
            missed.push(point.as_str());
            daemon.restart().await?;
        }
        Leftovers::none_but_pool(&server).await.map_err(|error| error.context(point.clone()))?;
    }
    let died = points.len() - missed.len();
    println!("{}: died at {died} of {} fail points", daemon.program(), points.len());
    ensure!(missed == elsewhere, "not met: {missed:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn control_may_die_anywhere() -> Result<()> {
    dies_everywhere(Daemon::Control, &[]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_node_may_die_anywhere() -> Result<()> {
    // A node that joins, a guest that ends by itself: the suite `privileged` of the node meets these.
    dies_everywhere(Daemon::Node, &["enrol.answered", "end.seen", "end.recorded"]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_may_die_anywhere() -> Result<()> {
    dies_everywhere(Daemon::Worker, &[]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn zz_nothing_is_left_at_the_end() -> Result<()> {
    Leftovers::none_at_all(&Server::get()?).await
}
