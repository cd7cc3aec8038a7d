//! Files through the whole worker: gRPC on one side, a guest that the test plays on the other.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that can't go on fails")]

mod support;

use std::time::Duration;

use space_guest_proto::job::{Change, ChangeKind, Changes, Done, FailureKind, FileInfo, GuestJobFrame, Job};
use space_node_proto::{
    files::{
        FileChunk, ListFilesRequest, MakeDirectoryRequest, MoveFileRequest, OpenWrite, Place,
        ReadArchiveRequest, ReadFileRequest, RemoveFileRequest, StatFileRequest, Upload, WatchFilesRequest,
        WriteArchiveRequest, WriteFileRequest, file_change::Kind, files_client::FilesClient,
    },
    worker::from_worker,
};
use support::{
    Guest, PATIENCE, Sockets, TestNode,
    job_guest::{JobGuest, data, done, done_with, entries, failed, info, opened},
    soon,
};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status, Streaming, transport::Channel};

const SANDBOX: &str = "sbx_one";

struct Stage {
    node: TestNode,
    guest: Guest,
    files: FilesClient<Channel>,
}

impl Stage {
    async fn set() -> Self {
        Self::with_deadline(PATIENCE).await
    }

    async fn with_deadline(deadline: Duration) -> Self {
        let sockets = Sockets::default();
        let guest = Guest::start();
        sockets.insert(SANDBOX, guest.socket.clone());
        let mut node = TestNode::start_with(sockets.dial(), deadline).await;
        node.assign(SANDBOX, 1, None);
        let from_worker::Kind::Ready(_) = node.told().await else { panic!("not ready") };
        let files = node.files().await;
        Self { node, guest, files }
    }

    /// What a listing of `/d` becomes when the guest answers with `frames`.
    async fn list(&mut self, frames: &[GuestJobFrame]) -> Result<(usize, bool), Status> {
        let asked = ListFilesRequest { place: place("/d"), depth: 1, after: b"a".to_vec(), limit: 3 };
        let mut files = self.files.clone();
        let play = async {
            let mut job = JobGuest::accept(&mut self.guest).await;
            job.send(frames).await;
            job.is_left().await;
        };
        let (reply, ()) = soon(async { tokio::join!(files.list_files(asked), play) }).await;
        reply.map(|reply| (reply.get_ref().entries.len(), reply.get_ref().more))
    }

    /// What a file becomes that is read with a length of 4, when the guest sends `frames`.
    async fn read(&mut self, frames: &[GuestJobFrame]) -> Result<Vec<u8>, Status> {
        let asked = ReadFileRequest { place: place("/f"), offset: 2, length: Some(4) };
        let mut files = self.files.clone();
        let play = async {
            let mut job = JobGuest::accept(&mut self.guest).await;
            job.send(frames).await;
            job.is_left().await;
        };
        let read = async { gather(files.read_file(asked).await?.into_inner()).await };
        soon(async { tokio::join!(read, play) }).await.0
    }

    async fn stat(&mut self, frames: &[GuestJobFrame]) -> Result<(), Status> {
        let asked = StatFileRequest { place: place("/f"), follow: true };
        let mut files = self.files.clone();
        let play = async {
            let mut job = JobGuest::accept(&mut self.guest).await;
            job.send(frames).await;
            job.is_left().await;
        };
        soon(async { tokio::join!(files.stat_file(asked), play) }).await.0.map(|_reply| ())
    }

    /// Begins a write; what comes through the channel is sent.
    async fn write(
        &mut self,
        open: OpenWrite,
    ) -> (mpsc::Sender<WriteFileRequest>, tokio::task::JoinHandle<Result<u64, Status>>, JobGuest) {
        let (sender, requests) = mpsc::channel(1);
        sender.send(WriteFileRequest { open: Some(open), ..WriteFileRequest::default() }).await.unwrap();
        let mut files = self.files.clone();
        let reply = tokio::spawn(async move {
            let reply = files.write_file(ReceiverStream::new(requests)).await?;
            Ok(reply.into_inner().next_offset)
        });
        (sender, reply, JobGuest::accept(&mut self.guest).await)
    }
}

#[allow(clippy::unnecessary_wraps, reason = "as each request has it")]
fn place(path: &str) -> Option<Place> {
    Some(Place {
        sandbox_id: SANDBOX.to_owned(),
        generation: 1,
        user: "someone".to_owned(),
        path: path.as_bytes().to_vec(),
    })
}

fn open() -> OpenWrite {
    OpenWrite { place: place("/f"), ..OpenWrite::default() }
}

