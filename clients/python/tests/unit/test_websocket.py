"""RFC 6455 from a client's side: frames both ways, however they are cut, and what is no WebSocket."""

import random
import socket
import struct
import threading
import unittest

from space_sandbox import StreamLost, _websocket
from space_sandbox._typed import Typed
from space_sandbox._websocket import Message, Opcode, Parser, Violation, WebSocket

from .played import frame


def parse(*pieces: bytes, limit: int = _websocket.LIMIT) -> list[Message]:
    parser = Parser(limit)
    return [message for piece in pieces for message in parser.push(piece)]


def close(code: int, reason: bytes = b"") -> bytes:
    return frame(8, struct.pack("!H", code) + reason)


class ParserTest(unittest.TestCase):
    def refused(self, data: bytes, code: int, limit: int = _websocket.LIMIT) -> None:
        with self.assertRaises(Violation) as caught:
            parse(data, limit=limit)
        self.assertEqual(caught.exception.code, code, data[:20])

    def test_messages_of_every_length_come_whole(self) -> None:
        for length in (0, 1, 125, 126, 65_535, 65_536, 1 << 20):
            data = bytes(length)
            self.assertEqual(parse(frame(2, data)), [Message(Opcode.BINARY, data)], length)

    def test_the_examples_of_the_standard_are_understood(self) -> None:
        self.assertEqual(parse(bytes.fromhex("810548656c6c6f")), [Message(Opcode.TEXT, b"Hello")])
        fragmented = bytes.fromhex("010348656c80026c6f")
        self.assertEqual(parse(fragmented), [Message(Opcode.TEXT, b"Hello")])
        self.assertEqual(parse(bytes.fromhex("890548656c6c6f")), [Message(Opcode.PING, b"Hello")])

    def test_control_frames_come_between_the_pieces_of_a_message(self) -> None:
        data = frame(1, "ä".encode()[:1], final=False) + frame(9, b"p") + frame(0, b"", final=False) + frame(0, "ä".encode()[1:])
        self.assertEqual(parse(data), [Message(Opcode.PING, b"p"), Message(Opcode.TEXT, "ä".encode())])

    def test_how_bytes_are_cut_does_not_matter(self) -> None:
        chance = random.Random(5)
        for _ in range(200):
            data, whole = b"", []
            for _ in range(chance.randrange(1, 6)):
                text = bytes(chance.randrange(256) for _ in range(chance.choice([0, 3, 125, 126, 300])))
                cut = chance.randrange(len(text) + 1)
                if chance.random() < 0.5:
                    data += frame(2, text[:cut], final=False) + frame(9, b"x") + frame(0, text[cut:])
                    whole += [Message(Opcode.PING, b"x"), Message(Opcode.BINARY, text)]
                else:
                    data += frame(2, text)
                    whole.append(Message(Opcode.BINARY, text))
            cuts = sorted(chance.randrange(len(data) + 1) for _ in range(8))
            pieces = [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)])]
            self.assertEqual(parse(*pieces), whole)

    def test_a_close_has_a_code_and_a_reason_or_neither(self) -> None:
        (closed,) = parse(close(1011, "ä".encode()))
        self.assertEqual((closed.code, closed.reason), (1011, "ä"))
        (bare,) = parse(frame(8, b""))
        self.assertEqual((bare.code, bare.reason), (_websocket.NO_CODE, ""))
        for code in (1000, 1003, 1012, 3000, 4999):
            self.assertEqual(parse(close(code))[0].code, code)
        for wrong in (0, 999, 1004, 1005, 1006, 1015, 2999, 5000):
            self.refused(close(wrong), 1002)
        self.refused(frame(8, b"x"), 1002)
        self.refused(close(1000, b"\xff"), 1007)

    def test_what_no_server_may_send_is_refused(self) -> None:
        self.refused(b"\xc1\x00", 1002)  # a reserved bit
        self.refused(b"\x81\x85\x00\x00\x00\x00Hello", 1002)  # masked
        self.refused(b"\x83\x00", 1002)  # no such opcode
        self.refused(frame(9, b"x" * 126), 1002)
        self.refused(frame(9, b"", final=False), 1002)
        self.refused(frame(0, b"x"), 1002)
        self.refused(frame(1, b"a", final=False) + frame(1, b"b"), 1002)
        self.refused(frame(1, b"\xff"), 1007)

    def test_what_is_too_large_is_refused_before_it_comes(self) -> None:
        self.refused(b"\x82\x7f" + struct.pack("!Q", 101), 1009, limit=100)
        self.refused(b"\x82\x7f" + struct.pack("!Q", 1 << 63), 1009)
        self.refused(frame(2, b"x" * 60, final=False) + frame(0, b"x" * 60, final=False), 1009, limit=100)
        parser = Parser(limit=100)
        for _ in range(1000):
            parser.push(frame(2, b"x" * 100))


