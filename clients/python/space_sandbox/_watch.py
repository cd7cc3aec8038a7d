"""What happens to files, as it happens."""

from __future__ import annotations

import time
from collections.abc import Iterator

from ._codec import decode
from ._events import EventStream, parse
from ._generated import FileChange, Operations
from ._paths import exact_change
from ._wire import Answer


class Lost:
    """In a watch: some changes are missing here. Look again; the watch goes on."""

    def __repr__(self) -> str:
        return "Lost()"


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
                return exact_change(change)
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
