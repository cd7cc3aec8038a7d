//! A connection to a port in the guest.

use bytes::Bytes;
use space_guest_proto::job::{GuestJobFrame, HostJobFrame};

use super::{Broken, JobError, link::JobLink, stream::opened};

/// Both directions of it, each with an end of its own. Dropping it closes the connection.
#[derive(Debug)]
pub(crate) struct Tunnel {
    link: JobLink,
    is_done: bool,
}

/// What has happened meanwhile.
#[derive(Debug)]
pub(crate) enum Moved {
    /// Bytes went either way, and nothing that matters yet.
    Bytes,
    Data(Bytes),
    /// No more comes from the guest; it may still read.
    Done,
    /// Behind `Done`: it doesn't read any more either.
    Closed,
}

impl Tunnel {
    pub(super) async fn new(mut link: JobLink) -> Result<Self, JobError> {
        opened(&mut link).await?;
        Ok(Self { link, is_done: false })
    }

    /// Whether the guest has not taken yet what was given last.
    pub(crate) fn is_sending(&self) -> bool {
        self.link.is_sending()
    }

    /// Puts data in line, at most a frame's.
    pub(crate) fn send(&mut self, data: Bytes) -> Result<(), JobError> {
        self.link.queue(&HostJobFrame::Data(data))
    }

    /// Says that no more comes.
    pub(crate) fn finish(&mut self) -> Result<(), JobError> {
        self.link.queue(&HostJobFrame::Finish)
    }

    /// Sends what is in line, and with `read` takes what comes. Waits without a deadline: a tunnel may be quiet for as
    /// long as it likes. Cancel safe.
    pub(crate) async fn advance(&mut self, read: bool) -> Result<Moved, JobError> {
        if self.is_done {
            return match self.link.exchange(true).await {
                Ok(None) => Ok(Moved::Bytes),
                Ok(Some(_frame)) => Err(Broken::AfterDone.into()),
                Err(JobError::Lost) => Ok(Moved::Closed),
                Err(error) => Err(error),
            };
        }
        match self.link.exchange(read).await? {
            None => Ok(Moved::Bytes),
            Some(GuestJobFrame::Data(data)) => Ok(Moved::Data(data)),
            Some(GuestJobFrame::Done(done)) => {
                self.link.done(*done)?;
                self.is_done = true;
                Ok(Moved::Done)
            }
            Some(GuestJobFrame::Opened(_) | GuestJobFrame::Entries(_) | GuestJobFrame::Changes(_)) => {
                Err(Broken::Order("something else than data").into())
            }
        }
    }
}
