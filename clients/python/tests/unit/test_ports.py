"""Ports against a played server."""

import unittest

from space_sandbox import Sandbox, models
from space_sandbox._codec import decode
from space_sandbox.errors import ProtocolError

from .played import SANDBOX, TIME, Played, Reply, Request, sandbox

PORTS = f"/v1/sandboxes/{SANDBOX}/ports"
URL = "http://8000-x.localhost:8710"


def port(number: int = 8000, visibility: str = "private") -> dict[str, object]:
    return {"port": number, "visibility": visibility, "url": URL}


class PortsTest(unittest.TestCase):
    def box(self, handler: object) -> Sandbox:
        self.played = Played(handler)  # type: ignore[arg-type]
        self.addCleanup(self.played.__exit__)
        space = self.played.space()
        self.addCleanup(space.close)
        return Sandbox(space, decode(models.Sandbox, sandbox()))

    def test_a_port_has_an_address_whether_or_not_anything_listens(self) -> None:
        box = self.box(lambda request, reply: reply.json(200, port()))
        self.assertEqual((box.get_url(8000), box.ports.get(8000).visibility), (URL, "private"))
        self.assertEqual(self.played.paths(), [f"GET {PORTS}/8000"] * 2)

    def test_a_link_has_a_token_for_as_long_as_was_asked(self) -> None:
        def handler(request: Request, reply: Reply) -> None:
            made = {"url": URL, "token": "t", "link": f"{URL}/?t", "header": "X-Space-Port-Token", "expires_at": TIME}
            reply.json(201, made)

        box = self.box(handler)
        self.assertEqual(box.get_url(8000, valid_seconds=60), f"{URL}/?t")
        self.assertEqual(box.ports.create_token(8000).header, "X-Space-Port-Token")
        self.assertEqual([request.json for request in self.played.requests], [{"valid_seconds": 60}, {}])

    def test_a_link_that_is_not_shown_is_an_error(self) -> None:
        made = {"url": URL, "header": "X-Space-Port-Token", "expires_at": TIME}
        with self.assertRaises(ProtocolError):
            self.box(lambda request, reply: reply.json(201, made)).get_url(8000, valid_seconds=60)

    def test_visibility_is_set_and_tokens_are_revoked(self) -> None:
        def handler(request: Request, reply: Reply) -> None:
            if request.method == "DELETE":
                reply.bytes(204, b"")
            else:
                reply.json(200, port(visibility="public"))

        ports = self.box(handler).ports
        self.assertEqual(ports.set_visibility(8000, "public").visibility, models.PortVisibility.PUBLIC)
        ports.revoke_tokens(8000)
        self.assertEqual(self.played.requests[0].json, {"visibility": "public"})
        self.assertEqual(self.played.paths(), [f"PUT {PORTS}/8000", f"DELETE {PORTS}/8000/tokens"])

    def test_a_list_goes_on_to_its_last_page(self) -> None:
        def handler(request: Request, reply: Reply) -> None:
            first = "cursor" not in request.query
            page = {"items": [port(1 if first else 2)]}
            reply.json(200, {**page, "next_cursor": "c"} if first else page)

        self.assertEqual([found.port for found in self.box(handler).ports.list()], [1, 2])


if __name__ == "__main__":
    unittest.main()
