//! Terminals of commands: the pseudo terminal whose slave is a command's stdin, stdout and stderr.
//!
//! The agent keeps both ends. The master is what it reads and writes, without blocking. The slave it only holds:
//! while it does, a command that closes its own for a moment doesn't make the master report an end. Dropping the
//! master hangs the terminal up, which is how a command's exit takes it away from whoever is left in its session.
//!
//! `ptmx` is opened through a descriptor of the devpts mount that was taken before the first command ran, and the
//! slave through the master: nothing that root in the guest mounts over `/dev` can make the agent wait.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    rc::Rc,
};

use rustix::{
    fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2},
    io::Errno,
    pty::{OpenptFlags, ioctl_tiocgptpeer, unlockpt},
    termios::{
        InputModes, LocalModes, OptionalActions, SpecialCodeIndex, Winsize, tcgetattr, tcsetattr,
        tcsetwinsize,
    },
};
use space_guest_proto::message::TerminalSize;

/// The devpts mount.
pub(crate) struct Terminals(OwnedFd);

pub(crate) struct Terminal {
    master: Rc<OwnedFd>,
    _slave: OwnedFd,
}

impl Terminals {
    /// Takes `mount_point`, where devpts is mounted.
    pub(crate) fn open(mount_point: &str) -> io::Result<Self> {
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::RDONLY;
        Ok(Self(openat(CWD, mount_point, flags, Mode::empty())?))
    }

    /// A terminal in the state that every terminal begins in, for UTF-8, and its slave for the command.
    pub(crate) fn make(&self, size: TerminalSize) -> io::Result<(Terminal, OwnedFd)> {
        let master = self.open_master()?;
        unlockpt(&master)?;
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let slave = ioctl_tiocgptpeer(&master, flags)?;
        let mut modes = tcgetattr(&slave)?;
        modes.input_modes |= InputModes::IUTF8;
        tcsetattr(&slave, OptionalActions::Now, &modes)?;
        let terminal = Terminal { master: Rc::new(master), _slave: slave.try_clone()? };
        terminal.resize(size)?;
        Ok((terminal, slave))
    }

    fn open_master(&self) -> Result<OwnedFd, Errno> {
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_XDEV | ResolveFlags::NO_SYMLINKS;
        match openat2(&self.0, "ptmx", flags, Mode::empty(), beneath) {
            // On a developer's machine this one is root's alone.
            Err(Errno::ACCESS) => openat(CWD, "/dev/ptmx", flags, Mode::empty()),
            opened => opened,
        }
    }
}

impl Terminal {
    pub(crate) fn master(&self) -> Rc<OwnedFd> {
        Rc::clone(&self.master)
    }

    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.master.as_fd()
    }

    /// The kernel tells what is in the foreground.
    pub(crate) fn resize(&self, size: TerminalSize) -> io::Result<()> {
        let cells = |cells: u32| u16::try_from(cells).unwrap_or(u16::MAX);
        let size =
            Winsize { ws_row: cells(size.rows), ws_col: cells(size.columns), ws_xpixel: 0, ws_ypixel: 0 };
        Ok(tcsetwinsize(&self.master, size)?)
    }
}

/// The character that ends the input of whoever reads the terminal; none while it is in raw mode.
pub(crate) fn end_of_file(master: BorrowedFd<'_>) -> Option<u8> {
    // Asked of the master, the kernel answers for the slave.
    let modes = tcgetattr(master).ok()?;
    let by_lines = modes.local_modes.contains(LocalModes::ICANON);
    // 0 is what a program sets to have none.
    Some(modes.special_codes[SpecialCodeIndex::VEOF]).filter(|code| by_lines && *code != 0)
}
