//! The gRPC service `Ports`: bytes in both directions at once between a client and a port in a guest.
//!
//! A task carries each tunnel, with one piece in each direction: it asks the client for more when the guest has taken
//! what came before, and reads from the guest when the client's window has room. So who doesn't read stops the other
//! side of this one tunnel, and nobody else. The task outlives the replies, whose end is the guest's end alone.

use std::{pin::Pin, sync::Arc, time::Duration};

use bytes::Bytes;
use futures::Stream;
use space_guest_proto::{job::FailureKind, limits as guest_limits};
use space_node_proto::ports::{
    TunnelOpen, TunnelOpened, TunnelReply, TunnelRequest, ports_server::Ports, tunnel_reply, tunnel_request,
};
use tokio::{
    sync::mpsc,
    time::{Instant, sleep_until},
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};
use tracing::warn;

use super::{file_convert::missing, opening::first};
use crate::{
    job::{JobError, Moved, Tunnel},
    limits,
    metrics::Metrics,
    sandboxes::Sandboxes,
};

type Reply = Result<TunnelReply, Status>;
type Sender = mpsc::Sender<Reply>;

pub(super) struct PortService {
    pub(super) sandboxes: Arc<Sandboxes>,
    pub(super) metrics: Arc<Metrics>,
}

#[tonic::async_trait]
impl Ports for PortService {
    type OpenTunnelStream = Pin<Box<dyn Stream<Item = Reply> + Send>>;

    async fn open_tunnel(
        &self,
        request: Request<Streaming<TunnelRequest>>,
    ) -> Result<Response<Self::OpenTunnelStream>, Status> {
        let mut requests = request.into_inner();
        let first = first(&mut requests, self.sandboxes.request_deadline()).await?;
        let Some(tunnel_request::Part::Open(open)) = first.part else { return Err(missing("open")) };
        let TunnelOpen { sandbox_id, generation, port } = open;
        if !(1..=u32::from(u16::MAX)).contains(&port) {
            return Err(Status::invalid_argument("port is 1 to 65535"));
        }
        let jobs = self.sandboxes.find_jobs(&sandbox_id, generation)?;
        let patience = self.sandboxes.request_deadline();
        let carried = Carried { sandbox_id, metrics: Arc::clone(&self.metrics), patience };
        let tunnel = jobs.tunnel(port).await.map_err(|error| carried.status(error))?;
        self.metrics.tunnels.add(1);
        let (sender, replies) = mpsc::channel(1);
        // There is room for one.
        drop(sender.try_send(reply(tunnel_reply::Part::Opened(TunnelOpened {}))));
        self.sandboxes.tasks().spawn(async move {
            let mut replies = Some(sender);
            let ended = carried.carry(tunnel, requests, &mut replies).await;
            if let (Err(status), Some(replies)) = (ended, replies) {
                // A client that has left needs no word.
                drop(replies.send(Err(status)).await);
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(replies))))
    }
}

#[allow(clippy::unnecessary_wraps, reason = "as the stream has it")]
fn reply(part: tunnel_reply::Part) -> Reply {
    Ok(TunnelReply { part: Some(part) })
}

/// Waits until the client can take a reply, or has left.
async fn room(replies: Option<&Sender>) {
    if let Some(replies) = replies {
        drop(replies.reserve().await);
    }
}

/// Waits until the client has left; for ever once there are no replies to leave.
async fn left(replies: Option<&Sender>) {
    match replies {
        Some(replies) => replies.closed().await,
        None => std::future::pending().await,
    }
}

/// One tunnel's name in the log, and where it is counted.
struct Carried {
    sandbox_id: String,
    metrics: Arc<Metrics>,
    /// For a guest that has ended its own side and takes nothing of what is still to come.
    patience: Duration,
}

