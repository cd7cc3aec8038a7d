//! `space port`, against a server and an edge that play what a test tells them to.

#![allow(clippy::unwrap_used, reason = "in a test it is the assertion")]

mod kit;

use std::{net::SocketAddr, process::Output, sync::Arc};

use kit::{
    Mock, SANDBOX, Script,
    edge::{Connect, Edge},
    problem,
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::{TcpListener, TcpStream},
    process::{Child, ChildStderr},
    sync::mpsc,
};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{self, pki_types::PrivateKeyDer},
};

fn text(output: &Output) -> (Option<i32>, String, String) {
    let lossy = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), lossy(&output.stdout), lossy(&output.stderr))
}

async fn server(edge: &Edge) -> Mock {
    Mock::start(Script { edge: ("http", edge.port), ..Script::default() }).await
}

/// `space port forward`, ready.
struct Forwarding {
    child: Child,
    stderr: BufReader<ChildStderr>,
    lines: Vec<String>,
}

impl Forwarding {
    async fn start(mock: &Mock, ports: &[&str]) -> Self {
        Self::with(mock, ports, &[], &[]).await
    }

    async fn with(mock: &Mock, ports: &[&str], more: &[&str], variables: &[(&str, &str)]) -> Self {
        let mut command = mock.space(&[&["port", "forward", SANDBOX], ports, more].concat());
        let mut child = command.envs(variables.iter().copied()).spawn().unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let mut stdout = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut lines = Vec::new();
        while lines.len() < ports.len() {
            lines.push(stdout.next_line().await.unwrap().expect("it forwards"));
        }
        Self { child, stderr, lines }
    }

    /// Where the first port is forwarded.
    fn address(&self) -> SocketAddr {
        address(&self.lines[0])
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address()).await.unwrap()
    }

    /// The next two lines that it says: what failed, and what to do.
    async fn complaint(&mut self) -> (String, String) {
        let (mut what, mut hint) = (String::new(), String::new());
        self.stderr.read_line(&mut what).await.unwrap();
        self.stderr.read_line(&mut hint).await.unwrap();
        (what.trim_end().to_owned(), hint.trim().to_owned())
    }

    /// Ctrl-C: the exit code, and what it had to say that was not read before.
    async fn interrupt(mut self) -> (Option<i32>, String) {
        kill(Pid::from_raw(self.child.id().unwrap().try_into().unwrap()), Signal::SIGINT).unwrap();
        let mut said = String::new();
        self.stderr.read_to_string(&mut said).await.unwrap();
        (self.child.wait().await.unwrap().code(), said)
    }
}

fn address(line: &str) -> SocketAddr {
    line.strip_prefix("Forwarding ").and_then(|rest| rest.split_once(" -> ")).unwrap().0.parse().unwrap()
}

/// What is read to the end, or that the connection was reset.
async fn rest(mut stream: TcpStream) -> Result<String, std::io::ErrorKind> {
    let mut text = String::new();
    stream.read_to_string(&mut text).await.map(|_| text).map_err(|error| error.kind())
}

/// Answers with all that was said, when all was said.
async fn echo(connect: Connect) {
    let mut stream = connect.accept().await;
    let mut heard = Vec::new();
    stream.read_to_end(&mut heard).await.unwrap();
    stream.write_all(&heard).await.unwrap();
    stream.shutdown().await.unwrap();
}

#[tokio::test]
async fn what_is_sent_here_arrives_there_and_comes_back() {
    let edge = Edge::start(|connect| async move {
        let label = SANDBOX.trim_start_matches("sbx_");
        assert!(connect.target.starts_with(&format!("8000-{label}.localhost:")), "{}", connect.target);
        assert_eq!(connect.token, "token-1");
        echo(connect).await;
    });
    let edge = edge.await;
    let mock = server(&edge).await;
    let forwarding = Forwarding::start(&mock, &["0:8000"]).await;
    let sent: Vec<u8> = (0..3_000_000_u32).map(|number| (number ^ (number >> 8)).to_le_bytes()[0]).collect();
    let mut stream = forwarding.connect().await;
    stream.write_all(&sent).await.unwrap();
    stream.shutdown().await.unwrap();
    let mut back = Vec::new();
    stream.read_to_end(&mut back).await.unwrap();
    assert!(back == sent, "{} bytes came back", back.len());
    let line = format!("Forwarding {} -> 8000 of {SANDBOX}", forwarding.address());
    assert_eq!(forwarding.lines, [line]);
    assert_eq!(mock.requests(), [format!("POST /v1/sandboxes/{SANDBOX}/ports/8000/tokens")]);
    assert_eq!(forwarding.interrupt().await, (Some(0), String::new()));
}

