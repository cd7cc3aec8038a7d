"""Commands: started, followed, waited for. `Sandbox.run` does all of it in one call."""

from __future__ import annotations

import codecs
import time
import uuid
from collections import deque
from collections.abc import Callable

from ._codec import decode
from ._events import EventStream, parse
from ._generated import CommandCreated, CreateCommand, Exit, Gap, Operations, SignalCommand, Started
from ._generated import Output as _Output
from ._output import Chunk, CommandEvent, Result
from ._sse import Event
from ._stdin import Stdin
from ._wire import Answer
from .errors import OutputLost, OutputTooLarge, SpaceError

#: Bytes of output that `run` and `wait` keep, unless told otherwise.
MAX_OUTPUT = 64 * 1024 * 1024

OnText = Callable[[str], object]


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


def _teller(callback: OnText | None) -> Callable[[bytes, bool], None]:
    decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def tell(data: bytes, final: bool) -> None:
        if callback is not None and (text := decoder.decode(data, final)):
            callback(text)

    return tell
