//! What applications do with a sandbox beyond running a command: files, terminals and ports, through all layers.

use std::{num::NonZeroU16, process::Stdio, time::Duration};

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use futures::stream;
use space_api::{
    ProblemCode,
    client::{ClientError, Download, StreamConfig, TerminalEvent, Written},
    commands::CreateCommand,
    files::{
        FileChangeKind, ListQuery, MoveFile, PlaceQuery, RemoveQuery, StatQuery, WatchEvent, WatchQuery,
        WriteQuery,
    },
    ports::{CreatePortToken, PortVisibility, SetPort, TOKEN_HEADER},
    terminal::TerminalSize,
};
use space_e2e::{Sandbox, daemons, wait};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::TcpStream,
    process::Command,
};

const MIB: usize = 1 << 20;

/// In one sandbox, one after the other: a boot takes seconds where the processor is emulated.
#[tokio::test(flavor = "multi_thread")]
async fn files_and_terminals_do_as_asked() -> Result<()> {
    let sandbox = Sandbox::create().await?;
    a_file_goes_there_and_back_unchanged(&sandbox).await.context("there and back")?;
    a_name_may_be_any_bytes(&sandbox).await.context("any bytes")?;
    the_user_decides_what_may_be_read(&sandbox).await.context("the user decides")?;
    a_tree_goes_there_and_back_as_an_archive(&sandbox).await.context("an archive")?;
    a_watch_sees_what_a_command_does(&sandbox).await.context("a watch")?;
    a_transfer_that_is_dropped_leaves_no_process(&sandbox).await.context("dropped")?;
    a_shell_has_a_terminal_that_can_be_resized(&sandbox).await.context("a shell")?;
    a_port_is_reached_by_who_may(&sandbox).await.context("a port")?;
    a_port_is_brought_here_by_the_command_line(&sandbox).await.context("a forwarded port")
}

fn place(path: impl AsRef<[u8]>) -> PlaceQuery {
    PlaceQuery { path: path.as_ref().into(), user: None }
}

async fn write(sandbox: &Sandbox, path: impl AsRef<[u8]>, pieces: Vec<Bytes>) -> Result<Written> {
    let query = WriteQuery { path: path.as_ref().into(), ..WriteQuery::default() };
    let content = stream::iter(pieces.into_iter().map(Ok));
    Ok(sandbox.server.client.file_write(sandbox.id, &query, content).await?)
}

async fn whole(mut download: Download) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    while let Some(chunk) = download.chunk().await? {
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes)
}

fn code(error: &ClientError) -> Option<ProblemCode> {
    error.problem().map(|problem| problem.code)
}

async fn a_file_goes_there_and_back_unchanged(sandbox: &Sandbox) -> Result<()> {
    let client = &sandbox.server.client;
    // No two pages of it are the same.
    let pattern: Vec<u8> =
        (0_u32..MIB as u32).flat_map(|number| (number ^ (number >> 9)).to_le_bytes()).collect();
    let content = Bytes::from(pattern);
    let pieces =
        (0..content.len()).step_by(100_000).map(|at| content.slice(at..content.len().min(at + 100_000)));
    let written = write(sandbox, "data.bin", pieces.collect()).await?;
    let Written::File(info) = written else { panic!("{written:?}") };
    assert_eq!(
        (info.path.as_str(), info.size, info.owner.as_deref()),
        ("/home/user/data.bin", 4 * MIB as u64, Some("user"))
    );
    let back = whole(client.file_read(sandbox.id, &place("data.bin"), None).await?).await?;
    ensure!(back == content, "{} bytes came back, and others", back.len());
    let seen = sandbox.sh("stat -c '%s %a %U' data.bin; ls -A").await?;
    assert_eq!(seen.stdout().lines().next(), Some("4194304 644 user"), "{seen}");
    ensure!(!seen.stdout().contains("space-"), "something temporary is left: {seen}");
    Ok(())
}

