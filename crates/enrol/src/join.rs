//! Joining an installation: a one-time token for an identity. May be repeated after a crash at any instant.
//!
//! Control knows the daemon before its answer is on our disk, and either side may die in between. So the key is stored
//! first and used again, and control answers the same token and key as before.

use std::{fs, io, time::Duration};

use camino::{Utf8Path, Utf8PathBuf};
use tonic::{Status, transport::Channel};

use crate::{ControlConfig, Identity, KeyError, Life, link::endpoint, new_key, signing_request};

#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    #[error("cannot use the identity in {path}")]
    Files {
        path: Utf8PathBuf,
        #[source]
        source: io::Error,
    },
    #[error(
        "not joined yet, or away until the certificate expired: control.join_token (or join_token_file) is needed"
    )]
    NoToken,
    #[error("not joined yet: control.authority is needed to trust control")]
    NoAuthority,
    #[error("cannot read {path}")]
    Read {
        path: Utf8PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("the key can't be used")]
    Key(#[from] KeyError),
    #[error("cannot reach control")]
    Connect(#[from] tonic::transport::Error),
    #[error("control refused")]
    Refused(#[source] Box<Status>),
    #[error("control answered with the id `{0}`")]
    Answer(String),
}

impl From<Status> for JoinError {
    fn from(status: Status) -> Self {
        Self::Refused(Box::new(status))
    }
}

/// What goes to control in any daemon's request to join.
#[derive(Debug)]
pub struct Asked {
    pub join_token: String,
    pub csr_der: Vec<u8>,
}

/// What control answers to any of them, PEM.
#[derive(Debug)]
pub struct Granted {
    pub certificate_pem: String,
    pub authority_pem: String,
}

/// Who wants to join, and where its identity is kept.
#[derive(Debug, Clone, Copy)]
pub struct Joining<'a> {
    pub control: &'a ControlConfig,
    /// For the connection, and for the call.
    pub deadline: Duration,
    pub directory: &'a Utf8Path,
    /// Under which it is reached, if it is a server.
    pub host: Option<&'a str>,
}

impl Joining<'_> {
    /// The identity, for which `enrol` asks control if there is none, or if the one there expired while the daemon was
    /// away. Whatever else `enrol` keeps of the answer is on disk before the certificate is.
    pub async fn load_or_join(
        &self,
        enrol: impl AsyncFnOnce(Asked) -> Result<Granted, JoinError>,
    ) -> Result<Identity, JoinError> {
        if let Some(identity) = Identity::load(self.directory).map_err(self.files_error())?
            && Life::of(&identity.certificate_pem).is_ok_and(|life| !life.left.is_zero())
        {
            return Ok(identity);
        }
        let identity = self.join(enrol).await?;
        tracing::info!("joined");
        Ok(identity)
    }

    async fn join(
        &self,
        enrol: impl AsyncFnOnce(Asked) -> Result<Granted, JoinError>,
    ) -> Result<Identity, JoinError> {
        let join_token = self.join_token()?;
        let key_pem = match Identity::load_key(self.directory).map_err(self.files_error())? {
            Some(key) => key,
            None => new_key()?,
        };
        Identity::store_key(self.directory, &key_pem).map_err(self.files_error())?;
        let csr_der = signing_request(&key_pem, self.host)?;
        let Granted { certificate_pem, authority_pem } = enrol(Asked { join_token, csr_der }).await?;
        let identity = Identity { key_pem, certificate_pem, authority_pem };
        identity.store(self.directory).map_err(self.files_error())?;
        Ok(identity)
    }

    /// To control without a certificate, as only a request to join may come.
    pub async fn connect(&self) -> Result<Channel, JoinError> {
        let authority = read(self.control.authority.as_deref().ok_or(JoinError::NoAuthority)?)?;
        Ok(endpoint(self.control, self.deadline, &authority, None)?.connect().await?)
    }

    /// Of the identity's files.
    pub fn files_error(&self) -> impl Fn(io::Error) -> JoinError + use<> {
        let path = self.directory.to_owned();
        move |source| JoinError::Files { path: path.clone(), source }
    }

    fn join_token(&self) -> Result<String, JoinError> {
        match (&self.control.join_token, &self.control.join_token_file) {
            (Some(token), _) => Ok(token.clone()),
            (None, Some(path)) => Ok(read(path)?.trim().to_owned()),
            (None, None) => Err(JoinError::NoToken),
        }
    }
}

