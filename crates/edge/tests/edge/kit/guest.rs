//! Programs behind the tunnel.

use std::{convert::Infallible, fmt::Write as _, net::SocketAddr, sync::Arc};

use bytes::Bytes;
use futures::StreamExt as _;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt as _, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::{
    body::{Frame, Incoming},
    service::service_fn,
};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto::Builder,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{Mutex, mpsc},
};
use tokio_stream::wrappers::ReceiverStream;

pub(crate) type Answer = Response<UnsyncBoxBody<Bytes, hyper::Error>>;

/// A program that does `serve` with each connection.
pub(crate) async fn program<F>(serve: impl Fn(TcpStream) -> F + Send + 'static) -> SocketAddr
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream));
        }
    });
    address
}

/// An HTTP server of either version.
pub(crate) async fn http<F>(
    answer: impl Fn(Request<Incoming>) -> F + Send + Sync + Clone + 'static,
) -> SocketAddr
where
    F: Future<Output = Answer> + Send + 'static,
{
    program(move |stream| {
        let answer = answer.clone();
        async move {
            let service = service_fn(move |request| {
                let answered = answer(request);
                async move { Ok::<_, Infallible>(answered.await) }
            });
            let builder = Builder::new(TokioExecutor::new());
            drop(builder.serve_connection_with_upgrades(TokioIo::new(stream), service).await);
        }
    })
    .await
}

pub(crate) fn text(text: impl Into<Bytes>) -> Answer {
    Response::new(Full::new(text.into()).map_err(|never| match never {}).boxed_unsync())
}

/// Answers with what it was asked: the request's line and fields.
pub(crate) async fn mirror() -> SocketAddr {
    http(async |request: Request<Incoming>| {
        let mut lines = format!("{} {}\n", request.method(), request.uri());
        for (name, value) in request.headers() {
            writeln!(lines, "{name}: {}", String::from_utf8_lossy(value.as_bytes())).unwrap();
        }
        text(lines)
    })
    .await
}

/// Sends each request's body back.
pub(crate) async fn echo() -> SocketAddr {
    http(async |request: Request<Incoming>| Response::new(request.into_body().boxed_unsync())).await
}

/// Sends each request's body back over HTTP/2, and a trailer behind it.
pub(crate) async fn trailing() -> SocketAddr {
    http(async |request: Request<Incoming>| {
        assert_eq!(request.version(), http::Version::HTTP_2);
        assert_eq!(request.headers()["te"], "trailers");
        let trailers =
            HeaderMap::from_iter([(http::HeaderName::from_static("grpc-status"), "0".parse().unwrap())]);
        let body = request.into_body().with_trailers(async move { Some(Ok(trailers)) });
        Response::new(body.boxed_unsync())
    })
    .await
}

/// Answers each request with what the test sends, piece by piece.
pub(crate) async fn pieces() -> (SocketAddr, mpsc::Sender<&'static str>) {
    let (sender, receiver) = mpsc::channel::<&'static str>(1);
    let receiver = Arc::new(Mutex::new(Some(receiver)));
    let address = http(move |_request: Request<Incoming>| {
        let receiver = Arc::clone(&receiver);
        async move {
            let receiver = receiver.lock().await.take().unwrap();
            let frames = ReceiverStream::new(receiver)
                .map(|piece| Ok(Frame::data(Bytes::from_static(piece.as_bytes()))));
            Response::new(StreamBody::new(frames).boxed_unsync())
        }
    });
    (address.await, sender)
}
