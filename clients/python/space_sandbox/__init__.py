"""Client of SPACE: sandboxes as microVMs, their commands, terminals, files and ports.

    from space_sandbox import Sandbox

    with Sandbox.create() as sandbox:
        sandbox.files.write("hello.py", "print(6 * 7)")
        print(sandbox.run("python3 hello.py", check=True).stdout)

The guide is `docs/guides/python.md`. What can go wrong is in `space_sandbox.errors`, and what the API says in
`space_sandbox.models`. There is no asyncio variant: threads may share everything here.
"""

from . import errors, models
from ._download import Download
from ._output import Chunk, Result
from ._stdin import Stdin
from ._terminal_messages import Refused
from ._version import VERSION as __version__
from ._watch import Lost, Watch
from .commands import Command
from .errors import (
    ApiError,
    CommandFailed,
    CommandTimedOut,
    Conflict,
    DeadlineExceeded,
    FileExists,
    FileNotFound,
    Forbidden,
    InvalidRequest,
    NotFound,
    OutputLost,
    OutputTooLarge,
    RateLimited,
    SandboxNotRunning,
    SpaceError,
    StreamLost,
    Unauthorized,
    Unavailable,
    Unreachable,
)
from .files import Files
from .models import Exit, FileChange, FileInfo, Gap, Port, PortToken
from .ports import Ports
from .sandbox import Sandbox, Space
from .terminals import Terminal

__all__ = [
    "ApiError",
    "Chunk",
    "Command",
    "CommandFailed",
    "CommandTimedOut",
    "Conflict",
    "DeadlineExceeded",
    "Download",
    "Exit",
    "FileChange",
    "FileExists",
    "FileInfo",
    "FileNotFound",
    "Files",
    "Forbidden",
    "Gap",
    "InvalidRequest",
    "Lost",
    "NotFound",
    "OutputLost",
    "OutputTooLarge",
    "Port",
    "PortToken",
    "Ports",
    "RateLimited",
    "Refused",
    "Result",
    "Sandbox",
    "SandboxNotRunning",
    "Space",
    "SpaceError",
    "Stdin",
    "StreamLost",
    "Terminal",
    "Unauthorized",
    "Unavailable",
    "Unreachable",
    "Watch",
    "__version__",
    "errors",
    "models",
]
