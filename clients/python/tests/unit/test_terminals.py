"""Terminals over connections that break, against a played server."""

import json
import queue
import random
import threading
import time
import unittest
from collections.abc import Callable

from space_sandbox import (
    DeadlineExceeded,
    Exit,
    Gap,
    OutputLost,
    OutputTooLarge,
    Refused,
    Sandbox,
    SandboxNotRunning,
    StreamLost,
    Terminal,
    _transport,
    models,
    terminals,
)
from space_sandbox._codec import decode
from space_sandbox.errors import ProtocolError, TooLarge

from .played import (
    COMMAND,
    SANDBOX,
    Broken,
    Peer,
    Played,
    Reply,
    Request,
    command_created,
    frame,
    problem,
    sandbox,
    shown,
    told,
)

SOCKET = f"/v1/sandboxes/{SANDBOX}/commands/{COMMAND}/terminal"


def started() -> bytes:
    return told("started", id="1.1", pid=7)


def ended(sequence: int, **how: object) -> bytes:
    return told("exit", id=f"1.{sequence}", timed_out=False, **(how or {"code": 0})) + frame(8, b"\x03\xe8")


class TerminalTest(unittest.TestCase):
    def box(self, play: Callable[[Request, Peer], object], **options: float) -> Sandbox:
        """Its terminals are played by `play`, once for each connection."""

        def handler(request: Request, reply: Reply) -> None:
            if request.path.endswith("/terminal"):
                peer = reply.websocket(request, rest=started() if "after" not in request.query else b"")
                play(request, peer)
                peer.drain()
                raise ConnectionAbortedError
            if request.path.endswith("/stdin"):
                reply.json(200, {"next_offset": 5})
            elif request.path.endswith("/signal"):
                reply.bytes(204, b"")
            else:
                reply.json(201, command_created())

        return self.open(handler, **options)

    def open(self, handler: Callable[[Request, Reply], None], **options: float) -> Sandbox:
        self.played = Played(handler)
        self.addCleanup(self.played.__exit__)
        space = self.played.space(**options)
        self.addCleanup(space.close)
        return Sandbox(space, decode(models.Sandbox, sandbox()))

    def fast(self) -> None:
        """Pauses of a test's length."""

        class Short(_transport.Backoff):
            def reset(self, patience: float | None = None) -> None:
                super().reset(patience)
                self._next = 0.002

        self.limit("Backoff", Short)

    def limit(self, name: str, value: object) -> None:
        self.addCleanup(setattr, terminals, name, getattr(terminals, name))
        setattr(terminals, name, value)

    def test_what_is_typed_arrives_and_output_comes_back(self) -> None:
        def play(_request: Request, peer: Peer) -> None:
            self.assertEqual(peer.receive(), (2, b"ls\n"))
            peer.send(shown(2, b"a  ") + shown(3, b"b\r\n") + told("input", next_offset=3) + ended(4, code=3))
            self.assertEqual(peer.receive()[0], 8)

        with self.box(play).terminal(["sh"], rows=40, columns=100) as terminal:
            self.assertEqual((terminal.pid, terminal.id), (7, COMMAND))
            terminal.write("ls\n")
            result = terminal.wait(10)
        self.assertEqual((result.stdout, result.exit_code), ("a  b\r\n", 3))
        made, opened = self.played.requests
        self.assertEqual(made.json, {"argv": ["sh"], "terminal": {"rows": 40, "columns": 100}})
        self.assertEqual((opened.path, opened.query), (SOCKET, {"input_offset": ["0"]}))
        self.assertEqual(opened.headers["authorization"], "Bearer test-key")

    def test_without_a_command_it_is_the_login_shell(self) -> None:
        with self.box(lambda _request, peer: peer.send(ended(2))).terminal() as terminal:
            terminal.wait(10)
        argv = self.played.requests[0].json["argv"]  # type: ignore[index]
        self.assertEqual((argv[:2], argv[2].splitlines()[-1]), (["/bin/sh", "-c"], 'exec "$s" -l'))

    def test_whatever_breaks_each_byte_comes_once_both_ways(self) -> None:
        self.fast()
        for seed in range(6):
            chance = random.Random(seed)
            text = bytes(chance.randrange(256) for _ in range(8000))
            cuts = [0, *sorted(chance.sample(range(1, len(text)), 20)), len(text)]
            pieces = [text[a:b] for a, b in zip(cuts, cuts[1:])]
            taken = bytearray()

            def play(request: Request, peer: Peer) -> None:
                begin = int(request.query["input_offset"][0])
                after = int(request.query.get("after", ["1.1"])[0].split(".")[1])
                for _ in range(chance.randrange(4)):
                    # All that is due comes by itself: an empty input would never be sent.
                    if len(taken) < 5000:
                        _, data = peer.receive()
                        taken.extend(data[len(taken) - begin :])
                        begin += len(data)
                        if chance.random() < 0.7:
                            peer.send(told("input", next_offset=len(taken)))
                if chance.random() < 0.2:
                    raise Broken
                # A server may repeat what was seen.
                first = max(0, after - 1 - chance.randrange(3))
                last = min(len(pieces), first + chance.randrange(1, 12))
                data = b"".join(shown(at + 2, pieces[at]) for at in range(first, last))
                if last == len(pieces) and len(taken) == 5000:
                    peer.send(data + ended(len(pieces) + 2))
                    return
                peer.send(data[: chance.randrange(len(data) + 1)])
                # With a reset, or with an end in the middle of a frame.
                if chance.random() < 0.2:
                    raise Broken
                peer.end()

            typed = bytes(chance.randrange(256) for _ in range(5000))
            with self.subTest(seed=seed), self.box(play).terminal(["x"]) as terminal:
                for at in range(0, len(typed), 700):
                    terminal.write(typed[at : at + 700])
                self.assertEqual(terminal.wait(30).stdout_bytes, text)
                self.assertEqual(bytes(taken), typed)

    def test_the_latest_size_is_told_also_to_the_next_connection(self) -> None:
        self.fast()
        sizes: list[object] = []

        def play(request: Request, peer: Peer) -> None:
            sizes.append(json.loads(peer.receive()[1]))
            if len(sizes) == 2:
                raise Broken
            peer.send(shown(len(sizes) + 1, b"x"))
            if len(sizes) == 1:
                sizes.append(json.loads(peer.receive()[1]))
                raise Broken
            peer.send(ended(9))

        with self.box(play).terminal(["x"]) as terminal:
            terminal.resize(30, 90)
            self.assertEqual(terminal.read(10), b"x")
            terminal.resize(50, 132)
            terminal.wait(10)
        latest = {"type": "resize", "rows": 50, "columns": 132}
        self.assertEqual(sizes, [{**latest, "rows": 30, "columns": 90}, latest, latest])

    def test_pings_are_answered_while_it_is_waited_for(self) -> None:
        def play(_request: Request, peer: Peer) -> None:
            peer.send(frame(9, b"still there?"))
            self.assertEqual(peer.receive(), (10, b"still there?"))
            peer.send(ended(2))

        with self.box(play).terminal(["x"]) as terminal:
            self.assertEqual(terminal.wait(10).exit_code, 0)

    def test_a_deadline_takes_nothing_away_and_keeps_the_connection(self) -> None:
        release = threading.Event()
        self.addCleanup(release.set)

        def play(_request: Request, peer: Peer) -> None:
            peer.send(shown(2, b"pass"))
            release.wait(20)
            peer.send(shown(3, b"word: ") + ended(4))

        with self.box(play).terminal(["x"]) as terminal:
            with self.assertRaises(DeadlineExceeded):
                terminal.read_until("word:", 0.3)
            with self.assertRaises(DeadlineExceeded):
                terminal.wait(0.1)
            release.set()
            self.assertEqual(terminal.read_until("word:", 10), "password:")
            self.assertEqual(terminal.wait(10).stdout, " ")
            with self.assertRaises(ValueError):
                terminal.write("x")
        self.assertEqual(self.played.connections, 2)

    def test_an_end_before_what_was_waited_for_is_told(self) -> None:
        box = self.box(lambda _request, peer: peer.send(shown(2, b"no such file\r\n") + ended(3, code=1)))
        with box.terminal(["x"]) as terminal, self.assertRaisesRegex(EOFError, "no such file"):
            terminal.read_until("$ ", 10)

    def test_output_has_a_limit(self) -> None:
        box = self.box(lambda _request, peer: peer.send(shown(2, b"x" * 2000) + ended(3)))
        with box.terminal(["x"]) as terminal, self.assertRaises(OutputTooLarge):
            terminal.wait(10, max_output=1000)

    def test_a_gap_and_what_is_refused_are_events_and_errors_of_reading(self) -> None:
        gap = told("gap", id="1.3", first_lost=2, last_lost=3, stdout_bytes=9, stderr_bytes=0)
        refused = told("refused", wish="input", problem=problem(409, "stdin_closed"))
        size = told("refused", wish="resize", problem=problem(409, "no_terminal"))

        def play(_request: Request, peer: Peer) -> None:
            peer.send(size + gap + shown(4, b"a") + refused + ended(5))

        box = self.box(play)
        with box.terminal(["x"]) as terminal:
            kinds = [type(event) for event in terminal]
        self.assertEqual(kinds, [Refused, Gap, bytes, Refused, Exit])
        with box.terminal(["x"]) as terminal:
            with self.assertRaises(OutputLost):
                terminal.wait(10)
            with self.assertRaisesRegex(Exception, "stdin_closed"):
                terminal.wait(10)

    def test_a_reason_that_does_not_pass_ends_it(self) -> None:
        failed = told("error", problem=problem(409, "sandbox_not_running")) + frame(8, b"\x03\xf3")
        box = self.box(lambda _request, peer: peer.send(failed))
        with self.assertRaises(SandboxNotRunning), box.terminal(["x"]) as terminal:
            terminal.read(10)

    def test_a_server_that_goes_away_for_a_moment_is_found_again(self) -> None:
        self.fast()

        def play(request: Request, peer: Peer) -> None:
            if len(self.played.requests) == 2:
                peer.send(told("error", problem=problem(503, "shutting_down")) + frame(8, b"\x03\xf4"))
            else:
                peer.send(ended(2))

        with self.box(play).terminal(["x"]) as terminal:
            self.assertEqual(terminal.wait(10).exit_code, 0)
        self.assertEqual(self.played.requests[2].query["after"], ["1.1"])

    def test_a_server_that_does_not_come_back_is_given_up(self) -> None:
        self.fast()
        self.limit("PATIENCE", 0.3)

        def play(request: Request, peer: Peer) -> None:
            raise Broken

        with self.box(play).terminal(["x"]) as terminal:
            begin = time.monotonic()
            with self.assertRaises(StreamLost):
                terminal.read()
        self.assertLess(time.monotonic() - begin, 10)

    def test_a_silent_connection_is_lost_and_continued(self) -> None:
        self.fast()
        self.limit("SILENCE", 0.3)
        release = threading.Event()

        def play(request: Request, peer: Peer) -> None:
            if "after" not in request.query:
                release.wait(20)
            else:
                peer.send(shown(2, b"a") + ended(3))

        box = self.box(play)
        self.addCleanup(release.set)
        with box.terminal(["x"]) as terminal:
            self.assertEqual(terminal.wait(10).stdout, "a")

    def test_what_is_no_terminal_is_an_error_and_not_a_hang(self) -> None:
        violations = {
            b"\x81\x85\0\0\0\0Hello": 1002,
            b"\x82\x7f" + b"\x7f" * 8: 1009,
            frame(1, b"\xff"): 1007,
        }
        for wrong, code in violations.items():
            said: queue.Queue[tuple[int, bytes]] = queue.Queue()

            def play(_request: Request, peer: Peer) -> None:
                peer.send(wrong)
                said.put(peer.receive())

            with self.assertRaises(ProtocolError), self.box(play).terminal(["x"]) as terminal:
                terminal.read(10)
            self.assertEqual(said.get(timeout=10), (8, code.to_bytes(2, "big")))
        for wrong in (frame(1, b"{"), frame(1, b"[]"), frame(2, b"short"), told("exit"), told("input"), frame(8, b"\x03\xf0no")):
            box = self.box(lambda _request, peer: peer.send(wrong))
            with self.assertRaises(ProtocolError), box.terminal(["x"]) as terminal:
                terminal.read(10)

    def test_a_message_of_a_later_server_is_passed_over(self) -> None:
        box = self.box(lambda _request, peer: peer.send(told("title", text="x") + ended(2)))
        with box.terminal(["x"]) as terminal:
            self.assertEqual([type(event) for event in terminal], [Exit])

    def test_another_answer_than_a_websocket_is_told(self) -> None:
        heads = [
            b"HTTP/1.1 200 X\r\nContent-Length: 0\r\n\r\n",
            b"HTTP/1.1 101 X\r\nConnection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: x\r\n\r\n",
        ]
        for head in heads:

            def handler(request: Request, reply: Reply) -> None:
                if request.method == "POST":
                    reply.json(201, command_created())
                else:
                    reply.raw(head)

            with self.assertRaises(ProtocolError):
                self.open(handler).terminal(["x"])

    def test_a_refused_upgrade_says_why(self) -> None:
        def handler(request: Request, reply: Reply) -> None:
            if request.method == "POST":
                reply.json(201, command_created())
            else:
                reply.problem(409, "sandbox_not_running")

        with self.assertRaises(SandboxNotRunning):
            self.open(handler).terminal(["x"])

    def test_it_is_typed_at_and_not_fed(self) -> None:
        release = threading.Event()
        box = self.box(lambda _request, _peer: release.wait(20))
        self.addCleanup(release.set)
        with box.terminal(["x"]) as terminal:
            begin = time.monotonic()
            terminal.write(b"x" * (1 << 20))
            with self.assertRaises(TooLarge):
                terminal.write("x")
            self.assertLess(time.monotonic() - begin, 5)

    def test_a_thread_may_type_while_another_reads(self) -> None:
        text = bytes(range(256)) * 3000

        def play(_request: Request, peer: Peer) -> None:
            taken = b""
            while len(taken) < len(text):
                taken += peer.receive()[1]
            # More than any buffer on the way: it went out while the other thread waited.
            peer.send(shown(2, b"same" if taken == text else b"other"))
            self.assertEqual(json.loads(peer.receive()[1]), {"type": "eof"})
            peer.send(ended(3))

        with self.box(play).terminal(["x"]) as terminal:
            read: list[bytes] = []
            reader = threading.Thread(target=lambda: read.append(terminal.read(20)))
            reader.start()
            terminal.write(text)
            reader.join(20)
            terminal.close_input()
            self.assertEqual((read, terminal.wait(10).exit_code), ([b"same"], 0))

    def test_closing_wakes_the_thread_that_reads(self) -> None:
        release = threading.Event()
        box = self.box(lambda _request, _peer: release.wait(20))
        self.addCleanup(release.set)
        terminal: Terminal = box.terminal(["x"])
        raised: list[BaseException] = []

        def read() -> None:
            try:
                terminal.next()
            except BaseException as error:
                raised.append(error)

        reader = threading.Thread(target=read)
        reader.start()
        terminal.close()
        reader.join(10)
        self.assertIsInstance(raised[0], StreamLost)

    def test_one_comes_back_to_a_terminal_behind_what_was_read_and_typed(self) -> None:
        def play(_request: Request, peer: Peer) -> None:
            self.assertEqual(peer.receive(), (2, b"exit\n"))
            peer.send(ended(10))

        with self.box(play).attach(COMMAND, after="1.9") as terminal:
            terminal.write("exit\n")
            self.assertEqual((terminal.wait(10).exit_code, terminal.position), (0, "1.10"))
        asked, opened = self.played.requests
        self.assertEqual(asked.json, {"offset": 0, "data": ""})
        self.assertEqual(opened.query, {"input_offset": ["5"], "after": ["1.9"]})

    def test_a_signal_is_sent_to_the_command(self) -> None:
        release = threading.Event()
        box = self.box(lambda _request, _peer: release.wait(20))
        self.addCleanup(release.set)
        with box.terminal(["x"]) as terminal:
            terminal.send_signal("SIGHUP")
            terminal.kill()
        sent = [request.json for request in self.played.requests if request.path.endswith("/signal")]
        self.assertEqual(sent, [{"signal": "HUP"}, {"signal": "KILL"}])


if __name__ == "__main__":
    unittest.main()
