"""One JSON object a line: frozen dataclasses to bytes and back.

A vocabulary is the set of message classes of one conversation. The name of a class in lower case
is the line's `"type"`. Readers ignore types and fields they do not know, so that either side may
be newer; a line that is not what its own type promises raises `WireError` and names the line.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any, Generic, TypeVar

from .errors import WireError
from .typed import LEAVES, Reader

LONGEST = 1 << 20  # bytes of a line; a longer one is a stream of something else

M = TypeVar("M")


class Vocabulary(Generic[M]):
    """The messages of one conversation."""

    def __init__(self, *kinds: type[M]) -> None:
        self._kinds: dict[str, type[M]] = {_name(kind): kind for kind in kinds}

    def encode(self, message: M) -> bytes:
        """Encode a message as one line, with its newline."""
        body = {"type": _name(type(message))}
        for field in fields(message):  # type: ignore[arg-type]
            body[field.name] = _plain(getattr(message, field.name))
        return json.dumps(body, separators=(",", ":"), allow_nan=False).encode() + b"\n"

    def decode(self, line: bytes | str) -> M | None:
        """The message of a line; None if its type is not known here."""
        try:
            body = json.loads(line)
        except (ValueError, RecursionError) as error:  # deep nesting recurses
            raise WireError(f"not a JSON line: {_quote(line)} ({error})") from error
        if not isinstance(body, dict) or not isinstance(body.get("type"), str):
            raise WireError(f'expected an object with a "type": {_quote(line)}')
        kind = self._kinds.get(body["type"])
        if kind is None:
            return None
        try:
            message: M = _READER.of(kind)(body)
        except (TypeError, ValueError) as error:
            raise WireError(f"bad {body['type']!r} message: {error}: {_quote(line)}") from error
        return message


def _name(kind: type) -> str:
    name: str = getattr(kind, "wire_name", kind.__name__.lower())
    return name


class Splitter(Generic[M]):
    """Messages out of a stream's chunks, however they were cut."""

    def __init__(self, words: Vocabulary[M]) -> None:
        self._words = words
        self._rest = b""

    def feed(self, chunk: bytes) -> Iterator[M]:
        """The known messages that are complete by now."""
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        if len(self._rest) > LONGEST:
            raise WireError(f"a line is longer than {LONGEST} bytes: {_quote(self._rest)}")
        for line in lines:
            if line.strip() and (message := self._words.decode(line)) is not None:
                yield message


def _missing(kind: type, name: str) -> ValueError:  # noqa: ARG001 - the line names it
    return ValueError(f"no field {name!r}")


_READER = Reader(LEAVES, missing=_missing)


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # JSON has no NaN; float() reads the word back
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value


def _quote(line: bytes | str) -> str:
    text = line.decode(errors="replace") if isinstance(line, bytes) else line
    return repr(text if len(text) <= 200 else text[:200] + "…")
