"""Terminals: a command over one WebSocket, in both directions, across lost connections.

      connecting ──101──▶ open ──exit──▶ done
          ▲                │
          └── pause ◀──────┘ lost, or an error that passes

A new connection asks for what comes behind the last event that was handed out, and sends again what the command has not
said to have taken, with its offset: nothing is lost or doubled either way.
"""

from __future__ import annotations

import socket
import threading
import time
from collections import deque
from typing import Union

from . import _terminal_messages as messages
from ._events import PATIENCE, SILENCE, order, passes
from ._generated import CommandCreated, Exit, Gap, Operations, SignalCommand, Started, WriteStdin
from ._output import Result
from ._terminal_messages import Failed, Refused, Taken
from ._transport import Backoff, Transport, log, segment
from ._typed import Typed
from ._websocket import NORMAL, PROTOCOL, TOO_LARGE, Message, Opcode, WebSocket
from .commands import MAX_OUTPUT
from .errors import (
    DeadlineExceeded,
    OutputLost,
    OutputTooLarge,
    ProtocolError,
    SpaceError,
    StreamLost,
    from_problem,
)

#: As `space shell` does it: the login shell of the user, unless it is one that only says no.
LOGIN_SHELL = [
    "/bin/sh",
    "-c",
    "s=${SHELL:-}\n"
    "case $s in */nologin|*/false) s= ;; esac\n"
    '[ -x "$s" ] || s=/bin/bash\n'
    '[ -x "$s" ] || s=/bin/sh\n'
    'exec "$s" -l',
]

#: What iterating a terminal gives: output as it comes, and between it what was lost or refused; `Exit` is the last.
TerminalEvent = Union[bytes, Gap, Refused, Exit]


