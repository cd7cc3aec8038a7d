//! Frames as typed values, one enum for each direction.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use prost::Message;

use crate::{
    frame::{self, FLAG_IGNORABLE, FrameError, REPLY_BIT, RawFrame, kind},
    limits,
    message::{self, Credit, Detach, End, Event, Hello, Notice, NoticeTaken, Refusal},
};

/// Why bytes from the other side are no frame of this protocol. Always ends the connection.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    #[error("malformed frame")]
    Frame(#[from] FrameError),
    #[error("malformed payload in a frame of kind {kind:#04x}")]
    Payload { kind: u8, source: prost::DecodeError },
    #[error("unknown frame kind {0:#04x}")]
    Kind(u8),
    #[error("malformed output frame")]
    Output,
    #[error("more than {limit} parts in a frame of kind {kind:#04x}")]
    Parts { kind: u8, limit: usize },
    #[error("a data frame without data")]
    EmptyData,
    /// Only from the codecs of tokio-util.
    #[error("reading or writing failed")]
    Io(#[from] std::io::Error),
}

/// Why a value could not be sent.
#[derive(Debug, thiserror::Error)]
pub enum EncodeError {
    #[error("a payload of {0} bytes does not fit a frame")]
    TooLarge(usize),
    /// Only from the codecs of tokio-util.
    #[error("reading or writing failed")]
    Io(#[from] std::io::Error),
}

macro_rules! requests {
    ($($name:ident, $request:ident, $reply:ident = $kind:literal;)*) => {
        /// What a host asks. The frame's id is the request's, not 0.
        #[derive(Debug, Clone, PartialEq)]
        pub enum Request { $($name(message::$request),)* }

        /// The answer to the [`Request`] of the same name.
        #[derive(Debug, Clone, PartialEq)]
        pub enum Reply { $($name(message::$reply),)* }

        impl Request {
            /// Kinds of all requests.
            pub const KINDS: &'static [u8] = &[$($kind),*];

            pub const fn kind(&self) -> u8 {
                match self { $(Self::$name(_) => $kind,)* }
            }

            pub const fn name(&self) -> &'static str {
                match self { $(Self::$name(_) => stringify!($name),)* }
            }

            fn decode(kind: u8, payload: Bytes) -> Option<Result<Self, prost::DecodeError>> {
                match kind {
                    $($kind => Some(message::$request::decode(payload).map(Self::$name)),)*
                    _ => None,
                }
            }

            fn encode(&self, id: u32, buffer: &mut BytesMut) -> Result<(), EncodeError> {
                match self { $(Self::$name(message) => put_message(self.kind(), id, message, buffer),)* }
            }
        }

        impl Reply {
            /// The request's kind.
            pub const fn request_kind(&self) -> u8 {
                match self { $(Self::$name(_) => $kind,)* }
            }

            fn decode(kind: u8, payload: Bytes) -> Option<Result<Self, prost::DecodeError>> {
                match kind & !REPLY_BIT {
                    $($kind => Some(message::$reply::decode(payload).map(Self::$name)),)*
                    _ => None,
                }
            }

            fn encode(&self, id: u32, buffer: &mut BytesMut) -> Result<(), EncodeError> {
                let kind = self.request_kind() | REPLY_BIT;
                match self { $(Self::$name(message) => put_message(kind, id, message, buffer),)* }
            }
        }

        $(
            impl From<message::$request> for Request {
                fn from(request: message::$request) -> Self { Self::$name(request) }
            }
            impl From<message::$reply> for Reply {
                fn from(reply: message::$reply) -> Self { Self::$name(reply) }
            }
        )*
    };
}

requests! {
    Personalise, PersonaliseRequest, PersonaliseReply = 0x10;
    Health, HealthRequest, HealthReply = 0x11;
    SetClock, SetClockRequest, SetClockReply = 0x12;
    AddEntropy, AddEntropyRequest, AddEntropyReply = 0x13;
    Shutdown, ShutdownRequest, ShutdownReply = 0x14;
    CreateCommand, CreateCommandRequest, CreateCommandReply = 0x20;
    AttachCommand, AttachCommandRequest, AttachCommandReply = 0x21;
    WriteStdin, WriteStdinRequest, WriteStdinReply = 0x22;
    SignalCommand, SignalCommandRequest, SignalCommandReply = 0x23;
    GetCommand, GetCommandRequest, GetCommandReply = 0x24;
    ListCommands, ListCommandsRequest, ListCommandsReply = 0x25;
    ResizeTerminal, ResizeTerminalRequest, ResizeTerminalReply = 0x26;
}

/// A frame from the host.
#[derive(Debug, Clone, PartialEq)]
pub enum HostFrame {
    Hello(Hello),
    Request {
        id: u32,
        request: Request,
    },
    /// A request of a later version. Answered by a refusal, `Unsupported`.
    UnknownRequest {
        id: u32,
        kind: u8,
    },
    Credit {
        id: u32,
        bytes: u64,
    },
    Detach {
        id: u32,
    },
    NoticeTaken,
}

/// A frame from the guest.
#[derive(Debug, Clone, PartialEq)]
pub enum GuestFrame {
    Hello(Hello),
    Reply { id: u32, reply: Reply },
    Refusal { id: u32, refusal: Refusal },
    Event { id: u32, event: Event },
    Output { id: u32, output: Output },
    End { id: u32, end: End },
    Notice(Notice),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Stream {
    Stdout = 1,
    Stderr = 2,
}

impl Stream {
    /// 0 and 1, for arrays of something per stream.
    pub const fn index(self) -> usize {
        match self {
            Self::Stdout => 0,
            Self::Stderr => 1,
        }
    }
}

/// What stands before the data in an output frame: 40 bytes, fixed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutputHead {
    pub sequence: u64,
    pub generation: u64,
    pub at_ms: u64,
    pub stream: Stream,
    /// Of the first byte within its stream.
    pub offset: u64,
}

impl OutputHead {
    pub const BYTES: usize = 40;
}

/// Output of a command. `data` is a slice of the receive buffer, not a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    pub head: OutputHead,
    /// 1 to [`limits::DATA_BYTES`].
    pub data: Bytes,
}

