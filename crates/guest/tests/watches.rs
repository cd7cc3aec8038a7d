//! Watches.
#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    clippy::needless_pass_by_value,
    reason = "a test fails by panicking"
)]

mod kit;

use std::{
    fs,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use kit::{
    Agent,
    jobs::{self, JobClient},
};
use space_guest_proto::job::{
    ChangeKind::{self, Attributes, Created, Moved, Removed, Written},
    FailureKind, Job, WatchFiles,
};
use tempfile::TempDir;

struct Watched {
    client: JobClient,
    directory: TempDir,
    _control: kit::Client,
    agent: Agent,
}

impl Watched {
    fn new() -> Self {
        Self::with(|_| {})
    }

    /// `before`: what happens before the watch begins.
    fn with(before: impl FnOnce(&Path)) -> Self {
        let agent = Agent::start();
        let control = agent.personalised();
        let directory = tempfile::tempdir().unwrap();
        before(directory.path());
        let mut client = agent.job(jobs::watch(directory.path()));
        client.opened();
        Self { client, directory, _control: control, agent }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// What was told until now, with paths in the directory; a file of that name is made to see where that is.
    fn seen(&mut self, last: &str) -> Vec<(ChangeKind, String)> {
        let path = self.path(last);
        fs::create_dir(&path).unwrap();
        let mut seen = self.client.changes_until((Created, &path));
        assert_eq!(seen.pop(), Some((Created, path.as_os_str().as_bytes().to_vec())));
        let prefix = self.directory.path().as_os_str().len() + 1;
        seen.into_iter()
            .map(|(kind, path)| (kind, String::from_utf8(path[prefix..].to_vec()).unwrap()))
            .collect()
    }
}

fn named(changes: &[(ChangeKind, &str)]) -> Vec<(ChangeKind, String)> {
    changes.iter().map(|(kind, name)| (*kind, (*name).to_owned())).collect()
}

/// Repetitions of a write are no news: how many the kernel makes of one is its own business.
fn once(mut seen: Vec<(ChangeKind, String)>) -> Vec<(ChangeKind, String)> {
    seen.dedup_by(|b, a| a == b && a.0 == Written);
    seen
}

#[test]
fn changes_come_in_their_order() {
    let mut watched = Watched::new();
    fs::write(watched.path("a"), "1").unwrap();
    fs::rename(watched.path("a"), watched.path("b")).unwrap();
    fs::set_permissions(watched.path("b"), std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    fs::remove_file(watched.path("b")).unwrap();
    let expected =
        [(Created, "a"), (Written, "a"), (Removed, "a"), (Moved, "b"), (Attributes, "b"), (Removed, "b")];
    assert_eq!(once(watched.seen("end")), named(&expected));
}

#[test]
fn nothing_is_missed_in_directories_that_are_new() {
    let mut watched = Watched::new();
    let script = "for i in $(seq 200); do mkdir -p d$i/e/f; echo x > d$i/e/f/g; echo y > d$i/h; done";
    let made = std::process::Command::new("bash")
        .args(["-c", script])
        .current_dir(watched.directory.path())
        .status()
        .unwrap();
    assert!(made.success());
    let seen = watched.seen("end");
    for number in 1..=200 {
        for name in ["", "/e", "/e/f", "/e/f/g", "/h"] {
            let path = format!("d{number}{name}");
            let created = seen.iter().filter(|change| **change == (Created, path.clone())).count();
            assert_eq!(created, 1, "{path}");
        }
        assert!(seen.contains(&(Written, format!("d{number}/e/f/g"))), "{number}");
    }
    // From now on they are watched like those that were there before.
    fs::write(watched.path("d7/e/f/late"), "").unwrap();
    assert!(watched.seen("end2").contains(&(Created, "d7/e/f/late".to_owned())));
}

#[test]
fn a_directory_that_moves_is_told_by_its_new_name() {
    let mut watched = Watched::with(|path| fs::create_dir_all(path.join("a/b")).unwrap());
    let outside = tempfile::tempdir_in(watched.directory.path().parent().unwrap()).unwrap();
    fs::rename(watched.path("a"), watched.path("c")).unwrap();
    fs::write(watched.path("c/b/f"), "").unwrap();
    assert_eq!(
        once(watched.seen("1")),
        named(&[(Removed, "a"), (Moved, "c"), (Created, "c/b/f"), (Written, "c/b/f")])
    );
    // Out of the tree nothing of it is told, and in again everything.
    fs::rename(watched.path("c"), outside.path().join("c")).unwrap();
    assert_eq!(watched.seen("2"), named(&[(Removed, "c")]));
    fs::write(outside.path().join("c/b/g"), "").unwrap();
    assert_eq!(watched.seen("3"), named(&[]));
    fs::rename(outside.path().join("c"), watched.path("back")).unwrap();
    let seen = watched.seen("4");
    assert_eq!(seen[0], (Moved, "back".to_owned()));
    assert!(seen.contains(&(Created, "back/b/g".to_owned())), "{seen:?}");
}

#[test]
fn a_file_is_watched_by_its_name() {
    let watched = Watched::with(|path| fs::write(path.join("f"), "1").unwrap());
    let mut client = watched.agent.job(jobs::watch(watched.path("f")));
    client.opened();
    fs::write(watched.path("other"), "").unwrap();
    fs::write(watched.path("new"), "2").unwrap();
    fs::rename(watched.path("new"), watched.path("f")).unwrap();
    let seen = client.changes_until((Moved, &watched.path("f")));
    assert_eq!(seen.len(), 1, "{seen:?}");
}

#[test]
fn a_watch_that_is_not_recursive_stays_in_its_directory() {
    let watched = Watched::with(|path| fs::create_dir(path.join("d")).unwrap());
    let path = jobs::bytes(watched.directory.path());
    let mut client = watched.agent.job(Job::Watch(WatchFiles { path, recursive: false }));
    client.opened();
    fs::write(watched.path("d/f"), "").unwrap();
    fs::create_dir(watched.path("end")).unwrap();
    let seen = client.changes_until((Created, &watched.path("end")));
    assert_eq!(seen.len(), 1, "{seen:?}");
}

#[test]
fn a_watch_ends_with_what_it_watches() {
    let watched = Watched::with(|path| fs::create_dir(path.join("d")).unwrap());
    let mut client = watched.agent.job(jobs::watch(watched.path("d")));
    client.opened();
    fs::remove_dir(watched.path("d")).unwrap();
    client.changes_until((Removed, &watched.path("d")));
    assert_eq!(client.result(), Err(FailureKind::NotFound));
    assert_eq!(watched.agent.job(jobs::watch(watched.path("d"))).result(), Err(FailureKind::NotFound));
}

#[test]
fn a_reader_that_is_too_slow_is_told_that_something_was_lost() {
    let mut watched = Watched::new();
    // Far more than the kernel's queue, the socket and the agent hold together.
    for number in 0..12_000 {
        let path = watched.path(&format!("{number:0200}"));
        fs::write(&path, "").unwrap();
        fs::remove_file(&path).unwrap();
    }
    let seen = watched.client.changes_until((ChangeKind::Lost, Path::new("")));
    assert!(seen.len() > 1000);
    // Until it had caught up there may have been more of that.
    fs::create_dir(watched.path("later")).unwrap();
    watched.client.changes_until((Created, &watched.path("later")));
}
