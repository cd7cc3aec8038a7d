//! The agent's view of a started command: its pipes or its terminal, its process group, its cgroup and its deadline.

use std::{
    collections::BTreeMap,
    fs::OpenOptions,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    rc::Rc,
    time::{Duration, Instant},
};

use rustix::{
    fs::{OFlags, fcntl_setfl},
    io::Errno,
    pipe::{PipeFlags, pipe_with},
    process::{Pid, WaitStatus},
};
use space_guest_proto::{
    Stream, limits,
    message::{CommandSpec, Exit, TerminalSize},
};

use super::{
    cgroup::Group,
    launch::{self, ChildEnds, LaunchFailure},
    stdin::Stdin,
    terminal::{Terminal, Terminals},
};
use crate::sys::process::{Forked, signal_group, signal_process};

/// Between SIGTERM and SIGKILL of a command whose time is up.
const TERMINATION_GRACE: Duration = Duration::from_secs(5);

pub(crate) struct Process {
    pub(crate) pid: Pid,
    pub(crate) stdin: Stdin,
    /// Open until the child has its program, or hasn't.
    launch: Option<OwnedFd>,
    output: [Option<Rc<OwnedFd>>; 2],
    /// Its master is the pipe of stdin and of stdout then, and there is none of stderr.
    terminal: Option<Terminal>,
    group: Option<Group>,
    deadline: Option<(Instant, AtDeadline)>,
    timed_out: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AtDeadline {
    Terminate,
    Kill,
}

/// How the child's way to its program stands.
pub(crate) enum Launch {
    /// Still on its way, or told before.
    Unchanged,
    Started,
    Failed(LaunchFailure),
}

/// What one read of a pipe gave.
pub(crate) enum Read {
    Data(usize),
    Nothing,
    /// End of file: the pipe is closed on this side too.
    Closed,
}

impl Process {
    /// Forks the command off. The failures here are the agent's side alone; the child's come by
    /// [`poll_launch`](Self::poll_launch).
    pub(crate) fn spawn(
        spec: &CommandSpec,
        sandbox_env: &BTreeMap<String, String>,
        group: Option<Group>,
        terminals: Option<&Terminals>,
    ) -> Result<Self, LaunchFailure> {
        let failed = |error: io::Error| LaunchFailure::new(format!("cannot start a process: {error}"));
        let (launch, child_launch) = output_pair().map_err(failed)?;
        let (own, ends) = match spec.terminal {
            None => pipes(spec.stdin, child_launch),
            Some(size) => terminal(size, terminals, child_launch),
        }
        .map_err(failed)?;
        let pid = match Group::fork_into(group.as_ref()).map_err(failed)? {
            Forked::Child => launch::run(spec, sandbox_env, ends),
            Forked::Parent(pid) => pid,
        };
        let time = Duration::from_millis(spec.timeout_ms);
        let deadline = (!time.is_zero()).then(|| (Instant::now() + time, AtDeadline::Terminate));
        Ok(Self {
            pid,
            stdin: own.stdin,
            launch: Some(launch),
            output: own.output,
            terminal: own.terminal,
            group,
            deadline,
            timed_out: false,
        })
    }

    pub(crate) fn launch_pipe(&self) -> Option<BorrowedFd<'_>> {
        self.launch.as_ref().map(AsFd::as_fd)
    }

