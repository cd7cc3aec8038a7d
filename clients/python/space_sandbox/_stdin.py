"""A command's standard input, written at the pace at which it is read."""

from __future__ import annotations

import threading

from ._generated import Operations, WriteStdin
from .errors import CommandNotRunning, StdinClosed

#: Bytes of one write.
STDIN_PIECE = 32 * 1024


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
