//! What commands print, for whoever shows an attach token: the path, the events and the problems are those of the API's
//! own `attach`, so a reader needs to know nothing but another address. Control, which may restart meanwhile, is asked
//! for the way alone.
//!
//! | step | refused with |
//! |---|---|
//! | GET it is | 405 |
//! | the token is good for this command, by control's public keys | 401 |
//! | `Last-Event-ID` is a position, if there is one | 422 |
//! | the sandbox runs | 404, 409 |
//! | its worker attaches, after one more look for the way if need be | 404, 429, 503, 504 |

mod error;
mod problem;
mod way;

use std::{sync::Arc, time::Duration};

use http::{HeaderMap, HeaderValue, Method, Request, Response, header};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use space_api::{headers, sse::Position};
use space_attach::{CommandStream, wire};
use space_types::{AttachClaims, SandboxId};
use tokio_stream::StreamExt as _;
use tokio_util::sync::CancellationToken;

use crate::{
    Body,
    keys::{TokenKeys, unix_now},
    parse::attach::{AttachPath, opens},
    routes::Routes,
    workers::Workers,
};
use error::StreamError;
use way::WorkerWay;

/// How long a lost worker is looked for, as control does.
const REATTACH_FOR: Duration = Duration::from_secs(30);
const ACCEL_BUFFERING: http::HeaderName = http::HeaderName::from_static("x-accel-buffering");

pub(crate) struct Streams {
    pub(crate) keys: TokenKeys,
    pub(crate) routes: Arc<Routes<SandboxId>>,
    pub(crate) workers: Workers,
    /// For the wait on a worker.
    pub(crate) deadline: Duration,
    pub(crate) shutdown: CancellationToken,
}

impl Streams {
    pub(crate) async fn answer<B>(&self, asked: AttachPath, request: &Request<B>) -> Response<Body> {
        match self.follow(asked, request).await {
            Ok(stream) => {
                metrics::counter!("edge_streams_total", "outcome" => "attached").increment(1);
                respond(stream)
            }
            Err(error) => {
                let problem = error.problem();
                metrics::counter!("edge_streams_total", "outcome" => problem.code.code()).increment(1);
                problem::response(&problem)
            }
        }
    }

    async fn follow<B>(
        &self,
        asked: AttachPath,
        request: &Request<B>,
    ) -> Result<CommandStream<WorkerWay>, StreamError> {
        if request.method() != Method::GET {
            return Err(StreamError::Method);
        }
        self.authorise(asked, request)?;
        let after = position(request.headers())?;
        let follow = async |way: WorkerWay| {
            CommandStream::attach(way, after, REATTACH_FOR, self.shutdown.clone()).await
        };
        let way = WorkerWay::find(self, asked).await?;
        match follow(way.clone()).await {
            // The route may be an old one.
            Err(StreamError::Moved | StreamError::Unreachable) => follow(way.again().await?).await,
            attached => attached,
        }
    }

    fn authorise<B>(&self, asked: AttachPath, request: &Request<B>) -> Result<(), StreamError> {
        let keys = self.keys.borrow();
        if keys.is_empty() {
            return Err(StreamError::NoControl);
        }
        let good = token(request).is_some_and(|token| opens(token, &keys, asked, unix_now()));
        if good { Ok(()) } else { Err(StreamError::Unauthorized) }
    }
}

/// In the query, for readers that can't set headers, or in the header.
fn token<B>(request: &Request<B>) -> Option<&str> {
    let query = request.uri().query().unwrap_or_default();
    let in_query = query.split('&').find_map(|pair| pair.strip_prefix("token="));
    let in_header = || {
        let value = request.headers().get(header::AUTHORIZATION)?.to_str().ok()?;
        let (scheme, token) = value.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
    };
    in_query.or_else(in_header).filter(|token| AttachClaims::looks_like_one(token))
}

fn position(fields: &HeaderMap) -> Result<Option<Position>, StreamError> {
    let Some(value) = fields.get(headers::LAST_EVENT_ID) else { return Ok(None) };
    let parsed = value.to_str().ok().and_then(|text| text.trim().parse().ok());
    parsed.map(Some).ok_or(StreamError::Position)
}

fn respond(stream: CommandStream<WorkerWay>) -> Response<Body> {
    let frames = wire::body(stream.into_stream()).map(|bytes| Ok(Frame::data(bytes)));
    let mut response = Response::new(StreamBody::new(frames).boxed_unsync());
    let fields = response.headers_mut();
    fields.insert(header::CONTENT_TYPE, HeaderValue::from_static(headers::EVENT_STREAM));
    fields.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    fields.insert(ACCEL_BUFFERING, HeaderValue::from_static("no"));
    response
}
