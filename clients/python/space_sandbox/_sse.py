"""`text/event-stream` as events (WHATWG HTML, "Server-sent events"). Pure: bytes in, events out, however they are cut."""

from __future__ import annotations

from typing import NamedTuple

from .errors import ProtocolError

#: Bytes that one event may have: above anything that a server of ours sends.
LIMIT = 1024 * 1024


class Event(NamedTuple):
    name: str
    data: str
    #: The last `id:` of the stream; an event without one of its own keeps the one before.
    id: str | None


class Parser:
    """Comments are signs of life and give no event; reading them is enough for that."""

    def __init__(self) -> None:
        self._buffer = b""
        self._after_return = False
        self._at_start = True
        self._name = ""
        self._data: list[str] = []
        self._length = 0
        self._id: str | None = None

    def push(self, data: bytes) -> list[Event]:
        """Takes the next bytes; answers the events that they complete."""
        if self._after_return and data:
            self._after_return = False
            # The second half of a line's end.
            data = data[1:] if data.startswith(b"\n") else data
        lines = (self._buffer + data).replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        self._after_return = data.endswith(b"\r")
        self._buffer = lines.pop()
        events = []
        for line in lines:
            event = self._line(line.decode("utf-8", "replace"))
            if event is not None:
                events.append(event)
            self._check(0)
        self._check(len(self._buffer))
        return events

    def _check(self, more: int) -> None:
        if self._length + more > LIMIT:
            raise ProtocolError(f"an event of the stream has more than {LIMIT} bytes")

    def _line(self, line: str) -> Event | None:
        if self._at_start:
            self._at_start = False
            line = line.removeprefix("\ufeff")
        if not line:
            return self._end()
        if line.startswith(":"):
            return None
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "event":
            self._name = value
        elif field == "data":
            self._data.append(value)
            self._length += len(value) + 1
        elif field == "id" and "\0" not in value:
            self._id = value
        # `retry` is the server's wish; this client has a schedule of its own.
        return None

    def _end(self) -> Event | None:
        name, data = self._name or "message", self._data
        self._name, self._data, self._length = "", [], 0
        return Event(name, "\n".join(data), self._id) if data else None
