//! File operations.
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
    io::{Seek, SeekFrom, Write},
    os::unix::{
        ffi::OsStrExt,
        fs::{FileExt, PermissionsExt, symlink},
    },
    path::Path,
    time::{Duration, Instant},
};

use kit::{Agent, jobs};
use rustix::fs::{Mode, OFlags, mkdirat, openat};
use space_guest_proto::job::{
    FailureKind, FileType, GuestJobFrame, Job, MakeDirectory, ReadFile, StatFile, WriteFile,
};
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

    fn path(&self, name: impl AsRef<Path>) -> std::path::PathBuf {
        self.directory.path().join(name)
    }

    /// Names in the directory, sorted.
    fn names(&self) -> Vec<Vec<u8>> {
        let entries = fs::read_dir(self.directory.path()).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().as_bytes().to_vec()).collect();
        names.sort();
        names
    }
}

#[test]
fn stat_tells_what_a_file_is_and_follows_links_on_wish() {
    let guest = Guest::new();
    let file = guest.path("f");
    fs::write(&file, "hello").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o4751)).unwrap();
    let info = guest.agent.ask(jobs::stat(&file)).unwrap().info.unwrap();
    assert_eq!((info.file_type(), info.size, info.mode), (FileType::File, 5, 0o4751));
    assert_eq!((info.owner.as_str(), info.group.as_str(), &info.path), ("root", "root", &jobs::bytes(&file)));
    assert!(info.modified_ns > 0 && info.allocated > 0);
    fs::write(&file, "hello!").unwrap();
    let again = guest.agent.ask(jobs::stat(&file)).unwrap().info.unwrap();
    assert_ne!(again.version, info.version, "the content may differ");
    let link = guest.path("l");
    symlink("f", &link).unwrap();
    let info = guest.agent.ask(jobs::stat(&link)).unwrap().info.unwrap();
    assert_eq!((info.file_type(), &info.link_target[..]), (FileType::Symlink, &b"f"[..]));
    let follow = Job::Stat(StatFile { path: jobs::bytes(&link), follow: true });
    assert_eq!(guest.agent.ask(follow).unwrap().info.unwrap().file_type(), FileType::File);
}

#[test]
fn every_kind_of_wrong_path_has_its_failure() {
    let guest = Guest::new();
    fs::write(guest.path("f"), "x").unwrap();
    symlink("loop", guest.path("loop")).unwrap();
    let stat = |name: &str| {
        let path = jobs::bytes(guest.path(name));
        guest.agent.ask(Job::Stat(StatFile { path, follow: true })).err()
    };
    assert_eq!(stat("missing"), Some(FailureKind::NotFound));
    assert_eq!(stat("f/below"), Some(FailureKind::NotADirectory));
    assert_eq!(stat("loop"), Some(FailureKind::Path));
    assert_eq!(stat(&"x".repeat(256)), Some(FailureKind::Path));
    assert_eq!(stat(&"x/".repeat(1900)), Some(FailureKind::NotFound));
    let write = |name: &str| guest.agent.write(jobs::write(guest.path(name)), b"x").err();
    assert_eq!(write("loop"), Some(FailureKind::Path));
    assert_eq!(write("."), Some(FailureKind::IsADirectory));
    assert_eq!(write("new/"), Some(FailureKind::IsADirectory));
    assert_eq!(write("missing/f"), Some(FailureKind::NotFound));
    assert_eq!(write("f/below"), Some(FailureKind::NotADirectory));
}

#[test]
fn names_are_bytes() {
    let guest = Guest::new();
    let long = vec![b'n'; 255];
    let names: [&[u8]; 6] = [b" ", b"a b", b"new\nline", b"caf\xe9", b"-rf", &long];
    for name in names {
        let path = guest.path(OsStr::from_bytes(name));
        let info = guest.agent.write(jobs::write(&path), name).unwrap().info.unwrap();
        assert_eq!(info.path, jobs::bytes(&path));
        assert_eq!(guest.agent.read(jobs::read(&path)).unwrap(), name);
    }
    let (entries, more) = guest.agent.job(jobs::list(guest.directory.path(), 1, b"", 100)).entries();
    let listed: Vec<_> = entries.iter().map(|info| info.path.to_vec()).collect();
    let expected: Vec<_> =
        guest.names().iter().map(|name| jobs::bytes(guest.path(OsStr::from_bytes(name)))).collect();
    assert_eq!((listed, more), (expected.iter().map(|path| path.to_vec()).collect(), false));
}

