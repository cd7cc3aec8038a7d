//! The socket that Firecracker would have: it takes `CONNECT`, says `OK` and relays to an agent. Its connections can
//! be broken at will. What asks for the port of jobs is handed to the test, which plays the guest there.

use std::{
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, copy_bidirectional},
    net::{UnixListener, UnixStream},
    sync::{mpsc, watch},
    task::JoinHandle,
};

/// The real agent in a process of its own, and a socket in front of it.
pub(crate) struct Guest {
    pub(crate) socket: PathBuf,
    /// Connections to the port of jobs, `CONNECT` not yet answered.
    pub(crate) jobs: mpsc::UnboundedReceiver<UnixStream>,
    breaks: watch::Sender<()>,
    relay: JoinHandle<()>,
    agent: Child,
    _directory: tempfile::TempDir,
}

impl Guest {
    pub(crate) fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("vsock");
        let agent_socket = directory.path().join("agent");
        let agent = Command::new(agent_binary())
            .arg("--listen-unix")
            .arg(&agent_socket)
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let (breaks, broken) = watch::channel(());
        let listener = UnixListener::bind(&socket).unwrap();
        let (to_jobs, jobs) = mpsc::unbounded_channel();
        let relay = tokio::spawn(relay(listener, agent_socket, to_jobs, broken));
        Self { socket, jobs, breaks, relay, agent, _directory: directory }
    }

    /// Closes what is connected at the moment.
    pub(crate) fn break_connections(&self) {
        self.breaks.send(()).unwrap();
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.relay.abort();
        self.agent.kill().unwrap();
        self.agent.wait().unwrap();
    }
}

async fn relay(
    listener: UnixListener,
    agent: PathBuf,
    jobs: mpsc::UnboundedSender<UnixStream>,
    broken: watch::Receiver<()>,
) {
    loop {
        let (stream, _peer) = listener.accept().await.unwrap();
        let (agent, jobs, mut broken) = (agent.clone(), jobs.clone(), broken.clone());
        broken.mark_unchanged();
        tokio::spawn(async move {
            tokio::select! {
                () = connect(stream, &agent, &jobs) => {}
                _ = broken.changed() => {}
            }
        });
    }
}

/// Firecracker closes the socket without a word while the port is shut.
async fn connect(stream: UnixStream, agent: &Path, jobs: &mpsc::UnboundedSender<UnixStream>) {
    // A buffer of the line's length, so that nothing behind it is read here.
    let mut stream = BufReader::with_capacity("CONNECT 1024\n".len(), stream);
    let mut line = String::new();
    stream.read_line(&mut line).await.unwrap();
    if line == "CONNECT 1025\n" {
        return drop(jobs.send(stream.into_inner()));
    }
    assert_eq!(line, "CONNECT 1024\n");
    let Ok(mut agent) = UnixStream::connect(agent).await else { return };
    stream.write_all(b"OK 1073741824\n").await.unwrap();
    // A connection that the other side closed is what many of the tests are about.
    drop(copy_bidirectional(&mut stream, &mut agent).await);
}

/// Beside this package's own binary; built if nobody has.
fn agent_binary() -> PathBuf {
    let binary = Path::new(env!("CARGO_BIN_EXE_space-sandboxd")).with_file_name("space-guestd");
    if !binary.exists() {
        let built = Command::new(env!("CARGO")).args(["build", "-p", "space-guest"]).status().unwrap();
        assert!(built.success(), "the agent does not build");
    }
    binary
}
