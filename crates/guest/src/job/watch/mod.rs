//! Changes of files, by inotify.
//!
//! - `tree`: which directories are watched, and what they are called now.
//!
//! What was made in a new directory before it was watched is found by looking, and told as `Created` (and
//! `Written`, if there is something in it); the events of what was made while that went on are dropped.
//! When the kernel's queue overflows everything is watched anew, then `Lost` is told.

mod tree;

use std::{
    collections::HashSet,
    mem::MaybeUninit,
    os::fd::{AsFd, OwnedFd},
    time::{Duration, Instant},
};

use bytes::Bytes;
use rustix::{
    event::{PollFd, PollFlags},
    fs::inotify::{self, CreateFlags, ReadFlags, Reader},
    io::Errno,
    net::RecvFlags,
};
use space_guest_proto::job::{Change, ChangeKind, Changes, FailureKind, GuestJobFrame, Opened, WatchFiles};

use self::tree::Tree;
use super::{
    Context, Outcome,
    failure::JobError,
    link::{Link, wait},
};

const EVENTS_BYTES: usize = 64 * 1024;
/// Changes are sent when so many bytes of them wait, or nothing more happens.
const CHANGES_BYTES: usize = 24 * 1024;
/// How long the first half of a move waits for the second. The kernel puts both out one behind the other.
const MOVE_TIME: Duration = Duration::from_millis(20);

impl Context {
    pub(super) fn watch(&mut self, job: &WatchFiles) -> Outcome {
        let shown = self.infos.absolute(&job.path);
        let mut watch = Watch::new(shown, job.recursive)?;
        self.link.send_opened(Opened::default())?;
        watch.follow(&mut self.link)
    }
}

struct Watch {
    tree: Tree,
    changes: Vec<Change>,
    changes_bytes: usize,
    /// Told because they were found; an event that says the same is on its way.
    found: HashSet<Vec<u8>>,
    /// A directory that left a name, and may turn up under another one.
    moving: Option<(u32, Vec<u8>)>,
    over: bool,
}

/// An event without the buffer that it lies in.
struct Event {
    watch: i32,
    flags: ReadFlags,
    cookie: u32,
    name: Vec<u8>,
}

impl Watch {
    fn new(path: Vec<u8>, recursive: bool) -> Result<Self, JobError> {
        Ok(Self {
            tree: Tree::new(path, recursive)?,
            changes: Vec::new(),
            changes_bytes: 0,
            found: HashSet::new(),
            moving: None,
            over: false,
        })
    }

    /// Until the host closes the connection, or what is watched is gone.
    fn follow(&mut self, link: &mut Link) -> Outcome {
        let mut buffer = vec![MaybeUninit::uninit(); EVENTS_BYTES];
        loop {
            // Events of what was found were in the queue before it could be found.
            if !self.found.is_empty() && !self.has_events()? {
                self.found.clear();
            }
            let ready = self.wait(link)?;
            if !ready {
                self.move_is_over();
            }
            for event in self.read(&mut buffer)? {
                self.take(&event)?;
                if self.changes_bytes >= CHANGES_BYTES {
                    self.send(link)?;
                }
            }
            self.send(link)?;
            if self.over {
                let path = String::from_utf8_lossy(self.tree.root()).into_owned();
                return Err(JobError::new(FailureKind::NotFound, format!("{path}: gone")));
            }
        }
    }

