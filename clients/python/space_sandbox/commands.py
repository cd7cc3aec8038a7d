"""Commands: run to their end, or started and followed."""

from __future__ import annotations

import codecs
import math
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Union

from ._codec import decode
from ._events import EventStream, parse
from ._generated import (
    CommandCreated,
    CreateCommand,
    Exit,
    Gap,
    Operations,
    SignalCommand,
    Started,
    WriteStdin,
)
from ._generated import Output as _Output
from ._sse import Event
from ._wire import Answer, is_file
from .errors import (
    CommandFailed,
    CommandNotRunning,
    CommandTimedOut,
    OutputLost,
    OutputTooLarge,
    SpaceError,
    StdinClosed,
)

#: Bytes of one write to standard input.
STDIN_PIECE = 32 * 1024
#: Bytes of output that `run` and `wait` keep, unless told otherwise.
MAX_OUTPUT = 64 * 1024 * 1024

Argv = Union[str, Sequence[str]]
Input = Union[str, bytes, IO[bytes]]
OnText = Callable[[str], object]


@dataclass(frozen=True)
class Chunk:
    """A piece of output, as the command wrote it. It may end in the middle of a character."""

    #: `stdout` or `stderr`.
    stream: str
    #: Of the first byte, within its stream.
    offset: int
    data: bytes


#: What iterating a command gives. `Gap` stands where output was lost; `Exit` is the last.
CommandEvent = Union[Chunk, Gap, Exit]


@dataclass(frozen=True)
class Result:
    """What a command came to."""

    command_id: str
    exit: Exit
    stdout_bytes: bytes
    stderr_bytes: bytes

    @property
    def stdout(self) -> str:
        """As UTF-8; what is not becomes U+FFFD. `stdout_bytes` is exact."""
        return self.stdout_bytes.decode("utf-8", "replace")

    @property
    def stderr(self) -> str:
        return self.stderr_bytes.decode("utf-8", "replace")

    @property
    def exit_code(self) -> int:
        """As a shell has it: 128 and the signal for a command that was killed; 255 where it is not known."""
        if self.exit.signal is not None:
            return 128 + self.exit.signal
        return 255 if self.exit.code is None else self.exit.code

    @property
    def timed_out(self) -> bool:
        return self.exit.timed_out


def specification(
    command: Argv,
    *,
    cwd: str | None,
    env: Mapping[str, str] | None,
    user: str | None,
    timeout: float | None,
    stdin: bool,
) -> CreateCommand:
    """What the API is asked for. A string is for `sh -c`; a sequence is a program and its arguments."""
    argv = ["sh", "-c", command] if isinstance(command, str) else [str(word) for word in command]
    if timeout is not None and not 0 < timeout < math.inf:
        raise ValueError("timeout must be a positive number of seconds")
    seconds = None if timeout is None else math.ceil(timeout)
    return CreateCommand(
        argv=argv, cwd=cwd, env=dict(env) if env else None, user=user, timeout_seconds=seconds, stdin=stdin or None
    )


class _Source:
    """Where a command's events come from: `exec` until it has a name, then its attachment."""

    def __init__(self, operations: Operations, sandbox: str, body: CreateCommand | None, command: str | None) -> None:
        self._operations = operations
        self._sandbox = sandbox
        self._body = body
        self._key = uuid.uuid4().hex
        self.command = command

    def open(self, position: str | None) -> Answer:
        if self.command is None and self._body is not None:
            # The same key each time: a repeated request meets the same command.
            return self._operations.exec(self._sandbox, self._body, idempotency_key=self._key)
        return self._operations.command_attach(self._sandbox, self.command or "", last_event_id=position)


class Stdin:
    """A command's standard input. For any number of threads."""

    def __init__(self, operations: Operations, sandbox: str, command: str, offset: int | None) -> None:
        self._operations = operations
        self._sandbox = sandbox
        self._command = command
        self._lock = threading.Lock()
        self._offset = offset

    def write(self, data: str | bytes) -> int:
        """Waits until the command, or the buffer before it, has taken all of it. Raises `StdinClosed` or
        `CommandNotRunning` when nobody will."""
        data = data.encode() if isinstance(data, str) else data
        with self._lock:
            for at in range(0, len(data), STDIN_PIECE):
                self._send(data[at : at + STDIN_PIECE], eof=False)
        return len(data)

    def close(self) -> None:
        """The command reads the end. Closing twice, or what nobody reads, is no error."""
        with self._lock:
            try:
                self._send(b"", eof=True)
            except (StdinClosed, CommandNotRunning):
                pass

    def _send(self, data: bytes, *, eof: bool) -> None:
        if self._offset is None:
            # Somebody else may have written before.
            self._offset = self._write(WriteStdin(offset=0, data=b""))
        pause = 0.02
        while True:
            taken = self._write(WriteStdin(offset=self._offset, data=data, eof=eof or None)) - self._offset
            taken = max(0, min(taken, len(data)))
            self._offset += taken
            data = data[taken:]
            if not data:
                return
            # It reads slowly, and there is no event for room.
            pause = 0.02 if taken else min(pause * 2, 1.0)
            threading.Event().wait(pause)

    def _write(self, body: WriteStdin) -> int:
        return self._operations.command_stdin(self._sandbox, self._command, body).next_offset


