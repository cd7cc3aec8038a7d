//! Payloads. Tags are explicit and never reused; a field that goes keeps its tag reserved in `PROTOCOL.md`.
//! What the fields of a command mean is defined by `proto/commands.proto`, which these mirror.

use std::collections::BTreeMap;

use bytes::Bytes;
use prost::{Enumeration, Message, Oneof};

/// First frame of each side on each connection.
#[derive(Clone, PartialEq, Message)]
pub struct Hello {
    #[prost(uint32, tag = "1")]
    pub protocol_min: u32,
    #[prost(uint32, tag = "2")]
    pub protocol_max: u32,
    #[prost(enumeration = "Role", tag = "3")]
    pub role: i32,
    /// Of the program that speaks, for logs and for `ObservedSandbox.agent_version`.
    #[prost(string, tag = "4")]
    pub version: String,
    /// Bits of optional features, see [`feature`](crate::feature). A bit that is not known means nothing.
    #[prost(uint64, tag = "5")]
    pub features: u64,
    /// Guest only: the generation it was personalised with, 0 if it never was.
    #[prost(uint64, tag = "6")]
    pub generation: u64,
    /// Guest only: why the root drive could not be mounted; empty if it was. Without a root no command runs.
    #[prost(string, tag = "7")]
    pub root_error: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Enumeration)]
#[repr(i32)]
pub enum Role {
    Unspecified = 0,
    Host = 1,
    Guest = 2,
}

/// The guest's answer to a request that it did not carry out. With id 0 it ends the connection.
#[derive(Clone, PartialEq, Message)]
pub struct Refusal {
    #[prost(enumeration = "RefusalCode", tag = "1")]
    pub code: i32,
    /// For people. Guest-made text: at most [`TEXT_BYTES`](crate::limits::TEXT_BYTES).
    #[prost(string, tag = "2")]
    pub message: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Enumeration)]
#[repr(i32)]
pub enum RefusalCode {
    Unspecified = 0,
    /// A field is out of range.
    Invalid = 1,
    /// No such command.
    NotFound = 2,
    /// The id is taken by a command with another specification.
    AlreadyExists = 3,
    /// The command has not started or has exited.
    NotRunning = 4,
    /// Stdin was closed: by `eof`, by the command, or from the start.
    StdinClosed = 5,
    /// The write begins behind the next offset.
    StdinHole = 6,
    /// A limit on commands, memory or calls is reached.
    Exhausted = 7,
    /// The agent doesn't know this request.
    Unsupported = 8,
    /// Commands are refused until the guest is personalised.
    NotPersonalised = 9,
    /// The generation is older than the guest's.
    StaleGeneration = 10,
    /// No common protocol version. Ends the connection.
    Version = 11,
    /// A rule of the protocol was broken. Ends the connection.
    Protocol = 12,
    /// The guest's kernel refused something that should work.
    Internal = 13,
    /// The command existed and was forgotten to make room; it won't be run again.
    Forgotten = 14,
    /// Another write to the same stdin is waiting.
    Busy = 15,
    /// The guest is going down.
    ShuttingDown = 16,
    /// There is no root filesystem.
    NoRoot = 17,
    /// The command has no terminal.
    NoTerminal = 18,
}

/// Guest to host, id 0, unasked: what the guest is about to do to itself.
#[derive(Clone, PartialEq, Message)]
pub struct Notice {
    #[prost(enumeration = "NoticeKind", tag = "1")]
    pub kind: i32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Enumeration)]
#[repr(i32)]
pub enum NoticeKind {
    Unspecified = 0,
    PowerOff = 1,
    Reboot = 2,
}

/// Host to guest: the notice was taken. The guest waits for it a moment before it goes down.
#[derive(Clone, PartialEq, Message)]
pub struct NoticeTaken {}

/// Everything a fresh or restored guest has to be told before it may run anything.
#[derive(Clone, PartialEq, Message)]
pub struct PersonaliseRequest {
    /// Unix time in nanoseconds. 0 leaves the clock alone.
    #[prost(uint64, tag = "1")]
    pub wall_clock_ns: u64,
    /// Goes into the kernel's pool, credited. 64 bytes are usual.
    #[prost(bytes = "bytes", tag = "2")]
    pub entropy: Bytes,
    /// Empty leaves the name alone.
    #[prost(string, tag = "3")]
    pub hostname: String,
    /// For every command; replaces what was set before.
    #[prost(btree_map = "string, string", tag = "4")]
    pub env: BTreeMap<String, String>,
    /// Never 0. Events carry it; one older than the guest's is refused.
    #[prost(uint64, tag = "5")]
    pub generation: u64,
}
#[derive(Clone, PartialEq, Message)]
pub struct PersonaliseReply {
    /// The guest's clock minus `wall_clock_ns`, before it was set.
    #[prost(sint64, tag = "1")]
    pub clock_skew_ns: i64,
    #[prost(bool, tag = "2")]
    pub clock_set: bool,
    #[prost(bool, tag = "3")]
    pub entropy_added: bool,
}

