//! The system call filter: everything but a list of calls that this process has no use for and an intruder has.
//!
//! A list of what is allowed would be tighter, but has to name every call that an allocator, TLS library or
//! runtime may make on any kernel, and kills the process when it is wrong. A denied call answers EPERM, except
//! `clone3`: its flags lie in memory, where a filter can't see them, and after ENOSYS libraries take `clone`.

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch,
};

#[derive(Debug, thiserror::Error)]
pub enum SeccompError {
    #[error("the filter does not compile")]
    Compile(#[from] seccompiler::BackendError),
    #[error("the kernel refused the filter")]
    Install(#[from] seccompiler::Error),
}

/// Calls that are denied whatever their arguments.
const DENIED: &[i64] = &[
    // Another program: the worker is the only one of its user.
    libc::SYS_execve,
    libc::SYS_execveat,
    // Other processes.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    // Mounts, roots, namespaces.
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_unshare,
    libc::SYS_setns,
    // Files by handle instead of by name, which goes around every directory's permissions.
    libc::SYS_name_to_handle_at,
    libc::SYS_open_by_handle_at,
    // The kernel's code, and interfaces where most of its privilege bugs are found.
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    libc::SYS_personality,
    libc::SYS_fanotify_init,
    libc::SYS_quotactl,
    libc::SYS_acct,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_reboot,
    libc::SYS_syslog,
    // Clock and names of the machine.
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    // A socket comes from noded, connected or listening; the worker makes none and dials nobody.
    libc::SYS_connect,
    libc::SYS_bind,
    libc::SYS_listen,
    // Another process, where it does not go by `clone`.
    #[cfg(target_arch = "x86_64")]
    libc::SYS_fork,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_vfork,
];

/// Calls that are denied for some of their arguments.
const PARTLY_DENIED: &[i64] = &[
    libc::SYS_socket,
    libc::SYS_socketpair,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_sendmmsg,
    libc::SYS_clone,
];

/// x86-64 kernels may also take 32-bit-pointer calls: the same numbers with this bit set, some renumbered.
#[cfg(target_arch = "x86_64")]
const X32_BIT: i64 = 0x4000_0000;
/// execve, ptrace, kexec_load, process_vm_readv, process_vm_writev, execveat.
#[cfg(target_arch = "x86_64")]
const X32_RENUMBERED: &[i64] = &[520, 521, 528, 539, 540, 545];

/// Installs the filters for this thread and every one that it starts.
pub(super) fn install() -> Result<(), SeccompError> {
    seccompiler::apply_filter(&compile_unknown()?)?;
    seccompiler::apply_filter(&compile()?)?;
    Ok(())
}

/// What is answered as if the kernel did not have it.
fn compile_unknown() -> Result<BpfProgram, SeccompError> {
    let rules = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
    let unknown = SeccompAction::Errno(libc::ENOSYS.unsigned_abs());
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, unknown, TARGET)?;
    Ok(filter.try_into()?)
}

fn compile() -> Result<BpfProgram, SeccompError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    for call in DENIED {
        rules.insert(*call, Vec::new());
    }
    rules.insert(libc::SYS_socket, socket_rules()?);
    rules.insert(libc::SYS_socketpair, socket_rules()?);
    // A destination by address, in memory or in the call.
    rules.insert(libc::SYS_sendto, vec![rule(4, SeccompCmpArgLen::Qword, SeccompCmpOp::Ne, 0)?]);
    rules.insert(libc::SYS_sendmsg, vec![has(2, libc::MSG_FASTOPEN)?]);
    rules.insert(libc::SYS_sendmmsg, vec![has(3, libc::MSG_FASTOPEN)?]);
    rules.insert(libc::SYS_clone, clone_rules()?);
    #[cfg(target_arch = "x86_64")]
    {
        let same = DENIED.iter().chain(PARTLY_DENIED).chain(&[libc::SYS_clone3]).map(|call| call | X32_BIT);
        let renumbered = X32_RENUMBERED.iter().map(|call| call | X32_BIT);
        rules.extend(same.chain(renumbered).map(|call| (call, Vec::new())));
    }
    let denied = SeccompAction::Errno(libc::EPERM.unsigned_abs());
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, denied, TARGET)?;
    Ok(filter.try_into()?)
}

