//! A simulated node: it joins a real control plane, serves `Node`, `Commands`, `Files` and `Ports` over mTLS as a
//! real one does. It keeps its sandboxes and commands in memory, and their files in temporary directories. That it answers
//! like a real one is what [`conformance`](crate::conformance) shows; [`SimNode::disturb`] makes it, and the way to it,
//! worse.
//!
//! Commands are played by name: `true`, `echo WORDS…`, `exit CODE`, `count N` (a line each), `cat` (standard input to
//! output), `sleep` (until a signal), `deaf` (like `sleep`, but a signal is never answered), `tty` (its terminal's size on
//! a line, now and when it changes, and what is typed; until byte 4).

mod chaos;
mod commands;
mod disk;
mod files;
mod identity;
mod node;
mod ports;
mod script;
mod state;

use std::{net::SocketAddr, sync::Arc};

use anyhow::Context as _;
use space_node_proto::{
    attach::attach_server::AttachServer,
    commands::commands_server::CommandsServer,
    common::{ObservedSandbox, Phase},
    files::files_server::FilesServer,
    node::node_server::NodeServer,
    ports::ports_server::PortsServer,
    registry::{
        Capacity, EnrolRequest, HeartbeatReply, HeartbeatRequest, ReportRequest, SignWorkerRequest,
        registry_client::RegistryClient,
    },
};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tonic::transport::{
    Certificate, Channel, ClientTlsConfig, Endpoint, Identity, Server, ServerTlsConfig, server::TcpIncoming,
};

pub use state::Behaviour;

use self::{identity::Key, state::State};

/// How a node joins.
#[derive(Debug, Clone)]
pub struct SimOptions {
    pub name: String,
    pub registry: SocketAddr,
    /// What control's server certificate is checked by.
    pub authority_pem: String,
    pub join_token: String,
    pub vcpus: u32,
    pub memory_bytes: u64,
    /// What each sandbox takes of that beyond its own.
    pub overhead_bytes: u64,
}

/// Serves until it is dropped.
pub struct SimNode {
    id: String,
    options: SimOptions,
    address: SocketAddr,
    registry: Channel,
    state: Arc<State>,
    stop: CancellationToken,
}

impl SimNode {
    /// Joins, and begins to serve `Node`. The first heartbeat is for the test to send.
    pub async fn join(options: SimOptions) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let key = Key::generate()?;
        let stranger = channel(options.registry, &options.authority_pem, None)?;
        let request = EnrolRequest {
            join_token: options.join_token.clone(),
            csr_der: key.request()?,
            name: options.name.clone(),
            address: address.to_string(),
        };
        let joined = RegistryClient::new(stranger).enrol(request).await?.into_inner();
        let identity = Identity::from_pem(&joined.certificate_pem, key.pem());
        let registry = channel(options.registry, &options.authority_pem, Some(identity.clone()))?;
        let state = State::new(registry.clone());
        let stop = CancellationToken::new();
        let service = NodeServer::new(node::NodeService::new(Arc::clone(&state), stop.clone()));
        let tls = ServerTlsConfig::new()
            .identity(identity)
            .client_ca_root(Certificate::from_pem(&joined.authority_pem));
        let server = Server::builder().tls_config(tls)?.add_service(service);
        tokio::spawn(
            server.serve_with_incoming_shutdown(TcpIncoming::from(listener), stop.clone().cancelled_owned()),
        );
        Ok(Self { id: joined.node_id, options, address, registry, state, stop })
    }

    pub fn id(&self) -> &str {
        &self.id
    }

    /// Renews the lease and reports everything.
    pub async fn heartbeat(&self) -> anyhow::Result<HeartbeatReply> {
        self.heartbeat_of(&self.state.boot(), self.state.reports()).await
    }

    /// As [`Self::heartbeat`], of another boot or with other reports.
    pub async fn heartbeat_of(
        &self,
        boot: &str,
        sandboxes: Vec<ObservedSandbox>,
    ) -> anyhow::Result<HeartbeatReply> {
        let request = HeartbeatRequest {
            boot_id: boot.to_owned(),
            address: self.address.to_string(),
            capacity: Some(Capacity {
                vcpus: self.options.vcpus,
                memory_bytes: self.options.memory_bytes,
                disk_free_bytes: 1 << 40,
                overhead_bytes: self.options.overhead_bytes,
            }),
            sandboxes,
            version: "sim".to_owned(),
        };
        Ok(self.registry().heartbeat(request).await?.into_inner())
    }

    /// The registry as this node sees it.
    pub fn registry(&self) -> RegistryClient<Channel> {
        RegistryClient::new(self.registry.clone())
    }

    pub async fn report(&self, sandboxes: Vec<ObservedSandbox>) -> anyhow::Result<()> {
        self.registry().report(ReportRequest { sandboxes }).await?;
        Ok(())
    }

    /// How `EnsureSandbox` goes from now on.
    pub fn behave(&self, behaviour: Behaviour) {
        self.state.behave(behaviour);
    }

    /// Calls are late, lost or doubled by this seed from now on; undisturbed again without one.
    pub fn disturb(&self, seed: Option<u64>) {
        self.state.disturb(seed);
    }

    /// Reports everything among repetitions, old news and lies about generations.
    pub async fn gossip(&self, random: &mut fastrand::Rng) -> anyhow::Result<()> {
        for said in chaos::gossip(&self.state.reports(), random) {
            self.report(vec![said]).await?;
        }
        Ok(())
    }

    /// The machine starts anew: its sandboxes are gone, and its next heartbeat is of another boot.
    pub fn crash(&self) {
        self.state.crash();
    }

    /// Where `Node` is served.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What lives here, as a report.
    pub fn reports(&self) -> Vec<ObservedSandbox> {
        self.state.reports()
    }

    /// How often `EnsureSandbox` and `RemoveSandbox` were called.
    pub fn calls(&self) -> (usize, usize) {
        self.state.calls()
    }

    /// How many command sessions were made.
    pub fn command_count(&self) -> usize {
        self.state.command_count()
    }

    /// How many bytes of files were read, also those that nobody has taken yet.
    pub fn file_bytes(&self) -> usize {
        self.state.count_file_bytes(0)
    }

    /// Lets what listens at `address`, on this machine, serve a port of a sandbox; another one before is replaced.
    pub fn listen(&self, sandbox: &str, port: u16, address: SocketAddr) {
        self.state.listen(sandbox, port, address);
    }

    /// From now on nothing listens on the port. Connections that exist go on.
    pub fn close_port(&self, sandbox: &str, port: u16) {
        self.state.close_port(sandbox, port);
    }

    /// Where on this machine a sandbox's `/` is.
    pub fn files(&self, sandbox: &str) -> anyhow::Result<std::path::PathBuf> {
        Ok(self.state.files(sandbox)?.path(b"/"))
    }

    /// Forgets a sandbox without telling anybody.
    pub fn lose(&self, sandbox: &str) {
        self.state.remove(sandbox);
    }

    /// The sandbox changes by itself, and the node reports it.
    pub async fn change(&self, sandbox: &str, phase: Phase, reason: &str) -> anyhow::Result<()> {
        let report = self.state.change(sandbox, phase, reason).context("no such sandbox here")?;
        self.report(vec![report]).await
    }

    /// Ends the worker of every tenant, which breaks all streams, and starts others at other addresses.
    pub async fn restart_workers(&self) -> anyhow::Result<()> {
        let reports = self.state.restart_workers(&self.stop).await?;
        self.report(reports).await
    }
}

