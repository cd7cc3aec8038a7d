//! A running control plane: everything bound, started and, at the end, stopped in order.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use camino::Utf8PathBuf;
use space_api::nodes::JoinTokenKind;
use space_runtime::{
    internal::{self, Metrics},
    retry::{Backoff, retry},
    tasks::Tasks,
};
use tokio::net::TcpListener;

use crate::{
    app::{App, base_url::BaseUrlError, first_start::FirstStartError},
    authority::{Authority, AuthorityError},
    config::{Config, duration},
    controllers,
    http_server::{self, TlsError},
    registry,
    store::{Store, StoreError, StoreOptions},
};

/// How long a start waits for the database.
const DATABASE: Backoff = Backoff {
    first: Duration::from_millis(100),
    cap: Duration::from_secs(2),
    give_up_after: Duration::from_mins(1),
};

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("cannot listen on {address}")]
    Listen {
        address: SocketAddr,
        #[source]
        source: std::io::Error,
    },
    #[error(transparent)]
    Authority(#[from] AuthorityError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the first start failed")]
    FirstStart(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("cannot serve TLS")]
    Tls(#[from] TlsError),
    #[error("http.certificate_file and http.private_key_file go together")]
    HalfTls,
    #[error(transparent)]
    BaseUrl(#[from] BaseUrlError),
    #[error("cannot make {path}")]
    DataDir {
        path: Utf8PathBuf,
        #[source]
        source: std::io::Error,
    },
}

/// Dropping it stops nothing; [`Server::stop`] does.
pub struct Server {
    pub(crate) app: Arc<App>,
    tasks: Tasks,
    http_address: SocketAddr,
    registry_address: SocketAddr,
    internal_address: Option<SocketAddr>,
}

impl Server {
    /// Migrates, makes the first key if there is none, binds and starts everything. `metrics` none: without the
    /// internal port.
    pub async fn start(config: &Config, tasks: &Tasks, metrics: Option<Metrics>) -> Result<Self, StartError> {
        // Where more than one is compiled in, rustls wants to be told; a second start finds it done.
        rustls::crypto::aws_lc_rs::default_provider().install_default().ok();
        std::fs::create_dir_all(&config.data_dir)
            .map_err(|source| StartError::DataDir { path: config.data_dir.clone(), source })?;
        let authority = Authority::open(&config.data_dir)?;
        let store = Store::new(&StoreOptions {
            url: config.database.url.clone(),
            max_connections: config.database.max_connections,
            acquire_timeout: duration(config.database.acquire_timeout),
            statement_timeout: duration(config.database.statement_timeout),
            default_quota: config.quota,
        })?;
        let is_away = |error: &StoreError| {
            tracing::warn!(error = space_runtime::telemetry::chain(error), "waiting for the database");
            matches!(error, StoreError::Unavailable(_) | StoreError::Migrate(_))
        };
        retry(DATABASE, is_away, || store.migrate()).await?;
        let app = Arc::new(App::new(store, authority, config, tasks.shutdown_token())?);
        let failed = |error: FirstStartError| StartError::FirstStart(Box::new(error));
        app.first_start(&config.admin_key_file()).await.map_err(failed)?;
        if let Some(path) = &config.join_token_file {
            app.write_join_token(JoinTokenKind::Node, path).await.map_err(failed)?;
        }
        if let Some(path) = &config.edge_join_token_file {
            app.write_join_token(JoinTokenKind::Edge, path).await.map_err(failed)?;
        }
        let mut server = Self {
            app,
            tasks: tasks.clone(),
            http_address: config.http.listen,
            registry_address: config.registry.listen,
            internal_address: None,
        };
        server.registry(config.registry.listen).await?;
        controllers::spawn(tasks, &server.app, &config.controllers);
        server.http(config).await?;
        if let Some(metrics) = metrics {
            server.internal(config.internal.listen, metrics).await?;
        }
        Ok(server)
    }

    async fn registry(&mut self, address: SocketAddr) -> Result<(), StartError> {
        let (listener, address) = bind(address).await?;
        self.registry_address = address;
        let (app, tasks, shutdown) = (Arc::clone(&self.app), self.tasks.clone(), self.tasks.shutdown_token());
        self.tasks.spawn("registry", async move {
            if let Err(error) = registry::serve(listener, app, shutdown).await {
                tracing::error!(error = space_runtime::telemetry::chain(&error), "the registry ended");
                tasks.shutdown();
            }
        });
        Ok(())
    }

    async fn http(&mut self, config: &Config) -> Result<(), StartError> {
        let tls = match (&config.http.certificate_file, &config.http.private_key_file) {
            (Some(certificates), Some(key)) => Some(http_server::server_config(certificates, key)?),
            (None, None) => None,
            (Some(_), None) | (None, Some(_)) => return Err(StartError::HalfTls),
        };
        let (listener, address) = bind(config.http.listen).await?;
        self.http_address = address;
        let router = http_server::router(Arc::clone(&self.app), duration(config.http.request_timeout));
        let header_timeout = duration(config.http.header_timeout);
        let (app, shutdown) = (Arc::clone(&self.app), self.tasks.shutdown_token());
        self.tasks.spawn("http", async move {
            http_server::serve(listener, router, tls, header_timeout, shutdown).await;
            http_server::close_sockets(&app).await;
        });
        Ok(())
    }

    async fn internal(&mut self, address: SocketAddr, metrics: Metrics) -> Result<(), StartError> {
        let (listener, address) = bind(address).await?;
        self.internal_address = Some(address);
        let app = Arc::clone(&self.app);
        let router = internal::router(metrics, move || {
            let app = Arc::clone(&app);
            async move { app.store.ping().await.map_err(|error| error.to_string()) }
        });
        let shutdown = self.tasks.shutdown_token();
        self.tasks.spawn("internal", async move {
            if let Err(error) = internal::serve(listener, router, shutdown).await {
                tracing::error!(%error, "the internal port ended");
            }
        });
        Ok(())
    }

    pub const fn http_address(&self) -> SocketAddr {
        self.http_address
    }

    pub const fn registry_address(&self) -> SocketAddr {
        self.registry_address
    }

    pub const fn internal_address(&self) -> Option<SocketAddr> {
        self.internal_address
    }

    /// Streams end, requests finish, tasks stop, connections close.
    pub async fn stop(self, deadline: Duration) {
        self.tasks.finish(deadline).await;
        self.app.store.close().await;
    }
}

async fn bind(address: SocketAddr) -> Result<(TcpListener, SocketAddr), StartError> {
    let failed = |source| StartError::Listen { address, source };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    Ok((listener, bound))
}
