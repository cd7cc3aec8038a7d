//! Many open streams, read from control and through an edge: what opening one more takes, and what each costs.

use std::{net::SocketAddr, time::Duration};

use anyhow::{Context as _, Result, ensure};
use futures::{StreamExt as _, TryStreamExt as _, future::try_join_all, stream::BoxStream};
use reqwest::Method;
use serde_json::{Value, json};

use crate::{
    edge::Edge,
    installation::{Installation, resident_kib},
    load::Load,
};

/// Commands in each sandbox.
const EACH: usize = 100;
const ATTACHES: usize = 2_000;
const CLIENTS: usize = 16;
const PATIENCE: Duration = Duration::from_mins(1);
const FOR_EVER: Duration = Duration::from_hours(8);

type Body = BoxStream<'static, reqwest::Result<bytes::Bytes>>;

/// A command that was started, and what opens its output.
struct Command {
    path: String,
    token: String,
}

async fn start(installation: &Installation, sandbox: &str) -> Result<Command> {
    let path = format!("/v1/sandboxes/{sandbox}/commands");
    let created = installation.send(Method::POST, &path, Some(json!({ "argv": ["sleep"] }))).await?;
    let text = |value: &Value| value.as_str().map(str::to_owned).with_context(|| format!("{created}"));
    Ok(Command { path: text(&created["attach"]["url"])?, token: text(&created["attach"]["token"])? })
}

/// Who is asked for a command's output.
#[derive(Clone, Copy)]
struct Door<'a> {
    client: &'a reqwest::Client,
    address: SocketAddr,
    pid: u32,
}

impl Door<'_> {
    /// Attaches, until the first event is there.
    async fn open(self, command: &Command) -> Result<Body> {
        let request = self.client.get(format!("http://{}{}", self.address, command.path));
        let response = request.bearer_auth(&command.token).timeout(FOR_EVER).send().await?;
        ensure!(response.status().is_success(), "{}: {}", command.path, response.text().await?);
        let mut body = response.bytes_stream().boxed();
        let first = tokio::time::timeout(PATIENCE, body.next()).await?.context("an event")??;
        ensure!(first.windows(7).any(|text| text == b"started"), "{first:?}");
        Ok(body)
    }

    async fn measure(self, name: &str, alone: &Command, commands: &[Command]) -> Result<Value> {
        let attach = || async { self.open(alone).await.map(drop) };
        // Until its tokens' keys are there an edge lets nobody in.
        let first = tokio::time::timeout(PATIENCE, async {
            while self.open(alone).await.is_err() {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        });
        first.await.with_context(|| format!("{name} lets nobody in"))?;
        let alone = Load::for_count(CLIENTS, ATTACHES, attach).await?;
        let before = resident_kib(self.pid)?;
        let streams = futures::stream::iter(commands);
        let streams = streams.map(|command| self.open(command)).buffer_unordered(CLIENTS);
        let streams: Vec<Body> = streams.try_collect().await?;
        let after = resident_kib(self.pid)?;
        let many = Load::for_count(CLIENTS, ATTACHES, attach).await?;
        let each = after.saturating_sub(before) as f64 / streams.len() as f64;
        eprintln!(
            "{name}, {} streams open: {:.0} attaches a second (alone {:.0}), p99 {:.1} ms (alone {:.1} ms), {each:.1} KiB each",
            streams.len(),
            many.per_second(),
            alone.per_second(),
            many.p99(),
            alone.p99(),
        );
        Ok(json!({
            "open": streams.len(), "alone": alone.json(), "many": many.json(),
            "p99_ratio": many.p99() / alone.p99(), "rate_ratio": many.per_second() / alone.per_second(),
            "resident_kib_before": before, "resident_kib_after": after, "kib_a_stream": each,
        }))
    }
}

pub(crate) async fn measure(installation: &Installation, edge: &Edge, count: usize) -> Result<Value> {
    let alone = start(installation, &installation.create_one().await?).await?;
    let mut commands = Vec::new();
    for _ in 0..count.div_ceil(EACH) {
        let sandbox = installation.create_one().await?;
        commands.extend(try_join_all((0..EACH).map(|_| start(installation, &sandbox))).await?);
    }
    commands.truncate(count);
    // One connection a stream, as readers have.
    let client = reqwest::Client::builder().http1_only().build()?;
    let control = Door { client: &client, address: installation.http, pid: installation.pid()? };
    let by_control = control.measure("control", &alone, &commands).await?;
    let edge = Door { client: &client, address: edge.address, pid: edge.pid()? };
    let by_edge = edge.measure("edge", &alone, &commands).await?;
    Ok(json!({ "control": by_control, "edge": by_edge }))
}