#[test]
fn a_path_may_go_up_and_is_told_as_it_was_asked_for() {
    let guest = Guest::new();
    fs::create_dir(guest.path("d")).unwrap();
    fs::write(guest.path("f"), "x").unwrap();
    let asked = guest.path("d/.//../f");
    let info = guest.agent.ask(jobs::stat(&asked)).unwrap().info.unwrap();
    assert_eq!(info.path, jobs::bytes(guest.path("d/../f")));
}

#[test]
fn a_read_gives_the_range_that_was_asked_for() {
    let guest = Guest::new();
    let content: Vec<u8> = (0..1_000_000_u32).flat_map(u32::to_le_bytes).collect();
    fs::write(guest.path("f"), &content).unwrap();
    let read = |offset, length| {
        let job = ReadFile { offset, length, ..jobs::read(guest.path("f")) };
        guest.agent.read(job).unwrap()
    };
    assert_eq!(read(0, None), content);
    assert_eq!(read(100_001, Some(200_003)), &content[100_001..300_004]);
    assert_eq!(read(3_999_990, Some(100)), &content[3_999_990..]);
    assert!(read(5_000_000, None).is_empty());
    assert!(read(0, Some(0)).is_empty());
}

#[test]
fn a_range_at_the_end_of_ten_gigabytes_of_nothing_is_read_at_once() {
    let guest = Guest::new();
    let file = fs::File::create(guest.path("sparse")).unwrap();
    file.set_len(10 << 30).unwrap();
    file.write_all_at(b"end", (10 << 30) - 3).unwrap();
    let mut client =
        guest.agent.job(Job::Read(ReadFile { offset: (10 << 30) - 5, ..jobs::read(guest.path("sparse")) }));
    let info = client.opened().info.unwrap();
    assert_eq!(info.size, 10 << 30);
    assert!(info.allocated < 1 << 20);
    assert_eq!(client.content().unwrap(), b"\0\0end");
}

#[test]
fn files_of_the_kernel_are_read_to_their_end() {
    let guest = Guest::new();
    let text = guest.agent.read(jobs::read("/proc/cpuinfo")).unwrap();
    assert_eq!(text.len(), fs::read("/proc/cpuinfo").unwrap().len());
}

#[test]
fn what_is_no_file_is_refused_without_waiting_for_it() {
    let guest = Guest::new();
    let fifo = guest.path("fifo");
    let made = std::process::Command::new("mkfifo").arg(&fifo).status().unwrap();
    assert!(made.success());
    let _socket = std::os::unix::net::UnixListener::bind(guest.path("socket")).unwrap();
    for (path, expected) in [
        (fifo.as_path(), FailureKind::Type),
        (&guest.path("socket"), FailureKind::Type),
        (Path::new("/dev/zero"), FailureKind::Type),
        (Path::new("/dev/tty"), FailureKind::Type),
        (guest.directory.path(), FailureKind::IsADirectory),
    ] {
        assert_eq!(guest.agent.read(jobs::read(path)), Err(expected), "{}", path.display());
        assert_eq!(guest.agent.write(jobs::write(path), b"x"), Err(expected), "{}", path.display());
    }
    assert_eq!(guest.agent.job(jobs::read_archive(&fifo)).result(), Err(FailureKind::Type));
}

#[test]
fn a_file_is_written_with_its_mode_and_owner() {
    let guest = Guest::new();
    let job = WriteFile { mode: Some(0o4711), owner: "nobody:root".into(), ..jobs::write(guest.path("f")) };
    let info = guest.agent.write(job, b"x").unwrap().info.unwrap();
    assert_eq!((info.mode, info.owner.as_str(), info.gid), (0o4711, "nobody", 0));
    let unknown = WriteFile { owner: "nobody-here".into(), ..jobs::write(guest.path("g")) };
    assert_eq!(guest.agent.write(unknown, b"x"), Err(FailureKind::NoUser));
    let info = guest.agent.write(jobs::write(guest.path("f")), b"longer").unwrap().info.unwrap();
    assert_eq!((info.mode, info.size), (0o4711, 6), "a file that is replaced keeps its mode");
    assert_eq!(guest.names(), [b"f"]);
}

