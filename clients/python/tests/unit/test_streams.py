"""Commands over connections that break."""

import base64
import random
import threading
import time
import unittest

from space_sandbox import (
    Chunk,
    Command,
    CommandFailed,
    CommandTimedOut,
    DeadlineExceeded,
    Exit,
    Gap,
    OutputLost,
    OutputTooLarge,
    Sandbox,
    SandboxNotRunning,
    StreamLost,
)
from space_sandbox import _events, models
from space_sandbox._codec import decode
from space_sandbox.errors import ProtocolError

from .played import COMMAND, Broken, Played, Reply, Request, created, event, sandbox


def output(text: bytes, offset: int, sequence: int, name: str = "stdout") -> bytes:
    data = {"offset": offset, "data": base64.b64encode(text).decode()}
    return event(name, data, f"1.{sequence}")


def started() -> bytes:
    return event("started", {"pid": 7}, "1.1")


def ended(sequence: int, **how: object) -> bytes:
    return event("exit", how or {"code": 0}, f"1.{sequence}")


class Scripted:
    """A command whose stream is sent from behind `Last-Event-ID`, cut by `cut` on each connection."""

    def __init__(self, events: list[bytes]) -> None:
        self.events = events
        self.connections = 0
        self.signals: list[object] = []
        self.stdin = b""
        self.eof = threading.Event()
        self.killed = threading.Event()
        self.room = 1 << 20

    def __call__(self, request: Request, reply: Reply) -> None:
        if request.path.endswith("/stdin"):
            self.write(request, reply)
        elif request.path.endswith("/signal"):
            self.signals.append(request.json["signal"])  # type: ignore[index]
            reply.bytes(204, b"")
            self.killed.set()
        else:
            reply.stream()
            first = request.path.endswith("/exec")
            position = request.headers.get("last-event-id")
            self.connections += 1
            self.play(reply, first, int(position.split(".")[1]) if position else 0)

    def play(self, reply: Reply, first: bool, after: int) -> None:
        reply.chunk((created() if first else b"") + b"".join(self.events[after:]))
        reply.end()

    def write(self, request: Request, reply: Reply) -> None:
        body = decode(models.WriteStdin, request.json)
        known = len(self.stdin)
        fresh = (body.data or b"")[known - body.offset :][: self.room]
        self.stdin += fresh
        reply.json(200, {"next_offset": len(self.stdin)})
        if body.eof and body.offset + len(body.data or b"") == len(self.stdin):
            self.eof.set()


class Repeating(Scripted):
    def play(self, reply: Reply, first: bool, after: int) -> None:
        reply.chunk(created() + started())
        reply.end()


