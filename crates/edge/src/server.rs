//! The whole daemon, but for what a process has one of: also started by tests.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use space_enrol::{JoinError, renew_forever};
use space_runtime::{
    internal::{self, Metrics},
    tasks::Tasks,
};
use tokio::{net::TcpListener, sync::watch};

use crate::{
    addresses::Addresses,
    config::Config,
    control::ControlLink,
    enrol::load_or_join,
    keys,
    parse::token::PublicKey,
    proxied::Proxies,
    proxy::Proxy,
    routes::Routes,
    serve::Acceptor,
    streams::Streams,
    tls::{Current, TlsError, server_config},
    turn_away::TurnAway,
    upstream::Upstream,
    workers::Workers,
};

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("`domain` is empty")]
    Domain,
    #[error("cannot listen on {address}")]
    Listen {
        address: SocketAddr,
        #[source]
        source: io::Error,
    },
    #[error("cannot join")]
    Join(#[from] JoinError),
    #[error("cannot use the certificate for visitors")]
    Tls(#[from] TlsError),
}

#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    internal_address: Option<SocketAddr>,
    ready: watch::Receiver<Arc<[PublicKey]>>,
}

impl Server {
    /// Joins if need be, and serves. Ends with `tasks`.
    pub async fn start(config: &Config, tasks: &Tasks, metrics: Option<Metrics>) -> Result<Self, StartError> {
        let domain = config.normal_domain();
        if domain.is_empty() {
            return Err(StartError::Domain);
        }
        let tls = config
            .tls
            .as_ref()
            .map(|files| Ok::<_, TlsError>((Current::load(files)?, files.clone())))
            .transpose()?;
        let (listener, address) = listen(config.listen).await?;
        let deadline = Duration::from_secs(config.limits.upstream_seconds);
        let (identity_sender, identity) = watch::channel(load_or_join(config).await?);
        let control = ControlLink::new(config.control.clone(), deadline, identity.clone());
        let (keys_sender, keys) = watch::channel(Arc::<[PublicKey]>::from([]));
        let renewing = control.clone();
        let renewal = renew_forever(identity_sender, None, config.identity_dir(), move |csr_der| {
            let control = renewing.clone();
            async move { control.renew(csr_der).await }
        });
        tasks.spawn_cancellable("renewal", renewal);
        tasks.spawn_cancellable("token keys", keys::fetch_forever(control.clone(), keys_sender));
        let addresses = Addresses::new(&config.limits);
        let workers = Workers::new(identity, deadline);
        let proxy = Proxy {
            domain,
            addresses: Arc::clone(&addresses),
            keys: keys.clone(),
            routes: Routes::new(control.clone()),
            streams: Streams {
                keys: keys.clone(),
                routes: Arc::new(Routes::new(control)),
                workers: workers.clone(),
                deadline,
                shutdown: tasks.shutdown_token(),
            },
            upstream: Upstream::new(workers, config.limits, tasks),
            tasks: tasks.clone(),
        };
        let tls = tls.map(|(current, files)| {
            tasks.spawn_cancellable("certificate", Arc::clone(&current).reload_forever(files));
            Arc::new(server_config(&current))
        });
        let acceptor = Acceptor {
            proxy: Arc::new(proxy),
            addresses,
            proxies: Proxies::new(config.proxy_protocol.as_ref()),
            away: TurnAway::new(tls.is_some(), tasks),
            tls,
            tls_in_front: config.tls_in_front,
            limits: config.limits,
            tasks: tasks.clone(),
        };
        tasks.spawn("visitors", acceptor.serve(listener));
        let internal_address = serve_internal(config, tasks, metrics, keys.clone()).await?;
        Ok(Self { address, internal_address, ready: keys })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn internal_address(&self) -> Option<SocketAddr> {
        self.internal_address
    }

    /// Returns when tokens can be checked.
    pub async fn ready(&self) {
        // An error means that the server has ended.
        drop(self.ready.clone().wait_for(|keys| !keys.is_empty()).await);
    }
}

async fn listen(address: SocketAddr) -> Result<(TcpListener, SocketAddr), StartError> {
    let failed = |source| StartError::Listen { address, source };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    Ok((listener, bound))
}

async fn serve_internal(
    config: &Config,
    tasks: &Tasks,
    metrics: Option<Metrics>,
    keys: watch::Receiver<Arc<[PublicKey]>>,
) -> Result<Option<SocketAddr>, StartError> {
    let (Some(address), Some(metrics)) = (config.internal_listen, metrics) else { return Ok(None) };
    let (listener, bound) = listen(address).await?;
    let router = internal::router(metrics, move || {
        let ready = !keys.borrow().is_empty();
        async move { if ready { Ok(()) } else { Err("no token keys yet".to_owned()) } }
    });
    let shutdown = tasks.shutdown_token();
    tasks.spawn("internal", async move {
        if let Err(error) = internal::serve(listener, router, shutdown).await {
            tracing::error!(%error, "the internal port failed");
        }
    });
    Ok(Some(bound))
}
