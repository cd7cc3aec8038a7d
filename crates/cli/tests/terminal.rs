//! The client on a terminal of its own, against a server that plays a script.

#![allow(clippy::unwrap_used, reason = "in a test it is the assertion")]

mod kit;

use std::{
    fs::File,
    io::{Read, Write},
    os::fd::OwnedFd,
    process::Stdio,
    sync::mpsc,
    time::Duration,
};

use kit::{COMMAND, Mock, SANDBOX, Script, Turn};
use nix::{
    pty::{Winsize, openpty},
    sys::{
        signal::{Signal, kill},
        termios::{LocalFlags, tcgetattr},
    },
    unistd::Pid,
};
use serde_json::json;

/// No test waits longer for anything.
const PATIENCE: Duration = Duration::from_secs(30);

/// A terminal with the client on it.
struct Screen {
    child: tokio::process::Child,
    keys: File,
    slave: OwnedFd,
    shown: mpsc::Receiver<Vec<u8>>,
    text: String,
}

fn size(rows: u16, columns: u16) -> Winsize {
    Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }
}

impl Screen {
    fn start(mock: &Mock, arguments: &[&str]) -> Self {
        let pty = openpty(Some(&size(30, 100)), None).unwrap();
        let side = || Stdio::from(pty.slave.try_clone().unwrap());
        let mut command = mock.space(arguments);
        let child = command.env("TERM", "vt100").stdin(side()).stdout(side()).stderr(side()).spawn().unwrap();
        let keys = File::from(pty.master);
        let mut screen = keys.try_clone().unwrap();
        let (sender, shown) = mpsc::channel();
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(length @ 1..) = screen.read(&mut bytes) {
                if sender.send(bytes[..length].to_vec()).is_err() {
                    return;
                }
            }
        });
        Self { child, keys, slave: pty.slave, shown, text: String::new() }
    }

    /// Waits until `text` is on the screen.
    async fn shows(&mut self, text: &str) {
        while !self.text.contains(text) {
            match self.shown.try_recv() {
                Ok(bytes) => self.text.push_str(&String::from_utf8_lossy(&bytes)),
                // The thread has no other way to tell the test's runtime.
                Err(mpsc::TryRecvError::Empty) => tokio::time::sleep(Duration::from_millis(5)).await,
                Err(mpsc::TryRecvError::Disconnected) => panic!("no {text:?} in {:?}", self.text),
            }
        }
    }

    async fn expect(&mut self, text: &str) {
        let shown = tokio::time::timeout(PATIENCE, self.shows(text)).await.is_ok();
        assert!(shown, "no {text:?} in {:?}", self.text);
    }

    fn type_in(&mut self, keys: &[u8]) {
        self.keys.write_all(keys).unwrap();
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().unwrap().try_into().unwrap()), signal).unwrap();
    }

    fn is_raw(&self) -> bool {
        !tcgetattr(&self.slave).unwrap().local_flags.contains(LocalFlags::ICANON)
    }

    async fn code(&mut self) -> Option<i32> {
        tokio::time::timeout(PATIENCE, self.child.wait()).await.expect("it does not end").unwrap().code()
    }
}

fn script(terminal: Vec<Vec<Turn>>) -> Script {
    Script { terminal, ..Script::default() }
}

#[tokio::test]
async fn a_shell_feels_local_and_leaves_the_terminal_as_it_was() {
    let turns = vec![Turn::Output(2, "$ "), Turn::UntilTyped(4), Turn::Output(3, "bye"), Turn::Exit(7)];
    let mock = Mock::start(script(vec![turns])).await;
    let mut screen = Screen::start(&mock, &["shell", SANDBOX, "--", "zsh", "-f"]);
    screen.expect("$ ").await;
    assert!(screen.is_raw());
    // Ctrl-C is a key like any other.
    screen.type_in(b"\x03\x00\xffq");
    screen.expect("bye").await;
    assert_eq!(screen.code().await, Some(7));
    assert!(!screen.is_raw());
    assert_eq!(mock.stdin(), b"\x03\x00\xffq");
    let seen = mock.seen();
    assert_eq!(
        seen[0].body,
        json!({
            "argv": ["zsh", "-f"], "env": {"TERM": "vt100"}, "stdin": false,
            "terminal": {"rows": 30, "columns": 100},
        })
    );
    assert_eq!(seen[1].request, format!("GET /v1/sandboxes/{SANDBOX}/commands/{COMMAND}/terminal"));
}

#[tokio::test]
async fn without_a_command_it_is_the_login_shell() {
    let mock = Mock::start(script(vec![vec![Turn::Exit(0)]])).await;
    let mut screen = Screen::start(&mock, &["shell", SANDBOX]);
    assert_eq!(screen.code().await, Some(0));
    let argv = &mock.seen()[0].body["argv"];
    assert_eq!((&argv[0], &argv[1]), (&json!("/bin/sh"), &json!("-c")));
    assert!(argv[2].as_str().unwrap().contains("$SHELL") || argv[2].as_str().unwrap().contains("${SHELL"));
}

