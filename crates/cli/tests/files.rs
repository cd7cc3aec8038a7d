//! `space cp` and `space files`, against a server that keeps one sandbox's files in memory and breaks when told to.

#![allow(clippy::unwrap_used, reason = "in a test it is the assertion")]

mod kit;

use std::{
    collections::BTreeMap,
    io::Read as _,
    path::Path,
    process::{Output, Stdio},
    sync::{Arc, Mutex},
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::State,
    http::{HeaderMap, Method, StatusCode, Uri, header},
    response::{IntoResponse, Response},
};
use futures::{StreamExt as _, stream};
use kit::{SANDBOX, problem, space};
use serde_json::{Value, json};
use space_api::files::{FromQuery, PlaceQuery, WriteQuery};
use tokio::{io::AsyncWriteExt as _, net::TcpListener};

#[derive(Default)]
struct Disk {
    files: BTreeMap<String, Vec<u8>>,
    /// What is kept of uploads.
    kept: BTreeMap<String, Vec<u8>>,
    directories: Vec<String>,
    archive: Vec<u8>,
    requests: Vec<String>,
    /// Bytes after which the next transfers break, each once.
    breaks: Vec<usize>,
}

#[derive(Clone)]
struct Server {
    url: String,
    disk: Arc<Mutex<Disk>>,
}

impl Server {
    async fn start(disk: Disk) -> Self {
        let disk = Arc::new(Mutex::new(disk));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let router = Router::new().fallback(answer).with_state(Arc::clone(&disk));
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { url, disk }
    }

    async fn space(&self, arguments: &[&str]) -> Output {
        space(&self.url).args(arguments).output().await.unwrap()
    }

    #[track_caller]
    fn asked(&self, count: usize, what: &str) {
        let requests = self.disk.lock().unwrap().requests.clone();
        let found = requests.iter().filter(|request| request.contains(what)).count();
        assert_eq!(found, count, "{what} in {requests:?}");
    }
}