async fn a_name_may_be_any_bytes(sandbox: &Sandbox) -> Result<()> {
    let client = &sandbox.server.client;
    let name = b"od d\n\xff?&%.txt";
    write(sandbox, name, vec![Bytes::from_static(b"x")]).await?;
    let path = [b"/home/user/", &name[..]].concat();
    let list = ListQuery { path: "/home/user".into(), limit: Some(1000), ..ListQuery::default() };
    let listed = client.file_list(sandbox.id, &list).await?;
    let exact =
        |info: &space_api::files::FileInfo| info.path_base64.as_ref().is_some_and(|exact| exact.0 == path);
    ensure!(listed.items.iter().any(exact), "{listed:?}");
    let body = MoveFile {
        from_base64: Some(name.to_vec().into()),
        to: Some("plain".to_owned()),
        ..MoveFile::default()
    };
    assert_eq!(client.file_move(sandbox.id, &body).await?.path, "/home/user/plain");
    client.file_remove(sandbox.id, &RemoveQuery { path: "plain".into(), ..RemoveQuery::default() }).await?;
    let gone = client
        .file_stat(sandbox.id, &StatQuery { path: "plain".into(), ..StatQuery::default() })
        .await
        .unwrap_err();
    assert_eq!(code(&gone), Some(ProblemCode::FileNotFound));
    Ok(())
}

async fn the_user_decides_what_may_be_read(sandbox: &Sandbox) -> Result<()> {
    let client = &sandbox.server.client;
    sandbox.root_sh("echo secret > /root/secret; chmod 600 /root/secret").await?;
    let refused = client.file_read(sandbox.id, &place("/root/secret"), None).await.unwrap_err();
    assert_eq!(code(&refused), Some(ProblemCode::FilePermission));
    let as_root = PlaceQuery { user: Some("root".to_owned()), ..place("/root/secret") };
    assert_eq!(whole(client.file_read(sandbox.id, &as_root, None).await?).await?, b"secret\n");
    Ok(())
}

async fn a_tree_goes_there_and_back_as_an_archive(sandbox: &Sandbox) -> Result<()> {
    let client = &sandbox.server.client;
    let make = "mkdir -p tree/deep/er; seq 1 5000 > tree/deep/numbers; ln -s deep/numbers tree/link; chmod 750 tree/deep/er";
    sandbox.sh(make).await?;
    let archive = whole(client.archive_read(sandbox.id, &place("tree")).await?).await?;
    let content = stream::iter([Ok(Bytes::from(archive))]);
    let put = client.archive_write(sandbox.id, &place("copy"), content).await?;
    ensure!(put.entries >= 4, "{put:?}");
    let compared = sandbox
        .sh("diff -r --no-dereference tree copy && stat -c %a copy/deep/er && readlink copy/link")
        .await?;
    assert_eq!(compared.stdout(), "750\ndeep/numbers\n", "{compared}");
    Ok(())
}

async fn a_watch_sees_what_a_command_does(sandbox: &Sandbox) -> Result<()> {
    let client = &sandbox.server.client;
    sandbox.sh("mkdir seen").await?;
    let query = WatchQuery { path: "seen".into(), recursive: true, ..WatchQuery::default() };
    let mut watch = client.file_watch(sandbox.id, &query).await?;
    assert_eq!(watch.next().await?, WatchEvent::Watching);
    sandbox.sh("mkdir seen/new && echo x > seen/new/file && rm seen/new/file").await?;
    let mut seen = Vec::new();
    while seen.last() != Some(&(FileChangeKind::Removed, "/home/user/seen/new/file".to_owned())) {
        match watch.next().await? {
            WatchEvent::Change(change) => seen.push((change.kind, change.path)),
            other => panic!("{other:?} after {seen:?}"),
        }
    }
    let created = |path: &str| seen.contains(&(FileChangeKind::Created, path.to_owned()));
    ensure!(created("/home/user/seen/new") && created("/home/user/seen/new/file"), "{seen:?}");
    Ok(())
}

