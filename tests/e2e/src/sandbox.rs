//! A sandbox for one test, and what commands in it came to.

use std::{fmt, time::Duration};

use anyhow::{Result, ensure};
use space_api::{
    client::{CommandStream, StreamConfig},
    commands::{CreateCommand, Exit},
    sandboxes::{self, CreateSandbox},
    sse::CommandEvent,
};
use space_types::{SandboxId, SandboxState};
use tokio::{runtime::Handle, task};

use crate::{Server, daemons, journal, server::BOOT_SECONDS, wait};

/// Removed when dropped, so that a failed test leaves nothing to the next.
#[derive(Debug)]
pub struct Sandbox {
    pub server: Server,
    pub id: SandboxId,
    removed: bool,
}

/// All that a command printed, and how it ended.
#[derive(Debug)]
pub struct Outcome {
    pub exit: Exit,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    /// Bytes that a gap event owned up to, of both streams.
    pub lost: u64,
    pub pid: Option<u32>,
}

impl Sandbox {
    /// Of the base template, with 1 vCPU and 256 MiB, and a disk no larger than the image: growing a filesystem
    /// takes seconds where the processor is emulated.
    pub async fn create() -> Result<Self> {
        Self::create_on(&Server::get()?).await
    }

    pub async fn create_on(server: &Server) -> Result<Self> {
        Self::create_as(server, small()).await
    }

    pub async fn create_as(server: &Server, body: CreateSandbox) -> Result<Self> {
        // Not waited for in the same call: a test that ends meanwhile must know what to remove.
        let accepted = server.client.sandbox_create(&body, 0).await?;
        let sandbox = Self { server: server.clone(), id: accepted.sandbox.id, removed: false };
        let operation = server.client.operation_get(accepted.operation.id, BOOT_SECONDS).await?;
        let seen = server.client.sandbox_get(sandbox.id).await?;
        ensure!(seen.state == SandboxState::Running, "not running: {seen:?} {operation:?}");
        Ok(sandbox)
    }

    /// Takes over the removal of one that was made otherwise.
    pub fn adopt(server: &Server, id: SandboxId) -> Self {
        Self { server: server.clone(), id, removed: false }
    }

    pub async fn run<I: IntoIterator<Item: Into<String>>>(&self, argv: I) -> Result<Outcome> {
        self.exec(CreateCommand { argv: argv.into_iter().map(Into::into).collect(), ..Default::default() })
            .await
    }

    /// A script of the ordinary user.
    pub async fn sh(&self, script: &str) -> Result<Outcome> {
        self.exec(shell(script)).await
    }

    pub async fn root_sh(&self, script: &str) -> Result<Outcome> {
        self.exec(CreateCommand { user: Some("root".to_owned()), ..shell(script) }).await
    }

    /// A script that is stopped after so many seconds.
    pub async fn sh_for(&self, script: &str, seconds: u64) -> Result<Outcome> {
        self.exec(CreateCommand { timeout_seconds: Some(seconds), ..shell(script) }).await
    }

    pub async fn exec(&self, command: CreateCommand) -> Result<Outcome> {
        Outcome::of(self.server.client.command_exec(self.id, &command, PATIENT)?).await
    }

    /// A script of the ordinary user, whose output is read through the edge at this address.
    pub async fn sh_through(&self, edge: &str, script: &str) -> Result<Outcome> {
        let client = &self.server.client;
        let mut attach = client.command_create(self.id, &shell(script)).await?.attach;
        attach.url.insert_str(0, edge);
        Outcome::of(client.command_attach(&attach, None, PATIENT)).await
    }

    /// Waits for a state, by the event log's word.
    pub async fn reaches(&self, state: SandboxState) -> Result<sandboxes::Sandbox> {
        wait::until("the state", Duration::from_mins(1), || async {
            let seen = self.server.client.sandbox_get(self.id).await?;
            ensure!(seen.state == state, "{} is {} ({:?})", self.id, seen.state, seen.reason);
            Ok(seen)
        })
        .await
    }

    /// `kill -9` to this sandbox's Firecracker, from the host.
    pub fn kill_firecracker(&self) -> Result<()> {
        daemons::signal(self.firecracker_pid()?, "KILL")
    }

    pub fn firecracker_pid(&self) -> Result<u32> {
        journal::firecracker_pid(self.id)
    }

    pub async fn remove(mut self) -> Result<()> {
        self.removed = true;
        self.server.client.sandbox_delete(self.id, BOOT_SECONDS).await?;
        Ok(())
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        if self.removed {
            return;
        }
        let deleted = task::block_in_place(|| {
            Handle::current().block_on(self.server.client.sandbox_delete(self.id, 60))
        });
        if let Err(error) = deleted {
            eprintln!("{} was not removed: {error}", self.id);
        }
    }
}

/// Creates, runs, deletes; every step is repeated by the client until it is answered.
pub async fn whole_life(server: &Server) -> Result<()> {
    let sandbox = Sandbox::create_on(server).await?;
    let said = sandbox.sh("echo here").await?;
    ensure!(said.stdout() == "here\n", "{said}");
    sandbox.remove().await
}

/// What most tests want.
pub fn small() -> CreateSandbox {
    CreateSandbox { memory_mib: 256, disk_mib: Some(1024), ..CreateSandbox::default() }
}

fn shell(script: &str) -> CreateCommand {
    let argv = ["bash", "-c", script].map(str::to_owned).to_vec();
    CreateCommand { argv, ..CreateCommand::default() }
}

/// Readers that outlive any daemon's restart.
const PATIENT: StreamConfig =
    StreamConfig { patience: Duration::from_mins(2), silence: Duration::from_secs(45) };

impl Outcome {
    /// Of a stream that is read to its end.
    async fn of(mut stream: CommandStream) -> Result<Self> {
        let mut outcome = Self { exit: Exit::default(), stdout: vec![], stderr: vec![], lost: 0, pid: None };
        while let Some(event) = stream.next().await? {
            outcome.take(event)?;
        }
        Ok(outcome)
    }

    fn take(&mut self, event: CommandEvent) -> Result<()> {
        match event {
            CommandEvent::Command(_) => {}
            CommandEvent::Started(started) => self.pid = Some(started.pid),
            CommandEvent::Stdout(output) => {
                let at = self.stdout.len() as u64;
                ensure!(self.lost > 0 || output.offset == at, "stdout at {at} goes on at {}", output.offset);
                self.stdout.extend_from_slice(output.data.as_ref());
            }
            CommandEvent::Stderr(output) => self.stderr.extend_from_slice(output.data.as_ref()),
            CommandEvent::Gap(gap) => self.lost += gap.stdout_bytes + gap.stderr_bytes,
            CommandEvent::Exit(exit) => self.exit = exit,
            CommandEvent::Error(error) => return Err(error.problem.into()),
        }
        Ok(())
    }

    pub fn stdout(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    pub fn stderr(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }

    /// Both streams.
    pub fn text(&self) -> String {
        self.stdout() + &self.stderr()
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:?}, {} bytes lost", self.exit, self.lost)?;
        writeln!(f, "--- stdout\n{}", self.stdout())?;
        writeln!(f, "--- stderr\n{}", self.stderr())
    }
}
