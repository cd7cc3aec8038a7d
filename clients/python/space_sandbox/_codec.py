"""Between JSON and the generated models.

A model is a dataclass, and its annotations are all that this needs to know. What a newer server adds is passed over:
fields that no model has, and words that no enumeration has, which become members for the moment.
"""

from __future__ import annotations

import base64
import dataclasses
import re
import types
import typing
from collections.abc import Hashable
from datetime import datetime, timezone
from enum import Enum
from functools import lru_cache
from typing import Any, TypeVar, cast

from .errors import ProtocolError

T = TypeVar("T")


class OpenEnum(str, Enum):
    """Strings with names. One that is not known is kept as it is, so that it compares and prints like any other."""

    @classmethod
    def _missing_(cls, value: object) -> OpenEnum | None:
        if not isinstance(value, str):
            return None
        member = str.__new__(cls, value)
        member._name_ = value
        member._value_ = value
        return member

    def __str__(self) -> str:
        return str(self.value)


def decode(kind: type[T], value: object) -> T:
    """`value`, as JSON was parsed, as a `kind`. Raises `ProtocolError` where it is something else."""
    return cast(T, _decode(kind, value, kind.__name__))


def encode(value: object) -> object:
    """A model as JSON's types. What is `None` is left out: the server's default holds."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        pairs = ((field.name, getattr(value, field.name)) for field in dataclasses.fields(value))
        return {_json_name(name): encode(item) for name, item in pairs if item is not None}
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, datetime):
        return value.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    if isinstance(value, dict):
        return {key: encode(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [encode(item) for item in value]
    if isinstance(value, Enum):
        return value.value
    return value


def _json_name(name: str) -> str:
    # `from_` where Python keeps the name for itself.
    return name.rstrip("_")


@lru_cache(maxsize=None)
def _fields(kind: Any) -> list[tuple[str, str, Any, bool]]:
    """Of each field: its name, JSON's, its type, and whether it has to be there."""
    hints = typing.get_type_hints(kind)
    missing = dataclasses.MISSING
    return [
        (field.name, _json_name(field.name), hints[field.name], field.default is missing and field.default_factory is missing)
        for field in dataclasses.fields(kind)
    ]


def _decode(kind: Any, value: object, where: str) -> object:
    origin = typing.get_origin(kind)
    if origin in (typing.Union, types.UnionType):
        return _decode_union(typing.get_args(kind), value, where)
    if origin is list:
        (item,) = typing.get_args(kind)
        return [_decode(item, entry, f"{where}[{index}]") for index, entry in enumerate(_is(list, value, where))]
    if origin is dict:
        _key, item = typing.get_args(kind)
        return {key: _decode(item, entry, f"{where}.{key}") for key, entry in _is(dict, value, where).items()}
    if kind is object:
        return value
    return _decode_plain(kind, value, where)


def _decode_union(kinds: tuple[Any, ...], value: object, where: str) -> object:
    """The first that fits; in the models a union is a type or none, or one of JSON's own types."""
    if value is None and type(None) in kinds:
        return None
    last = ProtocolError(f"{where} is of no known type")
    for kind in kinds:
        if kind is not type(None):
            try:
                return _decode(kind, value, where)
            except ProtocolError as error:
                last = error
    raise last


def _decode_plain(kind: Any, value: object, where: str) -> object:
    if dataclasses.is_dataclass(kind):
        return _decode_model(cast(type[Any], kind), value, where)
    if kind is bytes:
        return _decode_base64(_is(str, value, where), where)
    if kind is datetime:
        return _decode_time(_is(str, value, where), where)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(_is(str, value, where))
    if kind is int and isinstance(value, bool):
        raise ProtocolError(f"{where} is not an int")
    return _is(kind, value, where)


def _decode_model(kind: type[Any], value: object, where: str) -> object:
    given = _is(dict, value, where)
    known: dict[str, object] = {}
    for name, json_name, hint, required in _fields(cast(Hashable, kind)):
        if given.get(json_name) is not None:
            known[name] = _decode(hint, given[json_name], f"{where}.{json_name}")
        elif required:
            raise ProtocolError(f"{where}.{json_name} is missing")
    return kind(**known)


def _is(kind: type[T], value: object, where: str) -> T:
    if not isinstance(value, kind):
        raise ProtocolError(f"{where} is not a {kind.__name__}")
    return value


def _decode_base64(text: str, where: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError as error:
        raise ProtocolError(f"{where} is not base64") from error


_TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)")


def _decode_time(text: str, where: str) -> datetime:
    """RFC 3339, to the microsecond; Python before 3.11 reads less than that by itself."""
    match = _TIME.fullmatch(text)
    if match is None:
        raise ProtocolError(f"{where} is not a point in time")
    seconds, fraction, zone = match.groups()
    micros = (fraction or "").ljust(6, "0")[:6]
    try:
        return datetime.fromisoformat(f"{seconds}.{micros}{'+00:00' if zone == 'Z' else zone}")
    except ValueError as error:
        raise ProtocolError(f"{where} is not a point in time") from error