fn read(path: &Utf8Path) -> Result<String, JoinError> {
    fs::read_to_string(path).map_err(|source| JoinError::Read { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, CertificateSigningRequestParams, Issuer, KeyPair, PublicKeyData};
    use time::OffsetDateTime;

    use super::*;

    struct Kit {
        directory: tempfile::TempDir,
        control: ControlConfig,
    }

    impl Kit {
        fn new() -> Self {
            let control = ControlConfig {
                url: "https://127.0.0.1:1".to_owned(),
                server_name: "control.space.internal".to_owned(),
                authority: None,
                join_token: Some("token".to_owned()),
                join_token_file: None,
            };
            Self { directory: tempfile::tempdir().unwrap(), control }
        }

        fn joining(&self) -> Joining<'_> {
            let directory = Utf8Path::from_path(self.directory.path()).unwrap();
            Joining { control: &self.control, deadline: Duration::from_secs(1), directory, host: None }
        }
    }

    fn public_key(csr_der: &[u8]) -> Vec<u8> {
        let request = CertificateSigningRequestParams::from_der(&csr_der.to_vec().into()).unwrap();
        request.public_key.der_bytes().to_vec()
    }

    /// Signed by an authority that nobody knows, and good until `not_after`.
    fn granted(csr_der: &[u8], not_after: OffsetDateTime) -> Granted {
        let request = CertificateSigningRequestParams::from_der(&csr_der.to_vec().into()).unwrap();
        let issuer = Issuer::new(CertificateParams::default(), KeyPair::generate().unwrap());
        let mut params = CertificateParams::default();
        params.not_after = not_after;
        Granted {
            certificate_pem: params.signed_by(&request.public_key, &issuer).unwrap().pem(),
            authority_pem: "authority".to_owned(),
        }
    }

    fn in_an_hour() -> OffsetDateTime {
        OffsetDateTime::now_utc() + time::Duration::hours(1)
    }

    #[tokio::test]
    async fn after_a_lost_answer_the_same_key_is_brought_again() {
        let (kit, mut first) = (Kit::new(), None);
        let (joining, path) = (kit.joining(), kit.joining().directory);
        let failed = joining.load_or_join(async |asked: Asked| {
            assert_eq!(asked.join_token, "token");
            let stored = Identity::load_key(path).unwrap().unwrap();
            let key = KeyPair::from_pem(&stored).unwrap();
            assert_eq!(key.der_bytes(), public_key(&asked.csr_der), "it was on disk before the call");
            first = Some(public_key(&asked.csr_der));
            Err(Status::deadline_exceeded("the answer was lost").into())
        });
        failed.await.unwrap_err();
        assert!(Identity::load(path).unwrap().is_none());
        let joined = joining.load_or_join(async |asked: Asked| {
            assert_eq!(first.as_deref(), Some(public_key(&asked.csr_der).as_slice()));
            Ok(granted(&asked.csr_der, in_an_hour()))
        });
        let joined = joined.await.unwrap();
        let again = joining.load_or_join(async |_asked| panic!("it has joined"));
        let again = again.await.unwrap();
        assert_eq!((again.key_pem, again.certificate_pem), (joined.key_pem, joined.certificate_pem));
    }

    #[tokio::test]
    async fn an_expired_certificate_is_joined_for_again() {
        let kit = Kit::new();
        let joining = kit.joining();
        let past = OffsetDateTime::now_utc() - time::Duration::hours(1);
        let old = joining.load_or_join(async |asked: Asked| Ok(granted(&asked.csr_der, past))).await.unwrap();
        let new = joining.load_or_join(async |asked: Asked| Ok(granted(&asked.csr_der, in_an_hour()))).await;
        let new = new.unwrap();
        assert_eq!(old.key_pem, new.key_pem);
        assert_ne!(old.certificate_pem, new.certificate_pem);
    }

    #[tokio::test]
    async fn what_is_lacking_is_named() {
        let mut kit = Kit::new();
        assert!(matches!(kit.joining().connect().await, Err(JoinError::NoAuthority)));
        kit.control.join_token = None;
        let joined = kit.joining().load_or_join(async |_asked| panic!("there is no token")).await;
        assert!(matches!(joined, Err(JoinError::NoToken)));
        kit.control.join_token_file = Some(kit.joining().directory.join("nowhere"));
        let joined = kit.joining().load_or_join(async |_asked| panic!("there is no token")).await;
        assert!(matches!(joined, Err(JoinError::Read { .. })));
    }
}
