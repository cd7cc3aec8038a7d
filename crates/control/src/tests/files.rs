//! Files of a sandbox, from the public API to a simulated worker with a real directory.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use futures::{StreamExt as _, stream};
use reqwest::{Body, Method};
use serde_json::{Value, json};
use space_testkit::sim::SimNode;

use super::kit::{Answer, Client, World};

const PIECE: usize = 64 * 1024;

/// One sandbox that runs.
struct Stage {
    world: World,
    node: SimNode,
    sandbox: String,
}

impl Stage {
    async fn set() -> Self {
        let world = World::start().await;
        let node = world.node().await;
        let sandbox = world.running().await;
        Self { world, node, sandbox }
    }

    fn path(&self, rest: &str) -> String {
        format!("/v1/sandboxes/{}/files{rest}", self.sandbox)
    }

    fn request(&self, method: Method, rest: &str) -> reqwest::RequestBuilder {
        self.world.admin.request(method, &self.path(rest))
    }

    async fn get(&self, rest: &str) -> Answer {
        self.world.admin.get(&self.path(rest)).await
    }

    async fn put(&self, rest: &str, body: impl Into<Body>) -> Answer {
        Client::send(self.request(Method::PUT, rest).body(body)).await
    }

    async fn post(&self, rest: &str, body: Value) -> Answer {
        self.world.admin.post(&self.path(rest), &body).await
    }

    /// The file's bytes, with these headers in the request.
    async fn read(&self, rest: &str, headers: &[(&str, &str)]) -> reqwest::Response {
        let request = self.request(Method::GET, &format!("/content?path={rest}"));
        headers
            .iter()
            .fold(request, |request, (name, value)| request.header(*name, *value))
            .send()
            .await
            .unwrap()
    }