#[tokio::test]
async fn the_side_in_the_sandbox_may_end_first() {
    let (heard, mut hears) = mpsc::channel(1);
    let edge = Edge::start(move |connect| {
        let heard = heard.clone();
        async move {
            let mut stream = connect.accept().await;
            stream.write_all(b"no more from me").await.unwrap();
            stream.shutdown().await.unwrap();
            let mut text = String::new();
            stream.read_to_string(&mut text).await.unwrap();
            heard.send(text).await.unwrap();
        }
    });
    let edge = edge.await;
    let forwarding = Forwarding::start(&server(&edge).await, &["0:8000"]).await;
    let mut stream = forwarding.connect().await;
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    assert_eq!(text, "no more from me");
    stream.write_all(b"but from me").await.unwrap();
    stream.shutdown().await.unwrap();
    assert_eq!(hears.recv().await.unwrap(), "but from me");
    assert_eq!(forwarding.interrupt().await, (Some(0), String::new()));
}

#[tokio::test]
async fn several_ports_are_forwarded_at_once() {
    let edge = Edge::start(|connect| async move {
        let port = connect.target.split('-').next().unwrap().to_owned();
        connect.accept().await.write_all(port.as_bytes()).await.unwrap();
    });
    let edge = edge.await;
    let mock = server(&edge).await;
    let forwarding = Forwarding::with(&mock, &["0:8000", "0:9000"], &["--json"], &[]).await;
    for (line, port) in forwarding.lines.iter().zip([8000, 9000]) {
        let facts: Value = serde_json::from_str(line).unwrap();
        assert_eq!((&facts["port"], &facts["sandbox_id"]), (&json!(port), &json!(SANDBOX)));
        let stream = TcpStream::connect(facts["address"].as_str().unwrap()).await.unwrap();
        assert_eq!(rest(stream).await.unwrap(), port.to_string());
    }
}

#[tokio::test]
async fn a_token_that_is_refused_is_replaced() {
    let edge = Edge::start(|connect| async move {
        match connect.token.as_str() {
            "token-1" => connect.refuse(401, "port_unauthorized").await,
            _ => echo(connect).await,
        }
    });
    let edge = edge.await;
    let mock = server(&edge).await;
    let forwarding = Forwarding::start(&mock, &["0:8000"]).await;
    for _ in 0..3 {
        let mut stream = forwarding.connect().await;
        stream.write_all(b"x").await.unwrap();
        stream.shutdown().await.unwrap();
        assert_eq!(rest(stream).await.unwrap(), "x");
    }
    assert_eq!(mock.requests().len(), 2, "one token, and one in its place");
    assert_eq!(forwarding.interrupt().await, (Some(0), String::new()));
}

#[tokio::test]
async fn what_is_refused_is_said_and_ends_nothing_else() {
    let answers = [
        (Some(401), "port_unauthorized", "clocks"),
        (Some(404), "port_unknown", "`ports.base_url`"),
        (Some(502), "port_not_listening", "start what is to listen there"),
        (Some(503), "port_sandbox_not_running", "`space get`"),
        (None, "", "another proxy"),
    ];
    let (next, answer) = mpsc::channel(1);
    let answer = Arc::new(tokio::sync::Mutex::new(answer));
    let edge = Edge::start(move |connect: Connect| {
        let answer = answer.clone();
        async move {
            match answer.lock().await.recv().await.unwrap() {
                (Some(status), code, _) => connect.refuse(status, code).await,
                (None, ..) => connect.answer("HTTP/1.1 403 Forbidden", "a firewall").await,
            }
        }
    });
    let edge = edge.await;
    let mut forwarding = Forwarding::start(&server(&edge).await, &["0:8000"]).await;
    for expected @ (status, code, hint) in answers {
        let stream = forwarding.connect().await;
        next.send(expected).await.unwrap();
        if status == Some(401) {
            next.send(expected).await.unwrap();
        }
        assert_eq!(rest(stream).await, Err(std::io::ErrorKind::ConnectionReset), "{code}");
        let (what, what_to_do) = forwarding.complaint().await;
        if status.is_some() {
            assert_eq!(what, format!("space: port 8000: about {code} ({code})"));
        } else {
            assert!(what.ends_with("answered with status 403, and not as an edge does"), "{what}");
        }
        assert!(what_to_do.starts_with("hint: ") && what_to_do.contains(hint), "{what_to_do}");
    }
    assert_eq!(forwarding.interrupt().await, (Some(0), String::new()), "each is said once");
}

