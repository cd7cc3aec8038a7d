//! The internal port of a daemon: `/metrics`, `/healthz`, `/readyz`. Never reachable from the outside.

use std::{future::Future, pin::Pin, sync::Arc};

use axum::{Router, extract::State, http::StatusCode, response::IntoResponse, routing::get};
use metrics_exporter_prometheus::{BuildError, PrometheusBuilder, PrometheusHandle};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// Upper bounds of every histogram whose name ends in `_seconds`.
const SECONDS: [f64; 14] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0];

type Check = Arc<dyn Fn() -> Pin<Box<dyn Future<Output = Result<(), String>> + Send>> + Send + Sync>;

/// Renders the process's metrics.
#[derive(Clone)]
pub struct Metrics(PrometheusHandle);

/// Makes the process's metrics recordable. Call once.
pub fn install_metrics() -> Result<Metrics, BuildError> {
    let suffix = metrics_exporter_prometheus::Matcher::Suffix("_seconds".to_owned());
    let builder = PrometheusBuilder::new().set_buckets_for_metric(suffix, &SECONDS)?;
    Ok(Metrics(builder.install_recorder()?))
}

impl Metrics {
    /// The exposition text, with the resident memory as of now.
    pub fn render(&self) -> String {
        if let Some(bytes) = crate::process::resident_bytes() {
            #[expect(clippy::cast_precision_loss, reason = "exact below 8 PiB")]
            metrics::gauge!("process_resident_memory_bytes").set(bytes as f64);
        }
        self.0.run_upkeep();
        self.0.render()
    }
}

/// The router; `ready` answers why the daemon can't serve now.
pub fn router<F, Fut>(metrics: Metrics, ready: F) -> Router
where
    F: Fn() -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<(), String>> + Send + 'static,
{
    let check: Check = Arc::new(move || Box::pin(ready()));
    Router::new()
        .route(
            "/metrics",
            get(|State((metrics, _)): State<(Metrics, Check)>| async move { metrics.render() }),
        )
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(readyz))
        .with_state((metrics, check))
}

async fn readyz(State((_, check)): State<(Metrics, Check)>) -> impl IntoResponse {
    match check().await {
        Ok(()) => (StatusCode::OK, "ready\n".to_owned()),
        Err(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")),
    }
}

/// Serves `router` until `shutdown`.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    shutdown: CancellationToken,
) -> std::io::Result<()> {
    axum::serve(listener, router).with_graceful_shutdown(shutdown.cancelled_owned()).await
}