#[derive(Clone, PartialEq, Message)]
pub struct HealthRequest {}
#[derive(Clone, PartialEq, Message)]
pub struct HealthReply {
    #[prost(uint64, tag = "1")]
    pub generation: u64,
    /// See [`Hello::root_error`].
    #[prost(string, tag = "2")]
    pub root_error: String,
    /// Since the guest's boot, by its monotonic clock.
    #[prost(uint64, tag = "3")]
    pub uptime_ms: u64,
    /// The guest's wall clock.
    #[prost(uint64, tag = "4")]
    pub wall_clock_ns: u64,
    #[prost(uint32, tag = "5")]
    pub commands_running: u32,
    #[prost(uint32, tag = "6")]
    pub commands_total: u32,
    /// Resident memory of the agent.
    #[prost(uint64, tag = "7")]
    pub agent_memory_bytes: u64,
    #[prost(uint64, tag = "8")]
    pub memory_total_bytes: u64,
    #[prost(uint64, tag = "9")]
    pub memory_available_bytes: u64,
    /// Things that went wrong while the guest was set up and are not fatal: at most 16 lines.
    #[prost(string, repeated, tag = "10")]
    pub warnings: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
pub struct SetClockRequest {
    /// Unix time in nanoseconds.
    #[prost(uint64, tag = "1")]
    pub wall_clock_ns: u64,
}
#[derive(Clone, PartialEq, Message)]
pub struct SetClockReply {
    /// The guest's clock minus `wall_clock_ns`, before it was set.
    #[prost(sint64, tag = "1")]
    pub clock_skew_ns: i64,
}

#[derive(Clone, PartialEq, Message)]
pub struct AddEntropyRequest {
    /// 1 to [`ENTROPY_BYTES`](crate::limits::ENTROPY_BYTES).
    #[prost(bytes = "bytes", tag = "1")]
    pub entropy: Bytes,
}
#[derive(Clone, PartialEq, Message)]
pub struct AddEntropyReply {}

/// Powers the guest off: ends what runs, writes the disk back, ends the VM.
#[derive(Clone, PartialEq, Message)]
pub struct ShutdownRequest {}
/// Sent before anything is ended.
#[derive(Clone, PartialEq, Message)]
pub struct ShutdownReply {}

#[derive(Clone, PartialEq, Message)]
pub struct CommandSpec {
    /// `argv[0]` is looked up in `PATH` unless it holds a slash.
    #[prost(string, repeated, tag = "1")]
    pub argv: Vec<String>,
    /// Over the sandbox's own.
    #[prost(btree_map = "string, string", tag = "2")]
    pub env: BTreeMap<String, String>,
    /// Empty: the user's home.
    #[prost(string, tag = "3")]
    pub cwd: String,
    /// Name or uid. Empty: `user` if the template has it, else root.
    #[prost(string, tag = "4")]
    pub user: String,
    /// 0: none. At the end SIGTERM to the process group, 5 s later SIGKILL to all the command started.
    #[prost(uint64, tag = "5")]
    pub timeout_ms: u64,
    /// False: `/dev/null`. A terminal is written to in any case.
    #[prost(bool, tag = "6")]
    pub stdin: bool,
    /// Stdin, stdout and stderr are one terminal, the controlling one of the command's session. Only for agents
    /// with [`feature::TERMINAL`](crate::feature::TERMINAL): older ones would run the command on pipes.
    #[prost(message, optional, tag = "7")]
    pub terminal: Option<TerminalSize>,
}

/// Each 1 to [`TERMINAL_CELLS`](crate::limits::TERMINAL_CELLS).
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct TerminalSize {
    #[prost(uint32, tag = "1")]
    pub rows: u32,
    #[prost(uint32, tag = "2")]
    pub columns: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Enumeration)]
#[repr(i32)]
pub enum CommandState {
    Unspecified = 0,
    Created = 1,
    Running = 2,
    Exited = 3,
}

