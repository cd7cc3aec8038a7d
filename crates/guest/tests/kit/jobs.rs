//! The host's side of a job.

use std::{
    io::{Read, Write},
    os::unix::{ffi::OsStrExt, net::UnixStream},
    path::Path,
};

use bytes::{Bytes, BytesMut};
use space_guest_proto::{
    job::{
        Change, ChangeKind, Done, FailureKind, FileInfo, GuestJobFrame, HostJobFrame, Job, ListDirectory,
        MakeDirectory, MoveFile, OpenJob, OpenTunnel, Opened, ReadArchive, ReadFile, RemoveFile, StatFile,
        Upload, WatchFiles, WriteArchive, WriteFile,
    },
    limits,
};

use super::{Agent, PATIENCE};

/// One connection to the agent's port for jobs.
pub(crate) struct JobClient {
    pub(crate) stream: UnixStream,
    buffer: BytesMut,
}

impl Agent {
    /// A connection on which nothing was said.
    pub(crate) fn job_connection(&self) -> JobClient {
        let stream = UnixStream::connect(self.socket.with_extension("jobs")).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        JobClient { stream, buffer: BytesMut::new() }
    }

    pub(crate) fn job(&self, job: Job) -> JobClient {
        self.job_as("", job)
    }

    pub(crate) fn job_as(&self, user: &str, job: Job) -> JobClient {
        let mut client = self.job_connection();
        client.send(&HostJobFrame::Open(Box::new(OpenJob {
            protocol: 1,
            user: user.to_owned(),
            job: Some(job),
        })));
        client
    }

    /// The result of a job that takes nothing more.
    pub(crate) fn ask(&self, job: Job) -> Result<Done, FailureKind> {
        self.job(job).result()
    }

    pub(crate) fn write(&self, job: WriteFile, content: &[u8]) -> Result<Done, FailureKind> {
        let mut client = self.job(Job::Write(job));
        client.data(content);
        client.finish();
        client.result()
    }

    pub(crate) fn read(&self, job: ReadFile) -> Result<Vec<u8>, FailureKind> {
        self.job(Job::Read(job)).content()
    }
}

impl JobClient {
    pub(crate) fn send(&mut self, frame: &HostJobFrame) {
        let mut bytes = BytesMut::new();
        frame.encode(&mut bytes).unwrap();
        // The agent may have given up before it has read everything; its answer tells.
        self.stream.write_all(&bytes).ok();
    }

    /// In frames as large as they may be.
    pub(crate) fn data(&mut self, content: &[u8]) {
        for data in content.chunks(limits::JOB_DATA_BYTES) {
            self.send(&HostJobFrame::Data(Bytes::copy_from_slice(data)));
        }
    }

    pub(crate) fn finish(&mut self) {
        self.send(&HostJobFrame::Finish);
    }

    /// The next frame. `None`: the agent closed the connection.
    pub(crate) fn next(&mut self) -> Option<GuestJobFrame> {
        loop {
            if let Some(frame) = GuestJobFrame::decode(&mut self.buffer).unwrap() {
                return Some(frame);
            }
            let mut bytes = vec![0; 256 * 1024];
            match self.stream.read(&mut bytes) {
                Ok(0) => return None,
                Ok(read) => self.buffer.extend_from_slice(&bytes[..read]),
                // What the agent did not read any more.
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("{error}"),
            }
        }
    }

    pub(crate) fn receive(&mut self) -> GuestJobFrame {
        self.next().expect("the agent closed the connection")
    }

    pub(crate) fn opened(&mut self) -> Opened {
        match self.receive() {
            GuestJobFrame::Opened(opened) => *opened,
            other => panic!("not opened: {other:?}"),
        }
    }

    /// `Done`, behind whatever else comes; nothing follows it.
    pub(crate) fn done(&mut self) -> Done {
        loop {
            if let GuestJobFrame::Done(done) = self.receive() {
                return *done;
            }
        }
    }

    pub(crate) fn result(&mut self) -> Result<Done, FailureKind> {
        let done = self.done();
        assert_eq!(self.next(), None, "nothing follows Done");
        match &done.failure {
            None => Ok(done),
            Some(failure) => Err(failure.kind()),
        }
    }