class Command:
    """A command in a sandbox. Iterating it gives its events, each once and in order, across lost connections.

    Closing, or losing, this object neither stops nor blocks the command; `Sandbox.command` finds it again. One thread
    iterates or waits; `stdin`, signals and `close` are for any.
    """

    def __init__(
        self,
        operations: Operations,
        sandbox: str,
        patience: float,
        *,
        body: CreateCommand | None = None,
        command: str | None = None,
        after: str | None = None,
    ) -> None:
        self._operations = operations
        self._sandbox = sandbox
        self._source = _Source(operations, sandbox, body, command)
        self._stream = EventStream(self._source.open, patience, after)
        self._pending: deque[CommandEvent] = deque()
        # Where each stream goes on; None where that is not known.
        start = 0 if after is None else None
        self._next_offset: dict[str, int | None] = {"stdout": start, "stderr": start}
        self._gathered: dict[str, list[bytes]] = {"stdout": [], "stderr": []}
        self._length = 0
        self._lost = False
        #: Process id inside the sandbox, once it is known.
        self.pid: int | None = None
        #: How it ended, once that was read.
        self.exit: Exit | None = None
        if command is None:
            self._begin()
        self.stdin = Stdin(operations, sandbox, self.id, 0 if command is None else None)

    @property
    def id(self) -> str:
        return self._source.command or ""

    @property
    def position(self) -> str | None:
        """Of the last event that was read; `Sandbox.command(id, after=…)` goes on behind it."""
        return self._stream.position

    def _begin(self) -> None:
        """Until it runs, or has failed to."""
        try:
            while self.pid is None and not self._pending:
                self._pending.extend(self._read(None))
        except BaseException:
            self.close()
            raise

    def __iter__(self) -> Command:
        return self

    def __next__(self) -> CommandEvent:
        event = self.next()
        if event is None:
            raise StopIteration
        return event

    def next(self, timeout: float | None = None) -> CommandEvent | None:
        """The next event, or `None` after `Exit`. Raises `DeadlineExceeded` when none comes within `timeout` seconds;
        the command goes on, and this can be called again."""
        return self._next(None if timeout is None else time.monotonic() + timeout)

    def _next(self, deadline: float | None) -> CommandEvent | None:
        while not self._pending:
            if self.exit is not None:
                return None
            self._pending.extend(self._read(deadline))
        event = self._pending.popleft()
        if isinstance(event, Exit):
            self.exit = event
            self.close()
        return event

    def _read(self, deadline: float | None) -> list[CommandEvent]:
        event = self._stream.next(deadline)
        if event.name in ("stdout", "stderr"):
            return self._output(event)
        if event.name == "gap":
            self._next_offset = {"stdout": None, "stderr": None}
            return [decode(Gap, parse(event))]
        if event.name == "exit":
            return [decode(Exit, parse(event))]
        if event.name == "started":
            self.pid = decode(Started, parse(event)).pid
        elif event.name == "command":
            self._source.command = decode(CommandCreated, parse(event)).command.id
        # Others are a later server's.
        return []

    def _output(self, event: Event) -> list[CommandEvent]:
        """A piece of output, cut to what is new; a hole before it that nobody told of becomes a `Gap`."""
        output = decode(_Output, parse(event))
        expected = self._next_offset[event.name]
        known = output.offset if expected is None else expected
        end = output.offset + len(output.data)
        self._next_offset[event.name] = max(known, end)
        if end <= known:
            return []
        events: list[CommandEvent] = []
        if output.offset > known:
            hole = output.offset - known
            lost = {"stdout_bytes": 0, "stderr_bytes": 0, f"{event.name}_bytes": hole}
            events.append(Gap(first_lost=0, last_lost=0, **lost))
        skip = max(0, known - output.offset)
        return [*events, Chunk(event.name, output.offset + skip, output.data[skip:])]

    def wait(
        self,
        timeout: float | None = None,
        *,
        on_stdout: OnText | None = None,
        on_stderr: OnText | None = None,
        max_output: int | None = MAX_OUTPUT,
    ) -> Result:
        """Reads to the end, and answers what was not iterated before.

        `timeout` is how long to wait here, in seconds; then comes `DeadlineExceeded`, the command goes on, and `wait`
        can be called again without a byte lost. The callbacks get text as it comes, whole characters at a time.
        Raises `OutputLost` at the end if some of the output was, and `OutputTooLarge` beyond `max_output` bytes (the
        command is killed then; `None` is no limit).
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        tell = {"stdout": _teller(on_stdout), "stderr": _teller(on_stderr)}
        while (event := self._next(deadline)) is not None:
            if isinstance(event, Chunk):
                tell[event.stream](event.data, False)
                self._gather(event, max_output)
            elif isinstance(event, Gap):
                self._lost = True
        for end in tell.values():
            end(b"", True)
        result = self._result()
        if self._lost:
            raise OutputLost("some output was lost: it came faster than it was read", result)
        return result

    def _gather(self, chunk: Chunk, limit: int | None) -> None:
        self._gathered[chunk.stream].append(chunk.data)
        self._length += len(chunk.data)
        if limit is not None and self._length > limit:
            self._kill_quietly()
            self.close()
            raise OutputTooLarge(f"the command wrote more than {limit} bytes", self._result())

    def _result(self) -> Result:
        stdout, stderr = (b"".join(self._gathered[name]) for name in ("stdout", "stderr"))
        return Result(self.id, self.exit or Exit(), stdout, stderr)

    def send_signal(self, signal: str | int) -> None:
        """To the command's process group: `"INT"`, `"SIGINT"`, `2` or `signal.SIGINT`."""
        value = signal.removeprefix("SIG") if isinstance(signal, str) else int(signal)
        self._operations.command_signal(self._sandbox, self.id, SignalCommand(signal=value))

    def terminate(self) -> None:
        self.send_signal("TERM")

    def kill(self) -> None:
        self.send_signal("KILL")

    def _kill_quietly(self) -> None:
        try:
            self.kill()
        except SpaceError:
            pass

    def close(self) -> None:
        """Stops reading. The command goes on."""
        self._stream.close()

    def __enter__(self) -> Command:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Command {self.id} of {self._sandbox}>"


