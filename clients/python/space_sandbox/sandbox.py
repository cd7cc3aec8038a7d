"""Sandboxes, and the way to the server that has them."""

from __future__ import annotations

import ssl
import time
import warnings
from collections.abc import Iterator, Mapping
from os import environ
from typing import TYPE_CHECKING, List, TypedDict

from ._codec import decode
from ._credentials import credentials
from ._events import EventStream, parse
from ._generated import Command as CommandInfo
from ._generated import (
    CreateCommand,
    CreateSandbox,
    Event,
    Operation,
    Operations,
    OperationStatus,
    SandboxState,
    TerminalSize,
)
from ._generated import Sandbox as SandboxInfo
from ._output import Result
from ._run import Argv, Input, run, specification
from ._transport import Transport
from ._wire import Answer
from .commands import MAX_OUTPUT, Command, OnText
from .errors import DeadlineExceeded, NotFound, ProtocolError, SpaceError, from_problem
from .files import Files
from .ports import Ports
from .terminals import LOGIN_SHELL, Terminal

if TYPE_CHECKING:
    # Python has it by itself from 3.11 on.
    from typing_extensions import Unpack

#: Seconds that one request asks the server to wait; proxies on the way may know no patience.
WAIT = 30


class CreateOptions(TypedDict, total=False):
    """What `Space.create` takes beside the template."""

    vcpus: int | None
    memory_mib: int | None
    disk_mib: int | None
    env: Mapping[str, str] | None
    labels: Mapping[str, str] | None
    project_id: str | None
    timeout: float


class ListOptions(TypedDict, total=False):
    """What `Space.sandboxes` takes."""

    labels: Mapping[str, str] | None
    state: SandboxState | str | None
    project_id: str | None


class Space:
    """A server and a key. For any number of threads; close it, or use it as a context manager.

    Address and key are found as the command line finds them: the arguments, then `SPACE_URL` and `SPACE_API_KEY`, then
    a credentials file (`SPACE_CREDENTIALS`, `~/.config/space/credentials.json`, `/var/lib/space/credentials.json`).

    `connect_timeout` is for opening a connection and `answer_timeout` for one answer, beyond what a call asks the server
    to wait. `patience` is how long a call is repeated while the server can't be reached. All in seconds.
    """

    def __init__(
        self,
        url: str | None = None,
        key: str | None = None,
        *,
        tls: ssl.SSLContext | None = None,
        connect_timeout: float = 10.0,
        answer_timeout: float = 30.0,
        patience: float = 5.0,
    ) -> None:
        url, key = credentials(url, key)
        self._transport = Transport(
            url, key, tls=tls, connect_timeout=connect_timeout, answer_timeout=answer_timeout, patience=patience
        )
        #: Every operation of the API, one method each.
        self.operations = Operations(self._transport)

    @property
    def url(self) -> str:
        return self._transport.url

    def create(
        self,
        template: str | None = None,
        *,
        vcpus: int | None = None,
        memory_mib: int | None = None,
        disk_mib: int | None = None,
        env: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
        project_id: str | None = None,
        timeout: float = 300.0,
    ) -> Sandbox:
        """Makes a sandbox, and returns when commands can be run in it.

        What is left out is the server's default. Where that takes longer than `timeout` seconds the sandbox is deleted
        again and `DeadlineExceeded` raised. Raises `CreateFailed`, `NoCapacity`, `QuotaExceeded` and their kind.
        """
        project_id = project_id or environ.get("SPACE_PROJECT") or None
        body = CreateSandbox(
            template=template,
            vcpus=vcpus,
            memory_mib=memory_mib,
            disk_mib=disk_mib,
            env=dict(env) if env else None,
            labels=dict(labels) if labels else None,
            project_id=project_id,
        )
        deadline = time.monotonic() + timeout
        made = self.operations.sandbox_create(body, wait=_wait(deadline))
        sandbox = Sandbox(self, made.sandbox)
        try:
            self._finish(made.operation, deadline)
            return sandbox.refresh()
        except BaseException:
            sandbox._delete_quietly()
            raise

    def connect(self, sandbox_id: str) -> Sandbox:
        """A sandbox that is there. Changes nothing about it."""
        return Sandbox(self, self.operations.sandbox_get(sandbox_id))

    def sandboxes(
        self,
        *,
        labels: Mapping[str, str] | None = None,
        state: SandboxState | str | None = None,
        project_id: str | None = None,
    ) -> Iterator[Sandbox]:
        """Newest first, page by page as it is asked for; deleted ones only with `state="deleted"`."""
        pairs = [f"{key}={value}" for key, value in (labels or {}).items()] or None
        project_id = project_id or environ.get("SPACE_PROJECT") or None
        cursor: str | None = None
        while True:
            page = self.operations.sandbox_list(
                label=pairs, state=str(state) if state else None, project_id=project_id, cursor=cursor, limit=500
            )
            yield from (Sandbox(self, info) for info in page.items)
            cursor = page.next_cursor
            if cursor is None:
                return

    def events(self, *, after: int | None = None, sandbox_id: str | None = None) -> Iterator[Event]:
        """What happens, as it happens, each event once and in order; from behind `after` (0: from the beginning).

        Without `after` it begins with what happens next, and a connection that breaks before anything did begins anew.
        """

        def open_(position: str | None) -> Answer:
            last = None if position is None else int(position)
            if sandbox_id is None:
                return self.operations.events(last_event_id=last)
            return self.operations.sandbox_events(sandbox_id, last_event_id=last)

        start = None if after is None else str(after)
        stream = EventStream(open_, self._transport.patience, start)
        try:
            while True:
                event = stream.next()
                if event.id is not None:
                    yield decode(Event, parse(event))
        finally:
            stream.close()

    def close(self) -> None:
        """Closes what is idle. What still runs ends by itself."""
        self._transport.close()

    def __enter__(self) -> Space:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Space {self.url}>"

    def _finish(self, operation: Operation, deadline: float) -> None:
        while operation.status in (OperationStatus.PENDING, OperationStatus.RUNNING):
            if time.monotonic() >= deadline:
                raise DeadlineExceeded(f"the operation {operation.id} was not done in time")
            operation = self.operations.operation_get(operation.id, wait=_wait(deadline))
        if operation.problem is not None:
            raise from_problem(operation.problem)
        if operation.status != OperationStatus.SUCCEEDED:
            raise ProtocolError(f"the operation {operation.id} is {operation.status}")


