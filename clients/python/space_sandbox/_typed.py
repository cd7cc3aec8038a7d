"""Input that was written and not yet said to be taken: what a new connection begins with."""

from __future__ import annotations

from ._stdin import STDIN_PIECE
from .errors import TooLarge

#: Bytes that may wait to be taken: a terminal is typed at, not fed.
LIMIT = 1024 * 1024


class Typed:
    def __init__(self, offset: int) -> None:
        #: Of the first byte that is kept, from the command's start.
        self.offset = offset
        self._bytes = bytearray()
        self._sent = 0
        self._closed = False

    def __len__(self) -> int:
        return len(self._bytes)

    def push(self, data: bytes) -> None:
        if self._closed:
            return
        if len(self._bytes) + len(data) > LIMIT:
            raise TooLarge(f"the command has not taken {len(self._bytes)} bytes yet, and at most {LIMIT} are kept for it")
        self._bytes += data

    def has_unsent(self) -> bool:
        return self._sent < len(self._bytes)

    def take_unsent(self) -> bytes:
        """The next message; empty when there is none."""
        piece = bytes(self._bytes[self._sent : self._sent + STDIN_PIECE])
        self._sent += len(piece)
        return piece

    def taken(self, next_offset: int) -> None:
        """All before `next_offset` is the command's. More than was sent here is somebody else's."""
        taken = max(0, min(next_offset - self.offset, self._sent))
        del self._bytes[:taken]
        self._sent -= taken
        self.offset = max(self.offset, next_offset)

    def rewind(self) -> None:
        """There is a new connection, which has seen nothing."""
        self._sent = 0

    def close(self) -> None:
        """Nobody takes any."""
        self._closed = True
        self._bytes.clear()
        self._sent = 0