#[track_caller]
fn ok(output: Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn at(path: &str) -> String {
    format!("{SANDBOX}:{path}")
}

fn info(path: &str, kind: &str, size: usize) -> Value {
    json!({ "path": path, "type": kind, "mode": "0640", "uid": 0, "gid": 0, "owner": "root", "size": size,
        "allocated": size, "modified_at": "2026-01-31T07:00:00.000Z", "version": format!("{size:016x}") })
}

fn refusal(code: &str, status: u16, next: Option<usize>) -> Response {
    let mut body = problem(code, status, "refused");
    if let Some(next) = next {
        body["next_offset"] = json!(next);
    }
    (StatusCode::from_u16(status).unwrap(), body.to_string()).into_response()
}

async fn answer(
    State(disk): State<Arc<Mutex<Disk>>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let place = uri.path().split("/files").nth(1).unwrap().to_owned();
    let query = uri.query().unwrap_or_default().to_owned();
    let range = headers.get(header::RANGE).map(|range| range.to_str().unwrap().to_owned());
    disk.lock()
        .unwrap()
        .requests
        .push(format!("{method} {place}?{query} {}", range.clone().unwrap_or_default()));
    match (method.as_str(), place.as_str()) {
        ("GET", "") => stat(&disk.lock().unwrap(), &path_of(&query)),
        ("GET", "/content") => read(&disk, &path_of(&query), range.as_deref()),
        ("PUT", "/content") => write(&disk, &query, body).await,
        ("GET", "/archive") => {
            let archive = disk.lock().unwrap().archive.clone();
            download(&disk, &archive, 0)
        }
        ("PUT", "/archive") if path_of(&query) == "/full" => refusal("file_no_space", 507, None),
        ("PUT", "/archive") => {
            disk.lock().unwrap().archive = axum::body::to_bytes(body, usize::MAX).await.unwrap().to_vec();
            json!({ "entries": 2, "bytes": 6 }).to_string().into_response()
        }
        ("GET", "/entries") => {
            let (items, next) = if query.contains("cursor=more") {
                (vec![info("/d/b\u{1b}[2J", "directory", 0)], None)
            } else {
                (vec![info("/d/a", "file", 7)], Some("more"))
            };
            json!({ "items": items, "next_cursor": next }).to_string().into_response()
        }
        ("POST", "/directories" | "/move") => info("/made", "directory", 0).to_string().into_response(),
        ("DELETE", "") => StatusCode::NO_CONTENT.into_response(),
        ("GET", "/watch") => {
            let events = "event: watching\ndata: {}\n\nevent: change\ndata: {\"kind\":\"written\",\"path\":\"/d/a\"}\n\n\
                event: lost\ndata: {}\n\n";
            ([(header::CONTENT_TYPE, "text/event-stream")], events).into_response()
        }
        (method, place) => panic!("not expected: {method} {place}"),
    }
}

fn path_of(query: &str) -> String {
    let query: String = query.split('&').filter(|pair| pair.starts_with("path=")).collect();
    PlaceQuery::from_query(&query).unwrap().path.to_string()
}

fn stat(disk: &Disk, path: &str) -> Response {
    if disk.directories.iter().any(|directory| directory == path) {
        return info(path, "directory", 0).to_string().into_response();
    }
    match disk.files.get(path) {
        Some(content) => info(path, "file", content.len()).to_string().into_response(),
        None => refusal("file_not_found", 404, None),
    }
}

fn read(disk: &Arc<Mutex<Disk>>, path: &str, range: Option<&str>) -> Response {
    let Some(content) = disk.lock().unwrap().files.get(path).cloned() else {
        return refusal("file_not_found", 404, None);
    };
    let first = range.and_then(|range| range.strip_prefix("bytes=")?.strip_suffix('-')?.parse().ok());
    download(disk, &content, first.unwrap_or(0))
}

/// The bytes from `first` on, or some of them and a broken connection.
fn download(disk: &Arc<Mutex<Disk>>, content: &[u8], first: usize) -> Response {
    let (size, rest) = (content.len(), content[first..].to_vec());
    let broken = disk.lock().unwrap().breaks.pop();
    let pieces: Vec<Result<Bytes, std::io::Error>> = match broken {
        Some(after) => vec![Ok(rest[..after].to_vec().into()), Err(std::io::Error::other("on purpose"))],
        None => vec![Ok(rest.into())],
    };
    // A server flushes when a body has nothing ready; only then has the client seen the rest.
    let pieces = stream::iter(pieces).then(|piece| async {
        tokio::task::yield_now().await;
        piece
    });
    let fields = [
        (header::ETAG, format!("\"{size:016x}\"")),
        (header::CONTENT_LENGTH, (size - first).to_string()),
        (header::CONTENT_RANGE, format!("bytes {first}-{}/{size}", size.saturating_sub(1))),
    ];
    let status = if first == 0 { StatusCode::OK } else { StatusCode::PARTIAL_CONTENT };
    (status, fields, Body::from_stream(pieces)).into_response()
}

async fn write(disk: &Arc<Mutex<Disk>>, query: &str, body: Body) -> Response {
    let query = WriteQuery::from_query(query).unwrap();
    let path = query.path.to_string();
    if disk.lock().unwrap().directories.contains(&path) {
        return refusal("file_is_a_directory", 409, None);
    }
    let mut content = Vec::new();
    if let Some(upload) = &query.upload {
        let kept = disk.lock().unwrap().kept.get(&upload.id).cloned().unwrap_or_default();
        if upload.offset != kept.len() as u64 {
            return refusal("upload_offset", 409, Some(kept.len()));
        }
        content = kept;
    }
    let is_probe = query.upload.as_ref().is_some_and(|upload| !upload.complete);
    let broken = if is_probe { None } else { disk.lock().unwrap().breaks.pop() };
    let mut body = body.into_data_stream();
    while let Some(piece) = body.next().await {
        content.extend(piece.unwrap());
        if let Some((after, upload)) =
            broken.zip(query.upload.as_ref()).filter(|(after, _)| content.len() >= *after)
        {
            content.truncate(after);
            disk.lock().unwrap().kept.insert(upload.id.clone(), content);
            return refusal("unavailable", 503, None);
        }
    }
    if let (true, Some(upload)) = (is_probe, &query.upload) {
        return json!({ "next_offset": upload.offset }).to_string().into_response();
    }
    let answer = info(&path, "file", content.len()).to_string();
    disk.lock().unwrap().files.insert(path, content);
    (StatusCode::CREATED, answer).into_response()
}

fn noise(bytes: u32) -> Vec<u8> {
    (0..bytes).map(|n| n.wrapping_mul(2_654_435_761).to_be_bytes()[0]).collect()
}

fn holding(path: &str, content: &[u8]) -> Disk {
    Disk { files: BTreeMap::from([(path.to_owned(), content.to_vec())]), ..Disk::default() }
}

fn names(directory: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[tokio::test]
async fn a_download_that_breaks_goes_on_where_it_broke() {
    use std::os::unix::fs::PermissionsExt as _;
    let content = noise(300_000);
    let server = Server::start(Disk { breaks: vec![50_000, 100_000], ..holding("/f", &content) }).await;
    let here = tempfile::tempdir().unwrap();
    let target = here.path().join("out");
    ok(server.space(&["cp", &at("/f"), target.to_str().unwrap()]).await);
    assert!(std::fs::read(&target).unwrap() == content);
    assert_eq!(std::fs::metadata(&target).unwrap().permissions().mode() & 0o777, 0o640);
    assert_eq!(names(here.path()), ["out"]);
    server.asked(1, "bytes=100000-");
    server.asked(1, "bytes=150000-");
}

#[tokio::test]
async fn what_an_earlier_call_left_is_continued() {
    let content = noise(1000);
    let server = Server::start(holding("/f", &content)).await;
    let here = tempfile::tempdir().unwrap();
    std::fs::write(here.path().join(format!("f.{:016x}.part", 1000)), &content[..400]).unwrap();
    // An existing directory is copied into.
    ok(server.space(&["cp", &at("/f"), here.path().to_str().unwrap()]).await);
    assert!(std::fs::read(here.path().join("f")).unwrap() == content);
    server.asked(1, "bytes=400-");
}

#[tokio::test]
async fn standard_output_gets_each_byte_once() {
    let content = noise(100_000);
    let server = Server::start(Disk { breaks: vec![10_000], ..holding("/f", &content) }).await;
    let output = server.space(&["cp", &at("/f"), "-"]).await;
    assert!(output.status.success() && output.stdout == content);
}

#[tokio::test]
async fn an_upload_that_breaks_goes_on_where_it_broke() {
    let content = noise(3 << 20);
    let server = Server::start(Disk { breaks: vec![1_500_000], ..Disk::default() }).await;
    let here = tempfile::tempdir().unwrap();
    let source = here.path().join("large");
    std::fs::write(&source, &content).unwrap();
    let said = ok(server.space(&["cp", "--json", source.to_str().unwrap(), &at("/in")]).await);
    assert_eq!(serde_json::from_str::<Value>(&said).unwrap()["size"], 3 << 20);
    assert!(server.disk.lock().unwrap().files["/in"] == content);
    server.asked(1, "offset=1500000");
}

#[tokio::test]
async fn a_small_file_takes_one_request_and_goes_into_a_directory() {
    let server = Server::start(Disk { directories: vec!["/d".to_owned()], ..Disk::default() }).await;
    let here = tempfile::tempdir().unwrap();
    let source = here.path().join("small");
    std::fs::write(&source, "hello").unwrap();
    let source = source.to_str().unwrap();
    ok(server.space(&["cp", "--mode", "600", source, &at("/x/")]).await);
    server.asked(1, "PUT /content?path=/x//small&mode=0600");
    ok(server.space(&["cp", source, &at("/d")]).await);
    assert_eq!(server.disk.lock().unwrap().files["/d/small"], b"hello");
}

#[tokio::test]
async fn standard_input_becomes_a_file() {
    let server = Server::start(Disk::default()).await;
    let mut child = space(&server.url).args(["cp", "-", &at("/in")]).stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"piped").await.unwrap();
    assert!(child.wait().await.unwrap().success());
    assert_eq!(server.disk.lock().unwrap().files["/in"], b"piped");
}

#[tokio::test]
async fn a_directory_goes_there_and_back_as_an_archive() {
    let server = Server::start(Disk { directories: vec!["/d".to_owned()], ..Disk::default() }).await;
    let here = tempfile::tempdir().unwrap();
    let source = here.path().join("tree");
    std::fs::create_dir_all(source.join("deep")).unwrap();
    std::fs::write(source.join("deep/file"), "inside").unwrap();
    std::os::unix::fs::symlink("deep/file", source.join("link")).unwrap();
    ok(server.space(&["cp", source.to_str().unwrap(), &at("/d")]).await);
    let back = here.path().join("back");
    ok(server.space(&["cp", &at("/d"), back.to_str().unwrap()]).await);
    assert_eq!(std::fs::read_to_string(back.join("link")).unwrap(), "inside");
    assert_eq!(std::fs::read_link(back.join("link")).unwrap(), Path::new("deep/file"));
    let mut file = String::new();
    std::fs::File::open(back.join("deep/file")).unwrap().read_to_string(&mut file).unwrap();
    assert_eq!(file, "inside");
}

#[tokio::test]
async fn a_directory_that_is_refused_before_it_is_read_is_not_waited_for() {
    let server = Server::start(Disk::default()).await;
    let here = tempfile::tempdir().unwrap();
    // More than all that the connection may hold.
    std::fs::File::create(here.path().join("large")).unwrap().set_len(256 << 20).unwrap();
    let output = server.space(&["cp", here.path().to_str().unwrap(), &at("/full")]).await;
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("file_no_space"));
    server.asked(1, "PUT /archive");
}