#[test]
fn parents_are_made_on_wish() {
    let guest = Guest::new();
    let path = guest.path("a/b/c");
    assert_eq!(guest.agent.write(jobs::write(&path), b"x"), Err(FailureKind::NotFound));
    assert!(guest.agent.write(WriteFile { parents: true, ..jobs::write(&path) }, b"x").is_ok());
    assert_eq!(fs::read(&path).unwrap(), b"x");
    assert_eq!(fs::metadata(guest.path("a")).unwrap().permissions().mode() & 0o7777, 0o755);
}

#[test]
fn an_exclusive_write_replaces_nothing() {
    let guest = Guest::new();
    let exclusive = |name: &str| WriteFile { exclusive: true, ..jobs::write(guest.path(name)) };
    assert!(guest.agent.write(exclusive("f"), b"first").is_ok());
    assert_eq!(guest.agent.write(exclusive("f"), b"second"), Err(FailureKind::AlreadyExists));
    symlink("nowhere", guest.path("l")).unwrap();
    assert_eq!(guest.agent.write(exclusive("l"), b"x"), Err(FailureKind::AlreadyExists));
    // One that appears while the data is on its way.
    let mut late = guest.agent.job(Job::Write(exclusive("late")));
    late.opened();
    fs::write(guest.path("late"), "theirs").unwrap();
    late.data(b"ours");
    late.finish();
    assert_eq!(late.result(), Err(FailureKind::AlreadyExists));
    assert_eq!(fs::read(guest.path("late")).unwrap(), b"theirs");
    assert_eq!(fs::read(guest.path("f")).unwrap(), b"first");
    assert_eq!(guest.names(), [&b"f"[..], b"l", b"late"]);
}

#[test]
fn a_write_goes_through_symbolic_links() {
    let guest = Guest::new();
    fs::create_dir(guest.path("d")).unwrap();
    symlink("d/f", guest.path("one")).unwrap();
    symlink(guest.path("one"), guest.path("two")).unwrap();
    guest.agent.write(jobs::write(guest.path("two")), b"new").unwrap();
    guest.agent.write(jobs::write(guest.path("two")), b"newer").unwrap();
    assert_eq!(fs::read(guest.path("d/f")).unwrap(), b"newer");
    assert!(fs::symlink_metadata(guest.path("two")).unwrap().is_symlink());
}

#[test]
fn readers_see_the_old_content_or_the_new_one() {
    let guest = Guest::new();
    let path = guest.path("f");
    let contents = [vec![b'a'; 300_000], vec![b'b'; 200_000]];
    fs::write(&path, &contents[0]).unwrap();
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut seen = 0_usize;
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                assert!(contents.contains(&fs::read(&path).unwrap()), "a part of a file was seen");
                seen += 1;
            }
            seen
        });
        for round in 0..20 {
            guest.agent.write(jobs::write(&path), &contents[(round + 1) % 2]).unwrap();
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(reader.join().unwrap() > 0);
    });
    assert_eq!(guest.names(), [b"f"]);
}

#[test]
fn an_upload_goes_on_where_it_stopped() {
    let guest = Guest::new();
    let path = guest.path("f");
    let write =
        |offset, complete, content: &[u8]| guest.agent.write(jobs::upload(&path, offset, complete), content);
    assert_eq!(write(0, false, b"hello ").unwrap().next_offset, 6);
    let mut wrong = guest.agent.job(Job::Write(jobs::upload(&path, 3, false)));
    let done = wrong.done();
    assert_eq!((done.failure.unwrap().kind(), done.next_offset), (FailureKind::Offset, 6));
    // One that breaks keeps what came.
    let mut broken = guest.agent.job(Job::Write(jobs::upload(&path, 6, false)));
    broken.opened();
    broken.data(b"wor");
    let kept = guest.path(".u1.space-upload");
    while fs::metadata(&kept).unwrap().len() < 9 {
        std::thread::yield_now();
    }
    drop(broken);
    assert_eq!(guest.names(), [b".u1.space-upload"], "nothing is there under its name");
    let end = Instant::now() + kit::PATIENCE;
    let done = loop {
        match write(9, true, b"ld") {
            Err(FailureKind::Busy) if Instant::now() < end => {}
            done => break done.unwrap(),
        }
    };
    assert_eq!((done.next_offset, done.info.unwrap().mode), (11, 0o644));
    assert_eq!(fs::read(&path).unwrap(), b"hello world");
    assert_eq!(guest.names(), [b"f"]);
    let done = guest.agent.job(Job::Write(jobs::upload(&path, 5, false))).done();
    assert_eq!((done.failure.unwrap().kind(), done.next_offset), (FailureKind::Offset, 0));
}

