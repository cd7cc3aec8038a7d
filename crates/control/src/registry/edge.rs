//! The calls of `proto/edge.proto`.

use std::{num::NonZeroU16, sync::Arc};

use space_api::ports::PortVisibility;
use space_node_proto::edge::{
    EnrolEdgeReply, EnrolEdgeRequest, GetTokenKeysReply, GetTokenKeysRequest, RenewEdgeReply,
    RenewEdgeRequest, ResolvePortReply, ResolvePortRequest, ResolveSandboxReply, ResolveSandboxRequest,
    Route as RouteMessage, edge_server::Edge,
};
use space_types::{PortHost, SandboxState};
use tokio::sync::{Semaphore, SemaphorePermit};
use tonic::{Request, Response, Status};

use super::service::{certificate_status, check_csr, check_name, store_status, token_hash, unknown_token};
use crate::{
    app::App,
    authority::{Peer, request_key_hash},
    store::{enrolment::EnrolError, sandboxes::Route},
};

/// Questions that are looked up at the same time. Strangers can make edges ask, and must not take the database's
/// connections from nodes and callers.
const RESOLUTIONS: usize = 4;

pub(super) struct EdgeService {
    app: Arc<App>,
    resolutions: Semaphore,
}

impl EdgeService {
    pub(super) fn new(app: Arc<App>) -> Self {
        Self { app, resolutions: Semaphore::new(RESOLUTIONS) }
    }

    /// Waits for those before; an edge that has given up is not served any more.
    async fn turn(&self) -> Result<SemaphorePermit<'_>, Status> {
        metrics::counter!("space_edge_resolutions_total").increment(1);
        self.resolutions.acquire().await.map_err(|_closed| Status::unavailable("control is shutting down"))
    }
}

#[tonic::async_trait]
impl Edge for EdgeService {
    async fn enrol_edge(
        &self,
        request: Request<EnrolEdgeRequest>,
    ) -> Result<Response<EnrolEdgeReply>, Status> {
        let EnrolEdgeRequest { join_token, csr_der, name } = request.into_inner();
        check_name(&name)?;
        check_csr(&csr_der)?;
        let hash = token_hash(&join_token)?;
        let certificates = &self.app.authority.certificates;
        // Both first, since a bad request must not use the token up.
        let key_hash = request_key_hash(&csr_der).map_err(|error| certificate_status(&error))?;
        let certificate_pem = certificates.sign_edge(&csr_der).map_err(|error| certificate_status(&error))?;
        self.app.store.edge_enrol(hash, key_hash).await.map_err(|error| match error {
            EnrolError::Token | EnrolError::NameTaken => unknown_token(),
            EnrolError::Store(error) => store_status(&error),
        })?;
        tracing::info!(name, "an edge joined");
        let authority_pem = certificates.authority_pem().to_owned();
        Ok(Response::new(EnrolEdgeReply { certificate_pem, authority_pem }))
    }

    async fn renew_edge(
        &self,
        request: Request<RenewEdgeRequest>,
    ) -> Result<Response<RenewEdgeReply>, Status> {
        require_edge(&request)?;
        let RenewEdgeRequest { csr_der } = request.into_inner();
        check_csr(&csr_der)?;
        let signed = self.app.authority.certificates.sign_edge(&csr_der);
        let certificate_pem = signed.map_err(|error| certificate_status(&error))?;
        Ok(Response::new(RenewEdgeReply { certificate_pem }))
    }

    async fn get_token_keys(
        &self,
        request: Request<GetTokenKeysRequest>,
    ) -> Result<Response<GetTokenKeysReply>, Status> {
        require_edge(&request)?;
        let ed25519 = vec![self.app.authority.attach.public_key().to_vec()];
        Ok(Response::new(GetTokenKeysReply { ed25519 }))
    }

    async fn resolve_port(
        &self,
        request: Request<ResolvePortRequest>,
    ) -> Result<Response<ResolvePortReply>, Status> {
        require_edge(&request)?;
        let ResolvePortRequest { sandbox_id, port } = request.into_inner();
        let sandbox_id =
            sandbox_id.parse().map_err(|_unparsed| Status::invalid_argument("sandbox_id is no id"))?;
        let port = u16::try_from(port).ok().and_then(NonZeroU16::new);
        let port = port.ok_or_else(|| Status::invalid_argument("port is 1 to 65535"))?;
        let _turn = self.turn().await?;
        let resolved = self.app.port_resolve(PortHost { port, sandbox_id }).await;
        let resolved = resolved.map_err(|error| store_status(&error))?;
        let resolved = resolved.ok_or_else(|| Status::not_found("no such sandbox"))?;
        Ok(Response::new(ResolvePortReply {
            public: resolved.visibility == PortVisibility::Public,
            epoch: resolved.epoch,
            state: resolved.route.state.code().to_owned(),
            route: message(resolved.route),
        }))
    }

    async fn resolve_sandbox(
        &self,
        request: Request<ResolveSandboxRequest>,
    ) -> Result<Response<ResolveSandboxReply>, Status> {
        require_edge(&request)?;
        let id = request.into_inner().sandbox_id;
        let id = id.parse().map_err(|_unparsed| Status::invalid_argument("sandbox_id is no id"))?;
        let _turn = self.turn().await?;
        let route = self.app.store.sandbox_route(id).await.map_err(|error| store_status(&error))?;
        let route = route.filter(|route| route.state != SandboxState::Deleted);
        let route = route.ok_or_else(|| Status::not_found("no such sandbox"))?;
        Ok(Response::new(ResolveSandboxReply { state: route.state.code().to_owned(), route: message(route) }))
    }
}

/// For as long as the sandbox runs.
fn message(route: Route) -> Option<RouteMessage> {
    SandboxState::USABLE.contains(&route.state).then(|| RouteMessage {
        tenant_id: route.tenant_id.to_string(),
        node_id: route.node_id.to_string(),
        worker_address: route.data_address,
        generation: route.generation,
    })
}

/// Whether the caller presented an edge's certificate; its chain was verified by the handshake.
fn require_edge<T>(request: &Request<T>) -> Result<(), Status> {
    let certificates =
        request.peer_certs().ok_or_else(|| Status::unauthenticated("an edge's certificate is needed"))?;
    match certificates.first().and_then(Peer::of) {
        Some(Peer::Edge) => Ok(()),
        Some(Peer::Control | Peer::Node(_) | Peer::Worker(_, _)) | None => {
            Err(Status::permission_denied("this is for edges alone"))
        }
    }
}
