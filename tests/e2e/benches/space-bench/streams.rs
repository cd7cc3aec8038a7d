//! A large output, and a large file each way, against the same command on a raw vsock connection.

use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use bytes::Bytes;
use futures::stream;
use serde_json::{Value, json};
use space_api::{
    Signal,
    client::{StreamConfig, Written},
    commands::CreateCommand,
    files::{PlaceQuery, WriteQuery},
    sandboxes::CreateSandbox,
    sse::CommandEvent,
};
use space_e2e::{Sandbox, Server};

use crate::raw::Raw;

const MIB: u64 = 1 << 20;
const CHUNK: usize = 64 * 1024;

/// How long `bytes` took on either side.
pub(crate) struct Copy {
    pub(crate) name: &'static str,
    bytes: u64,
    floor: Duration,
    ours: Duration,
    /// Of an output: what the command wrote and the reader was told to have missed.
    lost: u64,
}

impl Copy {
    pub(crate) fn ratio(&self) -> f64 {
        self.floor.as_secs_f64() / self.ours.as_secs_f64()
    }

    pub(crate) fn row(&self) -> String {
        format!(
            "{:<28} {:>10.1} {:>10.1} {:>10} {:>8.2}",
            self.name,
            mib_per_second(self.bytes, self.floor),
            mib_per_second(self.bytes, self.ours),
            self.lost / MIB,
            self.ratio()
        )
    }

    pub(crate) fn json(&self) -> Value {
        json!({
            "bytes": self.bytes,
            "floor_mib_s": mib_per_second(self.bytes, self.floor),
            "ours_mib_s": mib_per_second(self.bytes, self.ours),
            "lost_bytes": self.lost,
            "ratio": self.ratio(),
        })
    }
}

#[expect(clippy::cast_precision_loss, reason = "a rate to be read")]
fn mib_per_second(bytes: u64, took: Duration) -> f64 {
    bytes as f64 / MIB as f64 / took.as_secs_f64()
}

/// One of each, floor and ours in turn.
pub(crate) async fn measure(server: &Server, mib: u64) -> Result<Vec<Copy>> {
    let bytes = mib * MIB;
    // Twice the file, and the image.
    let disk = 2 * mib + 2048;
    let body = CreateSandbox { memory_mib: 512, disk_mib: Some(disk), ..CreateSandbox::default() };
    let sandbox = Sandbox::create_as(server, body).await?;
    let raw = Raw::start(&sandbox).await?;
    let mut copies = Vec::new();
    let mut keep = |name, floor, (ours, lost)| {
        let copy = Copy { name, bytes, floor, ours, lost };
        eprintln!("{}: floor {floor:.2?}, ours {ours:.2?}", copy.name);
        copies.push(copy);
    };

    // The writer never waits for its reader, so it goes on until enough has come.
    let floor = raw.output("cat /dev/zero", bytes)?;
    keep("standard output", floor, output(&sandbox, &["cat", "/dev/zero"], bytes).await?);

    let floor =
        raw.input(&format!("head -c {bytes} > /root/raw.bin && sync /root/raw.bin && echo done"), bytes)?;
    keep("file into the sandbox", floor, (write(&sandbox, bytes).await?, 0));

    // The same pages of the same disk for both, none of them in memory.
    let drop_caches = "sync; echo 3 > /proc/sys/vm/drop_caches";
    sandbox.root_sh(drop_caches).await?;
    let floor = raw.output("cat /root/raw.bin", bytes)?;
    sandbox.root_sh(drop_caches).await?;
    keep("file out of the sandbox", floor, (read(&sandbox, bytes).await?, 0));
    sandbox.remove().await?;
    Ok(copies)
}

/// Until so many bytes have come, by way of the API as the typed client decodes it; and what a gap owned up to.
async fn output(sandbox: &Sandbox, argv: &[&str], bytes: u64) -> Result<(Duration, u64)> {
    let body = CreateCommand {
        argv: argv.iter().map(|word| (*word).to_owned()).collect(),
        ..CreateCommand::default()
    };
    let began = Instant::now();
    let mut stream = sandbox.server.client.command_exec(sandbox.id, &body, StreamConfig::default())?;
    let (mut command, mut rest, mut lost) = (None, bytes, 0);
    while rest > 0 {
        match stream.next().await? {
            Some(CommandEvent::Stdout(data)) => rest = rest.saturating_sub(data.data.len() as u64),
            Some(CommandEvent::Gap(gap)) => lost += gap.stdout_bytes,
            Some(CommandEvent::Command(started)) => command = Some(started.command.id),
            Some(_) => {}
            None => bail!("the stream ended, and {rest} of {bytes} bytes are missing"),
        }
    }
    let took = began.elapsed();
    drop(stream);
    let Some(command) = command else { bail!("the stream told no command") };
    sandbox.server.client.command_signal(sandbox.id, command, Signal::KILL).await?;
    Ok((took, lost))
}

async fn write(sandbox: &Sandbox, bytes: u64) -> Result<Duration> {
    let chunk = Bytes::from(vec![b'x'; CHUNK]);
    let chunks = bytes.div_ceil(CHUNK as u64);
    let content = stream::iter((0..chunks).map(move |_| Ok(chunk.clone())));
    let query = WriteQuery {
        path: b"/root/ours.bin"[..].into(),
        user: Some("root".to_owned()),
        ..WriteQuery::default()
    };
    let began = Instant::now();
    let written = sandbox.server.client.file_write(sandbox.id, &query, content).await?;
    let took = began.elapsed();
    let Written::File(info) = written else { bail!("{written:?}") };
    ensure!(info.size == chunks * CHUNK as u64, "{info:?}");
    Ok(took)
}

async fn read(sandbox: &Sandbox, bytes: u64) -> Result<Duration> {
    let place = PlaceQuery { path: b"/root/raw.bin"[..].into(), user: Some("root".to_owned()) };
    let began = Instant::now();
    let mut download = sandbox.server.client.file_read(sandbox.id, &place, None).await?;
    let mut came = 0;
    while let Some(chunk) = download.chunk().await? {
        came += chunk.len() as u64;
    }
    ensure!(came == bytes, "{came} of {bytes} bytes");
    Ok(began.elapsed())
}
