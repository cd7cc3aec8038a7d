"""`space.terminal.v1` as values: a head of 17 bytes before output, and JSON for everything else."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from typing import Any

from ._codec import decode
from ._generated import Exit, Gap, Problem, Started
from ._websocket import Message, Opcode
from .errors import ProtocolError

PROTOCOL = "space.terminal.v1"

#: Stream, generation, sequence.
_HEAD = struct.Struct("!BQQ")


@dataclass(frozen=True)
class Refused:
    """Something that was asked for was not possible; everything else goes on. After `input` nothing more can be typed."""

    #: `input`, `resize` or `signal`.
    wish: str
    problem: Problem


@dataclass(frozen=True)
class Taken:
    """So many bytes of input are the command's, since its start."""

    next_offset: int


@dataclass(frozen=True)
class Failed:
    """The connection ends early."""

    problem: Problem


Told = bytes | Started | Gap | Exit | Taken | Refused | Failed


def read(message: Message) -> tuple[str | None, Told] | None:
    """What a message says, and its position where it is an event. `None`: a later server's."""
    if message.opcode == Opcode.BINARY:
        if len(message.data) < _HEAD.size:
            raise ProtocolError("output of a terminal without a head")
        _stream, generation, sequence = _HEAD.unpack_from(message.data)
        return f"{generation}.{sequence}", message.data[_HEAD.size :]
    try:
        said: Any = json.loads(message.data)
    except (ValueError, RecursionError) as error:
        raise ProtocolError("a message of a terminal is not readable") from error
    if not isinstance(said, dict):
        raise ProtocolError("a message of a terminal is not an object")
    return _told(said)


def _told(said: dict[str, Any]) -> tuple[str | None, Told] | None:
    name = said.get("type")
    event = {"started": Started, "gap": Gap, "exit": Exit}.get(str(name))
    if event is not None:
        position = said.get("id")
        if not isinstance(position, str):
            raise ProtocolError(f"a `{name}` of a terminal has no position")
        return position, decode(event, said)
    if name == "input":
        offset = said.get("next_offset")
        if not isinstance(offset, int):
            raise ProtocolError("an `input` of a terminal has no offset")
        return None, Taken(offset)
    if name == "refused":
        return None, Refused(str(said.get("wish")), decode(Problem, said.get("problem")))
    if name == "error":
        return None, Failed(decode(Problem, said.get("problem")))
    return None


def resize(rows: int, columns: int) -> bytes:
    return json.dumps({"type": "resize", "rows": rows, "columns": columns}).encode()


def eof() -> bytes:
    return b'{"type": "eof"}'