    /// Waits until the sandbox's disk holds exactly these names below `/root`.
    async fn holds(&self, names: &[&str]) {
        let home = self.node.files(&self.sandbox).unwrap().join("root");
        let end = tokio::time::Instant::now() + super::kit::PATIENCE;
        loop {
            let mut found: Vec<String> = std::fs::read_dir(&home)
                .unwrap()
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .collect();
            found.sort();
            if found == names {
                return;
            }
            assert!(tokio::time::Instant::now() < end, "{found:?}, not {names:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// A body of `pieces` pieces, and how many of them were taken.
fn counted(pieces: usize) -> (Body, Arc<AtomicUsize>) {
    let taken = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&taken);
    let pieces = stream::iter(0..pieces).map(move |_| {
        count.fetch_add(1, Ordering::Relaxed);
        Ok::<_, io::Error>(Bytes::from(vec![5; PIECE]))
    });
    (Body::wrap_stream(pieces), taken)
}

/// A body that begins and then breaks.
fn broken() -> Body {
    let pieces = [Ok(Bytes::from_static(b"half")), Err(io::Error::other("broken on purpose"))];
    // The first piece has to be on its way before the connection breaks.
    let pieces = stream::iter(pieces).then(|piece| async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        piece
    });
    Body::wrap_stream(pieces)
}

#[tokio::test]
async fn a_file_is_written_told_read_moved_and_removed() {
    let stage = Stage::set().await;
    let written = stage.put("/content?path=notes.txt&mode=600", "hello").await.expect(201);
    assert_eq!(
        (&written["path"], &written["mode"], &written["size"]),
        (&json!("/root/notes.txt"), &json!("0600"), &json!(5))
    );
    let told = stage.get("?path=/root/notes.txt").await.expect(200);
    assert_eq!((&told["type"], &told["version"]), (&json!("file"), &written["version"]));
    let response = stage.read("notes.txt", &[]).await;
    assert_eq!(response.status(), 200);
    let header = |name: &str| response.headers()[name].to_str().unwrap().to_owned();
    assert_eq!(header("etag"), format!("\"{}\"", written["version"].as_str().unwrap()));
    assert_eq!(header("content-length"), "5");
    assert_eq!(header("content-type"), "application/octet-stream");
    assert_eq!(header("x-content-type-options"), "nosniff");
    assert_eq!(header("accept-ranges"), "bytes");
    assert!(header("content-disposition").starts_with("attachment; filename=\"notes.txt\""));
    assert!(header("last-modified").ends_with(" GMT"));
    assert_eq!(response.text().await.unwrap(), "hello");
    let moved = stage.post("/move", json!({"from": "notes.txt", "to": "/root/b"})).await.expect(200);
    assert_eq!(moved["path"], "/root/b");
    stage.get("?path=notes.txt").await.problem(404, "file_not_found");
    let delete = stage.path("?path=b");
    assert_eq!(stage.world.admin.delete(&delete).await.status, 204);
    stage.world.admin.delete(&delete).await.problem(404, "file_not_found");
}

#[tokio::test]
async fn head_tells_the_same_without_the_bytes() {
    let stage = Stage::set().await;
    stage.put("/content?path=a", "hello").await.expect(201);
    let response = stage.request(Method::HEAD, "/content?path=a").send().await.unwrap();
    assert_eq!(
        (response.status().as_u16(), response.headers()["content-length"].to_str().unwrap()),
        (200, "5")
    );
    assert_eq!(response.headers()["etag"], stage.read("a", &[]).await.headers()["etag"]);
    assert_eq!(response.text().await.unwrap(), "");
    assert_eq!(stage.request(Method::HEAD, "/content?path=b").send().await.unwrap().status(), 404);
    assert_eq!(stage.request(Method::HEAD, "/content?path=/root").send().await.unwrap().status(), 409);
}

#[tokio::test]
async fn ranges_are_of_one_version_and_inside_the_file() {
    let stage = Stage::set().await;
    stage.put("/content?path=a", "0123456789").await.expect(201);
    let part = |range: &'static str| stage.read("a", Box::leak(Box::new([("range", range)])));
    for (range, content, text) in [
        ("bytes=0-0", "bytes 0-0/10", "0"),
        ("bytes=4-", "bytes 4-9/10", "456789"),
        ("bytes=8-99", "bytes 8-9/10", "89"),
        ("bytes=-3", "bytes 7-9/10", "789"),
        ("bytes=-99", "bytes 0-9/10", "0123456789"),
    ] {
        let response = part(range).await;
        assert_eq!(
            (response.status().as_u16(), response.headers()["content-range"].to_str().unwrap()),
            (206, content)
        );
        assert_eq!(response.headers()["content-length"], text.len().to_string().as_str());
        assert_eq!(response.text().await.unwrap(), text, "{range}");
    }
    for range in ["bytes=1-0", "bytes=0-1,3-4", "lines=1-2", "nonsense"] {
        let response = part(range).await;
        assert_eq!((response.status().as_u16(), response.text().await.unwrap().len()), (200, 10), "{range}");
    }
    for range in ["bytes=10-", "bytes=99999999999999999999-"] {
        let response = part(range).await;
        assert_eq!(
            (response.status().as_u16(), &response.headers()["content-range"]),
            (416, &"bytes */10".parse().unwrap())
        );
        let problem: Value = response.json().await.unwrap();
        assert_eq!(problem["code"], "file_range");
    }
}

#[tokio::test]
async fn a_version_that_is_known_is_not_sent_and_an_old_one_is_not_continued() {
    let stage = Stage::set().await;
    stage.put("/content?path=a", "0123456789").await.expect(201);
    let tag = stage.read("a", &[]).await.headers()["etag"].to_str().unwrap().to_owned();
    for list in [tag.as_str(), "*", &format!("\"x\", W/{tag}")] {
        let response = stage.read("a", &[("if-none-match", list)]).await;
        assert_eq!(
            (response.status().as_u16(), &response.headers()["etag"]),
            (304, &tag.parse().unwrap()),
            "{list}"
        );
    }
    let same = stage.read("a", &[("range", "bytes=5-"), ("if-range", &tag)]).await;
    assert_eq!((same.status().as_u16(), same.text().await.unwrap().as_str()), (206, "56789"));
    stage.put("/content?path=a", "abcdefghij").await.expect(201);
    let other = stage.read("a", &[("range", "bytes=5-"), ("if-range", &tag)]).await;
    assert_eq!((other.status().as_u16(), other.text().await.unwrap().as_str()), (200, "abcdefghij"));
    assert_eq!(stage.read("a", &[("if-none-match", &tag)]).await.status(), 200);
}

#[tokio::test]
async fn a_directory_is_listed_in_pages_that_fit_together() {
    let stage = Stage::set().await;
    for path in ["d/b/x", "d/a.b", "d/a/y", "d/c"] {
        stage.put(&format!("/content?path={path}&parents=true"), "").await.expect(201);
    }
    let all = ["a", "a/y", "a.b", "b", "b/x", "c"];
    for root in ["/root/d", "d"] {
        let mut found = Vec::new();
        let mut rest = format!("/entries?path={root}&depth=2&limit=2");
        loop {
            let page = stage.get(&rest).await.expect(200);
            let items = page["items"].as_array().unwrap();
            assert!(items.len() <= 2);
            found.extend(
                items.iter().map(|item| item["path"].as_str().unwrap()["/root/d/".len()..].to_owned()),
            );
            let Some(cursor) = page["next_cursor"].as_str() else { break };
            rest = format!("/entries?path={root}&depth=2&limit=2&cursor={cursor}");
        }
        assert_eq!(found, all, "{root}");
    }
    let page = stage.get("/entries?path=d&limit=1").await.expect(200);
    let cursor = page["next_cursor"].as_str().unwrap();
    let next = stage.get(&format!("/entries?path=d&limit=1&cursor={cursor}")).await.expect(200);
    assert_eq!(next["items"][0]["path"], "/root/d/a.b");
    stage.get("/entries?path=d/c").await.problem(409, "file_not_a_directory");
}

#[tokio::test]
async fn a_name_that_is_no_text_comes_through_whole() {
    let stage = Stage::set().await;
    stage.put("/content?path=a%FF%2B%20b", "x").await.expect(201);
    let page = stage.get("/entries?path=.").await.expect(200);
    let (lossy, exact) = (&page["items"][0]["path"], &page["items"][0]["path_base64"]);
    assert!(lossy.as_str().unwrap().ends_with("a\u{fffd}+ b"), "{lossy}");
    stage.post("/move", json!({"from_base64": exact, "to": "text"})).await.expect(200);
    let moved = stage.get("?path=text").await.expect(200);
    assert!(moved.get("path_base64").is_none());
}

#[tokio::test]
async fn what_the_sandbox_refuses_has_a_code_of_its_own() {
    let stage = Stage::set().await;
    stage.put("/content?path=f", "x").await.expect(201);
    stage.post("/directories", json!({"path": "d"})).await.expect(201);
    stage.put("/content?path=d/f", "x").await.expect(201);
    stage.put("/content?path=no/such/f", "x").await.problem(404, "file_not_found");
    stage.put("/content?path=f&exclusive=true", "x").await.problem(409, "file_exists");
    stage.put("/content?path=d", "x").await.problem(409, "file_is_a_directory");
    stage.get("/content?path=d").await.problem(409, "file_is_a_directory");
    stage.get("/content?path=f&user=denied").await.problem(403, "file_permission");
    stage.post("/directories", json!({"path": "d"})).await.problem(409, "file_exists");
    stage.post("/directories", json!({"path": "d", "parents": true})).await.expect(201);
    stage.post("/move", json!({"from": "f", "to": "d/f"})).await.problem(409, "file_exists");
    stage.post("/move", json!({"from": "f", "to": "d/f", "replace": true})).await.expect(200);
    stage.world.admin.delete(&stage.path("?path=d")).await.problem(409, "directory_not_empty");
    assert_eq!(stage.world.admin.delete(&stage.path("?path=d&recursive=true")).await.status, 204);
    let unknown = stage.get("?path=/&user=missing").await;
    unknown.problem(422, "user_not_found");
    assert_eq!(unknown.body["field"], "user");
    stage
        .put("/archive?path=out", "no archive at all, and long enough to be looked at".repeat(20))
        .await
        .problem(422, "archive_malformed");
}

#[tokio::test]
async fn a_write_that_breaks_off_leaves_nothing() {
    let stage = Stage::set().await;
    stage.put("/content?path=a", "old").await.expect(201);
    let sent = stage.request(Method::PUT, "/content?path=a").body(broken()).send().await;
    assert!(sent.is_err());
    stage.holds(&["a"]).await;
    assert_eq!(stage.read("a", &[]).await.text().await.unwrap(), "old");
    // One that announces more than it sends.
    stage.request(Method::PUT, "/content?path=b").body(broken()).send().await.unwrap_err();
    stage.holds(&["a"]).await;
}

#[tokio::test]
async fn an_upload_goes_on_where_it_broke() {
    let stage = Stage::set().await;
    let sent = stage.request(Method::PUT, "/content?path=a&upload=u1").body(broken()).send().await;
    assert!(sent.is_err());
    stage.holds(&[".u1.space-upload"]).await;
    let wrong = stage.put("/content?path=a&upload=u1&offset=9", "x").await;
    wrong.problem(409, "upload_offset");
    assert_eq!(wrong.body["next_offset"], 4);
    let kept = stage.put("/content?path=a&upload=u1&offset=4&complete=false", "way ").await.expect(200);
    assert_eq!(kept, json!({"next_offset": 8}));
    stage.put("/content?path=a&upload=u1&offset=8", "there").await.expect(201);
    assert_eq!(stage.read("a", &[]).await.text().await.unwrap(), "halfway there");
    stage.holds(&["a"]).await;
    stage.put("/content?path=a&upload=u2&complete=false", "begun").await.expect(200);
    stage.put("/content?path=a&upload=u2&offset=0", "anew").await.expect(201);
    assert_eq!(stage.read("a", &[]).await.text().await.unwrap(), "anew");
}

#[tokio::test]
async fn sixty_four_mebibytes_pass_in_both_directions() {
    let stage = Stage::set().await;
    let (body, _) = counted(1024);
    let written = stage.put("/content?path=large", body).await.expect(201);
    assert_eq!(written["size"], 64 << 20);
    let mut response = stage.read("large", &[]).await;
    let mut bytes = 0;
    while let Some(chunk) = response.chunk().await.unwrap() {
        assert!(chunk.iter().all(|byte| *byte == 5));
        bytes += chunk.len();
    }
    assert_eq!(bytes, 64 << 20);
}

#[tokio::test]
async fn nothing_is_gathered_for_a_sandbox_that_does_not_take_it() {
    let stage = Stage::set().await;
    let (body, taken) = counted(16 * 1024);
    let upload = tokio::spawn(stage.request(Method::PUT, "/content?path=/sim/stuck").body(body).send());
    let settled = settle(|| taken.load(Ordering::Relaxed) * PIECE).await;
    assert!(settled < 32 << 20, "{settled} bytes of 1 GiB were taken");
    upload.abort();
}

#[tokio::test]
async fn nothing_is_gathered_for_a_client_that_does_not_read_and_one_that_leaves_is_noticed() {
    let stage = Stage::set().await;
    let response = stage.read("/sim/endless", &[]).await;
    assert_eq!(response.status(), 200);
    let settled = settle(|| stage.node.file_bytes()).await;
    assert!(settled < 32 << 20, "{settled} bytes were read ahead");
    drop(response);
}

/// The number when it doesn't change any more.
async fn settle(number: impl Fn() -> usize) -> usize {
    let mut last = 0;
    loop {
        // What stands still can only be seen to do so by looking again later.
        tokio::time::sleep(Duration::from_millis(500)).await;
        let now = number();
        if now == last && now > 0 {
            return now;
        }
        last = now;
    }
}

#[tokio::test]
async fn a_download_that_breaks_off_is_no_short_success() {
    let stage = Stage::set().await;
    let http2 = reqwest::Client::builder().http2_prior_knowledge().build().unwrap();
    for http in [stage.world.admin.http.clone(), http2] {
        let client = Client { http, ..stage.world.admin.clone() };
        let request = client.request(Method::GET, &stage.path("/content?path=/sim/broken"));
        // A stream of HTTP/2 may be reset before its head is seen.
        if let Ok(response) = request.send().await {
            assert_eq!(response.status(), 200);
            response.bytes().await.unwrap_err();
        }
    }
}

#[tokio::test]
async fn a_tree_goes_out_and_comes_back_as_an_archive() {
    let stage = Stage::set().await;
    for path in ["d/a", "d/e/b"] {
        stage.put(&format!("/content?path={path}&parents=true"), path).await.expect(201);
    }
    let response = stage.request(Method::GET, "/archive?path=d").send().await.unwrap();
    assert_eq!(response.headers()["content-type"], "application/x-tar");
    assert!(response.headers()["content-disposition"].to_str().unwrap().contains("\"d.tar\""));
    let archive = response.bytes().await.unwrap();
    let written = stage.put("/archive?path=copy", archive).await.expect(200);
    assert_eq!(written["bytes"], 3 + 5);
    assert_eq!(stage.read("copy/e/b", &[]).await.text().await.unwrap(), "d/e/b");
}

#[tokio::test]
async fn a_watch_tells_what_happens_after_it_began() {
    let stage = Stage::set().await;
    let request = stage.request(Method::GET, "/watch?path=/root&recursive=true");
    let mut events = stage.world.admin.stream(request).await;
    assert_eq!(events.next().await.unwrap().0, "watching");
    stage.put("/content?path=a", "x").await.expect(201);
    let (name, data, id) = events.next().await.unwrap();
    assert_eq!((name.as_str(), id), ("change", None));
    assert_eq!(data, json!({"kind": "written", "path": "/root/a"}));
    stage.post("/move", json!({"from": "a", "to": "b"})).await.expect(200);
    assert_eq!(events.next().await.unwrap().1, json!({"kind": "removed", "path": "/root/a"}));
    assert_eq!(events.next().await.unwrap().1, json!({"kind": "moved", "path": "/root/b"}));
    stage.get("/watch?path=/no").await.problem(404, "file_not_found");
}

#[tokio::test]
async fn a_watch_whose_worker_ends_says_so() {
    let stage = Stage::set().await;
    let request = stage.request(Method::GET, "/watch?path=/root");
    let mut events = stage.world.admin.stream(request).await;
    assert_eq!(events.next().await.unwrap().0, "watching");
    stage.node.restart_workers().await.unwrap();
    let rest = events.rest().await;
    assert!(rest.iter().all(|event| event.0 == "error"), "{rest:?}");
    stage.get("?path=/root").await.expect(200);
}

#[tokio::test]
async fn files_of_a_sandbox_that_does_not_run_are_not_there() {
    let stage = Stage::set().await;
    stage.world.admin.delete(&format!("/v1/sandboxes/{}?wait=60", stage.sandbox)).await;
    let answer = stage.get("?path=/").await;
    assert!([404, 409].contains(&answer.status), "{}", answer.body);
}
