"""Paths of files in a sandbox.

A name in Linux is bytes. Here a path is a `str`, and bytes that are no UTF-8 are in it as Python has them everywhere
(`surrogateescape`): what `list` gave, every other call takes.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Union

from ._generated import FileChange, FileInfo

PathLike = Union[str, bytes, "os.PathLike[str]"]


def path_text(path: PathLike) -> str:
    path = os.fspath(path)
    return path.decode("utf-8", "surrogateescape") if isinstance(path, bytes) else path


def json_path(path: PathLike) -> tuple[str | None, bytes | None]:
    """`path` and `path_base64`: JSON has no surrogates."""
    text = path_text(path)
    raw = text.encode("utf-8", "surrogateescape")
    return (text, None) if raw == text.encode("utf-8", "replace") else (None, raw)


def octal(mode: int | None) -> str | None:
    return None if mode is None else f"{mode:04o}"


def exact_change(change: FileChange) -> FileChange:
    if change.path_base64 is None:
        return change
    return replace(change, path=change.path_base64.decode("utf-8", "surrogateescape"))


def exact(info: FileInfo) -> FileInfo:
    """With the paths as they are, also where they are no text."""
    if info.path_base64 is not None:
        info = replace(info, path=info.path_base64.decode("utf-8", "surrogateescape"))
    if info.link_target_base64 is not None:
        info = replace(info, link_target=info.link_target_base64.decode("utf-8", "surrogateescape"))
    return info