class StreamTest(unittest.TestCase):
    def open(self, script: object, **options: float) -> Sandbox:
        played = Played(script)  # type: ignore[arg-type]
        self.addCleanup(played.__exit__)
        space = played.space(**options)
        self.addCleanup(space.close)
        self.played = played
        return Sandbox(space, decode(models.Sandbox, sandbox()))

    def test_output_and_exit_come_apart_by_stream(self) -> None:
        script = Scripted([started(), output(b"a", 0, 2), output(b"b", 0, 3, "stderr"), ended(4, code=3)])
        result = self.open(script).run(["x"])
        self.assertEqual((result.stdout, result.stderr, result.exit_code), ("a", "b", 3))

    def test_whatever_breaks_each_byte_comes_once_and_in_order(self) -> None:
        for seed in range(12):
            chance = random.Random(seed)
            text = bytes(chance.randrange(256) for _ in range(20_000))
            pieces, at = [started()], 0
            while at < len(text):
                piece = text[at : at + chance.randrange(1, 900)]
                pieces.append(output(piece, at, len(pieces) + 1))
                at += len(piece)
            pieces.append(ended(len(pieces) + 1))

            class Breaking(Scripted):
                def play(self, reply: Reply, first: bool, after: int) -> None:
                    # A server may repeat what was seen; a client drops it.
                    after = max(0, after - chance.randrange(3))
                    data = (created() if first else b"") + b"".join(self.events[after:])
                    cut = chance.randrange(600, 9000)
                    while data and cut > 0:
                        piece, data = data[: chance.randrange(1, 2000)], data[0:]
                        piece = piece[:cut]
                        reply.chunk(piece)
                        data, cut = data[len(piece) :], cut - len(piece)
                    if data or chance.random() < 0.5:
                        raise Broken
                    reply.end()

            script = Breaking(pieces)
            _fast(self)
            with self.subTest(seed=seed):
                result = self.open(script).run(["x"])
                self.assertEqual(result.stdout_bytes, text)
                self.assertGreater(script.connections, 2)

    def test_a_lost_answer_to_exec_does_not_run_it_twice(self) -> None:
        script = Scripted([started(), ended(2)])

        def lossy(request: Request, reply: Reply) -> None:
            if len(self.played.requests) < 3:
                raise Broken
            script(request, reply)

        self.open(lossy).run(["x"])
        keys = {request.headers["idempotency-key"] for request in self.played.requests}
        self.assertEqual((len(self.played.requests), len(keys)), (3, 1))

    def test_a_gap_is_an_event_and_an_error_of_run_that_has_the_rest(self) -> None:
        gap = event("gap", {"first_lost": 2, "last_lost": 5, "stdout_bytes": 9, "stderr_bytes": 0}, "1.5")
        script = Scripted([started(), gap, output(b"z", 9, 6), ended(7)])
        box = self.open(script)
        with box.start(["x"]) as command:
            kinds = [type(event) for event in command]
        self.assertEqual(kinds, [Gap, Chunk, Exit])
        with self.assertRaises(OutputLost) as caught:
            box.run(["x"])
        self.assertEqual((caught.exception.result.stdout, caught.exception.result.exit_code), ("z", 0))

    def test_a_hole_that_nobody_tells_of_is_a_gap_too(self) -> None:
        script = Scripted([started(), output(b"ab", 0, 2), output(b"z", 7, 3), ended(4)])
        with self.open(script).start(["x"]) as command:
            events = list(command)
        self.assertEqual(events[1], Gap(first_lost=0, last_lost=0, stdout_bytes=5, stderr_bytes=0))

    def test_output_that_overlaps_is_cut(self) -> None:
        script = Scripted([started(), output(b"abc", 0, 2), output(b"bcd", 1, 3), ended(4)])
        self.assertEqual(self.open(script).run(["x"]).stdout, "abcd")

    def test_a_character_is_never_cut_in_two(self) -> None:
        text = "ä€😀".encode()
        pieces = [output(text[at : at + 1], at, at + 2) for at in range(len(text))]
        told: list[str] = []
        script = Scripted([started(), *pieces, ended(len(text) + 2)])
        self.open(script).run(["x"], on_stdout=told.append)
        self.assertEqual(told, ["ä", "€", "😀"])

    def test_a_sandbox_that_dies_ends_the_stream_with_its_reason(self) -> None:
        def dying(request: Request, reply: Reply) -> None:
            if request.path.endswith("/attach"):
                reply.problem(409, "sandbox_not_running")
            else:
                reply.stream()
                reply.chunk(created() + started() + output(b"a", 0, 2))
                raise Broken

        with self.assertRaises(SandboxNotRunning):
            self.open(dying).run(["x"])

    def test_a_server_that_does_not_come_back_is_given_up(self) -> None:
        _fast(self)

        def once(request: Request, reply: Reply) -> None:
            if not request.path.endswith("/exec"):
                raise Broken
            reply.stream()
            reply.chunk(created() + started())
            raise Broken

        self.addCleanup(setattr, _events, "PATIENCE", _events.PATIENCE)
        _events.PATIENCE = 0.5
        begin = time.monotonic()
        with self.assertRaises(Exception) as caught:
            self.open(once, patience=0.2).run(["x"])
        self.assertIn(type(caught.exception).__name__, ("StreamLost", "Unreachable"))
        self.assertLess(time.monotonic() - begin, 10)

    def test_a_silent_connection_is_lost_and_continued(self) -> None:
        self.addCleanup(setattr, _events, "SILENCE", _events.SILENCE)
        _events.SILENCE = 0.3
        release = threading.Event()

        class Silent(Scripted):
            def play(self, reply: Reply, first: bool, after: int) -> None:
                if first:
                    reply.chunk(created() + started())
                    release.wait(20)
                else:
                    super().play(reply, first, after)

        box = self.open(Silent([started(), output(b"a", 0, 2), ended(3)]))
        self.addCleanup(release.set)
        self.assertEqual(box.run(["x"]).stdout, "a")

    def test_waiting_has_an_end_and_goes_on_without_a_byte_lost(self) -> None:
        release = threading.Event()
        self.addCleanup(release.set)

        class Slow(Scripted):
            def play(self, reply: Reply, first: bool, after: int) -> None:
                if first:
                    reply.chunk(created() + started() + output(b"a", 0, 2))
                release.wait(20)
                super().play(reply, False, after)

        with self.open(Slow([started(), output(b"a", 0, 2), output(b"b", 1, 3), ended(4)])).start(["x"]) as command:
            with self.assertRaises(DeadlineExceeded):
                command.wait(0.2)
            release.set()
            self.assertEqual(command.wait(10).stdout, "ab")

    def test_garbage_is_an_error_and_not_a_hang(self) -> None:
        for garbage in (b"id: 1.2\ndata: {\nevent: exit\n\n", b"id: 1.2\nevent: exit\ndata: " + b"[" * 100_000 + b"\n\n", b"x" * 3_000_000):
            def bad(request: Request, reply: Reply) -> None:
                if request.path.endswith("/signal"):
                    reply.bytes(204, b"")
                    return
                reply.stream()
                reply.chunk(created() + started() + garbage)
                reply.end()

            with self.assertRaises(ProtocolError):
                self.open(bad).run(["x"])

    def test_a_quiet_command_outlives_any_number_of_lost_connections(self) -> None:
        _fast(self)
        for name, value in (("PATIENCE", 0.3), ("GOOD_CONNECTION", 0.05)):
            self.addCleanup(setattr, _events, name, getattr(_events, name))
            setattr(_events, name, value)
        losses = iter(range(6))

        class Quiet(Scripted):
            def play(self, reply: Reply, first: bool, after: int) -> None:
                if first:
                    reply.chunk(created() + started())
                if next(losses, None) is not None:
                    # How long a connection lasts is what this is about.
                    time.sleep(0.12)
                    raise Broken
                super().play(reply, False, after)

        self.assertEqual(self.open(Quiet([started(), output(b"a", 0, 2), ended(3)])).run(["x"]).stdout, "a")

    def test_a_server_that_only_repeats_itself_is_given_up(self) -> None:
        _fast(self)
        self.addCleanup(setattr, _events, "PATIENCE", _events.PATIENCE)
        _events.PATIENCE = 0.3
        with self.assertRaises(StreamLost):
            self.open(Repeating([started()]), patience=0.3).run(["x"])

    def test_too_much_output_kills_the_command(self) -> None:
        script = Scripted([started(), output(b"x" * 2000, 0, 2), ended(3)])
        with self.assertRaises(OutputTooLarge) as caught:
            self.open(script).run(["x"], max_output=1000)
        self.assertEqual((script.signals[0], len(caught.exception.result.stdout)), ("KILL", 2000))

    def test_check_and_timeout_have_exceptions_with_the_result(self) -> None:
        script = Scripted([started(), output(b"no\n", 0, 2, "stderr"), ended(3, code=4)])
        with self.assertRaisesRegex(CommandFailed, "exit code 4: no") as caught:
            self.open(script).run(["x"], check=True)
        self.assertEqual(caught.exception.result.exit_code, 4)
        late = Scripted([started(), ended(2, signal=15, timed_out=True)])
        with self.assertRaises(CommandTimedOut) as timed_out:
            self.open(late).run("x", timeout=0.5)
        self.assertEqual(timed_out.exception.result.exit_code, 143)
        self.assertEqual(self.played.requests[0].json, {"argv": ["sh", "-c", "x"], "timeout_seconds": 1})

    def test_standard_input_is_written_at_the_commands_pace(self) -> None:
        class Fed(Scripted):
            def play(self, reply: Reply, first: bool, after: int) -> None:
                reply.chunk(created() + started())
                self.eof.wait(20)
                reply.chunk(ended(2))
                reply.end()

        script = Fed([])
        script.room = 10_000
        text = bytes(range(256)) * 400
        self.open(script).run(["x"], stdin=text)
        self.assertEqual(script.stdin, text)

    def test_a_source_that_fails_ends_the_command(self) -> None:
        class Killed(Scripted):
            def play(self, reply: Reply, first: bool, after: int) -> None:
                reply.chunk(created() + started())
                self.killed.wait(20)
                reply.chunk(ended(2, signal=9))
                reply.end()

        class Failing:
            def read(self, _size: int) -> bytes:
                raise RuntimeError("the disk is gone")

        with self.assertRaisesRegex(RuntimeError, "the disk is gone"):
            self.open(Killed([])).run(["x"], stdin=Failing())  # type: ignore[arg-type]

    def test_an_exception_in_a_callback_ends_the_command(self) -> None:
        script = Scripted([started(), output(b"a", 0, 2), ended(3)])

        def fail(_text: str) -> None:
            raise RuntimeError("enough")

        with self.assertRaisesRegex(RuntimeError, "enough"):
            self.open(script).run(["x"], on_stdout=fail)
        self.assertEqual(script.signals, ["KILL"])

    def test_closing_wakes_the_thread_that_reads(self) -> None:
        release = threading.Event()

        class Quiet(Scripted):
            def play(self, reply: Reply, first: bool, after: int) -> None:
                reply.chunk(created() + started())
                release.wait(20)

        command: Command = self.open(Quiet([])).start(["x"])
        # Before the server is left, which waits for its threads.
        self.addCleanup(release.set)
        raised: list[BaseException] = []

        def read() -> None:
            try:
                command.next()
            except BaseException as error:
                raised.append(error)

        reader = threading.Thread(target=read)
        reader.start()
        command.close()
        reader.join(10)
        self.assertIsInstance(raised[0], StreamLost)

    def test_an_attached_command_is_read_from_where_it_was_left(self) -> None:
        script = Scripted([started(), output(b"a", 0, 2), output(b"b", 1, 3), ended(4)])
        box = self.open(script)
        command = box.command(COMMAND, after="1.2")
        self.assertEqual(command.wait().stdout, "b")
        self.assertEqual(self.played.requests[0].headers["last-event-id"], "1.2")


def _fast(test: unittest.TestCase) -> None:
    """Pauses of a test's length."""
    from space_sandbox import _transport

    class Short(_transport.Backoff):
        def reset(self, patience: float | None = None) -> None:
            super().reset(patience)
            self._next = 0.002

    for module in (_transport, _events):
        test.addCleanup(setattr, module, "Backoff", module.Backoff)  # type: ignore[attr-defined]
        module.Backoff = Short  # type: ignore[attr-defined]


if __name__ == "__main__":
    unittest.main()
