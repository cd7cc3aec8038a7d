//! The floor of an exec: one byte over vsock to a program in the guest that forks, executes `/bin/true`, waits
//! and answers with one byte.

use std::{
    io::{Read, Write},
    os::unix::net::UnixStream,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use space_e2e::Sandbox;

const PORT: u32 = 5005;

const PROGRAM: &str = r#"
#include <linux/vm_sockets.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

int main(void) {
    struct sockaddr_vm address = { .svm_family = AF_VSOCK, .svm_cid = VMADDR_CID_ANY, .svm_port = 5005 };
    int listener = socket(AF_VSOCK, SOCK_STREAM, 0);
    if (listener < 0 || bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, 1)) {
        perror("vsock");
        return 1;
    }
    if (daemon(0, 0)) return 1;
    int peer = accept(listener, 0, 0);
    char byte;
    while (read(peer, &byte, 1) == 1) {
        pid_t child = fork();
        if (child == 0) {
            execl("/bin/true", "true", (char *)0);
            _exit(127);
        }
        int status;
        waitpid(child, &status, 0);
        if (write(peer, &byte, 1) != 1) return 1;
    }
    return 0;
}
"#;

pub(crate) struct Echo {
    stream: UnixStream,
}

impl Echo {
    pub(crate) async fn start(sandbox: &Sandbox) -> Result<Self> {
        let build =
            format!("set -e; cd /root; cat > echo.c <<'END'\n{PROGRAM}\nEND\ncc -O2 -o echo echo.c; ./echo");
        let built = sandbox.root_sh(&build).await?;
        ensure!(built.exit.code == Some(0), "{built}");
        let pid = sandbox.firecracker_pid()?;
        let socket = crate::floor::vsock_socket(&format!("/proc/{pid}/root"))?;
        let mut stream = UnixStream::connect(&socket)
            .with_context(|| format!("cannot connect to {}", socket.display()))?;
        crate::floor::handshake(&mut stream, PORT)?;
        Ok(Self { stream })
    }

    pub(crate) fn round_trip(&mut self) -> Result<Duration> {
        let began = Instant::now();
        self.stream.write_all(b"x")?;
        let mut byte = [0; 1];
        self.stream.read_exact(&mut byte)?;
        Ok(began.elapsed())
    }
}