class Terminal:
    """A command on a terminal. Iterating it gives its events; `read`, `read_until` and `wait` are for its output.

    Closing, or losing, this object neither stops nor blocks the command; `Sandbox.attach` comes back to it. One thread
    reads; writing, sizes, signals and `close` are for any.
    """

    def __init__(
        self, transport: Transport, sandbox: str, command: str, *, offset: int, after: str | None = None
    ) -> None:
        self._transport = transport
        self._operations = Operations(transport)
        self._sandbox = sandbox
        self.id = command
        #: Process id inside the sandbox, once it is known.
        self.pid: int | None = None
        #: How it ended, once that was read.
        self.exit: Exit | None = None
        #: Of the last event that was read; `Sandbox.attach(id, after=…)` goes on behind it.
        self.position = after
        self._ready: deque[TerminalEvent] = deque()
        self._backoff = Backoff(transport.patience)
        # What any thread may ask for, under a lock that nobody holds for long.
        self._lock = threading.Lock()
        self._typed = Typed(offset)
        self._size: tuple[int, int] | None = None
        self._size_due = False
        self._eof = False
        self._eof_due = False
        self._closed = False
        # The socket, for whoever holds `_using`. The pair wakes up who waits on it.
        self._using = threading.Lock()
        self._socket: WebSocket | None = None
        self._opened = self._heard = 0.0
        self._woken, self._waker = socket.socketpair()
        self._woken.setblocking(False)
        self._waker.setblocking(False)

    @classmethod
    def start(cls, transport: Transport, sandbox: str, made: CommandCreated) -> Terminal:
        """Starts a command that was made, and returns when it runs, or has failed to."""
        terminal = cls(transport, sandbox, made.command.id, offset=0)
        try:
            while terminal.pid is None and not terminal._ready:
                terminal._step(None)
        except BaseException:
            terminal.close()
            raise
        return terminal

    @classmethod
    def attach(cls, transport: Transport, sandbox: str, command: str, after: str | None) -> Terminal:
        # An empty write at the beginning is answered with how far things are.
        asked = WriteStdin(offset=0, data=b"")
        offset = Operations(transport).command_stdin(sandbox, command, asked).next_offset
        return cls(transport, sandbox, command, offset=offset, after=after)

    # What any thread may do.

    def write(self, data: str | bytes) -> None:
        """Types. Ctrl-C is `"\\x03"`, the end of input `"\\x04"`. Does not wait for the command to read it; raises
        `TooLarge` where it leaves more than a MiB unread."""
        if self._closed:
            raise ValueError("the terminal is closed")
        with self._lock:
            self._typed.push(data.encode() if isinstance(data, str) else data)
        self._settle()

    def resize(self, rows: int, columns: int) -> None:
        """What runs in the foreground is told. The latest size holds, also on the next connection."""
        with self._lock:
            self._size, self._size_due = (rows, columns), True
        self._settle()

    def send_signal(self, signal: str | int) -> None:
        """To the process group of the command's leader. What Ctrl-C means is typed."""
        value = signal.removeprefix("SIG") if isinstance(signal, str) else int(signal)
        self._operations.command_signal(self._sandbox, self.id, SignalCommand(signal=value))

    def terminate(self) -> None:
        self.send_signal("TERM")

    def kill(self) -> None:
        self.send_signal("KILL")

    def close_input(self) -> None:
        """For a program that is fed: the end-of-file character if it reads by lines. Nothing can be typed afterwards."""
        with self._lock:
            self._eof = self._eof_due = True
        self._settle()

    def close(self) -> None:
        """Stops reading. The command goes on."""
        self._closed = True
        self._settle()

    # What the thread that reads does.

    def __iter__(self) -> Terminal:
        return self

    def __next__(self) -> TerminalEvent:
        event = self.next()
        if event is None:
            raise StopIteration
        return event

    def next(self, timeout: float | None = None) -> TerminalEvent | None:
        """The next event, or `None` after `Exit`. Raises `DeadlineExceeded` when none comes within `timeout` seconds;
        the command goes on, and this can be called again."""
        return self._next(None if timeout is None else time.monotonic() + timeout)

    def read(self, timeout: float | None = None) -> bytes:
        """The next output; empty at the end, and only there."""
        return self._output(None if timeout is None else time.monotonic() + timeout, b"") or b""

    def read_until(self, text: str | bytes, timeout: float | None = None, *, max_output: int = MAX_OUTPUT) -> str:
        """All output up to this text, and with it. Raises `EOFError` when the command ends before, `DeadlineExceeded`
        after `timeout` seconds without a byte lost, and `OutputTooLarge` beyond `max_output` bytes."""
        wanted = text.encode() if isinstance(text, str) else text
        data = self._gather(timeout, wanted, max_output)
        end = data.find(wanted)
        if end < 0:
            raise EOFError(f"the command ended before {text!r}; the last it said was {data[-300:]!r}")
        end += len(wanted)
        if data[end:]:
            self._ready.appendleft(data[end:])
        return data[:end].decode("utf-8", "replace")

    def wait(self, timeout: float | None = None, *, max_output: int = MAX_OUTPUT) -> Result:
        """Reads to the end, and answers what was not read before. The limits are those of `read_until`."""
        data = self._gather(timeout, None, max_output)
        return self._result(data)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Terminal {self.id} of {self._sandbox}>"

    def _next(self, deadline: float | None) -> TerminalEvent | None:
        while not self._ready:
            if self.exit is not None:
                return None
            self._step(deadline)
        event = self._ready.popleft()
        if isinstance(event, Exit):
            self.exit = event
            self.close()
        return event

    def _output(self, deadline: float | None, before: bytes) -> bytes | None:
        """The next output, or `None` at the end; `before` is what a caller has of it already."""
        while (event := self._next(deadline)) is not None:
            if isinstance(event, bytes):
                return event
            if isinstance(event, Gap):
                lost = f"{event.stdout_bytes} bytes of output were lost: they came faster than they were read"
                raise OutputLost(lost, self._result(before))
            if isinstance(event, Refused) and event.wish == "input":
                raise from_problem(event.problem)
            # A size or a signal that was refused: the next one is as good.
        return None

    def _gather(self, timeout: float | None, wanted: bytes | None, limit: int) -> bytes:
        """Output until there is what is wanted in it, or to the end. What an error interrupts is there to be read."""
        deadline = None if timeout is None else time.monotonic() + timeout
        data, searched = bytearray(), 0
        try:
            while wanted is None or data.find(wanted, searched) < 0:
                # It may have begun at the end of what there was.
                searched = max(0, len(data) - len(wanted or b"") + 1)
                piece = self._output(deadline, bytes(data))
                if piece is None:
                    break
                data += piece
                if len(data) > limit:
                    raise OutputTooLarge(f"the command wrote more than {limit} bytes", self._result(bytes(data)))
        except DeadlineExceeded:
            if data:
                self._ready.appendleft(bytes(data))
            raise
        return bytes(data)

    def _result(self, data: bytes) -> Result:
        return Result(self.id, self.exit or Exit(), data, b"")

    def _step(self, deadline: float | None) -> None:
        """Takes what comes next, and connects again where that is lost."""
        try:
            with self._using:
                self._receive(deadline)
        except SpaceError as error:
            self._give_up_or_pause(error, deadline)
        finally:
            self._settle()

    def _receive(self, deadline: float | None) -> None:
        if self._closed:
            raise StreamLost("the terminal was closed")
        sock = self._socket or self._connect()
        self._send_due(sock)
        until = self._heard + SILENCE
        now = time.monotonic()
        came = sock.receive((until if deadline is None else min(until, deadline)) - now, self._woken)
        if came is not None:
            self._heard = time.monotonic()
            for message in came:
                self._take(message)
            return
        self._sleep_again()
        now = time.monotonic()
        if deadline is not None and now >= deadline:
            raise DeadlineExceeded("nothing further of the terminal in time")
        if now >= until:
            raise StreamLost("the connection of the terminal is silent")

    def _connect(self) -> WebSocket:
        path = f"/v1/sandboxes/{segment(self._sandbox)}/commands/{segment(self.id)}/terminal"
        query = {"input_offset": self._typed.offset, "after": self.position}
        sock = self._transport.upgrade(path, query=query, protocol=messages.PROTOCOL)
        with self._lock:
            self._typed.rewind()
            self._size_due, self._eof_due = self._size is not None, self._eof
        self._socket = sock
        self._opened = self._heard = time.monotonic()
        return sock

    def _take(self, message: Message) -> None:
        if message.opcode == Opcode.CLOSE:
            if PROTOCOL <= message.code <= TOO_LARGE:
                raise ProtocolError(f"the server closed the terminal with {message.code}: {message.reason}")
            raise StreamLost(f"the server closed the terminal with {message.code}")
        told = messages.read(message)
        if told is None:
            return
        position, what = told
        if position is not None and not self._is_new(position):
            return
        if isinstance(what, Failed):
            raise from_problem(what.problem)
        if isinstance(what, Started):
            self.pid = what.pid
        elif isinstance(what, Taken):
            self._backoff.reset(PATIENCE)
            with self._lock:
                self._typed.taken(what.next_offset)
        else:
            if isinstance(what, Refused) and what.wish == "input":
                with self._lock:
                    self._typed.close()
            self._ready.append(what)

    def _is_new(self, position: str) -> bool:
        if self.position is not None and order(position) <= order(self.position):
            return False
        self.position = position
        # Only what is new is progress: a server that repeats itself for ever is given up.
        self._backoff.reset(PATIENCE)
        return True

    def _give_up_or_pause(self, error: SpaceError, deadline: float | None) -> None:
        if isinstance(error, DeadlineExceeded) and self._socket is not None:
            # The connection is as good as before.
            raise error
        with self._using:
            if self._socket is not None and time.monotonic() - self._opened > SILENCE:
                # One that lasted is progress, too.
                self._backoff.reset(PATIENCE)
            self._drop()
        if self._ready:
            # What came before is read first.
            return
        if self._closed or not passes(error):
            raise error
        if not self._backoff.pause(getattr(error, "retry_after", None), deadline):
            if deadline is not None and time.monotonic() + 5.0 > deadline:
                raise DeadlineExceeded("the terminal was lost, and not found again in time") from error
            raise error
        log.debug("the terminal of %s is continued behind %s: %s", self.id, self.position, error)

    # What whoever holds the socket does.

    def _settle(self) -> None:
        """Does what is due, or wakes up who has the socket and will: the last to let go of it looks again."""
        while self._is_due():
            if not self._using.acquire(blocking=False):
                self._wake()
                return
            try:
                if self._closed:
                    self._drop()
                    self._woken.close()
                    self._waker.close()
                elif self._socket is not None:
                    self._send_due(self._socket)
            except StreamLost:
                # Whoever reads connects again.
                self._drop()
            finally:
                self._using.release()

    def _is_due(self) -> bool:
        if self._closed:
            return self._woken.fileno() >= 0
        with self._lock:
            asked = self._size_due or self._eof_due or self._typed.has_unsent()
        return asked and self._socket is not None

    def _send_due(self, sock: WebSocket) -> None:
        with self._lock:
            if self._size_due and self._size is not None:
                sock.send(Opcode.TEXT, messages.resize(*self._size))
            self._size_due = False
            while piece := self._typed.take_unsent():
                sock.send(Opcode.BINARY, piece)
            if self._eof_due:
                sock.send(Opcode.TEXT, messages.eof())
            self._eof_due = False

    def _drop(self) -> None:
        sock, self._socket = self._socket, None
        if sock is not None:
            sock.close(NORMAL)

    def _wake(self) -> None:
        try:
            self._waker.send(b"\0")
        except (BlockingIOError, OSError):
            # There are enough of them, or nobody is left.
            pass

    def _sleep_again(self) -> None:
        try:
            self._woken.recv(4096)
        except BlockingIOError:
            pass