    pub(crate) fn content(&mut self) -> Result<Vec<u8>, FailureKind> {
        let mut content = Vec::new();
        loop {
            match self.receive() {
                GuestJobFrame::Opened(_) => {}
                GuestJobFrame::Data(data) => content.extend_from_slice(&data),
                GuestJobFrame::Done(done) => match done.failure {
                    None => return Ok(content),
                    Some(failure) => return Err(failure.kind()),
                },
                other => panic!("not of a read: {other:?}"),
            }
        }
    }

    /// A page of a listing, and whether there is more.
    pub(crate) fn entries(&mut self) -> (Vec<FileInfo>, bool) {
        let mut entries = Vec::new();
        loop {
            match self.receive() {
                GuestJobFrame::Entries(page) => entries.extend(page.entries),
                GuestJobFrame::Done(done) => {
                    assert_eq!(done.failure, None);
                    return (entries, done.more);
                }
                other => panic!("not of a listing: {other:?}"),
            }
        }
    }

    /// Changes of a watch until one that is `last`.
    pub(crate) fn changes_until(&mut self, last: (ChangeKind, &Path)) -> Vec<(ChangeKind, Vec<u8>)> {
        let mut seen = Vec::new();
        loop {
            match self.receive() {
                GuestJobFrame::Changes(changes) => {
                    let known = |change: Change| (change.kind(), change.path.to_vec());
                    seen.extend(changes.changes.into_iter().map(known));
                }
                other => panic!("not of a watch: {other:?}"),
            }
            if seen.contains(&(last.0, last.1.as_os_str().as_bytes().to_vec())) {
                return seen;
            }
        }
    }
}

pub(crate) fn bytes(path: impl AsRef<Path>) -> Bytes {
    Bytes::copy_from_slice(path.as_ref().as_os_str().as_bytes())
}

pub(crate) fn stat(path: impl AsRef<Path>) -> Job {
    Job::Stat(StatFile { path: bytes(path), follow: false })
}

pub(crate) fn list(path: impl AsRef<Path>, depth: u32, after: &[u8], limit: u32) -> Job {
    Job::List(ListDirectory { path: bytes(path), depth, after: Bytes::copy_from_slice(after), limit })
}

pub(crate) fn read(path: impl AsRef<Path>) -> ReadFile {
    ReadFile { path: bytes(path), ..ReadFile::default() }
}

pub(crate) fn write(path: impl AsRef<Path>) -> WriteFile {
    WriteFile { path: bytes(path), ..WriteFile::default() }
}

pub(crate) fn upload(path: impl AsRef<Path>, offset: u64, complete: bool) -> WriteFile {
    let upload = Upload { id: "u1".into(), offset, complete };
    WriteFile { upload: Some(upload), ..write(path) }
}

pub(crate) fn make_directory(path: impl AsRef<Path>, parents: bool) -> Job {
    Job::MakeDirectory(MakeDirectory { path: bytes(path), parents, mode: None })
}

pub(crate) fn move_file(from: impl AsRef<Path>, to: impl AsRef<Path>, replace: bool) -> Job {
    Job::Move(MoveFile { from: bytes(from), to: bytes(to), replace })
}

pub(crate) fn remove(path: impl AsRef<Path>, recursive: bool) -> Job {
    Job::Remove(RemoveFile { path: bytes(path), recursive })
}

pub(crate) fn watch(path: impl AsRef<Path>) -> Job {
    Job::Watch(WatchFiles { path: bytes(path), recursive: true })
}

pub(crate) fn read_archive(path: impl AsRef<Path>) -> Job {
    Job::ReadArchive(ReadArchive { path: bytes(path) })
}

pub(crate) fn write_archive(path: impl AsRef<Path>) -> Job {
    Job::WriteArchive(WriteArchive { path: bytes(path) })
}

pub(crate) fn tunnel(port: u16) -> Job {
    Job::Tunnel(OpenTunnel { port: port.into() })
}
