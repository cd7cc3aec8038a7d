//! One connection to a port in a guest, as a byte stream over `OpenTunnel`.
//!
//! Each direction ends by itself: shutting down sends `finish`, and the end of the replies is the end of
//! reading; an error is never taken for it. Nothing is
//! buffered beyond one message each way and HTTP/2's windows, so backpressure reaches from end to end. Dropping it
//! closes the connection.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::{Buf as _, Bytes};
use futures::Stream as _;
use space_node_proto::ports::{
    TunnelFinish, TunnelOpen, TunnelReply, TunnelRequest, ports_client::PortsClient, tunnel_reply,
    tunnel_request,
};
use space_types::PortHost;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    sync::mpsc,
    time::timeout,
};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::PollSender;
use tonic::{Status, Streaming, transport::Channel};

use crate::upstream::Taken;

/// The largest message of the protocol.
const CHUNK: usize = 64 * 1024;

pub(crate) struct Tunnel {
    requests: PollSender<TunnelRequest>,
    replies: Streaming<TunnelReply>,
    unread: Bytes,
    /// No more is sent.
    finished: bool,
    /// No more comes.
    ended: bool,
    _open: Open,
}

/// Counts a tunnel while it is open, and holds its places.
struct Open(#[expect(dead_code, reason = "held, not read")] Taken);

impl Open {
    fn new(taken: Taken) -> Self {
        metrics::gauge!("edge_tunnels").increment(1);
        Self(taken)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        metrics::gauge!("edge_tunnels").decrement(1);
    }
}

impl Tunnel {
    /// Connects to `host`'s port in the sandbox's `generation`. Ends by `deadline`.
    pub(crate) async fn open(
        mut client: PortsClient<Channel>,
        host: PortHost,
        generation: u64,
        deadline: Duration,
        taken: Taken,
    ) -> Result<Self, Status> {
        let (requests, sent) = mpsc::channel(1);
        let open =
            TunnelOpen { sandbox_id: host.sandbox_id.to_string(), generation, port: host.port.get().into() };
        let first = TunnelRequest { part: Some(tunnel_request::Part::Open(open)) };
        let opening = async {
            // The receiver is alive, and there is room for one.
            requests.try_send(first).map_err(|_full| Status::internal("the tunnel closed at once"))?;
            let mut replies = client.open_tunnel(ReceiverStream::new(sent)).await?.into_inner();
            let Some(tunnel_reply::Part::Opened(_)) = replies.message().await?.and_then(|reply| reply.part)
            else {
                return Err(Status::internal("the worker did not open the tunnel"));
            };
            Ok(replies)
        };
        let late = |_elapsed| Status::deadline_exceeded("the tunnel did not open in time");
        let replies = timeout(deadline, opening).await.map_err(late)??;
        let requests = PollSender::new(requests);
        Ok(Self {
            requests,
            replies,
            unread: Bytes::new(),
            finished: false,
            ended: false,
            _open: Open::new(taken),
        })
    }

    /// Sends what `part` makes once there is room for it.
    fn poll_send(
        &mut self,
        context: &mut Context<'_>,
        part: impl FnOnce() -> tunnel_request::Part,
    ) -> Poll<io::Result<()>> {
        let closed = |_closed| io::Error::from(io::ErrorKind::BrokenPipe);
        ready!(self.requests.poll_reserve(context)).map_err(closed)?;
        Poll::Ready(self.requests.send_item(TunnelRequest { part: Some(part()) }).map_err(closed))
    }
}

impl AsyncRead for Tunnel {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let broken = |error: Status| io::Error::new(io::ErrorKind::ConnectionReset, error);
        while self.unread.is_empty() && !self.ended {
            match ready!(Pin::new(&mut self.replies).poll_next(context)).transpose().map_err(broken)? {
                Some(TunnelReply { part: Some(tunnel_reply::Part::Data(data)) }) => self.unread = data.into(),
                Some(_) => return Poll::Ready(Err(io::Error::from(io::ErrorKind::InvalidData))),
                None => self.ended = true,
            }
        }
        let count = self.unread.len().min(buffer.remaining());
        buffer.put_slice(&self.unread[..count]);
        self.unread.advance(count);
        metrics::counter!("edge_tunnel_bytes_total", "from" => "guest").increment(count as u64);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Tunnel {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.finished {
            return Poll::Ready(Err(io::Error::from(io::ErrorKind::BrokenPipe)));
        }
        let count = data.len().min(CHUNK);
        let copied = || tunnel_request::Part::Data(data[..count].to_vec());
        ready!(self.poll_send(context, copied))?;
        metrics::counter!("edge_tunnel_bytes_total", "from" => "visitor").increment(count as u64);
        Poll::Ready(Ok(count))
    }

    /// Each write is on its way already.
    fn poll_flush(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.finished {
            ready!(self.poll_send(context, || tunnel_request::Part::Finish(TunnelFinish {})))?;
            self.finished = true;
        }
        Poll::Ready(Ok(()))
    }
}
