"""One call: sent, answered, repeated where that can do no harm.

| limit | what it limits | then |
|---|---|---|
| `connect_timeout` | opening a connection | `Unreachable` |
| `answer_timeout` | one whole answer, beyond what the call asks the server to wait; for files five minutes more | `DeadlineExceeded` |
| `silence` (60 s) | a transfer on which no byte moves | `StreamLost` |
| `patience` | how long a call is repeated | the error of its last attempt |
"""

from __future__ import annotations

import http.client
import json
import logging
import random
import ssl
import threading
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from typing import IO, TYPE_CHECKING, TypedDict, Union
from urllib.parse import quote, urlsplit

from ._codec import decode, encode
from ._version import VERSION
from ._websocket import WebSocket, accept, new_key
from ._wire import Address, Answer, Connection, Pool, is_file, pieces
from .errors import (
    ApiError,
    DeadlineExceeded,
    ProtocolError,
    SpaceError,
    StreamLost,
    TooLarge,
    Unreachable,
    from_problem,
)

if TYPE_CHECKING:
    # Python has it by itself from 3.11 on.
    from typing_extensions import Unpack

log = logging.getLogger("space_sandbox")

#: Content to send: bytes, a binary file, or pieces of bytes.
Content = Union[bytes, IO[bytes], Iterable[bytes]]
Query = Mapping[str, object]

JSON = "application/json"
EVENTS = "text/event-stream"

#: Bytes of a JSON answer; the largest page of a directory is well below.
ANSWER_LIMIT = 32 * 1024 * 1024
PIECE = 256 * 1024
#: Seconds without a byte after which a transfer is lost: longer than the server waits for a sandbox.
SILENCE = 60.0

#: The server was in no state to answer, whatever was asked.
_ABOUT_THE_SERVER = {"unavailable", "shutting_down", "idempotency_key_in_use", "rate_limited"}
_GATEWAY = {502, 503, 504}
_BROKEN = (OSError, http.client.HTTPException)


class Backoff:
    """Pauses that double, from 0.1 s to 5 s, until patience ends; at least as long as the server asked for."""

    def __init__(self, patience: float) -> None:
        self.patience = patience
        self.reset()

    def reset(self, patience: float | None = None) -> None:
        self.patience = self.patience if patience is None else patience
        self._next = 0.1
        self._since: float | None = None

    def pause(self, at_least: float | None = None, until: float | None = None) -> bool:
        """Waits for the next attempt. False: give up; nothing was waited for."""
        now = time.monotonic()
        self._since = self._since or now
        # Clients that lost the same server don't come back in step.
        pause = max(self._next * random.uniform(0.5, 1.0), at_least or 0.0)
        self._next = min(self._next * 2, 5.0)
        if now - self._since + pause > self.patience or (until is not None and now + pause > until):
            return False
        # An event that nobody sets: a pause that signals interrupt.
        threading.Event().wait(pause)
        return True


def is_worth_repeating(error: SpaceError) -> bool:
    """Whether the same request, sent again soon, may well be answered."""
    if isinstance(error, ApiError):
        return error.code in _ABOUT_THE_SERVER
    if isinstance(error.__cause__, ssl.SSLCertVerificationError):
        return False
    return isinstance(error, (Unreachable, StreamLost))


def segment(text: str) -> str:
    """One piece of a path."""
    return quote(text, safe="")


class Request(TypedDict, total=False):
    """What a call may have beside its method and path."""

    query: Query | None
    headers: Mapping[str, object] | None
    #: A model, sent as JSON.
    body: object
    #: Or bytes of this `content_type`. What is no `bytes` is never sent twice.
    content: Content | None
    content_type: str
    #: Whether it may be sent again.
    repeat: bool
    #: Seconds more than usual that the answer may take.
    extra: float


