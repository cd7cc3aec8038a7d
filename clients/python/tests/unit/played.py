"""A server that says what a test tells it to, byte by byte, and remembers what it was asked."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import socket
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import BinaryIO
from urllib.parse import parse_qs, urlsplit

from space_sandbox import Space

SANDBOX = "sbx_01920000000070008000000000000001"
COMMAND = "cmd_01920000000070008000000000000002"
OPERATION = "op_01920000000070008000000000000003"
TIME = "2026-01-31T07:00:00.000Z"


@dataclass
class Request:
    method: str
    path: str
    query: dict[str, list[str]]
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> object:
        return json.loads(self.body)


class Broken(Exception):
    """Ends the connection, with a reset."""


class Reply:
    def __init__(self, sock: socket.socket, source: BinaryIO | None = None) -> None:
        self._sock = sock
        self._source = source

    def raw(self, data: bytes) -> None:
        self._sock.sendall(data)

    def shut(self) -> None:
        self._sock.shutdown(socket.SHUT_WR)

    def json(self, status: int, value: object, **headers: str) -> None:
        kind = "application/json" if status < 400 else "application/problem+json"
        self.bytes(status, json.dumps(value).encode(), kind, **headers)

    def bytes(self, status: int, body: bytes, kind: str = "application/octet-stream", **headers: str) -> None:
        lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
        head = f"HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n{lines}\r\n"
        self.raw(head.encode() + body)

    def stream(self) -> None:
        self.raw(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")

    def chunk(self, data: bytes) -> None:
        if data:
            self.raw(b"%x\r\n%b\r\n" % (len(data), data))

    def end(self) -> None:
        self.raw(b"0\r\n\r\n")

    def websocket(self, request: Request, *, rest: bytes = b"") -> Peer:
        """Switches the protocol; `rest` goes out in one piece with that."""
        key = request.headers["sec-websocket-key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        accepted = base64.b64encode(hashlib.sha1(key.encode()).digest()).decode()
        head = (
            f"HTTP/1.1 101 X\r\nConnection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: {accepted}\r\n"
            f"Sec-WebSocket-Protocol: {request.headers['sec-websocket-protocol']}\r\n\r\n"
        )
        self.raw(head.encode() + rest)
        assert self._source is not None
        return Peer(self, self._source)

    def problem(self, status: int, code: str, **more: object) -> None:
        self.json(status, problem(status, code, **more))


def frame(opcode: int, data: bytes, final: bool = True) -> bytes:
    """As a server sends it."""
    length = len(data)
    size = bytes([length]) if length < 126 else b"\x7e" + struct.pack("!H", length) if length < 65536 else b"\x7f" + struct.pack("!Q", length)
    return bytes([opcode | (0x80 if final else 0)]) + size + data


def shown(sequence: int, text: bytes, generation: int = 1, stream: int = 1) -> bytes:
    """Output of a terminal."""
    return frame(2, struct.pack("!BQQ", stream, generation, sequence) + text)


def told(kind: str, **more: object) -> bytes:
    """A message of a terminal."""
    return frame(1, json.dumps({"type": kind, **more}).encode())


class Peer:
    """The server's side of a WebSocket."""

    def __init__(self, reply: Reply, source: BinaryIO) -> None:
        self.send = reply.raw
        self._reply = reply
        self._source = source

    def receive(self) -> tuple[int, bytes]:
        """The next frame's opcode and payload. Every frame of a client is masked."""
        first, second = self._source.read(2)
        assert first & 0x80 and second & 0x80, "a client's frame that is not whole, or not masked"
        length = second & 0x7F
        if length > 125:
            length = int.from_bytes(self._source.read(2 if length == 126 else 8), "big")
        mask, data = self._source.read(4), self._source.read(length)
        return first & 0x0F, bytes(byte ^ mask[at % 4] for at, byte in enumerate(data))

    def end(self) -> None:
        """Says no more, and waits until the client is gone: a socket that is closed with something unread takes back what
        it sent."""
        self._reply.shut()
        self.drain()

    def drain(self) -> None:
        """Until the client is gone."""
        while self._source.read(65_536):
            pass


