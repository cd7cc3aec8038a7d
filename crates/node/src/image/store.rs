//! Template images by digest: fetched once, checked while they are, never changed again.
//!
//! A fetch writes to a temporary name and takes the final one only after the hash of what was *written*
//! matched, so a name that exists is always whole. Concurrent wishes for one digest share one fetch.

use std::{
    collections::HashMap,
    fs::{self, File, Permissions},
    io::{self, Read, Seek, SeekFrom, Write},
    os::unix::fs::PermissionsExt,
    sync::Arc,
};

use aws_lc_rs::digest::{Context, SHA256};
use camino::{Utf8Path, Utf8PathBuf};
use rustix::{fs::ioctl_ficlone, io::Errno};
use space_node_proto::node::TemplateArtifact;
use space_types::{ByteSize, Digest};
use tokio::sync::Mutex;

use crate::disk::Room;

#[derive(Debug, thiserror::Error)]
pub(crate) enum ImageError {
    #[error("`{0}` is no digest")]
    Digest(String),
    #[error("images are fetched from file:///…, not from `{0}`")]
    Location(String),
    #[error("cannot read the image {path}")]
    Read {
        path: Utf8PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("cannot keep the image {path}")]
    Write {
        path: Utf8PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("the image has {found}, not the {wanted} that were announced")]
    Size { found: ByteSize, wanted: ByteSize },
    #[error("the image's content is {found}, not {wanted}")]
    Content { found: Digest, wanted: Digest },
    #[error("the disk pool is full")]
    NoSpace,
    #[error("the fetch was stopped")]
    Stopped,
}

/// The directory of images.
#[derive(Debug)]
pub(crate) struct ImageStore {
    directory: Utf8PathBuf,
    room: Room,
    reserve: ByteSize,
    fetches: Mutex<HashMap<Digest, Arc<Mutex<()>>>>,
}

const TEMPORARY: &str = ".fetch-";

impl ImageStore {
    /// Opens the store and removes what interrupted fetches left. Blocks.
    pub(crate) fn open(directory: Utf8PathBuf, room: Room, reserve: ByteSize) -> io::Result<Self> {
        for entry in directory.read_dir_utf8()? {
            let entry = entry?;
            if entry.file_name().starts_with(TEMPORARY) {
                fs::remove_file(entry.path())?;
            }
        }
        Ok(Self { directory, room, reserve, fetches: Mutex::default() })
    }

    /// The path of the image, which is fetched if it is not here. Cancel safe: a fetch goes on without us.
    pub(crate) async fn ensure(&self, artifact: &TemplateArtifact) -> Result<Utf8PathBuf, ImageError> {
        let digest: Digest =
            artifact.digest.parse().map_err(|_invalid| ImageError::Digest(artifact.digest.clone()))?;
        let path = self.directory.join(format!("{}.img", digest.hex()));
        if path.exists() {
            return Ok(path);
        }
        let flight = Arc::clone(self.fetches.lock().await.entry(digest.clone()).or_default());
        let turn = flight.lock_owned().await;
        if path.exists() {
            self.fetches.lock().await.remove(&digest);
            return Ok(path);
        }
        let fetch = Fetch {
            source: local_path(&artifact.location)?,
            temporary: self.directory.join(format!("{TEMPORARY}{}", digest.hex())),
            path: path.clone(),
            digest: digest.clone(),
            size: ByteSize::bytes(artifact.size_bytes),
            room: self.room.clone(),
            reserve: self.reserve,
        };
        let done = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            fetch.run()
        });
        let result = done.await.map_err(|_stopped| ImageError::Stopped)?;
        self.fetches.lock().await.remove(&digest);
        result.map(|()| path)
    }
}

fn local_path(location: &str) -> Result<Utf8PathBuf, ImageError> {
    let path = location.strip_prefix("file://").filter(|path| path.starts_with('/'));
    path.map(Utf8PathBuf::from).ok_or_else(|| ImageError::Location(location.to_owned()))
}

struct Fetch {
    source: Utf8PathBuf,
    temporary: Utf8PathBuf,
    path: Utf8PathBuf,
    digest: Digest,
    size: ByteSize,
    room: Room,
    reserve: ByteSize,
}

impl Fetch {
    fn run(&self) -> Result<(), ImageError> {
        let result = self.fetch();
        if result.is_err() {
            // Whatever is there; nothing more can be done about a failure to remove it than to start over.
            drop(fs::remove_file(&self.temporary));
        }
        result
    }

    fn fetch(&self) -> Result<(), ImageError> {
        let read_error = |source| ImageError::Read { path: self.source.clone(), source };
        let mut source = File::open(&self.source).map_err(read_error)?;
        let found = ByteSize::bytes(source.metadata().map_err(read_error)?.len());
        if found != self.size {
            return Err(ImageError::Size { found, wanted: self.size });
        }
        let mut kept = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(&self.temporary)
            .map_err(|error| self.write_error(error))?;
        self.copy(&mut source, &mut kept)?;
        self.check(&mut kept)?;
        self.publish(&kept).map_err(|error| self.write_error(error))
    }

