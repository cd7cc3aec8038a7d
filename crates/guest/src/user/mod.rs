//! Whom a child of the agent works for: accounts, and the way from root to one of them.
//!
//! Only for forked children: reading the accounts may block for as long as the guest likes.

mod accounts;

use std::{
    fs::OpenOptions,
    io::{self, Read},
    os::unix::fs::OpenOptionsExt,
};

use rustix::{
    fs::{Gid, Uid},
    io::Errno,
    process::{chdir, geteuid},
};

pub(crate) use self::accounts::Account;

/// More of `/etc/passwd` and `/etc/group` than this is not read.
const ACCOUNTS_BYTES: u64 = 4 * 1024 * 1024;

/// Why a child could not become the user that it is to work for.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BecomeError {
    #[error("no user {0}")]
    NoUser(String),
    #[error("only root can become another user")]
    NotRoot,
    #[error("cannot become the user: {0}")]
    Credentials(Errno),
    #[error("cannot reset oom_score_adj: {0}")]
    Protection(io::Error),
}

/// The users and groups of the root filesystem.
pub(crate) struct Accounts {
    passwd: String,
    group: String,
}

impl Accounts {
    pub(crate) fn read() -> Self {
        Self { passwd: read("/etc/passwd"), group: read("/etc/group") }
    }

    /// The account for a command's or a job's `user`.
    pub(crate) fn find(&self, wanted: &str) -> Result<Account, BecomeError> {
        // A development run that isn't root can be nobody else.
        let own = geteuid();
        let wanted =
            if wanted.is_empty() && !own.is_root() { own.as_raw().to_string() } else { wanted.to_owned() };
        accounts::find(&wanted, &self.passwd, &self.group).ok_or(BecomeError::NoUser(wanted))
    }

    /// The name of the user with this uid.
    pub(crate) fn user_name(&self, uid: u32) -> Option<&str> {
        accounts::name_of(uid, &self.passwd)
    }

    pub(crate) fn group_name(&self, gid: u32) -> Option<&str> {
        accounts::name_of(gid, &self.group)
    }

    /// The gid of a group, by name or number.
    pub(crate) fn find_group(&self, wanted: &str) -> Option<u32> {
        accounts::find_group(wanted, &self.group)
    }
}

/// What can't be read is empty: a root filesystem without accounts still has root.
fn read(path: &str) -> String {
    let mut bytes = Vec::new();
    let read = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(path)
        .and_then(|file| file.take(ACCOUNTS_BYTES).read_to_end(&mut bytes));
    match read {
        Ok(_) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(_) => String::new(),
    }
}

/// The agent is exempt from the OOM killer; its children must not be. Off PID 1 there is nothing to forget.
pub(crate) fn forget_protection() -> Result<(), BecomeError> {
    match std::fs::write("/proc/self/oom_score_adj", "0") {
        Err(error) if geteuid().is_root() => Err(BecomeError::Protection(error)),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Groups, gid and uid, none of which can be taken back.
pub(crate) fn become_user(account: &Account) -> Result<(), BecomeError> {
    let (uid, gid) = (Uid::from_raw(account.uid), Gid::from_raw(account.gid));
    let own = geteuid();
    if !own.is_root() {
        return if own == uid { Ok(()) } else { Err(BecomeError::NotRoot) };
    }
    let groups: Vec<Gid> = account.groups.iter().map(|gid| Gid::from_raw(*gid)).collect();
    rustix::thread::set_thread_groups(&groups)
        .and_then(|()| rustix::thread::set_thread_res_gid(gid, gid, gid))
        .and_then(|()| rustix::thread::set_thread_res_uid(uid, uid, uid))
        .map_err(BecomeError::Credentials)
}

/// Enters the user's home, or `/` where it isn't there: that is no reason not to work. The directory entered.
pub(crate) fn enter_home(account: &Account) -> Result<&str, Errno> {
    match chdir(&account.home) {
        Ok(()) => Ok(&account.home),
        Err(_) => chdir("/").map(|()| "/"),
    }
}
