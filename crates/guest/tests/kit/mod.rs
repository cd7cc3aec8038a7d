//! An agent on a Unix socket, and a host that speaks to it, for tests.
//!
//! The client feeds every frame through `HostConnection`, so each test also checks that the agent keeps the
//! rules of the protocol.

#![allow(dead_code, reason = "each test binary uses its own part")]

pub(crate) mod jobs;

use std::{
    collections::HashMap,
    io::{BufRead, BufReader, Read, Write},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use bytes::BytesMut;
use space_guest_proto::{
    GuestFrame, HostConnection, HostFrame, Reply, Request, Stream,
    message::{
        AttachCommandRequest, CommandSpec, Event, EventKind, Exit, Gap, Hello, NoticeKind,
        PersonaliseRequest, Refusal, RefusalCode, SignalCommandRequest, TerminalSize, WriteStdinRequest,
    },
};

/// Nothing here takes that long on a machine that works.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) struct Agent {
    pub(crate) child: Child,
    pub(crate) socket: PathBuf,
    _directory: tempfile::TempDir,
}

impl Agent {
    /// The agent of this build.
    pub(crate) fn start() -> Self {
        Self::start_program(Path::new(env!("CARGO_BIN_EXE_space-guestd")))
    }

    pub(crate) fn start_program(program: &Path) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("agent");
        let child =
            Command::new(program).arg("--listen-unix").arg(&socket).stderr(Stdio::null()).spawn().unwrap();
        Self { child, socket, _directory: directory }
    }

    /// A bare connection, without a hello.
    pub(crate) fn connect(&self) -> Client {
        let end = Instant::now() + PATIENCE;
        let stream = loop {
            // The kernel tells nobody when a socket begins to listen.
            match UnixStream::connect(&self.socket) {
                Ok(stream) => break stream,
                Err(error) if Instant::now() > end => panic!("the agent does not listen: {error}"),
                Err(_) => std::thread::sleep(Duration::from_millis(5)),
            }
        };
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Client {
            stream,
            buffer: BytesMut::new(),
            rules: HostConnection::new(),
            waiting: Vec::new(),
            features: 0,
        }
    }

    /// A connection on which the hellos were said.
    pub(crate) fn client(&self) -> Client {
        let mut client = self.connect();
        client.send(HostFrame::Hello(Hello { protocol_min: 1, protocol_max: 1, ..Hello::default() }));
        let GuestFrame::Hello(hello) = client.receive() else { panic!("no hello") };
        assert_eq!(hello.protocol_max, 1);
        client.features = hello.features;
        client
    }

    /// The first connection of a fresh agent: personalised as generation 1.
    pub(crate) fn personalised(&self) -> Client {
        let mut client = self.client();
        let request = PersonaliseRequest {
            generation: 1,
            env: [("SANDBOX".to_owned(), "yes".to_owned())].into(),
            ..PersonaliseRequest::default()
        };
        client.call(request).unwrap();
        client
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

pub(crate) struct Client {
    pub(crate) stream: UnixStream,
    buffer: BytesMut,
    pub(crate) rules: HostConnection,
    /// Frames that came while another was waited for.
    waiting: Vec<GuestFrame>,
    /// As the agent's hello has them.
    pub(crate) features: u64,
}

/// All that a subscription saw.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) started: bool,
    pub(crate) output: Vec<(Stream, Vec<u8>)>,
    pub(crate) gaps: Vec<Gap>,
    pub(crate) exit: Option<Exit>,
    pub(crate) last_sequence: u64,
    pub(crate) ended: bool,
}

impl Seen {
    pub(crate) fn text(&self) -> String {
        let all: Vec<u8> = self.output.iter().flat_map(|(_, data)| data.clone()).collect();
        String::from_utf8(all).unwrap()
    }

    pub(crate) fn of(&self, stream: Stream) -> Vec<u8> {
        self.output.iter().filter(|(of, _)| *of == stream).flat_map(|(_, data)| data.clone()).collect()
    }

    pub(crate) fn add(&mut self, frame: &GuestFrame) {
        match frame {
            GuestFrame::Event { event: Event { sequence, kind: Some(kind), .. }, .. } => {
                self.last_sequence = *sequence;
                match kind {
                    EventKind::Started(_) => self.started = true,
                    EventKind::Exit(exit) => self.exit = Some(exit.clone()),
                    EventKind::Gap(gap) => self.gaps.push(gap.clone()),
                }
            }
            GuestFrame::Output { output, .. } => {
                self.last_sequence = output.head.sequence;
                self.output.push((output.head.stream, output.data.to_vec()));
            }
            GuestFrame::End { .. } => self.ended = true,
            other => panic!("not of a subscription: {other:?}"),
        }
    }
}

impl Client {
    pub(crate) fn send(&mut self, frame: HostFrame) {
        self.rules.send(&frame).unwrap();
        let mut bytes = BytesMut::new();
        frame.encode(&mut bytes).unwrap();
        self.stream.write_all(&bytes).unwrap();
    }

    /// The next frame from the socket.
    pub(crate) fn receive(&mut self) -> GuestFrame {
        loop {
            if let Some(frame) = GuestFrame::decode(&mut self.buffer).unwrap() {
                self.rules.receive(&frame).unwrap();
                return frame;
            }
            let mut bytes = [0; 8192];
            let read = self.stream.read(&mut bytes).unwrap();
            assert!(read > 0, "the agent closed the connection");
            self.buffer.extend_from_slice(&bytes[..read]);
        }
    }