#[tokio::test]
async fn an_archive_can_not_write_elsewhere() {
    let mut archive = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_size(4);
    header.as_gnu_mut().unwrap().name[..9].copy_from_slice(b"../escape");
    header.set_cksum();
    archive.append(&header, &b"evil"[..]).unwrap();
    let archive = archive.into_inner().unwrap();
    let server = Server::start(Disk { directories: vec!["/d".to_owned()], archive, ..Disk::default() }).await;
    let here = tempfile::tempdir().unwrap();
    let output = server.space(&["cp", &at("/d"), here.path().join("out").to_str().unwrap()]).await;
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("outside of it"));
    assert_eq!(names(here.path()), ["out"]);
}

#[tokio::test]
async fn a_directory_that_breaks_off_is_an_error() {
    let mut archive = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_size(40_000);
    archive.append_data(&mut header, "file", &noise(40_000)[..]).unwrap();
    let archive = archive.into_inner().unwrap();
    let breaks = vec![20_000];
    let server =
        Server::start(Disk { directories: vec!["/d".to_owned()], archive, breaks, ..Disk::default() }).await;
    let here = tempfile::tempdir().unwrap();
    let output = server.space(&["cp", &at("/d"), here.path().join("out").to_str().unwrap()]).await;
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("broke off"));
}

