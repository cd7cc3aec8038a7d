"""What a command puts out, and what it comes to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Union

from ._generated import Exit, Gap


@dataclass(frozen=True)
class Chunk:
    """A piece of output, as the command wrote it. It may end in the middle of a character."""

    #: `stdout` or `stderr`.
    stream: str
    #: Of the first byte, within its stream.
    offset: int
    data: bytes


#: What iterating a command gives. `Gap` stands where output was lost; `Exit` is the last.
CommandEvent = Union[Chunk, Gap, Exit]


@dataclass(frozen=True)
class Result:
    """What a command came to."""

    command_id: str
    exit: Exit
    stdout_bytes: bytes
    stderr_bytes: bytes

    @property
    def stdout(self) -> str:
        """As UTF-8; what is not becomes U+FFFD. `stdout_bytes` is exact."""
        return self.stdout_bytes.decode("utf-8", "replace")

    @property
    def stderr(self) -> str:
        return self.stderr_bytes.decode("utf-8", "replace")

    @property
    def exit_code(self) -> int:
        """As a shell has it: 128 and the signal for a command that was killed; 255 where it is not known."""
        if self.exit.signal is not None:
            return 128 + self.exit.signal
        return 255 if self.exit.code is None else self.exit.code

    @property
    def timed_out(self) -> bool:
        return self.exit.timed_out