    /// The next frame that `wanted` takes; others wait for their turn.
    pub(crate) fn receive_that(&mut self, wanted: impl Fn(&GuestFrame) -> bool) -> GuestFrame {
        if let Some(index) = self.waiting.iter().position(&wanted) {
            return self.waiting.remove(index);
        }
        loop {
            let frame = self.receive();
            if wanted(&frame) {
                return frame;
            }
            self.waiting.push(frame);
        }
    }

    /// The next frame with this id.
    pub(crate) fn receive_for(&mut self, id: u32) -> GuestFrame {
        self.receive_that(|frame| frame_id(frame) == id)
    }

    pub(crate) fn ask(&mut self, request: impl Into<Request>) -> u32 {
        let id = self.rules.free_id();
        self.send(HostFrame::request(id, request));
        id
    }

    pub(crate) fn answer(&mut self, id: u32) -> Result<Reply, RefusalCode> {
        match self.receive_for(id) {
            GuestFrame::Reply { reply, .. } => Ok(reply),
            GuestFrame::Refusal { refusal, .. } => Err(Refusal::code(&refusal)),
            other => panic!("not an answer: {other:?}"),
        }
    }

    pub(crate) fn call(&mut self, request: impl Into<Request>) -> Result<Reply, RefusalCode> {
        let id = self.ask(request);
        self.answer(id)
    }

    /// Attaches from the beginning with plenty of credit, creating the command; the subscription.
    pub(crate) fn run(&mut self, command_id: &str, spec: CommandSpec) -> u32 {
        self.attach(command_id, 0, 8 << 20, Some(spec)).unwrap()
    }

    pub(crate) fn attach(
        &mut self,
        command_id: &str,
        after_sequence: u64,
        credit: u64,
        create: Option<CommandSpec>,
    ) -> Result<u32, RefusalCode> {
        let command_id = command_id.to_owned();
        let id = self.ask(AttachCommandRequest { command_id, after_sequence, credit, create });
        self.answer(id).map(|_| id)
    }

    /// Everything until the subscription's end.
    pub(crate) fn watch(&mut self, id: u32) -> Seen {
        let mut seen = Seen::default();
        while !seen.ended {
            let frame = self.receive_for(id);
            seen.add(&frame);
        }
        seen
    }

    /// Everything until `enough`.
    pub(crate) fn watch_until(&mut self, id: u32, enough: impl Fn(&Seen) -> bool) -> Seen {
        let mut seen = Seen::default();
        while !enough(&seen) {
            let frame = self.receive_for(id);
            seen.add(&frame);
        }
        seen
    }

    pub(crate) fn write(
        &mut self,
        command_id: &str,
        offset: u64,
        data: &[u8],
        eof: bool,
    ) -> Result<u64, RefusalCode> {
        let data = data.to_vec().into();
        match self.call(WriteStdinRequest { command_id: command_id.to_owned(), offset, data, eof })? {
            Reply::WriteStdin(reply) => Ok(reply.next_offset),
            other => panic!("not the answer: {other:?}"),
        }
    }

    pub(crate) fn signal(&mut self, command_id: &str, signal: i32) -> Result<(), RefusalCode> {
        self.call(SignalCommandRequest { command_id: command_id.to_owned(), signal }).map(|_| ())
    }

    pub(crate) fn notice(&mut self) -> NoticeKind {
        match self.receive_that(|frame| matches!(frame, GuestFrame::Notice(_))) {
            GuestFrame::Notice(notice) => notice.kind(),
            other => panic!("not a notice: {other:?}"),
        }
    }

    /// True once the agent has closed the connection; what it said before goes to `frames`.
    pub(crate) fn read_to_end(&mut self) -> Vec<GuestFrame> {
        let mut bytes = Vec::new();
        // A reset is an end too.
        self.stream.read_to_end(&mut bytes).ok();
        self.buffer.extend_from_slice(&bytes);
        let mut frames = Vec::new();
        while let Some(frame) = GuestFrame::decode(&mut self.buffer).unwrap() {
            frames.push(frame);
        }
        frames
    }
}

pub(crate) fn frame_id(frame: &GuestFrame) -> u32 {
    match frame {
        GuestFrame::Hello(_) | GuestFrame::Notice(_) => 0,
        GuestFrame::Reply { id, .. }
        | GuestFrame::Refusal { id, .. }
        | GuestFrame::Event { id, .. }
        | GuestFrame::Output { id, .. }
        | GuestFrame::End { id, .. } => *id,
    }
}

/// A shell script as a command.
pub(crate) fn sh(script: &str) -> CommandSpec {
    CommandSpec { argv: ["sh", "-c", script].map(str::to_owned).to_vec(), ..CommandSpec::default() }
}

pub(crate) fn with_stdin(spec: CommandSpec) -> CommandSpec {
    CommandSpec { stdin: true, ..spec }
}

/// On a terminal of 24 rows and 80 columns.
pub(crate) fn on_terminal(spec: CommandSpec) -> CommandSpec {
    CommandSpec { terminal: Some(TerminalSize { rows: 24, columns: 80 }), ..spec }
}

/// Variables of a process, by name.
pub(crate) fn variables(text: &str) -> HashMap<String, String> {
    let lines = BufReader::new(text.as_bytes()).lines();
    lines
        .filter_map(|line| line.unwrap().split_once('=').map(|(a, b)| (a.to_owned(), b.to_owned())))
        .collect()
}
