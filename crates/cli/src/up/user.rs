//! The system user that the database and the control plane run as.

use std::os::unix::process::CommandExt;

use anyhow::{Context, bail};
use camino::Utf8Path;
use nix::unistd::{Gid, Uid, User};

use super::postgres::find_in_path;

const NAME: &str = "space";

#[derive(Debug, Clone)]
pub(super) struct Account {
    pub(super) name: String,
    pub(super) uid: Uid,
    pub(super) gid: Gid,
}

impl Account {
    /// The user `space`, made if there is none.
    pub(super) fn ensure(home: &Utf8Path) -> anyhow::Result<Self> {
        if let Some(account) = Self::find()? {
            return Ok(account);
        }
        let useradd =
            find_in_path("useradd").context("there is no user `space` and no `useradd` to make one")?;
        let status = std::process::Command::new(useradd)
            .args(["--system", "--user-group", "--no-create-home", "--home-dir", home.as_str()])
            .args(["--shell", "/usr/sbin/nologin", NAME])
            .status()
            .context("cannot start useradd")?;
        if !status.success() {
            bail!("useradd failed: {status}");
        }
        Self::find()?.context("useradd made no user `space`")
    }

    fn find() -> anyhow::Result<Option<Self>> {
        let user = User::from_name(NAME).context("cannot read the users")?;
        if user.as_ref().is_some_and(|user| user.uid.is_root()) {
            bail!("the user `space` must not be root");
        }
        Ok(user.map(|user| Self { name: user.name, uid: user.uid, gid: user.gid }))
    }

    /// Makes `command` run as this user, in no other group.
    pub(super) fn apply(&self, command: &mut std::process::Command) {
        command.gid(self.gid.as_raw()).uid(self.uid.as_raw());
    }
}