    fn copy(&self, source: &mut File, kept: &mut File) -> Result<(), ImageError> {
        match ioctl_ficlone(&*kept, &*source) {
            Ok(()) => Ok(()),
            // Another file system, or one that can't.
            Err(Errno::XDEV | Errno::OPNOTSUPP | Errno::INVAL | Errno::NOTTY) => {
                let needed = ByteSize::bytes(self.reserve.as_bytes().saturating_add(self.size.as_bytes()));
                if !self.room.exceeds(needed).map_err(|error| self.write_error(error))? {
                    return Err(ImageError::NoSpace);
                }
                copy_sparse(source, kept, self.size.as_bytes()).map_err(|error| self.write_error(error))
            }
            Err(errno) => Err(self.write_error(errno.into())),
        }
    }

    /// The hash of what was kept, not of what was read: the source may change under us.
    fn check(&self, kept: &mut File) -> Result<(), ImageError> {
        let found = hash(kept).map_err(|error| self.write_error(error))?;
        if found == self.digest {
            return Ok(());
        }
        Err(ImageError::Content { found, wanted: self.digest.clone() })
    }

    fn publish(&self, kept: &File) -> io::Result<()> {
        kept.set_permissions(Permissions::from_mode(0o444))?;
        kept.sync_all()?;
        fs::rename(&self.temporary, &self.path)?;
        let directory = self.path.parent().unwrap_or(Utf8Path::new("/"));
        File::open(directory)?.sync_all()
    }

    fn write_error(&self, source: io::Error) -> ImageError {
        if source.kind() == io::ErrorKind::StorageFull || source.kind() == io::ErrorKind::QuotaExceeded {
            return ImageError::NoSpace;
        }
        ImageError::Write { path: self.path.clone(), source }
    }
}

const BLOCK: usize = 256 * 1024;

/// Copies `size` bytes and leaves holes for blocks of zeros.
fn copy_sparse(source: &mut impl Read, target: &mut File, size: u64) -> io::Result<()> {
    let mut source = source.take(size);
    let mut block = vec![0; BLOCK];
    loop {
        let length = fill(&mut source, &mut block)?;
        if length == 0 {
            break;
        }
        if block[..length].iter().all(|byte| *byte == 0) {
            target.seek(SeekFrom::Current(i64::try_from(length).map_err(io::Error::other)?))?;
        } else {
            target.write_all(&block[..length])?;
        }
    }
    target.set_len(size)
}

fn fill(source: &mut impl Read, block: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < block.len() {
        match source.read(&mut block[filled..])? {
            0 => break,
            length => filled += length,
        }
    }
    Ok(filled)
}

fn hash(file: &mut File) -> io::Result<Digest> {
    file.seek(SeekFrom::Start(0))?;
    let mut context = Context::new(&SHA256);
    let mut block = vec![0; BLOCK];
    loop {
        let length = file.read(&mut block)?;
        if length == 0 {
            break;
        }
        context.update(&block[..length]);
    }
    let digest = context.finish();
    let bytes: [u8; 32] = digest.as_ref().try_into().map_err(io::Error::other)?;
    Ok(Digest::from_sha256(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Setup {
        _directory: tempfile::TempDir,
        store: ImageStore,
        artifact: TemplateArtifact,
    }

    fn setup(content: &[u8]) -> Setup {
        let directory = tempfile::tempdir().unwrap();
        let root = Utf8Path::from_path(directory.path()).unwrap();
        let source = root.join("source");
        fs::write(&source, content).unwrap();
        let images = root.join("images");
        fs::create_dir(&images).unwrap();
        let artifact = TemplateArtifact {
            digest: hash(&mut File::open(&source).unwrap()).unwrap().to_string(),
            location: format!("file://{source}"),
            size_bytes: content.len() as u64,
        };
        Setup {
            store: ImageStore::open(images.clone(), Room::new(images, None), ByteSize::default()).unwrap(),
            artifact,
            _directory: directory,
        }
    }

    #[tokio::test]
    async fn an_image_is_kept_read_only_under_its_digest() {
        let mut content = vec![0; BLOCK * 2];
        content.extend(b"end");
        let setup = setup(&content);
        let path = setup.store.ensure(&setup.artifact).await.unwrap();
        assert_eq!(fs::read(&path).unwrap(), content);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o444);
    }

    #[tokio::test]
    async fn an_image_with_other_content_is_refused_and_leaves_nothing() {
        let mut setup = setup(b"content");
        setup.artifact.digest = Digest::from_sha256([7; 32]).to_string();
        let error = setup.store.ensure(&setup.artifact).await.unwrap_err();
        assert!(matches!(error, ImageError::Content { .. }), "{error}");
        assert_eq!(setup.store.directory.read_dir_utf8().unwrap().count(), 0);
    }

    #[tokio::test]
    async fn concurrent_wishes_share_one_fetch() {
        let setup = setup(b"content");
        let wish = || setup.store.ensure(&setup.artifact);
        let (first, second, third) = tokio::join!(wish(), wish(), wish());
        let first = first.unwrap();
        assert_eq!([&second.unwrap(), &third.unwrap()], [&first, &first]);
        assert!(setup.store.fetches.lock().await.is_empty());
    }

    #[tokio::test]
    async fn only_absolute_local_files_are_fetched() {
        for location in ["https://example.org/x", "file://relative", "/plain"] {
            let mut setup = setup(b"content");
            setup.artifact.location = location.to_owned();
            let error = setup.store.ensure(&setup.artifact).await.unwrap_err();
            assert!(matches!(error, ImageError::Location(_)), "{error}");
        }
    }
}
