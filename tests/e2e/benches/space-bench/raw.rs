//! The floor of streams: the same shell command with a vsock connection as its input and output, and nothing between.

use std::{
    io::{Read, Write},
    os::unix::net::UnixStream,
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use space_e2e::Sandbox;

const PORT: u32 = 5006;
/// As much as one read or write of the product moves at most.
const CHUNK: usize = 64 * 1024;

/// For each connection: reads a line, and becomes a shell that runs it on the connection.
const PROGRAM: &str = r#"
#include <linux/vm_sockets.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

int main(void) {
    struct sockaddr_vm address = { .svm_family = AF_VSOCK, .svm_cid = VMADDR_CID_ANY, .svm_port = 5006 };
    int listener = socket(AF_VSOCK, SOCK_STREAM, 0);
    if (listener < 0 || bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, 8)) {
        perror("vsock");
        return 1;
    }
    if (daemon(1, 0)) return 1;
    signal(SIGCHLD, SIG_IGN);
    for (;;) {
        int peer = accept(listener, 0, 0);
        if (fork()) { close(peer); continue; }
        signal(SIGCHLD, SIG_DFL);
        char line[1024];
        size_t length = 0;
        while (length < sizeof line - 1 && read(peer, line + length, 1) == 1 && line[length] != '\n') length++;
        line[length] = 0;
        dup2(peer, 0); dup2(peer, 1); close(peer); close(listener);
        execl("/bin/sh", "sh", "-c", line, (char *)0);
        _exit(127);
    }
}
"#;

pub(crate) struct Raw {
    socket: PathBuf,
}

impl Raw {
    pub(crate) async fn start(sandbox: &Sandbox) -> Result<Self> {
        let build =
            format!("set -e; cd /root; cat > raw.c <<'END'\n{PROGRAM}\nEND\ncc -O2 -o raw raw.c; ./raw");
        let built = sandbox.root_sh(&build).await?;
        ensure!(built.exit.code == Some(0), "{built}");
        let pid = sandbox.firecracker_pid()?;
        Ok(Self { socket: crate::floor::vsock_socket(&format!("/proc/{pid}/root"))? })
    }

    /// From the start of `command` until it has printed so many bytes.
    pub(crate) fn output(&self, command: &str, bytes: u64) -> Result<Duration> {
        let began = Instant::now();
        let mut stream = self.run(command)?;
        let mut chunk = vec![0; CHUNK];
        let mut rest = bytes;
        while rest > 0 {
            let length = stream.read(&mut chunk)? as u64;
            ensure!(length > 0, "{rest} of {bytes} bytes are missing");
            rest = rest.saturating_sub(length);
        }
        Ok(began.elapsed())
    }

    /// From the start of `command` until it has read so many bytes and said anything at all.
    pub(crate) fn input(&self, command: &str, bytes: u64) -> Result<Duration> {
        let began = Instant::now();
        let mut stream = self.run(command)?;
        let chunk = vec![b'x'; CHUNK];
        let mut rest = bytes;
        while rest > 0 {
            let length = rest.min(CHUNK as u64);
            stream.write_all(&chunk[..usize::try_from(length)?])?;
            rest -= length;
        }
        stream.read_exact(&mut [0; 1]).context("the command said nothing")?;
        Ok(began.elapsed())
    }

    fn run(&self, command: &str) -> Result<UnixStream> {
        let mut stream = UnixStream::connect(&self.socket)?;
        crate::floor::handshake(&mut stream, PORT)?;
        stream.set_read_timeout(Some(Duration::from_mins(5)))?;
        stream.write_all(format!("{command}\n").as_bytes())?;
        Ok(stream)
    }
}
