//! One server process.

use std::{
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Child, Stdio},
    sync::{Mutex, PoisonError, mpsc},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};

use super::{
    next_name,
    shell::{command, program, run},
    template,
};

const START: Duration = Duration::from_mins(1);
/// The kernel gives no event for a socket that begins to listen.
const POLL: Duration = Duration::from_millis(10);

enum Order {
    Start,
    Stop,
    End,
}

/// A server that ends when it is dropped, or with the process.
#[derive(Debug)]
pub struct Server {
    dir: tempfile::TempDir,
    keeper: Option<JoinHandle<()>>,
    orders: Mutex<(mpsc::Sender<Order>, mpsc::Receiver<anyhow::Result<()>>)>,
}

impl Server {
    pub fn start() -> anyhow::Result<Self> {
        let dir = template::fresh()?;
        let (orders, inbox) = mpsc::channel();
        let (outbox, answers) = mpsc::channel();
        let path = dir.path().to_owned();
        let keeper = std::thread::Builder::new()
            .name("postgres keeper".to_owned())
            .spawn(move || keep(&path, &inbox, &outbox))?;
        let server = Self { dir, keeper: Some(keeper), orders: Mutex::new((orders, answers)) };
        server.order(Order::Start)?;
        Ok(server)
    }

    /// As a crash: clients lose their connections at once.
    pub fn stop(&self) -> anyhow::Result<()> {
        self.order(Order::Stop)
    }

    pub fn restart(&self) -> anyhow::Result<()> {
        self.order(Order::Start)
    }

    /// An empty database; its URL.
    pub fn create_database(&self) -> anyhow::Result<String> {
        let name = next_name();
        let mut psql = command(&program("psql"), false)?;
        psql.args(["--no-psqlrc", "--quiet", "--username=postgres", "--host"]).arg(self.dir.path());
        psql.args(["--dbname=postgres", "--command", &format!("create database {name}")]);
        run(psql)?;
        Ok(format!("postgres://postgres@localhost/{name}?host={}", self.dir.path().display()))
    }

    fn order(&self, order: Order) -> anyhow::Result<()> {
        let orders = self.orders.lock().unwrap_or_else(PoisonError::into_inner);
        orders.0.send(order).context("the keeper is gone")?;
        orders.1.recv().context("the keeper is gone")?
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let ended = self.order(Order::End);
        if let (Ok(()), Some(keeper)) = (ended, self.keeper.take()) {
            keeper.join().ok();
        }
    }
}

/// The thread whose end is the server's end.
fn keep(dir: &Path, inbox: &mpsc::Receiver<Order>, outbox: &mpsc::Sender<anyhow::Result<()>>) {
    let mut child: Option<Child> = None;
    while let Ok(order) = inbox.recv() {
        let ends = matches!(order, Order::End);
        let answer = match order {
            Order::Start => launch(dir).map(|started| child = Some(started)),
            Order::Stop | Order::End => child.take().map_or(Ok(()), end),
        };
        if outbox.send(answer).is_err() || ends {
            return;
        }
    }
}

fn launch(dir: &Path) -> anyhow::Result<Child> {
    let mut postgres = command(&program("postgres"), true)?;
    postgres.arg("-D").arg(dir.join("data")).arg("-k").arg(dir);
    for setting in [
        "listen_addresses=",
        "fsync=off",
        "full_page_writes=off",
        "shared_buffers=32MB",
        "max_connections=100",
    ] {
        postgres.args(["-c", setting]);
    }
    let log = std::fs::File::create(dir.join("log"))?;
    postgres.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    let mut child = postgres.spawn().with_context(|| format!("cannot run {postgres:?}"))?;
    wait_for(&mut child, &dir.join(".s.PGSQL.5432"), dir)?;
    Ok(child)
}

fn wait_for(child: &mut Child, socket: &PathBuf, dir: &Path) -> anyhow::Result<()> {
    let end = Instant::now() + START;
    loop {
        if UnixStream::connect(socket).is_ok() && is_ready(dir)? {
            return Ok(());
        }
        if let Some(status) = child.try_wait()? {
            let log = std::fs::read_to_string(dir.join("log")).unwrap_or_default();
            bail!("the server ended with {status}: {log}");
        }
        if Instant::now() > end {
            bail!("the server did not start in {START:?}");
        }
        std::thread::sleep(POLL);
    }
}

/// It listens before it takes queries.
fn is_ready(dir: &Path) -> anyhow::Result<bool> {
    let mut isready = command(&program("pg_isready"), false)?;
    isready.arg("--quiet").arg("--host").arg(dir);
    Ok(isready.status().context("cannot run pg_isready")?.success())
}

/// `setpriv` became the server by exec, so the child's id is the server's.
fn end(mut child: Child) -> anyhow::Result<()> {
    let pid = nix::unistd::Pid::from_raw(i32::try_from(child.id())?);
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGQUIT)?;
    child.wait()?;
    Ok(())
}
