//! One connection to an agent: bytes in both directions, and the protocol's rules for it.

use std::io;

use bytes::BytesMut;
use space_guest_proto::{EncodeError, GuestFrame, HostConnection, HostFrame, Misuse, Request};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::UnixStream,
};

use super::check::Broken;
use crate::limits;

/// Room for at least one read; a whole frame fits.
const READ: usize = 64 * 1024;

/// Why a connection is over.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LinkError {
    #[error("the connection is lost")]
    Lost(#[from] io::Error),
    #[error("the guest broke the protocol")]
    Broken(#[from] Broken),
    #[error("no protocol version in common")]
    Version,
}

/// Why a frame was not sent.
#[derive(Debug, thiserror::Error)]
pub(crate) enum QueueError {
    #[error("the request does not fit a frame")]
    TooLarge(#[from] EncodeError),
    #[error("a frame that breaks the protocol")]
    Misuse(#[from] Misuse),
}

pub(crate) struct Link {
    stream: UnixStream,
    pub(crate) rules: HostConnection,
    incoming: BytesMut,
    outgoing: BytesMut,
    ignored: usize,
}

impl Link {
    /// `incoming` is what has been read behind the handshake already.
    pub(crate) fn new(stream: UnixStream, incoming: BytesMut) -> Self {
        Self { stream, rules: HostConnection::new(), incoming, outgoing: BytesMut::new(), ignored: 0 }
    }

    /// Puts a frame in line to be sent.
    pub(crate) fn queue(&mut self, frame: &HostFrame) -> Result<(), QueueError> {
        let before = self.outgoing.len();
        frame.encode(&mut self.outgoing)?;
        if let Err(misuse) = self.rules.send(frame) {
            self.outgoing.truncate(before);
            return Err(misuse.into());
        }
        Ok(())
    }

    /// Puts a request in line under a new id.
    pub(crate) fn request(&mut self, request: Request) -> Result<u32, QueueError> {
        let id = self.rules.free_id();
        self.queue(&HostFrame::Request { id, request })?;
        Ok(id)
    }

    /// Whether further requests should be taken up.
    pub(crate) fn has_room(&self) -> bool {
        self.outgoing.len() < limits::OUTGOING
    }

    /// Whether the rules leave room for `more` calls.
    pub(crate) fn may_call(&self, limit: usize) -> bool {
        self.rules.calls() < limit
    }

    /// The next frame that has arrived whole, checked against the rules.
    pub(crate) fn take(&mut self) -> Result<Option<GuestFrame>, LinkError> {
        let before = self.incoming.len();
        let Some(frame) = GuestFrame::decode(&mut self.incoming).map_err(Broken::from)? else {
            self.ignored += before - self.incoming.len();
            return if self.ignored > limits::IGNORED { Err(Broken::Ignored.into()) } else { Ok(None) };
        };
        // What a refusal for the whole connection means is its reader's business.
        if !matches!(frame, GuestFrame::Refusal { id: 0, .. }) {
            self.rules.receive(&frame).map_err(Broken::from)?;
        }
        Ok(Some(frame))
    }

    /// The next frame. Cancel safe.
    pub(crate) async fn next(&mut self) -> Result<GuestFrame, LinkError> {
        loop {
            if let Some(frame) = self.take()? {
                return Ok(frame);
            }
            self.flush()?;
            self.transfer().await?;
        }
    }

    /// Sends what the socket takes at once.
    pub(crate) fn flush(&mut self) -> Result<(), LinkError> {
        while !self.outgoing.is_empty() {
            match self.stream.try_write(&self.outgoing) {
                Ok(0) => return Err(closed().into()),
                Ok(sent) => bytes::Buf::advance(&mut self.outgoing, sent),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Waits until some bytes came in or went out. True: there may be more at once. Cancel safe.
    pub(crate) async fn transfer(&mut self) -> Result<bool, LinkError> {
        if self.incoming.capacity() - self.incoming.len() < READ / 4 {
            self.incoming.reserve(READ);
        }
        let room = self.incoming.capacity() - self.incoming.len();
        let (mut reader, mut writer) = self.stream.split();
        tokio::select! {
            read = reader.read_buf(&mut self.incoming) => match read? {
                0 => Err(closed().into()),
                length => Ok(length == room),
            },
            sent = writer.write_buf(&mut self.outgoing), if !self.outgoing.is_empty() => match sent? {
                0 => Err(closed().into()),
                _ => Ok(false),
            },
        }
    }
}

fn closed() -> io::Error {
    io::ErrorKind::UnexpectedEof.into()
}
