//! `space cp`.

use std::{
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use serde_json::json;
use space_api::{
    ProblemCode,
    client::Client,
    files::{FileInfo, FileKind, FileMode, PlaceQuery, StatQuery, WriteQuery},
};

use crate::{
    args::{CopyArgs, GlobalArgs, RemotePath, Side},
    error::CliError,
    output, transfer,
};

pub(crate) async fn run(client: &Client, global: &GlobalArgs, args: &CopyArgs) -> Result<u8, CliError> {
    match (&args.source, &args.target) {
        (Side::Remote(from), Side::Local(to)) => download(client, global, args, from, to).await?,
        (Side::Remote(from), Side::Standard) => {
            transfer::to_standard_output(client, from, args.user.user.as_ref()).await?;
        }
        (Side::Local(from), Side::Remote(to)) => upload(client, global, args, from, to).await?,
        (Side::Standard, Side::Remote(to)) => {
            let query = args.write_query(to, args.mode);
            shown(global, &transfer::from_standard_input(client, to.sandbox, &query).await?)?;
        }
        (Side::Remote(_), Side::Remote(_)) => {
            return Err(CliError::hinted(
                anyhow::anyhow!("both sides are in sandboxes"),
                "copy to this machine first, or pipe: space cp A:PATH - | space cp - B:PATH",
            ));
        }
        (Side::Local(_) | Side::Standard, Side::Local(_) | Side::Standard) => {
            return Err(CliError::hinted(
                anyhow::anyhow!("neither side is in a sandbox"),
                "one of them is written SANDBOX:PATH, with the sandbox's id as `space ls` shows it",
            ));
        }
    }
    Ok(0)
}

impl CopyArgs {
    fn write_query(&self, to: &RemotePath, mode: Option<FileMode>) -> WriteQuery {
        WriteQuery {
            path: to.path.clone(),
            mode,
            parents: self.parents,
            user: self.user.user.clone(),
            ..WriteQuery::default()
        }
    }

    fn archive_query(&self, at: &RemotePath) -> PlaceQuery {
        PlaceQuery { path: at.path.clone(), user: self.user.user.clone() }
    }
}

async fn download(
    client: &Client,
    global: &GlobalArgs,
    args: &CopyArgs,
    from: &RemotePath,
    to: &Path,
) -> Result<(), CliError> {
    let query = StatQuery { path: from.path.clone(), follow: true, user: args.user.user.clone() };
    let info = client.file_stat(from.sandbox, &query).await?;
    let target = local_target(from, to)?;
    let bytes = if info.kind == FileKind::Directory {
        transfer::receive(client, from.sandbox, &args.archive_query(from), &target).await?
    } else {
        transfer::to_file(client, from, args.user.user.as_ref(), &info, &target).await?
    };
    if global.json {
        output::json(&json!({ "path": target.to_string_lossy(), "bytes": bytes }))?;
    }
    Ok(())
}

/// Into a directory, under the source's name.
fn local_target(from: &RemotePath, to: &Path) -> Result<PathBuf, CliError> {
    if !to.is_dir() && !to.as_os_str().as_encoded_bytes().ends_with(b"/") {
        return Ok(to.to_owned());
    }
    let name = from.name().context("the source has no name of its own; name the target")?;
    Ok(to.join(name))
}

async fn upload(
    client: &Client,
    global: &GlobalArgs,
    args: &CopyArgs,
    from: &Path,
    to: &RemotePath,
) -> Result<(), CliError> {
    let metadata = std::fs::metadata(from).with_context(|| format!("cannot read {}", from.display()))?;
    let name = from.file_name().context("the source has no name of its own; name the target");
    let target = if to.is_directory_by_name() { to.join(name?) } else { to.clone() };
    if metadata.is_dir() {
        let written = transfer::send(client, to.sandbox, &args.archive_query(&target), from).await?;
        return if global.json { Ok(output::json(&written)?) } else { Ok(()) };
    }
    if !metadata.is_file() {
        return Err(anyhow::anyhow!("{} is neither a file nor a directory", from.display()).into());
    }
    let mode = args.mode.or_else(|| FileMode::new(metadata.permissions().mode() & 0o777));
    let sent = transfer::from_file(client, to.sandbox, &args.write_query(&target, mode), from).await;
    let info = match (sent, from.file_name()) {
        // As cp does: into a directory that is there.
        (Err(error), Some(name)) if error.is(ProblemCode::FileIsADirectory) && target == *to => {
            let query = args.write_query(&to.join(name), mode);
            transfer::from_file(client, to.sandbox, &query, from).await?
        }
        (sent, _) => sent?,
    };
    shown(global, &info)
}

fn shown(global: &GlobalArgs, info: &FileInfo) -> Result<(), CliError> {
    if global.json {
        output::json(info)?;
    }
    Ok(())
}