/// Only Unix sockets may be made, which the runtime uses for its signal pipe, and none that sends to an address:
/// a datagram socket needs no connection, and the address of `sendmsg` lies in memory. (The kernel takes SOCK_RAW
/// for SOCK_DGRAM here.)
fn socket_rules() -> Result<Vec<SeccompRule>, SeccompError> {
    let unix = libc::AF_UNIX.unsigned_abs().into();
    let mut rules = vec![rule(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, unix)?];
    for kind in [libc::SOCK_DGRAM, libc::SOCK_RAW] {
        let of_kind = SeccompCmpOp::MaskedEq(SOCKET_KIND);
        rules.push(rule(1, SeccompCmpArgLen::Dword, of_kind, kind.unsigned_abs().into())?);
    }
    Ok(rules)
}

/// A thread and nothing else: no process, no namespace.
fn clone_rules() -> Result<Vec<SeccompRule>, SeccompError> {
    let thread = u64::from(libc::CLONE_THREAD.unsigned_abs());
    let mut rules = vec![rule(0, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(thread), 0)?];
    for flag in NAMESPACES {
        rules.push(has(0, *flag)?);
    }
    Ok(rules)
}

/// The bit `flag` is set in the argument.
fn has(argument: u8, flag: i32) -> Result<SeccompRule, SeccompError> {
    let flag = u64::from(flag.cast_unsigned());
    rule(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(flag), flag)
}

fn rule(
    argument: u8,
    length: SeccompCmpArgLen,
    operator: SeccompCmpOp,
    value: u64,
) -> Result<SeccompRule, SeccompError> {
    Ok(SeccompRule::new(vec![SeccompCondition::new(argument, length, operator, value)?])?)
}

/// The bits of a socket's type that are no flags (`SOCK_TYPE_MASK` of the kernel).
const SOCKET_KIND: u64 = 0xf;
/// What `clone` takes; there is no bit for a time namespace in it.
const NAMESPACES: &[i32] = &[
    libc::CLONE_NEWNS,
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
];

#[cfg(target_arch = "x86_64")]
const TARGET: TargetArch = TargetArch::x86_64;
#[cfg(target_arch = "aarch64")]
const TARGET: TargetArch = TargetArch::aarch64;

#[cfg(test)]
mod tests {
    use std::{
        io,
        os::unix::net::{UnixDatagram, UnixListener, UnixStream},
    };

    use rustix::net::{AddressFamily, SocketFlags, SocketType};

    use super::*;

    /// On a thread of its own: a filter can't be taken off again.
    fn filtered<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> T {
        let thread = std::thread::spawn(|| {
            rustix::thread::set_no_new_privs(true).unwrap();
            install().unwrap();
            body()
        });
        thread.join().unwrap()
    }

    #[test]
    fn a_filtered_process_starts_no_program() {
        let error = filtered(|| std::process::Command::new("/bin/true").spawn().unwrap_err());
        assert_eq!(error.raw_os_error(), Some(libc::EPERM));
    }

    #[test]
    fn a_filtered_process_makes_unix_sockets_and_no_others() {
        let kinds = [
            (AddressFamily::UNIX, SocketType::STREAM),
            (AddressFamily::INET, SocketType::STREAM),
            (AddressFamily::INET, SocketType::DGRAM),
            (AddressFamily::NETLINK, SocketType::RAW),
            (AddressFamily::PACKET, SocketType::RAW),
        ];
        let made =
            filtered(move || kinds.map(|(family, kind)| rustix::net::socket(family, kind, None).is_ok()));
        assert_eq!(made, [true, false, false, false, false]);
    }

