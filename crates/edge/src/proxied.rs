//! Whom a connection is for, where a proxy in front may say so.

use std::{io, net::IpAddr, time::Duration};

use tokio::{io::AsyncReadExt as _, net::TcpStream, time::timeout};

use crate::{
    config::ProxyProtocolConfig,
    network::Network,
    parse::proxy_protocol::{Malformed, Parsed, parse},
};

#[derive(Debug, thiserror::Error)]
pub(crate) enum ProxiedError {
    #[error(transparent)]
    Malformed(#[from] Malformed),
    #[error("the connection broke before the proxy's header was there")]
    Read(#[from] io::Error),
    #[error("the proxy's header did not come in time")]
    Late,
}

/// Who is believed.
#[derive(Debug, Default)]
pub(crate) struct Proxies(Vec<Network>);

impl Proxies {
    pub(crate) fn new(config: Option<&ProxyProtocolConfig>) -> Self {
        Self(config.map(|config| config.trusted.clone()).unwrap_or_default())
    }

    /// The visitor's address, with the header of a trusted proxy taken off `stream`, and nothing behind it.
    pub(crate) async fn visitor(
        &self,
        stream: &mut TcpStream,
        peer: IpAddr,
        deadline: Duration,
    ) -> Result<IpAddr, ProxiedError> {
        if !self.0.iter().any(|network| network.contains(peer)) {
            return Ok(peer);
        }
        let read = timeout(deadline, source(stream)).await.map_err(|_elapsed| ProxiedError::Late)?;
        Ok(read?.unwrap_or(peer))
    }
}

async fn source(stream: &mut TcpStream) -> Result<Option<IpAddr>, ProxiedError> {
    let mut header = Vec::new();
    loop {
        match parse(&header)? {
            Parsed::Source(source) => return Ok(source),
            Parsed::More(more) => {
                let begin = header.len();
                header.resize(begin + more.get(), 0);
                stream.read_exact(&mut header[begin..]).await?;
            }
        }
    }
}