#[derive(Clone, PartialEq, Message)]
pub struct Command {
    #[prost(string, tag = "1")]
    pub command_id: String,
    #[prost(message, optional, tag = "2")]
    pub spec: Option<CommandSpec>,
    #[prost(enumeration = "CommandState", tag = "3")]
    pub state: i32,
    /// 0 before the start.
    #[prost(uint32, tag = "4")]
    pub pid: u32,
    /// Set once exited.
    #[prost(message, optional, tag = "5")]
    pub exit: Option<Exit>,
    /// Of the newest event; 0 before the first.
    #[prost(uint64, tag = "6")]
    pub last_sequence: u64,
    #[prost(uint64, tag = "7")]
    pub created_at_ms: u64,
    #[prost(uint64, tag = "8")]
    pub started_at_ms: u64,
    #[prost(uint64, tag = "9")]
    pub exited_at_ms: u64,
}

/// Exactly one of the two is meaningful: `signal != 0`, or `code`.
#[derive(Clone, PartialEq, Message)]
pub struct Exit {
    #[prost(int32, tag = "1")]
    pub code: i32,
    #[prost(int32, tag = "2")]
    pub signal: i32,
    #[prost(bool, tag = "3")]
    pub timed_out: bool,
    /// Why it could not be started; `code` is then 126 or 127, and there was no `Started`.
    #[prost(string, tag = "4")]
    pub error: String,
}

/// One event of a command other than output, which has [a frame of its own](crate::Output).
#[derive(Clone, PartialEq, Message)]
pub struct Event {
    /// 1, 2, 3, … per command, without holes. Of a gap: that of the last event lost.
    #[prost(uint64, tag = "1")]
    pub sequence: u64,
    /// The guest's generation when it happened.
    #[prost(uint64, tag = "2")]
    pub generation: u64,
    /// The guest's wall clock, Unix milliseconds.
    #[prost(uint64, tag = "3")]
    pub at_ms: u64,
    #[prost(oneof = "EventKind", tags = "4, 6, 7")]
    pub kind: Option<EventKind>,
}

#[derive(Clone, PartialEq, Oneof)]
pub enum EventKind {
    #[prost(message, tag = "4")]
    Started(Started),
    #[prost(message, tag = "6")]
    Exit(Exit),
    #[prost(message, tag = "7")]
    Gap(Gap),
}

#[derive(Clone, PartialEq, Message)]
pub struct Started {
    #[prost(uint32, tag = "1")]
    pub pid: u32,
}

/// Events that the ring no longer holds.
#[derive(Clone, PartialEq, Message)]
pub struct Gap {
    /// Sequence numbers, both inclusive.
    #[prost(uint64, tag = "1")]
    pub first_lost: u64,
    #[prost(uint64, tag = "2")]
    pub last_lost: u64,
    /// Bytes of each stream between the reader's position and the next event. Where the reader attached
    /// behind an event that is itself lost, its position is not known and these are 0; the offset of the
    /// next output is always right.
    #[prost(uint64, tag = "3")]
    pub stdout_bytes: u64,
    #[prost(uint64, tag = "4")]
    pub stderr_bytes: u64,
}

/// The last frame of a subscription; its id is free afterwards.
#[derive(Clone, PartialEq, Message)]
pub struct End {
    #[prost(enumeration = "EndReason", tag = "1")]
    pub reason: i32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Enumeration)]
#[repr(i32)]
pub enum EndReason {
    Unspecified = 0,
    /// The exit event was sent.
    Exited = 1,
    /// The host asked for it.
    Detached = 2,
}

/// More bytes of output that the guest may send on a subscription. No reply; ignored once it has ended.
#[derive(Clone, PartialEq, Message)]
pub struct Credit {
    #[prost(uint64, tag = "1")]
    pub bytes: u64,
}

/// Ends a subscription; answered by [`End`]. Ignored once it has ended.
#[derive(Clone, PartialEq, Message)]
pub struct Detach {}

/// Makes a command without starting it. Idempotent by id for the same specification.
#[derive(Clone, PartialEq, Message)]
pub struct CreateCommandRequest {
    #[prost(string, tag = "1")]
    pub command_id: String,
    #[prost(message, optional, tag = "2")]
    pub spec: Option<CommandSpec>,
}
#[derive(Clone, PartialEq, Message)]
pub struct CreateCommandReply {
    /// Without its specification.
    #[prost(message, optional, tag = "1")]
    pub command: Option<Command>,
}

