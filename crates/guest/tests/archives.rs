//! Archives out of the guest and into it.
#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    clippy::needless_pass_by_value,
    reason = "a test fails by panicking"
)]

mod kit;

use std::{
    ffi::OsStr,
    fs,
    os::unix::{
        ffi::OsStrExt,
        fs::{MetadataExt, PermissionsExt, symlink},
    },
    path::{Path, PathBuf},
};

use kit::{Agent, jobs};
use space_guest_proto::job::{Done, FailureKind};
use tar::{EntryType, Header};
use tempfile::TempDir;

struct Guest {
    agent: Agent,
    directory: TempDir,
    _control: kit::Client,
}

impl Guest {
    fn new() -> Self {
        let agent = Agent::start();
        let control = agent.personalised();
        Self { agent, directory: tempfile::tempdir().unwrap(), _control: control }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn unpack(&self, name: &str, archive: &[u8]) -> Result<Done, FailureKind> {
        let mut client = self.agent.job(jobs::write_archive(self.path(name)));
        client.data(archive);
        client.finish();
        client.result()
    }

    fn pack(&self, name: &str) -> Result<Vec<u8>, FailureKind> {
        self.agent.job(jobs::read_archive(self.path(name))).content()
    }
}

fn entry(entry_type: EntryType, name: &[u8], link: &[u8], content: &[u8]) -> Vec<u8> {
    let mut header = Header::new_ustar();
    header.set_entry_type(entry_type);
    header.set_mode(0o644);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(1_000_000_000);
    header.set_size(content.len() as u64);
    header.as_old_mut().name[..name.len()].copy_from_slice(name);
    header.as_old_mut().linkname[..link.len()].copy_from_slice(link);
    header.set_cksum();
    let padding = vec![0; (512 - content.len() % 512) % 512];
    [header.as_bytes(), content, &padding].concat()
}

fn file(name: &str, content: &[u8]) -> Vec<u8> {
    entry(EntryType::Regular, name.as_bytes(), b"", content)
}

fn archive(entries: &[Vec<u8>]) -> Vec<u8> {
    [entries.concat(), vec![0; 1024]].concat()
}

/// What there is below a directory: names, types, modes, times, links and contents.
fn tree(directory: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut waiting = vec![directory.to_owned()];
    while let Some(path) = waiting.pop() {
        for entry in fs::read_dir(&path).unwrap() {
            let path = entry.unwrap().path();
            let metadata = fs::symlink_metadata(&path).unwrap();
            let content = if metadata.is_symlink() {
                fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes()
            } else if metadata.is_dir() {
                waiting.push(path.clone());
                Vec::new()
            } else {
                fs::read(&path).unwrap()
            };
            let relative = path.strip_prefix(directory).unwrap().as_os_str().as_bytes();
            let links = if metadata.is_dir() { 0 } else { metadata.nlink() };
            let owner = (metadata.uid(), metadata.gid());
            found.push(format!(
                "{relative:?} {:o} {} {owner:?} {links} {content:?}",
                metadata.mode(),
                metadata.mtime()
            ));
        }
    }
    found.sort();
    found
}

#[test]
fn what_goes_out_comes_in_the_same() {
    let guest = Guest::new();
    let long = ["d".repeat(120), "e".repeat(200), "f".repeat(255)].join("/");
    let source = guest.path("source");
    fs::create_dir_all(source.join(&long).parent().unwrap()).unwrap();
    fs::write(source.join(&long), "deep").unwrap();
    fs::write(source.join(OsStr::from_bytes(b"caf\xe9 \n")), vec![7; 200_000]).unwrap();
    fs::write(source.join("empty"), "").unwrap();
    fs::write(source.join("suid"), "x").unwrap();
    fs::set_permissions(source.join("suid"), fs::Permissions::from_mode(0o4755)).unwrap();
    std::os::unix::fs::chown(source.join("empty"), Some(1234), Some(3_000_000)).unwrap();
    fs::hard_link(source.join("suid"), source.join("second name")).unwrap();
    symlink("/nowhere/at/all", source.join("dangling")).unwrap();
    symlink("x".repeat(300), source.join("long link")).unwrap();
    fs::create_dir(source.join("closed")).unwrap();
    fs::write(source.join("closed/f"), "x").unwrap();
    fs::set_permissions(source.join("closed"), fs::Permissions::from_mode(0o500)).unwrap();
    let packed = guest.pack("source").unwrap();
    assert_eq!(packed.len() % 512, 0);
    let done = guest.unpack("copy", &packed).unwrap();
    assert_eq!(tree(&guest.path("copy")), tree(&source));
    assert_eq!(done.entries, tree(&source).len() as u64);
    // The system's tar understands it too.
    fs::create_dir(guest.path("theirs")).unwrap();
    fs::write(guest.path("a.tar"), &packed).unwrap();
    let status = std::process::Command::new("tar")
        .args(["--numeric-owner", "-xpf"])
        .arg(guest.path("a.tar"))
        .arg("-C")
        .arg(guest.path("theirs"))
        .status()
        .unwrap();
    assert!(status.success());
    assert_eq!(tree(&guest.path("theirs")), tree(&source));
}

#[test]
fn archives_of_the_systems_tar_are_put_out() {
    let guest = Guest::new();
    let source = guest.path("source");
    fs::create_dir_all(source.join("d".repeat(150))).unwrap();
    fs::write(source.join("d".repeat(150)).join("f".repeat(150)), "deep").unwrap();
    for format in ["gnu", "pax"] {
        let output = std::process::Command::new("tar")
            .args([&format!("--format={format}"), "-cf", "-", "-C"])
            .arg(&source)
            .arg(".")
            .output()
            .unwrap();
        let name = format!("copy-{format}");
        guest.unpack(&name, &output.stdout).unwrap();
        assert_eq!(tree(&guest.path(&name)), tree(&source), "{format}");
    }
}

#[test]
fn a_file_alone_and_an_empty_directory_are_archives_too() {
    let guest = Guest::new();
    fs::create_dir(guest.path("d")).unwrap();
    fs::write(guest.path("f"), "content").unwrap();
    guest.unpack("out", &guest.pack("f").unwrap()).unwrap();
    assert_eq!(fs::read(guest.path("out/f")).unwrap(), b"content");
    assert_eq!(guest.unpack("out", &guest.pack("d").unwrap()).unwrap().entries, 0);
}

#[test]
fn entries_that_would_lie_elsewhere_fail_and_leave_nothing_there() {
    let guest = Guest::new();
    let outside = guest.path("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("target"), "untouched").unwrap();
    let absolute = outside.join("f");
    let link = |name: &str, to: &str| entry(EntryType::Symlink, name.as_bytes(), to.as_bytes(), b"");
    let hard = |name: &str, to: &str| entry(EntryType::Link, name.as_bytes(), to.as_bytes(), b"");
    let elsewhere = outside.to_str().unwrap();
    let hostile: Vec<Vec<Vec<u8>>> = vec![
        vec![file("../outside/f", b"x")],
        vec![file("a/../../outside/f", b"x")],
        vec![file(absolute.to_str().unwrap(), b"x")],
        vec![link("l", elsewhere), file("l/f", b"x")],
        vec![link("l", "../outside"), file("l/f", b"x")],
        vec![link("l", "../outside"), entry(EntryType::Directory, b"l/d", b"", b"")],
        vec![link("l", "../outside"), entry(EntryType::Directory, b"l", b"", b"")],
        vec![link("a", "b"), link("b", "../outside"), file("a/f", b"x")],
        vec![link("l", "../outside"), hard("h", "l/target")],
        vec![hard("h", "../outside/target")],
        vec![hard("h", outside.join("target").to_str().unwrap())],
    ];
    for (number, entries) in hostile.iter().enumerate() {
        let name = format!("in{number}");
        assert_eq!(guest.unpack(&name, &archive(entries)), Err(FailureKind::Path), "{number}");
        let names: Vec<_> = fs::read_dir(&outside).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["target"], "{number}");
    }
    // A link in a file's place is replaced, not written through.
    let replaced = archive(&[link("l", "../outside/target"), file("l", b"mine")]);
    guest.unpack("replaced", &replaced).unwrap();
    assert_eq!(fs::read(guest.path("replaced/l")).unwrap(), b"mine");
    assert_eq!(fs::read(outside.join("target")).unwrap(), b"untouched");
    assert_eq!(fs::metadata(outside.join("target")).unwrap().nlink(), 1);
}

#[test]
fn links_within_the_archive_work() {
    let guest = Guest::new();
    let entries = [
        file("d/f", b"x"),
        entry(EntryType::Symlink, b"l", b"d", b""),
        file("l/g", b"y"),
        entry(EntryType::Link, b"h", b"l/f", b""),
    ];
    assert_eq!(guest.unpack("in", &archive(&entries)).unwrap().entries, 4);
    assert_eq!(fs::read(guest.path("in/d/g")).unwrap(), b"y");
    assert_eq!(fs::read(guest.path("in/h")).unwrap(), b"x");
}

#[test]
fn devices_are_left_out() {
    let guest = Guest::new();
    let entries = [
        entry(EntryType::Char, b"null", b"", b""),
        entry(EntryType::Fifo, b"fifo", b"", b""),
        file("f", b"x"),
    ];
    assert_eq!(guest.unpack("in", &archive(&entries)).unwrap().entries, 1);
    assert_eq!(fs::read_dir(guest.path("in")).unwrap().count(), 1);
    let made = std::process::Command::new("mkfifo").arg(guest.path("in/fifo")).status().unwrap();
    assert!(made.success());
    assert_eq!(guest.unpack("again", &guest.pack("in").unwrap()).unwrap().entries, 1);
}

#[test]
fn what_is_no_whole_archive_fails() {
    let guest = Guest::new();
    let whole = archive(&[file("a", b"1"), file("b", &[1; 2000])]);
    for length in [0, 100, 512, 1024, 1600, 3584, whole.len() - 1024] {
        assert_eq!(guest.unpack("in", &whole[..length]), Err(FailureKind::Archive), "{length}");
    }
    assert_eq!(guest.unpack("in", &[0xff; 4096]), Err(FailureKind::Archive));
    assert_eq!(guest.unpack("in", &whole).unwrap().bytes, 2001);
}

#[test]
fn a_user_gets_files_of_their_own() {
    let guest = Guest::new();
    fs::set_permissions(guest.directory.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let mut client = guest.agent.job_as("nobody", jobs::write_archive(guest.path("in")));
    client.data(&archive(&[file("f", b"x")]));
    client.finish();
    assert!(client.result().is_ok());
    assert_eq!(fs::metadata(guest.path("in/f")).unwrap().uid(), 65534);
}
