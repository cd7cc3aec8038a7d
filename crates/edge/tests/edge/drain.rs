//! The end: what is under way is finished, nothing new is taken, and a tunnel lasts until the deadline.

use std::{
    net::SocketAddr,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::kit::{Kit, guest, read_head, within};

/// A moment between two looks at what gives no event.
const LOOK: Duration = Duration::from_millis(10);

/// Until nobody listens there any more.
async fn refuses(address: SocketAddr) {
    within(async {
        while TcpStream::connect(address).await.is_ok() {
            tokio::time::sleep(LOOK).await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_request_under_way_is_answered_to_its_end_and_no_other_is_taken() {
    let kit = Kit::new().await;
    let (program, pieces) = guest::pieces().await;
    let port = kit.port(program, true);
    let (response, ()) =
        within(async { tokio::join!(kit.get(port, "/", &[]), async { pieces.send("one ").await.unwrap() }) })
            .await;
    kit.tasks.shutdown();
    refuses(kit.address).await;
    pieces.send("two").await.unwrap();
    drop(pieces);
    assert_eq!(within(response.text()).await.unwrap(), "one two");
    assert!(kit.tasks.finish(Duration::from_secs(20)).await.is_empty());
}

#[tokio::test]
async fn a_connection_that_waits_for_its_next_request_is_closed() {
    let kit = Kit::new().await;
    let port = kit.port(guest::echo().await, true);
    let mut stream = kit.connect().await;
    let request = format!("POST / HTTP/1.1\r\nHost: {}\r\nContent-Length: 1\r\n\r\nx", port.name());
    stream.write_all(request.as_bytes()).await.unwrap();
    assert!(read_head(&mut stream).await.starts_with("HTTP/1.1 200 "));
    assert_eq!(within(stream.read_u8()).await.unwrap(), b'x');
    kit.tasks.shutdown();
    assert_eq!(within(stream.read(&mut [0])).await.unwrap(), 0);
    assert!(kit.tasks.finish(Duration::from_secs(20)).await.is_empty());
}

/// The daemon itself, beside the edge of the kit. Killed when the test ends.
struct Daemon {
    child: Child,
    address: SocketAddr,
}

impl Daemon {
    async fn start(kit: &Kit, drain_seconds: u64) -> Self {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_space-edged"))
            .arg("--config")
            .arg(kit.config_file())
            .env("SPACE_EDGED__DATA_DIR", kit.directory().join("daemon"))
            .env("SPACE_EDGED__LISTEN", free.to_string())
            .env("SPACE_EDGED__LIMITS__DRAIN_SECONDS", drain_seconds.to_string())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let daemon = Self { child, address: free };
        daemon.connect().await;
        daemon
    }

    /// As soon as it listens.
    async fn connect(&self) -> TcpStream {
        within(async {
            loop {
                match TcpStream::connect(self.address).await {
                    Ok(stream) => return stream,
                    Err(_not_yet) => tokio::time::sleep(LOOK).await,
                }
            }
        })
        .await
    }

    fn terminate(&self) {
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tunnel_lasts_until_the_deadline_and_no_longer() {
    let kit = Kit::new().await;
    let echo = guest::program(async |mut stream| {
        let (mut read, mut write) = stream.split();
        drop(tokio::io::copy(&mut read, &mut write).await);
    });
    let port = kit.port(echo.await, true);
    let mut daemon = Daemon::start(&kit, 2).await;
    let mut tunnel = daemon.connect().await;
    let head = format!("CONNECT {}:1 HTTP/1.1\r\nHost: x\r\n\r\n", port.name());
    tunnel.write_all(head.as_bytes()).await.unwrap();
    assert!(read_head(&mut tunnel).await.starts_with("HTTP/1.1 200 "));
    let asked = Instant::now();
    daemon.terminate();
    refuses(daemon.address).await;
    tunnel.write_all(b"still").await.unwrap();
    let mut back = [0; 5];
    within(tunnel.read_exact(&mut back)).await.unwrap();
    assert_eq!(&back, b"still");
    // Either way of ending will do.
    assert_eq!(within(tunnel.read(&mut back)).await.unwrap_or(0), 0);
    assert!(asked.elapsed() >= Duration::from_secs(2), "{:?}", asked.elapsed());
    let status = tokio::task::spawn_blocking(move || daemon.child.wait().unwrap()).await.unwrap();
    assert!(status.success(), "{status}");
}
