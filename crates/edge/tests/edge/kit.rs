//! What the tests stand on.

pub(crate) mod authority;
pub(crate) mod control;
pub(crate) mod guest;
pub(crate) mod printer;
pub(crate) mod worker;

use std::{fmt::Write as _, net::SocketAddr, num::NonZeroU16, sync::Arc, time::Duration};

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use camino::Utf8Path;
use space_edge::{Server, config::Config};
use space_node_proto::edge::{ResolvePortReply, Route};
use space_runtime::tasks::Tasks;
use space_types::{AttachClaims, NodeId, PortClaims, PortHost, SandboxId, TenantId};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use authority::Authority;
use control::Control;
use worker::Worker;

pub(crate) const DOMAIN: &str = "ports.example";
pub(crate) const FAR_END: i64 = 4_000_000_000;

/// `work`, which must end.
pub(crate) async fn within<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), work).await.expect("it takes too long")
}

pub(crate) struct Kit {
    pub(crate) address: SocketAddr,
    pub(crate) control: Arc<Control>,
    pub(crate) worker: Arc<Worker>,
    pub(crate) authority: Authority,
    signer: Ed25519KeyPair,
    pub(crate) tasks: Tasks,
    directory: tempfile::TempDir,
    tenant: TenantId,
    node: NodeId,
    tls: bool,
}

/// A port, and what its visitors say.
#[derive(Clone, Copy)]
pub(crate) struct Port(pub(crate) PortHost);

impl Port {
    pub(crate) fn name(self) -> String {
        format!("{}.{DOMAIN}", self.0.label())
    }
}

impl Kit {
    pub(crate) async fn new() -> Self {
        Self::with("", false).await
    }

    pub(crate) async fn with(limits: &str, tls: bool) -> Self {
        Self::fully(limits, "", tls).await
    }

    /// With further tables of configuration.
    pub(crate) async fn with_tables(limits: &str, tables: &str) -> Self {
        Self::fully(limits, tables, false).await
    }

    async fn fully(limits: &str, tables: &str, tls: bool) -> Self {
        drop(rustls::crypto::aws_lc_rs::default_provider().install_default());
        let (authority, tenant, node) = (Authority::new(), TenantId::new(), NodeId::new());
        let signer = Ed25519KeyPair::generate().unwrap();
        let public = signer.public_key().as_ref().to_vec();
        let control = Control::start(&authority, public).await;
        let worker = Worker::start(&authority, tenant, node).await;
        let directory = tempfile::tempdir().unwrap();
        let limits = format!("{limits}\n{tables}");
        let config = configure(directory.path().try_into().unwrap(), &authority, &control, &limits, tls);
        let tasks = Tasks::new();
        let server = within(Server::start(&config, &tasks, None)).await.unwrap();
        within(server.ready()).await;
        Self {
            address: server.address(),
            control,
            worker,
            authority,
            signer,
            tasks,
            directory,
            tenant,
            node,
            tls,
        }
    }

    pub(crate) fn directory(&self) -> &Utf8Path {
        self.directory.path().try_into().unwrap()
    }

    pub(crate) fn config_file(&self) -> camino::Utf8PathBuf {
        self.directory().join("edged.toml")
    }

    /// A running sandbox's port, behind which the program at `address` is.
    pub(crate) fn port(&self, program: SocketAddr, public: bool) -> Port {
        let host = PortHost { port: NonZeroU16::new(program.port()).unwrap(), sandbox_id: SandboxId::new() };
        self.control.set(host, self.route(public, 1));
        Port(host)
    }

    pub(crate) fn route(&self, public: bool, epoch: u32) -> ResolvePortReply {
        ResolvePortReply { public, epoch, state: "running".to_owned(), route: Some(self.way()) }
    }

    /// To the worker.
    pub(crate) fn way(&self) -> Route {
        Route {
            tenant_id: self.tenant.to_string(),
            node_id: self.node.to_string(),
            worker_address: self.worker.address().to_string(),
            generation: worker::GENERATION,
        }
    }