fn piece(data: &[u8], finish: bool) -> WriteFileRequest {
    WriteFileRequest { open: None, data: data.to_vec(), finish }
}

async fn gather(mut stream: Streaming<FileChunk>) -> Result<Vec<u8>, Status> {
    let mut bytes = Vec::new();
    while let Some(chunk) = stream.message().await? {
        bytes.extend(chunk.data);
    }
    Ok(bytes)
}

fn word(status: &Status) -> &str {
    status.metadata().get("space-file").map_or("", |word| word.to_str().unwrap())
}

#[tokio::test]
async fn each_short_operation_reaches_the_guest_as_the_user_and_answers() {
    let mut stage = Stage::set().await;
    let mut files = stage.files.clone();
    let calls = async {
        files.stat_file(StatFileRequest { place: place("/f"), follow: true }).await.unwrap();
        let made = MakeDirectoryRequest { place: place("/d"), parents: true, mode: Some(0o700) };
        files.make_directory(made).await.unwrap();
        let moved = MoveFileRequest { place: place("/f"), to: b"/\xff".to_vec(), replace: true };
        let moved = files.move_file(moved).await.unwrap().into_inner();
        assert_eq!((moved.path.as_slice(), moved.mode, moved.version), (&b"/f"[..], 0o644, 7));
        files.remove_file(RemoveFileRequest { place: place("/d"), recursive: true }).await.unwrap();
    };
    let play = async {
        let mut seen = Vec::new();
        for _ in 0..4 {
            let mut job = JobGuest::accept(&mut stage.guest).await;
            assert_eq!(job.user, "someone");
            job.send(&[done_with(info("/f"))]).await;
            seen.push(job.job);
        }
        seen
    };
    let ((), seen) = soon(async { tokio::join!(calls, play) }).await;
    assert!(matches!(&seen[0], Job::Stat(job) if job.follow));
    assert!(matches!(&seen[1], Job::MakeDirectory(job) if job.parents && job.mode == Some(0o700)));
    assert!(matches!(&seen[2], Job::Move(job) if job.to == b"/\xff"[..] && job.replace));
    assert!(matches!(&seen[3], Job::Remove(job) if job.recursive));
}

#[tokio::test]
async fn what_the_kernel_says_becomes_a_word_and_text_that_obeys_nobody() {
    let mut stage = Stage::set().await;
    let cases = [
        (FailureKind::NotFound, Code::NotFound, "not_found"),
        (FailureKind::Permission, Code::PermissionDenied, "permission"),
        (FailureKind::NoSpace, Code::ResourceExhausted, "no_space"),
        (FailureKind::Unspecified, Code::Unknown, "other"),
        (FailureKind::NotPersonalised, Code::Unavailable, ""),
        (FailureKind::Offset, Code::Aborted, "offset"),
    ];
    for (kind, code, expected) in cases {
        let error = stage.stat(&[failed(kind)]).await.unwrap_err();
        assert_eq!((error.code(), word(&error)), (code, expected));
        assert!(!error.message().contains('\u{1b}'), "{error:?}");
        let next = error.metadata().get("space-next-offset").map(|next| next.to_str().unwrap().to_owned());
        assert_eq!(next, (kind == FailureKind::Offset).then(|| "5".to_owned()));
    }
}

#[tokio::test]
async fn an_agent_without_jobs_is_told_from_one_that_is_gone() {
    let mut stage = Stage::set().await;
    let mut files = stage.files.clone();
    let asked = StatFileRequest { place: place("/f"), follow: true };
    let close = async { drop(stage.guest.jobs.recv().await) };
    let (reply, ()) = soon(async { tokio::join!(files.stat_file(asked), close) }).await;
    let error = reply.unwrap_err();
    assert_eq!((error.code(), word(&error)), (Code::Unimplemented, "unsupported"));
}

#[tokio::test]
async fn requests_that_no_guest_takes_are_refused_here_and_name_the_field() {
    let stage = Stage::set().await;
    let mut files = stage.files.clone();
    let long = "x".repeat(4096);
    for path in ["", "a\0b", long.as_str()] {
        let asked = StatFileRequest { place: place(path), follow: false };
        let error = soon(files.stat_file(asked)).await.unwrap_err();
        assert_eq!(error.code(), Code::InvalidArgument);
        assert!(error.message().contains("path"), "{error:?}");
    }
    let deep = ListFilesRequest { place: place("/"), depth: 65, after: Vec::new(), limit: 1 };
    assert!(soon(files.list_files(deep)).await.unwrap_err().message().contains("depth"));
    let other = Place { sandbox_id: "sbx_two".to_owned(), ..place("/").unwrap() };
    let asked = StatFileRequest { place: Some(other), follow: false };
    let error = soon(files.stat_file(asked)).await.unwrap_err();
    assert_eq!((error.code(), word(&error)), (Code::NotFound, ""));
}

