//! The identity on disk: three small files, 0600, in a directory that is 0700. The certificate is written last, so an
//! identity that has one is whole.

use std::{
    fs::{self, File, Permissions},
    io::{self, Write},
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
};

use camino::Utf8Path;

#[derive(Clone)]
#[expect(clippy::struct_field_names, reason = "all three are PEM, and say so")]
pub(crate) struct Identity {
    pub(crate) key_pem: String,
    pub(crate) certificate_pem: String,
    pub(crate) authority_pem: String,
}

const KEY: &str = "key.pem";
const CERTIFICATE: &str = "certificate.pem";
const AUTHORITY: &str = "authority.pem";

impl Identity {
    /// What [`Self::store`] wrote, or `None` where this edge has not joined yet.
    pub(super) fn load(directory: &Utf8Path) -> io::Result<Option<Self>> {
        let Some(certificate_pem) = read(directory, CERTIFICATE)? else { return Ok(None) };
        let whole = |name| read(directory, name)?.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound));
        Ok(Some(Self { key_pem: whole(KEY)?, certificate_pem, authority_pem: whole(AUTHORITY)? }))
    }

    /// The key alone, if there is one: of an edge that has joined, or has begun to.
    pub(super) fn load_key(directory: &Utf8Path) -> io::Result<Option<String>> {
        read(directory, KEY)
    }

    /// Before anything else.
    pub(super) fn store_key(directory: &Utf8Path, key_pem: &str) -> io::Result<()> {
        fs::create_dir_all(directory)?;
        fs::set_permissions(directory, Permissions::from_mode(0o700))?;
        write(directory, KEY, key_pem)
    }

    /// What control answered about the key.
    pub(super) fn store(&self, directory: &Utf8Path) -> io::Result<()> {
        write(directory, AUTHORITY, &self.authority_pem)?;
        write(directory, CERTIFICATE, &self.certificate_pem)
    }
}

fn read(directory: &Utf8Path, name: &str) -> io::Result<Option<String>> {
    match fs::read_to_string(directory.join(name)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        other => other.map(Some),
    }
}

fn write(directory: &Utf8Path, name: &str, content: &str) -> io::Result<()> {
    let temporary = directory.join(format!(".{name}"));
    let mut options = File::options();
    let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
    file.write_all(content.as_bytes())?;
    file.sync_all()?;
    fs::rename(&temporary, directory.join(name))?;
    File::open(directory)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_is_loaded_as_stored_and_private() {
        let directory = tempfile::tempdir().unwrap();
        let path = Utf8Path::from_path(directory.path()).unwrap().join("identity");
        Identity::store_key(&path, "key").unwrap();
        assert!(Identity::load(&path).unwrap().is_none(), "a key alone is no identity");
        let identity = Identity {
            key_pem: "key".to_owned(),
            certificate_pem: "certificate".to_owned(),
            authority_pem: "authority".to_owned(),
        };
        identity.store(&path).unwrap();
        assert_eq!(Identity::load(&path).unwrap().unwrap().certificate_pem, "certificate");
        for entry in path.read_dir_utf8().unwrap() {
            assert_eq!(entry.unwrap().metadata().unwrap().permissions().mode() & 0o777, 0o600);
        }
    }
}
