//! `space files`: what there is in a sandbox, and small changes to it. `space cp` moves the contents.

use std::os::unix::ffi::OsStrExt as _;

use space_api::{
    Base64Bytes,
    client::Client,
    files::{
        CreateDirectory, FileChangeKind, FileInfo, FileKind, FilePath, ListQuery, MoveFile, RemoveQuery,
        StatQuery, WatchEvent, WatchQuery,
    },
    limits,
};

use crate::{
    args::{FilesCommand, GlobalArgs, PlaceArgs},
    error::CliError,
    output::{self, plain},
};

pub(crate) async fn run(
    client: &Client,
    global: &GlobalArgs,
    command: &FilesCommand,
) -> Result<u8, CliError> {
    match command {
        FilesCommand::Ls { at, depth } => list(client, global, at, *depth).await?,
        FilesCommand::Stat { at, follow } => {
            let query = StatQuery { path: at.path(), follow: *follow, user: at.user() };
            let info = client.file_stat(at.file.sandbox, &query).await?;
            shown(global, &info, &details(&info))?;
        }
        FilesCommand::Mkdir { at, parents, mode } => {
            let (path, path_base64) = json_path(&at.path());
            let body = CreateDirectory { path, path_base64, parents: *parents, mode: *mode, user: at.user() };
            let info = client.directory_create(at.file.sandbox, &body).await?;
            shown(global, &info, "")?;
        }
        FilesCommand::Mv { at, to, no_clobber } => {
            let (from, from_base64) = json_path(&at.path());
            let (to, to_base64) = json_path(&FilePath::from(to.as_bytes()));
            let replace = !no_clobber;
            let body = MoveFile { from, from_base64, to, to_base64, replace, user: at.user() };
            let info = client.file_move(at.file.sandbox, &body).await?;
            shown(global, &info, "")?;
        }
        FilesCommand::Rm { at, recursive } => {
            let query = RemoveQuery { path: at.path(), recursive: *recursive, user: at.user() };
            client.file_remove(at.file.sandbox, &query).await?;
        }
        FilesCommand::Watch { at, recursive } => watch(client, global, at, *recursive).await?,
    }
    Ok(0)
}

impl PlaceArgs {
    fn path(&self) -> FilePath {
        self.file.path.clone()
    }

    fn user(&self) -> Option<String> {
        self.user.user.clone()
    }
}

/// The one of both forms in JSON that is exact.
fn json_path(path: &FilePath) -> (Option<String>, Option<Base64Bytes>) {
    match str::from_utf8(path.as_bytes()) {
        Ok(text) => (Some(text.to_owned()), None),
        Err(_) => (None, Some(path.as_bytes().to_vec().into())),
    }
}

/// JSON, or the text if there is any.
fn shown(global: &GlobalArgs, info: &FileInfo, text: &str) -> Result<(), CliError> {
    if global.json {
        output::json(info)?;
    } else if !text.is_empty() {
        output::line(text);
    }
    Ok(())
}

/// Page by page, so that a huge directory begins to show at once.
async fn list(client: &Client, global: &GlobalArgs, at: &PlaceArgs, depth: u32) -> Result<(), CliError> {
    let mut query = ListQuery {
        path: at.path(),
        depth: Some(depth),
        limit: Some(limits::FILES_MAX),
        cursor: None,
        user: at.user(),
    };
    loop {
        let page = client.file_list(at.file.sandbox, &query).await?;
        for info in &page.items {
            if global.json {
                output::json(info)?;
            } else {
                output::line(&line(info));
            }
        }
        if page.next_cursor.is_none() {
            return Ok(());
        }
        query.cursor = page.next_cursor;
    }
}

fn line(info: &FileInfo) -> String {
    let owner = info.owner.clone().unwrap_or_else(|| info.uid.to_string());
    let link = info.link_target.as_ref().map(|target| format!(" -> {target}")).unwrap_or_default();
    let text = format!(
        "{}{} {owner:<8} {:>12} {} {}{link}",
        letter(info.kind),
        info.mode,
        info.size,
        info.modified_at,
        info.path
    );
    plain(&text)
}

const fn letter(kind: FileKind) -> char {
    match kind {
        FileKind::File => '-',
        FileKind::Directory => 'd',
        FileKind::Symlink => 'l',
        FileKind::Fifo => 'p',
        FileKind::Socket => 's',
        FileKind::BlockDevice => 'b',
        FileKind::CharacterDevice => 'c',
        FileKind::Unknown => '?',
    }
}

fn details(info: &FileInfo) -> String {
    let named = |name: &Option<String>, id: u32| match name {
        Some(name) => format!("{name} ({id})"),
        None => id.to_string(),
    };
    let mut rows = vec![
        ("path", info.path.clone()),
        (
            "type",
            serde_json::to_value(info.kind)
                .ok()
                .and_then(|kind| Some(kind.as_str()?.to_owned()))
                .unwrap_or_default(),
        ),
        ("mode", info.mode.to_string()),
        ("owner", named(&info.owner, info.uid)),
        ("group", named(&info.group, info.gid)),
        ("size", format!("{} bytes", info.size)),
        ("on disk", format!("{} bytes", info.allocated)),
        ("modified", info.modified_at.to_string()),
        ("version", info.version.clone()),
    ];
    rows.extend(info.link_target.clone().map(|target| ("points at", target)));
    let rows = rows.into_iter().map(|(name, value)| format!("{name:<10} {}", plain(&value)));
    rows.collect::<Vec<_>>().join("\n")
}

/// Until the connection ends, or the user does.
async fn watch(
    client: &Client,
    global: &GlobalArgs,
    at: &PlaceArgs,
    recursive: bool,
) -> Result<(), CliError> {
    let query = WatchQuery { path: at.path(), recursive, user: at.user() };
    let mut watch = client.file_watch(at.file.sandbox, &query).await?;
    loop {
        match watch.next().await? {
            WatchEvent::Watching => {}
            WatchEvent::Change(change) if global.json => output::json(&change)?,
            WatchEvent::Change(change) => {
                output::line(&plain(&format!("{:<10} {}", kind(change.kind), change.path)));
            }
            WatchEvent::Lost if global.json => output::json(&serde_json::json!({ "kind": "lost" }))?,
            WatchEvent::Lost => output::line("lost       more happened than could be told"),
            WatchEvent::Error(error) => return Err(error.problem.into()),
        }
    }
}

const fn kind(kind: FileChangeKind) -> &'static str {
    match kind {
        FileChangeKind::Created => "created",
        FileChangeKind::Written => "written",
        FileChangeKind::Removed => "removed",
        FileChangeKind::Attributes => "attributes",
        FileChangeKind::Moved => "moved",
        FileChangeKind::Unknown => "changed",
    }
}
