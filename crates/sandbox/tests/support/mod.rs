//! A stand-in for noded and control: runs a worker in this process, gives it guests by Unix socket, and calls it
//! as control does.

#![allow(dead_code, reason = "each test uses its part")]

mod firecracker;
pub(crate) mod job_guest;

use std::{
    collections::HashMap,
    io::IoSlice,
    mem::MaybeUninit,
    net::SocketAddr,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Duration,
};

use prost::Message;
use rcgen::{CertificateParams, CertifiedIssuer, KeyPair, SanType};
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};
use space_node_proto::{
    commands::commands_client::CommandsClient,
    files::files_client::FilesClient,
    worker::{
        Assign, Configure, Connection, FromWorker, Release, Shutdown, ToWorker, from_worker, to_worker,
    },
};
use space_sandbox::{SandboxdConfig, spool::SpoolLimits, sys, worker};
use tokio::{
    io::{Interest, unix::AsyncFd},
    sync::mpsc,
    task::JoinHandle,
    time::timeout,
};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};

pub(crate) use firecracker::Guest;

pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
pub(crate) const CONTROL: &str = "spiffe://space/control";
pub(crate) const EDGE: &str = "spiffe://space/edge";

pub(crate) async fn soon<T>(future: impl Future<Output = T>) -> T {
    timeout(PATIENCE, future).await.expect("nothing happened in time")
}

/// An authority that signs workers and their callers.
pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    pub(crate) fn pem(&self) -> String {
        self.0.pem()
    }

    /// A certificate and its key for one URI name; the worker's has a DNS name for the test's client too.
    pub(crate) fn sign(&self, uris: &[&str], dns: Option<&str>) -> (String, String) {
        let mut params =
            CertificateParams::new(dns.map(str::to_owned).into_iter().collect::<Vec<_>>()).unwrap();
        params.subject_alt_names.extend(uris.iter().map(|uri| SanType::URI((*uri).try_into().unwrap())));
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        (certificate.pem(), key.serialize_pem())
    }
}

/// How guests are reached: the Unix socket that a sandbox's agent listens on, `CONNECT` handshake included or not.
pub(crate) type Dial = Arc<dyn Fn(&str) -> Option<OwnedFd> + Send + Sync>;

pub(crate) struct TestNode {
    socket: Arc<AsyncFd<OwnedFd>>,
    pub(crate) authority: Authority,
    pub(crate) address: SocketAddr,
    pub(crate) told: mpsc::UnboundedReceiver<from_worker::Kind>,
    pub(crate) worker: JoinHandle<Result<(), worker::WorkerError>>,
    /// Of the sandboxes' spools; another worker may have the same.
    pub(crate) spools: Arc<tempfile::TempDir>,
}

/// As in earnest, but however little is free where the tests run.
pub(crate) fn roomy() -> SpoolLimits {
    SpoolLimits { free_percent: 0, ..SpoolLimits::default() }
}

impl TestNode {
    pub(crate) async fn start(dial: Dial) -> Self {
        Self::start_with_spools(dial, Arc::new(tempfile::tempdir().unwrap()), roomy()).await
    }

    pub(crate) async fn start_with(dial: Dial, request_deadline: Duration) -> Self {
        let spools = Arc::new(tempfile::tempdir().unwrap());
        Self::start_fully(dial, request_deadline, spools, roomy()).await
    }

    pub(crate) async fn start_with_spools(
        dial: Dial,
        spools: Arc<tempfile::TempDir>,
        spool_limits: SpoolLimits,
    ) -> Self {
        Self::start_fully(dial, PATIENCE, spools, spool_limits).await
    }

    async fn start_fully(
        dial: Dial,
        request_deadline: Duration,
        spools: Arc<tempfile::TempDir>,
        spool_limits: SpoolLimits,
    ) -> Self {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (ours, theirs) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        let config = SandboxdConfig {
            boot_deadline: PATIENCE,
            request_deadline,
            summary_interval: Duration::from_mins(1),
            log: String::new(),
            spool_limits,
        };
        let worker = tokio::spawn(worker::run(theirs, config));
        let socket = Arc::new(sys::watched(ours, Interest::READABLE).unwrap());
        let (tell, told) = mpsc::unbounded_channel();
        tokio::spawn(play_node(Arc::clone(&socket), dial, tell));
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mut node = Self { socket, authority: Authority::new(), address, told, worker, spools };
        node.configure(Some(&listener.into()));
        assert!(matches!(node.told().await, from_worker::Kind::Configured(_)));
        node
    }

    pub(crate) fn configure(&self, listener: Option<&OwnedFd>) {
        let (certificate_pem, private_key_pem) =
            self.authority.sign(&["spiffe://space/node/n/tenant/t"], Some("worker"));
        let configure = Configure {
            tenant_id: "tnt_test".to_owned(),
            certificate_pem,
            private_key_pem,
            authority_pem: self.authority.pem(),
        };
        let attached: Vec<_> = listener.into_iter().map(AsFd::as_fd).collect();
        send(&self.socket, to_worker::Kind::Configure(configure), &attached);
    }

    /// A sandbox that has just been started, with its console or one that says nothing.
    pub(crate) fn assign(&self, sandbox_id: &str, generation: u64, console: Option<&OwnedFd>) {
        self.hand_over(sandbox_id, generation, true, console);
    }

