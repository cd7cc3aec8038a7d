//! The whole edge, between a control and a worker that are small servers of the test's own, and real programs behind
//! the tunnel. Every wait has a deadline: [`kit::within`].

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that can't go on fails")]

mod addresses;
mod authorising;
mod bytes;
mod drain;
mod hostile;
mod http;
mod http2;
mod kit;
mod outage;
mod proxied;
mod streams;
