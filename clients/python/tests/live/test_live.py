"""Against a real control plane: its node, played or real, is at `SPACE_URL`. Commands are the played node's."""

import io
import os
import tarfile
import tempfile
import threading
import unittest

from space_sandbox import (
    Chunk,
    CommandFailed,
    Exit,
    FileExists,
    FileNotFound,
    Lost,
    NotFound,
    Sandbox,
    Space,
    Unauthorized,
    models,
)
from space_sandbox.errors import DirectoryNotEmpty, InvalidRequest, TemplateNotFound


class SandboxTest(unittest.TestCase):
    space: Space
    box: Sandbox

    @classmethod
    def setUpClass(cls) -> None:
        cls.space = Space()
        cls.addClassCleanup(cls.space.close)
        cls.box = cls.space.create(labels={"suite": "python"})
        cls.addClassCleanup(cls.box.delete)

    def test_a_sandbox_is_made_found_and_gone(self) -> None:
        with Sandbox.create(space=self.space, env={"A": "b"}, labels={"a": "1"}) as made:
            self.assertEqual((made.state, made.info.env_names), (models.SandboxState.RUNNING, ["A"]))
            self.assertIn(made.id, [found.id for found in Sandbox.list(space=self.space, labels={"a": "1"})])
            with Sandbox.connect(made.id) as again:
                self.assertEqual(again.info.labels, {"a": "1"})
        self.assertEqual(made.state, "deleted")
        made.delete()

    def test_refusals_have_their_exceptions(self) -> None:
        with self.assertRaises(TemplateNotFound):
            self.space.create("none-such")
        with self.assertRaisesRegex(InvalidRequest, "vcpus"):
            self.space.create(vcpus=99)
        with self.assertRaises(NotFound):
            self.space.connect("sbx_01920000000070008000000000000001")
        with Space(self.space.url, "space_x") as stranger, self.assertRaises(Unauthorized) as caught:
            stranger.connect(self.box.id)
        self.assertTrue(caught.exception.request_id)

    def test_a_command_runs_to_its_end(self) -> None:
        result = self.box.run(["echo", "a", "ä"])
        self.assertEqual((result.stdout, result.stderr, result.exit_code), ("a ä\n", "", 0))
        with self.assertRaises(CommandFailed) as caught:
            self.box.run(["exit", "7"], check=True)
        self.assertEqual(caught.exception.result.exit_code, 7)

    def test_output_comes_once_and_in_order_and_again(self) -> None:
        with self.box.start(["count", "5000"]) as command:
            events = list(command)
        text = b"".join(event.data for event in events if isinstance(event, Chunk))
        self.assertEqual(text.decode().split(), [str(number) for number in range(1, 5001)])
        self.assertIsInstance(events[-1], Exit)
        again = self.box.command(command.id).wait()
        self.assertEqual(again.stdout_bytes, text)
        self.assertIn(command.id, [known.id for known in self.box.commands()])

    def test_input_is_written_and_its_end_read(self) -> None:
        text = os.urandom(100_000)
        self.assertEqual(self.box.run(["cat"], stdin=text).stdout_bytes, text)
        with self.box.start(["cat"], stdin=True) as command:
            command.stdin.write("a")
            event = command.next(30)
            assert isinstance(event, Chunk)
            self.assertEqual(event.data, b"a")
            command.stdin.close()
            self.assertEqual(command.wait(30).exit_code, 0)

    def test_a_signal_ends_it(self) -> None:
        with self.box.start(["sleep"]) as command:
            command.send_signal("SIGINT")
            self.assertEqual(command.wait(30).exit_code, 130)

    def test_threads_share_one_server(self) -> None:
        outcomes: list[str] = []

        def work(number: int) -> None:
            outcomes.append(self.box.run(["echo", str(number)]).stdout.strip())

        threads = [threading.Thread(target=work, args=(number,)) for number in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        self.assertEqual(sorted(outcomes, key=int), [str(number) for number in range(16)])

    def test_files_go_in_and_out(self) -> None:
        files = self.box.files
        files.mkdir("/work/a", parents=True)
        info = files.write("/work/a/ü.txt", "hällo", mode=0o640)
        self.assertEqual((info.mode, info.size), ("0640", 6))
        self.assertEqual(files.read_text("/work/a/ü.txt"), "hällo")
        self.assertEqual(files.stat("/work/a").type, models.FileKind.DIRECTORY)
        files.move("/work/a/ü.txt", "/work/b")
        self.assertEqual((files.exists("/work/a/ü.txt"), files.exists("/work/b")), (False, True))
        self.assertEqual([entry.path for entry in files.list("/work")], ["/work/a", "/work/b"])
        with self.assertRaises(FileExists):
            files.write("/work/b", b"", exclusive=True)
        with self.assertRaises(DirectoryNotEmpty):
            files.remove("/work")
        files.remove("/work", recursive=True)
        with self.assertRaises(FileNotFound):
            files.read("/work/b")

    def test_large_files_are_streams(self) -> None:
        text = os.urandom(5_000_001)
        with tempfile.TemporaryDirectory() as directory:
            local = f"{directory}/in"
            with open(local, "wb") as file:
                file.write(text)
            self.assertEqual(self.box.files.upload(local, "/large", mode=0o600).size, len(text))
            self.assertEqual(self.box.files.download("/large", f"{directory}/out"), len(text))
            with open(f"{directory}/out", "rb") as file:
                self.assertEqual(file.read(), text)
            self.assertEqual(os.stat(f"{directory}/out").st_mode & 0o777, 0o600)
        pieces = (text[at : at + 100_000] for at in range(0, len(text), 100_000))
        self.box.files.write("/pieces", pieces)
        with self.box.files.open("/pieces") as source:
            self.assertEqual((source.size, source.read(3), source.readall()), (len(text), text[:3], text[3:]))
        target = io.BytesIO()
        self.box.files.download("/pieces", target)
        self.assertEqual(target.getvalue(), text)

    def test_a_tree_is_a_tar_stream(self) -> None:
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as archive:
            entry = tarfile.TarInfo("x/y")
            entry.size = 2
            archive.addfile(entry, io.BytesIO(b"hi"))
        self.box.files.mkdir("/tree", parents=True)
        self.assertGreaterEqual(self.box.files.unpack("/tree", packed.getvalue()).entries, 1)
        with self.box.files.archive("/tree") as source, tarfile.open(fileobj=source, mode="r|") as archive:
            self.assertIn("x/y", [entry.name.removeprefix("./") for entry in archive])

    def test_a_watch_tells_what_happens(self) -> None:
        self.box.files.mkdir("/watched", parents=True)
        with self.box.files.watch("/watched") as watch:
            self.box.files.write("/watched/a", b"x")
            change = watch.next(30)
        assert not isinstance(change, Lost)
        self.assertEqual(change.path, "/watched/a")

    def test_a_terminal_is_typed_at_resized_left_and_found_again(self) -> None:
        with self.box.terminal(["tty"], rows=30, columns=90) as terminal:
            self.assertEqual(terminal.read_until("\n", 30), "30 90\n")
            terminal.write("hällo ")
            self.assertEqual(terminal.read_until("hällo ", 30), "hällo ")
            terminal.resize(50, 132)
            self.assertEqual(terminal.read_until("\n", 30), "50 132\n")
        with self.box.attach(terminal.id) as again:
            self.assertEqual(again.read_until("50 132\n", 30), "30 90\nhällo 50 132\n")
            again.write("\x04")
            self.assertEqual(again.wait(30).exit_code, 0)
        with self.assertRaises(NotFound):
            self.box.attach("cmd_01920000000070008000000000000001")
        with self.assertRaisesRegex(InvalidRequest, "rows"):
            self.box.terminal(["tty"], rows=0)

    def test_a_port_is_made_public_and_private_again(self) -> None:
        ports, label = self.box.ports, self.box.id.removeprefix("sbx_")
        self.assertEqual(self.box.get_url(8000), f"http://8000-{label}.localhost:8710")
        self.assertEqual((ports.get(8000).visibility, list(ports.list())), (models.PortVisibility.PRIVATE, []))
        self.assertEqual(ports.set_visibility(8000, "public").visibility, models.PortVisibility.PUBLIC)
        self.assertEqual([port.port for port in ports.list()], [8000])
        ports.set_visibility(8000, "private")
        token = ports.create_token(8000, valid_seconds=60)
        self.assertEqual((token.header, token.url), ("X-Space-Port-Token", self.box.get_url(8000)))
        self.assertIn(token.url, self.box.get_url(8000, valid_seconds=60))
        ports.revoke_tokens(8000)
        with self.assertRaisesRegex(InvalidRequest, "port"):
            ports.get(0)

    def test_what_happened_can_be_read(self) -> None:
        events = self.space.events(after=0, sandbox_id=self.box.id)
        self.assertEqual(next(events).kind, "sandbox.created")
        events.close()  # type: ignore[attr-defined]


if __name__ == "__main__":
    unittest.main()
