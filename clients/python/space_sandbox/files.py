"""Files in a sandbox.

Contents are streams both ways: nothing here holds more than a piece of one, except `read` and `read_text`. A transfer of
one file that breaks is continued where it stands; a whole tree is not.

A name in Linux is bytes. Here a path is a `str`, and bytes that are no UTF-8 are in it as Python has them everywhere
(`surrogateescape`): what `list` gave, every other call takes.
"""

from __future__ import annotations

import hashlib
import http.client
import io
import os
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import IO, Any, Union, cast

from ._codec import decode
from ._events import EventStream, parse
from ._generated import (
    ArchiveWritten,
    CreateDirectory,
    FileChange,
    FileInfo,
    MoveFile,
    Operations,
    UploadKept,
)
from ._transport import SILENCE, Backoff, is_worth_repeating, log
from ._wire import Answer, is_file, pieces
from .errors import (
    ApiError,
    DeadlineExceeded,
    FileChanged,
    FileNotFound,
    SpaceError,
    StreamLost,
    TooLarge,
    UploadOffset,
)

PathLike = Union[str, bytes, "os.PathLike[str]"]
Data = Union[str, bytes, IO[bytes], Iterable[bytes]]

#: Bytes that `read` takes into memory, unless told otherwise.
READ_LIMIT = 64 * 1024 * 1024
#: What is smaller is sent again from its beginning.
SMALL = 1024 * 1024
#: Seconds without progress after which a transfer is given up.
PATIENCE = 60.0

_PASSES = {"node_unavailable", "guest_unavailable", "timeout", "file_busy"}


class Lost:
    """In a watch: some changes are missing here. Look again; the watch goes on."""

    def __repr__(self) -> str:
        return "Lost()"