#[tokio::test]
async fn a_listing_passes_and_one_that_lies_does_not() {
    let mut stage = Stage::set().await;
    let more = done(Done { more: true, ..Done::default() });
    let end = done(Done::default());
    let honest = [entries(&["/d/b"]), entries(&["/d/c", "/d/d"]), more.clone()];
    assert_eq!(stage.list(&honest).await.unwrap(), (3, true));
    assert_eq!(stage.list(std::slice::from_ref(&end)).await.unwrap(), (0, false));
    let lies: [&[GuestJobFrame]; 8] = [
        &[entries(&["/d/c", "/d/b"]), end.clone()],
        &[entries(&["/d/b"]), entries(&["/d/b"]), end.clone()],
        &[entries(&["/d/a"]), end.clone()],
        &[entries(&["/etc"]), end.clone()],
        &[entries(&["/d/b", "/d/c", "/d/d", "/d/e"]), end.clone()],
        &[data(b"x"), end.clone()],
        &[more],
        &[end.clone(), entries(&["/d/b"])],
    ];
    for lie in lies {
        let error = stage.list(lie).await.unwrap_err();
        assert_eq!((error.code(), word(&error)), (Code::Unavailable, ""), "{lie:?}");
    }
}

#[tokio::test]
async fn a_file_is_read_and_a_guest_that_lies_about_it_breaks_the_read() {
    let mut stage = Stage::set().await;
    let begin = opened(Some(info("/f")));
    let end = done(Done::default());
    let honest = [begin.clone(), data(b"ab"), data(b"cd"), end.clone()];
    assert_eq!(stage.read(&honest).await.unwrap(), b"abcd");
    assert_eq!(stage.read(&[begin.clone(), end.clone()]).await.unwrap(), b"");
    let absurd = FileInfo { mode: 0o10000, ..info("/f") };
    let lies: [&[GuestJobFrame]; 6] = [
        &[begin.clone(), data(b"ab"), data(b"cde"), end.clone()],
        &[begin.clone(), begin.clone(), end.clone()],
        &[data(b"ab"), end.clone()],
        &[opened(None), end.clone()],
        &[opened(Some(absurd)), end.clone()],
        &[begin.clone(), end.clone(), data(b"ab")],
    ];
    for lie in lies {
        let error = stage.read(lie).await.unwrap_err();
        assert_eq!(error.code(), Code::Unavailable, "{lie:?}");
    }
    // A lie ends its own job and nothing else.
    assert_eq!(stage.read(&[begin, end]).await.unwrap(), b"");
}

#[tokio::test]
async fn a_read_that_breaks_in_the_middle_fails_and_is_no_short_file() {
    let mut stage = Stage::set().await;
    let begin = opened(Some(info("/f")));
    let error = stage.read(&[begin.clone(), data(b"ab"), failed(FailureKind::NoSpace)]).await.unwrap_err();
    assert_eq!(word(&error), "no_space");
    let asked = ReadFileRequest { place: place("/f"), offset: 0, length: None };
    let mut stream = {
        let mut files = stage.files.clone();
        let play = async {
            let mut job = JobGuest::accept(&mut stage.guest).await;
            job.send(&[begin, data(b"ab")]).await;
        };
        soon(async { tokio::join!(files.read_file(asked), play) }).await.0.unwrap().into_inner()
    };
    assert!(soon(stream.message()).await.unwrap().unwrap().info.is_some());
    let rest = soon(gather(stream)).await;
    assert_eq!(rest.unwrap_err().code(), Code::Unavailable);
}

