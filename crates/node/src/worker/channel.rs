//! The SEQPACKET pair to one worker: a message a datagram, with at most two descriptors, and never more than
//! the protocol allows in either direction.

use std::{
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    time::Duration,
};

use prost::Message;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use space_node_proto::worker::{FromWorker, ToWorker, from_worker, to_worker};
use tokio::{
    io::{Interest, unix::AsyncFd},
    time::timeout,
};

use crate::sys::watch;

pub(super) const DATAGRAM_LIMIT: usize = 64 * 1024;
const DESCRIPTOR_LIMIT: usize = 2;

#[derive(Debug, thiserror::Error)]
pub(crate) enum ChannelError {
    #[error("the worker's socket failed")]
    Socket(#[source] io::Error),
    #[error("the worker closed its socket")]
    Closed,
    #[error("the worker takes no messages")]
    Stuck,
    #[error("a message to the worker would have {0} bytes")]
    TooLarge(usize),
    #[error("the worker broke the protocol: {0}")]
    Protocol(&'static str),
}

#[derive(Debug)]
pub(super) struct WorkerChannel {
    socket: AsyncFd<OwnedFd>,
    deadline: Duration,
}

impl WorkerChannel {
    /// A channel and the end for the worker.
    pub(super) fn pair(deadline: Duration) -> io::Result<(Self, OwnedFd)> {
        let flags = SocketFlags::CLOEXEC;
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        rustix::io::ioctl_fionbio(&ours, true)?;
        let socket = watch(ours, Interest::READABLE | Interest::WRITABLE)?;
        Ok((Self { socket, deadline }, theirs))
    }

    /// Sends one message. Cancel safe: it is sent whole or not at all.
    pub(super) async fn send(
        &self,
        kind: to_worker::Kind,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<(), ChannelError> {
        let bytes = ToWorker { kind: Some(kind) }.encode_to_vec();
        if bytes.len() > DATAGRAM_LIMIT {
            return Err(ChannelError::TooLarge(bytes.len()));
        }
        let sending = self.socket.async_io(Interest::WRITABLE, |socket| send(socket, &bytes, descriptors));
        match timeout(self.deadline, sending).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) if error.kind() == io::ErrorKind::BrokenPipe => Err(ChannelError::Closed),
            Ok(Err(error)) => Err(ChannelError::Socket(error)),
            Err(_elapsed) => Err(ChannelError::Stuck),
        }
    }

    /// The next message. Cancel safe.
    pub(super) async fn receive(&self) -> Result<from_worker::Kind, ChannelError> {
        let received = self.socket.async_io(Interest::READABLE, receive).await;
        let (bytes, flaw) = match received {
            Ok(received) => received,
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Err(ChannelError::Closed),
            Err(error) => return Err(ChannelError::Socket(error)),
        };
        if let Some(flaw) = flaw {
            return Err(ChannelError::Protocol(flaw));
        }
        if bytes.is_empty() {
            return Err(ChannelError::Closed);
        }
        let message = FromWorker::decode(bytes.as_slice())
            .map_err(|_malformed| ChannelError::Protocol("a datagram that is no message"))?;
        message.kind.ok_or(ChannelError::Protocol("a message of an unknown kind"))
    }
}

fn send(socket: &OwnedFd, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTOR_LIMIT))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    sendmsg(socket.as_fd(), &[IoSlice::new(bytes)], &mut control, flags)?;
    Ok(())
}

/// The datagram, and what is wrong with its envelope.
fn receive(socket: &OwnedFd) -> io::Result<(Vec<u8>, Option<&'static str>)> {
    let mut bytes = vec![0; DATAGRAM_LIMIT];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTOR_LIMIT))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let received = recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, flags)?;
    // Dropping what was attached closes it.
    let attached = control.drain().count() > 0;
    bytes.truncate(received.bytes);
    let flaw = match (received.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC), attached) {
        (true, _) => Some("more bytes or descriptors than are allowed"),
        (false, true) => Some("a descriptor that nobody asked for"),
        (false, false) => None,
    };
    Ok((bytes, flaw))
}

#[cfg(test)]
mod tests {
    use super::*;
    use space_node_proto::worker::{Configured, Shutdown};

    const SOON: Duration = Duration::from_millis(100);

    fn message() -> Vec<u8> {
        FromWorker { kind: Some(from_worker::Kind::Configured(Configured {})) }.encode_to_vec()
    }

    #[tokio::test]
    async fn a_message_arrives_whole() {
        let (channel, worker) = WorkerChannel::pair(SOON).unwrap();
        send(&worker, &message(), &[]).unwrap();
        let received = channel.receive().await.unwrap();
        assert_eq!(received, from_worker::Kind::Configured(Configured {}));
    }

    #[tokio::test]
    async fn garbage_descriptors_and_excess_are_violations() {
        let (channel, worker) = WorkerChannel::pair(SOON).unwrap();
        let file = std::fs::File::open("/dev/null").unwrap();
        send(&worker, &[0xff; 9], &[]).unwrap();
        send(&worker, &message(), &[file.as_fd()]).unwrap();
        send(&worker, &vec![0; DATAGRAM_LIMIT + 1], &[]).unwrap();
        for _ in 0..3 {
            assert!(matches!(channel.receive().await, Err(ChannelError::Protocol(_))));
        }
    }

    #[tokio::test]
    async fn a_worker_that_is_gone_is_noticed_either_way() {
        let (channel, worker) = WorkerChannel::pair(SOON).unwrap();
        drop(worker);
        assert!(matches!(channel.receive().await, Err(ChannelError::Closed)));
        let kind = to_worker::Kind::Shutdown(Shutdown {});
        assert!(matches!(channel.send(kind, &[]).await, Err(ChannelError::Closed)));
    }

    #[tokio::test]
    async fn a_worker_that_does_not_read_is_stuck() {
        let (channel, _worker) = WorkerChannel::pair(SOON).unwrap();
        let result = loop {
            let kind = to_worker::Kind::Shutdown(Shutdown {});
            if let Err(error) = channel.send(kind, &[]).await {
                break error;
            }
        };
        assert!(matches!(result, ChannelError::Stuck));
    }
}
