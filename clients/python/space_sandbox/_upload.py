"""A file into a sandbox: sent once, or continued where it broke."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from typing import IO, Any

from ._generated import FileInfo, Operations, UploadKept
from ._paths import exact, octal
from ._transfer import PATIENCE, passes
from ._transport import Backoff, log
from ._wire import pieces
from .errors import SpaceError, StreamLost, UploadOffset

#: What is smaller is sent again from its beginning.
SMALL = 1024 * 1024


class Put:
    """Where a file is written to, and how."""

    def __init__(
        self,
        operations: Operations,
        sandbox: str,
        path: str,
        mode: int | None,
        owner: str | None,
        parents: bool,
        exclusive: bool,
        user: str | None,
    ) -> None:
        self._operations = operations
        self._sandbox = sandbox
        self._path = path
        self._how: dict[str, Any] = {
            "mode": octal(mode),
            "owner": owner,
            "parents": parents or None,
            "exclusive": exclusive or None,
            "user": user,
        }

    def once(self, content: bytes | IO[bytes] | Iterable[bytes]) -> FileInfo:
        # Repeated, an exclusive write would meet its own file.
        repeat = self._how["exclusive"] is None
        written = self._operations.file_write(self._sandbox, content, path=self._path, repeat=repeat, **self._how)
        return exact(_complete(written))

    def resumed(self, source: IO[bytes], upload: str, *, known: bool) -> FileInfo:
        """All from where `source` stands. `known`: an earlier call may have left a part."""
        begin = source.tell()
        size = source.seek(0, os.SEEK_END) - begin
        if size < SMALL:
            source.seek(begin)
            return self.once(source.read(size))
        backoff, reached = Backoff(PATIENCE), 0
        while True:
            try:
                offset = self._kept(upload, size) if known else 0
                if offset > reached:
                    backoff.reset()
                    reached = offset
                source.seek(begin + offset)
                content = _exactly(source, size - offset)
                query = {"upload": upload, "offset": offset, "complete": True, **self._how}
                written = self._operations.file_write(self._sandbox, content, path=self._path, **query)
                return exact(_complete(written))
            except SpaceError as error:
                known = True
                if not passes(error) or not backoff.pause(getattr(error, "retry_after", None)):
                    raise
                log.debug("an upload is continued: %s", error)

    def _kept(self, upload: str, size: int) -> int:
        """How much is there already. Asked by a part at the very end, which fits only where all is there."""
        try:
            kept = self._operations.file_write(
                self._sandbox, b"", path=self._path, upload=upload, offset=size, complete=False, **self._how
            )
        except UploadOffset as error:
            offset = error.problem.next_offset or 0
        else:
            offset = kept.next_offset if isinstance(kept, UploadKept) else 0
        return offset if offset <= size else 0


def _complete(written: FileInfo | UploadKept) -> FileInfo:
    if isinstance(written, UploadKept):
        raise StreamLost("the server kept a part of what was whole")
    return written


def _exactly(source: IO[bytes], size: int) -> Iterator[bytes]:
    for piece in pieces(source):
        piece = piece[:size]
        size -= len(piece)
        yield piece
        if size == 0:
            return
    if size > 0:
        raise EOFError("the file became shorter while it was sent")


def is_seekable(file: IO[bytes]) -> bool:
    seekable: Callable[[], bool] | None = getattr(file, "seekable", None)
    return seekable is not None and seekable()


def upload_id(local: str, stat: os.stat_result) -> str:
    """As `space cp` makes it, from what is sent: each finds what the other left."""
    text = f"\0{stat.st_size}\0{stat.st_mtime_ns // 10**9}\0{stat.st_mtime_ns % 10**9}"
    return hashlib.sha256(os.fsencode(os.path.abspath(local)) + text.encode()).hexdigest()[:32]
