//! The calls of `proto/registry.proto`.

use std::sync::Arc;

use space_node_proto::registry::{
    EnrolReply, EnrolRequest, HeartbeatReply, HeartbeatRequest, RenewReply, RenewRequest, ReportReply,
    ReportRequest, SignWorkerReply, SignWorkerRequest, registry_server::Registry,
};
use space_runtime::telemetry::chain;
use space_types::{NodeId, TenantId};
use tonic::{Request, Response, Status};

use crate::{
    app::{App, join_tokens::hash_token},
    authority::{CertificateError, Peer, request_key_hash},
    controllers::{leases, strays},
    store::{
        StoreError,
        enrolment::{EnrolError, Enrolment},
        nodes::Heartbeat,
    },
};

/// A P-256 request has about 300 bytes.
const CSR_BYTES: usize = 4096;
const NAME_CHARS: usize = 63;
const ADDRESS_BYTES: usize = 256;
const TOKEN_BYTES: usize = 128;

/// What a join token is looked up by.
pub(super) fn token_hash(token: &str) -> Result<[u8; 32], Status> {
    let token = Some(token).filter(|token| token.len() <= TOKEN_BYTES);
    token.and_then(hash_token).ok_or_else(unknown_token)
}

pub(super) fn unknown_token() -> Status {
    Status::unauthenticated("the join token is unknown, used or expired")
}

pub(super) struct RegistryService {
    app: Arc<App>,
}

impl RegistryService {
    pub(super) fn new(app: Arc<App>) -> Self {
        Self { app }
    }
}

#[tonic::async_trait]
impl Registry for RegistryService {
    async fn enrol(&self, request: Request<EnrolRequest>) -> Result<Response<EnrolReply>, Status> {
        let EnrolRequest { join_token, csr_der, name, address } = request.into_inner();
        check_name(&name)?;
        check_address(&address)?;
        check_csr(&csr_der)?;
        let hash = token_hash(&join_token)?;
        // First, since a bad request must not use the token up.
        let key_hash = request_key_hash(&csr_der).map_err(|error| certificate_status(&error))?;
        let certificates = &self.app.authority.certificates;
        let joining = Enrolment { name: &name, address: &address, key_hash };
        let node = self.app.store.node_enrol(hash, &joining).await.map_err(|error| match error {
            EnrolError::Token => unknown_token(),
            EnrolError::NameTaken => Status::already_exists("a node of this name has joined before"),
            EnrolError::Store(error) => store_status(&error),
        })?;
        let certificate_pem =
            certificates.sign_node(node, &csr_der).map_err(|error| certificate_status(&error))?;
        tracing::info!(%node, name, address, "a node joined");
        Ok(Response::new(EnrolReply {
            node_id: node.to_string(),
            certificate_pem,
            authority_pem: certificates.authority_pem().to_owned(),
        }))
    }

    async fn renew(&self, request: Request<RenewRequest>) -> Result<Response<RenewReply>, Status> {
        let node = calling_node(&request)?;
        let RenewRequest { csr_der } = request.into_inner();
        check_csr(&csr_der)?;
        self.app
            .store
            .node_contact(node)
            .await
            .map_err(|error| store_status(&error))?
            .ok_or_else(unknown_node)?;
        let certificate_pem = self
            .app
            .authority
            .certificates
            .sign_node(node, &csr_der)
            .map_err(|error| certificate_status(&error))?;
        Ok(Response::new(RenewReply { certificate_pem }))
    }

    async fn sign_worker(
        &self,
        request: Request<SignWorkerRequest>,
    ) -> Result<Response<SignWorkerReply>, Status> {
        let node = calling_node(&request)?;
        let SignWorkerRequest { tenant_id, csr_der } = request.into_inner();
        check_csr(&csr_der)?;
        let tenant: TenantId =
            tenant_id.parse().map_err(|_unparsed| Status::invalid_argument("tenant_id is no id"))?;
        let serves =
            self.app.store.node_serves_tenant(node, tenant).await.map_err(|error| store_status(&error))?;
        if !serves {
            return Err(Status::permission_denied("the tenant has no sandbox on this node"));
        }
        let certificates = &self.app.authority.certificates;
        let certificate_pem =
            certificates.sign_worker(node, tenant, &csr_der).map_err(|error| certificate_status(&error))?;
        Ok(Response::new(SignWorkerReply {
            certificate_pem,
            authority_pem: certificates.authority_pem().to_owned(),
        }))
    }

