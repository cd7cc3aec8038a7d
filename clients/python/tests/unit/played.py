"""A server that says what a test tells it to, byte by byte, and remembers what it was asked."""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass
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
    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    def raw(self, data: bytes) -> None:
        self._sock.sendall(data)

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

    def problem(self, status: int, code: str, **more: object) -> None:
        self.json(status, problem(status, code, **more))


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
                    self._handler(request, Reply(sock))
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


def created() -> bytes:
    command = {
        "id": COMMAND,
        "sandbox_id": SANDBOX,
        "argv": ["x"],
        "env_names": [],
        "stdin": True,
        "state": "created",
        "last_sequence": 0,
        "created_at": TIME,
    }
    attach = {"url": "/attach", "token": "t", "expires_at": TIME}
    return event("command", {"command": command, "attach": attach})


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
