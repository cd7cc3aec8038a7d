//! Joining an installation: a one-time token for an identity.
//!
//! Control makes the node before its answer is on our disk, and either side may die in between. So the key is
//! stored first and used again, and control answers the same token and key as before.

use std::{fs, io};

use camino::{Utf8Path, Utf8PathBuf};
use space_node_proto::registry::{EnrolReply, EnrolRequest, registry_client::RegistryClient};
use tonic::Status;

use super::{
    Identity, KeyError, SigningRequest,
    certificate::{new_key, time_left},
    link::endpoint,
};
use crate::{config::NodeConfig, fail_point};

#[derive(Debug, thiserror::Error)]
pub(crate) enum JoinError {
    #[error("cannot use the identity in {path}")]
    Files {
        path: Utf8PathBuf,
        #[source]
        source: io::Error,
    },
    #[error(
        "this node has not joined, or its certificate has expired: control.join_token (or join_token_file) is needed"
    )]
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

/// The node's identity, which it joins for if it has none, or if the one it has expired while it was away. May
/// be repeated after a crash at any instant.
pub(crate) async fn load_or_join(config: &NodeConfig, directory: &Utf8Path) -> Result<Identity, JoinError> {
    let files_error = |source| JoinError::Files { path: directory.to_owned(), source };
    if let Some(identity) = Identity::load(directory).map_err(files_error)?
        && time_left(&identity.certificate_pem).is_ok_and(|left| !left.is_zero())
    {
        return Ok(identity);
    }
    let identity = join(config, directory, async |call| enrol(config, call).await).await?;
    tracing::info!(node = %identity.node, "joined");
    Ok(identity)
}

async fn join(
    config: &NodeConfig,
    directory: &Utf8Path,
    enrol: impl AsyncFnOnce(EnrolRequest) -> Result<EnrolReply, JoinError>,
) -> Result<Identity, JoinError> {
    let files_error = |source| JoinError::Files { path: directory.to_owned(), source };
    let join_token = join_token(config)?;
    let key_pem = match Identity::load_key(directory).map_err(files_error)? {
        Some(key) => key,
        None => new_key()?,
    };
    Identity::store_key(directory, &key_pem).map_err(files_error)?;
    let csr_der = SigningRequest::again(&key_pem, &config.advertised_host())?.csr_der;
    let (name, address) = (config.name.clone(), config.advertised());
    let reply = enrol(EnrolRequest { join_token, csr_der, name, address }).await?;
    fail_point::ENROL_ANSWERED.pass();
    let identity = Identity {
        node: reply.node_id.parse().map_err(|_invalid| JoinError::Answer(reply.node_id.clone()))?,
        key_pem,
        certificate_pem: reply.certificate_pem,
        authority_pem: reply.authority_pem,
    };
    identity.store(directory).map_err(files_error)?;
    Ok(identity)
}

async fn enrol(config: &NodeConfig, call: EnrolRequest) -> Result<EnrolReply, JoinError> {
    let authority = read(config.control.authority.as_deref().ok_or(JoinError::NoAuthority)?)?;
    let channel = endpoint(&config.control, &config.deadlines, &authority, None)?.connect().await?;
    let answered = RegistryClient::new(channel).enrol(call).await;
    Ok(answered.map_err(|status| JoinError::Refused(Box::new(status)))?.into_inner())
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

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, CertificateSigningRequestParams, Issuer, KeyPair, PublicKeyData};
    use space_types::NodeId;
    use time::OffsetDateTime;

    use super::*;

    struct Kit {
        _directory: tempfile::TempDir,
        config: NodeConfig,
        identity: Utf8PathBuf,
    }

    impl Kit {
        fn new() -> Self {
            let directory = tempfile::tempdir().unwrap();
            let path = Utf8Path::from_path(directory.path()).unwrap().join("noded.toml");
            let text = r#"
                name = "one"
                worker = "/none"
                [control]
                url = "https://127.0.0.1:1"
                join_token = "token"
                [firecracker]
                binary = "/none/firecracker"
                jailer = "/none"
                kernel = "/none"
                initramfs = "/none"
            "#;
            fs::write(&path, text).unwrap();
            let identity = path.with_file_name("identity");
            Self { config: NodeConfig::load(Some(&path)).unwrap(), identity, _directory: directory }
        }
    }

    fn public_key(csr_der: &[u8]) -> Vec<u8> {
        let request = CertificateSigningRequestParams::from_der(&csr_der.to_vec().into()).unwrap();
        request.public_key.der_bytes().to_vec()
    }

    /// Signed by an authority that nobody knows, and good until `not_after`.
    fn reply(csr_der: &[u8], not_after: OffsetDateTime) -> EnrolReply {
        let request = CertificateSigningRequestParams::from_der(&csr_der.to_vec().into()).unwrap();
        let issuer = Issuer::new(CertificateParams::default(), KeyPair::generate().unwrap());
        let mut params = CertificateParams::default();
        params.not_after = not_after;
        EnrolReply {
            node_id: NodeId::new().to_string(),
            certificate_pem: params.signed_by(&request.public_key, &issuer).unwrap().pem(),
            authority_pem: "authority".to_owned(),
        }
    }

    fn lost() -> JoinError {
        JoinError::Refused(Box::new(Status::deadline_exceeded("the answer was lost")))
    }

    #[tokio::test]
    async fn after_a_lost_answer_the_same_key_is_brought_again() {
        let (kit, mut first) = (Kit::new(), None);
        let failed = join(&kit.config, &kit.identity, async |call: EnrolRequest| {
            let stored = Identity::load_key(&kit.identity).unwrap().unwrap();
            let key = KeyPair::from_pem(&stored).unwrap();
            assert_eq!(key.der_bytes(), public_key(&call.csr_der), "it was on disk before the call");
            first = Some(public_key(&call.csr_der));
            Err(lost())
        });
        failed.await.unwrap_err();
        assert!(Identity::load(&kit.identity).unwrap().is_none());
        let joined = join(&kit.config, &kit.identity, async |call: EnrolRequest| {
            assert_eq!(first.as_deref(), Some(public_key(&call.csr_der).as_slice()));
            Ok(reply(&call.csr_der, OffsetDateTime::now_utc() + time::Duration::hours(1)))
        });
        let joined = joined.await.unwrap();
        let loaded = load_or_join(&kit.config, &kit.identity).await.unwrap();
        assert_eq!((loaded.node, loaded.key_pem), (joined.node, joined.key_pem));
    }

    #[tokio::test]
    async fn an_expired_certificate_is_joined_for_again() {
        let kit = Kit::new();
        let past = OffsetDateTime::now_utc() - time::Duration::hours(1);
        let joined =
            join(&kit.config, &kit.identity, async |call: EnrolRequest| Ok(reply(&call.csr_der, past)));
        let key = joined.await.unwrap().key_pem;
        // It gets as far as wanting to know whom to trust.
        let error = load_or_join(&kit.config, &kit.identity).await.unwrap_err();
        assert!(matches!(error, JoinError::NoAuthority), "{error}");
        assert_eq!(Identity::load_key(&kit.identity).unwrap(), Some(key));
    }
}
