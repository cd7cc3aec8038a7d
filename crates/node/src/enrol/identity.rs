//! The identity on disk: four small files, 0600, in a directory that is 0700. The key is written before anybody
//! is asked to certify it, the certificate last, so an identity that has one is whole.

use std::{
    fs::{self, File, Permissions},
    io::{self, Write},
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
};

use camino::Utf8Path;
use space_types::NodeId;

/// Who this node is.
#[derive(Clone)]
pub(crate) struct Identity {
    pub(crate) node: NodeId,
    pub(crate) key_pem: String,
    pub(crate) certificate_pem: String,
    pub(crate) authority_pem: String,
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Identity").field("node", &self.node).finish_non_exhaustive()
    }
}

const NODE: &str = "node_id";
const KEY: &str = "key.pem";
const CERTIFICATE: &str = "certificate.pem";
const AUTHORITY: &str = "authority.pem";

impl Identity {
    /// What [`Self::store`] wrote, or `None` where this node has not joined yet.
    pub(crate) fn load(directory: &Utf8Path) -> io::Result<Option<Self>> {
        let read = |name: &str| fs::read_to_string(directory.join(name));
        let certificate_pem = match read(CERTIFICATE) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other?,
        };
        let node = read(NODE)?.trim().parse().map_err(io::Error::other)?;
        Ok(Some(Self { node, key_pem: read(KEY)?, certificate_pem, authority_pem: read(AUTHORITY)? }))
    }

    /// The key alone, if there is one: of a node that has joined, or has begun to.
    pub(crate) fn load_key(directory: &Utf8Path) -> io::Result<Option<String>> {
        match fs::read_to_string(directory.join(KEY)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            other => other.map(Some),
        }
    }

    /// Writes the key, before there is anything else.
    pub(crate) fn store_key(directory: &Utf8Path, key_pem: &str) -> io::Result<()> {
        fs::create_dir_all(directory)?;
        fs::set_permissions(directory, Permissions::from_mode(0o700))?;
        write(directory, KEY, key_pem)
    }

    /// Writes what control answered about the key.
    pub(crate) fn store(&self, directory: &Utf8Path) -> io::Result<()> {
        write(directory, NODE, &self.node.to_string())?;
        write(directory, AUTHORITY, &self.authority_pem)?;
        write(directory, CERTIFICATE, &self.certificate_pem)
    }

    /// Only the certificate, for the same key.
    pub(crate) fn store_certificate(&self, directory: &Utf8Path) -> io::Result<()> {
        write(directory, CERTIFICATE, &self.certificate_pem)
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
        assert!(Identity::load(&path).unwrap().is_none());
        let identity = Identity {
            node: NodeId::new(),
            key_pem: "key".to_owned(),
            certificate_pem: "certificate".to_owned(),
            authority_pem: "authority".to_owned(),
        };
        Identity::store_key(&path, &identity.key_pem).unwrap();
        assert!(Identity::load(&path).unwrap().is_none(), "a key alone is no identity");
        identity.store(&path).unwrap();
        let loaded = Identity::load(&path).unwrap().unwrap();
        assert_eq!((loaded.node, loaded.key_pem.as_str()), (identity.node, "key"));
        for entry in path.read_dir_utf8().unwrap() {
            let mode = entry.unwrap().metadata().unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
    }
}