impl Carried {
    /// Until both directions have ended, or the client has left. `replies` becomes none with the guest's end.
    async fn carry(
        &self,
        mut tunnel: Tunnel,
        mut requests: Streaming<TunnelRequest>,
        replies: &mut Option<Sender>,
    ) -> Result<(), Status> {
        let mut held: Option<Bytes> = None;
        let mut finished = false;
        let mut moved_at = Instant::now();
        while replies.is_some() || !finished || tunnel.is_sending() {
            let (asks, reads) = (!finished && !tunnel.is_sending(), held.is_none());
            tokio::select! {
                () = left(replies.as_ref()) => return Ok(()),
                // Nothing tells then whether the client is still there.
                () = sleep_until(moved_at + self.patience), if replies.is_none() && tunnel.is_sending() => {
                    return Ok(());
                }
                () = room(replies.as_ref()), if held.is_some() => {
                    if let (Some(replies), Some(data)) = (&*replies, held.take()) {
                        self.metrics.tunnel_bytes.add(data.len() as u64);
                        drop(replies.try_send(reply(tunnel_reply::Part::Data(data.into()))));
                    }
                }
                next = requests.message(), if asks => match next?.and_then(|request| request.part) {
                    Some(part) => {
                        finished = self.pass(&mut tunnel, part)?;
                        moved_at = Instant::now();
                    }
                    None => return Err(Status::cancelled("the requests broke off before `finish`")),
                },
                moved = tunnel.advance(reads) => match moved.map_err(|error| self.status(error))? {
                    Moved::Bytes => moved_at = Instant::now(),
                    Moved::Data(data) => held = Some(data),
                    Moved::Done => {
                        *replies = None;
                        moved_at = Instant::now();
                    }
                    Moved::Closed => return Ok(()),
                },
            }
        }
        Ok(())
    }

    /// Puts a part in line for the guest; whether it was the last.
    fn pass(&self, tunnel: &mut Tunnel, part: tunnel_request::Part) -> Result<bool, Status> {
        match part {
            tunnel_request::Part::Data(data) if data.len() > limits::TUNNEL_DATA => {
                Err(Status::invalid_argument(format!("data is longer than {}", limits::TUNNEL_DATA)))
            }
            tunnel_request::Part::Data(data) => {
                self.metrics.tunnel_bytes.add(data.len() as u64);
                let mut rest = Bytes::from(data);
                while !rest.is_empty() {
                    let piece = rest.split_to(rest.len().min(guest_limits::JOB_DATA_BYTES));
                    tunnel.send(piece).map_err(|error| self.status(error))?;
                }
                Ok(false)
            }
            tunnel_request::Part::Finish(_) => {
                tunnel.finish().map_err(|error| self.status(error))?;
                Ok(true)
            }
            tunnel_request::Part::Open(_) => Err(Status::invalid_argument("open comes first, and once")),
        }
    }

    /// By the table at the head of `proto/ports.proto`. A lie is logged and counted here, where each tunnel's end passes.
    fn status(&self, error: JobError) -> Status {
        let text = error.to_string();
        match error {
            JobError::Failed { kind, message, .. } => refusal(kind, message),
            JobError::Broken(broken) => {
                self.metrics.guest_protocol_violations.add(1);
                let error: &dyn std::error::Error = &broken;
                warn!(sandbox_id = self.sandbox_id, error, "a guest broke the protocol of tunnels");
                Status::unavailable(text)
            }
            JobError::Unsupported => Status::unimplemented("the sandbox's agent has no tunnels"),
            JobError::TooMany => Status::resource_exhausted("too many connections to this sandbox's ports"),
            JobError::Agent(error) => error.into(),
            JobError::TooLarge(error) => Status::invalid_argument(error.to_string()),
            JobError::Connect(_) | JobError::Silent | JobError::Lost | JobError::Ended => {
                Status::unavailable(text)
            }
        }
    }
}

fn refusal(kind: FailureKind, message: String) -> Status {
    match kind {
        FailureKind::Refused => Status::aborted("nothing listens on the port"),
        FailureKind::Exhausted | FailureKind::Busy => {
            Status::resource_exhausted("the guest takes no more connections")
        }
        FailureKind::Unsupported => Status::unimplemented("the sandbox's agent has no tunnels"),
        FailureKind::Invalid => Status::invalid_argument(message),
        FailureKind::NotPersonalised => Status::unavailable("the guest is not ready yet"),
        FailureKind::Unspecified
        | FailureKind::NotFound
        | FailureKind::AlreadyExists
        | FailureKind::Permission
        | FailureKind::NotADirectory
        | FailureKind::IsADirectory
        | FailureKind::NotEmpty
        | FailureKind::NoSpace
        | FailureKind::ReadOnly
        | FailureKind::Path
        | FailureKind::Type
        | FailureKind::Offset
        | FailureKind::CrossDevice
        | FailureKind::Archive
        | FailureKind::NoUser => Status::aborted(format!("the guest broke the connection: {message}")),
    }
}
