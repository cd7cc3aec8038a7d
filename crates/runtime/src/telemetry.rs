//! Logs and traces.
//!
//! Logs go to standard error, as JSON (one object a line) or readable. `RUST_LOG` overrides the configured
//! filter. Traces go to an OTLP endpoint when one is configured, in batches from a thread of their own; an
//! unreachable collector costs the traces and nothing else.

use std::{io::IsTerminal as _, time::Duration};

use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::WithExportConfig as _;
use opentelemetry_sdk::{Resource, trace::SdkTracerProvider};
use serde::{Deserialize, Serialize};
use tracing_subscriber::{EnvFilter, Layer as _, layer::SubscriberExt as _, util::SubscriberInitExt as _};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogFormat {
    /// Readable on a terminal, JSON elsewhere.
    #[default]
    Auto,
    Json,
    Pretty,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TelemetryConfig {
    pub log_format: LogFormat,
    /// A `tracing` filter, such as `info,space_control=debug`.
    pub log_filter: String,
    /// Where traces go (OTLP over gRPC), such as `http://127.0.0.1:4317`. None: no traces.
    pub otlp_endpoint: Option<String>,
}

impl Default for TelemetryConfig {
    fn default() -> Self {
        Self { log_format: LogFormat::Auto, log_filter: "info".to_owned(), otlp_endpoint: None }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    #[error("the log filter {filter:?} is not valid")]
    Filter {
        filter: String,
        #[source]
        source: tracing_subscriber::filter::ParseError,
    },
    #[error("cannot export traces to {endpoint}")]
    Exporter {
        endpoint: String,
        #[source]
        source: opentelemetry_otlp::ExporterBuildError,
    },
    #[error("telemetry was initialised before")]
    Twice(#[from] tracing_subscriber::util::TryInitError),
}

/// Keeps the exporter alive; dropping it flushes what is left, for at most two seconds.
#[must_use = "dropping it ends the export of traces"]
#[derive(Debug)]
pub struct Telemetry {
    provider: Option<SdkTracerProvider>,
}

/// Installs the global subscriber. Call once, inside the Tokio runtime when an endpoint is configured.
pub fn init(service: &'static str, config: &TelemetryConfig) -> Result<Telemetry, TelemetryError> {
    let text = std::env::var("RUST_LOG").unwrap_or_else(|_| config.log_filter.clone());
    let filter =
        EnvFilter::try_new(&text).map_err(|source| TelemetryError::Filter { filter: text, source })?;
    let provider = config.otlp_endpoint.as_deref().map(|endpoint| tracer(service, endpoint)).transpose()?;
    let traces = provider
        .as_ref()
        .map(|provider| tracing_opentelemetry::layer().with_tracer(provider.tracer(service)));
    let logs = if as_json(config.log_format) {
        tracing_subscriber::fmt::layer()
            .json()
            .flatten_event(true)
            .with_current_span(true)
            .with_span_list(false)
            .with_writer(std::io::stderr)
            .boxed()
    } else {
        tracing_subscriber::fmt::layer().with_writer(std::io::stderr).boxed()
    };
    tracing_subscriber::registry().with(filter).with(traces).with(logs).try_init()?;
    Ok(Telemetry { provider })
}

fn as_json(format: LogFormat) -> bool {
    match format {
        LogFormat::Auto => !std::io::stderr().is_terminal(),
        LogFormat::Json => true,
        LogFormat::Pretty => false,
    }
}

fn tracer(service: &'static str, endpoint: &str) -> Result<SdkTracerProvider, TelemetryError> {
    let exporter = opentelemetry_otlp::SpanExporter::builder()
        .with_tonic()
        .with_endpoint(endpoint)
        .with_timeout(Duration::from_secs(5))
        .build()
        .map_err(|source| TelemetryError::Exporter { endpoint: endpoint.to_owned(), source })?;
    let resource = Resource::builder().with_service_name(service).build();
    Ok(SdkTracerProvider::builder().with_resource(resource).with_batch_exporter(exporter).build())
}

impl Drop for Telemetry {
    fn drop(&mut self) {
        let flushed = self.provider.as_ref().map(|p| p.shutdown_with_timeout(Duration::from_secs(2)));
        if let Some(Err(error)) = flushed {
            tracing::warn!(%error, "some traces were not exported");
        }
    }
}

/// An error with all of its sources on one line, for the one place that logs it.
pub fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let sources = std::iter::successors(error.source(), |error| error.source());
    sources.fold(error.to_string(), |text, source| format!("{text}: {source}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_names_every_cause_once() {
        let error = TelemetryError::Filter {
            filter: "a=b=c".into(),
            source: EnvFilter::try_new("a=b=c=").map(|_| ()).unwrap_err(),
        };
        let text = chain(&error);
        assert!(text.starts_with("the log filter \"a=b=c\" is not valid: "), "{text}");
    }
}
