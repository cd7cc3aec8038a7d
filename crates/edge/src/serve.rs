//! Accepting visitors: TLS or plain, HTTP/1.1 or HTTP/2, and a deadline on everything that a silent one could hold open.

use std::{
    io,
    net::{IpAddr, SocketAddr},
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
use space_runtime::tasks::Tasks;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    time::{sleep, timeout},
};
use tokio_rustls::TlsAcceptor;

use crate::{
    EdgeCode,
    addresses::Addresses,
    answer::Refusal,
    config::Limits,
    proxy::{Held, Proxy, Visitor},
    turn_away::TurnAway,
};

const HANDSHAKE: Duration = Duration::from_secs(10);
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
    pub(crate) limits: Limits,
    pub(crate) tasks: Tasks,
}

impl Acceptor {
    /// Until shutdown. Connections are tasks of their own, which finish their requests then.
    pub(crate) async fn serve(self, listener: TcpListener) {
        let acceptor = Arc::new(self);
        let permits = Arc::new(Semaphore::new(acceptor.limits.connections));
        let away = TurnAway::new(acceptor.tls.is_some(), &acceptor.tasks);
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
            let place = match acceptor.place(&permits, peer.ip()) {
                Ok(held) => Arc::new(held),
                Err(refusal) => {
                    away.with(refusal, stream);
                    continue;
                }
            };
            let visitor = Visitor { ip: peer.ip(), tls: acceptor.tls.is_some(), place };
            let connection = Arc::clone(&acceptor).connection(stream, peer, visitor);
            acceptor.tasks.spawn("connection", connection);
        }
    }

    fn place(&self, permits: &Arc<Semaphore>, ip: IpAddr) -> Result<Held, Refusal> {
        let of_all = Arc::clone(permits).try_acquire_owned().map_err(|_none_left| {
            Refusal::new(EdgeCode::TooManyConnections, "The edge has as many connections as it may have.")
        })?;
        let of_address = self.addresses.connect(ip).ok_or_else(|| {
            Refusal::new(EdgeCode::AddressLimited, "This address has as many connections as it may have.")
        })?;
        Ok(Held(of_all, of_address))
    }

    fn header_time(&self) -> Duration {
        Duration::from_secs(self.limits.header_seconds)
    }

    async fn connection(self: Arc<Self>, stream: TcpStream, peer: SocketAddr, visitor: Visitor) {
        if let Err(error) = prepare(&stream) {
            return tracing::debug!(%peer, %error, "a connection ended at once");
        }
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
    Ok(())
}