impl HostFrame {
    pub fn request(id: u32, request: impl Into<Request>) -> Self {
        Self::Request { id, request: request.into() }
    }

    /// The next whole frame at the front of `buffer`; `None` when more bytes are needed.
    pub fn decode(buffer: &mut BytesMut) -> Result<Option<Self>, DecodeError> {
        while let Some(raw) = frame::take(buffer)? {
            if let Some(frame) = Self::from_raw(raw)? {
                return Ok(Some(frame));
            }
        }
        Ok(None)
    }

    fn from_raw(raw: RawFrame) -> Result<Option<Self>, DecodeError> {
        let RawFrame { kind, flags, id, payload } = raw;
        let failed = |source| DecodeError::Payload { kind, source };
        let frame = match kind {
            kind::HELLO => Self::Hello(Hello::decode(payload).map_err(failed)?),
            kind::CREDIT => Self::Credit { id, bytes: Credit::decode(payload).map_err(failed)?.bytes },
            kind::DETACH => {
                Detach::decode(payload).map_err(failed)?;
                Self::Detach { id }
            }
            kind::NOTICE_TAKEN => {
                NoticeTaken::decode(payload).map_err(failed)?;
                Self::NoticeTaken
            }
            other => match Request::decode(other, payload) {
                Some(request) => Self::Request { id, request: request.map_err(failed)? },
                None if kind::REQUESTS.contains(&other) => Self::UnknownRequest { id, kind: other },
                None if flags & FLAG_IGNORABLE != 0 => return Ok(None),
                None => return Err(DecodeError::Kind(other)),
            },
        };
        Ok(Some(frame))
    }

    /// Appends the frame to `buffer`, or leaves it as it was.
    pub fn encode(&self, buffer: &mut BytesMut) -> Result<(), EncodeError> {
        match self {
            Self::Hello(hello) => put_message(kind::HELLO, 0, hello, buffer),
            Self::Request { id, request } => request.encode(*id, buffer),
            Self::UnknownRequest { id, kind } => {
                frame::put_header(*kind, *id, 0, buffer);
                Ok(())
            }
            Self::Credit { id, bytes } => put_message(kind::CREDIT, *id, &Credit { bytes: *bytes }, buffer),
            Self::Detach { id } => put_message(kind::DETACH, *id, &Detach {}, buffer),
            Self::NoticeTaken => put_message(kind::NOTICE_TAKEN, 0, &NoticeTaken {}, buffer),
        }
    }
}

impl GuestFrame {
    pub fn reply(id: u32, reply: impl Into<Reply>) -> Self {
        Self::Reply { id, reply: reply.into() }
    }