#[test]
fn an_upload_is_one_connections_at_a_time_and_begins_anew_at_0() {
    let guest = Guest::new();
    let path = guest.path("f");
    let mut first = guest.agent.job(Job::Write(jobs::upload(&path, 0, true)));
    first.opened();
    assert_eq!(guest.agent.write(jobs::upload(&path, 0, true), b"x"), Err(FailureKind::Busy));
    first.data(b"first");
    first.finish();
    assert!(first.result().is_ok());
    guest.agent.write(jobs::upload(&path, 0, false), b"abandoned").unwrap();
    guest.agent.write(jobs::upload(&path, 0, true), b"anew").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"anew");
    // What somebody else put there is not written to.
    fs::write(guest.path("victim"), "v").unwrap();
    symlink("victim", guest.path(".u1.space-upload")).unwrap();
    guest.agent.write(jobs::upload(&path, 0, true), b"again").unwrap();
    assert_eq!(fs::read(guest.path("victim")).unwrap(), b"v");
}

#[test]
fn directories_are_made() {
    let guest = Guest::new();
    let make = |name: &str, parents| guest.agent.ask(jobs::make_directory(guest.path(name), parents)).err();
    assert_eq!(make("a/b", false), Some(FailureKind::NotFound));
    assert_eq!(make("a/b", true), None);
    assert_eq!(make("a/b", true), None);
    assert_eq!(make("a/b", false), Some(FailureKind::AlreadyExists));
    fs::write(guest.path("f"), "x").unwrap();
    assert_eq!(make("f", true), Some(FailureKind::AlreadyExists));
    let job = MakeDirectory { path: jobs::bytes(guest.path("s")), parents: false, mode: Some(0o2770) };
    assert_eq!(guest.agent.ask(Job::MakeDirectory(job)).unwrap().info.unwrap().mode, 0o2770);
}

#[test]
fn a_move_replaces_only_on_wish() {
    let guest = Guest::new();
    fs::write(guest.path("a"), "a").unwrap();
    fs::write(guest.path("b"), "b").unwrap();
    let mv = |from: &str, to: &str, replace| {
        guest.agent.ask(jobs::move_file(guest.path(from), guest.path(to), replace))
    };
    assert_eq!(mv("a", "b", false), Err(FailureKind::AlreadyExists));
    assert_eq!(mv("a", "b", true).unwrap().info.unwrap().path, jobs::bytes(guest.path("b")));
    assert_eq!(mv("a", "c", false), Err(FailureKind::NotFound));
    assert_eq!(fs::read(guest.path("b")).unwrap(), b"a");
    fs::create_dir(guest.path("d")).unwrap();
    assert_eq!(mv("d", "d/below", false), Err(FailureKind::Invalid));
    let elsewhere = guest.agent.ask(jobs::move_file(guest.path("b"), "/dev/shm/space-test", false));
    assert_eq!(elsewhere, Err(FailureKind::CrossDevice));
}

#[test]
fn a_removal_follows_no_link_and_takes_what_a_directory_holds() {
    let guest = Guest::new();
    fs::create_dir_all(guest.path("d/e")).unwrap();
    fs::create_dir(guest.path("outside")).unwrap();
    fs::write(guest.path("outside/f"), "x").unwrap();
    fs::write(guest.path("d/e/f"), "x").unwrap();
    symlink(guest.path("outside"), guest.path("d/link")).unwrap();
    let remove = |name: &str, recursive| guest.agent.ask(jobs::remove(guest.path(name), recursive)).err();
    assert_eq!(remove("d", false), Some(FailureKind::NotEmpty));
    assert_eq!(remove("d", true), None);
    assert_eq!(remove("d", true), Some(FailureKind::NotFound));
    assert_eq!(remove("outside/..", true), Some(FailureKind::Invalid));
    assert_eq!(guest.agent.ask(jobs::remove("/", true)), Err(FailureKind::Invalid));
    assert!(guest.path("outside/f").exists());
    assert_eq!(remove("outside/f", false), None);
    assert_eq!(remove("outside", false), None);
}

#[test]
fn a_tree_deeper_than_any_path_is_removed() {
    let guest = Guest::new();
    let mut directory: std::os::fd::OwnedFd = fs::File::open(guest.directory.path()).unwrap().into();
    for _ in 0..3000 {
        mkdirat(&directory, "d", Mode::RWXU).unwrap();
        directory = openat(&directory, "d", OFlags::RDONLY, Mode::empty()).unwrap();
        openat(&directory, "f", OFlags::CREATE | OFlags::WRONLY, Mode::RWXU).unwrap();
    }
    assert_eq!(guest.agent.ask(jobs::remove(guest.path("d"), true)).err(), None);
    assert!(guest.names().is_empty());
}

