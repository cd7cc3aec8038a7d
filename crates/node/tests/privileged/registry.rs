//! Control's side of the Registry, as small as it can be: it signs, and keeps what it hears.

use std::sync::{Arc, Mutex};

use space_node_proto::{
    common::ObservedSandbox,
    registry::{
        EnrolReply, EnrolRequest, HeartbeatReply, HeartbeatRequest, RenewReply, RenewRequest, ReportReply,
        ReportRequest, SignWorkerReply, SignWorkerRequest,
        registry_server::{Registry, RegistryServer},
    },
};
use space_types::NodeId;
use tokio::net::TcpListener;
use tonic::{
    Request, Response, Status, async_trait,
    transport::{Certificate, Identity, Server, ServerTlsConfig, server::TcpIncoming},
};

use crate::authority::{Authority, public_key};

pub(crate) const TOKEN: &str = "a-join-token";
pub(crate) const NODE_DNS: &str = "node.test.space.internal";
pub(crate) const WORKER_DNS: &str = "worker.test.space.internal";

#[derive(Clone)]
pub(crate) struct TestRegistry {
    authority: Arc<Authority>,
    node: NodeId,
    /// The public key that the token was used with, and how often.
    enrolled: Arc<Mutex<(Vec<u8>, u32)>>,
    /// What each heartbeat said of which sandboxes.
    heartbeats: Arc<Mutex<Vec<Vec<ObservedSandbox>>>>,
}

impl TestRegistry {
    /// Serves on a loopback port, which it answers, until the runtime ends.
    pub(crate) async fn serve(authority: Arc<Authority>) -> (Self, u16) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let own = authority.issue("spiffe://space/control", "control.space.internal");
        let tls = ServerTlsConfig::new()
            .identity(Identity::from_pem(own.certificate, own.key))
            .client_ca_root(Certificate::from_pem(&authority.pem))
            .client_auth_optional(true);
        let registry =
            Self { authority, node: NodeId::new(), enrolled: Arc::default(), heartbeats: Arc::default() };
        let server = Server::builder()
            .tls_config(tls)
            .unwrap()
            .add_service(RegistryServer::new(registry.clone()))
            .serve_with_incoming(TcpIncoming::from(listener));
        tokio::spawn(async move { server.await.unwrap() });
        (registry, port)
    }

    pub(crate) fn heartbeats(&self) -> Vec<Vec<ObservedSandbox>> {
        self.heartbeats.lock().unwrap().clone()
    }

    /// How often the node has joined, always with one key.
    pub(crate) fn enrolments(&self) -> u32 {
        self.enrolled.lock().unwrap().1
    }

    /// The first heartbeat after `heard` of them.
    pub(crate) async fn heartbeat_after(&self, heard: usize) -> Vec<ObservedSandbox> {
        loop {
            if let Some(first) = self.heartbeats().get(heard) {
                return first.clone();
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    }

    fn node_uri(&self) -> String {
        format!("spiffe://space/node/{}", self.node)
    }
}

#[async_trait]
impl Registry for TestRegistry {
    async fn enrol(&self, request: Request<EnrolRequest>) -> Result<Response<EnrolReply>, Status> {
        let request = request.into_inner();
        if request.join_token != TOKEN {
            return Err(Status::unauthenticated("no such token"));
        }
        let key = public_key(&request.csr_der);
        let mut enrolled = self.enrolled.lock().unwrap();
        if enrolled.1 > 0 && enrolled.0 != key {
            return Err(Status::unauthenticated("the token was used with another key"));
        }
        *enrolled = (key, enrolled.1 + 1);
        drop(enrolled);
        Ok(Response::new(EnrolReply {
            node_id: self.node.to_string(),
            certificate_pem: self.authority.sign(&request.csr_der, &self.node_uri(), NODE_DNS),
            authority_pem: self.authority.pem.clone(),
        }))
    }

    async fn renew(&self, request: Request<RenewRequest>) -> Result<Response<RenewReply>, Status> {
        let csr = request.into_inner().csr_der;
        let certificate_pem = self.authority.sign(&csr, &self.node_uri(), NODE_DNS);
        Ok(Response::new(RenewReply { certificate_pem }))
    }

    async fn sign_worker(
        &self,
        request: Request<SignWorkerRequest>,
    ) -> Result<Response<SignWorkerReply>, Status> {
        let request = request.into_inner();
        let uri = format!("{}/tenant/{}", self.node_uri(), request.tenant_id);
        Ok(Response::new(SignWorkerReply {
            certificate_pem: self.authority.sign(&request.csr_der, &uri, WORKER_DNS),
            authority_pem: self.authority.pem.clone(),
        }))
    }

    async fn heartbeat(
        &self,
        request: Request<HeartbeatRequest>,
    ) -> Result<Response<HeartbeatReply>, Status> {
        self.heartbeats.lock().unwrap().push(request.into_inner().sandboxes);
        Ok(Response::new(HeartbeatReply { fence: 1, lease_ms: 15_000 }))
    }

    async fn report(&self, _request: Request<ReportRequest>) -> Result<Response<ReportReply>, Status> {
        Ok(Response::new(ReportReply {}))
    }
}
