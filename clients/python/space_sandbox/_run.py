"""A command from its start to its end, in one call."""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping, Sequence
from typing import IO, Union

from ._generated import CreateCommand, TerminalSize
from ._output import Result
from ._stdin import STDIN_PIECE
from ._wire import is_file
from .commands import Command, OnText
from .errors import CommandFailed, CommandNotRunning, CommandTimedOut, OutputLost, StdinClosed

Argv = Union[str, Sequence[str]]
Input = Union[str, bytes, IO[bytes]]


def specification(
    command: Argv,
    *,
    cwd: str | None,
    env: Mapping[str, str] | None,
    user: str | None,
    timeout: float | None,
    stdin: bool = False,
    terminal: TerminalSize | None = None,
) -> CreateCommand:
    """What the API is asked for. A string is for `sh -c`; a sequence is a program and its arguments."""
    argv = ["sh", "-c", command] if isinstance(command, str) else [str(word) for word in command]
    if timeout is not None and not 0 < timeout < math.inf:
        raise ValueError("timeout must be a positive number of seconds")
    seconds = None if timeout is None else math.ceil(timeout)
    return CreateCommand(
        argv=argv,
        cwd=cwd,
        env=dict(env) if env else None,
        user=user,
        timeout_seconds=seconds,
        stdin=stdin or None,
        terminal=terminal,
    )


def run(
    command: Command,
    *,
    stdin: Input | None,
    check: bool,
    on_stdout: OnText | None,
    on_stderr: OnText | None,
    max_output: int | None,
) -> Result:
    """A started command to its end. One that is left by an exception is killed, as `subprocess.run` does."""
    feeder = _Feeder(command, stdin) if stdin is not None else None
    try:
        result = command.wait(on_stdout=on_stdout, on_stderr=on_stderr, max_output=max_output)
    except OutputLost:
        raise
    except BaseException:
        command._kill_quietly()
        raise
    finally:
        command.close()
    if feeder is not None:
        feeder.finish()
    if result.timed_out:
        raise CommandTimedOut("the command's time was up", result)
    if check and result.exit_code != 0:
        raise CommandFailed(_failure(result), result)
    return result


def _failure(result: Result) -> str:
    reason = result.exit.error or (result.stderr.strip().splitlines() or [""])[-1][:300]
    return f"exit code {result.exit_code}" + (f": {reason}" if reason else "")


class _Feeder:
    """Writes standard input while the output is read: each could wait for the other."""

    def __init__(self, command: Command, source: Input) -> None:
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._feed, args=(command, source), name="space-stdin", daemon=True)
        self._thread.start()

    def _feed(self, command: Command, source: Input) -> None:
        stdin = command.stdin
        try:
            if isinstance(source, (str, bytes)):
                stdin.write(source)
            elif is_file(source):
                while piece := source.read(STDIN_PIECE):
                    stdin.write(piece)
            stdin.close()
        except (StdinClosed, CommandNotRunning):
            # It ended without having read everything, which is its right.
            pass
        except BaseException as error:
            # Else the command would wait for the rest.
            self._error = error
            command._kill_quietly()

    def finish(self) -> None:
        """Raises what went wrong. A source that still blocks is left to itself: nobody reads any more."""
        self._thread.join(1.0)
        if self._error is not None:
            raise self._error