/// What the host hangs up on ends in the guest, too: its disk must not be read for nobody.
async fn a_transfer_that_is_dropped_leaves_no_process(sandbox: &Sandbox) -> Result<()> {
    sandbox.sh("truncate -s 900M big").await?;
    let mut download = sandbox.server.client.file_read(sandbox.id, &place("big"), None).await?;
    download.chunk().await?.context("the file has bytes")?;
    let jobs = "wc -l < /sys/fs/cgroup/commands/jobs/cgroup.procs";
    assert_eq!(sandbox.root_sh(jobs).await?.stdout(), "1\n");
    drop(download);
    wait::until("no job", Duration::from_mins(1), || async {
        let left = sandbox.root_sh(jobs).await?.stdout();
        ensure!(left == "0\n", "{left} jobs");
        Ok(())
    })
    .await
}

async fn a_shell_has_a_terminal_that_can_be_resized(sandbox: &Sandbox) -> Result<()> {
    let client = &sandbox.server.client;
    let terminal = Some(TerminalSize { rows: 24, columns: 80 });
    let argv = ["bash", "--norc"].map(str::to_owned).to_vec();
    let command = CreateCommand { argv, terminal, ..CreateCommand::default() };
    let created = client.command_create(sandbox.id, &command).await?;
    let mut shell = client.command_terminal(sandbox.id, created.command.id, 0, StreamConfig::default());
    shell.write(b"tty; stty size\n");
    let mut screen = String::new();
    let mut resized = false;
    loop {
        match shell.next().await?.context("the shell has not exited")? {
            TerminalEvent::Output { data, .. } => screen.push_str(&String::from_utf8_lossy(&data)),
            TerminalEvent::Exit(exit) => {
                assert_eq!(exit.code, Some(7), "{screen}");
                break;
            }
            TerminalEvent::Started { .. } => {}
            other => panic!("{other:?}"),
        }
        if !resized && screen.contains("24 80\r\n") {
            resized = true;
            shell.resize(TerminalSize { rows: 40, columns: 100 });
            shell.write(b"until stty size | grep '40 100'; do sleep 0.1; done; exit 7\n");
        }
    }
    // As typed it is followed by something else.
    ensure!(screen.contains("/dev/pts/") && screen.contains("40 100\r\n"), "{screen}");
    Ok(())
}

/// Where `space up` has its edge, under names that no resolver of the host knows.
const EDGE: &str = "127.0.0.1:8710";
const SERVE: &str = "mkdir -p www && echo hello > www/index.html
    setsid python3 -m http.server 8000 --bind 127.0.0.1 --directory www >/dev/null 2>&1 </dev/null &
    for _ in $(seq 300); do curl -sfo /dev/null http://127.0.0.1:8000/ && exit 0; sleep 0.1; done; exit 1";

async fn get(sandbox: &Sandbox, port: NonZeroU16, token: Option<&str>) -> Result<(u16, String)> {
    let name = format!("{port}-{}.localhost:8710", sandbox.id.label());
    let request = reqwest::Client::new().get(format!("http://{EDGE}/")).header("Host", name);
    let request = match token {
        Some(token) => request.header(TOKEN_HEADER, token),
        None => request,
    };
    let response = request.timeout(Duration::from_mins(1)).send().await?;
    Ok((response.status().as_u16(), response.text().await?))
}

