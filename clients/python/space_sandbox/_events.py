"""Event streams that survive their connections.

      connecting ──answer──▶ open ──last event──▶ done
          ▲                   │
          └── pause, resume ◀─┘ lost, or an error that passes

A resumed stream asks with `Last-Event-ID` for what comes after the last event that was handed out, and drops what was
handed out before: whoever iterates sees every event once and in order, whatever the connections did.
"""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Callable

from ._codec import decode
from ._sse import Event, Parser
from ._transport import Backoff, is_worth_repeating, log
from ._wire import Answer
from .errors import ApiError, DeadlineExceeded, ProtocolError, SpaceError, StreamLost, from_problem

#: A connection without a byte for so long is lost; the server writes each 15 s.
SILENCE = 45.0
#: How long a stream that had begun is reconnected, without an event or a good connection between.
PATIENCE = 60.0
#: A connection that lasted so long was a good one, though no event came: a command may be quiet for hours.
GOOD_CONNECTION = 5.0

#: Away for a moment: a command lives in its sandbox, and goes on.
_PASSES = {"node_unavailable", "guest_unavailable", "timeout"}

#: Opens the stream behind the event with this id.
Open = Callable[["str | None"], Answer]


class EventStream:
    """The events of one stream. One thread reads; `close` may come from any."""

    def __init__(self, open_: Open, patience: float, after: str | None = None, *, resumes: bool = True) -> None:
        self._open = open_
        self._resumes = resumes
        self._backoff = Backoff(patience)
        self._lock = threading.Lock()
        self._answer: Answer | None = None
        self._connected_at: float | None = None
        self._parser = Parser()
        self._ready: deque[Event] = deque()
        self._closed = False
        #: Of the last event that was handed out.
        self.position = after

    def next(self, deadline: float | None = None) -> Event:
        """The next event. Raises `DeadlineExceeded` at `deadline` (`time.monotonic()`), and may be asked again."""
        while True:
            try:
                event = self._step(deadline)
                if event.name == "error":
                    raise _stream_error(event)
                if self._is_new(event):
                    return event
            except SpaceError as error:
                self._drop()
                self._count_connection()
                if isinstance(error, DeadlineExceeded) or self._closed or not self._resumes or not passes(error):
                    raise
                if not self._backoff.pause(getattr(error, "retry_after", None), deadline):
                    if deadline is not None and time.monotonic() + 5.0 > deadline:
                        raise DeadlineExceeded("the stream was lost, and not continued in time") from error
                    raise
                log.debug("a stream is continued behind %s: %s", self.position, error)

    def _count_connection(self) -> None:
        connected_at, self._connected_at = self._connected_at, None
        if connected_at is not None and time.monotonic() - connected_at > GOOD_CONNECTION:
            self._backoff.reset(PATIENCE)

    def _step(self, deadline: float | None) -> Event:
        while not self._ready:
            if self._closed:
                raise StreamLost("the stream was closed")
            answer = self._answer or self._connect()
            limits = answer.limits
            limits.silence, limits.deadline = SILENCE, deadline
            try:
                data = answer.piece()
            except DeadlineExceeded:
                raise
            except Exception as error:
                if deadline is not None and time.monotonic() >= deadline:
                    raise DeadlineExceeded("no further event in time") from error
                raise StreamLost(f"the stream broke off: {error}") from error
            if not data:
                raise StreamLost("the stream ended before its last event")
            self._ready.extend(self._parser.push(data))
        return self._ready.popleft()

    def _connect(self) -> Answer:
        answer = self._open(self.position)
        self._connected_at = time.monotonic()
        self._parser = Parser()
        with self._lock:
            self._answer = answer
            if not self._closed:
                return answer
        self._drop()
        raise StreamLost("the stream was closed")

    def _is_new(self, event: Event) -> bool:
        if event.id is None:
            return True
        if self.position is not None and order(event.id) <= order(self.position):
            return False
        self.position = event.id
        # Only what is new is progress: a server that repeats itself for ever is given up.
        self._backoff.reset(PATIENCE)
        return True

    def _drop(self) -> None:
        self._ready.clear()
        with self._lock:
            answer, self._answer = self._answer, None
        if answer is not None:
            answer.close()

    def close(self) -> None:
        """Lets go. What the stream is about goes on."""
        self._closed = True
        self._drop()


def order(position: str) -> tuple[int, ...]:
    """`<generation>.<sequence>` of a command, or the number of an event in the log."""
    try:
        return tuple(int(number) for number in position.split("."))
    except ValueError as error:
        raise ProtocolError(f"the stream has an event called {position!r}") from error


def passes(error: SpaceError) -> bool:
    """Whether the stream may be continued behind it."""
    return is_worth_repeating(error) or (isinstance(error, ApiError) and error.code in _PASSES)


def _stream_error(event: Event) -> SpaceError:
    from ._generated import StreamError

    return from_problem(decode(StreamError, parse(event)).problem)


def parse(event: Event) -> object:
    """An event's data."""
    try:
        value: object = json.loads(event.data)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"a `{event.name}` event is not readable") from error
    return value
