//! Ports of a sandbox on this machine.
//!
//! ```text
//!   a program here ──TCP──▶ Forward ──CONNECT, with a token──▶ edge ──▶ the port in the guest
//!                              ├── keeper: a token that is good, for as long as this goes on
//!                              └── a task for each connection; what fails is said, and ends that one alone
//! ```

mod connection;
mod tokens;

use std::{io, net::Ipv4Addr, num::NonZeroU16, sync::Arc, time::Duration};

use serde_json::{Value, json};
use space_api::{
    client::{Client, EdgeClient},
    ports::CreatePortToken,
};
use space_types::SandboxId;
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::sleep,
};

use self::{connection::carry, tokens::Tokens};
use crate::{args::PortPair, error::CliError};

/// After a connection that could not be taken: there are no descriptors left, most likely.
const PAUSE: Duration = Duration::from_secs(1);

/// A port here that listens already.
pub(crate) struct Local {
    listener: TcpListener,
    address: std::net::SocketAddr,
    remote: NonZeroU16,
}

/// A port of a sandbox, and the port here that leads to it.
pub(crate) struct Forward {
    local: Local,
    sandbox: SandboxId,
    way: Arc<Way>,
    /// The keeper and all connections; aborted when this is dropped.
    tasks: JoinSet<()>,
    json: bool,
}

/// How a port is reached.
struct Way {
    edge: EdgeClient,
    tokens: Tokens,
}

impl Local {
    pub(crate) async fn listen(sandbox: SandboxId, ports: PortPair) -> Result<Self, CliError> {
        let PortPair { local, remote } = ports;
        let bound = TcpListener::bind((Ipv4Addr::LOCALHOST, local)).await;
        let listener = bound.map_err(|source| not_here(sandbox, ports, source))?;
        let address = listener.local_addr().map_err(anyhow::Error::new)?;
        Ok(Self { listener, address, remote })
    }
}

fn not_here(sandbox: SandboxId, ports: PortPair, source: io::Error) -> CliError {
    let PortPair { local, remote } = ports;
    let why = [
        (io::ErrorKind::AddrInUse, "another program listens there; "),
        (io::ErrorKind::PermissionDenied, "ports below 1024 are root's; "),
    ];
    let why = why.iter().find(|(kind, _)| *kind == source.kind()).map_or("", |(_, why)| why);
    let error = anyhow::Error::new(source).context(format!("cannot listen on 127.0.0.1:{local}"));
    CliError::hinted(
        error,
        format!("{why}`space port forward {sandbox} 0:{remote}` takes a port that is free"),
    )
}

impl Forward {
    /// Asks for the first token, so that what can't be forwarded at all is known before anybody connects.
    pub(crate) async fn open(
        client: &Client,
        sandbox: SandboxId,
        local: Local,
        json: bool,
    ) -> Result<Self, CliError> {
        let first = token(client, sandbox, local.remote).await?;
        let edge = EdgeClient::new(&first.url)?;
        let (client, port) = (client.clone(), local.remote);
        let make = move || {
            let client = client.clone();
            async move { token(&client, sandbox, port).await.map(|made| made.token) }
        };
        let (tokens, keeper) = tokens::keep(first.token, make);
        let mut tasks = JoinSet::new();
        tasks.spawn(keeper);
        Ok(Self { local, sandbox, way: Arc::new(Way { edge, tokens }), tasks, json })
    }

    pub(crate) fn describe(&self) -> String {
        let Self { local: Local { address, remote, .. }, sandbox, .. } = self;
        format!("Forwarding {address} -> {remote} of {sandbox}")
    }

    pub(crate) fn facts(&self) -> Value {
        let Self { local: Local { address, remote, .. }, sandbox, .. } = self;
        json!({ "address": address, "port": remote, "sandbox_id": sandbox })
    }

    /// Carries connections for as long as it is not dropped.
    pub(crate) async fn run(mut self) {
        loop {
            tokio::select! {
                accepted = self.local.listener.accept() => match accepted {
                    Ok((stream, _)) => self.take(stream),
                    Err(error) => {
                        let error = anyhow::Error::new(error).context("cannot take a connection");
                        tell(self.local.remote, &error.into(), self.json);
                        sleep(PAUSE).await;
                    }
                },
                // So that what has ended holds no memory. The keeper never ends.
                Some(_) = self.tasks.join_next() => {}
            }
        }
    }

    fn take(&mut self, stream: TcpStream) {
        let (way, port, json) = (self.way.clone(), self.local.remote, self.json);
        self.tasks.spawn(async move {
            if let Err(error) = carry(stream, &way).await {
                tell(port, &error, json);
            }
        });
    }
}

/// One connection's failure.
fn tell(port: NonZeroU16, error: &CliError, json: bool) {
    if json {
        eprintln!("{}", json!({ "port": port, "error": error.to_json() }));
        return;
    }
    eprintln!("space: port {port}: {}", crate::output::plain(&error.to_string()));
    if let Some(hint) = error.hint() {
        eprintln!("  hint: {hint}");
    }
}

struct Made {
    token: String,
    url: String,
}

async fn token(client: &Client, sandbox: SandboxId, port: NonZeroU16) -> Result<Made, CliError> {
    let body = CreatePortToken { valid_seconds: tokens::VALID_SECONDS };
    // The answer to a request that was repeated, since the first one was lost, has no secret; another request's has.
    for _ in 0..2 {
        let made = client.port_token_create(sandbox, port, &body).await?;
        if let Some(token) = made.token {
            return Ok(Made { token, url: made.url });
        }
    }
    Err(anyhow::anyhow!("the server makes tokens and does not show them").into())
}
