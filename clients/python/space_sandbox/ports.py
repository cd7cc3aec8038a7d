"""Ports of a sandbox: where a program that listens in it is reached, and by whom."""

from __future__ import annotations

from collections.abc import Iterator

from ._generated import CreatePortToken, Operations, Port, PortToken, PortVisibility, SetPort
from .errors import ProtocolError


class Ports:
    """The ports of one sandbox. Each is private unless it was made public, whether or not anything listens there."""

    def __init__(self, operations: Operations, sandbox: str) -> None:
        self._operations = operations
        self._sandbox = sandbox

    def get(self, port: int) -> Port:
        """Where it is reached, and by whom."""
        return self._operations.port_get(self._sandbox, str(port))

    def get_url(self, port: int, *, valid_seconds: int | None = None) -> str:
        """Its address, for whoever may reach it. With `valid_seconds` a link with a token in it, good for so long, that
        opens a private port to everybody who has it."""
        if valid_seconds is None:
            return self.get(port).url
        link = self.create_token(port, valid_seconds=valid_seconds).link
        if link is None:
            raise ProtocolError("the server made a token and does not show it")
        return link

    def set_visibility(self, port: int, visibility: PortVisibility | str) -> Port:
        """`"public"` opens it to everybody, `"private"` to those who have a token. Edges follow within 5 seconds;
        connections that exist go on."""
        return self._operations.port_set(self._sandbox, str(port), SetPort(visibility=PortVisibility(visibility)))

    def create_token(self, port: int, *, valid_seconds: int | None = None) -> PortToken:
        """A token for this port alone, good for an hour unless told otherwise, at most 30 days. A request carries
        `token` in the header `header`; `link` is for a browser."""
        return self._operations.port_token_create(
            self._sandbox, str(port), CreatePortToken(valid_seconds=valid_seconds)
        )

    def revoke_tokens(self, port: int) -> None:
        """All tokens of the port that were made so far. Edges refuse them within 5 seconds."""
        self._operations.port_tokens_revoke(self._sandbox, str(port))

    def list(self) -> Iterator[Port]:
        """Those for which something was set, by number."""
        cursor: str | None = None
        while True:
            page = self._operations.port_list(self._sandbox, limit=500, cursor=cursor)
            yield from page.items
            cursor = page.next_cursor
            if cursor is None:
                return
