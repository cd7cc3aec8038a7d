//! Counts of this process, for its log. The worker listens on nothing but its gRPC port, so nobody scrapes it.

use std::sync::atomic::{AtomicU64, Ordering};

use tracing::info;

/// Only ever grows.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

#[derive(Debug, Default)]
pub(crate) struct Metrics {
    pub(crate) guest_protocol_violations: Counter,
    pub(crate) guest_connections: Counter,
    pub(crate) guest_requests: Counter,
    pub(crate) streams_opened: Counter,
    pub(crate) output_bytes: Counter,
    pub(crate) stdin_bytes: Counter,
    pub(crate) jobs: Counter,
    pub(crate) file_bytes: Counter,
    pub(crate) tunnels: Counter,
    /// In both directions.
    pub(crate) tunnel_bytes: Counter,
    pub(crate) refused_connections: Counter,
}

impl Metrics {
    /// One line with all of them.
    pub(crate) fn log(&self) {
        info!(
            guest_protocol_violations_total = self.guest_protocol_violations.get(),
            guest_connections_total = self.guest_connections.get(),
            guest_requests_total = self.guest_requests.get(),
            streams_opened_total = self.streams_opened.get(),
            output_bytes_total = self.output_bytes.get(),
            stdin_bytes_total = self.stdin_bytes.get(),
            jobs_total = self.jobs.get(),
            file_bytes_total = self.file_bytes.get(),
            tunnels_total = self.tunnels.get(),
            tunnel_bytes_total = self.tunnel_bytes.get(),
            refused_connections_total = self.refused_connections.get(),
            "counters"
        );
    }
}
