//! Joining an installation: a one-time token for an identity. May be repeated after a crash at any instant.

use std::{fs, io, time::Duration};

use camino::{Utf8Path, Utf8PathBuf};
use space_node_proto::edge::{EnrolEdgeReply, EnrolEdgeRequest, edge_client::EdgeClient};
use tonic::Status;

use super::{
    Identity, KeyError,
    certificate::{Life, new_key, signing_request},
};
use crate::{config::Config, control::endpoint};

#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    #[error("cannot use the identity in {path}")]
    Files {
        path: Utf8PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("this edge has not joined, or its certificate has expired: control.join_token_file is needed")]
    NoToken,
    #[error("this edge has not joined: control.authority is needed to trust control")]
    NoAuthority,
    #[error("cannot read {path}")]
    Read {
        path: Utf8PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("the edge's key can't be used")]
    Key(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("cannot reach control")]
    Connect(#[from] tonic::transport::Error),
    #[error("control refused this edge")]
    Refused(#[source] Box<Status>),
}

impl From<KeyError> for JoinError {
    fn from(error: KeyError) -> Self {
        Self::Key(Box::new(error))
    }
}

/// The edge's identity, which it joins for if it has none, or if the one it has expired while it was away.
pub(crate) async fn load_or_join(config: &Config) -> Result<Identity, JoinError> {
    let directory = config.data_dir.join("identity");
    let files_error = |source| JoinError::Files { path: directory.clone(), source };
    if let Some(identity) = Identity::load(&directory).map_err(files_error)?
        && Life::of(&identity.certificate_pem).is_ok_and(|life| !life.left.is_zero())
    {
        return Ok(identity);
    }
    let key_pem = match Identity::load_key(&directory).map_err(files_error)? {
        Some(key) => key,
        None => new_key()?,
    };
    Identity::store_key(&directory, &key_pem).map_err(files_error)?;
    let reply = enrol(config, signing_request(&key_pem)?).await?;
    let EnrolEdgeReply { certificate_pem, authority_pem } = reply;
    let identity = Identity { key_pem, certificate_pem, authority_pem };
    identity.store(&directory).map_err(files_error)?;
    tracing::info!("joined");
    Ok(identity)
}

async fn enrol(config: &Config, csr_der: Vec<u8>) -> Result<EnrolEdgeReply, JoinError> {
    let token_file = config.control.join_token_file.as_deref().ok_or(JoinError::NoToken)?;
    let join_token = read(token_file)?.trim().to_owned();
    let authority = read(config.control.authority.as_deref().ok_or(JoinError::NoAuthority)?)?;
    let deadline = Duration::from_secs(config.limits.upstream_seconds);
    let channel = endpoint(&config.control, deadline, &authority, None)?.connect().await?;
    let call = EnrolEdgeRequest { join_token, csr_der, name: config.name.clone() };
    let answered = EdgeClient::new(channel).enrol_edge(call).await;
    Ok(answered.map_err(|status| JoinError::Refused(Box::new(status)))?.into_inner())
}

fn read(path: &Utf8Path) -> Result<String, JoinError> {
    fs::read_to_string(path).map_err(|source| JoinError::Read { path: path.to_owned(), source })
}
