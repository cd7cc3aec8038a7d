//! A connection to a guest's server, of either version, on which one request is sent.

use http::{Request, Response};
use hyper::{
    body::Incoming,
    client::conn::{http1, http2},
};

use crate::Body;

enum Version {
    Http1(http1::SendRequest<Body>),
    Http2(http2::SendRequest<Body>),
}

pub(crate) struct Sender {
    version: Version,
    reused: bool,
}

/// A request that got no answer.
#[derive(Debug)]
pub(crate) struct Unsent {
    /// There, if no byte of it was sent.
    pub(crate) request: Option<Request<Body>>,
    /// The connection had been used before, so that a new one may fare better.
    pub(crate) reused: bool,
    pub(crate) error: hyper::Error,
}

impl Sender {
    pub(super) fn http1(sender: http1::SendRequest<Body>, reused: bool) -> Self {
        Self { version: Version::Http1(sender), reused }
    }

    pub(super) fn http2(sender: http2::SendRequest<Body>, reused: bool) -> Self {
        Self { version: Version::Http2(sender), reused }
    }

    pub(super) fn into_http1(self) -> Option<http1::SendRequest<Body>> {
        match self.version {
            Version::Http1(sender) => Some(sender),
            Version::Http2(_) => None,
        }
    }

    /// Until the head of the answer. Dropping it gives the request up.
    pub(crate) async fn send(&mut self, request: Request<Body>) -> Result<Response<Incoming>, Box<Unsent>> {
        let sent = match &mut self.version {
            Version::Http1(sender) => sender.try_send_request(request).await,
            Version::Http2(sender) => sender.try_send_request(request).await,
        };
        sent.map_err(|mut failed| {
            let request = failed.take_message();
            Box::new(Unsent { request, reused: self.reused, error: failed.into_error() })
        })
    }
}