#[tokio::test]
async fn an_edge_that_is_gone_is_told() {
    let edge = Edge::start(echo).await;
    let mut forwarding = Forwarding::with(&server(&edge).await, &["0:8000"], &["--json"], &[]).await;
    let facts: Value = serde_json::from_str(&forwarding.lines[0]).unwrap();
    edge.stop().await;
    let stream = TcpStream::connect(facts["address"].as_str().unwrap()).await.unwrap();
    assert_eq!(rest(stream).await, Err(std::io::ErrorKind::ConnectionReset));
    let mut line = String::new();
    forwarding.stderr.read_line(&mut line).await.unwrap();
    let told: Value = serde_json::from_str(&line).unwrap();
    let detail = told["error"]["detail"].as_str().unwrap();
    assert!(detail.starts_with("no answer from the edge at http://8000-"), "{detail}");
    assert!(detail.contains("Connection refused"), "{detail}");
    assert_eq!(told["port"], 8000);
}

#[tokio::test]
async fn a_connection_that_breaks_there_breaks_here() {
    let edge = Edge::resetting(|connect| async move {
        let mut stream = connect.accept().await;
        stream.write_all(b"half").await.unwrap();
        // It leaves when that has arrived.
        stream.read_u8().await.unwrap();
    });
    let edge = edge.await;
    let mut forwarding = Forwarding::start(&server(&edge).await, &["0:8000"]).await;
    let mut stream = forwarding.connect().await;
    stream.read_exact(&mut [0; 4]).await.unwrap();
    stream.write_all(b"x").await.unwrap();
    assert_eq!(rest(stream).await, Err(std::io::ErrorKind::ConnectionReset));
    let (what, hint) = forwarding.complaint().await;
    assert!(what.starts_with("space: port 8000: the connection broke: "), "{what}");
    assert!(hint.contains("connect again"), "{hint}");
}

#[tokio::test]
async fn a_program_here_that_breaks_off_is_no_failure() {
    let (ended, mut ends) = mpsc::channel(1);
    let edge = Edge::start(move |connect| {
        let ended = ended.clone();
        async move {
            let mut stream = connect.accept().await;
            stream.write_all(b"x").await.unwrap();
            stream.read_to_end(&mut Vec::new()).await.ok();
            ended.send(()).await.unwrap();
        }
    });
    let edge = edge.await;
    let forwarding = Forwarding::start(&server(&edge).await, &["0:8000"]).await;
    let mut stream = forwarding.connect().await;
    stream.read_u8().await.unwrap();
    stream.set_zero_linger().unwrap();
    drop(stream);
    ends.recv().await.unwrap();
    assert_eq!(forwarding.interrupt().await, (Some(0), String::new()));
}

#[tokio::test]
async fn a_port_that_is_taken_here_is_told_before_anything_is_asked_for() {
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let number = taken.local_addr().unwrap().port();
    let mock = Mock::start(Script::default()).await;
    let output = mock.output(&["port", "forward", SANDBOX, &format!("{number}:8000")]).await;
    let (code, stdout, stderr) = text(&output);
    assert_eq!((code, stdout.as_str()), (Some(1), ""));
    assert!(
        stderr.starts_with(&format!("space: cannot listen on 127.0.0.1:{number}: Address already in use")),
        "{stderr}"
    );
    let hint =
        format!("hint: another program listens there; `space port forward {SANDBOX} 0:8000` takes a port");
    assert!(stderr.contains(&hint), "{stderr}");
    assert_eq!(mock.requests().len(), 0);
}

#[tokio::test]
async fn what_can_not_be_forwarded_at_all_ends_it() {
    let token = format!("POST /v1/sandboxes/{SANDBOX}/ports/8000/tokens").leak();
    let refuse = vec![(&*token, 409, problem("ports_not_configured", 409, "no edge serves ports here"))];
    let mock = Mock::start(Script { refuse, ..Script::default() }).await;
    let (code, stdout, stderr) = text(&mock.output(&["port", "forward", SANDBOX, "0:8000"]).await);
    assert_eq!((code, stdout.as_str()), (Some(1), ""));
    assert!(stderr.contains("(ports_not_configured)\n  hint: an edge has to be set up"), "{stderr}");
}

/// A certificate for names below `localhost`, which is its own authority, and who shows it.
fn certificate() -> (String, TlsAcceptor) {
    let label = SANDBOX.trim_start_matches("sbx_");
    let made = rcgen::generate_simple_self_signed(vec![format!("8000-{label}.localhost")]).unwrap();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let config =
        rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key)
            .unwrap();
    (made.cert.pem(), TlsAcceptor::from(Arc::new(config)))
}