class Transport:
    """The way to one API, for any number of threads."""

    def __init__(
        self,
        url: str,
        key: str | None,
        *,
        tls: ssl.SSLContext | None = None,
        connect_timeout: float = 10.0,
        answer_timeout: float = 30.0,
        patience: float = 5.0,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.username:
            raise ValueError(f"{url!r} is not the address of an API; one looks like http://127.0.0.1:8700")
        if key is not None and not (key.isascii() and key.isprintable() and key):
            raise ValueError("the key is not one: it has characters that no key has")
        secure = parts.scheme == "https"
        context = (tls or ssl.create_default_context()) if secure else None
        port = parts.port or (443 if secure else 80)
        self.url = url.rstrip("/")
        self.patience = patience
        self.answer_timeout = answer_timeout
        self._prefix = parts.path.rstrip("/")
        self._host = parts.netloc
        self._key = key
        self._pool = Pool(Address(parts.hostname, port, context, connect_timeout))

    def close(self) -> None:
        self._pool.close()

    def call(self, method: str, path: str, **request: Unpack[Request]) -> tuple[int, object]:
        """A call that JSON answers, or nothing: status and what was parsed."""
        with self.open(method, path, accept=JSON, **request) as answer:
            try:
                return answer.status, _parse(_whole(answer))
            except _BROKEN as error:
                raise self._broken(error) from error

    def open(self, method: str, path: str, *, accept: str, **request: Unpack[Request]) -> Answer:
        """A call whose answer the caller reads, and closes."""
        content, query = request.get("content"), request.get("query")
        if (body := request.get("body")) is not None:
            content = json.dumps(encode(body)).encode()
        fields = {name: str(value) for name, value in (request.get("headers") or {}).items() if value is not None}
        fields["Accept"] = accept
        if content is not None:
            fields["Content-Type"] = request.get("content_type", JSON)
        if method == "POST":
            # One for all attempts: the server does it once.
            fields.setdefault("Idempotency-Key", uuid.uuid4().hex)
        repeat = request.get("repeat", True) and (content is None or isinstance(content, bytes))
        extra = request.get("extra", 0.0) + _seconds(query)
        target = self._prefix + path + _query(query)
        backoff, attempts = Backoff(self.patience), 0
        while True:
            attempts += 1
            try:
                answer = self._attempt(method, target, fields, content, extra, fresh=attempts > 1 or not repeat)
                answer.attempts = attempts
                return answer
            except SpaceError as error:
                if isinstance(error, ApiError):
                    error.attempts = attempts
                again = repeat and is_worth_repeating(error)
                if not again or not backoff.pause(getattr(error, "retry_after", None)):
                    raise
                log.debug("%s %s is sent again: %s", method, path, error)

    def upgrade(self, path: str, *, query: Query, protocol: str) -> WebSocket:
        """Opens a WebSocket that speaks `protocol`. Sent once: whoever holds it opens the next one."""
        key = new_key()
        fields = {
            "Connection": "Upgrade",
            "Upgrade": "websocket",
            "Sec-WebSocket-Version": "13",
            "Sec-WebSocket-Key": key,
            "Sec-WebSocket-Protocol": protocol,
        }
        answer = self._attempt("GET", self._prefix + path + _query(query), fields, None, 0.0, fresh=True)
        asked = {"Upgrade": "websocket", "Sec-WebSocket-Accept": accept(key), "Sec-WebSocket-Protocol": protocol}
        told = {name: answer.header(name) or "" for name in asked}
        told["Upgrade"] = told["Upgrade"].lower()
        if told != asked or answer.header("Sec-WebSocket-Extensions"):
            answer.close()
            raise ProtocolError(f"{self.url} opens another WebSocket than it was asked for")
        return WebSocket(*answer.hand_over())

    def _attempt(
        self, method: str, target: str, fields: Mapping[str, str], content: Content | None, extra: float, *, fresh: bool
    ) -> Answer:
        try:
            connection = self._pool.take(fresh=fresh)
        except _BROKEN as error:
            raise Unreachable(f"no connection to {self.url}: {error}") from error
        done = False
        try:
            self._begin(connection, method, target, fields, content)
            connection.limits.silence = SILENCE
            connection.limits.deadline = None
            if content is not None:
                _send(connection, content)
            limit = self.answer_timeout + extra
            connection.limits.silence, connection.limits.deadline = limit, time.monotonic() + limit
            answer = Answer(self._pool, connection, connection.http.getresponse())
            done = True
        except _BROKEN as error:
            raise self._broken(error) from error
        finally:
            if not done:
                connection.close()
        if answer.status == 101 if "Upgrade" in fields else 200 <= answer.status < 300:
            return answer
        with answer:
            raise self._refusal(answer)

    def _begin(
        self, connection: Connection, method: str, target: str, fields: Mapping[str, str], content: Content | None
    ) -> None:
        request = connection.http
        request.putrequest(method, target, skip_host=True, skip_accept_encoding=True)
        request.putheader("Host", self._host)
        request.putheader("User-Agent", f"space-python/{VERSION}")
        if self._key is not None:
            request.putheader("Authorization", f"Bearer {self._key}")
        for name, value in fields.items():
            request.putheader(name, value)
        if isinstance(content, bytes):
            request.putheader("Content-Length", str(len(content)))
        elif content is not None:
            request.putheader("Transfer-Encoding", "chunked")
        request.endheaders()

    def _refusal(self, answer: Answer) -> SpaceError:
        """What an answer that is no success says."""
        from ._generated import Problem

        try:
            return from_problem(decode(Problem, _parse(_whole(answer))))
        except ProtocolError:
            kind = StreamLost if answer.status in _GATEWAY else ProtocolError
            return kind(f"{self.url} answered with status {answer.status} and no explanation")
        except _BROKEN as error:
            return self._broken(error)

    def _broken(self, error: Exception) -> SpaceError:
        if isinstance(error, SpaceError):
            return error
        if isinstance(error, TimeoutError):
            return DeadlineExceeded(f"{self.url} did not answer in time")
        if isinstance(error, (http.client.RemoteDisconnected, http.client.IncompleteRead, OSError)):
            return Unreachable(f"the connection to {self.url} broke: {error}")
        return ProtocolError(f"{self.url} does not speak HTTP as it should: {error!r}")


def _send(connection: Connection, content: Content) -> None:
    """Sends a body. A server that answers before its end has refused it, and the answer says why."""
    connection.unfinished = True
    for piece in _framed(content):
        if connection.has_answer():
            return
        try:
            connection.http.send(piece)
        except ConnectionError:
            # Perhaps it said why before it closed.
            return
    connection.unfinished = False


def _framed(content: Content) -> Iterator[bytes]:
    if isinstance(content, bytes):
        yield from (content[at : at + PIECE] for at in range(0, len(content), PIECE))
        return
    for piece in pieces(content) if is_file(content) else content:  # type: ignore[arg-type]
        if piece:
            yield b"%x\r\n%b\r\n" % (len(piece), piece)
    # A source that raises never gets here, and the server sees a body that broke off.
    yield b"0\r\n\r\n"


def _whole(answer: Answer) -> bytes:
    """All of an answer that has a limit."""
    gathered, length = [], 0
    while piece := answer.piece():
        gathered.append(piece)
        length += len(piece)
        if length > ANSWER_LIMIT:
            raise TooLarge(f"the answer has more than {ANSWER_LIMIT} bytes")
    return b"".join(gathered)


def _parse(text: bytes) -> object:
    if not text:
        return None
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ProtocolError("the answer is not JSON") from error
    return value


def _query(query: Query | None) -> str:
    pairs = []
    for name, value in (query or {}).items():
        for item in value if isinstance(value, (list, tuple)) else [value]:
            if item is not None:
                pairs.append(f"{quote(name, safe='')}={_quoted(item)}")
    return "?" + "&".join(pairs) if pairs else ""


def _quoted(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    # Names in Linux are bytes; Python carries those that are no text as surrogates.
    return quote(str(value), safe="/", errors="surrogateescape")


def _seconds(query: Query | None) -> float:
    wait = (query or {}).get("wait")
    return float(wait) if isinstance(wait, int) else 0.0