    /// A sandbox that an earlier worker served.
    pub(crate) fn assign_again(&self, sandbox_id: &str, generation: u64) {
        self.hand_over(sandbox_id, generation, false, None);
    }

    fn hand_over(&self, sandbox_id: &str, generation: u64, fresh: bool, console: Option<&OwnedFd>) {
        let assign = Assign {
            sandbox_id: sandbox_id.to_owned(),
            generation,
            hostname: "box".to_owned(),
            env: HashMap::from([("GREETING".to_owned(), "hello".to_owned())]),
            fresh,
        };
        let spool = self.spools.path().join(sandbox_id);
        std::fs::create_dir_all(&spool).unwrap();
        let spool = OwnedFd::from(std::fs::File::open(&spool).unwrap());
        let silent = OwnedFd::from(std::io::pipe().unwrap().0);
        let console = console.unwrap_or(&silent);
        send(&self.socket, to_worker::Kind::Assign(assign), &[console.as_fd(), spool.as_fd()]);
    }

    pub(crate) fn release(&self, sandbox_id: &str) {
        send(&self.socket, to_worker::Kind::Release(Release { sandbox_id: sandbox_id.to_owned() }), &[]);
    }

    pub(crate) fn shut_down(&self) {
        send(&self.socket, to_worker::Kind::Shutdown(Shutdown {}), &[]);
    }

    pub(crate) async fn told(&mut self) -> from_worker::Kind {
        soon(self.told.recv()).await.expect("the worker left")
    }

    /// A client with a certificate for `uris`, connected.
    pub(crate) async fn connect(
        &self,
        uris: &[&str],
    ) -> Result<CommandsClient<Channel>, tonic::transport::Error> {
        let (certificate, key) = self.authority.sign(uris, None);
        self.connect_with(Some(Identity::from_pem(certificate, key))).await
    }

    pub(crate) async fn connect_with(
        &self,
        identity: Option<Identity>,
    ) -> Result<CommandsClient<Channel>, tonic::transport::Error> {
        Ok(CommandsClient::new(self.channel(identity).await?))
    }

    /// As control calls the service of files.
    pub(crate) async fn files(&self) -> FilesClient<Channel> {
        FilesClient::new(self.channel_of(CONTROL).await)
    }

    /// A connection of a caller by this name.
    pub(crate) async fn channel_of(&self, uri: &str) -> Channel {
        let (certificate, key) = self.authority.sign(&[uri], None);
        self.channel(Some(Identity::from_pem(certificate, key))).await.unwrap()
    }

    async fn channel(&self, identity: Option<Identity>) -> Result<Channel, tonic::transport::Error> {
        let tls = ClientTlsConfig::new()
            .ca_certificate(Certificate::from_pem(self.authority.pem()))
            .domain_name("worker");
        let tls = match identity {
            Some(identity) => tls.identity(identity),
            None => tls,
        };
        let endpoint = Endpoint::from_shared(format!("https://{}", self.address))?.tls_config(tls)?;
        endpoint.tcp_nodelay(true).connect().await
    }
}

fn send(socket: &AsyncFd<OwnedFd>, kind: to_worker::Kind, descriptors: &[BorrowedFd<'_>]) {
    let bytes = ToWorker { kind: Some(kind) }.encode_to_vec();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        assert!(control.push(SendAncillaryMessage::ScmRights(descriptors)));
    }
    rustix::net::sendmsg(socket.get_ref(), &[IoSlice::new(&bytes)], &mut control, SendFlags::empty())
        .unwrap();
}

async fn play_node(
    socket: Arc<AsyncFd<OwnedFd>>,
    dial: Dial,
    tell: mpsc::UnboundedSender<from_worker::Kind>,
) {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let mut ready = socket.readable().await.unwrap();
        let received = ready
            .try_io(|socket| Ok(rustix::net::recv(socket.get_ref(), &mut buffer[..], RecvFlags::empty())?.0));
        let Ok(received) = received else { continue };
        let Ok(length @ 1..) = received else { return };
        match FromWorker::decode(&buffer[..length]).unwrap().kind.unwrap() {
            from_worker::Kind::Connect(connect) => {
                let descriptor = dial(&connect.sandbox_id);
                let error = if descriptor.is_some() { "" } else { "no socket" }.to_owned();
                let answer = Connection { request_id: connect.request_id, error };
                let attached: Vec<_> = descriptor.iter().map(AsFd::as_fd).collect();
                send(&socket, to_worker::Kind::Connection(answer), &attached);
            }
            kind @ (from_worker::Kind::Configured(_)
            | from_worker::Kind::Ready(_)
            | from_worker::Kind::Unready(_)
            | from_worker::Kind::Hint(_)) => drop(tell.send(kind)),
        }
    }
}

/// Guests that were registered with a Unix socket's path, as Firecracker's would be.
#[derive(Clone, Default)]
pub(crate) struct Sockets(Arc<Mutex<HashMap<String, PathBuf>>>);

impl Sockets {
    pub(crate) fn insert(&self, sandbox_id: &str, path: PathBuf) {
        self.0.lock().unwrap().insert(sandbox_id.to_owned(), path);
    }

    pub(crate) fn dial(&self) -> Dial {
        let sockets = self.clone();
        Arc::new(move |id: &str| {
            let path = sockets.0.lock().unwrap().get(id).cloned()?;
            Some(std::os::unix::net::UnixStream::connect(path).ok()?.into())
        })
    }
}
