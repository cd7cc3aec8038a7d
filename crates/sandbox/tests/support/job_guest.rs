//! The guest's end of one job's connection, played by a test.

use bytes::BytesMut;
use space_guest_proto::job::{
    Done, Entries, Failure, FailureKind, FileInfo, GuestJobFrame, HostJobFrame, Job, Opened,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::UnixStream,
};

use super::{Guest, soon};

pub(crate) struct JobGuest {
    pub(crate) stream: UnixStream,
    incoming: BytesMut,
    pub(crate) user: String,
    pub(crate) job: Job,
}

impl JobGuest {
    /// Takes the next job.
    pub(crate) async fn accept(guest: &mut Guest) -> Self {
        let mut stream = soon(guest.jobs.recv()).await.unwrap();
        stream.write_all(b"OK 1073741825\n").await.unwrap();
        let mut incoming = BytesMut::new();
        let frame = receive(&mut stream, &mut incoming).await.expect("no request");
        let HostJobFrame::Open(open) = frame else { panic!("{frame:?}") };
        assert_eq!(open.protocol, 1);
        Self { stream, incoming, user: open.user, job: open.job.unwrap() }
    }

    /// The next frame; none when the worker has closed.
    pub(crate) async fn receive(&mut self) -> Option<HostJobFrame> {
        receive(&mut self.stream, &mut self.incoming).await
    }

    /// Sends frames in one piece. A worker that has closed meanwhile is no failure here.
    pub(crate) async fn send(&mut self, frames: &[GuestJobFrame]) {
        let mut bytes = BytesMut::new();
        for frame in frames {
            frame.encode(&mut bytes).unwrap();
        }
        drop(soon(self.stream.write_all(&bytes)).await);
    }

    /// Waits until the worker has closed.
    pub(crate) async fn is_left(&mut self) {
        while self.receive().await.is_some() {}
    }

    /// Everything that is written, up to `Finish`; none when it never comes.
    pub(crate) async fn written(&mut self) -> Option<Vec<u8>> {
        let mut data = Vec::new();
        loop {
            match self.receive().await? {
                HostJobFrame::Data(piece) => data.extend(piece),
                HostJobFrame::Finish => return Some(data),
                HostJobFrame::Open(_) => panic!("a second request"),
            }
        }
    }
}

async fn receive(stream: &mut UnixStream, incoming: &mut BytesMut) -> Option<HostJobFrame> {
    loop {
        if let Some(frame) = HostJobFrame::decode(incoming).unwrap() {
            return Some(frame);
        }
        match soon(stream.read_buf(incoming)).await {
            Ok(0) | Err(_) => return None,
            Ok(_more) => {}
        }
    }
}

pub(crate) fn info(path: &str) -> FileInfo {
    FileInfo { path: path.to_owned().into(), file_type: 1, mode: 0o644, version: 7, ..FileInfo::default() }
}

pub(crate) fn opened(info: Option<FileInfo>) -> GuestJobFrame {
    GuestJobFrame::Opened(Box::new(Opened { info }))
}

pub(crate) fn data(bytes: &[u8]) -> GuestJobFrame {
    GuestJobFrame::Data(bytes.to_vec().into())
}

pub(crate) fn entries(paths: &[&str]) -> GuestJobFrame {
    GuestJobFrame::Entries(Entries { entries: paths.iter().map(|path| info(path)).collect() })
}

pub(crate) fn done(done: Done) -> GuestJobFrame {
    GuestJobFrame::Done(Box::new(done))
}

pub(crate) fn done_with(info: FileInfo) -> GuestJobFrame {
    done(Done { info: Some(info), ..Done::default() })
}

pub(crate) fn failed(kind: FailureKind) -> GuestJobFrame {
    let failure = Failure { kind: kind.into(), message: "\u{1b}[2J".to_owned() };
    done(Done { failure: Some(failure), next_offset: 5, ..Done::default() })
}