class Files:
    """The files of one sandbox, as `user` (a name or uid) where one is given, else as its default user."""

    def __init__(self, operations: Operations, sandbox: str) -> None:
        self._operations = operations
        self._sandbox = sandbox

    def stat(self, path: PathLike, *, follow: bool = False, user: str | None = None) -> FileInfo:
        """What it is; with `follow`, what a symbolic link points at."""
        return _exact(self._operations.file_stat(self._sandbox, path=_text(path), follow=follow or None, user=user))

    def exists(self, path: PathLike, *, user: str | None = None) -> bool:
        try:
            self.stat(path, user=user)
        except FileNotFound:
            return False
        return True

    def open(self, path: PathLike, *, user: str | None = None) -> Download:
        """The file's bytes, as a file to read from."""
        return Download(self._operations, self._sandbox, _text(path), user)

    def read(self, path: PathLike, *, user: str | None = None, limit: int = READ_LIMIT) -> bytes:
        """All of it. Raises `TooLarge` above `limit` bytes: use `open` or `download` for those."""
        with self.open(path, user=user) as source:
            if source.size is not None and source.size > limit:
                raise TooLarge(f"the file has {source.size} bytes, more than {limit}")
            data = b"".join(source.pieces(limit))
        return data

    def read_text(self, path: PathLike, *, encoding: str = "utf-8", user: str | None = None) -> str:
        return self.read(path, user=user).decode(encoding)

    def download(self, path: PathLike, target: str | os.PathLike[str] | IO[bytes], *, user: str | None = None) -> int:
        """Into a local file, or a binary file object. Answers how many bytes.

        A local file appears whole under its name, with the mode that it has in the sandbox, or not at all.
        """
        with self.open(path, user=user) as source:
            if is_file(target):
                return sum(_write_all(cast("IO[bytes]", target), piece) for piece in source.pieces())
            mode = int(str(self.stat(path, follow=True, user=user).mode), 8) & 0o777
            return _into_place(source, os.fspath(cast("str | os.PathLike[str]", target)), mode)

    def write(
        self,
        path: PathLike,
        data: Data,
        *,
        mode: int | None = None,
        owner: str | None = None,
        parents: bool = False,
        exclusive: bool = False,
        user: str | None = None,
    ) -> FileInfo:
        """Writes or replaces a file: it appears whole under its name, or not at all.

        Text is written as UTF-8. Without `mode` it keeps that of the file it replaces, else 0644. `parents` makes
        missing directories, `exclusive` refuses a file that is there (`FileExists`). What is not in memory is sent
        once: see `upload` for what breaks.
        """
        content = data.encode() if isinstance(data, str) else data
        put = _Put(self._operations, self._sandbox, _text(path), mode, owner, parents, exclusive, user)
        return put.once(content)

    def upload(
        self,
        source: str | os.PathLike[str] | IO[bytes],
        path: PathLike,
        *,
        mode: int | None = None,
        owner: str | None = None,
        parents: bool = False,
        exclusive: bool = False,
        user: str | None = None,
    ) -> FileInfo:
        """A local file, or what a binary file object still holds, into the sandbox.

        One that breaks is continued, for a minute without progress. A local file goes on later too, when it is uploaded
        again and has not changed. Only a source that can't be sought in is sent once.
        """
        put = _Put(self._operations, self._sandbox, _text(path), mode, owner, parents, exclusive, user)
        if is_file(source):
            file = cast("IO[bytes]", source)
            return put.resumed(file, uuid.uuid4().hex, known=False) if _is_seekable(file) else put.once(file)
        local = os.fspath(cast("str | os.PathLike[str]", source))
        with open(local, "rb") as file:
            return put.resumed(file, _upload_id(local, os.fstat(file.fileno())), known=True)

    def mkdir(
        self, path: PathLike, *, mode: int | None = None, parents: bool = False, user: str | None = None
    ) -> FileInfo:
        """Makes a directory; with `parents` those before it too, and one that is there already is fine."""
        text, exact = _json_path(path)
        body = CreateDirectory(path=text, path_base64=exact, mode=_octal(mode), parents=parents or None, user=user)
        return _exact(self._operations.directory_create(self._sandbox, body))

    def move(self, source: PathLike, target: PathLike, *, replace: bool = False, user: str | None = None) -> FileInfo:
        """Renames, within one filesystem. `target` is the new path itself."""
        (from_, from_base64), (to, to_base64) = _json_path(source), _json_path(target)
        body = MoveFile(
            from_=from_, from_base64=from_base64, to=to, to_base64=to_base64, replace=replace or None, user=user
        )
        return _exact(self._operations.file_move(self._sandbox, body))

    def remove(self, path: PathLike, *, recursive: bool = False, user: str | None = None) -> None:
        """Removes a file, or an empty directory; with `recursive` a whole tree."""
        try:
            self._operations.file_remove(self._sandbox, path=_text(path), recursive=recursive or None, user=user)
        except FileNotFound as error:
            # An attempt whose answer was lost has done it.
            if error.attempts == 1:
                raise

    def watch(self, path: PathLike, *, recursive: bool = False, user: str | None = None) -> Watch:
        """Changes as they happen, none missed from the moment that this returns."""
        return Watch(self._operations, self._sandbox, _text(path), recursive, user)

    def archive(self, path: PathLike, *, user: str | None = None) -> Archive:
        """A file, or what a directory holds, as a tar stream to read from: `tarfile.open(fileobj=…, mode="r|")`."""
        return Archive(self._operations.archive_read(self._sandbox, path=_text(path), user=user))

    def unpack(self, path: PathLike, source: bytes | IO[bytes] | Iterable[bytes], *, user: str | None = None) -> ArchiveWritten:
        """Puts a tar stream out below `path`. Its entries appear as they come; it is sent once."""
        return self._operations.archive_write(self._sandbox, source, path=_text(path), user=user, repeat=False)

    def list(self, path: PathLike = ".", *, depth: int = 1, user: str | None = None) -> Iterator[FileInfo]:
        """What a directory holds, in a fixed order, page by page as it is asked for."""
        cursor: str | None = None
        while True:
            page = self._operations.file_list(
                self._sandbox, path=_text(path), depth=depth, limit=1000, cursor=cursor, user=user
            )
            yield from map(_exact, page.items)
            cursor = page.next_cursor
            if cursor is None:
                return


class _Put:
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
            "mode": _octal(mode),
            "owner": owner,
            "parents": parents or None,
            "exclusive": exclusive or None,
            "user": user,
        }

    def once(self, content: bytes | IO[bytes] | Iterable[bytes]) -> FileInfo:
        # Repeated, an exclusive write would meet its own file.
        repeat = self._how["exclusive"] is None
        written = self._operations.file_write(self._sandbox, content, path=self._path, repeat=repeat, **self._how)
        return _exact(_complete(written))

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
                return _exact(_complete(written))
            except SpaceError as error:
                known = True
                if not _passes(error) or not backoff.pause(getattr(error, "retry_after", None)):
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


class _Bytes(io.RawIOBase):
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


