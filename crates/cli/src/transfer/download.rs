//! A file from a sandbox.
//!
//! It grows as `NAME.VERSION.part` beside its target and takes the target's place when it is whole. A part that an
//! earlier call left is continued, if the file in the sandbox is still of the version in the part's name.

use std::{
    fs::Permissions,
    io::{self, Write as _},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use space_api::{
    client::{Client, ClientError, Resume},
    files::{FileInfo, PlaceQuery},
};
use tokio::{
    fs::{self, File, OpenOptions},
    io::AsyncWriteExt as _,
};

use super::Attempts;
use crate::{args::RemotePath, error::CliError, progress::Transfer};

/// Copies the file that `info` tells of. Answers its size.
pub(crate) async fn to_file(
    client: &Client,
    from: &RemotePath,
    user: Option<&String>,
    info: &FileInfo,
    target: &Path,
) -> Result<u64, CliError> {
    let part = part(target, &info.version);
    let mut file = OpenOptions::new()
        .create(true)
        .append(true)
        .open(&part)
        .await
        .with_context(|| format!("cannot write {}", part.display()))?;
    let query = PlaceQuery { path: from.path.clone(), user: user.cloned() };
    let mut tag = format!("\"{}\"", info.version);
    let mut length = file.metadata().await.context("cannot look at the part")?.len();
    let progress = Transfer::new("receiving", Some(info.size));
    let mut attempts = Attempts::new();
    loop {
        progress.set(length);
        let resume = (length > 0).then(|| Resume { offset: length, etag: tag.clone() });
        let error = match client.file_read(from.sandbox, &query, resume.as_ref()).await {
            Ok(mut download) => {
                if download.offset != length {
                    // Another version, from its beginning.
                    file.set_len(0).await.context("cannot begin anew")?;
                    length = 0;
                }
                tag = download.etag.clone().unwrap_or_default();
                match append(&mut file, &mut download, &mut length, &progress).await? {
                    Ok(()) => break,
                    Err(error) => error,
                }
            }
            // All of it is there, to the last byte.
            Err(ClientError::Problem(problem)) if problem.status == 416 => break,
            Err(error) => error,
        };
        attempts.rest(length, error).await?;
    }
    progress.finish();
    complete(file, &part, target, info.mode.bits()).await?;
    Ok(length)
}

async fn append(
    file: &mut File,
    download: &mut space_api::client::Download,
    length: &mut u64,
    progress: &Transfer,
) -> Result<Result<(), ClientError>, CliError> {
    loop {
        match download.chunk().await {
            Ok(Some(chunk)) => {
                file.write_all(&chunk).await.context("cannot write what was received")?;
                *length += chunk.len() as u64;
                progress.set(*length);
            }
            end => {
                file.flush().await.context("cannot write what was received")?;
                return Ok(end.map(|_none| ()));
            }
        }
    }
}

async fn complete(file: File, part: &Path, target: &Path, mode: u32) -> Result<(), CliError> {
    file.sync_all().await.context("cannot write what was received")?;
    drop(file);
    fs::set_permissions(part, Permissions::from_mode(mode & 0o777)).await.context("cannot set the mode")?;
    fs::rename(part, target).await.with_context(|| format!("cannot write {}", target.display()))?;
    Ok(())
}

fn part(target: &Path, version: &str) -> PathBuf {
    // The version is the server's word; it becomes part of a name here.
    let version: String = version.chars().filter(char::is_ascii_alphanumeric).take(32).collect();
    let mut name = target.as_os_str().to_owned();
    name.push(format!(".{version}.part"));
    name.into()
}

/// Copies to standard output, where nothing can be taken back: another version in between is an error.
pub(crate) async fn to_standard_output(
    client: &Client,
    from: &RemotePath,
    user: Option<&String>,
) -> Result<(), CliError> {
    let query = PlaceQuery { path: from.path.clone(), user: user.cloned() };
    let mut resume: Option<Resume> = None;
    let mut attempts = Attempts::new();
    loop {
        let sent = resume.as_ref().map_or(0, |resume| resume.offset);
        let error = match client.file_read(from.sandbox, &query, resume.as_ref()).await {
            Ok(download) if download.offset != sent => {
                return Err(anyhow::anyhow!("the file changed while it was copied").into());
            }
            Ok(mut download) => {
                let mut resumed = Resume { offset: sent, etag: download.etag.clone().unwrap_or_default() };
                loop {
                    match download.chunk().await {
                        Ok(Some(chunk)) => {
                            print(&chunk)?;
                            resumed.offset += chunk.len() as u64;
                        }
                        Ok(None) => return Ok(()),
                        Err(error) => {
                            resume = (resumed.offset > 0).then_some(resumed);
                            break error;
                        }
                    }
                }
            }
            Err(ClientError::Problem(problem)) if sent > 0 && problem.status == 416 => return Ok(()),
            Err(error) => error,
        };
        attempts.rest(resume.as_ref().map_or(0, |resume| resume.offset), error).await?;
    }
}

fn print(bytes: &[u8]) -> Result<(), CliError> {
    let mut out = io::stdout().lock();
    out.write_all(bytes).and_then(|()| out.flush()).context("cannot write to standard output")?;
    Ok(())
}