#[tokio::test]
async fn a_reader_that_does_not_read_stops_the_guest_and_one_that_leaves_closes_it() {
    let stage = Stage::set().await;
    let mut files = stage.files.clone();
    let asked = ReadFileRequest { place: place("/f"), offset: 0, length: None };
    let (stalled, is_stalled) = tokio::sync::oneshot::channel();
    let mut job_guest = stage.guest;
    let play = tokio::spawn(async move {
        let mut job = JobGuest::accept(&mut job_guest).await;
        job.send(&[opened(Some(info("/f")))]).await;
        let mut frame = bytes::BytesMut::new();
        data(&vec![7; 60_000]).encode(&mut frame).unwrap();
        let mut sent = 0;
        // What nobody takes for so long is held back: all windows together are far smaller than what follows.
        while sent < 1 << 30 {
            let write = tokio::io::AsyncWriteExt::write_all(&mut job.stream, &frame);
            match tokio::time::timeout(Duration::from_millis(500), write).await {
                Ok(written) => written.unwrap(),
                Err(_elapsed) => break,
            }
            sent += frame.len();
        }
        stalled.send(sent).unwrap();
        job.is_left().await;
    });
    let stream = soon(files.read_file(asked)).await.unwrap().into_inner();
    let sent = soon(is_stalled).await.unwrap();
    assert!(sent < 16 << 20, "{sent} bytes were buffered");
    drop(stream);
    soon(play).await.unwrap();
}

