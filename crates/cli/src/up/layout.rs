//! Where things lie on a machine that `space up` runs, and who may reach them.

use std::{
    fs::{self, DirBuilder},
    io::{Read, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt, chown, lchown},
};

use anyhow::{Context, bail};
use camino::{Utf8Path, Utf8PathBuf};
use nix::fcntl::OFlag;

use super::user::Account;

/// Certificates and tokens are shorter.
const MOST_READ: u64 = 64 * 1024;

#[derive(Debug, Clone)]
pub(super) struct Layout {
    pub(super) data: Utf8PathBuf,
    pub(super) run: Utf8PathBuf,
}

impl Layout {
    pub(super) fn node(&self) -> Utf8PathBuf {
        self.data.join("node")
    }

    pub(super) fn pool(&self) -> Utf8PathBuf {
        self.data.join("pool.btrfs")
    }

    pub(super) fn control(&self) -> Utf8PathBuf {
        self.data.join("control")
    }

    /// Written by control at its first start, as its own user.
    pub(super) fn control_admin_key(&self) -> Utf8PathBuf {
        self.control().join("admin.key")
    }

    /// Written by control at each start.
    pub(super) fn join_token(&self) -> Utf8PathBuf {
        self.control().join("join.token")
    }

    /// Written by control at each start, for the edge.
    pub(super) fn edge_join_token(&self) -> Utf8PathBuf {
        self.control().join("edge-join.token")
    }

    /// The edge's identity, and what it was given to get one.
    pub(super) fn edge(&self) -> Utf8PathBuf {
        self.data.join("edge")
    }

    /// Whom the edge trusts to be control: its own copy, since it may not read control's files.
    pub(super) fn edge_authority(&self) -> Utf8PathBuf {
        self.edge().join("authority.pem")
    }

    /// Its own copy.
    pub(super) fn edge_token(&self) -> Utf8PathBuf {
        self.edge().join("join.token")
    }

    pub(super) fn authority(&self) -> Utf8PathBuf {
        self.control().join("authority/ca.pem")
    }

    pub(super) fn postgres(&self) -> Utf8PathBuf {
        self.data.join("postgres")
    }

    pub(super) fn postgres_data(&self) -> Utf8PathBuf {
        self.postgres().join("data")
    }

    pub(super) fn postgres_socket_dir(&self) -> Utf8PathBuf {
        self.postgres().join("run")
    }

    /// For whoever started `space up`.
    pub(super) fn admin_key(&self) -> Utf8PathBuf {
        self.data.join("admin.key")
    }

    pub(super) fn credentials(&self) -> Utf8PathBuf {
        self.data.join("credentials.json")
    }

    pub(super) fn log(&self, program: &str) -> Utf8PathBuf {
        self.data.join("logs").join(format!("{program}.log"))
    }

    pub(super) fn config(&self, program: &str) -> Utf8PathBuf {
        self.run.join(format!("{program}.toml"))
    }

    pub(super) fn lock(&self) -> Utf8PathBuf {
        self.run.join("up.lock")
    }

    /// Where programs are put that other users could not run where they lie.
    pub(super) fn programs(&self) -> Utf8PathBuf {
        self.data.join("bin")
    }

    /// Makes what is missing, and puts owners and modes right.
    pub(super) fn make(&self, account: &Account, edge: &Account) -> anyhow::Result<()> {
        for dir in [&self.data, &self.run] {
            make_dir(dir, 0o711, None)?;
        }
        make_dir(&self.data.join("logs"), 0o700, None)?;
        make_dir(&self.data.join("templates"), 0o755, None)?;
        make_dir(&self.node(), 0o711, None)?;
        for dir in [self.control(), self.postgres(), self.postgres_socket_dir()] {
            make_dir(&dir, 0o700, Some(account))?;
        }
        // An installation from before the edge had a user of its own has files of control's user there.
        make_dir(&self.edge(), 0o700, Some(edge))?;
        hand_over(&self.edge(), edge)?;
        match unreachable_ancestor(&self.data) {
            Some(dir) => bail!(
                "the user `{}` can't reach {}, since {dir} is closed to it: choose another --data, or `chmod o+x {dir}`",
                account.name,
                self.data
            ),
            None => Ok(()),
        }
    }
}

impl Layout {
    /// Gives the edge what it needs to join: control has written that, and the edge can't read it there.
    pub(super) fn admit_edge(&self, edge: &Account) -> anyhow::Result<()> {
        for (from, to) in
            [(self.authority(), self.edge_authority()), (self.edge_join_token(), self.edge_token())]
        {
            write(&to, &read_small(&from)?, 0o600, Some(edge.uid.as_raw()))?;
        }
        Ok(())
    }
}

/// A file of a user that is less than root: what it links to is not for us to read.
fn read_small(path: &Utf8Path) -> anyhow::Result<Vec<u8>> {
    let read = || -> std::io::Result<Vec<u8>> {
        let file = fs::OpenOptions::new().read(true).custom_flags(OFlag::O_NOFOLLOW.bits()).open(path)?;
        let mut content = Vec::new();
        file.take(MOST_READ).read_to_end(&mut content)?;
        Ok(content)
    };
    read().with_context(|| format!("cannot read {path}"))
}

/// Makes everything below `dir` belong to `owner`, links themselves and not what they lead to.
fn hand_over(dir: &Utf8Path, owner: &Account) -> anyhow::Result<()> {
    let handed = |dir: &Utf8Path| -> std::io::Result<Vec<Utf8PathBuf>> {
        let mut below = Vec::new();
        for entry in dir.read_dir_utf8()? {
            let entry = entry?;
            lchown(entry.path(), Some(owner.uid.as_raw()), Some(owner.gid.as_raw()))?;
            if entry.file_type()?.is_dir() {
                below.push(entry.into_path());
            }
        }
        Ok(below)
    };
    let mut waiting = vec![dir.to_owned()];
    while let Some(dir) = waiting.pop() {
        waiting.extend(handed(&dir).with_context(|| format!("cannot hand {dir} over"))?);
    }
    Ok(())
}

/// The first directory on the way to `path` that users other than its owner may not pass.
pub(super) fn unreachable_ancestor(path: &Utf8Path) -> Option<&Utf8Path> {
    let closed = |dir: &&Utf8Path| fs::metadata(dir).is_ok_and(|meta| meta.permissions().mode() & 0o001 == 0);
    path.ancestors().skip(1).find(closed)
}

fn make_dir(path: &Utf8Path, mode: u32, owner: Option<&Account>) -> anyhow::Result<()> {
    let made = || -> std::io::Result<()> {
        DirBuilder::new().recursive(true).mode(mode).create(path)?;
        fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
        match owner {
            Some(account) => chown(path, Some(account.uid.as_raw()), Some(account.gid.as_raw())),
            None => Ok(()),
        }
    };
    made().with_context(|| format!("cannot make {path}"))
}

/// Writes a file whole or not at all. `owner` is a uid; without one the file is root's.
pub(super) fn write(path: &Utf8Path, content: &[u8], mode: u32, owner: Option<u32>) -> anyhow::Result<()> {
    let new = path.with_extension("new");
    let written = || -> std::io::Result<()> {
        match fs::remove_file(&new) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(&new)?;
        if let Some(uid) = owner {
            std::os::unix::fs::fchown(&file, Some(uid), None)?;
        }
        file.write_all(content)?;
        file.sync_all()?;
        fs::rename(&new, path)
    };
    written().with_context(|| format!("cannot write {path}"))
}
