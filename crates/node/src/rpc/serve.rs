//! Listening. The certificate in a TLS server is fixed, so each renewal makes a new server on the same
//! socket while the old one finishes what it has.

use std::{io, net::TcpListener, time::Duration};

use space_enrol::Identity;
use space_node_proto::node::node_server::NodeServer;
use space_runtime::tasks::Tasks;
use tokio::sync::watch;
use tokio_stream::wrappers::TcpListenerStream;
use tokio_util::sync::CancellationToken;
use tonic::transport::{Certificate, Server, ServerTlsConfig};

use super::NodeService;

const LARGEST_REQUEST: usize = 256 * 1024;
const TLS_HANDSHAKE: Duration = Duration::from_secs(10);
const KEEPALIVE: Duration = Duration::from_secs(20);

#[derive(Debug, thiserror::Error)]
pub(crate) enum ServeError {
    #[error("cannot listen on {address}")]
    Listen {
        address: std::net::SocketAddr,
        #[source]
        source: io::Error,
    },
    #[error("cannot use the node's certificate")]
    Tls(#[from] tonic::transport::Error),
}

/// Serves until shutdown, with whatever `identity` is current.
pub(crate) async fn serve(
    listener: TcpListener,
    service: NodeService,
    mut identity: watch::Receiver<Identity>,
    tasks: &Tasks,
) -> Result<(), ServeError> {
    let shutdown = tasks.shutdown_token();
    let address = listener.local_addr().map_err(io_error([0, 0, 0, 0]))?;
    let listen_error = |source| ServeError::Listen { address, source };
    listener.set_nonblocking(true).map_err(listen_error)?;
    while !shutdown.is_cancelled() {
        let current = identity.borrow_and_update().clone();
        let socket =
            listener.try_clone().and_then(tokio::net::TcpListener::from_std).map_err(listen_error)?;
        let replaced = shutdown.child_token();
        let server = one_server(socket, service.clone(), &current, replaced.clone())?;
        tasks.spawn("node service", async move {
            if let Err(error) = server.await {
                tracing::error!(%error, "the Node service ended");
            }
        });
        tokio::select! {
            () = shutdown.cancelled() => {}
            changed = identity.changed() => if changed.is_err() { shutdown.cancelled().await },
        }
        replaced.cancel();
    }
    Ok(())
}

fn io_error(ip: [u8; 4]) -> impl FnOnce(io::Error) -> ServeError {
    move |source| ServeError::Listen { address: (ip, 0).into(), source }
}

fn one_server(
    socket: tokio::net::TcpListener,
    service: NodeService,
    identity: &Identity,
    stop: CancellationToken,
) -> Result<impl Future<Output = Result<(), tonic::transport::Error>> + use<>, tonic::transport::Error> {
    let own = tonic::transport::Identity::from_pem(&identity.certificate_pem, &identity.key_pem);
    let tls = ServerTlsConfig::new()
        .identity(own)
        .client_ca_root(Certificate::from_pem(&identity.authority_pem))
        .timeout(TLS_HANDSHAKE);
    let service = NodeServer::new(service).max_decoding_message_size(LARGEST_REQUEST);
    let server = Server::builder()
        .tls_config(tls)?
        .http2_keepalive_interval(Some(KEEPALIVE))
        .http2_keepalive_timeout(Some(KEEPALIVE))
        .add_service(service);
    Ok(server.serve_with_incoming_shutdown(TcpListenerStream::new(socket), stop.cancelled_owned()))
}
