"""A file out of a sandbox."""

from __future__ import annotations

import os
import uuid
from typing import IO

from ._generated import Operations
from ._transfer import PATIENCE, Bytes, passes, read_piece
from ._transport import SILENCE, Backoff, log
from ._wire import Answer
from .errors import FileChanged, SpaceError


class Download(Bytes):
    """A file of a sandbox. Goes on by itself where a connection breaks; raises `FileChanged` if it is another one by then."""

    def __init__(self, operations: Operations, sandbox: str, path: str, user: str | None) -> None:
        self._operations = operations
        self._sandbox = sandbox
        self._path = path
        self._user = user
        self._backoff = Backoff(PATIENCE)
        self._at = 0
        self._answer: Answer | None = self._open()
        #: `ETag`, which changes with the content.
        self.etag = self._answer.header("ETag")
        length = self._answer.header("Content-Length")
        #: Bytes of the whole file, where the server knows.
        self.size = int(length) if length and length.isdecimal() else None

    def _open(self) -> Answer:
        whole = self._at == 0
        answer = self._operations.file_read(
            self._sandbox,
            path=self._path,
            user=self._user,
            range=None if whole else f"bytes={self._at}-",
            if_range=None if whole else self.etag,
        )
        answer.limits.silence, answer.limits.deadline = SILENCE, None
        if not whole and not (answer.header("Content-Range") or "").startswith(f"bytes {self._at}-"):
            answer.close()
            raise FileChanged("the file was changed while it was read")
        return answer

    def piece(self, most: int = 64 * 1024) -> bytes:
        """The next bytes; empty at the end, and only there."""
        if self.closed:
            raise ValueError("the file is closed")
        while True:
            try:
                if self.size is not None and self._at >= self.size:
                    return self._end()
                if self._answer is None:
                    self._answer = self._open()
                piece = read_piece(self._answer, most)
            except SpaceError as error:
                self._drop()
                resumes = self._at == 0 or self.etag is not None
                if not resumes or not passes(error) or not self._backoff.pause(getattr(error, "retry_after", None)):
                    raise
                log.debug("a download is continued at %s: %s", self._at, error)
                continue
            self._backoff.reset()
            self._at += len(piece)
            return piece

    def _end(self) -> bytes:
        # To its end, so that the connection can be used again.
        return b"" if self._answer is None else read_piece(self._answer, 1)

    def _drop(self) -> None:
        answer, self._answer = self._answer, None
        if answer is not None:
            answer.close()

    def close(self) -> None:
        self._drop()
        super().close()


def into_place(source: Download, target: str, mode: int) -> int:
    part = f"{target}.{uuid.uuid4().hex[:12]}.part"
    try:
        # Nobody else reads it before it is whole and has its mode.
        with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            length = sum(write_all(file, piece) for piece in source.pieces())
        os.chmod(part, mode & ~_umask())
        os.replace(part, target)
    except BaseException:
        try:
            os.unlink(part)
        except FileNotFoundError:
            pass
        raise
    return length


def _umask() -> int:
    """Of this process: what a sandbox made writable for everybody need not be so here."""
    with open("/proc/self/status") as status:
        return next((int(line.split()[1], 8) for line in status if line.startswith("Umask:")), 0o022)


def write_all(target: IO[bytes], piece: bytes) -> int:
    view = memoryview(piece)
    while view:
        # A raw file may take less.
        view = view[target.write(view) or 0 :]
    return len(piece)
