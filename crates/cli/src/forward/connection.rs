//! One connection: to the edge, and bytes both ways until both have ended.
//!
//! | what happens | what becomes of it |
//! |---|---|
//! | one side ends its direction | the other side sees that end, and may go on with its own |
//! | the side here breaks off | the connection to the edge is dropped; nobody is told, since whoever broke it knows |
//! | the edge's side breaks off | the one here is reset, so that half of something is not taken for the whole |

use std::io;

use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, split},
    net::TcpStream,
};

use super::Way;
use crate::error::CliError;

/// Held for each direction.
const BUFFER: usize = 16 * 1024;

/// Carries `local` to its end. Quiet about what the program here did itself.
pub(super) async fn carry(mut local: TcpStream, way: &Way) -> Result<(), CliError> {
    // Without it only small packets come later than they could.
    drop(local.set_nodelay(true));
    let carried = match way.connect().await {
        Ok(far) => join(&mut local, far).await,
        Err(error) => Err(error),
    };
    if carried.is_err() {
        // Otherwise its end looks like an ordinary one.
        drop(local.set_zero_linger());
    }
    carried
}

impl Way {
    async fn connect(&self) -> Result<impl AsyncRead + AsyncWrite + Send + Unpin + use<>, CliError> {
        let token = self.tokens.latest();
        match self.edge.connect(&token).await {
            Err(error) if error.is_unauthorized() => {
                let another = self.tokens.another(token).await?;
                Ok(self.edge.connect(&another).await?)
            }
            connected => Ok(connected?),
        }
    }
}

/// Why a direction did not come to its end.
enum Broken {
    Reading(io::Error),
    Writing,
}

/// Whose fault it is that a connection broke.
enum End {
    Here,
    There(io::Error),
}

async fn join(local: &mut TcpStream, far: impl AsyncRead + AsyncWrite) -> Result<(), CliError> {
    let (from_here, to_here) = local.split();
    let (from_there, to_there) = split(far);
    let there = async {
        match pump(from_here, to_there).await {
            // What takes no more may still have something to say: the other direction tells how it ended.
            Ok(()) | Err(Broken::Writing) => Ok(()),
            Err(Broken::Reading(_)) => Err(End::Here),
        }
    };
    let back = async {
        pump(from_there, to_here).await.map_err(|broken| match broken {
            Broken::Writing => End::Here,
            Broken::Reading(error) => End::There(error),
        })
    };
    match tokio::try_join!(there, back) {
        Ok(_) | Err(End::Here) => Ok(()),
        Err(End::There(error)) => Err(CliError::hinted(
            anyhow::Error::new(error).context("the connection broke"),
            "the sandbox, its node or the edge may have ended it: `space get` tells of the sandbox; connect again",
        )),
    }
}

/// One direction, to its end, which is passed on.
async fn pump(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin) -> Result<(), Broken> {
    let mut buffer = vec![0; BUFFER];
    loop {
        let length = from.read(&mut buffer).await.map_err(Broken::Reading)?;
        if length == 0 {
            return to.shutdown().await.map_err(|_error| Broken::Writing);
        }
        let written = async {
            to.write_all(&buffer[..length]).await?;
            // TLS holds back what the socket did not take.
            to.flush().await
        };
        written.await.map_err(|_error: io::Error| Broken::Writing)?;
    }
}
