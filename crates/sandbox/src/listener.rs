//! From the listening socket to connections whose peer is known.
//!
//! Handshakes run beside each other, a limited number with a deadline each, so that a client which connects and
//! says nothing holds up nobody.

use std::{io, net::TcpListener as StdListener, os::fd::OwnedFd, sync::Arc};

use tokio::{
    net::{TcpListener, TcpStream},
    sync::{Semaphore, mpsc},
    time::{Instant, sleep_until, timeout},
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::{info, warn};

use crate::{limits, metrics::Metrics};

/// How long `accept` rests when the kernel has no descriptor or memory left. There is no event for that.
const ACCEPT_REST: std::time::Duration = std::time::Duration::from_millis(100);

pub(crate) type Connection = TlsStream<TcpStream>;

/// Takes over the listening socket that noded made.
pub(crate) fn listener(socket: OwnedFd) -> io::Result<TcpListener> {
    let listener = StdListener::from(socket);
    listener.set_nonblocking(true)?;
    TcpListener::from_std(listener)
}

/// Accepts until `stop`; hands each connection on once its peer has proven who it is.
pub(crate) async fn accept(
    listener: TcpListener,
    tls: TlsAcceptor,
    ready: mpsc::Sender<io::Result<Connection>>,
    metrics: Arc<Metrics>,
    stop: CancellationToken,
) {
    let places = Arc::new(Semaphore::new(limits::TLS_HANDSHAKES));
    let handshakes = TaskTracker::new();
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            accepted = accept_one(&listener, &places) => accepted,
        };
        match accepted {
            Ok((stream, place)) => {
                let (tls, ready, metrics) = (tls.clone(), ready.clone(), Arc::clone(&metrics));
                handshakes.spawn(stop.clone().run_until_cancelled_owned(async move {
                    handshake(stream, tls, ready, &metrics).await;
                    drop(place);
                }));
            }
            Err(error) => {
                warn!(%error, "cannot accept a connection");
                sleep_until(Instant::now() + ACCEPT_REST).await;
            }
        }
    }
    handshakes.close();
    handshakes.wait().await;
}

async fn accept_one(
    listener: &TcpListener,
    places: &Arc<Semaphore>,
) -> io::Result<(TcpStream, tokio::sync::OwnedSemaphorePermit)> {
    let place = Arc::clone(places).acquire_owned().await.map_err(io::Error::other)?;
    let (stream, _peer) = listener.accept().await?;
    Ok((stream, place))
}

async fn handshake(
    stream: TcpStream,
    tls: TlsAcceptor,
    ready: mpsc::Sender<io::Result<Connection>>,
    metrics: &Metrics,
) {
    if let Err(error) = stream.set_nodelay(true) {
        warn!(%error, "cannot turn off Nagle's algorithm");
    }
    match timeout(limits::TLS_HANDSHAKE, tls.accept(stream)).await {
        Ok(Ok(connection)) => {
            // Nobody receives when the server has stopped; the connection closes then.
            drop(ready.send(Ok(connection)).await);
        }
        Ok(Err(error)) => {
            metrics.refused_connections.add(1);
            info!(%error, "refused a connection");
        }
        Err(_elapsed) => {
            metrics.refused_connections.add(1);
            info!("dropped a connection that did not finish its handshake");
        }
    }
}
