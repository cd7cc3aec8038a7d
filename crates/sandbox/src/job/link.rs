//! One job's connection: frames in both directions, each within a deadline.

use std::time::Duration;

use bytes::BytesMut;
use space_guest_proto::{
    JOB_PORT,
    job::{Done, FailureKind, GuestJobFrame, HostJobFrame, OpenJob},
    limits as guest_limits,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::UnixStream,
    sync::OwnedSemaphorePermit,
    time::{Instant, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{Broken, JobError};
use crate::{
    guest::{HandshakeError, handshake, printable},
    limits,
};

/// Its places are given back when it is dropped.
#[derive(Debug)]
pub(super) struct JobLink {
    stream: UnixStream,
    incoming: BytesMut,
    outgoing: BytesMut,
    stop: CancellationToken,
    silence: Duration,
    _places: [OwnedSemaphorePermit; 2],
}

/// Why there is no link.
#[derive(Debug)]
pub(super) enum NoLink {
    /// Nothing listens in the guest.
    Closed,
    Error(JobError),
}

impl JobLink {
    /// Asks for the port, and sends the request.
    pub(super) async fn open(
        mut stream: UnixStream,
        job: OpenJob,
        silence: Duration,
        stop: CancellationToken,
        places: [OwnedSemaphorePermit; 2],
    ) -> Result<Self, NoLink> {
        let deadline = Instant::now() + limits::HANDSHAKE;
        let incoming = match handshake(&mut stream, JOB_PORT, deadline).await {
            Ok(incoming) => incoming,
            Err(HandshakeError::Closed) => return Err(NoLink::Closed),
            Err(HandshakeError::Silent) => return Err(NoLink::Error(JobError::Silent)),
            Err(HandshakeError::Malformed) => return Err(NoLink::Error(Broken::Handshake.into())),
        };
        let mut link = Self { stream, incoming, outgoing: BytesMut::new(), stop, silence, _places: places };
        link.queue(&HostJobFrame::Open(Box::new(job))).map_err(NoLink::Error)?;
        Ok(link)
    }

    /// Puts a frame in line to be sent.
    pub(super) fn queue(&mut self, frame: &HostJobFrame) -> Result<(), JobError> {
        Ok(frame.encode(&mut self.outgoing)?)
    }

    /// The next frame, which the guest has to send in its usual time.
    pub(super) async fn expect(&mut self) -> Result<GuestJobFrame, JobError> {
        self.expect_within(self.silence).await
    }

    /// The next frame. Cancel safe, but for the deadline.
    pub(super) async fn expect_within(&mut self, silence: Duration) -> Result<GuestJobFrame, JobError> {
        timeout(silence, self.next()).await.unwrap_or(Err(JobError::Silent))
    }

    /// The next frame, whenever it comes. Cancel safe.
    pub(super) async fn next(&mut self) -> Result<GuestJobFrame, JobError> {
        loop {
            if let Some(frame) = self.take()? {
                return Ok(frame);
            }
            self.transfer(true).await?;
        }
    }

    /// Whether something is still in line.
    pub(super) fn is_sending(&self) -> bool {
        !self.outgoing.is_empty()
    }

    /// Waits until some of what is in line was sent, or with `read` until something came; answers a frame if one is
    /// whole. Cancel safe.
    pub(super) async fn exchange(&mut self, read: bool) -> Result<Option<GuestJobFrame>, JobError> {
        if read && let Some(frame) = self.take()? {
            return Ok(Some(frame));
        }
        self.transfer(read).await?;
        if read { self.take() } else { Ok(None) }
    }

    /// Sends all that is in line. Answers a frame, should the guest have something to say meanwhile.
    pub(super) async fn flush(&mut self) -> Result<Option<GuestJobFrame>, JobError> {
        while !self.outgoing.is_empty() {
            if let Some(frame) = self.take()? {
                return Ok(Some(frame));
            }
            let silence = self.silence;
            timeout(silence, self.transfer(true)).await.unwrap_or(Err(JobError::Silent))?;
        }
        Ok(None)
    }

    /// The job's result. It is the last thing that a guest says.
    pub(super) fn done(&self, done: Done) -> Result<Done, JobError> {
        if !self.incoming.is_empty() {
            return Err(Broken::AfterDone.into());
        }
        let Some(failure) = &done.failure else { return Ok(done) };
        Err(JobError::Failed {
            kind: FailureKind::try_from(failure.kind).unwrap_or(FailureKind::Unspecified),
            message: printable(&failure.message, limits::TEXT),
            next_offset: done.next_offset,
        })
    }

    fn take(&mut self) -> Result<Option<GuestJobFrame>, JobError> {
        Ok(GuestJobFrame::decode(&mut self.incoming).map_err(Broken::from)?)
    }

    /// Waits until some bytes went out, or with `read` came in. Cancel safe.
    async fn transfer(&mut self, read: bool) -> Result<(), JobError> {
        if read && self.incoming.capacity() == self.incoming.len() {
            self.incoming.reserve(guest_limits::FRAME_BYTES);
        }
        let (mut reader, mut writer) = self.stream.split();
        tokio::select! {
            () = self.stop.cancelled() => Err(JobError::Ended),
            read = reader.read_buf(&mut self.incoming), if read => match read {
                Ok(0) | Err(_) => Err(JobError::Lost),
                Ok(_more) => Ok(()),
            },
            sent = writer.write_buf(&mut self.outgoing), if !self.outgoing.is_empty() => {
                if !matches!(sent, Ok(1..)) {
                    // A guest that has closed may have said before why; the reader finds out.
                    self.outgoing.clear();
                }
                Ok(())
            }
        }
    }
}