#[tokio::test]
async fn with_https_the_edge_has_to_be_one_that_the_system_trusts() {
    let (pem, tls) = certificate();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), pem).unwrap();
    let edge = Edge::tls(tls, echo).await;
    let mock = Mock::start(Script { edge: ("https", edge.port), ..Script::default() }).await;
    let trusting = [("SSL_CERT_FILE", file.path().to_str().unwrap())];
    let forwarding = Forwarding::with(&mock, &["0:8000"], &[], &trusting).await;
    let mut stream = forwarding.connect().await;
    let sent = vec![7; 1 << 20];
    stream.write_all(&sent).await.unwrap();
    stream.shutdown().await.unwrap();
    let mut back = Vec::new();
    stream.read_to_end(&mut back).await.unwrap();
    assert!(back == sent, "{} bytes came back", back.len());
    assert_eq!(forwarding.interrupt().await, (Some(0), String::new()));

    let (other, _) = certificate();
    std::fs::write(file.path(), other).unwrap();
    let mut forwarding = Forwarding::with(&mock, &["0:8000"], &[], &trusting).await;
    assert_eq!(rest(forwarding.connect().await).await, Err(std::io::ErrorKind::ConnectionReset));
    let (what, _) = forwarding.complaint().await;
    assert!(
        what.contains("no answer from the edge at https://8000-") && what.contains("certificate"),
        "{what}"
    );
}

#[tokio::test]
async fn ports_are_listed_and_set() {
    let mock =
        Mock::start(Script { edge: ("http", 8710), public_ports: vec![8001], ..Script::default() }).await;
    insta::assert_snapshot!(text(&mock.output(&["port", "ls", SANDBOX]).await).1, @r"
    PORT  VISIBILITY  URL
    8000  private     http://8000-01920000000070008000000000000001.localhost:8710
    8001  public      http://8001-01920000000070008000000000000001.localhost:8710
    ");
    let listed: Value =
        serde_json::from_slice(&mock.output(&["port", "ls", SANDBOX, "--json"]).await.stdout).unwrap();
    assert_eq!((&listed[0]["port"], &listed[1]["visibility"]), (&json!(8000), &json!("public")));
    for visibility in ["public", "private"] {
        let (code, stdout, _) = text(&mock.output(&["port", visibility, SANDBOX, "8000"]).await);
        assert!(code == Some(0) && stdout.starts_with("http://8000-"), "{stdout}");
        let put = mock.seen().pop().unwrap();
        assert_eq!(put.request, format!("PUT /v1/sandboxes/{SANDBOX}/ports/8000"));
        assert_eq!(put.body, json!({ "visibility": visibility }));
    }
    let revoked = mock.output(&["port", "revoke", SANDBOX, "8000"]).await;
    assert_eq!(text(&revoked), (Some(0), String::new(), String::new()));
    assert_eq!(mock.requests().pop().unwrap(), format!("DELETE /v1/sandboxes/{SANDBOX}/ports/8000/tokens"));
}

#[tokio::test]
async fn an_address_that_opens_a_port_has_a_token_where_it_needs_one() {
    let mock =
        Mock::start(Script { edge: ("http", 8710), public_ports: vec![8001], ..Script::default() }).await;
    let url = |port: u16| format!("http://{port}-{}.localhost:8710", SANDBOX.trim_start_matches("sbx_"));
    let (_, stdout, stderr) = text(&mock.output(&["port", "url", SANDBOX, "8001"]).await);
    assert_eq!((stdout, stderr), (url(8001) + "\n", String::new()));
    assert_eq!(mock.requests().len(), 1, "no token is made for what is open");
    let (_, stdout, stderr) = text(&mock.output(&["port", "url", SANDBOX, "8000", "--valid", "60"]).await);
    assert_eq!(stdout, url(8000) + "/?space_port_token=token-1\n");
    assert!(stderr.contains("until 2026-01-31T07:00:00.000Z"), "{stderr}");
    assert_eq!(mock.seen().pop().unwrap().body, json!({ "valid_seconds": 60 }));
    let (_, stdout, _) = text(&mock.output(&["port", "token", SANDBOX, "8000"]).await);
    assert_eq!(stdout, "token-2\n");
    assert_eq!(mock.seen().pop().unwrap().body, json!({ "valid_seconds": 3600 }));
    let asked = mock.requests().len();
    assert_eq!(
        mock.output(&["port", "token", SANDBOX, "8000", "--valid", "2592001"]).await.status.code(),
        Some(1)
    );
    assert_eq!(mock.requests().len(), asked, "refused here");
}
