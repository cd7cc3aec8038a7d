"""WebSockets, as a client speaks them (RFC 6455), without extensions.

    Transport.upgrade ──101──▶ WebSocket ──receive──▶ Message: text, binary, close
                                   │  ▲
                        send, pong ▼  │ Parser: bytes in, messages out, however they are cut
                                  the socket

One thread uses a `WebSocket` at a time. Nothing in it waits for the socket but `receive`, which does so for both
directions: a server that doesn't read stops nobody from reading what it says.
"""

from __future__ import annotations

import base64
import hashlib
import os
import select
import socket
import ssl
from enum import IntEnum
from typing import NamedTuple

from .errors import ProtocolError, StreamLost

#: Bytes that one message may have: above anything that a server of ours sends.
LIMIT = 1024 * 1024 + 64
PIECE = 64 * 1024
_CONTROL_LIMIT = 125
_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"

NORMAL = 1000
PROTOCOL = 1002
NO_TEXT = 1007
TOO_LARGE = 1009
#: What stands for a close without a code (section 7.4.1); it is never sent.
NO_CODE = 1005


class Opcode(IntEnum):
    CONTINUATION = 0
    TEXT = 1
    BINARY = 2
    CLOSE = 8
    PING = 9
    PONG = 10

    @property
    def is_control(self) -> bool:
        return self >= Opcode.CLOSE


class Message(NamedTuple):
    """A whole message, or a control frame."""

    opcode: Opcode
    data: bytes

    @property
    def code(self) -> int:
        """Of a close."""
        return int.from_bytes(self.data[:2], "big") if self.data else NO_CODE

    @property
    def reason(self) -> str:
        """Of a close."""
        return self.data[2:].decode("utf-8", "replace")


class Violation(ProtocolError):
    """What came is no WebSocket, and the close code that says so."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"the server's WebSocket breaks the protocol: {text}")
        self.code = code


def new_key() -> str:
    """Of `Sec-WebSocket-Key`."""
    return base64.b64encode(os.urandom(16)).decode("ascii")


def accept(key: str) -> str:
    """What `Sec-WebSocket-Accept` answers to a key."""
    return base64.b64encode(hashlib.sha1(key.encode("ascii") + _GUID).digest()).decode("ascii")


def frame(opcode: Opcode, data: bytes, mask: bytes | None = None) -> bytes:
    """One whole message as a client sends it: masked, by random bytes unless a test gives its own."""
    mask = os.urandom(4) if mask is None else mask
    length = len(data)
    if length <= _CONTROL_LIMIT:
        head = bytes([0x80 | opcode, 0x80 | length])
    elif length < 1 << 16:
        head = bytes([0x80 | opcode, 0x80 | 126]) + length.to_bytes(2, "big")
    else:
        head = bytes([0x80 | opcode, 0x80 | 127]) + length.to_bytes(8, "big")
    return head + mask + _masked(data, mask)


def _masked(data: bytes, mask: bytes) -> bytes:
    pattern = (mask * (len(data) // 4 + 1))[: len(data)]
    return (int.from_bytes(data, "big") ^ int.from_bytes(pattern, "big")).to_bytes(len(data), "big")


class _Head(NamedTuple):
    final: bool
    opcode: Opcode
    #: Of the head itself.
    size: int
    length: int


class Parser:
    """A server's frames as messages. Raises `Violation`; it is of no more use then."""

    def __init__(self, limit: int = LIMIT) -> None:
        self._limit = limit
        self._buffer = bytearray()
        self._kind: Opcode | None = None
        self._gathered = bytearray()

    def push(self, data: bytes) -> list[Message]:
        """Takes the next bytes; answers the messages that they complete."""
        self._buffer += data
        messages = []
        while (head := self._head()) is not None and len(self._buffer) >= head.size + head.length:
            payload = bytes(self._buffer[head.size : head.size + head.length])
            del self._buffer[: head.size + head.length]
            message = self._take(head, payload)
            if message is not None:
                messages.append(message)
        return messages

    def _head(self) -> _Head | None:
        """The next frame's, as soon as all of it is there: what it promises is refused before it comes."""
        buffer = self._buffer
        if len(buffer) < 2:
            return None
        first, second = buffer[0], buffer[1]
        if first & 0x70:
            raise Violation(PROTOCOL, "a reserved bit is set, and no extension was agreed on")
        if second & 0x80:
            raise Violation(PROTOCOL, "a server's frame is masked")
        try:
            opcode = Opcode(first & 0x0F)
        except ValueError:
            raise Violation(PROTOCOL, f"there is no opcode {first & 0x0F}") from None
        more = {126: 2, 127: 8}.get(second, 0)
        if len(buffer) < 2 + more:
            return None
        length = int.from_bytes(buffer[2 : 2 + more], "big") if more else second
        head = _Head(bool(first & 0x80), opcode, 2 + more, length)
        self._check(head)
        return head

    def _check(self, head: _Head) -> None:
        if head.opcode.is_control:
            if head.length > _CONTROL_LIMIT or not head.final:
                raise Violation(PROTOCOL, "a control frame is long or in pieces")
            return
        if (head.opcode == Opcode.CONTINUATION) != (self._kind is not None):
            raise Violation(PROTOCOL, "a message begins inside another, or goes on without having begun")
        if len(self._gathered) + head.length > self._limit:
            raise Violation(TOO_LARGE, f"a message has more than {self._limit} bytes")

    def _take(self, head: _Head, payload: bytes) -> Message | None:
        if head.opcode.is_control:
            if head.opcode == Opcode.CLOSE:
                _check_close(payload)
            return Message(head.opcode, payload)
        if self._kind is None:
            self._kind = head.opcode
        self._gathered += payload
        if not head.final:
            return None
        message = Message(self._kind, bytes(self._gathered))
        self._kind = None
        self._gathered.clear()
        if message.opcode == Opcode.TEXT:
            _check_text(message.data)
        return message