#[test]
fn a_hundred_thousand_entries_are_listed_in_pages() {
    let guest = Guest::new();
    let expected: Vec<String> = (0..100_000).map(|number| format!("{number:06}")).collect();
    for name in expected.iter().rev() {
        fs::File::create(guest.path(name)).unwrap();
    }
    let begun = Instant::now();
    let mut listed: Vec<String> = Vec::new();
    loop {
        let after = listed.last().map_or(&b""[..], |last| last.as_bytes());
        let (entries, more) = guest.agent.job(jobs::list(guest.directory.path(), 1, after, 1000)).entries();
        let name = |path: &[u8]| String::from_utf8(path[path.len() - 6..].to_vec()).unwrap();
        listed.extend(entries.iter().map(|info| name(&info.path)));
        if !more {
            break;
        }
    }
    assert_eq!(listed, expected);
    assert!(begun.elapsed() < Duration::from_mins(1), "{:?}", begun.elapsed());
}

#[test]
fn a_listing_is_in_the_order_of_parts_whatever_the_pages() {
    let guest = Guest::new();
    for directory in ["a", "a/b", "a/b/c", "a.b", "z"] {
        fs::create_dir(guest.path(directory)).unwrap();
    }
    for file in ["a/b/c/1", "a/b.x", "a-", "a.b/f", "b", "z/\u{e9}"] {
        fs::write(guest.path(file), "").unwrap();
    }
    symlink("..", guest.path("z/up")).unwrap();
    // "a" and what is in it come before "a-", although '-' is less than '/'.
    let all = ["a", "a/b", "a/b/c", "a/b/c/1", "a/b.x", "a-", "a.b", "a.b/f", "b", "z", "z/up", "z/\u{e9}"];
    let prefix = guest.directory.path().as_os_str().len() + 1;
    for limit in 1..14 {
        let mut listed: Vec<Vec<u8>> = Vec::new();
        loop {
            let after = listed.last().cloned().unwrap_or_default();
            let (entries, more) =
                guest.agent.job(jobs::list(guest.directory.path(), 64, &after, limit)).entries();
            assert!(entries.len() <= limit as usize);
            listed.extend(entries.iter().map(|info| info.path[prefix..].to_vec()));
            if !more {
                break;
            }
        }
        assert_eq!(listed, all.map(|name| name.as_bytes().to_vec()), "pages of {limit}");
    }
    let (entries, _) = guest.agent.job(jobs::list(guest.directory.path(), 2, b"a/b/c", 100)).entries();
    let listed: Vec<&[u8]> = entries.iter().map(|info| &info.path[prefix..]).collect();
    assert_eq!(&listed[..2], [&b"a/b.x"[..], b"a-"], "a cursor below the depth");
}

#[test]
fn a_listing_of_a_file_is_refused_and_of_an_empty_directory_empty() {
    let guest = Guest::new();
    fs::write(guest.path("f"), "").unwrap();
    assert_eq!(guest.agent.ask(jobs::list(guest.path("f"), 1, b"", 1)), Err(FailureKind::NotADirectory));
    fs::create_dir(guest.path("d")).unwrap();
    assert_eq!(guest.agent.job(jobs::list(guest.path("d"), 1, b"", 1)).entries(), (vec![], false));
}

#[test]
fn a_file_that_grows_while_it_is_read_is_read_to_where_it_ends() {
    let guest = Guest::new();
    let mut file = fs::File::create(guest.path("f")).unwrap();
    file.write_all(&vec![1; 1 << 20]).unwrap();
    let mut client = guest.agent.job(Job::Read(jobs::read(guest.path("f"))));
    assert_eq!(client.opened().info.unwrap().size, 1 << 20);
    file.seek(SeekFrom::End(0)).unwrap();
    file.write_all(b"more").unwrap();
    let mut received = 0;
    let done = loop {
        match client.receive() {
            GuestJobFrame::Data(data) => received += data.len() as u64,
            GuestJobFrame::Done(done) => break done,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!((received, done.info.unwrap().size), (done.bytes, (1 << 20) + 4));
    assert_eq!(received, (1 << 20) + 4);
}
