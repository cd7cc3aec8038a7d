//! What is left to do once the programs run, and how to tell that they do.

use std::{
    net::SocketAddr,
    time::{Duration, SystemTime},
};

use anyhow::{Context, bail};
use camino::Utf8Path;
use space_api::{
    PageQuery,
    client::{Client, ClientConfig},
    nodes::{Node, NodeState},
    templates::PublishRelease,
};
use tokio::time::{Instant, sleep};

use super::layout::{self, Layout};
use crate::{assets::Assets, connect::Credentials, image};

/// The daemons announce nothing to their supervisor, so it looks.
const PAUSE: Duration = Duration::from_millis(100);
/// Emulated machines are slow at everything.
const DEADLINE: Duration = Duration::from_mins(3);

pub(super) fn url(listen: SocketAddr) -> String {
    // An address that means "all of them" is none to connect to.
    let mut address = listen;
    if listen.ip().is_unspecified() {
        address.set_ip(if listen.is_ipv4() {
            [127, 0, 0, 1].into()
        } else {
            std::net::Ipv6Addr::LOCALHOST.into()
        });
    }
    format!("http://{address}")
}

/// Removes what control writes at each start, so that its presence means something.
pub(super) fn forget_last_start(layout: &Layout) -> anyhow::Result<()> {
    [layout.join_token(), layout.edge_join_token()].iter().try_for_each(|path| {
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(error).with_context(|| format!("cannot remove {path}"))
            }
            Ok(()) | Err(_) => Ok(()),
        }
    })
}

/// Control has written what the node, the edge and the first client need.
pub(super) async fn control_is_up(layout: &Layout) -> anyhow::Result<()> {
    let files =
        [layout.control_admin_key(), layout.authority(), layout.join_token(), layout.edge_join_token()];
    poll("the control plane did not start", async || Ok(files.iter().all(|path| path.exists()))).await
}

/// Writes the credentials of whoever started this, and answers a client that uses them.
pub(super) fn credentials(layout: &Layout, listen: SocketAddr) -> anyhow::Result<Client> {
    let path = layout.control_admin_key();
    let key = std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    let credentials = Credentials { url: Some(url(listen)), key: Some(key.trim().to_owned()) };
    // Under sudo the files are for the user behind it, who is root's equal anyhow.
    let owner = std::env::var("SUDO_UID").ok().and_then(|uid| uid.parse().ok());
    layout::write(&layout.admin_key(), format!("{}\n", key.trim()).as_bytes(), 0o600, owner)?;
    layout::write(&layout.credentials(), &serde_json::to_vec_pretty(&credentials)?, 0o600, owner)?;
    let config = ClientConfig { patience: DEADLINE, ..ClientConfig::new(url(listen), credentials.key) };
    Ok(Client::new(config)?)
}

/// A node has been heard since `start`: a lease alone may be left from before.
pub(super) async fn node_is_ready(client: &Client, start: SystemTime) -> anyhow::Result<()> {
    let start = start.duration_since(SystemTime::UNIX_EPOCH)?.as_millis();
    let heard = |node: &Node| {
        let at = node.last_heartbeat_at.and_then(|at| u128::try_from(at.unix_milliseconds()).ok());
        node.state == NodeState::Ready && at >= Some(start)
    };
    poll("the node did not join", async || {
        let nodes = client.node_list(&PageQuery::default()).await?;
        Ok(nodes.items.iter().any(heard))
    })
    .await
}

/// Publishes `base:latest`, unless it means this image already.
pub(super) async fn publish_base(client: &Client, assets: &Assets) -> anyhow::Result<()> {
    let path = assets.base_image();
    if !path.is_file() {
        eprintln!("space: no base template at {path}: publish one with `space template import`");
        return Ok(());
    }
    let digest = match assets.base_digest() {
        Some(digest) => digest,
        None => image::digest(&path).await?,
    };
    let templates = client.template_list(&PageQuery::default()).await?;
    let published = templates.items.iter().find(|template| template.name == "base");
    if published.and_then(|template| template.tags.get("latest")) == Some(&digest) {
        return Ok(());
    }
    let release = PublishRelease {
        name: "base".to_owned(),
        tag: "latest".to_owned(),
        digest,
        location: location(&path)?,
        size_bytes: path.metadata()?.len(),
    };
    client.release_publish(&release).await?;
    Ok(())
}

fn location(path: &Utf8Path) -> anyhow::Result<String> {
    let path = path.canonicalize_utf8().with_context(|| format!("cannot resolve {path}"))?;
    Ok(format!("file://{path}"))
}

async fn poll(failure: &str, done: impl AsyncFn() -> anyhow::Result<bool>) -> anyhow::Result<()> {
    let until = Instant::now() + DEADLINE;
    while !done().await? {
        if Instant::now() >= until {
            bail!("{failure} within {} s", DEADLINE.as_secs());
        }
        sleep(PAUSE).await;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_means_all_is_reached_on_loopback() {
        let shown = ["0.0.0.0:1", "[::]:2", "10.0.0.1:3"].map(|listen| url(listen.parse().unwrap()));
        assert_eq!(shown, ["http://127.0.0.1:1", "http://[::1]:2", "http://10.0.0.1:3"]);
    }
}
