//! The codecs for tokio-util: each side decodes what the other side sends.

use bytes::BytesMut;
use tokio_util::codec::{Decoder, Encoder};

use crate::{DecodeError, EncodeError, GuestFrame, HostFrame};

/// For the host: decodes [`GuestFrame`], encodes [`HostFrame`].
#[derive(Debug, Default, Clone, Copy)]
pub struct HostCodec;

/// For the guest: decodes [`HostFrame`], encodes [`GuestFrame`].
#[derive(Debug, Default, Clone, Copy)]
pub struct GuestCodec;

impl Decoder for HostCodec {
    type Item = GuestFrame;
    type Error = DecodeError;

    fn decode(&mut self, buffer: &mut BytesMut) -> Result<Option<GuestFrame>, DecodeError> {
        GuestFrame::decode(buffer)
    }
}

impl Encoder<HostFrame> for HostCodec {
    type Error = EncodeError;

    fn encode(&mut self, frame: HostFrame, buffer: &mut BytesMut) -> Result<(), EncodeError> {
        frame.encode(buffer)
    }
}

impl Decoder for GuestCodec {
    type Item = HostFrame;
    type Error = DecodeError;

    fn decode(&mut self, buffer: &mut BytesMut) -> Result<Option<HostFrame>, DecodeError> {
        HostFrame::decode(buffer)
    }
}

impl Encoder<GuestFrame> for GuestCodec {
    type Error = EncodeError;

    fn encode(&mut self, frame: GuestFrame, buffer: &mut BytesMut) -> Result<(), EncodeError> {
        frame.encode(buffer)
    }
}