    /// The next whole frame at the front of `buffer`; `None` when more bytes are needed.
    pub fn decode(buffer: &mut BytesMut) -> Result<Option<Self>, DecodeError> {
        while let Some(raw) = frame::take(buffer)? {
            if let Some(frame) = Self::from_raw(raw)? {
                return Ok(Some(frame));
            }
        }
        Ok(None)
    }

    fn from_raw(raw: RawFrame) -> Result<Option<Self>, DecodeError> {
        let RawFrame { kind, flags, id, payload } = raw;
        let failed = |source| DecodeError::Payload { kind, source };
        let frame = match kind {
            kind::HELLO => Self::Hello(Hello::decode(payload).map_err(failed)?),
            kind::REFUSAL => Self::Refusal { id, refusal: Refusal::decode(payload).map_err(failed)? },
            kind::NOTICE => Self::Notice(Notice::decode(payload).map_err(failed)?),
            kind::EVENT => Self::Event { id, event: Event::decode(payload).map_err(failed)? },
            kind::OUTPUT => Self::Output { id, output: Output::decode(payload)? },
            kind::END => Self::End { id, end: End::decode(payload).map_err(failed)? },
            other => {
                let reply = if other & REPLY_BIT == 0 { None } else { Reply::decode(other, payload) };
                match reply {
                    Some(reply) => Self::Reply { id, reply: reply.map_err(failed)? },
                    None if flags & FLAG_IGNORABLE != 0 => return Ok(None),
                    None => return Err(DecodeError::Kind(other)),
                }
            }
        };
        Ok(Some(frame))
    }

    /// Appends the frame to `buffer`, or leaves it as it was.
    pub fn encode(&self, buffer: &mut BytesMut) -> Result<(), EncodeError> {
        match self {
            Self::Hello(hello) => put_message(kind::HELLO, 0, hello, buffer),
            Self::Reply { id, reply } => reply.encode(*id, buffer),
            Self::Refusal { id, refusal } => put_message(kind::REFUSAL, *id, refusal, buffer),
            Self::Event { id, event } => put_message(kind::EVENT, *id, event, buffer),
            Self::Output { id, output } => output.head.encode(*id, [&output.data, &[]], buffer),
            Self::End { id, end } => put_message(kind::END, *id, end, buffer),
            Self::Notice(notice) => put_message(kind::NOTICE, 0, notice, buffer),
        }
    }
}

impl OutputHead {
    /// Appends an output frame whose data lies in two pieces, as a ring has it: the only copy of the data
    /// between the agent's ring and its socket.
    pub fn encode(&self, id: u32, data: [&[u8]; 2], buffer: &mut BytesMut) -> Result<(), EncodeError> {
        let data_bytes = data[0].len() + data[1].len();
        if data_bytes > limits::DATA_BYTES {
            return Err(EncodeError::TooLarge(data_bytes));
        }
        frame::put_header(kind::OUTPUT, id, Self::BYTES + data_bytes, buffer);
        for field in [self.sequence, self.generation, self.at_ms, self.offset] {
            buffer.put_u64_le(field);
        }
        // The stream, and seven bytes that are 0 until someone needs them.
        buffer.put_u64_le(match self.stream {
            Stream::Stdout => 1,
            Stream::Stderr => 2,
        });
        buffer.put_slice(data[0]);
        buffer.put_slice(data[1]);
        Ok(())
    }
}

impl Output {
    fn decode(mut payload: Bytes) -> Result<Self, DecodeError> {
        let data_bytes = payload.len().checked_sub(OutputHead::BYTES).ok_or(DecodeError::Output)?;
        if data_bytes == 0 || data_bytes > limits::DATA_BYTES {
            return Err(DecodeError::Output);
        }
        let [sequence, generation, at_ms, offset, stream] = std::array::from_fn(|_| payload.get_u64_le());
        let stream = match stream {
            1 => Stream::Stdout,
            2 => Stream::Stderr,
            _ => return Err(DecodeError::Output),
        };
        Ok(Self { head: OutputHead { sequence, generation, at_ms, stream, offset }, data: payload })
    }
}

pub(crate) fn put_message(
    kind: u8,
    id: u32,
    message: &impl Message,
    buffer: &mut BytesMut,
) -> Result<(), EncodeError> {
    let payload_bytes = message.encoded_len();
    if payload_bytes > limits::PAYLOAD_BYTES {
        return Err(EncodeError::TooLarge(payload_bytes));
    }
    frame::put_header(kind, id, payload_bytes, buffer);
    // The buffer grows as needed, so there is no capacity that this could miss.
    message.encode_raw(buffer);
    Ok(())
}
