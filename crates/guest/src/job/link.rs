//! A job's connection: whole frames over a blocking socket.
//!
//! Data goes to the socket from the buffer that it was read into, with room for the frame's header in front
//! ([`Outgoing`]), and comes from the socket without being copied out of the buffer that received it.

use std::{
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    time::Instant,
};

use bytes::{Buf, Bytes, BytesMut};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    net::{RecvFlags, SendFlags},
};
use space_guest_proto::{
    frame::HEADER_BYTES,
    job::{Done, FailureKind, GuestJobFrame, HostJobFrame, Opened, data_header},
    limits,
};

use super::failure::JobError;
use crate::sys::receive::receive;

/// Asked from the socket at a time: a few frames, so that a fast host costs few calls.
const RECEIVE_BYTES: usize = 4 * limits::FRAME_BYTES;

pub(super) struct Link {
    socket: OwnedFd,
    inbound: BytesMut,
}

/// What a host that sends data sends next.
pub(super) enum Incoming {
    Data(Bytes),
    Finish,
}

impl Link {
    pub(super) fn new(socket: OwnedFd) -> Self {
        Self { socket, inbound: BytesMut::new() }
    }

    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// A frame that was received whole already.
    pub(super) fn received(&mut self) -> Result<Option<HostJobFrame>, JobError> {
        HostJobFrame::decode(&mut self.inbound)
            .map_err(|error| JobError::new(FailureKind::Invalid, format!("no frame of a job: {error}")))
    }

    /// Receives once, blocking unless `flags` say otherwise.
    pub(super) fn receive_once(&mut self, flags: RecvFlags) -> Result<(), JobError> {
        self.inbound.reserve(RECEIVE_BYTES);
        match receive(&self.socket, &mut self.inbound, flags) {
            Ok(0) => Err(JobError::Gone),
            Ok(_) | Err(Errno::INTR | Errno::AGAIN) => Ok(()),
            Err(_) => Err(JobError::Gone),
        }
    }

    fn receive(&mut self) -> Result<HostJobFrame, JobError> {
        loop {
            if let Some(frame) = self.received()? {
                return Ok(frame);
            }
            self.receive_once(RecvFlags::empty())?;
        }
    }

    /// The next frame, if it comes in time.
    pub(super) fn receive_until(&mut self, deadline: Instant) -> Result<HostJobFrame, JobError> {
        loop {
            if let Some(frame) = self.received()? {
                return Ok(frame);
            }
            if !wait(&mut [PollFd::new(&self.socket, PollFlags::IN)], Some(deadline))? {
                return Err(JobError::new(FailureKind::Invalid, "OpenJob did not come in time"));
            }
            self.receive_once(RecvFlags::DONTWAIT)?;
        }
    }

    pub(super) fn receive_data(&mut self) -> Result<Incoming, JobError> {
        match self.receive()? {
            HostJobFrame::Data(data) => Ok(Incoming::Data(data)),
            HostJobFrame::Finish => Ok(Incoming::Finish),
            HostJobFrame::Open(_) => Err(JobError::new(FailureKind::Invalid, "a second OpenJob")),
        }
    }

    pub(super) fn send(&mut self, frame: &GuestJobFrame) -> Result<(), JobError> {
        let mut bytes = BytesMut::new();
        frame
            .encode(&mut bytes)
            .map_err(|error| JobError::new(FailureKind::Unspecified, error.to_string()))?;
        self.send_all(&bytes)
    }

    pub(super) fn send_opened(&mut self, opened: Opened) -> Result<(), JobError> {
        self.send(&GuestJobFrame::Opened(Box::new(opened)))
    }

    pub(super) fn send_done(&mut self, done: Done) -> Result<(), JobError> {
        self.send(&GuestJobFrame::Done(Box::new(done)))
    }

    /// Sends what `outgoing` holds as one frame, and empties it.
    pub(super) fn send_data(&mut self, outgoing: &mut Outgoing) -> Result<(), JobError> {
        let sent = self.send_all(outgoing.frame());
        outgoing.clear();
        sent
    }

    fn send_all(&mut self, mut bytes: &[u8]) -> Result<(), JobError> {
        while !bytes.is_empty() {
            match rustix::net::send(&self.socket, bytes, SendFlags::NOSIGNAL) {
                Ok(sent) => bytes.advance(sent),
                Err(Errno::INTR) => {}
                Err(_) => return Err(JobError::Gone),
            }
        }
        Ok(())
    }
}

/// Data on its way to the host: one frame, that is filled in place.
pub(super) struct Outgoing {
    buffer: Vec<u8>,
    data_bytes: usize,
}

impl Outgoing {
    pub(super) fn new() -> Self {
        Self { buffer: vec![0; HEADER_BYTES + limits::JOB_DATA_BYTES], data_bytes: 0 }
    }

    /// Where the next data goes. Empty: the frame is full.
    pub(super) fn room(&mut self) -> &mut [u8] {
        self.buffer.get_mut(HEADER_BYTES + self.data_bytes..).unwrap_or_default()
    }

    /// So much was put there.
    pub(super) fn filled(&mut self, bytes: usize) {
        self.data_bytes += bytes;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.data_bytes == 0
    }

    pub(super) fn is_full(&self) -> bool {
        self.data_bytes == limits::JOB_DATA_BYTES
    }

    /// The frame; empty where there is no data.
    pub(super) fn frame(&mut self) -> &[u8] {
        if self.data_bytes == 0 {
            return &[];
        }
        if let Some(header) = self.buffer.first_chunk_mut() {
            *header = data_header(self.data_bytes);
        }
        self.buffer.get(..HEADER_BYTES + self.data_bytes).unwrap_or_default()
    }

    pub(super) fn clear(&mut self) {
        self.data_bytes = 0;
    }
}

/// Waits for one of the descriptors. False: the deadline came first.
pub(super) fn wait(descriptors: &mut [PollFd<'_>], deadline: Option<Instant>) -> Result<bool, JobError> {
    loop {
        let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
        let timeout = left.map(|left| Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(left.subsec_nanos()),
        });
        match poll(descriptors, timeout.as_ref()) {
            Ok(ready) => return Ok(ready > 0),
            Err(Errno::INTR) => {}
            Err(error) => return Err(JobError::of(error, "cannot wait")),
        }
    }
}