#[tokio::test]
async fn a_new_size_of_the_window_reaches_the_command() {
    let turns = vec![Turn::UntilSizes(1), Turn::Output(2, "up"), Turn::UntilSizes(2), Turn::Exit(0)];
    let mock = Mock::start(script(vec![turns])).await;
    let mut screen = Screen::start(&mock, &["exec", "-t", SANDBOX, "top"]);
    screen.expect("up").await;
    let window = rustix::termios::Winsize { ws_row: 50, ws_col: 132, ws_xpixel: 0, ws_ypixel: 0 };
    rustix::termios::tcsetwinsize(&screen.slave, window).unwrap();
    // The terminal is not the controlling one of the client here, so the kernel tells it nothing.
    screen.signal(Signal::SIGWINCH);
    assert_eq!(screen.code().await, Some(0));
    assert_eq!(mock.sizes(), [(30, 100), (50, 132)]);
}

#[tokio::test]
async fn a_lost_connection_is_continued_where_it_was() {
    let first = vec![
        Turn::Output(2, "one"),
        Turn::UntilTyped(2),
        Turn::UntilTypedInSilence(4),
        Turn::Output(3, "two"),
        Turn::Break,
    ];
    // The server is allowed to repeat; the client is not, nor does it lose the bytes whose fate it doesn't know.
    let second = vec![Turn::Output(3, "two"), Turn::Output(4, "three"), Turn::UntilTyped(5), Turn::Exit(0)];
    let mock = Mock::start(script(vec![first, second])).await;
    let mut screen = Screen::start(&mock, &["shell", SANDBOX]);
    screen.expect("one").await;
    screen.type_in(b"ab");
    screen.type_in(b"cd");
    screen.expect("the connection is lost").await;
    screen.expect("connected again").await;
    screen.expect("three").await;
    screen.type_in(b"e");
    assert_eq!(screen.code().await, Some(0));
    assert_eq!(mock.stdin(), b"abcde");
    assert_eq!(screen.text.matches("two").count(), 1, "{:?}", screen.text);
    let resumed = &mock.seen()[2];
    assert!(resumed.query.contains("after=1.3"), "{}", resumed.query);
    assert!(!screen.is_raw());
}

#[tokio::test]
async fn a_tilde_and_a_dot_leave_the_command_running() {
    let mock = Mock::start(script(vec![vec![Turn::Output(2, "$ "), Turn::Hold]])).await;
    let mut screen = Screen::start(&mock, &["shell", SANDBOX]);
    screen.expect("$ ").await;
    screen.type_in(b"~.");
    screen.expect(&format!("space shell {SANDBOX} --attach {COMMAND}")).await;
    assert_eq!(screen.code().await, Some(0));
    assert!(!screen.is_raw());
    assert!(mock.requests().iter().all(|request| !request.ends_with("signal")), "{:?}", mock.requests());
}

#[tokio::test]
async fn a_signal_from_outside_restores_the_terminal_too() {
    for (signal, code) in [(Signal::SIGTERM, 143), (Signal::SIGQUIT, 131)] {
        let mock = Mock::start(script(vec![vec![Turn::Output(2, "$ "), Turn::Hold]])).await;
        let mut screen = Screen::start(&mock, &["shell", SANDBOX]);
        screen.expect("$ ").await;
        assert!(screen.is_raw());
        screen.signal(signal);
        assert_eq!(screen.code().await, Some(code));
        assert!(!screen.is_raw());
    }
}

#[tokio::test]
async fn without_a_sandbox_one_is_made_and_deleted() {
    let turns = || vec![vec![Turn::Output(2, "$ "), Turn::UntilTyped(1), Turn::Exit(3)]];
    for (arguments, deleted) in [(vec!["shell"], true), (vec!["shell", "--keep", "-t", "python"], false)] {
        let mock = Mock::start(script(turns())).await;
        let mut screen = Screen::start(&mock, &arguments);
        screen.expect("$ ").await;
        screen.type_in(b"x");
        assert_eq!(screen.code().await, Some(3));
        let wanted = format!("DELETE /v1/sandboxes/{SANDBOX}");
        assert_eq!(mock.requests().contains(&wanted), deleted, "{:?}", mock.requests());
    }
}

#[tokio::test]
async fn who_left_a_new_sandbox_can_come_back_to_it() {
    let mock = Mock::start(script(vec![vec![Turn::Output(2, "$ "), Turn::Hold]])).await;
    let mut screen = Screen::start(&mock, &["shell"]);
    screen.expect("$ ").await;
    screen.type_in(b"~.");
    screen.expect(&format!("kept {SANDBOX}")).await;
    assert_eq!(screen.code().await, Some(0));
    assert!(!mock.requests().iter().any(|request| request.starts_with("DELETE")));
}

#[tokio::test]
async fn without_a_terminal_it_says_what_to_use() {
    let mock = Mock::start(Script::default()).await;
    let output = mock.output(&["shell", SANDBOX]).await;
    assert_eq!(output.status.code(), Some(125));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("not a terminal") && said.contains("space exec"), "{said}");
    assert!(mock.requests().is_empty());
}

#[tokio::test]
async fn top_is_shown_again_and_gives_the_screen_back() {
    let mock = Mock::start(Script::default()).await;
    let mut screen = Screen::start(&mock, &["top"]);
    screen.expect(SANDBOX).await;
    screen.text.clear();
    screen.expect(SANDBOX).await;
    assert!(mock.requests().len() > 1, "{:?}", mock.requests());
    screen.signal(Signal::SIGINT);
    assert_eq!(screen.code().await, Some(0));
    screen.expect("\u{1b}[?1049l").await;
}
