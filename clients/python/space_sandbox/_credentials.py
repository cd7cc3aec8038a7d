"""Which server, and with which key: as the command line finds them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from os import environ
from pathlib import Path

DEFAULT_URL = "http://127.0.0.1:8700"
MACHINE_CREDENTIALS = "/var/lib/space/credentials.json"


def credentials(url: str | None, key: str | None) -> tuple[str, str | None]:
    """What is not given is found: in the environment, then in a credentials file."""
    url = url or environ.get("SPACE_URL") or None
    key = key or environ.get("SPACE_API_KEY") or None
    found = {} if key is not None else _read_credentials()
    return url or found.get("url") or DEFAULT_URL, key or found.get("key")


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
