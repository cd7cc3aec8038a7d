//! Joining an installation: a one-time token for an identity.

use std::{fs, io};

use camino::{Utf8Path, Utf8PathBuf};
use space_node_proto::registry::{EnrolRequest, registry_client::RegistryClient};
use tonic::Status;

use super::{Identity, KeyError, SigningRequest, link::endpoint};
use crate::config::NodeConfig;

#[derive(Debug, thiserror::Error)]
pub(crate) enum JoinError {
    #[error("cannot use the identity in {path}")]
    Files {
        path: Utf8PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("this node has not joined: control.join_token (or join_token_file) is needed")]
    NoToken,
    #[error("this node has not joined: control.authority is needed to trust control")]
    NoAuthority,
    #[error("cannot read {path}")]
    Read {
        path: Utf8PathBuf,
        #[source]
        source: io::Error,
    },
    #[error(transparent)]
    Key(#[from] KeyError),
    #[error("cannot reach control")]
    Connect(#[from] tonic::transport::Error),
    #[error("control refused this node")]
    Refused(#[source] Box<Status>),
    #[error("control answered with the node id `{0}`")]
    Answer(String),
}

/// The node's identity, which it joins for if it has none. A token is used up by control when it answers; a
/// crash before the identity is on disk costs the token.
pub(crate) async fn load_or_join(config: &NodeConfig, directory: &Utf8Path) -> Result<Identity, JoinError> {
    let files_error = |source| JoinError::Files { path: directory.to_owned(), source };
    if let Some(identity) = Identity::load(directory).map_err(files_error)? {
        return Ok(identity);
    }
    let identity = join(config).await?;
    identity.store(directory).map_err(files_error)?;
    tracing::info!(node = %identity.node, "joined");
    Ok(identity)
}

async fn join(config: &NodeConfig) -> Result<Identity, JoinError> {
    let token = join_token(config)?;
    let authority = read(config.control.authority.as_deref().ok_or(JoinError::NoAuthority)?)?;
    let address = config.advertised();
    let request = SigningRequest::new(&config.advertised_host())?;
    let channel = endpoint(&config.control, &config.deadlines, &authority, None)?.connect().await?;
    let call =
        EnrolRequest { join_token: token, csr_der: request.csr_der, name: config.name.clone(), address };
    let answered = RegistryClient::new(channel).enrol(call).await;
    let reply = answered.map_err(|status| JoinError::Refused(Box::new(status)))?.into_inner();
    Ok(Identity {
        node: reply.node_id.parse().map_err(|_invalid| JoinError::Answer(reply.node_id.clone()))?,
        key_pem: request.key_pem,
        certificate_pem: reply.certificate_pem,
        authority_pem: reply.authority_pem,
    })
}

fn join_token(config: &NodeConfig) -> Result<String, JoinError> {
    match (&config.control.join_token, &config.control.join_token_file) {
        (Some(token), _) => Ok(token.clone()),
        (None, Some(path)) => Ok(read(path)?.trim().to_owned()),
        (None, None) => Err(JoinError::NoToken),
    }
}

fn read(path: &Utf8Path) -> Result<String, JoinError> {
    fs::read_to_string(path).map_err(|source| JoinError::Read { path: path.to_owned(), source })
}