    #[test]
    fn a_filtered_process_dials_nobody() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let error = filtered(move || std::net::TcpStream::connect(address).unwrap_err());
        assert_eq!(error.raw_os_error(), Some(libc::EPERM));
    }

    /// The journal's socket, for one, takes what anybody sends to it.
    #[test]
    fn a_filtered_process_sends_to_no_address() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let listener = UnixDatagram::bind(&path).unwrap();
        listener.set_nonblocking(true).unwrap();
        // None is left open in the worker, but if it were, a call with an address would still be refused.
        let earlier = UnixDatagram::unbound().unwrap();
        let (made, sent) = filtered(move || {
            let kinds = [SocketType::DGRAM, SocketType::RAW, SocketType::STREAM, SocketType::SEQPACKET];
            let made = kinds.map(|kind| {
                let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
                let one = rustix::net::socket_with(AddressFamily::UNIX, kind, flags, None);
                let pair = rustix::net::socketpair(AddressFamily::UNIX, kind, flags, None);
                (one.is_ok(), pair.is_ok())
            });
            (made, earlier.send_to(b"hello", &path).unwrap_err())
        });
        assert_eq!(made, [(false, false), (false, false), (true, true), (true, true)]);
        assert_eq!(sent.raw_os_error(), Some(libc::EPERM));
        assert_eq!(listener.recv(&mut [0; 8]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }

    /// A listener that is shut down may be dialled with, unless that is forbidden as well.
    #[test]
    fn a_filtered_process_dials_nobody_by_sending() {
        let theirs = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = theirs.local_addr().unwrap();
        let ours = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let sent = filtered(move || {
            rustix::net::shutdown(&ours, rustix::net::Shutdown::Read).unwrap();
            let flags = rustix::net::SendFlags::from_bits_retain(libc::MSG_FASTOPEN.cast_unsigned());
            let bytes = [io::IoSlice::new(b"hello")];
            rustix::net::sendmsg_addr(
                &ours,
                &address,
                &bytes,
                &mut rustix::net::SendAncillaryBuffer::default(),
                flags,
            )
            .unwrap_err()
        });
        assert_eq!(sent, rustix::io::Errno::PERM);
    }

    #[test]
    fn a_filtered_process_sends_on_what_is_connected() {
        let directory = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(directory.path().join("socket")).unwrap();
        let connected = UnixStream::connect(directory.path().join("socket")).unwrap();
        filtered(move || rustix::net::send(&connected, b"hello", rustix::net::SendFlags::empty()).unwrap());
        drop(listener);
    }

    #[test]
    fn a_filtered_process_starts_threads_and_no_processes() {
        let (thread, process, clone3) = filtered(|| {
            let thread = std::thread::Builder::new().spawn(|| 6 * 7).unwrap().join().unwrap();
            (thread, cloned(libc::SIGCHLD), syscall_errno(libc::SYS_clone3, 0))
        });
        assert_eq!((thread, process, clone3), (42, libc::EPERM, libc::ENOSYS));
    }

    #[test]
    fn a_filtered_process_enters_no_namespace() {
        for flag in NAMESPACES {
            let flags = libc::CLONE_THREAD | libc::CLONE_SIGHAND | libc::CLONE_VM | flag;
            assert_eq!(filtered(move || cloned(flags)), libc::EPERM, "{flag:#x}");
        }
    }

    /// What `clone` with these flags, and nothing else, answers: it must be an error.
    fn cloned(flags: i32) -> i32 {
        syscall_errno(libc::SYS_clone, i64::from(flags))
    }

    fn syscall_errno(call: i64, first: i64) -> i32 {
        #[expect(unsafe_code, reason = "no safe interface makes a call that is to be refused")]
        // SAFETY: the filter refuses the call by its number and first argument; it never reaches the kernel's own
        // code. Without a filter `clone` would start a child on a null stack with `CLONE_VM`, which faults, or a
        // plain fork of a test; `clone3` with a null argument fails.
        let answered = unsafe { libc::syscall(call, first, 0, 0, 0, 0) };
        assert_eq!(answered, -1);
        io::Error::last_os_error().raw_os_error().unwrap()
    }

    #[test]
    fn a_filtered_process_looks_at_no_other_process() {
        let flags = rustix::process::PidfdFlags::empty();
        let opened = filtered(move || rustix::process::pidfd_open(rustix::process::getpid(), flags));
        assert_eq!(opened.unwrap_err(), rustix::io::Errno::PERM);
    }
}
