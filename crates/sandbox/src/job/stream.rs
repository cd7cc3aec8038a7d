//! Jobs with data: what is read, what is written, what is watched.

use bytes::Bytes;
use space_guest_proto::{
    job::{Change, Done, FileInfo, GuestJobFrame, HostJobFrame},
    limits as guest_limits,
};

use super::{Broken, JobError, check, link::JobLink};
use crate::limits;

/// A file or an archive on its way to the client.
#[derive(Debug)]
pub(crate) struct Reading {
    link: JobLink,
    /// Bytes that may still come, where their number was asked for.
    left: Option<u64>,
}

/// Waits for `Opened`.
pub(super) async fn opened(link: &mut JobLink) -> Result<Option<FileInfo>, JobError> {
    match link.expect().await? {
        GuestJobFrame::Opened(opened) => {
            opened.info.iter().try_for_each(check::info)?;
            Ok(opened.info)
        }
        GuestJobFrame::Done(done) => {
            link.done(*done)?;
            Err(Broken::Order("a result").into())
        }
        GuestJobFrame::Data(_) | GuestJobFrame::Entries(_) | GuestJobFrame::Changes(_) => {
            Err(Broken::Order("data").into())
        }
    }
}

impl Reading {
    /// A file, with what it is at this moment.
    pub(super) async fn file(mut link: JobLink, length: Option<u64>) -> Result<(FileInfo, Self), JobError> {
        let info = opened(&mut link).await?.ok_or(Broken::Order("a beginning without the file"))?;
        Ok((info, Self { link, left: length }))
    }

    pub(super) async fn archive(mut link: JobLink) -> Result<Self, JobError> {
        opened(&mut link).await?;
        Ok(Self { link, left: None })
    }

    /// The next piece; none at the end.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, JobError> {
        match self.link.expect().await? {
            GuestJobFrame::Data(data) => {
                if let Some(left) = &mut self.left {
                    *left = left.checked_sub(data.len() as u64).ok_or(Broken::Excess)?;
                }
                Ok(Some(data))
            }
            GuestJobFrame::Done(done) => self.link.done(*done).map(|_done| None),
            GuestJobFrame::Opened(_) | GuestJobFrame::Entries(_) | GuestJobFrame::Changes(_) => {
                Err(Broken::Order("something else than data").into())
            }
        }
    }
}

/// A file or an archive on its way to the guest.
#[derive(Debug)]
pub(crate) struct Writing {
    link: JobLink,
    result: Outcome,
}

/// What the result of a write has to tell.
#[derive(Debug, Clone, Copy)]
pub(super) enum Outcome {
    /// The file that was completed.
    File,
    /// How much of an upload is kept: what was sent, from its offset on.
    Kept(u64),
    Counts,
}

impl Writing {
    pub(super) async fn new(mut link: JobLink, result: Outcome) -> Result<Self, JobError> {
        opened(&mut link).await?;
        Ok(Self { link, result })
    }

    /// Why the guest gives up before the end. Never comes while it doesn't. Cancel safe.
    pub(crate) async fn gives_up(&mut self) -> JobError {
        match self.link.next().await {
            Ok(frame) => self.early(frame),
            Err(error) => error,
        }
    }

    /// Returns when the guest has taken it all, or as good as.
    pub(crate) async fn send(&mut self, data: &Bytes) -> Result<(), JobError> {
        let mut rest = data.clone();
        while !rest.is_empty() {
            let piece = rest.split_to(rest.len().min(guest_limits::JOB_DATA_BYTES));
            if let Outcome::Kept(next) = &mut self.result {
                *next = next.saturating_add(piece.len() as u64);
            }
            self.link.queue(&HostJobFrame::Data(piece))?;
            if let Some(frame) = self.link.flush().await? {
                return Err(self.early(frame));
            }
        }
        Ok(())
    }

    /// Says that this was all, and waits for the result.
    pub(crate) async fn finish(mut self) -> Result<Done, JobError> {
        self.link.queue(&HostJobFrame::Finish)?;
        match self.link.expect_within(limits::JOB_LONG).await? {
            GuestJobFrame::Done(done) => {
                let done = self.link.done(*done)?;
                done.info.iter().try_for_each(check::info)?;
                match self.result {
                    Outcome::File if done.info.is_none() => Err(Broken::Order("no file").into()),
                    Outcome::Kept(next) if done.next_offset != next => Err(Broken::Offset.into()),
                    Outcome::File | Outcome::Kept(_) | Outcome::Counts => Ok(done),
                }
            }
            GuestJobFrame::Opened(_)
            | GuestJobFrame::Data(_)
            | GuestJobFrame::Entries(_)
            | GuestJobFrame::Changes(_) => Err(Broken::Order("something else than a result").into()),
        }
    }

    /// Before the end a guest may only say that it can't go on.
    fn early(&self, frame: GuestJobFrame) -> JobError {
        let GuestJobFrame::Done(done) = frame else { return Broken::Order("data").into() };
        self.link.done(*done).err().unwrap_or_else(|| Broken::Order("a result").into())
    }
}

/// A watch.
#[derive(Debug)]
pub(crate) struct Changing(JobLink);

impl Changing {
    pub(super) async fn new(mut link: JobLink) -> Result<Self, JobError> {
        opened(&mut link).await?;
        Ok(Self(link))
    }

    /// What happens next; none when there is nothing left to watch.
    pub(crate) async fn next(&mut self) -> Result<Option<Vec<Change>>, JobError> {
        match self.0.next().await? {
            GuestJobFrame::Changes(told) if !told.changes.is_empty() => {
                told.changes.iter().try_for_each(check::change)?;
                Ok(Some(told.changes))
            }
            GuestJobFrame::Changes(_) => Err(Broken::Change.into()),
            GuestJobFrame::Done(done) => self.0.done(*done).map(|_done| None),
            GuestJobFrame::Opened(_) | GuestJobFrame::Data(_) | GuestJobFrame::Entries(_) => {
                Err(Broken::Order("something else than changes").into())
            }
        }
    }
}
