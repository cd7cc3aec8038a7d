//! A request to the guest's server, and its answer back. Bodies stream; nobody collects them.

use http::{
    HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri, Version, header, uri::PathAndQuery,
};
use http_body_util::BodyExt as _;
use hyper::{
    body::{Body as _, Incoming},
    upgrade::OnUpgrade,
};

use super::{Journey, headers};
use crate::{
    Body, EdgeCode, answer,
    answer::Refusal,
    upstream::{Carrier, Place, Sender, Unsent},
};

/// Attempts to send a request that was not sent, over connections that turned out dead.
const ATTEMPTS: usize = 2;

/// The head of a request as the guest gets it, from which it can be made again.
struct Head {
    method: Method,
    uri: Uri,
    version: Version,
    fields: HeaderMap,
}

impl Head {
    fn with(&self, body: Body) -> Request<Body> {
        let mut request = Request::new(body);
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = self.uri.clone();
        *request.version_mut() = self.version;
        *request.headers_mut() = self.fields.clone();
        request
    }
}

/// What a request asks for, beside what it says.
struct Wish {
    carrier: Carrier,
    /// The protocol to change to.
    upgrade: Option<HeaderValue>,
}

impl Wish {
    fn of(request: &Request<Incoming>) -> Self {
        let upgrade = match request.version() {
            Version::HTTP_11 => headers::upgrade(request.headers()),
            _ => None,
        };
        let replayable = request.method().is_idempotent() && request.body().is_end_stream();
        let carrier = if request.version() == Version::HTTP_2 && headers::is_grpc(request.headers()) {
            Carrier::Http2
        } else if upgrade.is_some() {
            Carrier::Fresh
        } else {
            Carrier::Kept { replayable }
        };
        Self { carrier, upgrade }
    }
}

impl Journey<'_> {
    pub(super) async fn forward(&self, mut request: Request<Incoming>) -> Result<Response<Body>, Refusal> {
        let wish = Wish::of(&request);
        let visitor_side = wish.upgrade.is_some().then(|| hyper::upgrade::on(&mut request));
        let (mut head, body) = self.head(request, &wish);
        let body = (!body.is_end_stream()).then(|| body.map_err(Into::into).boxed_unsync());
        if body.is_some()
            && wish.carrier != Carrier::Http2
            && !head.fields.contains_key(header::CONTENT_LENGTH)
        {
            // Of its own accord the client would leave the body of a GET out.
            head.fields.insert(header::TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        }
        let (place, sender, response) = self.send(&head, body, wish.carrier).await?;
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            return self.switched(response, visitor_side);
        }
        self.proxy.upstream.give_back(place, sender);
        Ok(self.answered(response))
    }

    fn head(&self, request: Request<Incoming>, wish: &Wish) -> (Head, Incoming) {
        let (mut parts, body) = request.into_parts();
        let fields = &mut parts.headers;
        headers::strip_hop_by_hop(fields);
        // The edge says "continue" itself, when the guest's connection takes the body.
        fields.remove(header::EXPECT);
        headers::forget_links(fields);
        let Self { visitor, authority, .. } = self;
        headers::set_forwarded(fields, visitor.ip, visitor.tls, authority);
        if let Some(protocol) = &wish.upgrade {
            fields.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
            fields.insert(header::UPGRADE, protocol.clone());
        }
        let target = parts.uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
        let (uri, version) = if wish.carrier == Carrier::Http2 {
            fields.insert(header::TE, HeaderValue::from_static("trailers"));
            fields.remove(header::HOST);
            let uri =
                Uri::builder().scheme("http").authority(authority.as_str()).path_and_query(target).build();
            (uri.unwrap_or_default(), Version::HTTP_2)
        } else {
            (Uri::from(target), Version::HTTP_11)
        };
        (Head { method: parts.method, uri, version, fields: parts.headers }, body)
    }

    /// Sends it, and once more if a kept connection turned out dead before the guest can have seen it, or if seeing it
    /// twice does no harm.
    async fn send(
        &self,
        head: &Head,
        body: Option<Body>,
        carrier: Carrier,
    ) -> Result<(Place, Sender, Response<Incoming>), Refusal> {
        let replayable = body.is_none() && head.method.is_idempotent();
        let mut request = head.with(body.unwrap_or_else(answer::empty));
        let mut carrier = carrier;
        for _ in 1..ATTEMPTS {
            let (place, mut sender) = self.reach(&carrier).await?;
            match sender.send(request).await {
                Ok(response) => return Ok((place, sender, response)),
                Err(unsent) => request = again(*unsent, replayable, head)?,
            }
            if carrier != Carrier::Http2 {
                carrier = Carrier::Fresh;
            }
        }
        let (place, mut sender) = self.reach(&carrier).await?;
        let response = sender.send(request).await.map_err(|unsent| broken(&unsent.error))?;
        Ok((place, sender, response))
    }

    fn answered(&self, response: Response<Incoming>) -> Response<Body> {
        let (mut parts, body) = response.into_parts();
        headers::strip_answer(&mut parts.headers, &self.host_name());
        let mut answered = Response::new(body.map_err(Into::into).boxed_unsync());
        *answered.status_mut() = parts.status;
        *answered.headers_mut() = parts.headers;
        answered
    }

    /// Both ends have changed to another protocol: bytes from here on.
    fn switched(
        &self,
        mut response: Response<Incoming>,
        visitor_side: Option<OnUpgrade>,
    ) -> Result<Response<Body>, Refusal> {
        let Some(visitor_side) = visitor_side else {
            return Err(Refusal::new(EdgeCode::PortBadResponse, "The port changed the protocol unasked."));
        };
        let guest_side = hyper::upgrade::on(&mut response);
        let protocol = response.headers().get(header::UPGRADE).cloned();
        let mut switched = Response::new(answer::empty());
        *switched.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        *switched.headers_mut() = std::mem::take(response.headers_mut());
        headers::strip_answer(switched.headers_mut(), &self.host_name());
        switched.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        if let Some(protocol) = protocol {
            switched.headers_mut().insert(header::UPGRADE, protocol);
        }
        self.splice_upgraded(visitor_side, guest_side);
        Ok(switched)
    }

    /// In lower case, without a port.
    fn host_name(&self) -> String {
        format!("{}.{}", self.host.label(), self.proxy.domain)
    }
}

/// The request to send again, if that is safe.
fn again(unsent: Unsent, replayable: bool, head: &Head) -> Result<Request<Body>, Refusal> {
    let Unsent { request, reused, error } = unsent;
    match request {
        Some(request) => Ok(request),
        None if reused && replayable => Ok(head.with(answer::empty())),
        None => Err(broken(&error)),
    }
}

fn broken(error: &hyper::Error) -> Refusal {
    tracing::debug!(%error, "no answer from a guest");
    Refusal::new(
        EdgeCode::PortBadResponse,
        "The connection to the port broke, or what came from it is no HTTP.",
    )
}
