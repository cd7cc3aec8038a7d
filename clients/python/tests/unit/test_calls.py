"""Calls and files against a server that misbehaves."""

import io
import os
import tempfile
import threading
import unittest

from space_sandbox import (
    DeadlineExceeded,
    Forbidden,
    RateLimited,
    Sandbox,
    Space,
    Unauthorized,
    Unreachable,
    models,
)
from space_sandbox._codec import decode
from space_sandbox.errors import CreateFailed, FileChanged, FilePermission, ProtocolError, TooLarge

from .played import SANDBOX, Broken, Played, Reply, Request, file_info, operation, problem, sandbox


class CallTest(unittest.TestCase):
    def play(self, handler: object, **options: float) -> Space:
        self.played = Played(handler)  # type: ignore[arg-type]
        self.addCleanup(self.played.__exit__)
        space = self.played.space(**options)
        self.addCleanup(space.close)
        return space

    def files(self, handler: object, **options: float) -> Sandbox:
        return Sandbox(self.play(handler, **options), decode(models.Sandbox, sandbox()))

    def test_a_connection_is_used_again_and_one_that_was_closed_is_not(self) -> None:
        answers = 0

        def handler(request: Request, reply: Reply) -> None:
            nonlocal answers
            answers += 1
            reply.json(200, sandbox())
            if answers == 3:
                raise Broken

        space = self.play(handler)
        for _ in range(5):
            space.connect(SANDBOX)
        self.assertEqual(self.played.connections, 2)

    def test_a_create_that_is_repeated_has_one_key(self) -> None:
        def handler(request: Request, reply: Reply) -> None:
            if request.method == "POST":
                if len(self.played.requests) == 1:
                    raise Broken
                if len(self.played.requests) == 2:
                    reply.problem(503, "unavailable")
                    return
                reply.json(202, {"sandbox": sandbox(state="creating"), "operation": operation("running")})
            elif "operations" in request.path:
                reply.json(200, operation("succeeded"))
            else:
                reply.json(200, sandbox())

        self.play(handler).create(labels={"a": "b"})
        posts = [request for request in self.played.requests if request.method == "POST"]
        self.assertEqual((len(posts), len({post.headers["idempotency-key"] for post in posts})), (3, 1))
        self.assertEqual(posts[0].json, {"labels": {"a": "b"}})

    def test_a_create_that_fails_leaves_nothing(self) -> None:
        def handler(request: Request, reply: Reply) -> None:
            failed = operation("failed", problem=problem(500, "create_failed"))
            reply.json(202, {"sandbox": sandbox(), "operation": failed if request.method == "POST" else operation("succeeded")})

        with self.assertRaises(CreateFailed):
            self.play(handler).create()
        self.assertEqual(self.played.paths()[-1], f"DELETE /v1/sandboxes/{SANDBOX}")

    def test_rate_limits_say_when_and_are_waited_for_within_patience(self) -> None:
        space = self.play(lambda request, reply: reply.problem(429, "rate_limited", retry_after=60))
        with self.assertRaises(RateLimited) as caught:
            space.connect(SANDBOX)
        self.assertEqual((caught.exception.retry_after, len(self.played.requests)), (60, 1))

    def test_what_repeating_would_not_change_is_not_repeated(self) -> None:
        for status, code, kind in ((401, "unauthorized", Unauthorized), (403, "forbidden", Forbidden)):
            space = self.play(lambda request, reply: reply.problem(status, code))
            with self.assertRaises(kind):
                space.connect(SANDBOX)
            self.assertEqual(len(self.played.requests), 1)

    def test_nobody_there_is_told_soon(self) -> None:
        with Played(lambda request, reply: None) as gone:
            url = gone.url
        with Space(url, "k", patience=0.3) as space, self.assertRaises(Unreachable):
            space.connect(SANDBOX)

    def test_a_slow_answer_has_one_deadline_over_all_of_it(self) -> None:
        release = threading.Event()
        self.addCleanup(release.set)

        def drip(request: Request, reply: Reply) -> None:
            reply.raw(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
            while not release.wait(0.05):
                reply.raw(b" ")

        with self.assertRaises(DeadlineExceeded):
            self.play(drip, answer_timeout=0.5).connect(SANDBOX)

    def test_garbage_is_told_as_such(self) -> None:
        for raw in (b"SSH-2.0-x\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n{{{", b"HTTP/1.1 301 X\r\nLocation: /\r\nContent-Length: 0\r\n\r\n"):
            with self.assertRaises(ProtocolError):
                self.play(lambda request, reply: reply.raw(raw)).connect(SANDBOX)

    def test_a_switch_of_protocols_that_nobody_asked_for_is_no_success(self) -> None:
        switched = b"HTTP/1.1 101 X\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n"
        with self.assertRaises(ProtocolError):
            self.files(lambda request, reply: reply.raw(switched)).ports.revoke_tokens(8000)

    def test_an_endless_answer_is_cut(self) -> None:
        def endless(request: Request, reply: Reply) -> None:
            reply.raw(b"HTTP/1.1 200 OK\r\n\r\n")
            while True:
                reply.raw(b" " * 1_000_000)

        with self.assertRaises(TooLarge):
            self.play(endless).connect(SANDBOX)

    def test_a_download_goes_on_where_it_broke(self) -> None:
        text = os.urandom(300_000)

        def handler(request: Request, reply: Reply) -> None:
            begin = int(request.headers.get("range", "bytes=0-")[6:-1])
            status = 206 if begin else 200
            reply.raw(
                f"HTTP/1.1 {status} X\r\nETag: \"v1\"\r\nContent-Length: {len(text) - begin}\r\n"
                f"Content-Range: bytes {begin}-{len(text) - 1}/{len(text)}\r\n\r\n".encode()
                + text[begin : begin + 70_000]
            )
            if begin + 70_000 < len(text):
                raise Broken

        self.assertEqual(self.files(handler).files.read("/a"), text)
        self.assertGreater(len(self.played.requests), 3)
        self.assertEqual(self.played.requests[-1].headers["if-range"], '"v1"')

    def test_a_file_that_changes_while_it_is_read_is_an_error(self) -> None:
        def handler(request: Request, reply: Reply) -> None:
            reply.raw(b"HTTP/1.1 200 X\r\nETag: \"v1\"\r\nContent-Length: 10\r\n\r\n12345")
            raise Broken

        with self.assertRaises(FileChanged), tempfile.TemporaryDirectory() as directory:
            try:
                with open(f"{directory}/a", "wb") as target:
                    self.files(handler).files.download("/a", target)
            finally:
                self.assertEqual(os.listdir(directory), ["a"])

    def test_an_upload_goes_on_where_it_broke(self) -> None:
        text = os.urandom(3_000_000)
        kept = b""

        def handler(request: Request, reply: Reply) -> None:
            nonlocal kept
            offset = int(request.query["offset"][0])
            if offset != len(kept):
                reply.problem(409, "upload_offset", next_offset=len(kept))
                return
            kept += request.body
            if len(self.played.requests) == 1:
                kept = kept[:1_000_000]
                raise Broken
            reply.json(201, file_info("/a", len(kept)))

        info = self.files(handler).files.upload(io.BytesIO(text), "/a", mode=0o600)
        self.assertEqual((kept, info.size), (text, len(text)))
        self.assertEqual([len(request.body) for request in self.played.requests], [3_000_000, 0, 2_000_000])
        self.assertEqual(self.played.requests[0].query["mode"], ["0600"])

    def test_a_refused_upload_says_why_before_all_is_sent(self) -> None:
        sent = 0

        def source() -> "object":
            nonlocal sent
            for _ in range(100_000):
                sent += 1
                yield b"x" * 65_536

        listener = Refusing()
        self.addCleanup(listener.close)
        with Space(listener.url, "k") as space:
            box = Sandbox(space, decode(models.Sandbox, sandbox()))
            with self.assertRaises(FilePermission):
                box.files.write("/a", source())  # type: ignore[arg-type]
        self.assertLess(sent, 10_000)

    def test_an_exclusive_write_is_sent_once(self) -> None:
        def handler(request: Request, reply: Reply) -> None:
            raise Broken

        with self.assertRaises(Unreachable):
            self.files(handler).files.write("/a", b"x", exclusive=True)
        self.assertEqual(len(self.played.requests), 1)

    def test_a_remove_whose_answer_was_lost_has_happened(self) -> None:
        def handler(request: Request, reply: Reply) -> None:
            if len(self.played.requests) == 1:
                raise Broken
            reply.problem(404, "file_not_found")

        self.files(handler).files.remove("/a")

    def test_names_that_are_no_text_go_there_and_back(self) -> None:
        def handler(request: Request, reply: Reply) -> None:
            reply.json(200, {"items": [file_info("/\ufffd", path_base64="L/8=")]})

        box = self.files(handler)
        (info,) = box.files.list(b"/\xff")
        self.assertEqual(info.path, "/\udcff")
        with self.assertRaises(Exception):
            box.files.move(info.path, "/b")
        self.assertEqual(self.played.requests[1].json, {"from_base64": "L/8=", "to": "/b"})

    def test_an_error_inside_is_not_hidden_by_a_delete_that_fails(self) -> None:
        with self.assertWarns(ResourceWarning), self.assertRaisesRegex(RuntimeError, "mine"):
            with self.files(lambda request, reply: reply.problem(500, "internal")):
                raise RuntimeError("mine")

    def test_the_key_is_in_no_text(self) -> None:
        space = self.play(lambda request, reply: reply.json(200, sandbox()))
        self.assertNotIn("test-key", repr(space) + repr(vars(space)))
        with self.assertRaises(ValueError):
            Space("http://127.0.0.1:1", "a\r\nb")


class Refusing:
    """Answers when it has read the head, and reads no more."""

    def __init__(self) -> None:
        import socket

        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        sock, _ = self._listener.accept()
        with sock:
            sock.recv(65_536)
            Reply(sock).problem(403, "file_permission")
            self._done.wait(20)

    def close(self) -> None:
        self._done.set()
        self._thread.join(10)
        self._listener.close()


class CredentialsTest(unittest.TestCase):
    def test_they_are_found_as_the_command_line_finds_them(self) -> None:
        from unittest import mock

        from space_sandbox import _credentials as module

        with tempfile.TemporaryDirectory() as directory:
            path = f"{directory}/c.json"
            with open(path, "w") as file:
                file.write('{"url": "http://file:1", "key": "file-key"}')
            with mock.patch.dict(os.environ, {"SPACE_CREDENTIALS": path}, clear=True):
                self.assertEqual(module.credentials(None, None), ("http://file:1", "file-key"))
                self.assertEqual(module.credentials("http://FILE:1/", None), ("http://FILE:1/", "file-key"))
                # A file's key is not sent to another server.
                self.assertRaises(ValueError, module.credentials, "http://a:1", None)
                # A key of one's own is not sent to wherever a file says.
                self.assertEqual(module.credentials(None, "k"), (module.DEFAULT_URL, "k"))
                os.environ["SPACE_URL"] = "http://env:1"
                os.environ["SPACE_API_KEY"] = "env-key"
                self.assertEqual(module.credentials(None, None), ("http://env:1", "env-key"))


if __name__ == "__main__":
    unittest.main()
