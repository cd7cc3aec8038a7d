//! A sandbox's files on this machine's disk, with errors in the words of `files.proto`.

use std::{
    ffi::OsStr,
    fs::{self, File, Permissions},
    hash::{DefaultHasher, Hash as _, Hasher as _},
    io,
    os::unix::{
        ffi::{OsStrExt as _, OsStringExt as _},
        fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _},
    },
    path::{Path, PathBuf},
};

use space_node_proto::files::{FileInfo, FileType};
use tonic::{Code, Status, metadata::MetadataValue};

const HOME: &[u8] = b"/root";

/// The directory that a sandbox has for its root.
#[derive(Debug, Clone)]
pub(super) struct Root {
    pub(super) sandbox: String,
    directory: PathBuf,
}

/// A refusal in one word, under the code that a worker has for it.
pub(super) fn refused(word: &'static str) -> Status {
    let code = match word {
        "not_found" => Code::NotFound,
        "already_exists" => Code::AlreadyExists,
        "permission" => Code::PermissionDenied,
        "no_space" => Code::ResourceExhausted,
        "path" | "archive" | "no_user" => Code::InvalidArgument,
        "offset" => Code::Aborted,
        "other" => Code::Unknown,
        _ => Code::FailedPrecondition,
    };
    let mut status = Status::new(code, word);
    status.metadata_mut().insert("space-file", MetadataValue::from_static(word));
    status
}

/// An upload that goes on at another offset.
pub(super) fn elsewhere(next: u64) -> Status {
    let mut status = refused("offset");
    status.metadata_mut().insert("space-next-offset", MetadataValue::from(next));
    status
}

const WORDS: [(io::ErrorKind, &str); 8] = [
    (io::ErrorKind::NotFound, "not_found"),
    (io::ErrorKind::AlreadyExists, "already_exists"),
    (io::ErrorKind::PermissionDenied, "permission"),
    (io::ErrorKind::NotADirectory, "not_a_directory"),
    (io::ErrorKind::IsADirectory, "is_a_directory"),
    (io::ErrorKind::DirectoryNotEmpty, "not_empty"),
    (io::ErrorKind::StorageFull, "no_space"),
    (io::ErrorKind::InvalidFilename, "path"),
];

pub(super) fn status(error: &io::Error) -> Status {
    let word = WORDS.iter().find(|(kind, _)| *kind == error.kind());
    refused(word.map_or("other", |(_, word)| *word))
}

pub(super) fn set_mode(path: &Path, mode: u32) -> io::Result<()> {
    fs::set_permissions(path, Permissions::from_mode(mode))
}

fn kind_of(kind: fs::FileType) -> FileType {
    if kind.is_file() {
        FileType::File
    } else if kind.is_dir() {
        FileType::Directory
    } else if kind.is_symlink() {
        FileType::Symlink
    } else if kind.is_fifo() {
        FileType::Fifo
    } else {
        FileType::Unspecified
    }
}

/// As the sandbox sees it.
pub(super) fn absolute(path: &[u8]) -> Vec<u8> {
    if path.starts_with(b"/") { path.to_vec() } else { [HOME, b"/", path].concat() }
}

fn describe(path: &Path, shown: Vec<u8>, follow: bool) -> io::Result<FileInfo> {
    let found = if follow { fs::metadata(path)? } else { fs::symlink_metadata(path)? };
    let mut version = DefaultHasher::new();
    (found.ino(), found.len(), found.mtime_nsec(), found.ctime(), found.ctime_nsec()).hash(&mut version);
    let kind = kind_of(found.file_type());
    let link = if kind == FileType::Symlink { fs::read_link(path)? } else { PathBuf::new() };
    Ok(FileInfo {
        path: shown,
        r#type: kind.into(),
        mode: found.mode() & 0o7777,
        uid: found.uid(),
        gid: found.gid(),
        owner: "root".to_owned(),
        group: String::new(),
        size: found.len(),
        allocated: found.blocks() * 512,
        modified_ns: found.mtime() * 1_000_000_000 + found.mtime_nsec(),
        link_target: link.into_os_string().into_vec(),
        version: version.finish(),
    })
}

fn walk(path: &Path, shown: &[u8], depth: u32, found: &mut Vec<FileInfo>) -> io::Result<()> {
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        let separator: &[u8] = if shown.ends_with(b"/") { b"" } else { b"/" };
        let shown = [shown, separator, entry.file_name().as_bytes()].concat();
        found.push(describe(&entry.path(), shown.clone(), false)?);
        if depth > 1 && entry.file_type()?.is_dir() {
            walk(&entry.path(), &shown, depth - 1, found)?;
        }
    }
    Ok(())
}

impl Root {
    pub(super) fn new(sandbox: &str, directory: &Path) -> io::Result<Self> {
        let root = Self { sandbox: sandbox.to_owned(), directory: directory.to_owned() };
        fs::create_dir_all(root.path(HOME))?;
        Ok(root)
    }

