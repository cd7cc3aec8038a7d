//! Commands that run: starting, output, stdin, time limits and the end.
//!
//! A command has exited when its leader was reaped and what lay in its pipes at that moment was read. What
//! background processes write to the same pipes later is read and dropped, so that they neither hold the exit
//! back nor die of SIGPIPE. A terminal is hung up at that moment: whoever is left in its session sees what closing
//! a terminal's window would show it.

use std::time::Instant;

use rustix::{
    io::Errno,
    process::{Pid, WaitOptions, WaitStatus},
};
use space_guest_proto::{
    Stream,
    message::{Exit, RefusalCode, TerminalSize, WriteStdinReply, WriteStdinRequest},
};

use super::{
    Agent,
    poll::{Interest, Poll, Source},
    requests::Refused,
};
use crate::{
    clock,
    command::{
        launch::LaunchFailure,
        process::{Launch, Process, Read},
        ring::Stamp,
        stdin::{Writer, Written},
    },
};

const STREAMS: [Stream; 2] = [Stream::Stdout, Stream::Stderr];
/// Reads of each pipe behind the leader's exit: the most that a pipe can hold, so that a background process
/// that goes on writing does not make it endless.
const LAST_READS: usize = 32;

impl Agent {
    fn stamp(&self) -> Stamp {
        Stamp { generation: self.generation, at_ms: clock::wall_ms() }
    }

    /// Starts a command that was created. What goes wrong becomes its exit.
    pub(super) fn start(&mut self, serial: u64) {
        let group = self.setup.cgroups.as_mut().and_then(crate::command::cgroup::Commands::take);
        let Some(command) = self.commands.get_mut(serial) else { return };
        command.started_at_ms = clock::wall_ms();
        match Process::spawn(&command.spec, &self.env, group, self.setup.terminals.as_ref()) {
            Ok(process) => {
                let pid = process.pid;
                command.pid = pid.as_raw_nonzero().get().unsigned_abs();
                let watched = watch(&self.poll, serial, &process);
                command.process = Some(process);
                self.commands.pid_started(pid, serial);
                if let Err(error) = watched {
                    // Without events the command would hang; its death is at least told.
                    crate::log::error(format_args!("cannot watch a command: {error}"));
                    self.kill(serial);
                }
            }
            Err(failure) => self.finish(serial, failed(failure)),
        }
    }

    fn kill(&self, serial: u64) {
        if let Some(process) = self.commands.get(serial).and_then(|command| command.process.as_ref()) {
            drop(process.signal(libc::SIGKILL));
        }
    }

    pub(super) fn poll_launch(&mut self, serial: u64) {
        let stamp = self.stamp();
        let Some(process) = self.commands.get_mut(serial).and_then(|command| command.process.as_mut()) else {
            return;
        };
        match process.poll_launch() {
            Launch::Unchanged => {}
            Launch::Started => self.commands.record(serial, |ring| ring.push_started(stamp)),
            // Its exit follows; it says why.
            Launch::Failed(failure) => {
                if let Some(command) = self.commands.get_mut(serial) {
                    command.launch_failure = Some(failure);
                }
            }
        }
    }

    pub(super) fn read_output(&mut self, serial: u64, stream: Stream) {
        // The start comes before any output, also when both arrive in one turn.
        self.poll_launch(serial);
        self.read_once(serial, stream);
        self.drop_drained(serial);
    }

    /// True if there was something.
    fn read_once(&mut self, serial: u64, stream: Stream) -> bool {
        let stamp = self.stamp();
        let Some(command) = self.commands.get_mut(serial) else { return false };
        let Some(process) = command.process.as_mut() else { return false };
        let over = command.exit.is_some();
        match process.read(stream, &mut self.scratch) {
            Read::Data(length) => {
                if !over {
                    let data = self.scratch.get(..length).unwrap_or_default();
                    self.commands.record(serial, |ring| ring.push_output(stamp, stream, data));
                }
                true
            }
            Read::Nothing | Read::Closed => false,
        }
    }

    /// Forgets the process of an exited command once nobody holds its pipes any more.
    fn drop_drained(&mut self, serial: u64) {
        if let Some(command) = self.commands.get_mut(serial) {
            let drained = command.process.as_ref().is_some_and(Process::is_drained);
            if drained && command.exit.is_some() {
                command.process = None;
            }
        }
    }

