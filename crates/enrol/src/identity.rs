//! The identity on disk: three small files, 0600, in a directory that is 0700. The key is written before anybody is
//! asked to certify it, the certificate last, so an identity that has one is whole.

use std::{
    fmt,
    fs::{self, Permissions},
    io,
    os::unix::fs::PermissionsExt,
};

use camino::Utf8Path;

use crate::files::{read, write_private};

/// The key of this daemon, its certificate, and the authority that everybody here trusts.
#[derive(Clone)]
pub struct Identity {
    pub key_pem: String,
    pub certificate_pem: String,
    pub authority_pem: String,
}

/// Without the key.
impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity").finish_non_exhaustive()
    }
}

const KEY: &str = "key.pem";
const CERTIFICATE: &str = "certificate.pem";
const AUTHORITY: &str = "authority.pem";

impl Identity {
    /// What `store` wrote, or `None` where this daemon has not joined yet.
    pub fn load(directory: &Utf8Path) -> io::Result<Option<Self>> {
        let Some(certificate_pem) = read(directory, CERTIFICATE)? else { return Ok(None) };
        let whole = |name| read(directory, name)?.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound));
        Ok(Some(Self { key_pem: whole(KEY)?, certificate_pem, authority_pem: whole(AUTHORITY)? }))
    }

    /// The key alone, if there is one: of a daemon that has joined, or has begun to.
    pub(crate) fn load_key(directory: &Utf8Path) -> io::Result<Option<String>> {
        read(directory, KEY)
    }

    /// Writes the key, before there is anything else.
    pub(crate) fn store_key(directory: &Utf8Path, key_pem: &str) -> io::Result<()> {
        fs::create_dir_all(directory)?;
        fs::set_permissions(directory, Permissions::from_mode(0o700))?;
        write_private(directory, KEY, key_pem)
    }

    /// Writes what control answered about the key.
    pub(crate) fn store(&self, directory: &Utf8Path) -> io::Result<()> {
        write_private(directory, AUTHORITY, &self.authority_pem)?;
        self.store_certificate(directory)
    }

    /// Only the certificate, for the same key.
    pub(crate) fn store_certificate(&self, directory: &Utf8Path) -> io::Result<()> {
        write_private(directory, CERTIFICATE, &self.certificate_pem)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_is_loaded_as_stored_and_private() {
        let directory = tempfile::tempdir().unwrap();
        let path = Utf8Path::from_path(directory.path()).unwrap().join("identity");
        assert!(Identity::load(&path).unwrap().is_none());
        Identity::store_key(&path, "key").unwrap();
        assert!(Identity::load(&path).unwrap().is_none(), "a key alone is no identity");
        let identity = Identity {
            key_pem: "key".to_owned(),
            certificate_pem: "certificate".to_owned(),
            authority_pem: "authority".to_owned(),
        };
        identity.store(&path).unwrap();
        let loaded = Identity::load(&path).unwrap().unwrap();
        assert_eq!((loaded.key_pem.as_str(), loaded.authority_pem.as_str()), ("key", "authority"));
        assert_eq!(loaded.certificate_pem, "certificate");
        let mode = |path: &Utf8Path| path.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&path), 0o700);
        for entry in path.read_dir_utf8().unwrap() {
            assert_eq!(mode(entry.unwrap().path()), 0o600);
        }
        assert!(!format!("{loaded:?}").contains("key"), "a log shows no key");
    }
}