class FrameTest(unittest.TestCase):
    def test_a_clients_frame_is_masked(self) -> None:
        self.assertEqual(
            _websocket.frame(Opcode.TEXT, b"Hello", bytes.fromhex("37fa213d")), bytes.fromhex("818537fa213d7f9f4d5158")
        )
        self.assertEqual(_websocket.frame(Opcode.BINARY, b"", b"abcd"), b"\x82\x80abcd")

    def test_every_length_has_its_form(self) -> None:
        for length, head in ((125, b"\xfd"), (126, b"\xfe\x00\x7e"), (65_535, b"\xfe\xff\xff"), (65_536, b"\xff" + struct.pack("!Q", 65_536))):
            sent = _websocket.frame(Opcode.BINARY, b"x" * length, b"\0\0\0\0")
            self.assertEqual(sent, b"\x82" + head + b"\0\0\0\0" + b"x" * length)

    def test_masks_differ(self) -> None:
        self.assertGreater(len({_websocket.frame(Opcode.TEXT, b"")[2:] for _ in range(100)}), 90)

    def test_a_key_is_accepted_as_the_standard_has_it(self) -> None:
        self.assertEqual(_websocket.accept("dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=")
        self.assertEqual(len(_websocket.new_key()), 24)


class WebSocketTest(unittest.TestCase):
    def setUp(self) -> None:
        ours, self.theirs = socket.socketpair()
        self.wake, self.waker = socket.socketpair()
        self.socket = WebSocket(ours, b"")
        for sock in (self.theirs, self.wake, self.waker):
            self.addCleanup(sock.close)
        self.addCleanup(self.socket.close)

    def test_what_did_not_fit_is_sent_while_it_is_received_from(self) -> None:
        data = bytes(4 << 20)
        self.socket.send(Opcode.BINARY, data)
        self.assertFalse(self.socket.flush())
        length = 0

        def read() -> None:
            nonlocal length
            while length < len(data):
                length += len(self.theirs.recv(1 << 20))

        reader = threading.Thread(target=read)
        reader.start()
        while not self.socket.flush():
            self.assertEqual(self.socket.receive(10, self.wake), [])
        reader.join(10)
        self.assertEqual(length, len(data) + 14)

    def test_it_is_woken_up_and_told_when_nothing_comes(self) -> None:
        self.assertIsNone(self.socket.receive(0.01, self.wake))
        self.waker.send(b"x")
        self.assertIsNone(self.socket.receive(60, self.wake))

    def test_a_connection_that_ends_is_lost(self) -> None:
        self.theirs.close()
        with self.assertRaises(StreamLost):
            self.socket.receive(10, self.wake)

    def test_a_close_is_answered_with_its_code_and_only_once(self) -> None:
        self.theirs.sendall(close(1012, b"later") + frame(1, b"behind it"))
        messages = self.socket.receive(10, self.wake)
        assert messages is not None
        self.assertEqual([(message.code, message.reason) for message in messages], [(1012, "later")])
        self.socket.close()
        sent = self.theirs.recv(100)
        self.assertEqual((sent[:2], len(sent), self.theirs.recv(1)), (b"\x88\x82", 8, b""))


class TypedTest(unittest.TestCase):
    def test_what_was_not_taken_is_sent_again_from_its_offset(self) -> None:
        typed = Typed(10)
        typed.push(b"abc")
        self.assertEqual(typed.take_unsent(), b"abc")
        typed.push(b"de")
        # More than was sent here is somebody else's.
        typed.taken(14)
        self.assertEqual((typed.offset, len(typed), typed.take_unsent()), (14, 2, b"de"))
        typed.rewind()
        self.assertEqual(typed.take_unsent(), b"de")
        typed.taken(12)
        self.assertEqual((typed.offset, len(typed)), (14, 2))
        typed.close()
        typed.push(b"f")
        self.assertEqual((len(typed), typed.has_unsent()), (0, False))


if __name__ == "__main__":
    unittest.main()
