//! A control plane that knows what the test told it.

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use space_node_proto::edge::{
    EnrolEdgeReply, EnrolEdgeRequest, GetTokenKeysReply, GetTokenKeysRequest, RenewEdgeReply,
    RenewEdgeRequest, ResolvePortReply, ResolvePortRequest, ResolveSandboxReply, ResolveSandboxRequest,
    edge_server,
};
use space_types::{PortHost, SandboxId};
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response, Status, transport::Server};

use super::authority::Authority;

pub(crate) const JOIN_TOKEN: &str = "join me";
/// In milliseconds: long enough for requests that come at once to meet.
const THINKING: u64 = 50;

pub(crate) struct Control {
    address: SocketAddr,
    authority: Authority,
    key: Vec<u8>,
    routes: Mutex<HashMap<(String, u32), ResolvePortReply>>,
    sandboxes: Mutex<HashMap<String, ResolveSandboxReply>>,
    pub(crate) away: AtomicBool,
    /// For how long it thinks about a port, in milliseconds.
    pub(crate) thinking: AtomicU64,
    pub(crate) resolved: AtomicUsize,
}

impl Control {
    pub(crate) async fn start(authority: &Authority, key: Vec<u8>) -> Arc<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let control = Arc::new(Self {
            address: listener.local_addr().unwrap(),
            authority: authority.clone(),
            key,
            routes: Mutex::default(),
            sandboxes: Mutex::default(),
            away: AtomicBool::new(false),
            thinking: AtomicU64::new(THINKING),
            resolved: AtomicUsize::new(0),
        });
        let service = edge_server::EdgeServer::from_arc(Arc::clone(&control));
        let tls = authority.mutual("control.space.internal", true);
        let server = Server::builder().tls_config(tls).unwrap().add_service(service);
        tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
        control
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn set(&self, host: PortHost, route: ResolvePortReply) {
        self.routes.lock().unwrap().insert((host.sandbox_id.to_string(), host.port.get().into()), route);
    }

    pub(crate) fn set_sandbox(&self, id: SandboxId, reply: ResolveSandboxReply) {
        self.sandboxes.lock().unwrap().insert(id.to_string(), reply);
    }
}

#[tonic::async_trait]
impl edge_server::Edge for Control {
    async fn enrol_edge(&self, call: Request<EnrolEdgeRequest>) -> Result<Response<EnrolEdgeReply>, Status> {
        let call = call.into_inner();
        assert_eq!(call.join_token, JOIN_TOKEN);
        let certificate_pem = self.authority.client(&call.csr_der);
        Ok(Response::new(EnrolEdgeReply { certificate_pem, authority_pem: self.authority.pem.clone() }))
    }

    async fn renew_edge(&self, call: Request<RenewEdgeRequest>) -> Result<Response<RenewEdgeReply>, Status> {
        let certificate_pem = self.authority.client(&call.into_inner().csr_der);
        Ok(Response::new(RenewEdgeReply { certificate_pem }))
    }

    async fn get_token_keys(
        &self,
        call: Request<GetTokenKeysRequest>,
    ) -> Result<Response<GetTokenKeysReply>, Status> {
        call.peer_certs().ok_or_else(|| Status::unauthenticated("no certificate"))?;
        Ok(Response::new(GetTokenKeysReply { ed25519: vec![self.key.clone()] }))
    }

    async fn resolve_port(
        &self,
        call: Request<ResolvePortRequest>,
    ) -> Result<Response<ResolvePortReply>, Status> {
        call.peer_certs().ok_or_else(|| Status::unauthenticated("no certificate"))?;
        self.resolved.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_millis(self.thinking.load(Ordering::Relaxed))).await;
        if self.away.load(Ordering::Relaxed) {
            return Err(Status::unavailable("away"));
        }
        let call = call.into_inner();
        let route = self.routes.lock().unwrap().get(&(call.sandbox_id, call.port)).cloned();
        route.map(Response::new).ok_or_else(|| Status::not_found("no such sandbox"))
    }

    async fn resolve_sandbox(
        &self,
        call: Request<ResolveSandboxRequest>,
    ) -> Result<Response<ResolveSandboxReply>, Status> {
        call.peer_certs().ok_or_else(|| Status::unauthenticated("no certificate"))?;
        self.resolved.fetch_add(1, Ordering::Relaxed);
        if self.away.load(Ordering::Relaxed) {
            return Err(Status::unavailable("away"));
        }
        let reply = self.sandboxes.lock().unwrap().get(&call.into_inner().sandbox_id).cloned();
        reply.map(Response::new).ok_or_else(|| Status::not_found("no such sandbox"))
    }
}
