//! The socket to noded: one protobuf message a datagram, descriptors attached.
//!
//! noded is trusted, and checked all the same: what is larger than agreed ends the worker instead of being cut.

use std::{
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::fd::OwnedFd,
};

use prost::Message;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendFlags};
use space_node_proto::worker::{FromWorker, ToWorker};
use tokio::io::{Interest, unix::AsyncFd};

use crate::{limits, sys};

#[derive(Debug, thiserror::Error)]
pub enum ChannelError {
    #[error("noded's socket failed")]
    Socket(#[source] io::Error),
    #[error("noded closed its socket")]
    Closed,
    #[error(
        "noded sent more than {} bytes or {} descriptors",
        limits::DATAGRAM,
        limits::DATAGRAM_DESCRIPTORS
    )]
    Oversized,
    #[error("noded sent what is no message")]
    Malformed(#[from] prost::DecodeError),
}

/// Both directions. One task may receive while another sends.
#[derive(Debug)]
pub(crate) struct NodeChannel {
    socket: AsyncFd<OwnedFd>,
}

/// One message and its descriptors, all close-on-exec.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) message: ToWorker,
    pub(crate) descriptors: Vec<OwnedFd>,
}

impl NodeChannel {
    pub(crate) fn new(socket: OwnedFd) -> io::Result<Self> {
        Ok(Self { socket: sys::watched(socket, Interest::READABLE | Interest::WRITABLE)? })
    }

    /// The next message, by way of a buffer of [`limits::DATAGRAM`] bytes. Cancel safe.
    pub(crate) async fn receive(&self, buffer: &mut [u8]) -> Result<Received, ChannelError> {
        let (length, descriptors) =
            self.socket.async_io(Interest::READABLE, |socket| receive_datagram(socket, buffer)).await??;
        Ok(Received { message: ToWorker::decode(&buffer[..length])?, descriptors })
    }

    /// Sends one message. Cancel safe: it is sent whole or not at all.
    pub(crate) async fn send(&self, message: &FromWorker) -> Result<(), ChannelError> {
        let bytes = message.encode_to_vec();
        let sent = self.socket.async_io(Interest::WRITABLE, |socket| {
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            let parts = [IoSlice::new(&bytes)];
            Ok(rustix::net::sendmsg(socket, &parts, &mut rustix::net::SendAncillaryBuffer::default(), flags)?)
        });
        sent.await.map(|_whole| ()).map_err(ChannelError::Socket)
    }
}

impl From<io::Error> for ChannelError {
    fn from(error: io::Error) -> Self {
        let closed = [io::ErrorKind::ConnectionReset, io::ErrorKind::BrokenPipe];
        if closed.contains(&error.kind()) { Self::Closed } else { Self::Socket(error) }
    }
}

type Datagram = Result<(usize, Vec<OwnedFd>), ChannelError>;

/// The outer result is for the caller's readiness loop.
fn receive_datagram(socket: &OwnedFd, buffer: &mut [u8]) -> io::Result<Datagram> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(limits::DATAGRAM_DESCRIPTORS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let received = rustix::net::recvmsg(socket, &mut [IoSliceMut::new(buffer)], &mut control, flags)?;
    // Taken out in any case, so that none stays open unseen.
    let descriptors: Vec<OwnedFd> = control.drain().filter_map(rights).flatten().collect();
    let cut = received.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC);
    if cut || descriptors.len() > limits::DATAGRAM_DESCRIPTORS {
        return Ok(Err(ChannelError::Oversized));
    }
    if received.bytes == 0 {
        return Ok(Err(ChannelError::Closed));
    }
    Ok(Ok((received.bytes, descriptors)))
}

fn rights(message: RecvAncillaryMessage<'_>) -> Option<impl Iterator<Item = OwnedFd>> {
    if let RecvAncillaryMessage::ScmRights(descriptors) = message { Some(descriptors) } else { None }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use rustix::{
        io::FdFlags,
        net::{AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SocketFlags, SocketType},
    };
    use space_node_proto::worker::{Configured, Connection, FromWorker, from_worker, to_worker};

    use super::*;

    fn pair() -> (OwnedFd, NodeChannel) {
        let (node, worker) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .unwrap();
        (node, NodeChannel::new(worker).unwrap())
    }

    fn send(node: &OwnedFd, bytes: &[u8], descriptors: &[&OwnedFd]) {
        let descriptors: Vec<_> = descriptors.iter().map(|d| d.as_fd()).collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        assert!(control.push(SendAncillaryMessage::ScmRights(&descriptors)));
        rustix::net::sendmsg(node, &[IoSlice::new(bytes)], &mut control, SendFlags::empty()).unwrap();
    }

    fn connection() -> Vec<u8> {
        let kind = to_worker::Kind::Connection(Connection { request_id: 7, error: String::new() });
        ToWorker { kind: Some(kind) }.encode_to_vec()
    }

    #[tokio::test]
    async fn a_message_arrives_with_its_descriptor_closed_on_exec() {
        let (node, channel) = pair();
        let (attached, _other) = std::io::pipe().unwrap();
        send(&node, &connection(), &[&attached.into()]);
        let received = channel.receive(&mut vec![0; limits::DATAGRAM]).await.unwrap();
        assert_eq!(received.message.encode_to_vec(), connection());
        let [descriptor] = &received.descriptors[..] else { panic!("{received:?}") };
        assert!(rustix::io::fcntl_getfd(descriptor).unwrap().contains(FdFlags::CLOEXEC));
    }

    #[tokio::test]
    async fn too_many_descriptors_or_too_many_bytes_are_an_error() {
        let (node, channel) = pair();
        let (attached, _other) = std::io::pipe().unwrap();
        let attached = attached.into();
        send(&node, &connection(), &[&attached, &attached, &attached]);
        let error = channel.receive(&mut vec![0; limits::DATAGRAM]).await.unwrap_err();
        assert!(matches!(error, ChannelError::Oversized), "{error}");

        send(&node, &vec![0; limits::DATAGRAM + 1], &[]);
        let error = channel.receive(&mut vec![0; limits::DATAGRAM]).await.unwrap_err();
        assert!(matches!(error, ChannelError::Oversized), "{error}");
    }

    #[tokio::test]
    async fn a_node_that_left_is_told_apart_from_one_that_babbles() {
        let (node, channel) = pair();
        send(&node, &[0xff; 3], &[]);
        let error = channel.receive(&mut vec![0; limits::DATAGRAM]).await.unwrap_err();
        assert!(matches!(error, ChannelError::Malformed(_)), "{error}");
        drop(node);
        let error = channel.receive(&mut vec![0; limits::DATAGRAM]).await.unwrap_err();
        assert!(matches!(error, ChannelError::Closed), "{error}");
    }

    #[tokio::test]
    async fn a_sent_message_is_one_datagram() {
        let (node, channel) = pair();
        let message = FromWorker { kind: Some(from_worker::Kind::Configured(Configured::default())) };
        channel.send(&message).await.unwrap();
        let mut buffer = [0; 64];
        let (length, _) = rustix::net::recv(&node, &mut buffer, RecvFlags::empty()).unwrap();
        assert_eq!(FromWorker::decode(&buffer[..length]).unwrap(), message);
    }
}
