"""Which server, and with which key: as the command line finds them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from os import environ
from pathlib import Path

DEFAULT_URL = "http://127.0.0.1:8700"
MACHINE_CREDENTIALS = "/var/lib/space/credentials.json"


def credentials(url: str | None, key: str | None) -> tuple[str, str | None]:
    """What is not given is found: in the environment, then in a credentials file, whose key is for its own server."""
    url = url or environ.get("SPACE_URL") or None
    key = key or environ.get("SPACE_API_KEY") or None
    if key is not None:
        return url or DEFAULT_URL, key
    found = _read_credentials()
    of_file = found.get("url") or DEFAULT_URL
    if found.get("key") is not None and not _same_server(url or of_file, of_file):
        raise ValueError(f"no key for {url}: the one in the credentials file is for {of_file}; give one, or SPACE_API_KEY")
    return url or of_file, found.get("key")


def _same_server(left: str, right: str) -> bool:
    """This machine has several names for itself."""

    def plain(url: str) -> str:
        url = url.rstrip("/").lower()
        for name in ("://localhost:", "://[::1]:"):
            url = url.replace(name, "://127.0.0.1:")
        return url

    return plain(left) == plain(right)


def _read_credentials() -> Mapping[str, str]:
    """The first file there is. One that can't be read by this user is as good as absent."""
    for path in _candidates():
        try:
            text = path.read_bytes()
        except (FileNotFoundError, PermissionError, NotADirectoryError):
            continue
        try:
            value = json.loads(text)
        except ValueError as error:
            raise ValueError(f"{path} is damaged") from error
        if not isinstance(value, dict):
            raise ValueError(f"{path} is damaged")
        return {name: text for name, text in value.items() if isinstance(text, str)}
    return {}


def _candidates() -> list[Path]:
    named = environ.get("SPACE_CREDENTIALS")
    if named:
        return [Path(named)]
    config = environ.get("XDG_CONFIG_HOME", "")
    own = Path(config) if config.startswith("/") else Path("~/.config").expanduser()
    return [own / "space/credentials.json", Path(MACHINE_CREDENTIALS)]
