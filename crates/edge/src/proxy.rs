//! One request: its shape, whether it may, and the way to the guest and back.
//!
//! | step | refused with |
//! |---|---|
//! | the visitor's address sends no faster than it may | 429 |
//! | [`shape`]: one reading of it only | 400 |
//! | the host names a port; where it names none, the path may be a command's ([`crate::streams`]) | 404 |
//! | [`credentials`] are taken off the request, checked with public keys; a cookie counts by [`site`] | |
//! | the route says whether the port is public, and which epochs are void | 401 |
//! | the sandbox runs | 503 |
//! | a tunnel opens, after one more look for the route if need be | 502, 503 |
//!
//! Nothing about a sandbox is said before it is known that the visitor may know it.

pub(crate) mod credentials;
mod forward;
mod headers;
mod link;
mod shape;
mod site;
mod splice;

use std::{convert::Infallible, net::IpAddr, sync::Arc, time::Duration};

use http::{Method, Request, Response};
use hyper::body::Incoming;
use space_runtime::tasks::Tasks;
use space_types::PortHost;
use tokio::sync::OwnedSemaphorePermit;

use crate::{
    Body, EdgeCode,
    addresses::{Addresses, Place},
    answer::{Refusal, wants_page},
    keys::TokenKeys,
    parse::{attach::attach_path, host::port_host},
    routes::{Asks, PortRoute, RouteError, Routes},
    streams::Streams,
    upstream::{self, Failure, Open, Upstream, unreachable_sandbox},
};
use credentials::Credentials;
use site::is_foreign;

/// Who sends requests on a connection.
#[derive(Clone)]
pub(crate) struct Visitor {
    pub(crate) ip: IpAddr,
    pub(crate) tls: bool,
    /// Whatever outlives the connection holds it.
    pub(crate) place: Arc<Held>,
}

/// A connection's places among all connections, and among those of its address.
pub(crate) struct Held(
    #[expect(dead_code, reason = "held, not read")] pub(crate) OwnedSemaphorePermit,
    #[expect(dead_code, reason = "held, not read")] pub(crate) Place,
);

pub(crate) struct Proxy {
    pub(crate) domain: String,
    pub(crate) addresses: Arc<Addresses>,
    pub(crate) keys: TokenKeys,
    pub(crate) routes: Routes<PortHost>,
    pub(crate) streams: Streams,
    pub(crate) upstream: Upstream,
    pub(crate) tasks: Tasks,
}

/// A request on its way, without its head, which each step shapes.
struct Journey<'a> {
    proxy: &'a Proxy,
    visitor: &'a Visitor,
    host: PortHost,
    /// As it was sent, port and all.
    authority: String,
    credentials: Credentials,
}

impl Proxy {
    pub(crate) async fn handle(
        &self,
        visitor: &Visitor,
        request: Request<Incoming>,
    ) -> Result<Response<Body>, Infallible> {
        let page = request.method() != Method::CONNECT && wants_page(request.headers());
        let (response, outcome) = match self.answer(visitor, request).await {
            Ok(response) => (response, "answered"),
            Err(refusal) => {
                let code = refusal.code.code();
                (refusal.into_response(page), code)
            }
        };
        metrics::counter!("edge_requests_total", "outcome" => outcome).increment(1);
        Ok(response)
    }

    async fn answer(
        &self,
        visitor: &Visitor,
        mut request: Request<Incoming>,
    ) -> Result<Response<Body>, Refusal> {
        self.addresses.request(visitor.ip).map_err(too_fast)?;
        let authority = shape::authority(&request)?;
        let Some(host) = port_host(&authority, &self.domain) else {
            return match attach_path(request.uri().path()) {
                Some(asked) => Ok(self.streams.answer(asked, &request).await),
                None => Err(Refusal::new(EdgeCode::PortUnknown, "Ports are called <port>-<id>.<domain>.")),
            };
        };
        let foreign = is_foreign(&request, host, &self.domain);
        let credentials = Credentials::take(&mut request, host, &self.keys.borrow(), visitor.tls, foreign);
        let journey = Journey { proxy: self, visitor, host, authority, credentials };
        if let Some(response) = journey.follow_link(&mut request).await? {
            return Ok(response);
        }
        if request.method() == Method::CONNECT {
            journey.connect(request).await
        } else {
            journey.forward(request).await
        }
    }
}

impl Journey<'_> {
    /// The route, if it is this visitor's to take.
    async fn route(&self) -> Result<Arc<PortRoute>, Refusal> {
        let asks = if self.credentials.are_shown() { Asks::Bearer } else { Asks::Stranger };
        let route = match self.proxy.routes.find(self.host, asks).await {
            Ok(route) => route,
            Err(RouteError::NotFound) => return Err(self.unauthorized()),
            Err(RouteError::Unavailable) => return Err(unavailable()),
        };
        if route.public || self.credentials.open(&route) { Ok(route) } else { Err(self.unauthorized()) }
    }

    fn unauthorized(&self) -> Refusal {
        // Without keys nothing can be told of any token: the same for all hosts, too.
        if self.credentials.unchecked() { unavailable() } else { Refusal::unauthorized() }
    }

    /// What `open` opens at the place that the route leads to. If it leads nowhere, it is asked for again, once; and
    /// authorised again, since it may say something else now.
    async fn reach<O: Open>(&self, open: &O) -> Result<(upstream::Place, O::Opened), Refusal> {
        for last in [false, true] {
            let route = self.route().await?;
            let Some(target) = route.sandbox.target.clone() else {
                let detail = format!("The sandbox is {}.", route.sandbox.state);
                return Err(Refusal::new(EdgeCode::PortSandboxNotRunning, detail));
            };
            let place = upstream::Place { host: self.host, target };
            match open.open(&self.proxy.upstream, &place).await {
                Ok(opened) => return Ok((place, opened)),
                Err(Failure::Refused(refusal)) => return Err(refusal),
                Err(Failure::Moved) => self.proxy.routes.forget(self.host, &route).await,
            }
            if last {
                break;
            }
        }
        Err(unreachable_sandbox())
    }
}

fn too_fast(wait: Duration) -> Refusal {
    let detail = "Requests come from this address faster than they may.";
    Refusal::new(EdgeCode::AddressLimited, detail).retry_after(wait)
}

fn unavailable() -> Refusal {
    Refusal::new(EdgeCode::EdgeUnavailable, "The edge can't ask the control plane at the moment.")
}