    /// Reaps every child that has ended: commands' leaders, jobs, and orphans that PID 1 inherits.
    pub(super) fn reap(&mut self) {
        loop {
            match rustix::process::wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) => self.reaped(pid, status),
                Err(Errno::INTR) => {}
                Ok(None) | Err(_) => break,
            }
        }
        if let Some(cgroups) = &mut self.setup.cgroups {
            cgroups.children_reaped();
        }
    }

    fn reaped(&mut self, pid: Pid, status: WaitStatus) {
        if status.exit_status().is_none() && status.terminating_signal().is_none() {
            return;
        }
        if let Some(connection) = self.jobs.reaped(pid) {
            self.poll.remove(connection);
            return;
        }
        let Some(serial) = self.commands.pid_reaped(pid) else {
            return self.helper_reaped(pid);
        };
        self.poll_launch(serial);
        let mut more = true;
        for _ in 0..LAST_READS {
            if !std::mem::take(&mut more) {
                break;
            }
            for stream in STREAMS {
                more |= self.read_once(serial, stream);
            }
        }
        let Some(command) = self.commands.get_mut(serial) else { return };
        let failure = command.launch_failure.take();
        let Some(process) = command.process.as_mut() else { return };
        let exit = process.exited(status);
        process.hang_up();
        let group = process.take_group();
        if let (Some(group), Some(cgroups)) = (group, &mut self.setup.cgroups) {
            cgroups.give_back(group);
        }
        self.finish(serial, failure.map_or(exit, failed));
    }

    /// Records the exit, which is the last event.
    fn finish(&mut self, serial: u64, exit: Exit) {
        let stamp = self.stamp();
        if let Some(command) = self.commands.get_mut(serial) {
            command.exit = Some(exit);
            command.exited_at_ms = stamp.at_ms;
        }
        self.commands.record(serial, |ring| ring.push_exit(stamp));
        let writer = self.cancel_stdin_of(serial, |_| true);
        self.drop_drained(serial);
        if let Some(writer) = writer {
            self.refuse(writer.connection, writer.request, RefusalCode::NotRunning.into());
        }
    }

    pub(super) fn expire_commands(&mut self, now: Instant) {
        for command in self.commands.iter_mut() {
            if let Some(process) = command.process.as_mut().filter(|_| command.exit.is_none()) {
                process.expire(now);
            }
        }
    }

    pub(super) fn feed_stdin(
        &mut self,
        serial: u64,
        writer: Writer,
        request: WriteStdinRequest,
    ) -> Result<(), Refused> {
        let command = self.commands.get_mut(serial).ok_or(RefusalCode::NotFound)?;
        let process = command.process.as_mut().filter(|_| command.exit.is_none());
        let process = process.ok_or(RefusalCode::NotRunning)?;
        let written = process.stdin.write(writer, request.offset, request.data, request.eof);
        if written == Written::Later {
            watch_stdin(&self.poll, serial, process);
        }
        self.answer_write(writer, written);
        Ok(())
    }

    /// The pipe of a waiting write can take more.
    pub(super) fn resume_stdin(&mut self, serial: u64) {
        let Some(process) = self.commands.get_mut(serial).and_then(|command| command.process.as_mut()) else {
            return;
        };
        let resumed = process.stdin.resume();
        if !process.stdin.is_waiting() {
            unwatch_stdin(&self.poll, serial, process);
        }
        if let Some((writer, written)) = resumed {
            self.answer_write(writer, written);
        }
    }

    /// A terminal is one descriptor for both directions, so whatever happened on it may be room for more.
    pub(super) fn resume_terminal(&mut self, serial: u64) {
        let process = self.commands.get(serial).and_then(|command| command.process.as_ref());
        if process.is_some_and(|process| process.terminal().is_some() && process.stdin.is_waiting()) {
            self.resume_stdin(serial);
        }
    }

    pub(super) fn resize(&mut self, serial: u64, size: TerminalSize) -> Result<(), Refused> {
        let command = self.commands.get(serial).ok_or(RefusalCode::NotFound)?;
        if command.spec.terminal.is_none() {
            return Err(RefusalCode::NoTerminal.into());
        }
        let process = command.process.as_ref().filter(|_| command.exit.is_none());
        let terminal = process.and_then(Process::terminal).ok_or(RefusalCode::NotRunning)?;
        terminal.resize(size).map_err(|error| Refused::new(RefusalCode::Internal, error.to_string()))
    }

    fn answer_write(&mut self, writer: Writer, written: Written) {
        match written {
            Written::Later => {}
            Written::Done { next_offset } => {
                if let Some(connection) = self.connections.get_mut(&writer.connection) {
                    connection.reply(writer.request, WriteStdinReply { next_offset });
                }
            }
            Written::Refused(code) => self.refuse(writer.connection, writer.request, code.into()),
        }
    }

    /// Forgets waiting writes whose writers are gone.
    pub(super) fn cancel_stdin(&mut self, matches: impl Fn(Writer) -> bool) {
        let serials: Vec<u64> = self.commands.iter().map(|command| command.serial).collect();
        for serial in serials {
            self.cancel_stdin_of(serial, &matches);
        }
    }

    fn cancel_stdin_of(&mut self, serial: u64, matches: impl Fn(Writer) -> bool) -> Option<Writer> {
        let process = self.commands.get_mut(serial)?.process.as_mut()?;
        let writer = process.stdin.cancel(matches)?;
        unwatch_stdin(&self.poll, serial, process);
        Some(writer)
    }
}

fn failed(failure: LaunchFailure) -> Exit {
    Exit { code: i32::from(failure.code), error: failure.text, ..Exit::default() }
}

fn watch(poll: &Poll, serial: u64, process: &Process) -> std::io::Result<()> {
    if let Some(pipe) = process.launch_pipe() {
        poll.add(pipe, Source::Launch(serial), Interest::READ)?;
    }
    for stream in STREAMS {
        if let Some(pipe) = process.output_pipe(stream) {
            poll.add(pipe, Source::Output(serial, stream), Interest::READ)?;
        }
    }
    Ok(())
}

fn watch_stdin(poll: &Poll, serial: u64, process: &Process) {
    if let Some(terminal) = process.terminal() {
        let source = Source::Output(serial, Stream::Stdout);
        return poll.change(terminal.descriptor(), source, Interest::BOTH);
    }
    if let Some(pipe) = process.stdin.pipe()
        && let Err(error) = poll.add(pipe, Source::Stdin(serial), Interest::WRITE)
    {
        crate::log::error(format_args!("cannot watch stdin: {error}"));
    }
}

fn unwatch_stdin(poll: &Poll, serial: u64, process: &Process) {
    if let Some(terminal) = process.terminal() {
        poll.change(terminal.descriptor(), Source::Output(serial, Stream::Stdout), Interest::READ);
    } else if let Some(pipe) = process.stdin.pipe() {
        poll.remove(pipe);
    }
}
