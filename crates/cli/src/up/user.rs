//! The system users: one for the database and the control plane, another for the edge, to which strangers speak.

use std::os::unix::process::CommandExt;

use anyhow::{Context, bail};
use camino::Utf8Path;
use nix::unistd::{Gid, Uid, User};

use super::postgres::find_in_path;

const CONTROL: &str = "space";
const EDGE: &str = "space-edge";

#[derive(Debug, Clone)]
pub(super) struct Account {
    pub(super) name: String,
    pub(super) uid: Uid,
    pub(super) gid: Gid,
}

/// Who runs what.
#[derive(Debug, Clone)]
pub(super) struct Accounts {
    /// Reads the database and the installation's keys.
    pub(super) control: Account,
    /// Reads neither.
    pub(super) edge: Account,
}

impl Accounts {
    /// Made where there are none.
    pub(super) fn ensure(home: &Utf8Path) -> anyhow::Result<Self> {
        let accounts = Self { control: Account::ensure(CONTROL, home)?, edge: Account::ensure(EDGE, home)? };
        if accounts.control.uid == accounts.edge.uid {
            bail!("the users `{CONTROL}` and `{EDGE}` must not be the same");
        }
        Ok(accounts)
    }
}

impl Account {
    fn ensure(name: &str, home: &Utf8Path) -> anyhow::Result<Self> {
        if let Some(account) = Self::find(name)? {
            return Ok(account);
        }
        let useradd = find_in_path("useradd")
            .with_context(|| format!("there is no user `{name}` and no `useradd` to make one"))?;
        let status = std::process::Command::new(useradd)
            .args(["--system", "--user-group", "--no-create-home", "--home-dir", home.as_str()])
            .args(["--shell", "/usr/sbin/nologin", name])
            .status()
            .context("cannot start useradd")?;
        if !status.success() {
            bail!("useradd failed: {status}");
        }
        Self::find(name)?.with_context(|| format!("useradd made no user `{name}`"))
    }

    fn find(name: &str) -> anyhow::Result<Option<Self>> {
        let user = User::from_name(name).context("cannot read the users")?;
        if user.as_ref().is_some_and(|user| user.uid.is_root()) {
            bail!("the user `{name}` must not be root");
        }
        Ok(user.map(|user| Self { name: user.name, uid: user.uid, gid: user.gid }))
    }

    /// Makes `command` run as this user, in no other group.
    pub(super) fn apply(&self, command: &mut std::process::Command) {
        command.gid(self.gid.as_raw()).uid(self.uid.as_raw());
    }
}
