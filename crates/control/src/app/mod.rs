//! What the control plane decides, resource by resource. Knows no row and no header: it is asked by `http_server/` and
//! `registry/`, and asks `store/` and `node_client/`.

pub(crate) mod auth;
pub(crate) mod base_url;
pub(crate) mod changes;
pub(crate) mod command_stream;
pub(crate) mod commands;
pub(crate) mod error;
pub(crate) mod events;
pub(crate) mod exec;
mod file_convert;
pub(crate) mod file_error;
pub(crate) mod file_stream;
pub(crate) mod file_upload;
pub(crate) mod files;
pub(crate) mod first_start;
pub(crate) mod join_tokens;
pub(crate) mod keys;
pub(crate) mod nodes;
pub(crate) mod operations;
pub(crate) mod page;
pub(crate) mod port_names;
pub(crate) mod ports;
mod problem;
pub(crate) mod projects;
pub(crate) mod quotas;
pub(crate) mod routes;
pub(crate) mod sandboxes;
pub(crate) mod templates;
pub(crate) mod tenants;
pub(crate) mod terminal;
pub(crate) mod usage;

use std::{sync::Arc, time::Duration};

use tokio_util::{sync::CancellationToken, task::TaskTracker};
use uuid::Uuid;

use self::{
    auth::{KeyCache, KeyUse},
    base_url::{AttachUrl, BaseUrlError},
    changes::Changes,
    port_names::PortNames,
    routes::RouteCache,
};
use crate::{
    authority::Authority,
    config::{Config, duration},
    controllers::{Nudges, beats::Beats, strays::Strays},
    node_client::{Nodes, Workers},
    rate_limit::RateLimits,
    store::Store,
};

pub(crate) use error::AppError;

/// The numbers that decisions depend on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AppLimits {
    pub(crate) call_timeout: Duration,
    pub(crate) reattach_for: Duration,
    pub(crate) token_lifetime: Duration,
    pub(crate) key_recheck: Duration,
    pub(crate) lease: Duration,
    pub(crate) lease_margin: Duration,
    pub(crate) ensure_timeout: Duration,
    pub(crate) remove_timeout: Duration,
    pub(crate) create_deadline: Duration,
}

impl AppLimits {
    pub(crate) fn from_config(config: &Config) -> Self {
        Self {
            call_timeout: duration(config.commands.call_timeout),
            reattach_for: duration(config.commands.reattach_for),
            token_lifetime: duration(config.commands.token_lifetime),
            key_recheck: duration(config.http.key_recheck),
            lease: duration(config.registry.lease),
            lease_margin: duration(config.registry.lease_margin),
            ensure_timeout: duration(config.nodes.ensure_timeout),
            remove_timeout: duration(config.nodes.remove_timeout),
            create_deadline: duration(config.nodes.create_deadline),
        }
    }
}

/// Everything that requests and controllers share.
pub(crate) struct App {
    pub(crate) store: Store,
    pub(crate) authority: Arc<Authority>,
    pub(crate) nodes: Nodes,
    pub(crate) workers: Workers,
    pub(crate) keys: KeyCache,
    pub(crate) key_use: KeyUse,
    pub(crate) rate_limits: RateLimits,
    pub(crate) routes: RouteCache,
    pub(crate) changes: Changes,
    pub(crate) nudges: Nudges,
    pub(crate) strays: Strays,
    pub(crate) beats: Beats,
    /// Tells this process from other replicas.
    pub(crate) replica: Uuid,
    pub(crate) limits: AppLimits,
    /// None: command streams are read here alone.
    pub(crate) attach_url: Option<AttachUrl>,
    /// None: no edge serves ports.
    pub(crate) port_names: Option<PortNames>,
    /// Streams end when it is cancelled.
    pub(crate) shutdown: CancellationToken,
    /// WebSockets, which the HTTP server knows nothing of once they are upgraded.
    pub(crate) sockets: TaskTracker,
}

impl App {
    pub(crate) fn new(
        store: Store,
        authority: Authority,
        config: &Config,
        shutdown: CancellationToken,
    ) -> Result<Self, BaseUrlError> {
        let connect_timeout = duration(config.nodes.connect_timeout);
        Ok(Self {
            nodes: Nodes::new(&authority.certificates, connect_timeout),
            workers: Workers::new(&authority.certificates, connect_timeout),
            authority: Arc::new(authority),
            keys: KeyCache::default(),
            key_use: KeyUse::default(),
            rate_limits: RateLimits::new(&config.rate_limits),
            routes: RouteCache::default(),
            changes: Changes::new(),
            nudges: Nudges::default(),
            strays: Strays::default(),
            beats: Beats::default(),
            replica: Uuid::now_v7(),
            limits: AppLimits::from_config(config),
            attach_url: config.commands.attach_base_url.as_deref().map(AttachUrl::parse).transpose()?,
            port_names: config.ports.base_url.as_deref().map(PortNames::parse).transpose()?,
            store,
            shutdown,
            sockets: TaskTracker::new(),
        })
    }

    /// To be called after each commit that changed a sandbox: forgets what was remembered of it, wakes those who
    /// wait, and has the other replicas told.
    pub(crate) fn announce(&self, changed: crate::store::sandbox_changes::Changed) {
        self.routes.forget(changed.sandbox_id);
        self.changes.publish(changed);
    }
}
