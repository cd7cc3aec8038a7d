import random
import unittest

from space_sandbox._sse import LIMIT, Event, Parser
from space_sandbox.errors import ProtocolError


def parse(*pieces: bytes) -> list[Event]:
    parser = Parser()
    return [event for piece in pieces for event in parser.push(piece)]


class ParserTest(unittest.TestCase):
    def test_an_event_has_a_name_data_and_an_id(self) -> None:
        self.assertEqual(parse(b"id: 1.2\nevent: stdout\ndata: {}\n\n"), [Event("stdout", "{}", "1.2")])

    def test_defaults_and_several_data_lines_are_as_the_standard_has_them(self) -> None:
        self.assertEqual(parse(b"data\ndata:  a\ndata:b\n\n"), [Event("message", "\n a\nb", None)])

    def test_every_line_end_is_understood_however_it_is_cut(self) -> None:
        for end in ("\n", "\r", "\r\n"):
            text = end.join(["event: a", "data: 1", "", "data: 2", "", ""]).encode()
            expected = [Event("a", "1", None), Event("message", "2", None)]
            with self.subTest(end=end):
                self.assertEqual(parse(text), expected)
                self.assertEqual(parse(*(text[at : at + 1] for at in range(len(text)))), expected)

    def test_a_comment_is_no_event_and_an_unfinished_one_is_not_told(self) -> None:
        self.assertEqual(parse(b": heartbeat\n\ndata: x\n"), [])

    def test_an_id_stays_for_the_events_behind_it(self) -> None:
        self.assertEqual(parse(b"id: 7\n\ndata: x\n\n"), [Event("message", "x", "7")])

    def test_what_has_no_end_is_refused(self) -> None:
        for endless in (b"x" * (LIMIT + 1), b"data: 0123456789\n" * LIMIT):
            with self.assertRaises(ProtocolError):
                parse(*(endless[at : at + 65536] for at in range(0, 2 * LIMIT, 65536)))

    def test_how_bytes_are_cut_does_not_matter(self) -> None:
        chance = random.Random(7)
        for _ in range(300):
            text = bytes(chance.choice(b"\n\r:daid \xff\xc3\xa4") for _ in range(chance.randrange(120)))
            text = text.replace(b"d", b"data: ")
            cuts = sorted(chance.randrange(len(text) + 1) for _ in range(3))
            pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)])]
            self.assertEqual(parse(*pieces), parse(text), text)


if __name__ == "__main__":
    unittest.main()
