//! epoll with names for what it watches.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    time::Duration,
};

use rustix::{
    buffer::spare_capacity,
    event::{
        Timespec,
        epoll::{self, CreateFlags, Event, EventData, EventFlags},
    },
    io::Errno,
};
use space_guest_proto::Stream;

/// Events taken from the kernel at a time; the rest come the next time round.
const EVENTS: usize = 64;

/// What a descriptor in the event loop belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    Listener,
    Signals,
    Connection(u64),
    /// The pipe that tells whether a command has its program.
    Launch(u64),
    Output(u64, Stream),
    Stdin(u64),
    JobListener,
    /// A job's connection, only for its end.
    Job(u64),
}

/// Bits of a source's tag.
const TAG_BITS: u32 = 4;

impl Source {
    fn encode(self) -> EventData {
        let (tag, serial) = match self {
            Self::Listener => (0, 0),
            Self::Signals => (1, 0),
            Self::Connection(serial) => (2, serial),
            Self::Launch(serial) => (3, serial),
            Self::Output(serial, Stream::Stdout) => (4, serial),
            Self::Output(serial, Stream::Stderr) => (5, serial),
            Self::Stdin(serial) => (6, serial),
            Self::JobListener => (7, 0),
            Self::Job(serial) => (8, serial),
        };
        EventData::new_u64(serial << TAG_BITS | tag)
    }

    fn decode(data: EventData) -> Option<Self> {
        let serial = data.u64() >> TAG_BITS;
        Some(match data.u64() & ((1 << TAG_BITS) - 1) {
            0 => Self::Listener,
            1 => Self::Signals,
            2 => Self::Connection(serial),
            3 => Self::Launch(serial),
            4 => Self::Output(serial, Stream::Stdout),
            5 => Self::Output(serial, Stream::Stderr),
            6 => Self::Stdin(serial),
            7 => Self::JobListener,
            8 => Self::Job(serial),
            _ => return None,
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Interest {
    pub(crate) read: bool,
    pub(crate) write: bool,
}

impl Interest {
    pub(crate) const READ: Self = Self { read: true, write: false };
    pub(crate) const WRITE: Self = Self { read: false, write: true };
    pub(crate) const BOTH: Self = Self { read: true, write: true };

    fn flags(self) -> EventFlags {
        let mut flags = EventFlags::empty();
        flags.set(EventFlags::IN, self.read);
        flags.set(EventFlags::OUT, self.write);
        flags
    }
}

/// Level-triggered. A descriptor that is closed is no longer watched.
pub(crate) struct Poll {
    epoll: OwnedFd,
    events: Vec<Event>,
}

impl Poll {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { epoll: epoll::create(CreateFlags::CLOEXEC)?, events: Vec::with_capacity(EVENTS) })
    }

    /// Watches a descriptor. A failure means that its events won't come, so callers must not go on with it.
    pub(crate) fn add(&self, descriptor: impl AsFd, source: Source, interest: Interest) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, descriptor, source.encode(), interest.flags())?)
    }

    /// Watches a connection for its end alone, as told by the other side.
    pub(crate) fn add_end(&self, descriptor: impl AsFd, source: Source) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, descriptor, source.encode(), EventFlags::RDHUP)?)
    }

    /// Changes what a watched descriptor is watched for.
    pub(crate) fn change(&self, descriptor: impl AsFd, source: Source, interest: Interest) {
        if let Err(error) = epoll::modify(&self.epoll, descriptor, source.encode(), interest.flags()) {
            crate::log::error(format_args!("cannot watch {source:?}: {error}"));
        }
    }

    pub(crate) fn remove(&self, descriptor: impl AsFd) {
        // Not watched: the state that is wanted.
        epoll::delete(&self.epoll, descriptor).ok();
    }

    /// Waits for events, at most for `timeout`.
    pub(crate) fn wait(&mut self, timeout: Option<Duration>) -> io::Result<Vec<Source>> {
        let timeout = timeout.map(|time| Timespec {
            tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(time.subsec_nanos()),
        });
        self.events.clear();
        match epoll::wait(&self.epoll, spare_capacity(&mut self.events), timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(self.events.iter().filter_map(|event| Source::decode(event.data)).collect())
    }
}
