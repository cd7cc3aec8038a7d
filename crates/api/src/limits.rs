//! Every limit of the public API in one place. They are part of the contract: raising one is an addition,
//! lowering one is a break.

/// Largest request body.
pub const BODY_BYTES: usize = 1024 * 1024;
/// Longest `Idempotency-Key`, in visible ASCII characters.
pub const IDEMPOTENCY_KEY_CHARS: usize = 128;
/// Longest `X-Request-Id` that is taken over from a caller.
pub const REQUEST_ID_CHARS: usize = 128;
/// How long `?wait=` may block, in seconds.
pub const WAIT_SECONDS: u32 = 300;

/// Entries of a page when the caller names no `limit`.
pub const PAGE_DEFAULT: u32 = 50;
/// Most entries of a page.
pub const PAGE_MAX: u32 = 500;
/// Longest cursor.
pub const CURSOR_CHARS: usize = 256;

/// Labels of one sandbox.
pub const LABELS: usize = 64;
/// Longest label key. Keys consist of letters, digits, `-`, `_`, `.` and `/`, and begin with a letter or digit.
pub const LABEL_KEY_CHARS: usize = 63;
/// Longest label value, in bytes of UTF-8. Control characters are refused.
pub const LABEL_VALUE_BYTES: usize = 256;
/// Label conditions of one list request.
pub const LABEL_FILTERS: usize = 8;

/// Variables of one environment.
pub const ENV_VARIABLES: usize = 256;
/// Longest name of an environment variable.
pub const ENV_NAME_CHARS: usize = 256;
/// All names and values of an environment together, with one byte each for `=` and the end.
pub const ENV_BYTES: usize = 32 * 1024;

/// Smallest root drive, in MiB. A template's image may ask for more.
pub const DISK_MIB_MIN: u64 = 64;
/// Largest root drive, in MiB.
pub const DISK_MIB_MAX: u64 = 1024 * 1024;
/// Root drive when the caller names none, in MiB; the size of the template's image if that is larger.
pub const DISK_MIB_DEFAULT: u64 = 2048;

/// Arguments of one command.
pub const ARGV_ITEMS: usize = 256;
/// All arguments and variables of a command together, counted as in [`ENV_BYTES`]. With the rest of a command they
/// fit one frame of the guest protocol.
pub const COMMAND_BYTES: usize = 40 * 1024;
/// Longest working directory.
pub const CWD_BYTES: usize = 4095;
/// Longest user name.
pub const USER_CHARS: usize = 64;
/// Longest timeout of a command: seven days.
pub const TIMEOUT_SECONDS: u64 = 7 * 24 * 3600;
/// Rows, and columns, of a terminal.
pub const TERMINAL_CELLS: u32 = 4096;
/// Bytes of one write to a command's standard input, and of one message of input on a WebSocket.
pub const STDIN_WRITE_BYTES: usize = 32 * 1024;
/// Bytes of each output stream that `exec` answers as JSON; what is beyond is cut off and flagged.
pub const EXEC_OUTPUT_BYTES: usize = 1024 * 1024;
/// Seconds between two heartbeat comments on an event stream.
pub const HEARTBEAT_SECONDS: u64 = 15;

/// Longest path of a file, in bytes. Any byte but NUL may be in it.
pub const PATH_BYTES: usize = 4095;
/// Entries of a directory on one page when the caller names no `limit`.
pub const FILES_DEFAULT: u32 = 200;
/// Most entries of a directory on one page.
pub const FILES_MAX: u32 = 1000;
/// How deep a directory is listed at most.
pub const FILES_DEPTH: u32 = 64;
/// Longest cursor of a directory's listing: a path.
pub const FILES_CURSOR_CHARS: usize = PATH_BYTES.div_ceil(3) * 4;
/// Longest id of an upload.
pub const UPLOAD_ID_CHARS: usize = 64;
/// Seconds that the body of an upload may be silent before it is given up.
pub const UPLOAD_SILENCE_SECONDS: u64 = 60;

/// Longest name of a tenant, project, key or node.
pub const NAME_CHARS: usize = 63;
/// Longest location of a template's image.
pub const LOCATION_BYTES: usize = 4096;
/// Largest template image.
pub const IMAGE_BYTES: u64 = 1 << 40;
/// How long a join token may be valid, in seconds.
pub const JOIN_TOKEN_SECONDS: u32 = 24 * 3600;
/// Longest validity of a token for a port, in seconds: 30 days.
pub const PORT_TOKEN_SECONDS: u32 = 30 * 24 * 3600;
/// How long a key may be valid, in seconds: a minute to ten years.
pub const KEY_SECONDS: std::ops::RangeInclusive<u64> = 60..=10 * 366 * 24 * 3600;
/// How long a key's former secret may stay valid after a rotation, in seconds: seven days.
pub const ROTATION_OVERLAP_SECONDS: u64 = 7 * 24 * 3600;
/// Largest quota.
pub const QUOTA_MAX: u64 = 1_000_000_000;