def problem(status: int, code: str, **more: object) -> dict[str, object]:
    known = {"type": f"/problems/{code}", "title": "t", "status": status, "code": code, "detail": f"it is {code}"}
    return {**known, "request_id": "req-1", **more}


Handler = Callable[[Request, Reply], None]


class Played:
    """Serves `handler` on a port of its own. The last thing a test does is to leave it."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self.requests: list[Request] = []
        self.connections = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._accepting = threading.Thread(target=self._accept)
        self._accepting.start()

    def space(self, **options: float) -> Space:
        return Space(self.url, "test-key", **{"patience": 2.0, **options})

    def paths(self) -> list[str]:
        return [f"{request.method} {request.path}" for request in self.requests]

    def __enter__(self) -> Played:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            for sock in self._open:
                # Of one that the client has closed already, nothing is left to shut down.
                with contextlib.suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)
        for thread in [self._accepting, *self._threads]:
            thread.join(10)

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            thread = threading.Thread(target=self._serve, args=(sock,))
            self._threads.append(thread)
            thread.start()

    def _serve(self, sock: socket.socket) -> None:
        with self._lock:
            self._open.add(sock)
        try:
            with sock.makefile("rb") as source:
                while (request := _request(source)) is not None:
                    self.requests.append(request)
                    self._handler(request, Reply(sock, source))
        except Broken:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        except (OSError, ValueError):
            pass
        finally:
            with self._lock:
                self._open.discard(sock)
                sock.close()


def _request(source: object) -> Request | None:
    line = source.readline().decode()  # type: ignore[attr-defined]
    if not line.strip():
        return None
    method, target, _ = line.split()
    headers = {}
    while (line := source.readline().decode().strip()) != "":  # type: ignore[attr-defined]
        name, _, value = line.partition(":")
        headers[name.lower()] = value.strip()
    parts = urlsplit(target)
    return Request(method, parts.path, parse_qs(parts.query), headers, _body(source, headers))


def _body(source: object, headers: dict[str, str]) -> bytes:
    read = source.read  # type: ignore[attr-defined]
    if headers.get("transfer-encoding") != "chunked":
        return read(int(headers.get("content-length", 0)))  # type: ignore[no-any-return]
    body = b""
    while size := int(source.readline(), 16):  # type: ignore[attr-defined]
        body += read(size)
        read(2)
    source.readline()  # type: ignore[attr-defined]
    return body


def event(name: str, data: object, position: str | None = None) -> bytes:
    identity = f"id: {position}\n" if position else ""
    return f"{identity}event: {name}\ndata: {json.dumps(data)}\n\n".encode()


def command_created(**more: object) -> dict[str, object]:
    command = {
        "id": COMMAND,
        "sandbox_id": SANDBOX,
        "argv": ["x"],
        "env_names": [],
        "stdin": True,
        "state": "created",
        "last_sequence": 0,
        "created_at": TIME,
        **more,
    }
    attach = {"url": "/attach", "token": "t", "expires_at": TIME}
    return {"command": command, "attach": attach}


def created() -> bytes:
    return event("command", command_created())


def sandbox(**more: object) -> dict[str, object]:
    known = {
        "id": SANDBOX,
        "project_id": "prj_01920000000070008000000000000004",
        "state": "running",
        "template": {"name": "base", "digest": "sha256:" + "0" * 64},
        "vcpus": 1,
        "memory_mib": 512,
        "disk_mib": 2048,
        "env_names": [],
        "labels": {},
        "created_at": TIME,
    }
    return {**known, **more}


def operation(status: str, **more: object) -> dict[str, object]:
    known = {"id": OPERATION, "kind": "create", "sandbox_id": SANDBOX, "status": status, "created_at": TIME}
    return {**known, **more}


def file_info(path: str, size: int = 0, **more: object) -> dict[str, object]:
    known = {
        "path": path,
        "type": "file",
        "mode": "0644",
        "uid": 0,
        "gid": 0,
        "size": size,
        "allocated": size,
        "modified_at": TIME,
        "version": "v1",
    }
    return {**known, **more}