class Download(_Bytes):
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
                piece = _read(self._answer, most)
            except SpaceError as error:
                self._drop()
                resumes = self._at == 0 or self.etag is not None
                if not resumes or not _passes(error) or not self._backoff.pause(getattr(error, "retry_after", None)):
                    raise
                log.debug("a download is continued at %s: %s", self._at, error)
                continue
            self._backoff.reset()
            self._at += len(piece)
            return piece

    def _end(self) -> bytes:
        # To its end, so that the connection can be used again.
        return b"" if self._answer is None else _read(self._answer, 1)

    def _drop(self) -> None:
        answer, self._answer = self._answer, None
        if answer is not None:
            answer.close()

    def close(self) -> None:
        self._drop()
        super().close()


class Archive(_Bytes):
    """A tar stream. One that breaks off raises `StreamLost`: there is no half of it."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        answer.limits.silence, answer.limits.deadline = SILENCE, None

    def piece(self, most: int = 64 * 1024) -> bytes:
        return _read(self._answer, most)

    def close(self) -> None:
        self._answer.close()
        super().close()


class Watch:
    """Iterate it for `FileChange`s, and `Lost` where some are missing. A watch that breaks raises `StreamLost`: it can't
    be continued; begin another one and look again."""

    def __init__(self, operations: Operations, sandbox: str, path: str, recursive: bool, user: str | None) -> None:
        def open_(_position: str | None) -> Answer:
            return operations.file_watch(sandbox, path=path, recursive=recursive or None, user=user)

        self._stream = EventStream(open_, 0.0, resumes=False)
        try:
            while self._stream.next().name != "watching":
                pass
        except BaseException:
            self.close()
            raise

    def next(self, timeout: float | None = None) -> FileChange | Lost:
        """The next change. Raises `DeadlineExceeded` when none comes within `timeout` seconds; the watch is over then."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            event = self._stream.next(deadline)
            if event.name == "change":
                change = decode(FileChange, parse(event))
                return _with_exact_path(change)
            if event.name == "lost":
                return Lost()

    def __iter__(self) -> Iterator[FileChange | Lost]:
        while True:
            yield self.next()

    def close(self) -> None:
        self._stream.close()

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _read(answer: Answer, most: int) -> bytes:
    try:
        return answer.piece(most)
    except SpaceError:
        raise
    except (OSError, http.client.HTTPException) as error:
        raise StreamLost(f"the transfer broke off: {error}") from error


def _passes(error: SpaceError) -> bool:
    if isinstance(error, (UploadOffset, DeadlineExceeded)):
        return True
    return is_worth_repeating(error) or (isinstance(error, ApiError) and error.code in _PASSES)


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


def _write_all(target: IO[bytes], piece: bytes) -> int:
    view = memoryview(piece)
    while view:
        # A raw file may take less.
        view = view[target.write(view) or 0 :]
    return len(piece)


def _into_place(source: Download, target: str, mode: int) -> int:
    part = f"{target}.{uuid.uuid4().hex[:12]}.part"
    try:
        with open(part, "xb") as file:
            length = sum(_write_all(file, piece) for piece in source.pieces())
        os.chmod(part, mode)
        os.replace(part, target)
    except BaseException:
        try:
            os.unlink(part)
        except FileNotFoundError:
            pass
        raise
    return length


def _is_seekable(file: IO[bytes]) -> bool:
    seekable: Callable[[], bool] | None = getattr(file, "seekable", None)
    return seekable is not None and seekable()


def _upload_id(local: str, stat: os.stat_result) -> str:
    """As `space cp` makes it, from what is sent: each finds what the other left."""
    text = f"\0{stat.st_size}\0{stat.st_mtime_ns // 10**9}\0{stat.st_mtime_ns % 10**9}"
    return hashlib.sha256(os.fsencode(os.path.abspath(local)) + text.encode()).hexdigest()[:32]


def _text(path: PathLike) -> str:
    path = os.fspath(path)
    return path.decode("utf-8", "surrogateescape") if isinstance(path, bytes) else path


def _json_path(path: PathLike) -> tuple[str | None, bytes | None]:
    """`path` and `path_base64`: JSON has no surrogates."""
    text = _text(path)
    exact = text.encode("utf-8", "surrogateescape")
    return (text, None) if exact == text.encode("utf-8", "replace") else (None, exact)


def _octal(mode: int | None) -> str | None:
    return None if mode is None else f"{mode:04o}"


def _with_exact_path(change: FileChange) -> FileChange:
    if change.path_base64 is None:
        return change
    return replace(change, path=change.path_base64.decode("utf-8", "surrogateescape"))


def _exact(info: FileInfo) -> FileInfo:
    if info.path_base64 is not None:
        info = replace(info, path=info.path_base64.decode("utf-8", "surrogateescape"))
    if info.link_target_base64 is not None:
        info = replace(info, link_target=info.link_target_base64.decode("utf-8", "surrogateescape"))
    return info