    async fn heartbeat(
        &self,
        request: Request<HeartbeatRequest>,
    ) -> Result<Response<HeartbeatReply>, Status> {
        let node = calling_node(&request)?;
        let beat = request.into_inner();
        check_address(&beat.address)?;
        let capacity = beat.capacity.ok_or_else(|| Status::invalid_argument("capacity is missing"))?;
        let short = |text: &str| text.len() <= NAME_CHARS && !text.contains('\0');
        if !short(&beat.boot_id) || !short(&beat.version) {
            return Err(Status::invalid_argument("boot_id or version is too long"));
        }
        let lease_ms = u32::try_from(self.app.limits.lease.as_millis()).unwrap_or(u32::MAX);
        let written = Heartbeat {
            boot_id: &beat.boot_id,
            address: &beat.address,
            version: &beat.version,
            capacity,
            lease_ms: i64::from(lease_ms),
        };
        let lease =
            self.app.store.node_heartbeat(node, &written).await.map_err(|error| store_status(&error))?;
        let lease = lease.ok_or_else(unknown_node)?;
        if lease.was_lost {
            tracing::info!(%node, "a node that was lost is back");
            leases::mark(&self.app).await.map_err(|error| store_status(&error))?;
            self.app.beats.forget(node);
        }
        let listed = strays::listed(&self.app, node, &beat.sandboxes).await;
        listed.map_err(|error| store_status(&error))?;
        Ok(Response::new(HeartbeatReply { fence: lease.fence, lease_ms }))
    }

    async fn report(&self, request: Request<ReportRequest>) -> Result<Response<ReportReply>, Status> {
        let node = calling_node(&request)?;
        let reports = request.into_inner().sandboxes;
        let reported = strays::reported(&self.app, node, &reports).await;
        reported.map_err(|error| store_status(&error))?;
        Ok(Response::new(ReportReply {}))
    }
}

/// The node whose certificate the caller presented; its chain was verified by the handshake.
fn calling_node<T>(request: &Request<T>) -> Result<NodeId, Status> {
    let certificates =
        request.peer_certs().ok_or_else(|| Status::unauthenticated("a node's certificate is needed"))?;
    match certificates.first().and_then(Peer::of) {
        Some(Peer::Node(node)) => Ok(node),
        Some(Peer::Control | Peer::Worker(_, _) | Peer::Edge) | None => {
            Err(Status::permission_denied("this is for nodes alone"))
        }
    }
}

fn unknown_node() -> Status {
    Status::not_found("the node is not known")
}

pub(super) fn check_name(name: &str) -> Result<(), Status> {
    let word = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    let valid = (1..=NAME_CHARS).contains(&name.len()) && name.bytes().all(word);
    valid
        .then_some(())
        .ok_or_else(|| Status::invalid_argument("name has 1 to 63 letters, digits, `-`, `_` or `.`"))
}

fn check_address(address: &str) -> Result<(), Status> {
    let authority = Some(address).filter(|text| text.len() <= ADDRESS_BYTES);
    let authority = authority.and_then(|text| text.parse::<http::uri::Authority>().ok());
    let valid = authority.is_some_and(|authority| authority.port_u16().is_some() && !address.contains('@'));
    valid.then_some(()).ok_or_else(|| Status::invalid_argument("address must be host:port"))
}

pub(super) fn check_csr(csr: &[u8]) -> Result<(), Status> {
    if csr.len() > CSR_BYTES {
        Err(Status::invalid_argument("the signing request is too long"))
    } else {
        Ok(())
    }
}

pub(super) fn certificate_status(error: &CertificateError) -> Status {
    match error {
        CertificateError::Request(_) => Status::invalid_argument("the signing request does not parse"),
        CertificateError::Sign(_) | CertificateError::Name => {
            tracing::error!(error = chain(error), "signing failed");
            Status::internal("signing failed")
        }
    }
}

pub(super) fn store_status(error: &StoreError) -> Status {
    match error {
        StoreError::Unavailable(_) => {
            tracing::info!(error = chain(error), "a node's call met no database");
            Status::unavailable("the database does not answer")
        }
        StoreError::Database(_) | StoreError::Corrupt(_) | StoreError::Migrate(_) => {
            tracing::error!(error = chain(error), "a node's call failed");
            Status::internal("control's log has the cause")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_host_and_a_port() {
        for good in ["127.0.0.1:8702", "[::1]:8702", "node-1.example:1"] {
            assert!(check_address(good).is_ok(), "{good}");
        }
        for bad in ["", "127.0.0.1", "a:b", "a@b:1", "a:1/x", "a:99999", &format!("{}:1", "a".repeat(300))] {
            assert!(check_address(bad).is_err(), "{bad}");
        }
    }
}
