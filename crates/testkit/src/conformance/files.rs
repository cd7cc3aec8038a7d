//! `Files`: what is written is read, whole or in part, and what the kernel refuses has its word.

use space_node_proto::files::{
    FileInfo, FileType, ListFilesRequest, MakeDirectoryRequest, MoveFileRequest, OpenWrite, Place,
    ReadFileRequest, RemoveFileRequest, StatFileRequest, Upload, WriteFileReply, WriteFileRequest,
};
use tonic::{Code, Status};

use super::{Running, cases, fails, refuses, within};

const WORD: &str = "space-file";

pub(super) async fn run(running: &Running) {
    cases!(
        running;
        a_file_comes_back_as_it_was_written,
        a_directory_is_listed_in_order_and_in_pages,
        an_upload_goes_on_where_it_stopped,
        a_write_without_its_end_leaves_nothing,
        what_the_kernel_refuses_has_its_word,
    );
}

async fn a_file_comes_back_as_it_was_written(running: &Running) {
    let content: Vec<u8> = (0..100_000_u32).map(|number| number.to_le_bytes()[0]).collect();
    let open = OpenWrite { parents: true, mode: Some(0o640), ..to(running, "/tmp/round/trip") };
    let written = write(running, open, &content, true).await.unwrap_or_else(fails).info.unwrap_or_default();
    assert_eq!((written.size, written.mode, written.r#type()), (100_000, 0o640, FileType::File));
    assert_eq!(written.path, b"/tmp/round/trip");
    let told = stat(running, "/tmp/round/trip").await.unwrap_or_else(fails);
    assert_eq!(told.version, written.version, "nothing has changed since");
    let (info, read) = read(running, "/tmp/round/trip", 0, None).await.unwrap_or_else(fails);
    assert_eq!(info.size, 100_000);
    assert!(read == content, "{} bytes came back", read.len());
    let part = self::read(running, "/tmp/round/trip", 99_990, Some(5)).await.unwrap_or_else(fails).1;
    assert_eq!(part, content[99_990..99_995]);
    assert_eq!(self::read(running, "/tmp/round/trip", 100_000, None).await.unwrap_or_else(fails).1, b"");

    write(running, to(running, "/tmp/round/trip"), b"shorter", true).await.unwrap_or_else(fails);
    let replaced = stat(running, "/tmp/round/trip").await.unwrap_or_else(fails);
    assert_eq!((replaced.size, replaced.mode), (7, 0o640), "it keeps the mode of what it replaces");
    assert_ne!(replaced.version, written.version);
    let moved = rename(running, "/tmp/round/trip", "/tmp/round/back", false).await.unwrap_or_else(fails);
    assert_eq!((moved.path.as_slice(), moved.size), (&b"/tmp/round/back"[..], 7));
    let gone = stat(running, "/tmp/round/trip").await;
    refuses(gone, Code::NotFound, Some((WORD, "not_found")));
    remove(running, "/tmp/round", true).await.unwrap_or_else(fails);
    refuses(stat(running, "/tmp/round").await, Code::NotFound, Some((WORD, "not_found")));
}

async fn a_directory_is_listed_in_order_and_in_pages(running: &Running) {
    make(running, "/tmp/list/b", true).await.unwrap_or_else(fails);
    for name in ["a.b", "a", "b/c", "d"] {
        let path = format!("/tmp/list/{name}");
        write(running, to(running, &path), b"", true).await.unwrap_or_else(fails);
    }
    let names = ["a", "a.b", "b", "b/c", "d"].map(|name| format!("/tmp/list/{name}"));
    let (all, more) = list(running, "/tmp/list", 2, "", 100).await.unwrap_or_else(fails);
    assert_eq!((all.as_slice(), more), (names.as_slice(), false));
    let (first, more) = list(running, "/tmp/list", 2, "", 3).await.unwrap_or_else(fails);
    assert_eq!((first.as_slice(), more), (&names[..3], true));
    let (next, more) = list(running, "/tmp/list", 2, "b", 3).await.unwrap_or_else(fails);
    assert_eq!((next.as_slice(), more), (&names[3..], false));
    let (flat, _) = list(running, "/tmp/list", 1, "", 100).await.unwrap_or_else(fails);
    assert_eq!(flat, ["a", "a.b", "b", "d"].map(|name| format!("/tmp/list/{name}")));
    remove(running, "/tmp/list", true).await.unwrap_or_else(fails);
}

async fn an_upload_goes_on_where_it_stopped(running: &Running) {
    let part = |offset, complete| {
        let upload = Some(Upload { id: "upload-1".to_owned(), offset, complete });
        OpenWrite { upload, ..to(running, "/tmp/upload") }
    };
    let kept = write(running, part(0, false), b"one ", true).await.unwrap_or_else(fails);
    assert_eq!((kept.next_offset, kept.info), (4, None));
    refuses(stat(running, "/tmp/upload").await, Code::NotFound, Some((WORD, "not_found")));
    let Err(elsewhere) = write(running, part(9, true), b"x", true).await else { panic!("a hole") };
    assert_eq!(elsewhere.code(), Code::Aborted, "{elsewhere:?}");
    let next = elsewhere.metadata().get("space-next-offset").and_then(|value| value.to_str().ok());
    assert_eq!(next, Some("4"), "{elsewhere:?}");
    write(running, part(4, true), b"two", true).await.unwrap_or_else(fails);
    assert_eq!(read(running, "/tmp/upload", 0, None).await.unwrap_or_else(fails).1, b"one two");
    remove(running, "/tmp/upload", false).await.unwrap_or_else(fails);
}

async fn a_write_without_its_end_leaves_nothing(running: &Running) {
    assert!(write(running, to(running, "/tmp/half"), b"half", false).await.is_err(), "there was no finish");
    refuses(stat(running, "/tmp/half").await, Code::NotFound, Some((WORD, "not_found")));
}

async fn what_the_kernel_refuses_has_its_word(running: &Running) {
    make(running, "/tmp/no", false).await.unwrap_or_else(fails);
    write(running, to(running, "/tmp/no/file"), b"x", true).await.unwrap_or_else(fails);
    let due = |word| Some((WORD, word));
    refuses(make(running, "/tmp/no", false).await, Code::AlreadyExists, due("already_exists"));
    make(running, "/tmp/no", true).await.unwrap_or_else(fails);
    refuses(remove(running, "/tmp/no", false).await, Code::FailedPrecondition, due("not_empty"));
    let onto = write(running, to(running, "/tmp/no"), b"x", true).await;
    refuses(onto, Code::FailedPrecondition, due("is_a_directory"));
    let below = stat(running, "/tmp/no/file/below").await;
    refuses(below, Code::FailedPrecondition, due("not_a_directory"));
    let orphan = write(running, to(running, "/tmp/no/way/here"), b"x", true).await;
    refuses(orphan, Code::NotFound, due("not_found"));
    let exclusive = OpenWrite { exclusive: true, ..to(running, "/tmp/no/file") };
    refuses(write(running, exclusive, b"y", true).await, Code::AlreadyExists, due("already_exists"));
    write(running, to(running, "/tmp/no/other"), b"x", true).await.unwrap_or_else(fails);
    let over = rename(running, "/tmp/no/file", "/tmp/no/other", false).await;
    refuses(over, Code::AlreadyExists, due("already_exists"));
    refuses(list(running, "/tmp/no/file", 1, "", 9).await, Code::FailedPrecondition, due("not_a_directory"));
    refuses(remove(running, "/tmp/none", true).await, Code::NotFound, due("not_found"));
    refuses(stat(running, "").await, Code::InvalidArgument, None);
    refuses(stat(running, "/a\0b").await, Code::InvalidArgument, None);
    refuses(list(running, "/tmp", 0, "", 9).await, Code::InvalidArgument, None);
    refuses(list(running, "/tmp", 1, "", 1001).await, Code::InvalidArgument, None);
    remove(running, "/tmp/no", true).await.unwrap_or_else(fails);
}

fn place(running: &Running, path: &str) -> Place {
    let (sandbox_id, generation) = (running.id.clone(), running.generation);
    Place { sandbox_id, generation, user: String::new(), path: path.as_bytes().to_vec() }
}

fn to(running: &Running, path: &str) -> OpenWrite {
    OpenWrite { place: Some(place(running, path)), ..OpenWrite::default() }
}

async fn stat(running: &Running, path: &str) -> Result<FileInfo, Status> {
    let request = StatFileRequest { place: Some(place(running, path)), follow: false };
    Ok(within(running.files().stat_file(request)).await?.into_inner())
}

async fn list(
    running: &Running,
    path: &str,
    depth: u32,
    after: &str,
    limit: u32,
) -> Result<(Vec<String>, bool), Status> {
    let after = after.as_bytes().to_vec();
    let request = ListFilesRequest { place: Some(place(running, path)), depth, after, limit };
    let reply = within(running.files().list_files(request)).await?.into_inner();
    let paths = reply.entries.iter().map(|entry| String::from_utf8_lossy(&entry.path).into_owned());
    Ok((paths.collect(), reply.more))
}

async fn read(
    running: &Running,
    path: &str,
    offset: u64,
    length: Option<u64>,
) -> Result<(FileInfo, Vec<u8>), Status> {
    let request = ReadFileRequest { place: Some(place(running, path)), offset, length };
    let mut chunks = within(running.files().read_file(request)).await?.into_inner();
    let (mut info, mut content) = (None, Vec::new());
    while let Some(chunk) = within(chunks.message()).await? {
        info = info.or(chunk.info);
        content.extend(chunk.data);
    }
    Ok((info.unwrap_or_default(), content))
}

async fn write(
    running: &Running,
    open: OpenWrite,
    content: &[u8],
    finish: bool,
) -> Result<WriteFileReply, Status> {
    let data = |data: &[u8]| WriteFileRequest { data: data.to_vec(), ..WriteFileRequest::default() };
    let mut requests = vec![WriteFileRequest { open: Some(open), ..WriteFileRequest::default() }];
    requests.extend(content.chunks(32 * 1024).map(data));
    if finish {
        requests.push(WriteFileRequest { finish: true, ..WriteFileRequest::default() });
    }
    Ok(within(running.files().write_file(tokio_stream::iter(requests))).await?.into_inner())
}

async fn make(running: &Running, path: &str, parents: bool) -> Result<FileInfo, Status> {
    let request = MakeDirectoryRequest { place: Some(place(running, path)), parents, mode: None };
    Ok(within(running.files().make_directory(request)).await?.into_inner())
}

async fn rename(running: &Running, from: &str, onto: &str, replace: bool) -> Result<FileInfo, Status> {
    let request =
        MoveFileRequest { place: Some(place(running, from)), to: onto.as_bytes().to_vec(), replace };
    Ok(within(running.files().move_file(request)).await?.into_inner())
}

async fn remove(running: &Running, path: &str, recursive: bool) -> Result<(), Status> {
    let request = RemoveFileRequest { place: Some(place(running, path)), recursive };
    within(running.files().remove_file(request)).await.map(drop)
}