    /// As this machine sees it.
    pub(super) fn path(&self, path: &[u8]) -> PathBuf {
        let absolute = absolute(path);
        let relative = absolute.iter().position(|byte| *byte != b'/').map_or(&[][..], |at| &absolute[at..]);
        self.directory.join(OsStr::from_bytes(relative))
    }

    pub(super) fn info(&self, path: &[u8], follow: bool) -> Result<FileInfo, Status> {
        describe(&self.path(path), absolute(path), follow).map_err(|error| status(&error))
    }

    pub(super) fn list(&self, path: &[u8], depth: u32, after: &[u8]) -> Result<Vec<FileInfo>, Status> {
        let names = |path: &[u8]| {
            path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()).map(<[u8]>::to_vec).collect()
        };
        let after: Vec<Vec<u8>> = names(after);
        let mut found = Vec::new();
        walk(&self.path(path), &absolute(path), depth, &mut found).map_err(|error| status(&error))?;
        let skipped = Vec::<Vec<u8>>::len(&names(&absolute(path)));
        found.sort_by_cached_key(|info| -> Vec<Vec<u8>> { names(&info.path) });
        found.retain(|info| {
            let names: Vec<Vec<u8>> = names(&info.path);
            names[skipped..] > after[..]
        });
        Ok(found)
    }

    pub(super) fn open(&self, path: &[u8]) -> Result<File, Status> {
        let path = self.path(path);
        let found = fs::metadata(&path).map_err(|error| status(&error))?;
        if found.is_dir() {
            return Err(refused("is_a_directory"));
        }
        if !found.is_file() {
            return Err(refused("type"));
        }
        File::open(path).map_err(|error| status(&error))
    }

    /// Whether something may be written there.
    pub(super) fn check_target(&self, target: &Path, parents: bool, exclusive: bool) -> Result<(), Status> {
        let directory = target.parent().unwrap_or(&self.directory);
        if parents {
            fs::create_dir_all(directory).map_err(|error| status(&error))?;
        }
        fs::read_dir(directory).map_err(|error| status(&error))?;
        match fs::metadata(target) {
            Ok(found) if found.is_dir() => Err(refused("is_a_directory")),
            Ok(_) if exclusive => Err(refused("already_exists")),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    pub(super) fn make_directory(&self, path: &[u8], parents: bool, mode: u32) -> Result<(), Status> {
        let path = self.path(path);
        let made = if parents { fs::create_dir_all(&path) } else { fs::create_dir(&path) };
        made.and_then(|()| set_mode(&path, mode)).map_err(|error| status(&error))
    }

    pub(super) fn rename(&self, from: &[u8], to: &[u8], replace: bool) -> Result<(), Status> {
        let (from, to) = (self.path(from), self.path(to));
        fs::symlink_metadata(&from).map_err(|error| status(&error))?;
        if !replace && fs::symlink_metadata(&to).is_ok() {
            return Err(refused("already_exists"));
        }
        fs::rename(from, to).map_err(|error| status(&error))
    }

    pub(super) fn remove(&self, path: &[u8], recursive: bool) -> Result<(), Status> {
        let path = self.path(path);
        let removed = fs::symlink_metadata(&path).and_then(|found| match (found.is_dir(), recursive) {
            (false, _) => fs::remove_file(&path),
            (true, false) => fs::remove_dir(&path),
            (true, true) => fs::remove_dir_all(&path),
        });
        removed.map_err(|error| status(&error))
    }

    /// All that a directory holds, as a tar stream.
    pub(super) fn archive(&self, path: &[u8]) -> Result<Vec<u8>, Status> {
        let path = self.path(path);
        let mut archive = tar::Builder::new(Vec::new());
        archive.follow_symlinks(false);
        let packed = match fs::metadata(&path) {
            Ok(found) if found.is_dir() => archive.append_dir_all(".", &path),
            Ok(_) => archive.append_path_with_name(&path, path.file_name().unwrap_or_default()),
            Err(error) => Err(error),
        };
        packed.and_then(|()| archive.into_inner()).map_err(|error| status(&error))
    }

    /// Entries put out, and their bytes.
    pub(super) fn unpack(&self, path: &[u8], archive: &[u8]) -> Result<(u64, u64), Status> {
        let path = self.path(path);
        fs::create_dir_all(&path).map_err(|error| status(&error))?;
        let mut archive = tar::Archive::new(archive);
        let (mut count, mut bytes) = (0, 0);
        for entry in archive.entries().map_err(|_error| refused("archive"))? {
            let mut entry = entry.map_err(|_error| refused("archive"))?;
            count += 1;
            bytes += entry.size();
            if !entry.unpack_in(&path).map_err(|_error| refused("archive"))? {
                return Err(refused("path"));
            }
        }
        Ok((count, bytes))
    }
}