def _check_close(payload: bytes) -> None:
    """Codes that are sent: section 7.4, and the registry of its numbers."""
    if not payload:
        return
    code = int.from_bytes(payload[:2], "big")
    known = 1000 <= code <= 1014 and code not in (1004, 1005, 1006)
    if len(payload) == 1 or not (known or 3000 <= code <= 4999):
        raise Violation(PROTOCOL, "a close has a code that no close has")
    _check_text(payload[2:])


def _check_text(data: bytes) -> None:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Violation(NO_TEXT, "a text is not UTF-8") from error


class WebSocket:
    """An open connection. It owns the socket."""

    def __init__(self, sock: socket.socket, rest: bytes) -> None:
        """`rest`: what came in one piece with the answer's head."""
        sock.setblocking(False)
        self._sock = sock
        self._rest = rest
        self._parser = Parser()
        self._unsent = bytearray()
        self._close_sent = False

    def send(self, opcode: Opcode, data: bytes) -> None:
        """As much as the connection takes at once; the rest goes when it is received from, or flushed. Raises
        `StreamLost`."""
        self._unsent += frame(opcode, data)
        self.flush()

    def flush(self) -> bool:
        """Whether all is sent."""
        while self._unsent:
            try:
                sent = self._sock.send(self._unsent[:PIECE])
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                return False
            except (OSError, ValueError) as error:
                raise StreamLost(f"the connection broke: {error}") from error
            del self._unsent[:sent]
        return True

    def receive(self, timeout: float, wake: socket.socket) -> list[Message] | None:
        """The messages that came, pings answered and left out. `None`: nothing within `timeout` seconds, or until there
        was something on `wake`. Raises `StreamLost` at the end of the connection, and `Violation`."""
        self.flush()
        data, self._rest = self._rest or self._read(), b""
        if data is None:
            events = select.POLLIN | (select.POLLOUT if self._unsent else 0)
            if not _wait(self._sock, events, wake, timeout):
                return None
            self.flush()
            data = self._read()
            if data is None:
                # Half of a record of TLS, or only room to send.
                return []
        try:
            return self._answered(self._parser.push(data))
        except Violation as violation:
            self.close(violation.code)
            raise

    def _read(self) -> bytes | None:
        try:
            data = self._sock.recv(PIECE)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return None
        except (OSError, ValueError) as error:
            raise StreamLost(f"the connection broke: {error}") from error
        if not data:
            raise StreamLost("the connection ended without a close")
        return data

    def _answered(self, messages: list[Message]) -> list[Message]:
        kept = []
        for message in messages:
            if message.opcode == Opcode.PING:
                self._unsent += frame(Opcode.PONG, message.data)
            elif message.opcode != Opcode.PONG:
                kept.append(message)
            if message.opcode == Opcode.CLOSE:
                # Nothing comes behind it.
                self._say_close(message.code if message.data else NORMAL)
                break
        return kept

    def _say_close(self, code: int) -> None:
        if not self._close_sent:
            self._close_sent = True
            self._unsent += frame(Opcode.CLOSE, code.to_bytes(2, "big"))

    def close(self, code: int = NORMAL) -> None:
        """Says so if there is room for it, and lets go."""
        self._say_close(code)
        try:
            self.flush()
        except StreamLost:
            # Whoever is gone needs no word.
            pass
        self._sock.close()


def _wait(sock: socket.socket, events: int, wake: socket.socket, timeout: float) -> bool:
    """Whether it was the socket's."""
    poll = select.poll()
    poll.register(sock, events)
    poll.register(wake, select.POLLIN)
    ready = poll.poll(max(0.0, timeout) * 1000)
    number = sock.fileno()
    return any(found == number for found, _ in ready)