impl Drop for SimNode {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// A connection to the registry, with or without an identity.
pub fn channel(
    address: SocketAddr,
    authority_pem: &str,
    identity: Option<Identity>,
) -> anyhow::Result<Channel> {
    let tls = ClientTlsConfig::new()
        .ca_certificate(Certificate::from_pem(authority_pem))
        .domain_name("control.space.internal");
    let tls = match identity {
        Some(identity) => tls.identity(identity),
        None => tls,
    };
    Ok(Endpoint::from_shared(format!("https://{address}"))?.tls_config(tls)?.connect_lazy())
}

/// Starts the worker of one tenant; its address and what ends it.
async fn start_worker(
    state: &Arc<State>,
    tenant: &str,
    stop: &CancellationToken,
) -> Result<(String, CancellationToken), tonic::Status> {
    let failed = |error: anyhow::Error| tonic::Status::internal(format!("{error:#}"));
    let key = Key::generate().map_err(failed)?;
    let request = SignWorkerRequest { tenant_id: tenant.to_owned(), csr_der: key.request().map_err(failed)? };
    let signed = RegistryClient::new(state.registry()).sign_worker(request).await?.into_inner();
    let serve = async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let tls = ServerTlsConfig::new()
            .identity(Identity::from_pem(&signed.certificate_pem, key.pem()))
            .client_ca_root(Certificate::from_pem(&signed.authority_pem));
        let stop = stop.child_token();
        let commands = Arc::new(commands::CommandService::new(Arc::clone(state), stop.clone()));
        let attach = AttachServer::from_arc(Arc::clone(&commands));
        let commands = CommandsServer::from_arc(commands);
        let files = FilesServer::new(files::FileService::new(Arc::clone(state), stop.clone()));
        let ports = PortsServer::new(ports::PortService::new(Arc::clone(state), stop.clone()));
        let server = Server::builder()
            .tls_config(tls)?
            .add_service(commands)
            .add_service(attach)
            .add_service(files)
            .add_service(ports);
        tokio::spawn(
            server.serve_with_incoming_shutdown(TcpIncoming::from(listener), stop.clone().cancelled_owned()),
        );
        anyhow::Ok((address.to_string(), stop))
    };
    serve.await.map_err(failed)
}