#[tokio::test]
async fn a_file_is_written_in_the_order_of_its_pieces() {
    let mut stage = Stage::set().await;
    let asked = OpenWrite { mode: Some(0o600), exclusive: true, owner: "a:b".to_owned(), ..open() };
    let (sender, reply, mut job) = stage.write(asked).await;
    assert!(
        matches!(&job.job, Job::Write(job) if job.mode == Some(0o600) && job.exclusive && job.owner == "a:b")
    );
    job.send(&[opened(None)]).await;
    let large = vec![3; 64 * 1024];
    let feed = async {
        sender.send(piece(b"first ", false)).await.unwrap();
        sender.send(piece(&large, false)).await.unwrap();
        sender.send(piece(b" last", true)).await.unwrap();
    };
    let ((), written) = soon(async { tokio::join!(feed, job.written()) }).await;
    assert_eq!(written.unwrap(), [b"first ", large.as_slice(), b" last"].concat());
    job.send(&[done_with(info("/f"))]).await;
    soon(reply).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_write_whose_source_breaks_off_is_never_finished() {
    let mut stage = Stage::set().await;
    // The stream ends without saying that it is complete.
    let (sender, reply, mut job) = stage.write(open()).await;
    job.send(&[opened(None)]).await;
    sender.send(piece(b"half", false)).await.unwrap();
    drop(sender);
    assert_eq!(job.written().await, None);
    assert_eq!(soon(reply).await.unwrap().unwrap_err().code(), Code::Cancelled);
    // The call is dropped.
    let (sender, reply, mut job) = stage.write(open()).await;
    job.send(&[opened(None)]).await;
    sender.send(piece(b"half", false)).await.unwrap();
    reply.abort();
    drop(sender);
    assert_eq!(job.written().await, None);
}

#[tokio::test]
async fn a_guest_that_gives_up_is_heard_while_the_client_is_silent() {
    let mut stage = Stage::set().await;
    let (sender, reply, mut job) = stage.write(open()).await;
    job.send(&[opened(None)]).await;
    sender.send(piece(b"half", false)).await.unwrap();
    job.send(&[failed(FailureKind::NoSpace)]).await;
    assert_eq!(word(&soon(reply).await.unwrap().unwrap_err()), "no_space");
}

#[tokio::test]
async fn an_early_success_and_a_kept_upload_of_another_length_are_lies() {
    let mut stage = Stage::set().await;
    let (_sender, reply, mut job) = stage.write(open()).await;
    job.send(&[opened(None), done_with(info("/f"))]).await;
    assert_eq!(soon(reply).await.unwrap().unwrap_err().code(), Code::Unavailable);
    for (told, accepted) in [(14, true), (13, false)] {
        let upload = Upload { id: "u".to_owned(), offset: 10, complete: false };
        let (sender, reply, mut job) = stage.write(OpenWrite { upload: Some(upload), ..open() }).await;
        job.send(&[opened(None)]).await;
        sender.send(piece(b"more", true)).await.unwrap();
        job.written().await.unwrap();
        job.send(&[done(Done { next_offset: told, ..Done::default() })]).await;
        assert_eq!(soon(reply).await.unwrap().is_ok(), accepted);
    }
}

#[tokio::test]
async fn a_watch_begins_and_tells_what_happens_and_a_change_that_is_none_ends_it() {
    let mut stage = Stage::set().await;
    let mut files = stage.files.clone();
    let asked = WatchFilesRequest { place: place("/d"), recursive: true };
    let play = async {
        let mut job = JobGuest::accept(&mut stage.guest).await;
        job.send(&[opened(None)]).await;
        job
    };
    let (stream, mut job) = soon(async { tokio::join!(files.watch_files(asked), play) }).await;
    let mut stream = stream.unwrap().into_inner();
    assert!(soon(stream.message()).await.unwrap().unwrap().changes.is_empty());
    let change = |kind: ChangeKind, path: &'static str| Change { kind: kind.into(), path: path.into() };
    let told = vec![change(ChangeKind::Created, "/d/a"), change(ChangeKind::Lost, "")];
    job.send(&[GuestJobFrame::Changes(Changes { changes: told })]).await;
    let changes = soon(stream.message()).await.unwrap().unwrap().changes;
    assert_eq!((changes[0].kind(), changes[0].path.as_slice()), (Kind::Created, &b"/d/a"[..]));
    assert_eq!(changes[1].kind(), Kind::Lost);
    let lie = vec![change(ChangeKind::Unspecified, "/d/a")];
    job.send(&[GuestJobFrame::Changes(Changes { changes: lie })]).await;
    assert_eq!(soon(stream.message()).await.unwrap_err().code(), Code::Unavailable);
    job.is_left().await;
}

#[tokio::test]
async fn archives_pass_in_both_directions() {
    let mut stage = Stage::set().await;
    let mut files = stage.files.clone();
    let play = async {
        let mut job = JobGuest::accept(&mut stage.guest).await;
        job.send(&[opened(None), data(b"tar"), done(Done::default())]).await;
    };
    let read = async {
        let asked = ReadArchiveRequest { place: place("/d") };
        gather(files.read_archive(asked).await.unwrap().into_inner()).await.unwrap()
    };
    assert_eq!(soon(async { tokio::join!(read, play) }).await.0, b"tar");
    let play = async {
        let mut job = JobGuest::accept(&mut stage.guest).await;
        job.send(&[opened(None)]).await;
        assert_eq!(job.written().await.unwrap(), b"tar");
        job.send(&[done(Done { entries: 2, bytes: 9, ..Done::default() })]).await;
    };
    let all = WriteArchiveRequest { place: place("/d"), data: b"tar".to_vec(), finish: true };
    let write = files.write_archive(tokio_stream::iter([all]));
    let reply = soon(async { tokio::join!(write, play) }).await.0.unwrap().into_inner();
    assert_eq!((reply.entries, reply.bytes), (2, 9));
}

#[tokio::test]
async fn a_guest_that_says_nothing_is_given_up() {
    let mut stage = Stage::with_deadline(Duration::from_secs(1)).await;
    assert_eq!(stage.stat(&[]).await.unwrap_err().code(), Code::Unavailable);
    let begin = opened(Some(info("/f")));
    assert_eq!(stage.read(&[begin]).await.unwrap_err().code(), Code::Unavailable);
}

#[tokio::test]
async fn a_sandbox_has_room_for_so_many_jobs_and_gives_it_back() {
    let mut stage = Stage::set().await;
    let mut watches = Vec::new();
    let mut jobs = Vec::new();
    for _ in 0..space_sandbox::limits::JOBS {
        let mut files = stage.files.clone();
        let asked = WatchFilesRequest { place: place("/d"), recursive: false };
        let play = async {
            let mut job = JobGuest::accept(&mut stage.guest).await;
            job.send(&[opened(None)]).await;
            job
        };
        let (watch, job) = soon(async { tokio::join!(files.watch_files(asked), play) }).await;
        watches.push(watch.unwrap());
        jobs.push(job);
    }
    let asked = StatFileRequest { place: place("/f"), follow: true };
    let error = soon(stage.files.clone().stat_file(asked)).await.unwrap_err();
    assert_eq!((error.code(), word(&error)), (Code::ResourceExhausted, "exhausted"));
    drop(watches);
    jobs.pop().unwrap().is_left().await;
    stage.stat(&[done_with(info("/f"))]).await.unwrap();
}

#[tokio::test]
async fn a_released_sandbox_ends_its_jobs() {
    let mut stage = Stage::set().await;
    let mut files = stage.files.clone();
    let asked = WatchFilesRequest { place: place("/d"), recursive: false };
    let play = async {
        let mut job = JobGuest::accept(&mut stage.guest).await;
        job.send(&[opened(None)]).await;
        job
    };
    let (stream, mut job) = soon(async { tokio::join!(files.watch_files(asked), play) }).await;
    let mut stream = stream.unwrap().into_inner();
    soon(stream.message()).await.unwrap();
    stage.node.release(SANDBOX);
    assert_eq!(soon(stream.message()).await.unwrap_err().code(), Code::Unavailable);
    job.is_left().await;
}
