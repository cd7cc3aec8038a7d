"""A tree out of a sandbox."""

from __future__ import annotations

from ._transfer import Bytes, read_piece
from ._transport import SILENCE
from ._wire import Answer


class Archive(Bytes):
    """A tar stream. One that breaks off raises `StreamLost`: there is no half of it."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        answer.limits.silence, answer.limits.deadline = SILENCE, None

    def piece(self, most: int = 64 * 1024) -> bytes:
        return read_piece(self._answer, most)

    def close(self) -> None:
        self._answer.close()
        super().close()
