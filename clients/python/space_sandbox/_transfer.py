"""What transfers have in common: bytes on their way here, and what another attempt may mend."""

from __future__ import annotations

import http.client
import io
from collections.abc import Iterator
from typing import Any

from ._transport import is_worth_repeating
from ._wire import Answer
from .errors import ApiError, DeadlineExceeded, SpaceError, StreamLost, TooLarge, UploadOffset

#: Seconds without progress after which a transfer is given up.
PATIENCE = 60.0

_PASSES = {"node_unavailable", "guest_unavailable", "timeout", "file_busy"}


class Bytes(io.RawIOBase):
    """Bytes on their way here, as a file."""

    def piece(self, most: int = 64 * 1024) -> bytes:
        raise NotImplementedError

    def pieces(self, limit: int | None = None) -> Iterator[bytes]:
        """All of it, piece by piece. Raises `TooLarge` beyond `limit` bytes."""
        length = 0
        while piece := self.piece():
            length += len(piece)
            if limit is not None and length > limit:
                raise TooLarge(f"there are more than {limit} bytes")
            yield piece

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        piece = self.piece(len(buffer))
        buffer[: len(piece)] = piece
        return len(piece)


def read_piece(answer: Answer, most: int) -> bytes:
    try:
        return answer.piece(most)
    except SpaceError:
        raise
    except (OSError, http.client.HTTPException) as error:
        raise StreamLost(f"the transfer broke off: {error}") from error


def passes(error: SpaceError) -> bool:
    if isinstance(error, (UploadOffset, DeadlineExceeded)):
        return True
    return is_worth_repeating(error) or (isinstance(error, ApiError) and error.code in _PASSES)
