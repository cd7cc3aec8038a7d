//! An edge that takes CONNECT as the real one does, and then does what a test says.

use std::{future::Future, sync::Arc};

use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};
use tokio_rustls::TlsAcceptor;

pub(crate) trait Bytes: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Bytes for T {}

/// A request that waits for its answer.
pub(crate) struct Connect {
    /// Whom it is for.
    pub(crate) target: String,
    pub(crate) token: String,
    stream: Box<dyn Bytes>,
}

impl Connect {
    async fn read(mut stream: Box<dyn Bytes>) -> Self {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.unwrap());
        }
        let head = String::from_utf8(head).unwrap();
        let target =
            head.strip_prefix("CONNECT ").and_then(|rest| rest.split_once(" HTTP/1.1\r\n")).unwrap().0;
        let field = |line: &str| {
            let (name, value) = line.split_once(": ")?;
            name.eq_ignore_ascii_case("proxy-authorization").then(|| value.to_owned())
        };
        let token = head.lines().find_map(field).unwrap();
        let token = token.strip_prefix("Bearer ").unwrap().to_owned();
        Self { target: target.to_owned(), token, stream }
    }

    /// Bytes from here on.
    pub(crate) async fn accept(mut self) -> Box<dyn Bytes> {
        self.stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
        self.stream
    }

    /// With a problem of the edge's.
    pub(crate) async fn refuse(self, status: u16, code: &str) {
        self.answer(
            &format!("HTTP/1.1 {status} x\r\nX-Space-Edge: {code}"),
            &format!("{{\"detail\":\"about {code}\"}}"),
        )
        .await;
    }

    pub(crate) async fn answer(mut self, head: &str, body: &str) {
        let text = format!("{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        self.stream.write_all(text.as_bytes()).await.unwrap();
    }
}

/// Gone when dropped.
pub(crate) struct Edge {
    pub(crate) port: u16,
    task: JoinHandle<()>,
}

impl Drop for Edge {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Edge {
    /// Nobody listens at its port behind this.
    pub(crate) async fn stop(mut self) {
        self.task.abort();
        (&mut self.task).await.unwrap_err();
    }

    pub(crate) async fn start<F>(serve: impl Fn(Connect) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        Self::over(|stream| async { Some(Box::new(stream) as Box<dyn Bytes>) }, serve).await
    }

    /// One whose connections end with a reset.
    pub(crate) async fn resetting<F>(serve: impl Fn(Connect) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let reset = |stream: TcpStream| async {
            stream.set_zero_linger().unwrap();
            Some(Box::new(stream) as Box<dyn Bytes>)
        };
        Self::over(reset, serve).await
    }

    pub(crate) async fn tls<F>(tls: TlsAcceptor, serve: impl Fn(Connect) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        // A client that does not trust it leaves.
        let wrap = move |stream| {
            let accepted = tls.accept(stream);
            async move { accepted.await.ok().map(|stream| Box::new(stream) as Box<dyn Bytes>) }
        };
        Self::over(wrap, serve).await
    }

    async fn over<W, F>(
        wrap: impl Fn(TcpStream) -> W + Send + Sync + 'static,
        serve: impl Fn(Connect) -> F + Send + Sync + 'static,
    ) -> Self
    where
        W: Future<Output = Option<Box<dyn Bytes>>> + Send + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let serve = Arc::new(serve);
        let task = tokio::spawn(async move {
            loop {
                let wrapped = wrap(listener.accept().await.unwrap().0);
                let serve = serve.clone();
                tokio::spawn(async move {
                    if let Some(stream) = wrapped.await {
                        serve(Connect::read(stream).await).await;
                    }
                });
            }
        });
        Self { port, task }
    }
}
