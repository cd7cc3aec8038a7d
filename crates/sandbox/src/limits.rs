//! The numbers that bound what one peer can make this process hold or wait for. A tenant's guests are hostile,
//! so each of them has a limit of its own and none can use up another's share.
//!
//! Worst case in memory for one sandbox: [`READERS`] that have each read [`READ`] bytes of records, which may be events
//! of about 150 bytes for records of 30, and up to 400 KB in the gRPC library; [`SPOOL_MEMORY`] for each of [`SPOOLS`]
//! while the disk has no room; [`OUTGOING`] of unsent frames, two frames in flight, [`CONSOLE`] of console text, and
//! [`REQUESTS`] and [`CALLS`] requests of at most one frame each. Under 100 MiB, which takes a full
//! disk and as many clients as may, all reading as slowly as they can.
//!
//! Each of [`JOBS`] and [`TUNNELS`] comes on top with two frames, [`RPC_STREAM_WINDOW`] of what its client sent, and up to
//! 400 KB in the gRPC library on the way out: 0.8 MB, and 240 MiB for all of them. The whole worker has [`WORKER_JOBS`] and
//! [`WORKER_TUNNELS`]: 256 MiB that clients sent, which is what [`RPC_CONNECTION_WINDOW`] lets one connection send, and
//! 800 MiB if nobody reads on the way out either. That is more than the cgroup has (512 MiB, `space-noded`): a tenant
//! whose clients and guests stand still all at once loses its worker, and no other tenant's.
//!
//! Worst case on disk: [`SPOOL_SANDBOX`], one batch of 64 KiB over it, and a last segment of [`SPOOL_SEGMENT`] for each
//! reader of an exited command or of a segment that is dropped already: 256 MiB and 256 MiB.

use std::time::Duration;

/// One message between noded and this worker, as `proto/worker.proto` has it.
pub const DATAGRAM: usize = 64 * 1024;
/// Descriptors attached to one message.
pub const DATAGRAM_DESCRIPTORS: usize = 2;
/// Messages to noded that wait for the socket.
pub const NODE_QUEUE: usize = 256;
/// noded only connects a socket; a node that needs longer is in trouble.
pub const NODE_ANSWER: Duration = Duration::from_secs(10);

/// Sandboxes that one worker serves.
pub const SANDBOXES: usize = 1024;
/// The text kept of a console, for debugging alone.
pub const CONSOLE: usize = 64 * 1024;

/// Requests to one guest that wait for its owner task.
pub const REQUESTS: usize = 32;
/// Requests that wait for one guest's answer, and subscriptions.
pub const CALLS: usize = space_guest_proto::limits::CALLS_PER_CONNECTION;
/// Readers of output in one sandbox.
pub const READERS: usize = 64;
/// Bytes of records that a reader takes at once. Room for the largest record.
pub const READ: usize = 64 * 1024;
/// Subscriptions to one guest; one for each command that runs, and more commands than that take turns. The rest of the
/// calls that the protocol allows is for requests.
pub const SUBSCRIPTIONS: usize = CALLS - 64;
/// Spools of one sandbox: one for each command that its agent remembers.
pub const SPOOLS: usize = space_guest_proto::limits::COMMANDS;
/// One file of a spool. What is dropped at a time, and what a spool may have above its size.
pub const SPOOL_SEGMENT: u64 = 4 * 1024 * 1024;
/// What a command may have spooled ahead of its furthest reader, and what is kept for slower ones.
pub const SPOOL: u64 = 64 * 1024 * 1024;
/// What all spools of a sandbox may have on disk.
pub const SPOOL_SANDBOX: u64 = 256 * 1024 * 1024;
/// What a command keeps in memory while the disk takes nothing.
pub const SPOOL_MEMORY: u64 = 128 * 1024;
/// Output that may be on its way to a spool.
pub const SPOOL_WINDOW: u64 = 256 * 1024;
/// Of the disk that spools leave to the VMs, in hundredths.
pub const SPOOL_FREE_PERCENT: u64 = 5;
/// Frames on a subscription that this side has left already: all the credit there was in single bytes, twice.
pub const LATE_FRAMES: u64 = 2 * SPOOL_WINDOW;
/// Before a guest whose commands could not be listed is asked again.
pub const RECONCILE: Duration = Duration::from_secs(1);
/// Notices from one guest; an honest one announces one end.
pub const NOTICES: u32 = 16;
/// Bytes of frames on one connection that nobody here knows.
pub const IGNORED: usize = 1024 * 1024;
/// Unsent bytes to one guest above which no further request is taken up.
pub const OUTGOING: usize = 256 * 1024;
/// What Firecracker gets to say `OK`. Its own limit for a guest's answer is two seconds.
pub const HANDSHAKE: Duration = Duration::from_secs(3);
/// What an agent that took the connection gets to answer the hello before it is tried again.
pub const HELLO: Duration = Duration::from_secs(10);
/// Rests between attempts to connect. Nothing tells when a port of the guest opens: Firecracker only closes the
/// socket while it is shut.
pub const RETRY: std::ops::Range<Duration> = Duration::from_millis(2)..Duration::from_millis(50);
/// A connection that lasted this long was a good one; the next rest is the shortest again.
pub const STABLE: Duration = Duration::from_secs(5);
/// Guest-made text in an error.
pub const TEXT: usize = 256;
/// An agent's version.
pub const VERSION: usize = 64;

/// Jobs at once in one sandbox; some of what the agent takes is left for other clients of it. Each costs two frames
/// and the library's windows.
pub const JOBS: usize = 48;
/// Jobs at once in all sandboxes of the worker.
pub const WORKER_JOBS: usize = 256;
/// Connections at once to ports of one sandbox. Each costs a frame in each direction and the library's windows, all of it
/// only while somebody doesn't read.
pub const TUNNELS: usize = 256;
/// Connections at once to ports of all sandboxes of the worker.
pub const WORKER_TUNNELS: usize = 768;
/// What a guest gets to connect to a port of its own.
pub const TUNNEL_OPEN: Duration = Duration::from_secs(15);
/// Data in one message of a tunnel.
pub const TUNNEL_DATA: usize = 64 * 1024;
/// What a guest gets for the end of a job that may have much to do: to remove a tree, to complete a large file.
pub const JOB_LONG: Duration = Duration::from_mins(5);

/// A client that has not finished its TLS handshake by then is dropped.
pub const TLS_HANDSHAKE: Duration = Duration::from_secs(5);
/// TLS handshakes under way at once.
pub const TLS_HANDSHAKES: usize = 32;
/// The largest request from a client: a command's specification or 32 KiB of stdin, and some room.
pub const RPC_REQUEST: usize = 256 * 1024;
/// Bytes of one upload or tunnel that the library takes in before its guest does.
pub const RPC_STREAM_WINDOW: u32 = 256 * 1024;
/// The same for all streams of a connection: so many that uploads and tunnels which stand still, as many as there can be,
/// do not hold up other calls.
pub const RPC_CONNECTION_WINDOW: u32 = RPC_STREAM_WINDOW * RPC_STREAMS;
/// Calls and streams at once on one client connection.
pub const RPC_STREAMS: u32 = 1024;
/// A client connection that answers no ping for this long is closed.
pub const RPC_KEEPALIVE: Duration = Duration::from_secs(20);
/// What streams get to end by themselves when the worker is told to leave.
pub const DRAIN: Duration = Duration::from_secs(2);