async fn a_port_is_reached_by_who_may(sandbox: &Sandbox) -> Result<()> {
    let (port, other) = (NonZeroU16::new(8000).context("8000")?, NonZeroU16::new(8001).context("8001")?);
    let client = &sandbox.server.client;
    let served = sandbox.sh(SERVE).await?;
    ensure!(served.exit.code == Some(0), "{served}");

    let token = client.port_token_create(sandbox.id, port, &CreatePortToken::default()).await?.token;
    let token = token.context("a new token is shown")?;
    ensure!(get(sandbox, port, None).await?.0 == 401, "private without a token");
    ensure!(get(sandbox, port, Some(&token)).await? == (200, "hello\n".to_owned()), "private with its token");
    ensure!(get(sandbox, other, Some(&token)).await?.0 == 401, "another port's token");
    ensure!(raw(sandbox, port, &token).await?.ends_with("\r\n\r\nhello\n"), "bytes both ways");

    client.port_set(sandbox.id, other, &SetPort { visibility: PortVisibility::Public }).await?;
    // The edge keeps what it was told of a port for a while.
    becomes(502, || get(sandbox, other, None)).await.context("public, and nothing listens")?;
    client.port_tokens_revoke(sandbox.id, port).await?;
    becomes(401, || get(sandbox, port, Some(&token))).await.context("a revoked token")
}

async fn becomes<F: Future<Output = Result<(u16, String)>>>(status: u16, ask: impl Fn() -> F) -> Result<()> {
    wait::until("another answer", Duration::from_mins(1), || async {
        let (answered, text) = ask().await?;
        ensure!(answered == status, "{answered} {text}");
        Ok(())
    })
    .await
}

/// What comes back over CONNECT, to the end; the request's direction is shut down first.
async fn raw(sandbox: &Sandbox, port: NonZeroU16, token: &str) -> Result<String> {
    let mut stream = TcpStream::connect(EDGE).await?;
    let name = format!("{port}-{}.localhost:{port}", sandbox.id.label());
    let head =
        format!("CONNECT {name} HTTP/1.1\r\nHost: {name}\r\nProxy-Authorization: Bearer {token}\r\n\r\n");
    stream.write_all(head.as_bytes()).await?;
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        answer.push(stream.read_u8().await?);
    }
    ensure!(answer.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&answer));
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n").await?;
    stream.shutdown().await?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await?;
    Ok(text)
}

/// What [`SERVE`] serves, at a port of this machine's, by `space port forward`.
async fn a_port_is_brought_here_by_the_command_line(sandbox: &Sandbox) -> Result<()> {
    let mut space = Command::new("space")
        .args(["port", "forward", &sandbox.id.to_string(), "0:8000", "0:8001"])
        .env("SPACE_URL", &sandbox.server.url)
        .env("SPACE_API_KEY", &sandbox.server.key)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .context("there is no `space` in PATH")?;
    let mut lines = BufReader::new(space.stdout.take().context("stdout")?).lines();
    let mut said = BufReader::new(space.stderr.take().context("stderr")?).lines();
    let (mut served, mut unserved) = (String::new(), String::new());
    for address in [&mut served, &mut unserved] {
        let Some(line) = lines.next_line().await? else {
            bail!("it ended: {:?}", said.next_line().await?);
        };
        let found = line.strip_prefix("Forwarding ").and_then(|rest| rest.split_once(" -> "));
        found.with_context(|| line.clone())?.0.clone_into(address);
    }

    let get = async || reqwest::get(format!("http://{served}/")).await?.text().await;
    ensure!(get().await? == "hello\n", "over HTTP");
    let mut stream = TcpStream::connect(&served).await?;
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n").await?;
    stream.shutdown().await?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await?;
    ensure!(text.ends_with("\r\n\r\nhello\n"), "each direction by itself: {text}");

    let refused = TcpStream::connect(&unserved).await?.read_u8().await;
    ensure!(refused.is_err(), "nothing listens there");
    let told = said.next_line().await?.context("it is said")?;
    ensure!(told.starts_with("space: port 8001: ") && told.contains("(port_not_listening)"), "{told}");
    ensure!(get().await? == "hello\n", "the rest goes on");

    daemons::signal(space.id().context("it runs")?, "INT")?;
    ensure!(space.wait().await?.success(), "Ctrl-C is how it is meant to end");
    Ok(())
}