/// Opens a subscription under the request's id, starting the command if it wasn't started. After the reply
/// come events with that id, and [`End`] last.
#[derive(Clone, PartialEq, Message)]
pub struct AttachCommandRequest {
    #[prost(string, tag = "1")]
    pub command_id: String,
    /// Exclusive. 0: from the beginning.
    #[prost(uint64, tag = "2")]
    pub after_sequence: u64,
    /// Bytes of output that may be sent at once, without a `Credit` first.
    #[prost(uint64, tag = "3")]
    pub credit: u64,
    /// Create (as `CreateCommand` would) and attach in one round trip.
    #[prost(message, optional, tag = "4")]
    pub create: Option<CommandSpec>,
}
#[derive(Clone, PartialEq, Message)]
pub struct AttachCommandReply {
    /// Without its specification.
    #[prost(message, optional, tag = "1")]
    pub command: Option<Command>,
}

/// Answered when the last byte is in the pipe, so a command that doesn't read holds the reply back. One
/// write per command at a time. On a lost connection, repeat it: bytes that were taken are skipped.
#[derive(Clone, PartialEq, Message)]
pub struct WriteStdinRequest {
    #[prost(string, tag = "1")]
    pub command_id: String,
    /// Of the first byte; bytes already taken are skipped, a hole is an error.
    #[prost(uint64, tag = "2")]
    pub offset: u64,
    /// At most [`DATA_BYTES`](crate::limits::DATA_BYTES).
    #[prost(bytes = "bytes", tag = "3")]
    pub data: Bytes,
    /// Close stdin behind `data`. A terminal gets its end-of-file character instead if it reads by lines (twice
    /// behind an unfinished one), and takes no more input afterwards.
    #[prost(bool, tag = "4")]
    pub eof: bool,
}
#[derive(Clone, PartialEq, Message)]
pub struct WriteStdinReply {
    #[prost(uint64, tag = "1")]
    pub next_offset: u64,
}

#[derive(Clone, PartialEq, Message)]
pub struct SignalCommandRequest {
    #[prost(string, tag = "1")]
    pub command_id: String,
    /// Linux number, 1 to 31; sent to the process group of the command's leader, which with a terminal need not be
    /// the one in the foreground.
    #[prost(int32, tag = "2")]
    pub signal: i32,
}
#[derive(Clone, PartialEq, Message)]
pub struct SignalCommandReply {}

/// Changes the size of a command's terminal; what runs in its foreground gets SIGWINCH.
#[derive(Clone, PartialEq, Message)]
pub struct ResizeTerminalRequest {
    #[prost(string, tag = "1")]
    pub command_id: String,
    #[prost(message, optional, tag = "2")]
    pub size: Option<TerminalSize>,
}
#[derive(Clone, PartialEq, Message)]
pub struct ResizeTerminalReply {}

#[derive(Clone, PartialEq, Message)]
pub struct GetCommandRequest {
    #[prost(string, tag = "1")]
    pub command_id: String,
}
#[derive(Clone, PartialEq, Message)]
pub struct GetCommandReply {
    #[prost(message, optional, tag = "1")]
    pub command: Option<Command>,
}

/// Commands in the order they were made, a page at a time.
#[derive(Clone, PartialEq, Message)]
pub struct ListCommandsRequest {
    /// Continue behind this one; empty: from the oldest.
    #[prost(string, tag = "1")]
    pub after_command_id: String,
}
#[derive(Clone, PartialEq, Message)]
pub struct ListCommandsReply {
    /// One encoded [`Command`] each, so that a reply of many empty ones costs its reader no more memory than
    /// bytes. [`ListCommandsReply::commands`] decodes them.
    #[prost(bytes = "bytes", repeated, tag = "1")]
    pub encoded_commands: Vec<Bytes>,
    #[prost(bool, tag = "2")]
    pub more: bool,
}

/// Why a page of commands is not one.
#[derive(Debug, thiserror::Error)]
pub enum ListError {
    #[error("a page of {0} commands")]
    TooMany(usize),
    #[error("a command in the page does not decode")]
    Decode(#[from] prost::DecodeError),
}

impl ListCommandsReply {
    /// The page's commands: at most [`LIST_COMMANDS`](crate::limits::LIST_COMMANDS), or an error.
    pub fn commands(&self) -> Result<Vec<Command>, ListError> {
        if self.encoded_commands.len() > crate::limits::LIST_COMMANDS {
            return Err(ListError::TooMany(self.encoded_commands.len()));
        }
        self.encoded_commands.iter().map(|bytes| Ok(Command::decode(bytes.clone())?)).collect()
    }
}