#[tokio::test]
async fn two_sides_of_a_kind_and_what_is_not_there_are_told() {
    let server = Server::start(Disk::default()).await;
    for sides in [[at("/a"), at("/b")], ["a".to_owned(), "b".to_owned()]] {
        let output = server.space(&["cp", &sides[0], &sides[1]]).await;
        assert_eq!(output.status.code(), Some(1));
        assert!(String::from_utf8_lossy(&output.stderr).contains("hint: "));
    }
    let output = server.space(&["cp", &at("/no"), "-"]).await;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    insta::assert_snapshot!(said, @r"
    space: refused (file_not_found)
      hint: `space files ls` shows what there is; relative paths begin at the user's home
    ");
}

#[tokio::test]
async fn files_are_listed_over_all_pages_and_can_not_drive_the_terminal() {
    let server = Server::start(holding("/f", b"1234567")).await;
    let listed = ok(server.space(&["files", "ls", &at("/d")]).await);
    let told = ok(server.space(&["files", "stat", &at("/f")]).await);
    insta::assert_snapshot!(format!("{listed}\n{told}"));
    let json = ok(server.space(&["files", "ls", "--json", &at("/d")]).await);
    assert_eq!(json.lines().count(), 2);
}

#[tokio::test]
async fn directories_are_made_and_files_moved_and_removed() {
    let server = Server::start(Disk::default()).await;
    ok(server.space(&["files", "mkdir", "-p", &at("/d")]).await);
    ok(server.space(&["files", "mv", &at("/d"), "/e"]).await);
    ok(server.space(&["files", "rm", "-r", "--user", "root", &at("/e")]).await);
    server.asked(1, "POST /directories");
    server.asked(1, "POST /move");
    server.asked(1, "DELETE ?path=/e&user=root&recursive=true");
}

#[tokio::test]
async fn a_watch_shows_what_happens_until_it_is_lost() {
    let server = Server::start(Disk::default()).await;
    let output = server.space(&["files", "watch", &at("/d")]).await;
    assert_eq!(output.status.code(), Some(1));
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(shown, "written    /d/a\nlost       more happened than could be told\n");
}
