//! Firecracker's part of a connection: over its Unix socket a host asks for a port of the guest and is told
//! `OK`. Then the same socket carries the guest's bytes.
//!
//! Firecracker closes the socket without a word while nothing listens in the guest. What comes back is not
//! trusted either: whoever broke out of the guest is Firecracker now.

use std::io;

use bytes::{Buf, BytesMut};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    time::{Instant, timeout_at},
};

/// `OK 4294967295\n` has 14 bytes; Firecracker itself takes no line that is longer.
const LINE_BYTES: usize = 32;

#[derive(Debug, thiserror::Error)]
pub(crate) enum HandshakeError {
    /// Nothing listens in the guest, or not yet.
    #[error("the guest's port is closed")]
    Closed,
    #[error("no answer to the connection in time")]
    Silent,
    #[error("the answer to the connection is not `OK` and a port")]
    Malformed,
}

impl From<io::Error> for HandshakeError {
    /// A socket that fails here is one that its other end closed.
    fn from(_error: io::Error) -> Self {
        Self::Closed
    }
}

/// Asks for a port of the guest. Answers what came behind the `OK` line already.
pub(crate) async fn handshake<S>(
    stream: &mut S,
    port: u32,
    deadline: Instant,
) -> Result<BytesMut, HandshakeError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    timeout_at(deadline, exchange(stream, port)).await.unwrap_or(Err(HandshakeError::Silent))
}

async fn exchange<S>(stream: &mut S, port: u32) -> Result<BytesMut, HandshakeError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    stream.write_all(format!("CONNECT {port}\n").as_bytes()).await?;
    let mut received = BytesMut::with_capacity(4096);
    loop {
        if stream.read_buf(&mut received).await? == 0 {
            return Err(HandshakeError::Closed);
        }
        let line = &received[..received.len().min(LINE_BYTES)];
        if let Some(end) = line.iter().position(|byte| *byte == b'\n') {
            check(&line[..end])?;
            received.advance(end + 1);
            return Ok(received);
        }
        if line.len() == LINE_BYTES {
            return Err(HandshakeError::Malformed);
        }
    }
}

fn check(line: &[u8]) -> Result<(), HandshakeError> {
    let port = line.strip_prefix(b"OK ").ok_or(HandshakeError::Malformed)?;
    let digits = !port.is_empty() && port.iter().all(u8::is_ascii_digit);
    let number = str::from_utf8(port).ok().filter(|_| digits).and_then(|text| text.parse::<u32>().ok());
    number.map(|_port| ()).ok_or(HandshakeError::Malformed)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    async fn answered(pieces: &[&[u8]]) -> Result<BytesMut, HandshakeError> {
        let (mut host, mut guest) = tokio::io::duplex(4096);
        let pieces: Vec<Vec<u8>> = pieces.iter().map(|piece| piece.to_vec()).collect();
        let script = async move {
            let mut asked = [0; 13];
            guest.read_exact(&mut asked).await.unwrap();
            assert_eq!(&asked, b"CONNECT 1024\n");
            for piece in pieces {
                guest.write_all(&piece).await.unwrap();
                tokio::task::yield_now().await;
            }
        };
        let deadline = Instant::now() + Duration::from_secs(5);
        tokio::join!(handshake(&mut host, 1024, deadline), script).0
    }

    #[tokio::test]
    async fn bytes_behind_the_answer_are_kept() {
        assert_eq!(&answered(&[b"OK 1073741824\n"]).await.unwrap()[..], b"");
        assert_eq!(&answered(&[b"OK", b" 7", b"\n"]).await.unwrap()[..], b"");
        assert_eq!(&answered(&[b"OK 7\nframe"]).await.unwrap()[..], b"frame");
    }

    #[tokio::test]
    async fn anything_but_ok_and_a_port_is_malformed() {
        let lies: [&[u8]; 10] = [
            b"OK\n",
            b"OK \n",
            b"ok 7\n",
            b"OK 7 \n",
            b"OK +7\n",
            b"OK 4294967296\n",
            b"OK 7\r\n",
            b"\n",
            b"NO 7\n",
            b"OK 00000000000000000000000000000000000000007\n",
        ];
        for lie in lies {
            let error = answered(&[lie]).await.unwrap_err();
            assert!(matches!(error, HandshakeError::Malformed), "{lie:?}: {error}");
        }
    }

    #[tokio::test]
    async fn a_socket_that_closes_is_no_lie() {
        for piece in [&b""[..], b"OK 7"] {
            let error = answered(&[piece]).await.unwrap_err();
            assert!(matches!(error, HandshakeError::Closed), "{error}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn silence_ends_at_the_deadline() {
        let (mut host, _guest) = tokio::io::duplex(64);
        let error = handshake(&mut host, 1024, Instant::now() + Duration::from_secs(3)).await.unwrap_err();
        assert!(matches!(error, HandshakeError::Silent), "{error}");
    }
}
