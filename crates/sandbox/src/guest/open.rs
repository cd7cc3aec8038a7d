//! From nothing to an agent that knows who it is: connect, hello, and for a guest that is new, everything it has
//! to be told in one message.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use space_guest_proto::{
    AGENT_PORT, GuestFrame, HostFrame, InvalidRequest, PROTOCOL_MAX, PROTOCOL_MIN, Request, Violation,
    message::{Hello, PersonaliseRequest, Refusal, RefusalCode, Role, SetClockRequest},
    validate,
};
use tokio::time::{Instant, sleep_until, timeout_at};
use tracing::{debug, info, warn};

use super::{
    Fate,
    check::Broken,
    handshake::{HandshakeError, handshake},
    link::{Link, LinkError, QueueError},
    owner::Owner,
    text::printable,
};
use crate::{limits, node::ConnectError};

const ENTROPY_BYTES: usize = 64;

/// Why one attempt failed.
#[derive(Debug, thiserror::Error)]
enum AttemptError {
    #[error("no connection")]
    Connect(#[from] ConnectError),
    #[error("no connection to the guest's port")]
    Handshake(#[from] HandshakeError),
    #[error(transparent)]
    Link(#[from] LinkError),
    #[error("no hello in time")]
    Silent,
    #[error("the sandbox's settings are not what a guest takes")]
    Settings(#[from] InvalidRequest),
    #[error("the sandbox's settings do not fit a frame")]
    Frame(#[from] QueueError),
    #[error("the kernel gives no entropy")]
    Entropy(#[from] rustix::io::Errno),
}

impl AttemptError {
    /// `None`: another attempt may go better.
    fn fate(&self) -> Option<Fate> {
        match self {
            Self::Connect(ConnectError::Leaving) => Some(Fate::Released),
            Self::Connect(_)
            | Self::Handshake(HandshakeError::Closed | HandshakeError::Silent)
            | Self::Link(LinkError::Lost(_))
            | Self::Silent
            | Self::Entropy(_) => None,
            Self::Handshake(HandshakeError::Malformed) | Self::Link(LinkError::Broken(_)) => {
                Some(Fate::Protocol)
            }
            Self::Link(LinkError::Version) => Some(Fate::Version),
            // Nobody can talk to a guest that can't be told who it is.
            Self::Settings(_) | Self::Frame(_) => Some(Fate::Silent),
        }
    }
}

/// The rest before the next attempt.
#[derive(Debug)]
pub(super) struct Rest(Duration);

impl Default for Rest {
    fn default() -> Self {
        Self(limits::RETRY.start)
    }
}

impl Rest {
    fn next(&mut self) -> Duration {
        let rest = self.0;
        self.0 = (rest * 2).min(limits::RETRY.end);
        rest
    }
}

impl Owner {
    /// A connection to an agent that has said hello and, the first time, been personalised. Tries until the boot
    /// deadline, counted from now.
    pub(super) async fn connect(&mut self, rest: &mut Rest) -> Result<Link, Fate> {
        let deadline = Instant::now() + self.setup.boot_deadline;
        loop {
            let error = match self.attempt(deadline).await {
                Ok(link) => return Ok(link),
                Err(error) => error,
            };
            if let Some(fate) = error.fate() {
                self.log_failure(&error);
                return Err(fate);
            }
            let next = Instant::now() + rest.next();
            if next >= deadline {
                self.log_failure(&error);
                return Err(Fate::Silent);
            }
            debug!(sandbox_id = self.setup.node.sandbox_id, %error, "the agent can't be reached yet");
            sleep_until(next).await;
        }
    }

    fn log_failure(&self, error: &AttemptError) {
        let error: &dyn std::error::Error = error;
        warn!(sandbox_id = self.setup.node.sandbox_id, error, "gave up on the sandbox's agent");
    }

    async fn attempt(&mut self, deadline: Instant) -> Result<Link, AttemptError> {
        let mut stream = self.setup.node.connect().await?;
        let leftover =
            handshake(&mut stream, AGENT_PORT, deadline.min(Instant::now() + limits::HANDSHAKE)).await?;
        self.setup.metrics.guest_connections.add(1);
        let mut link = Link::new(stream, leftover);
        let hello = self.greet(&mut link);
        match timeout_at(deadline.min(Instant::now() + limits::HELLO), hello).await {
            Ok(greeted) => greeted?,
            Err(_elapsed) => return Err(AttemptError::Silent),
        }
        Ok(link)
    }

    async fn greet(&mut self, link: &mut Link) -> Result<(), AttemptError> {
        link.queue(&HostFrame::Hello(hello()))?;
        let mut told = if self.is_new() { Some(self.personalise(link)?) } else { None };
        loop {
            match link.next().await? {
                GuestFrame::Hello(hello) => {
                    check_hello(&hello)?;
                    self.note_hello(&hello);
                    if self.is_ready() {
                        return Ok(());
                    }
                    if told.is_none() {
                        told = Some(self.adopt(link, &hello)?);
                    }
                }
                GuestFrame::Reply { id, .. } if Some(id) == told => break,
                GuestFrame::Refusal { id: 0, refusal } => return Err(refused(&refusal).into()),
                GuestFrame::Refusal { id, refusal } => {
                    let text = printable(&refusal.message, limits::TEXT);
                    warn!(sandbox_id = self.setup.node.sandbox_id, text, "the guest refused its settings");
                    return Err(if Some(id) == told {
                        Broken::Refused
                    } else {
                        Violation::Unasked(id).into()
                    })
                    .map_err(|broken: Broken| LinkError::from(broken).into());
                }
                GuestFrame::Notice(notice) => self.notice(link, &notice).await?,
                GuestFrame::Reply { id, .. }
                | GuestFrame::Event { id, .. }
                | GuestFrame::Output { id, .. }
                | GuestFrame::End { id, .. } => {
                    return Err(LinkError::from(Broken::from(Violation::Unasked(id))).into());
                }
            }
        }
        self.mark_ready().await;
        Ok(())
    }

    /// A guest that ran before this worker did: it may have missed its settings, and its clock may have drifted.
    fn adopt(&mut self, link: &mut Link, hello: &Hello) -> Result<u32, AttemptError> {
        if hello.generation < self.setup.node.generation {
            return self.personalise(link);
        }
        Ok(link.request(Request::SetClock(SetClockRequest { wall_clock_ns: wall_clock_ns() }))?)
    }

    fn personalise(&self, link: &mut Link) -> Result<u32, AttemptError> {
        let request = PersonaliseRequest {
            wall_clock_ns: wall_clock_ns(),
            entropy: entropy()?,
            hostname: self.setup.assignment.hostname.clone(),
            env: self.setup.assignment.env.clone(),
            generation: self.setup.node.generation,
        };
        validate::personalise(&request)?;
        Ok(link.request(Request::Personalise(request))?)
    }

    fn note_hello(&mut self, hello: &Hello) {
        self.agent_version.clone_from(&hello.version);
        self.features = hello.features;
        if !hello.root_error.is_empty() {
            let text = printable(&hello.root_error, limits::TEXT);
            info!(sandbox_id = self.setup.node.sandbox_id, text, "the guest has no root filesystem");
        }
    }
}

fn hello() -> Hello {
    Hello {
        protocol_min: PROTOCOL_MIN,
        protocol_max: PROTOCOL_MAX,
        role: Role::Host.into(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..Hello::default()
    }
}

fn check_hello(hello: &Hello) -> Result<(), LinkError> {
    if hello.role() != Role::Guest {
        return Err(Broken::Role.into());
    }
    if !is_version(&hello.version) {
        return Err(Broken::AgentVersion.into());
    }
    let common = hello.protocol_min <= PROTOCOL_MAX && hello.protocol_max >= PROTOCOL_MIN;
    if common { Ok(()) } else { Err(LinkError::Version) }
}

/// It goes to noded, which takes a worker that sends anything else for one that a guest has taken over.
fn is_version(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'+' | b'_');
    text.len() <= limits::VERSION && text.bytes().all(plain)
}

/// What a refusal of the whole connection means.
pub(super) fn refused(refusal: &Refusal) -> LinkError {
    match refusal.code() {
        RefusalCode::Version => LinkError::Version,
        RefusalCode::Protocol => Broken::Rule(Violation::Refused).into(),
        // The guest has no room at the moment or is about to end; another attempt will tell.
        RefusalCode::Unspecified
        | RefusalCode::Invalid
        | RefusalCode::NotFound
        | RefusalCode::AlreadyExists
        | RefusalCode::NotRunning
        | RefusalCode::StdinClosed
        | RefusalCode::StdinHole
        | RefusalCode::Exhausted
        | RefusalCode::Unsupported
        | RefusalCode::NotPersonalised
        | RefusalCode::StaleGeneration
        | RefusalCode::Internal
        | RefusalCode::Forgotten
        | RefusalCode::Busy
        | RefusalCode::ShuttingDown
        | RefusalCode::NoRoot
        | RefusalCode::NoTerminal => std::io::Error::from(std::io::ErrorKind::ConnectionRefused).into(),
    }
}

fn entropy() -> Result<Bytes, rustix::io::Errno> {
    let mut bytes = [0; ENTROPY_BYTES];
    // Up to 256 bytes come whole once the kernel's pool is ready.
    let filled = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    if filled < ENTROPY_BYTES { Err(rustix::io::Errno::AGAIN) } else { Ok(Bytes::copy_from_slice(&bytes)) }
}

fn wall_clock_ns() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