class Sandbox:
    """A sandbox. As a context manager it is deleted at the end; left alone it stays.

    `with Sandbox.create() as sandbox: print(sandbox.run("uname -a").stdout)`
    """

    def __init__(self, space: Space, info: SandboxInfo, *, owns_space: bool = False) -> None:
        self._space = space
        self._owns_space = owns_space
        #: As it was when it was last asked for; see `refresh`.
        self.info = info
        self.files = Files(space.operations, info.id)
        self.ports = Ports(space.operations, info.id)

    @property
    def id(self) -> str:
        return self.info.id

    @classmethod
    def create(cls, template: str | None = None, *, space: Space | None = None, **options: Unpack[CreateOptions]) -> Sandbox:
        """As `Space.create`, at the server that the environment tells of unless `space` is given."""
        with _Owned(space) as owned:
            return owned.keep(owned.space.create(template, **options))

    @classmethod
    def connect(cls, sandbox_id: str, *, space: Space | None = None) -> Sandbox:
        """As `Space.connect`."""
        with _Owned(space) as owned:
            return owned.keep(owned.space.connect(sandbox_id))

    def refresh(self) -> Sandbox:
        """Asks for its state. Answers itself."""
        self.info = self._space.operations.sandbox_get(self.id)
        return self

    @property
    def state(self) -> SandboxState:
        """Its state now."""
        return self.refresh().info.state

    def run(
        self,
        command: Argv,
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        user: str | None = None,
        timeout: float | None = None,
        stdin: Input | None = None,
        check: bool = False,
        on_stdout: OnText | None = None,
        on_stderr: OnText | None = None,
        max_output: int | None = MAX_OUTPUT,
    ) -> Result:
        """Runs a command to its end: a string by `sh -c`, a sequence as a program and its arguments.

        `timeout` is how long the command may run, in seconds: it gets TERM then, KILL five seconds later, and
        `CommandTimedOut` is raised with what it wrote. Without one it may run as long as its sandbox, and a lost
        connection is continued. `check` raises `CommandFailed` for an exit code other than 0. The callbacks get text as
        it comes, whole characters at a time. `stdin` is text, bytes or a binary file. Raises `OutputLost` where output
        came faster than it was read, and `OutputTooLarge` beyond `max_output` bytes.
        """
        body = specification(command, cwd=cwd, env=env, user=user, timeout=timeout, stdin=stdin is not None)
        started = self._start(body)
        return run(
            started, stdin=stdin, check=check, on_stdout=on_stdout, on_stderr=on_stderr, max_output=max_output
        )

    def start(
        self,
        command: Argv,
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        user: str | None = None,
        timeout: float | None = None,
        stdin: bool = False,
    ) -> Command:
        """Starts a command, and returns when it runs. `stdin` says whether it is written to; else it reads an end."""
        return self._start(specification(command, cwd=cwd, env=env, user=user, timeout=timeout, stdin=stdin))

    def _start(self, body: CreateCommand) -> Command:
        operations, patience = self._space.operations, self._space._transport.patience
        return Command(operations, self.id, patience, body=body)

    def command(self, command_id: str, *, after: str | None = None) -> Command:
        """A command that was started before, by whomever: its events from the beginning, or behind `after`."""
        operations, patience = self._space.operations, self._space._transport.patience
        return Command(operations, self.id, patience, command=command_id, after=after)

    def terminal(
        self,
        command: Argv | None = None,
        *,
        rows: int = 24,
        columns: int = 80,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        user: str | None = None,
        timeout: float | None = None,
    ) -> Terminal:
        """Starts a command on a terminal, and returns when it runs: the user's login shell unless another is given."""
        size = TerminalSize(rows=rows, columns=columns)
        argv = LOGIN_SHELL if command is None else command
        body = specification(argv, cwd=cwd, env=env, user=user, timeout=timeout, terminal=size)
        made = self._space.operations.command_create(self.id, body)
        return Terminal.start(self._space._transport, self.id, made)

    def attach(self, command_id: str, *, after: str | None = None) -> Terminal:
        """Comes back to a terminal: what it put out from the beginning, as far as that is kept, or behind `after`."""
        return Terminal.attach(self._space._transport, self.id, command_id, after)

    def commands(self) -> List[CommandInfo]:
        """All that the sandbox remembers, newest first."""
        return self._space.operations.command_list(self.id).items

    def get_url(self, port: int, *, valid_seconds: int | None = None) -> str:
        """Where a program that listens on `port` is reached; as `ports.get_url`."""
        return self.ports.get_url(port, valid_seconds=valid_seconds)

    def delete(self, *, timeout: float = 120.0) -> None:
        """Ends it with everything in it, and returns when nothing is left. Deleting twice is harmless."""
        deadline = time.monotonic() + timeout
        try:
            answer = self._space.operations.sandbox_delete(self.id, wait=_wait(deadline))
            self._space._finish(answer.operation, deadline)
        except NotFound:
            # Long gone, and forgotten.
            pass

    def close(self) -> None:
        """Lets go of it; it stays. Only what `Sandbox.create` and `connect` opened by themselves is closed."""
        if self._owns_space:
            self._space.close()

    def _delete_quietly(self) -> None:
        try:
            self.delete()
        except SpaceError as error:
            warnings.warn(f"the sandbox {self.id} could not be deleted: {error}", ResourceWarning, stacklevel=2)

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            if kind is None:
                self.delete()
            else:
                # What went wrong inside is what there is to tell.
                self._delete_quietly()
        finally:
            self.close()

    def __repr__(self) -> str:
        return f"<Sandbox {self.id}>"

    @classmethod
    def list(cls, *, space: Space | None = None, **options: Unpack[ListOptions]) -> Iterator[Sandbox]:
        """As `Space.sandboxes`. Those of a server that the environment tells of are good while this is iterated."""
        with _Owned(space) as owned:
            yield from owned.space.sandboxes(**options)


class _Owned:
    """A server of the caller's, or one of our own that is closed unless a sandbox keeps it."""

    def __init__(self, space: Space | None) -> None:
        self.space = space or Space()
        self._close = space is None

    def keep(self, sandbox: Sandbox) -> Sandbox:
        sandbox._owns_space, self._close = self._close, False
        return sandbox

    def __enter__(self) -> _Owned:
        return self

    def __exit__(self, *_: object) -> None:
        if self._close:
            self.space.close()


def _wait(deadline: float) -> int:
    return max(0, min(WAIT, int(deadline - time.monotonic())))
