//! The public API: parses, authorises, renders. Decisions are in `app/`.
//!
//! Around every request, from the outside in: its id, span, log line and metrics (`observe.rs`); panics become
//! `internal`; a deadline, except for streams; compressed bodies are refused. Each handler takes its caller (`caller.rs`) before anything else, so that
//! nothing of a request is looked at before it is known who sends it and that they may.

mod answer;
mod caller;
pub(crate) mod commands;
mod docs;
mod encoding;
mod events;
mod extract;
mod files;
mod join_tokens;
mod keys;
mod nodes;
mod observe;
mod openapi;
mod operations;
mod ports;
mod problem;
mod projects;
mod quotas;
mod sandboxes;
mod serve;
mod sse;
mod templates;
mod tenants;
mod terminal;
mod tls;
mod usage;

use std::{sync::Arc, time::Duration};

use axum::{Router, middleware, routing::get};
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::app::App;

pub(crate) use openapi::document;
pub(crate) use serve::serve;
pub(crate) use terminal::close_sockets;
pub(crate) use tls::{TlsError, server_config};

/// Every operation of the public API, with its description.
fn api() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::with_openapi(openapi::base())
        .routes(routes!(sandboxes::sandbox_create, sandboxes::sandbox_list))
        .routes(routes!(sandboxes::sandbox_get, sandboxes::sandbox_delete))
        .routes(routes!(events::sandbox_events))
        .routes(routes!(operations::operation_get))
        .routes(routes!(operations::operation_events))
        .routes(routes!(events::events))
        .routes(routes!(commands::command_create, commands::command_list))
        .routes(routes!(commands::command_get))
        .routes(routes!(commands::command_attach))
        .routes(routes!(commands::command_stdin))
        .routes(routes!(commands::command_signal))
        .routes(routes!(commands::command_resize))
        .routes(routes!(terminal::command_terminal))
        .routes(routes!(commands::exec))
        .routes(routes!(files::file_stat, files::file_remove))
        .routes(routes!(files::file_list))
        .routes(routes!(files::content::file_read, files::content::file_write))
        .routes(routes!(files::directory_create))
        .routes(routes!(files::file_move))
        .routes(routes!(files::watch::file_watch))
        .routes(routes!(files::archive::archive_read, files::archive::archive_write))
        .routes(routes!(ports::port_list))
        .routes(routes!(ports::port_get, ports::port_set))
        .routes(routes!(ports::port_token_create, ports::port_tokens_revoke))
        .routes(routes!(templates::template_publish, templates::template_list))
        .routes(routes!(templates::template_get))
        .routes(routes!(tenants::tenant_create, tenants::tenant_list))
        .routes(routes!(keys::key_create, keys::key_list))
        .routes(routes!(keys::key_revoke))
        .routes(routes!(keys::key_rotate))
        .routes(routes!(projects::project_create, projects::project_list))
        .routes(routes!(projects::project_get, projects::project_update, projects::project_delete))
        .routes(routes!(quotas::quota_get))
        .routes(routes!(usage::usage_get))
        .routes(routes!(quotas::tenant_set_quota))
        .routes(routes!(quotas::project_set_quota))
        .routes(routes!(nodes::node_list))
        .routes(routes!(join_tokens::join_token_create))
}

/// The whole public server.
pub(crate) fn router(app: Arc<App>, request_timeout: Duration) -> Router {
    let (router, document) = api().split_for_parts();
    let pages = docs::Pages::new(&document);
    router
        .route("/openapi.json", get(docs::openapi_json))
        .route("/docs", get(docs::docs))
        .fallback(problem::not_found)
        .method_not_allowed_fallback(problem::method_not_allowed)
        .layer(axum::Extension(pages))
        .layer(middleware::from_fn(encoding::refuse_compressed))
        .layer(middleware::from_fn_with_state(observe::Deadline(request_timeout), observe::deadline))
        .layer(problem::catch_panics())
        .layer(middleware::from_fn(observe::observe))
        .with_state(app)
}