    pub(crate) fn output_pipe(&self, stream: Stream) -> Option<BorrowedFd<'_>> {
        self.output[stream.index()].as_ref().map(AsFd::as_fd)
    }

    pub(crate) fn terminal(&self) -> Option<&Terminal> {
        self.terminal.as_ref()
    }

    /// Asks whether the child has its program. Each outcome is told once.
    pub(crate) fn poll_launch(&mut self) -> Launch {
        let Some(pipe) = &self.launch else { return Launch::Unchanged };
        let mut bytes = [0; limits::TEXT_BYTES + 1];
        let read = match rustix::io::read(pipe, &mut bytes) {
            Ok(read) => read,
            Err(Errno::AGAIN | Errno::INTR) => return Launch::Unchanged,
            Err(_) => 0,
        };
        self.launch = None;
        match LaunchFailure::decode(bytes.get(..read).unwrap_or_default()) {
            None => Launch::Started,
            Some(failure) => Launch::Failed(failure),
        }
    }

    /// Reads what one of the output pipes holds, as much as `buffer` takes.
    pub(crate) fn read(&mut self, stream: Stream, buffer: &mut [u8]) -> Read {
        let pipe = &mut self.output[stream.index()];
        let Some(open) = pipe else { return Read::Closed };
        match rustix::io::read(open, buffer) {
            Ok(read @ 1..) => Read::Data(read),
            Err(Errno::AGAIN | Errno::INTR) => Read::Nothing,
            // A terminal that root in the guest hung up reports EIO.
            Ok(0) | Err(_) => {
                *pipe = None;
                self.hang_up();
                Read::Closed
            }
        }
    }

    /// Takes the terminal away from the command and all that it left behind. Nothing where there is none.
    pub(crate) fn hang_up(&mut self) {
        if self.terminal.take().is_some() {
            self.output = [None, None];
            self.stdin.close();
        }
    }

    /// Nothing is left to read.
    pub(crate) fn is_drained(&self) -> bool {
        self.output.iter().all(Option::is_none)
    }

    /// To the process group, which is the leader alone until it has made one. Only while the leader was not
    /// reaped: afterwards the number may be somebody else's.
    pub(crate) fn signal(&self, signal: i32) -> io::Result<()> {
        match signal_group(self.pid, signal) {
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => signal_process(self.pid, signal),
            sent => sent,
        }
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.deadline.map(|(at, _)| at)
    }

    /// Ends the command by force if its time is up.
    pub(crate) fn expire(&mut self, now: Instant) {
        let Some((_, what)) = self.deadline.filter(|(at, _)| *at <= now) else { return };
        self.timed_out = true;
        let signal = match what {
            AtDeadline::Terminate => libc::SIGTERM,
            AtDeadline::Kill => libc::SIGKILL,
        };
        // No such group: the leader is being reaped at this moment.
        drop(self.signal(signal));
        self.deadline = match what {
            AtDeadline::Terminate => Some((now + TERMINATION_GRACE, AtDeadline::Kill)),
            AtDeadline::Kill => {
                self.kill_group();
                None
            }
        };
    }

    fn kill_group(&self) {
        if let Some(group) = &self.group {
            group.kill();
        }
    }

    /// The leader was reaped with `status`. What a command whose time was up left behind goes with it.
    pub(crate) fn exited(&mut self, status: WaitStatus) -> Exit {
        self.deadline = None;
        self.stdin.close();
        if self.timed_out {
            self.kill_group();
        }
        Exit {
            code: status.exit_status().unwrap_or(0),
            signal: status.terminating_signal().unwrap_or(0),
            timed_out: self.timed_out,
            error: String::new(),
        }
    }

    /// Its cgroup, to be removed.
    pub(crate) fn take_group(&mut self) -> Option<Group> {
        self.group.take()
    }
}

/// The agent's end doesn't block; the child's does, as programs expect.
fn output_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
    fcntl_setfl(&read, OFlags::NONBLOCK)?;
    Ok((read, write))
}

/// The agent's ends of a command's input and output.
struct OwnEnds {
    stdin: Stdin,
    output: [Option<Rc<OwnedFd>>; 2],
    terminal: Option<Terminal>,
}

fn pipes(stdin: bool, launch: OwnedFd) -> io::Result<(OwnEnds, ChildEnds)> {
    let (stdin, child_stdin) = stdin_pair(stdin)?;
    let (stdout, child_stdout) = output_pair()?;
    let (stderr, child_stderr) = output_pair()?;
    let output = [Some(Rc::new(stdout)), Some(Rc::new(stderr))];
    let own = OwnEnds { stdin: Stdin::new(stdin), output, terminal: None };
    Ok((own, ChildEnds { stdin: child_stdin, stdout: child_stdout, stderr: child_stderr, launch }))
}

fn terminal(
    size: TerminalSize,
    terminals: Option<&Terminals>,
    launch: OwnedFd,
) -> io::Result<(OwnEnds, ChildEnds)> {
    let terminals = terminals.ok_or_else(|| io::Error::other("this guest has no terminals"))?;
    let (terminal, slave) = terminals.make(size)?;
    let stdin = Stdin::terminal(terminal.master());
    let own = OwnEnds { stdin, output: [Some(terminal.master()), None], terminal: Some(terminal) };
    let (stdout, stderr) = (slave.try_clone()?, slave.try_clone()?);
    Ok((own, ChildEnds { stdin: slave, stdout, stderr, launch }))
}

fn stdin_pair(wanted: bool) -> io::Result<(Option<OwnedFd>, OwnedFd)> {
    if !wanted {
        return Ok((None, OpenOptions::new().read(true).open("/dev/null")?.into()));
    }
    let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
    fcntl_setfl(&write, OFlags::NONBLOCK)?;
    Ok((Some(write), read))
}
