//! What nodes and edges ask of control, over gRPC with TLS. `Enrol` and `EnrolEdge` take a join token; everything else
//! takes the caller's certificate: a node's calls act on that node alone, an edge's take an edge.

mod edge;
mod service;

use std::sync::Arc;

use space_node_proto::{edge::edge_server::EdgeServer, registry::registry_server::RegistryServer};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tonic::transport::{Certificate, Identity, Server, ServerTlsConfig, server::TcpIncoming};

use crate::app::App;

/// A heartbeat of a node with 10,000 sandboxes.
const REQUEST_BYTES: usize = 16 * 1024 * 1024;
const REQUEST_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(30);
/// Of one node or edge, at the same time.
const CALLS: u32 = 256;

/// Serves nodes and edges until `shutdown`.
pub(crate) async fn serve(
    listener: TcpListener,
    app: Arc<App>,
    shutdown: CancellationToken,
) -> Result<(), tonic::transport::Error> {
    let certificates = &app.authority.certificates;
    let control = certificates.control();
    let tls = ServerTlsConfig::new()
        .identity(Identity::from_pem(&control.certificate_pem, &control.private_key_pem))
        .client_ca_root(Certificate::from_pem(certificates.authority_pem()))
        // A node that joins has no certificate yet. Every other call checks for one.
        .client_auth_optional(true)
        .timeout(std::time::Duration::from_secs(10));
    let edges = EdgeServer::new(edge::EdgeService::new(Arc::clone(&app)));
    let service =
        RegistryServer::new(service::RegistryService::new(app)).max_decoding_message_size(REQUEST_BYTES);
    Server::builder()
        .tls_config(tls)?
        .timeout(REQUEST_TIMEOUT)
        .max_concurrent_streams(CALLS)
        .http2_keepalive_interval(Some(std::time::Duration::from_secs(20)))
        .add_service(service)
        .add_service(edges)
        .serve_with_incoming_shutdown(
            TcpIncoming::from(listener).with_nodelay(Some(true)),
            shutdown.cancelled(),
        )
        .await
}