    /// False: nothing came, and a move is to be given up.
    fn wait(&self, link: &mut Link) -> Result<bool, JobError> {
        let mut descriptors = [
            PollFd::from_borrowed_fd(link.socket(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.tree.inotify(), PollFlags::IN),
        ];
        let deadline = self.moving.as_ref().map(|_| Instant::now() + MOVE_TIME);
        let ready = wait(&mut descriptors, deadline)?;
        if !descriptors[0].revents().is_empty() {
            link.receive_once(RecvFlags::DONTWAIT)?;
            if link.received()?.is_some() {
                return Err(JobError::new(FailureKind::Invalid, "a watch takes no frames"));
            }
        }
        Ok(ready)
    }

    fn has_events(&self) -> Result<bool, JobError> {
        let mut queue = [PollFd::from_borrowed_fd(self.tree.inotify(), PollFlags::IN)];
        wait(&mut queue, Some(Instant::now()))
    }

    /// What one read of the queue gives.
    fn read(&self, buffer: &mut [MaybeUninit<u8>]) -> Result<Vec<Event>, JobError> {
        let mut reader = Reader::new(self.tree.inotify(), buffer);
        let mut events = Vec::new();
        loop {
            match reader.next() {
                Ok(event) => events.push(Event {
                    watch: event.wd(),
                    flags: event.events(),
                    cookie: event.cookie(),
                    name: event.file_name().map(|name| name.to_bytes().to_vec()).unwrap_or_default(),
                }),
                Err(Errno::AGAIN | Errno::INTR) => return Ok(events),
                Err(error) => return Err(JobError::of(error, "cannot read events")),
            }
            if reader.is_buffer_empty() {
                return Ok(events);
            }
        }
    }

    fn take(&mut self, event: &Event) -> Result<(), JobError> {
        if event.flags.contains(ReadFlags::QUEUE_OVERFLOW) {
            return self.start_over();
        }
        let directory = event.flags.contains(ReadFlags::ISDIR);
        let Some(parent) = self.tree.path(event.watch).map(<[u8]>::to_vec) else { return Ok(()) };
        if event.flags.intersects(ReadFlags::DELETE_SELF | ReadFlags::MOVE_SELF | ReadFlags::UNMOUNT) {
            self.is_gone(event.watch);
        }
        if event.flags.contains(ReadFlags::IGNORED) {
            self.is_gone(event.watch);
            self.tree.ignored(event.watch);
        }
        if event.name.is_empty() || !self.tree.wants(&event.name) {
            return Ok(());
        }
        let path = tree::join(&parent, &event.name);
        self.settle_move(event, directory, &path);
        if event.flags.contains(ReadFlags::CREATE) {
            if !self.found.remove(&path) {
                self.tell(ChangeKind::Created, &path);
                if directory {
                    self.look_into(path)?;
                }
            }
        } else if event.flags.contains(ReadFlags::MOVED_TO) {
            self.tell(ChangeKind::Moved, &path);
            if directory && !self.tree.is_watched(&path) {
                self.look_into(path)?;
            }
        } else if event.flags.intersects(ReadFlags::DELETE | ReadFlags::MOVED_FROM) {
            self.found.remove(&path);
            self.tell(ChangeKind::Removed, &path);
        } else if event.flags.intersects(ReadFlags::MODIFY | ReadFlags::CLOSE_WRITE) {
            self.tell(ChangeKind::Written, &path);
        } else if event.flags.contains(ReadFlags::ATTRIB) {
            self.tell(ChangeKind::Attributes, &path);
        }
        Ok(())
    }

    /// A directory that moves within the tree keeps its watches under new names; one that moves out loses
    /// them.
    fn settle_move(&mut self, event: &Event, directory: bool, path: &[u8]) {
        if let Some((cookie, from)) = self.moving.take() {
            if event.flags.contains(ReadFlags::MOVED_TO) && event.cookie == cookie {
                self.tree.rename(&from, path);
            } else {
                self.tree.forget(&from);
            }
        }
        if directory && event.flags.contains(ReadFlags::MOVED_FROM) {
            self.moving = Some((event.cookie, path.to_vec()));
        }
    }

    fn move_is_over(&mut self) {
        if let Some((_, from)) = self.moving.take() {
            self.tree.forget(&from);
        }
    }

    /// What is watched lost its place, when it is the root of it.
    fn is_gone(&mut self, watch: i32) {
        if self.tree.is_root(watch) && !std::mem::replace(&mut self.over, true) {
            let root = self.tree.root().to_vec();
            self.tell(ChangeKind::Removed, &root);
        }
    }

    /// Watches a directory that is new here, and tells what it holds already.
    fn look_into(&mut self, path: Vec<u8>) -> Result<(), JobError> {
        let mut found = Vec::new();
        self.tree.add(path, |path, written| found.push((path.to_vec(), written)))?;
        for (path, written) in found {
            self.tell(ChangeKind::Created, &path);
            if written {
                self.tell(ChangeKind::Written, &path);
            }
            self.found.insert(path);
        }
        Ok(())
    }

    fn start_over(&mut self) -> Result<(), JobError> {
        self.moving = None;
        self.found.clear();
        match self.tree.again() {
            Ok(()) => self.tell(ChangeKind::Lost, b""),
            Err(error) if is_gone(&error) => {
                let root = self.tree.root().to_vec();
                self.tell(ChangeKind::Removed, &root);
                self.over = true;
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Queues a change, unless the last one of that path in the queue says it already.
    fn tell(&mut self, kind: ChangeKind, path: &[u8]) {
        let last = || self.changes.iter().rev().find(|change| change.path == path);
        let repeatable = matches!(kind, ChangeKind::Written | ChangeKind::Attributes | ChangeKind::Lost);
        if repeatable && last().is_some_and(|change| change.kind() == kind) {
            return;
        }
        self.changes_bytes += path.len() + 16;
        self.changes.push(Change { kind: kind.into(), path: Bytes::copy_from_slice(path) });
    }

    fn send(&mut self, link: &mut Link) -> Result<(), JobError> {
        self.changes_bytes = 0;
        let mut bytes = 0;
        let mut frame = Vec::new();
        for change in std::mem::take(&mut self.changes) {
            bytes += change.path.len() + 16;
            frame.push(change);
            if bytes >= CHANGES_BYTES {
                bytes = 0;
                link.send(&GuestJobFrame::Changes(Changes { changes: std::mem::take(&mut frame) }))?;
            }
        }
        if frame.is_empty() { Ok(()) } else { link.send(&GuestJobFrame::Changes(Changes { changes: frame })) }
    }
}

fn is_gone(error: &JobError) -> bool {
    matches!(error, JobError::Failed { kind: FailureKind::NotFound | FailureKind::NotADirectory, .. })
}

/// A new queue of events.
fn queue() -> Result<OwnedFd, JobError> {
    inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)
        .map_err(|error| JobError::of(error, "cannot watch files"))
}

/// Watches `path` with `queue`.
fn add(queue: impl AsFd, path: &[u8], flags: inotify::WatchFlags) -> Result<i32, Errno> {
    inotify::add_watch(queue, path, flags)
}
