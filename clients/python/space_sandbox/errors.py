"""What can go wrong, as exceptions.

    SpaceError
    ├── ApiError                  the server refused, and says why: code, detail, hint, request_id
    │   ├── InvalidRequest        the request is not as it must be (TemplateNotFound, …)
    │   ├── Unauthorized          no valid key
    │   ├── Forbidden             the key, or the user inside the sandbox, may not (FilePermission)
    │   ├── NotFound              there is no such thing (FileNotFound)
    │   ├── Conflict              the present state does not allow it (FileExists, SandboxNotRunning, …)
    │   ├── RateLimited           too much at once; retry_after says when again
    │   ├── Unavailable           the server, the node or the sandbox does not answer (NoCapacity, …)
    │   └── ServerError           something went wrong inside SPACE (CreateFailed)
    ├── Unreachable               nothing answered at that address
    ├── StreamLost                a stream broke off and could not be continued
    ├── DeadlineExceeded          a time limit of this client was reached (a TimeoutError too)
    ├── ProtocolError             something answered that does not speak this API
    ├── CommandFailed             `check=True`, and the exit code was not 0 (.result)
    │   └── CommandTimedOut       its `timeout` was up (.result)
    ├── OutputLost                the command wrote faster than it was read (.result)
    ├── OutputTooLarge            more output than `max_output` (.result)
    ├── TooLarge                  an answer, or a file that is read at once, is beyond its limit
    └── FileChanged               the file became another one while it was read

Files on this machine raise what Python raises for them: `FileNotFound` is one inside the sandbox,
`FileNotFoundError` one outside.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._generated import Problem
    from ._output import Result


class SpaceError(Exception):
    """Everything that this package raises by itself."""


class ApiError(SpaceError):
    """The server refused. `problem` holds all that it said."""

    def __init__(self, problem: Problem, hint: str | None = None) -> None:
        super().__init__(problem.detail)
        self.problem = problem
        #: Stable for ever; the word to compare with.
        self.code = str(problem.code)
        self.detail = problem.detail
        self.status = problem.status
        #: The field at fault, if one is.
        self.field = problem.field
        #: What the server's logs know the request by.
        self.request_id = problem.request_id
        #: Seconds after which it makes sense to try again.
        self.retry_after = problem.retry_after
        #: What to do about it, from the documentation of the code.
        self.hint = hint
        #: How often this call was sent. Above 1, an earlier attempt may have done what was asked.
        self.attempts = 1

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.problem, self.hint)

    def __str__(self) -> str:
        parts = [f"{self.detail} ({self.code}"]
        parts += [f", request {self.request_id}"] if self.request_id else []
        return "".join(parts) + ")" + (f"\n{self.hint}" if self.hint else "")


class InvalidRequest(ApiError):
    pass


class TemplateNotFound(InvalidRequest):
    pass


class UserNotFound(InvalidRequest):
    pass


class Unauthorized(ApiError):
    pass


class Forbidden(ApiError):
    pass


class FilePermission(Forbidden):
    pass


class NotFound(ApiError):
    pass


class FileNotFound(NotFound):
    pass


class Conflict(ApiError):
    pass


class QuotaExceeded(Conflict):
    pass


class SandboxNotRunning(Conflict):
    pass


class CommandNotRunning(Conflict):
    pass


class StdinClosed(Conflict):
    pass


class FileExists(Conflict):
    pass


class NotADirectory(Conflict):
    pass


class IsADirectory(Conflict):
    pass


class DirectoryNotEmpty(Conflict):
    pass


class UploadOffset(Conflict):
    pass


class RateLimited(ApiError):
    pass


class Unavailable(ApiError):
    pass


class NoCapacity(Unavailable):
    pass


class NodeUnavailable(Unavailable):
    pass


class GuestUnavailable(Unavailable):
    pass


class ServerError(ApiError):
    pass


class CreateFailed(ServerError):
    pass


class DiskFull(ApiError):
    """The sandbox's disk is full."""


class Unreachable(SpaceError):
    pass


class StreamLost(SpaceError):
    pass


class DeadlineExceeded(SpaceError, TimeoutError):
    pass


class ProtocolError(SpaceError):
    pass


class TooLarge(SpaceError):
    pass


class FileChanged(SpaceError):
    pass


class _WithResult(SpaceError):
    def __init__(self, message: str, result: Result) -> None:
        super().__init__(message)
        #: What came until then.
        self.result = result

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (str(self), self.result)


class CommandFailed(_WithResult):
    pass


class CommandTimedOut(CommandFailed):
    pass


class OutputLost(_WithResult):
    pass


class OutputTooLarge(_WithResult):
    pass


_BY_CODE: dict[str, type[ApiError]] = {
    "template_not_found": TemplateNotFound,
    "user_not_found": UserNotFound,
    "file_permission": FilePermission,
    "file_not_found": FileNotFound,
    "quota_exceeded": QuotaExceeded,
    "sandbox_not_running": SandboxNotRunning,
    "command_not_running": CommandNotRunning,
    "stdin_closed": StdinClosed,
    "file_exists": FileExists,
    "file_not_a_directory": NotADirectory,
    "file_is_a_directory": IsADirectory,
    "directory_not_empty": DirectoryNotEmpty,
    "upload_offset": UploadOffset,
    "no_capacity": NoCapacity,
    "node_unavailable": NodeUnavailable,
    "guest_unavailable": GuestUnavailable,
    "create_failed": CreateFailed,
    "file_no_space": DiskFull,
}

_BY_STATUS: dict[int, type[ApiError]] = {
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    429: RateLimited,
    503: Unavailable,
    504: Unavailable,
}


def from_problem(problem: Problem) -> ApiError:
    """The exception for what the server said; by its status where the code is a newer server's."""
    from ._generated import HINTS

    by_class = InvalidRequest if problem.status < 500 else ServerError
    kind = _BY_CODE.get(problem.code) or _BY_STATUS.get(problem.status, by_class)
    return kind(problem, HINTS.get(problem.code))