def run(
    command: Command,
    *,
    stdin: Input | None,
    check: bool,
    on_stdout: OnText | None,
    on_stderr: OnText | None,
    max_output: int | None,
) -> Result:
    """A started command to its end. One that is left by an exception is killed, as `subprocess.run` does."""
    feeder = _Feeder(command, stdin) if stdin is not None else None
    try:
        result = command.wait(on_stdout=on_stdout, on_stderr=on_stderr, max_output=max_output)
    except OutputLost:
        raise
    except BaseException:
        command._kill_quietly()
        raise
    finally:
        command.close()
    if feeder is not None:
        feeder.finish()
    if result.timed_out:
        raise CommandTimedOut("the command's time was up", result)
    if check and result.exit_code != 0:
        raise CommandFailed(_failure(result), result)
    return result


def _failure(result: Result) -> str:
    reason = result.exit.error or (result.stderr.strip().splitlines() or [""])[-1][:300]
    return f"exit code {result.exit_code}" + (f": {reason}" if reason else "")


class _Feeder:
    """Writes standard input while the output is read: each could wait for the other."""

    def __init__(self, command: Command, source: Input) -> None:
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._feed, args=(command, source), name="space-stdin", daemon=True)
        self._thread.start()

    def _feed(self, command: Command, source: Input) -> None:
        stdin = command.stdin
        try:
            if isinstance(source, (str, bytes)):
                stdin.write(source)
            elif is_file(source):
                while piece := source.read(STDIN_PIECE):
                    stdin.write(piece)
            stdin.close()
        except (StdinClosed, CommandNotRunning):
            # It ended without having read everything, which is its right.
            pass
        except BaseException as error:
            # Else the command would wait for the rest.
            self._error = error
            command._kill_quietly()

    def finish(self) -> None:
        """Raises what went wrong. A source that still blocks is left to itself: nobody reads any more."""
        self._thread.join(1.0)
        if self._error is not None:
            raise self._error


def _teller(callback: OnText | None) -> Callable[[bytes, bool], None]:
    decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def tell(data: bytes, final: bool) -> None:
        if callback is not None and (text := decoder.decode(data, final)):
            callback(text)

    return tell
