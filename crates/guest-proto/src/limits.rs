//! Every limit of the protocol. Both sides enforce them on what they receive; a number here may grow only
//! with a new protocol version, since an old peer refuses what is above its own.

/// One frame, header included.
pub const FRAME_BYTES: usize = 64 * 1024;
/// Payload of one frame.
pub const PAYLOAD_BYTES: usize = FRAME_BYTES - crate::frame::HEADER_BYTES;

/// Data in one output frame, and in one write to stdin.
pub const DATA_BYTES: usize = 32 * 1024;

/// Output kept for replay per command, data and bookkeeping together.
pub const RING_BYTES: usize = 1024 * 1024;
/// What one event costs in that ring beyond its data.
pub const RING_EVENT_BYTES: usize = 48;

/// Credit that may be outstanding on one subscription. A window below [`DATA_BYTES`] can stall: an output
/// frame is sent only when its data fits the credit.
pub const CREDIT_BYTES: u64 = 16 * 1024 * 1024;

/// Requests without a reply and open subscriptions together, per connection.
pub const CALLS_PER_CONNECTION: usize = 256;
/// Connections that the agent serves at a time; it closes the next one at once.
pub const CONNECTIONS: usize = 16;
/// Commands that the agent remembers. The oldest exited one without a reader makes room for a new one.
pub const COMMANDS: usize = 256;
/// Ids of forgotten commands that the agent still refuses to run again.
pub const FORGOTTEN_COMMANDS: usize = 4096;

/// A command's id: 1 to 64 bytes out of `A-Z a-z 0-9 _ -`.
pub const COMMAND_ID_BYTES: usize = 64;
/// A whole [`CommandSpec`](crate::message::CommandSpec), encoded.
pub const SPEC_BYTES: usize = 48 * 1024;
/// Specifications of all remembered commands together.
pub const SPECS_BYTES: usize = 4 * 1024 * 1024;
/// Arguments of a command, `argv[0]` included.
pub const ARGUMENTS: usize = 1024;
/// Variables of a command, and of a sandbox.
pub const VARIABLES: usize = 512;
/// The sandbox's environment: names and values together.
pub const SANDBOX_ENV_BYTES: usize = 48 * 1024;
/// The longest path the kernel takes (`PATH_MAX`, with its NUL).
pub const PATH_BYTES: usize = 4096;
/// The longest user name.
pub const USER_BYTES: usize = 256;
/// Rows, and columns, of a terminal.
pub const TERMINAL_CELLS: u32 = 4096;
/// The longest host name (`HOST_NAME_MAX`).
pub const HOSTNAME_BYTES: usize = 64;
/// The longest time a command may be given: a year.
pub const TIMEOUT_MS: u64 = 365 * 24 * 3600 * 1000;

/// Entropy in one message.
pub const ENTROPY_BYTES: usize = 512;
/// Text in an error, a refusal or a version.
pub const TEXT_BYTES: usize = 1024;
/// Commands in one page of a list.
pub const LIST_COMMANDS: usize = 64;

/// Jobs that the agent carries out at a time; it closes the next connection with [`Done`](crate::job::Done) and
/// `Exhausted`.
pub const JOBS: usize = 320;
/// Data in one frame of a job.
pub const JOB_DATA_BYTES: usize = PAYLOAD_BYTES;
/// How deep a listing goes.
pub const LIST_DEPTH: u32 = 64;
/// Entries of one listing.
pub const LIST_ENTRIES: u32 = 1000;
/// Changes in one frame. The bytes of a frame do not bound what comes of them, as an empty message takes two.
pub const FRAME_CHANGES: usize = 4096;
/// Directories below a recursive watch.
pub const WATCHES: usize = 8192;
/// An upload's id: 1 to 64 bytes out of `A-Z a-z 0-9 _ -`.
pub const UPLOAD_ID_BYTES: usize = 64;
