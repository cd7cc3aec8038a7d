//! Accepting visitors: who they are, TLS or plain, HTTP/1.1 or HTTP/2, and a deadline on everything that a silent one
//! could hold open.

use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use hyper::service::service_fn;
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto::Builder,
};
use rustix::net::sockopt;
use rustls::ServerConfig;
use space_runtime::{tasks::Tasks, telemetry::chain};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{sleep, timeout},
};
use tokio_rustls::TlsAcceptor;

use crate::{
    EdgeCode,
    addresses::Addresses,
    answer::Refusal,
    config::Limits,
    proxied::Proxies,
    proxy::{Held, Proxy, Visitor},
    turn_away::TurnAway,
};

const HANDSHAKE: Duration = Duration::from_secs(10);
/// A peer that acknowledges nothing for so long has gone. In milliseconds.
const GONE: u32 = 120_000;
const KEEP_ALIVE: Duration = Duration::from_secs(30);
const HEAD_BYTES: u32 = 64 * 1024;
const STREAMS: u32 = 256;
/// Streams that a client resets before they were served, and such that it made us reset: more end its connection.
const RESETS: usize = 64;
/// After a failed accept, which means that descriptors have run out: the kernel does not say when they come back.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

pub(crate) struct Acceptor {
    pub(crate) proxy: Arc<Proxy>,
    pub(crate) addresses: Arc<Addresses>,
    pub(crate) tls: Option<Arc<ServerConfig>>,
    /// Terminated by something in front.
    pub(crate) tls_in_front: bool,
    pub(crate) proxies: Proxies,
    pub(crate) away: TurnAway,
    pub(crate) limits: Limits,
    pub(crate) tasks: Tasks,
}

impl Acceptor {
    /// Until shutdown. Connections are tasks of their own, which finish their requests then.
    pub(crate) async fn serve(self, listener: TcpListener) {
        let acceptor = Arc::new(self);
        let permits = Arc::new(Semaphore::new(acceptor.limits.connections));
        let shutdown = acceptor.tasks.shutdown_token();
        while let Some(accepted) = shutdown.run_until_cancelled(listener.accept()).await {
            let (stream, peer) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            match Arc::clone(&permits).try_acquire_owned() {
                Ok(permit) => {
                    let connection = Arc::clone(&acceptor).connection(stream, peer, permit);
                    acceptor.tasks.spawn("connection", connection);
                }
                Err(_none_left) => {
                    let detail = "The edge has as many connections as it may have.";
                    acceptor.away.with(Refusal::new(EdgeCode::TooManyConnections, detail), stream);
                }
            }
        }
    }

    fn header_time(&self) -> Duration {
        Duration::from_secs(self.limits.header_seconds)
    }

    async fn connection(
        self: Arc<Self>,
        mut stream: TcpStream,
        peer: SocketAddr,
        permit: OwnedSemaphorePermit,
    ) {
        if let Err(error) = prepare(&stream) {
            return tracing::debug!(%peer, %error, "a connection ended at once");
        }
        let ip = match self.proxies.visitor(&mut stream, peer.ip(), self.header_time()).await {
            Ok(ip) => ip,
            Err(error) => return tracing::debug!(%peer, error = %chain(&error), "nobody knows who it is"),
        };
        let Some(place) = self.addresses.connect(ip) else {
            let detail = "This address has as many connections as it may have.";
            return self.away.with(Refusal::new(EdgeCode::AddressLimited, detail), stream);
        };
        let tls = self.tls.is_some() || self.tls_in_front;
        let visitor = Visitor { ip, tls, place: Arc::new(Held(permit, place)) };
        let Some(config) = self.tls.clone() else { return self.http(stream, visitor).await };
        let deadline = HANDSHAKE.min(self.header_time());
        match timeout(deadline, TlsAcceptor::from(config).accept(stream)).await {
            Ok(Ok(stream)) => self.http(stream, visitor).await,
            Ok(Err(error)) => tracing::debug!(%peer, %error, "a TLS handshake failed"),
            Err(_elapsed) => tracing::debug!(%peer, "a TLS handshake took too long"),
        }
    }

    async fn http<S>(&self, stream: S, visitor: Visitor)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let header_time = self.header_time();
        let asked = Arc::new(AtomicBool::new(false));
        let service = {
            let (proxy, asked) = (Arc::clone(&self.proxy), Arc::clone(&asked));
            service_fn(move |request| {
                asked.store(true, Ordering::Relaxed);
                let (proxy, visitor) = (Arc::clone(&proxy), visitor.clone());
                async move { proxy.handle(&visitor, request).await }
            })
        };
        let builder = builder(header_time);
        let mut connection = Box::pin(builder.serve_connection_with_upgrades(TokioIo::new(stream), service));
        // The version is told by the first bytes, so until then no version's own deadline runs.
        let first = async {
            sleep(header_time).await;
            if asked.load(Ordering::Relaxed) {
                std::future::pending::<()>().await;
            }
        };
        let shutdown = self.tasks.shutdown_token();
        let ended = tokio::select! {
            ended = connection.as_mut() => ended,
            () = first => return tracing::debug!("no request came in time"),
            () = shutdown.cancelled() => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = ended {
            tracing::debug!(error = %error, "a connection ended in disorder");
        }
    }
}

fn builder(header_time: Duration) -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(header_time)
        .max_buf_size(HEAD_BYTES as usize);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(KEEP_ALIVE)
        .max_header_list_size(HEAD_BYTES)
        .max_concurrent_streams(STREAMS)
        .max_pending_accept_reset_streams(RESETS)
        .max_local_error_reset_streams(RESETS);
    builder
}

/// Small packets at once; a peer that has gone is noticed within two minutes.
fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, Duration::from_mins(1))?;
    sockopt::set_tcp_keepintvl(stream, Duration::from_secs(15))?;
    sockopt::set_tcp_keepcnt(stream, 4)?;
    // Where something is still unsent no keep-alive goes out.
    sockopt::set_tcp_user_timeout(stream, GONE)?;
    Ok(())
}
