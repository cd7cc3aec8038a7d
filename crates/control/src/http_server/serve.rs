//! Accepting connections: HTTP/1.1 and HTTP/2 (by prior knowledge or ALPN), small packets sent at once, and a
//! deadline on everything that a silent client could hold open before it has sent a request. Connections are counted:
//! above [`CONNECTIONS`] new ones wait in the kernel's queue.

use std::{sync::Arc, time::Duration};

use axum::Router;
use http::Request;
use hyper::body::Incoming;
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::{
        conn::auto::Builder,
        graceful::{GracefulShutdown, Watcher},
    },
    service::TowerToHyperService,
};
use rustls::ServerConfig;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    sync::Semaphore,
};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use crate::rate_limit::PeerAddress;

/// Well below what descriptors and memory allow; streams of events are what holds connections open for long.
const CONNECTIONS: usize = 16_384;
const HANDSHAKE: Duration = Duration::from_secs(10);
const KEEP_ALIVE: Duration = Duration::from_secs(30);
/// After a failed accept, which means that descriptors have run out: the kernel does not say when they come back.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// What requests get to finish at shutdown.
const DRAIN: Duration = Duration::from_secs(10);

/// Serves until `shutdown`, then lets requests finish for a while.
pub(crate) async fn serve(
    listener: TcpListener,
    router: Router,
    tls: Option<Arc<ServerConfig>>,
    header_timeout: Duration,
    shutdown: CancellationToken,
) {
    let acceptor = tls.map(TlsAcceptor::from);
    let graceful = GracefulShutdown::new();
    let permits = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let room_and_stream = async {
            // Never closed.
            let permit = Arc::clone(&permits).acquire_owned().await.ok();
            listener.accept().await.map(|(stream, address)| (stream, PeerAddress::new(address.ip()), permit))
        };
        let accepted = tokio::select! {
            accepted = room_and_stream => accepted,
            () = shutdown.cancelled() => break,
        };
        let (stream, peer, permit) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "a connection ended at once");
            continue;
        }
        let served = Served { peer, header_timeout, router: router.clone() };
        let serving = connection(stream, served, acceptor.clone(), graceful.watcher());
        tokio::spawn(async move {
            serving.await;
            drop(permit);
        });
    }
    drop(listener);
    if tokio::time::timeout(DRAIN, graceful.shutdown()).await.is_err() {
        tracing::info!("some requests did not finish in time");
    }
}

/// How one connection is served.
struct Served {
    peer: PeerAddress,
    header_timeout: Duration,
    router: Router,
}

async fn connection(stream: TcpStream, served: Served, acceptor: Option<TlsAcceptor>, watcher: Watcher) {
    let Some(acceptor) = acceptor else { return serve_stream(stream, served, watcher).await };
    match tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => serve_stream(stream, served, watcher).await,
        Ok(Err(error)) => tracing::debug!(%error, "a TLS handshake failed"),
        Err(_) => tracing::debug!("a TLS handshake took too long"),
    }
}

async fn serve_stream<S>(stream: S, served: Served, watcher: Watcher)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let Served { peer, header_timeout, router } = served;
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(header_timeout);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(KEEP_ALIVE)
        .max_concurrent_streams(256);
    let service = router.map_request(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(peer);
        request
    });
    let connection = builder
        .serve_connection_with_upgrades(TokioIo::new(stream), TowerToHyperService::new(service))
        .into_owned();
    if let Err(error) = watcher.watch(connection).await {
        tracing::debug!(%error, "a connection ended in disorder");
    }
}
