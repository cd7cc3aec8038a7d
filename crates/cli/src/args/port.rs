//! Arguments about ports of sandboxes, and about what of them is brought here.

use std::num::NonZeroU16;

use clap::{Args, Subcommand};
use space_api::ports::{CreatePortToken, parse_port};
use space_types::SandboxId;

#[derive(Debug, Subcommand)]
pub(crate) enum PortCommand {
    /// Bring ports of a sandbox to 127.0.0.1 here, until Ctrl-C
    ///
    /// Whatever connects here is connected to the port in the sandbox, whether that is public or private. What can't be
    /// connected is said, and the rest goes on.
    Forward(ForwardArgs),
    /// List the ports for which something was set
    Ls(super::SandboxArgs),
    /// Print an address that opens a port: its own if it is public, else a signed link for a browser
    Url(AccessArgs),
    /// Print a token for a port, for the header X-Space-Port-Token
    Token(AccessArgs),
    /// Let anybody reach a port who knows its address
    Public(PortArgs),
    /// Let only those reach a port who have a token
    Private(PortArgs),
    /// Make all tokens and links of a port void that were made so far
    Revoke(PortArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ForwardArgs {
    /// The sandbox's id
    pub(crate) sandbox: SandboxId,
    /// Port in the sandbox, and the port here [default: the same]; 0 here takes a free one
    #[arg(required = true, value_name = "[LOCAL:]REMOTE", value_parser = parse_pair)]
    pub(crate) ports: Vec<PortPair>,
}

/// A port here and the one in the sandbox that it leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PortPair {
    /// 0 for one that is free.
    pub(crate) local: u16,
    pub(crate) remote: NonZeroU16,
}

#[derive(Debug, Args)]
pub(crate) struct PortArgs {
    /// The sandbox's id
    pub(crate) sandbox: SandboxId,
    /// Port in the sandbox
    #[arg(value_parser = parse_remote)]
    pub(crate) port: NonZeroU16,
}

#[derive(Debug, Args)]
pub(crate) struct AccessArgs {
    #[command(flatten)]
    pub(crate) at: PortArgs,
    /// How long the token or link is good, at most 30 days
    #[arg(long, alias = "ttl", value_name = "SECONDS", default_value_t = CreatePortToken::default().valid_seconds)]
    pub(crate) valid: u32,
}

fn parse_remote(text: &str) -> Result<NonZeroU16, String> {
    parse_port(text).map_err(|_error| "a port is 1 to 65535".to_owned())
}

fn parse_pair(text: &str) -> Result<PortPair, String> {
    let (local, remote) = text.split_once(':').map_or((None, text), |(local, rest)| (Some(local), rest));
    let remote = parse_remote(remote)?;
    let local = match local {
        Some("0") => 0,
        Some(local) => parse_remote(local).map_err(|_error| "a port here is 0 to 65535".to_owned())?.get(),
        None => remote.get(),
    };
    Ok(PortPair { local, remote })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_comes_here_under_its_own_number_unless_another_is_given() {
        let pair = |text| parse_pair(text).map(|pair| (pair.local, pair.remote.get()));
        assert_eq!(
            (pair("3000"), pair("80:3000"), pair("0:3000")),
            (Ok((3000, 3000)), Ok((80, 3000)), Ok((0, 3000)))
        );
        for text in ["", "0", ":3000", "80:", "80:0", "65536:80", "127.0.0.1:80:80", "http", "+1:80"] {
            assert!(pair(text).is_err(), "{text}");
        }
    }
}
