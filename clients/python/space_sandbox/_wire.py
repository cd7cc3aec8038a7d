"""HTTP/1.1 connections with deadlines, kept for the next request.

`http.client` does the protocol. What it lacks is here: a limit on a whole answer and not on each `recv` of it (a server
that sends a byte now and then would hold a caller for ever), and connections that threads share one after the other.
HTTP/2 is left out on purpose: a stream has a connection of its own, so that none waits for another.
"""

from __future__ import annotations

import http.client
import io
import os
import select
import socket
import ssl
import threading
import time
from typing import IO, Any, cast

from .errors import DeadlineExceeded

#: Idle connections that are kept.
IDLE = 8


class Limits:
    """What the next reads on a connection may take."""

    def __init__(self) -> None:
        #: Longest wait for the next byte, in seconds.
        self.silence = 30.0
        #: On `time.monotonic()`, after which nothing is read any more.
        self.deadline: float | None = None

    def left(self) -> float:
        """Seconds for the next read. Raises when there are none."""
        if self.deadline is None:
            return self.silence
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise DeadlineExceeded("no complete answer in time")
        return min(left, self.silence)


class _Reader(io.RawIOBase):
    def __init__(self, sock: socket.socket, limits: Limits) -> None:
        self._sock = sock
        self._limits = limits

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._sock.settimeout(self._limits.left())
        return self._sock.recv_into(buffer)


class _Socket:
    """As much of a socket as `http.client` uses."""

    def __init__(self, sock: socket.socket, limits: Limits) -> None:
        self._sock = sock
        self._limits = limits

    def makefile(self, mode: str, *_: object, **__: object) -> io.BufferedReader:
        return io.BufferedReader(_Reader(self._sock, self._limits), 64 * 1024)

    def sendall(self, data: bytes) -> None:
        self._sock.settimeout(self._limits.silence)
        self._sock.sendall(data)

    def close(self) -> None:
        """Nothing: `http.client` closes its socket while the answer is still to be read. `Connection` owns it."""

    def is_readable(self) -> bool:
        poll = select.poll()
        poll.register(self._sock, select.POLLIN)
        return bool(poll.poll(0))


class Connection:
    """One connection. Not for two threads at once."""

    def __init__(self, address: Address, limits: Limits) -> None:
        self.limits = limits
        #: A request was not sent to its end: nothing else can be sent behind it.
        self.unfinished = False
        self.http = http.client.HTTPConnection(address.host, address.port)
        sock = socket.create_connection((address.host, address.port), address.connect_timeout)
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if address.tls is not None:
                sock = address.tls.wrap_socket(sock, server_hostname=address.host)
        except BaseException:
            sock.close()
            raise
        self._raw = sock
        self._socket = _Socket(sock, limits)
        self.http.sock = cast(socket.socket, self._socket)

    def has_input(self) -> bool:
        """Whether something came, or the other side closed."""
        return self._socket.is_readable()

    def has_answer(self) -> bool:
        """Whether the server speaks before it was sent everything. With TLS that can't be told: tickets come early."""
        return not isinstance(self._raw, ssl.SSLSocket) and self.has_input()

    def close(self) -> None:
        """Ends it. A thread that reads from it wakes up."""
        try:
            self._raw.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.abandon()

    def hand_over(self) -> socket.socket:
        """For whoever speaks another protocol on it from now on, and closes it."""
        self.http.close()
        return self._raw

    def abandon(self) -> None:
        """Lets go of it without a word: another process may still speak on it."""
        self.http.close()
        self._raw.close()


class Address:
    def __init__(self, host: str, port: int, tls: ssl.SSLContext | None, connect_timeout: float) -> None:
        self.host = host
        self.port = port
        self.tls = tls
        self.connect_timeout = connect_timeout


class Pool:
    """Connections to one address, for any number of threads."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._lock = threading.Lock()
        self._idle: list[Connection] = []
        self._process = os.getpid()
        self._closed = False

    def take(self, *, fresh: bool = False) -> Connection:
        """An idle connection that is still open, or a new one."""
        while not fresh:
            with self._lock:
                self._forget_parents()
                if not self._idle:
                    break
                connection = self._idle.pop()
            if not connection.has_input():
                return connection
            # Closed by the server, or it said something that nobody asked for.
            connection.close()
        return Connection(self._address, Limits())

    def give_back(self, connection: Connection) -> None:
        """Keeps a connection whose answer was read to its end."""
        with self._lock:
            self._forget_parents()
            keep = not self._closed and not connection.unfinished and len(self._idle) < IDLE
            if keep:
                self._idle.append(connection)
        if not keep:
            connection.close()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _forget_parents(self) -> None:
        # After a fork both processes would speak on the same connections.
        if self._process != os.getpid():
            self._process = os.getpid()
            idle, self._idle = self._idle, []
            for connection in idle:
                connection.abandon()


class Answer(io.RawIOBase):
    """An answer's head, and its body as it comes. Close it, or use it as a context manager."""

    def __init__(self, pool: Pool, connection: Connection, response: http.client.HTTPResponse) -> None:
        self._pool = pool
        self._connection: Connection | None = connection
        self._response = response
        self.limits = connection.limits
        self.status = response.status
        #: Bytes that are still to come, where the server said how many there are.
        self._left = response.length
        #: How often the request was sent.
        self.attempts = 1

    def header(self, name: str) -> str | None:
        return self._response.getheader(name)

    def readable(self) -> bool:
        return True

    def piece(self, most: int = 64 * 1024) -> bytes:
        """The next bytes as they come; empty at the end, and only there.

        Raises `OSError` or `http.client.HTTPException` where the body breaks off, `DeadlineExceeded` or `TimeoutError`
        at its limits. The connection is of no use afterwards, and closed.
        """
        if self._connection is None:
            return b""
        try:
            # What is known to be the rest is not asked beyond.
            piece = self._response.read1(most) if self._left is None or self._left > 0 else b""
            if self._left is not None:
                self._left -= len(piece)
                if not piece and self._left > 0:
                    raise http.client.IncompleteRead(b"", self._left)
        except BaseException:
            self.close()
            raise
        if not piece:
            self._finish()
        return piece

    def readinto(self, buffer: Any) -> int:
        piece = self.piece(len(buffer))
        buffer[: len(piece)] = piece
        return len(piece)

    def _finish(self) -> None:
        connection, self._connection = self._connection, None
        will_close = self._response.will_close
        self._response.close()
        if connection is not None:
            if will_close:
                connection.close()
            else:
                self._pool.give_back(connection)

    def hand_over(self) -> tuple[socket.socket, bytes]:
        """The connection, whose protocol was switched, and what came in one piece with this head."""
        connection, self._connection = self._connection, None
        if connection is None:
            raise ValueError("the answer is closed")
        # Nothing more is read for it.
        self.limits.deadline = 0.0
        try:
            rest = self._response.fp.peek()
        except DeadlineExceeded:
            rest = b""
        self._response.close()
        super().close()
        return connection.hand_over(), rest

    def close(self) -> None:
        """Without having read everything: the connection ends."""
        connection, self._connection = self._connection, None
        if connection is not None:
            # In this order: a reader holds a lock until its connection ends.
            connection.close()
            self._response.close()
        super().close()


def is_file(source: object) -> bool:
    return hasattr(source, "read")


def pieces(source: IO[bytes], size: int = 64 * 1024) -> Any:
    """A file's bytes from where it stands."""
    while piece := source.read(size):
        yield piece
