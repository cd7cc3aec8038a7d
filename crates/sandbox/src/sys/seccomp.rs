//! The system call filter: everything but a list of calls that this process has no use for and an intruder has.
//!
//! A list of what is allowed would be tighter, but has to name every call that an allocator, TLS library or
//! runtime may make on any kernel, and kills the process when it is wrong. A denied call answers EPERM.

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
];

/// x86-64 kernels may also take 32-bit-pointer calls: the same numbers with this bit set, some renumbered.
#[cfg(target_arch = "x86_64")]
const X32_BIT: i64 = 0x4000_0000;
/// execve, ptrace, kexec_load, process_vm_readv, process_vm_writev, execveat.
#[cfg(target_arch = "x86_64")]
const X32_RENUMBERED: &[i64] = &[520, 521, 528, 539, 540, 545];

/// Installs the filter for this thread and every one that it starts.
pub(super) fn install() -> Result<(), SeccompError> {
    seccompiler::apply_filter(&compile()?)?;
    Ok(())
}

fn compile() -> Result<BpfProgram, SeccompError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    for call in DENIED {
        rules.insert(*call, Vec::new());
    }
    rules.insert(libc::SYS_socket, socket_rules()?);
    #[cfg(target_arch = "x86_64")]
    {
        let same = DENIED.iter().chain(&[libc::SYS_socket]).map(|call| call | X32_BIT);
        let renumbered = X32_RENUMBERED.iter().map(|call| call | X32_BIT);
        rules.extend(same.chain(renumbered).map(|call| (call, Vec::new())));
    }
    let denied = SeccompAction::Errno(libc::EPERM.unsigned_abs());
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, denied, TARGET)?;
    Ok(filter.try_into()?)
}

/// Of all families only Unix sockets may be made, which the runtime uses for its signal pipe.
fn socket_rules() -> Result<Vec<SeccompRule>, SeccompError> {
    let unix = libc::AF_UNIX.unsigned_abs().into();
    let other = SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, unix)?;
    Ok(vec![SeccompRule::new(vec![other])?])
}

#[cfg(target_arch = "x86_64")]
const TARGET: TargetArch = TargetArch::x86_64;
#[cfg(target_arch = "aarch64")]
const TARGET: TargetArch = TargetArch::aarch64;

#[cfg(test)]
mod tests {
    use rustix::net::{AddressFamily, SocketType};

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
        let families =
            [AddressFamily::UNIX, AddressFamily::INET, AddressFamily::NETLINK, AddressFamily::PACKET];
        let made = filtered(move || {
            families.map(|family| rustix::net::socket(family, SocketType::DGRAM, None).is_ok())
        });
        assert_eq!(made, [true, false, false, false]);
    }

    #[test]
    fn a_filtered_process_dials_nobody() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let error = filtered(move || std::net::TcpStream::connect(address).unwrap_err());
        assert_eq!(error.raw_os_error(), Some(libc::EPERM));
    }

    #[test]
    fn a_filtered_process_looks_at_no_other_process() {
        let flags = rustix::process::PidfdFlags::empty();
        let opened = filtered(move || rustix::process::pidfd_open(rustix::process::getpid(), flags));
        assert_eq!(opened.unwrap_err(), rustix::io::Errno::PERM);
    }
}
