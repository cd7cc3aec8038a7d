//! Many open streams: what opening one more takes, and what each costs.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use futures::{StreamExt as _, TryStreamExt as _, future::try_join_all, stream::BoxStream};
use reqwest::Method;
use serde_json::{Value, json};

use crate::{installation::Installation, load::Load};

/// Commands in each sandbox.
const EACH: usize = 100;
const ATTACHES: usize = 2_000;
const CLIENTS: usize = 16;
const PATIENCE: Duration = Duration::from_mins(1);
const FOR_EVER: Duration = Duration::from_hours(8);

type Body = BoxStream<'static, reqwest::Result<bytes::Bytes>>;

/// The path of a command that was started.
async fn start(installation: &Installation, sandbox: &str) -> Result<String> {
    let path = format!("/v1/sandboxes/{sandbox}/commands");
    let created = installation.send(Method::POST, &path, Some(json!({ "argv": ["sleep"] }))).await?;
    let id = created["command"]["id"].as_str().with_context(|| format!("a command's id: {created}"))?;
    Ok(format!("{path}/{id}"))
}

/// Attaches, until the first event is there.
async fn open(installation: &Installation, command: &str) -> Result<Body> {
    let request = installation.request(Method::GET, &format!("{command}/attach")).timeout(FOR_EVER);
    let response = request.send().await?;
    ensure!(response.status().is_success(), "{command}: {}", response.status());
    let mut body = response.bytes_stream().boxed();
    let first = tokio::time::timeout(PATIENCE, body.next()).await?.context("an event")??;
    ensure!(first.windows(7).any(|text| text == b"started"), "{first:?}");
    Ok(body)
}

pub(crate) async fn measure(installation: &Installation, count: usize) -> Result<Value> {
    let command = start(installation, &installation.create_one().await?).await?;
    let attach = || async { open(installation, &command).await.map(drop) };
    let alone = Load::for_count(CLIENTS, ATTACHES, attach).await?;
    let before = installation.resident_kib()?;

    let mut commands = Vec::new();
    for _ in 0..count.div_ceil(EACH) {
        let sandbox = installation.create_one().await?;
        commands.extend(try_join_all((0..EACH).map(|_| start(installation, &sandbox))).await?);
    }
    let streams = futures::stream::iter(commands.iter().take(count));
    let streams = streams.map(|command| open(installation, command)).buffer_unordered(CLIENTS);
    let streams: Vec<Body> = streams.try_collect().await?;
    let after = installation.resident_kib()?;
    let many = Load::for_count(CLIENTS, ATTACHES, attach).await?;
    let each = after.saturating_sub(before) as f64 / streams.len() as f64;
    eprintln!(
        "{} streams open: {:.0} attaches a second (alone {:.0}), p99 {:.1} ms (alone {:.1} ms), {each:.1} KiB each",
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
