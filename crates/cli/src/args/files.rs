//! Arguments about files in sandboxes. One is named `SANDBOX:PATH`; a relative path begins at the user's home.

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::OsStrExt as _,
    path::PathBuf,
};

use clap::{
    Args, Subcommand,
    builder::{OsStringValueParser, TypedValueParser as _},
};
use space_api::files::{FileMode, FilePath};
use space_types::SandboxId;

/// A file in a sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RemotePath {
    pub(crate) sandbox: SandboxId,
    pub(crate) path: FilePath,
}

impl RemotePath {
    /// What stands before the first colon has to be a sandbox's id.
    fn find(text: &OsStr) -> Option<Self> {
        let bytes = text.as_bytes();
        let colon = bytes.iter().position(|byte| *byte == b':')?;
        let sandbox = str::from_utf8(&bytes[..colon]).ok()?.parse().ok()?;
        let path = match &bytes[colon + 1..] {
            b"" => b".",
            path => path,
        };
        Some(Self { sandbox, path: FilePath::from(path) })
    }

    /// The last name in the path.
    pub(crate) fn name(&self) -> Option<&OsStr> {
        self.path.names().last().filter(|name| *name != b"..").map(OsStr::from_bytes)
    }

    /// A file of this name in the directory that this path is.
    pub(crate) fn join(&self, name: &OsStr) -> Self {
        let path = [self.path.as_bytes(), b"/", name.as_bytes()].concat();
        Self { sandbox: self.sandbox, path: FilePath::from(path) }
    }

    pub(crate) fn is_directory_by_name(&self) -> bool {
        self.path.as_bytes().ends_with(b"/")
    }
}

/// One side of a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Side {
    Remote(RemotePath),
    Local(PathBuf),
    /// Standard input or output.
    Standard,
}

#[derive(Debug, Args)]
pub(crate) struct CopyArgs {
    /// File or directory, here or as SANDBOX:PATH; - for standard input
    #[arg(value_name = "SOURCE", value_parser = OsStringValueParser::new().map(side))]
    pub(crate) source: Side,
    /// Where to, here or as SANDBOX:PATH; - for standard output. Into it, if it is a directory or ends with /
    #[arg(value_name = "TARGET", value_parser = OsStringValueParser::new().map(side))]
    pub(crate) target: Side,
    #[command(flatten)]
    pub(crate) user: UserArgs,
    /// Permission bits of a file in the sandbox, in octal [default: those of the source]
    #[arg(long)]
    pub(crate) mode: Option<FileMode>,
    /// Make directories that are missing in the sandbox
    #[arg(long, short)]
    pub(crate) parents: bool,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct UserArgs {
    /// User inside the sandbox, by name or uid [default: the template's]
    #[arg(long, short)]
    pub(crate) user: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum FilesCommand {
    /// List a directory
    Ls {
        #[command(flatten)]
        at: PlaceArgs,
        /// How deep
        #[arg(long, short, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
        depth: u32,
    },
    /// Show what a file is
    Stat {
        #[command(flatten)]
        at: PlaceArgs,
        /// What a symbolic link points at, rather than the link
        #[arg(long, short = 'L')]
        follow: bool,
    },
    /// Make a directory
    Mkdir {
        #[command(flatten)]
        at: PlaceArgs,
        /// Make missing directories on the way, and take one that is there
        #[arg(long, short)]
        parents: bool,
        /// Permission bits, in octal [default: 0755]
        #[arg(long, short)]
        mode: Option<FileMode>,
    },
    /// Move a file or directory within its sandbox
    Mv {
        #[command(flatten)]
        at: PlaceArgs,
        /// The new path
        #[arg(value_name = "TO")]
        to: OsString,
        /// Refuse to replace a file
        #[arg(long, short = 'n')]
        no_clobber: bool,
    },
    /// Remove a file or directory
    Rm {
        #[command(flatten)]
        at: PlaceArgs,
        /// A directory with all it holds
        #[arg(long, short)]
        recursive: bool,
    },
    /// Follow what happens to a file or directory
    Watch {
        #[command(flatten)]
        at: PlaceArgs,
        /// Everything below, too
        #[arg(long, short)]
        recursive: bool,
    },
}

/// A file, and as whom.
#[derive(Debug, Clone, Args)]
pub(crate) struct PlaceArgs {
    /// The file or directory; a relative path begins at the user's home
    #[arg(value_name = "SANDBOX:PATH", value_parser = OsStringValueParser::new().try_map(remote))]
    pub(crate) file: RemotePath,
    #[command(flatten)]
    pub(crate) user: UserArgs,
}

fn side(text: OsString) -> Side {
    if text == "-" {
        return Side::Standard;
    }
    RemotePath::find(&text).map_or_else(|| Side::Local(text.into()), Side::Remote)
}

#[expect(clippy::needless_pass_by_value, reason = "the signature that clap calls")]
fn remote(text: OsString) -> Result<RemotePath, String> {
    RemotePath::find(&text).ok_or_else(|| "must be written SANDBOX:PATH".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_colon_alone_makes_no_sandbox() {
        let id = "sbx_01920000000070008000000000000001";
        let remote = |path: &'static str| {
            Side::Remote(RemotePath { sandbox: id.parse().unwrap(), path: FilePath::from(path) })
        };
        assert_eq!(side(format!("{id}:/a:b").into()), remote("/a:b"));
        assert_eq!(side(format!("{id}:").into()), remote("."));
        for local in ["a:b", "./sbx_1:b", "C:/x", id] {
            assert_eq!(side(local.into()), Side::Local(local.into()), "{local}");
        }
        assert_eq!(side("-".into()), Side::Standard);
    }
}