    pub(crate) fn token(&self, port: Port) -> String {
        self.sign(PortClaims { host: port.0, epoch: 1, expires_at: FAR_END })
    }

    pub(crate) fn sign(&self, claims: PortClaims) -> String {
        self.signed(PortClaims::PREFIX, &claims.encode())
    }

    pub(crate) fn sign_attach(&self, claims: AttachClaims) -> String {
        self.signed(AttachClaims::PREFIX, &claims.encode())
    }

    fn signed(&self, prefix: &str, claims: &[u8]) -> String {
        let mut bytes = claims.to_vec();
        bytes.extend_from_slice(self.signer.sign(claims).as_ref());
        format!("{prefix}{}", URL_SAFE_NO_PAD.encode(bytes))
    }

    /// A client that finds `port`'s name here and follows no redirect.
    pub(crate) fn client(&self, port: Port) -> reqwest::ClientBuilder {
        reqwest::Client::builder()
            .resolve(&port.name(), self.address)
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .timeout(Duration::from_secs(20))
    }

    pub(crate) fn url(&self, port: Port, path: &str) -> String {
        let scheme = if self.tls { "https" } else { "http" };
        format!("{scheme}://{}:{}{path}", port.name(), self.address.port())
    }

    pub(crate) async fn get(&self, port: Port, path: &str, headers: &[(&str, &str)]) -> reqwest::Response {
        let request = self.client(port).build().unwrap().get(self.url(port, path));
        headers
            .iter()
            .fold(request, |request, (name, value)| request.header(*name, *value))
            .send()
            .await
            .unwrap()
    }

    pub(crate) fn shut_down(&self) {
        self.tasks.shutdown();
    }

    pub(crate) async fn connect(&self) -> TcpStream {
        within(TcpStream::connect(self.address)).await.unwrap()
    }

    /// Sends `text` as it is and reads until the edge closes.
    pub(crate) async fn raw(&self, text: &str) -> String {
        self.bytes(text.as_bytes()).await
    }

    pub(crate) async fn bytes(&self, bytes: &[u8]) -> String {
        let mut stream = self.connect().await;
        stream.write_all(bytes).await.unwrap();
        let mut answer = Vec::new();
        // A reset after an answer is an end too.
        drop(within(stream.read_to_end(&mut answer)).await);
        String::from_utf8_lossy(&answer).into_owned()
    }
}

impl Drop for Kit {
    fn drop(&mut self) {
        self.tasks.shutdown();
    }
}

/// The code by which the edge marks its answers.
pub(crate) fn mark(response: &reqwest::Response) -> &str {
    response.headers().get("x-space-edge").map_or("", |mark| mark.to_str().unwrap())
}

/// The head of an answer.
pub(crate) async fn read_head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(within(stream.read_u8()).await.unwrap());
    }
    String::from_utf8(head).unwrap()
}

fn configure(
    directory: &Utf8Path,
    authority: &Authority,
    control: &Control,
    limits: &str,
    tls: bool,
) -> Config {
    let write = |name: &str, text: &str| {
        let path = directory.join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let ca = write("authority.pem", &authority.pem);
    let token = write("token", control::JOIN_TOKEN);
    let mut text = format!(
        "data_dir = '{directory}/data'\nlisten = '127.0.0.1:0'\ndomain = '{DOMAIN}'\n\
         [control]\nurl = 'https://{}'\nauthority = '{ca}'\njoin_token_file = '{token}'\n[limits]\n{limits}\n",
        control.address()
    );
    if tls {
        let (certificate, key) = authority.server(&format!("*.{DOMAIN}"));
        let (certificate, key) = (write("c.pem", &certificate), write("k.pem", &key));
        writeln!(text, "[tls]\ncertificate = '{certificate}'\nkey = '{key}'").unwrap();
    }
    let path = write("edged.toml", &text);
    space_runtime::config::load_with(Some(&path), space_edge::config::ENVIRONMENT_PREFIX, []).unwrap()
}
