"""Files in a sandbox.

Contents are streams both ways: nothing here holds more than a piece of one, except `read` and `read_text`. A transfer of
one file that breaks is continued where it stands; a whole tree is not. How a path is written is told in `_paths`.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Iterator
from typing import IO, Union, cast

from ._archive import Archive
from ._download import Download, into_place, write_all
from ._generated import ArchiveWritten, CreateDirectory, FileInfo, MoveFile, Operations
from ._paths import PathLike, exact, json_path, octal, path_text
from ._upload import Put, is_seekable, upload_id
from ._watch import Watch
from ._wire import is_file
from .errors import FileNotFound, TooLarge

Data = Union[str, bytes, IO[bytes], Iterable[bytes]]

#: Bytes that `read` takes into memory, unless told otherwise.
READ_LIMIT = 64 * 1024 * 1024


class Files:
    """The files of one sandbox, as `user` (a name or uid) where one is given, else as its default user."""

    def __init__(self, operations: Operations, sandbox: str) -> None:
        self._operations = operations
        self._sandbox = sandbox

    def stat(self, path: PathLike, *, follow: bool = False, user: str | None = None) -> FileInfo:
        """What it is; with `follow`, what a symbolic link points at."""
        return exact(self._operations.file_stat(self._sandbox, path=path_text(path), follow=follow or None, user=user))

    def exists(self, path: PathLike, *, user: str | None = None) -> bool:
        try:
            self.stat(path, user=user)
        except FileNotFound:
            return False
        return True

    def open(self, path: PathLike, *, user: str | None = None) -> Download:
        """The file's bytes, as a file to read from."""
        return Download(self._operations, self._sandbox, path_text(path), user)

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
                return sum(write_all(cast("IO[bytes]", target), piece) for piece in source.pieces())
            mode = int(str(self.stat(path, follow=True, user=user).mode), 8) & 0o777
            return into_place(source, os.fspath(cast("str | os.PathLike[str]", target)), mode)

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
        put = Put(self._operations, self._sandbox, path_text(path), mode, owner, parents, exclusive, user)
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
        put = Put(self._operations, self._sandbox, path_text(path), mode, owner, parents, exclusive, user)
        if is_file(source):
            file = cast("IO[bytes]", source)
            return put.resumed(file, uuid.uuid4().hex, known=False) if is_seekable(file) else put.once(file)
        local = os.fspath(cast("str | os.PathLike[str]", source))
        with open(local, "rb") as file:
            return put.resumed(file, upload_id(local, os.fstat(file.fileno())), known=True)

    def mkdir(
        self, path: PathLike, *, mode: int | None = None, parents: bool = False, user: str | None = None
    ) -> FileInfo:
        """Makes a directory; with `parents` those before it too, and one that is there already is fine."""
        text, path_base64 = json_path(path)
        body = CreateDirectory(
            path=text, path_base64=path_base64, mode=octal(mode), parents=parents or None, user=user
        )
        return exact(self._operations.directory_create(self._sandbox, body))

    def move(self, source: PathLike, target: PathLike, *, replace: bool = False, user: str | None = None) -> FileInfo:
        """Renames, within one filesystem. `target` is the new path itself."""
        (from_, from_base64), (to, to_base64) = json_path(source), json_path(target)
        body = MoveFile(
            from_=from_, from_base64=from_base64, to=to, to_base64=to_base64, replace=replace or None, user=user
        )
        return exact(self._operations.file_move(self._sandbox, body))

    def remove(self, path: PathLike, *, recursive: bool = False, user: str | None = None) -> None:
        """Removes a file, or an empty directory; with `recursive` a whole tree."""
        try:
            self._operations.file_remove(self._sandbox, path=path_text(path), recursive=recursive or None, user=user)
        except FileNotFound as error:
            # An attempt whose answer was lost has done it.
            if error.attempts == 1:
                raise

    def watch(self, path: PathLike, *, recursive: bool = False, user: str | None = None) -> Watch:
        """Changes as they happen, none missed from the moment that this returns."""
        return Watch(self._operations, self._sandbox, path_text(path), recursive, user)

    def archive(self, path: PathLike, *, user: str | None = None) -> Archive:
        """A file, or what a directory holds, as a tar stream to read from: `tarfile.open(fileobj=…, mode="r|")`."""
        return Archive(self._operations.archive_read(self._sandbox, path=path_text(path), user=user))

    def unpack(self, path: PathLike, source: bytes | IO[bytes] | Iterable[bytes], *, user: str | None = None) -> ArchiveWritten:
        """Puts a tar stream out below `path`. Its entries appear as they come; it is sent once."""
        return self._operations.archive_write(self._sandbox, source, path=path_text(path), user=user, repeat=False)

    def list(self, path: PathLike = ".", *, depth: int = 1, user: str | None = None) -> Iterator[FileInfo]:
        """What a directory holds, in a fixed order, page by page as it is asked for."""
        cursor: str | None = None
        while True:
            page = self._operations.file_list(
                self._sandbox, path=path_text(path), depth=depth, limit=1000, cursor=cursor, user=user
            )
            yield from map(exact, page.items)
            cursor = page.next_cursor
            if cursor is None:
                return
