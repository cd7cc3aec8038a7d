//! The installation's roots of trust: the CA that signs control, nodes, workers and edges, and the key that signs attach
//! tokens and tokens for ports. They live in `<data>/authority/`, 0600, and not in the database: a dump of the database gives away
//! neither. Replicas share the directory's content.

mod attach_token;
mod certificates;
mod files;
mod peer;
mod port_token;

pub(crate) use attach_token::AttachSigner;
pub(crate) use certificates::{CertificateError, Certificates, request_key_hash};
pub(crate) use files::write_private;
pub(crate) use peer::Peer;

use camino::{Utf8Path, Utf8PathBuf};

#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    #[error("cannot use {path}")]
    File {
        path: Utf8PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("{path} holds no usable key")]
    Key { path: Utf8PathBuf },
    #[error("cannot make a certificate")]
    Certificate(#[from] CertificateError),
    #[error("the system gives no random bytes")]
    Random,
}

pub(crate) struct Authority {
    pub(crate) certificates: Certificates,
    pub(crate) attach: AttachSigner,
}

impl Authority {
    /// Reads the keys, or makes them at the first start.
    pub(crate) fn open(data_dir: &Utf8Path) -> Result<Self, AuthorityError> {
        let dir = data_dir.join("authority");
        files::make_private_dir(&dir)?;
        let ca_path = dir.join("ca.key.pem");
        let ca_key = files::read_or_make(&ca_path, || Ok(Certificates::new_key()?.into_bytes()))?;
        let ca_key = String::from_utf8(ca_key).map_err(|_not_text| AuthorityError::Key { path: ca_path })?;
        let certificate =
            files::read_or_make(&dir.join("ca.pem"), || Ok(Certificates::self_sign(&ca_key)?.into_bytes()))?;
        let certificate = String::from_utf8_lossy(&certificate).into_owned();
        let certificates = Certificates::new(&ca_key, certificate)?;
        let attach_path = dir.join("attach.key.der");
        let attach_key = files::read_or_make(&attach_path, AttachSigner::new_key)?;
        let attach = AttachSigner::new(&attach_key).ok_or(AuthorityError::Key { path: attach_path })?;
        Ok(Self { certificates, attach })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn the_keys_survive_a_restart_and_nobody_else_may_read_them() {
        let dir = tempfile::tempdir().unwrap();
        let path = Utf8Path::from_path(dir.path()).unwrap();
        let first = Authority::open(path).unwrap();
        let again = Authority::open(path).unwrap();
        assert_eq!(first.certificates.authority_pem(), again.certificates.authority_pem());
        for name in ["ca.key.pem", "attach.key.der"] {
            let mode = std::fs::metadata(path.join("authority").join(name)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{name}");
        }
    }
}
