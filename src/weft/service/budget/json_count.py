"""How deep JSON is and how many values it holds, counted while it arrives and before it is parsed.

A parser builds what it reads: a megabyte of `[` or of `1,` costs it, and whoever checks the result,
a hundred times that. Here nothing is built, and counting ends where the limit is passed.
"""

from __future__ import annotations

import re

_OUTSIDE = re.compile(rb'["\[\]{}]')
_INSIDE = re.compile(rb'(?:[^"\\]|\\.)*+', re.DOTALL)
_CLOSE, _QUOTE, _BACKSLASH = b"]}", b'"', 0x5C


class TooMuch(Exception):  # noqa: N818 - a verdict, not what broke
    """JSON that is deeper, or holds more, than it may."""


class JsonCount:
    """Counts JSON that comes in parts; `feed` raises TooMuch once there is too much of it.

    What is not JSON is counted all the same: whoever parses it says what is wrong.
    """

    def __init__(self, nesting: int, values: int) -> None:
        self._nesting, self._most = nesting, values
        self.depth = self.values = 0
        self._in_text = self._escaped = False

    def feed(self, part: bytes) -> None:
        """Count the next part."""
        at = self._skip_text(part, 0) if self._in_text else 0
        while (match := _OUTSIDE.search(part, at)) is not None:
            self._add(part.count(b",", at, match.start()))
            at = match.end()
            char = match[0]
            if char == _QUOTE:
                self._in_text = True
                at = self._skip_text(part, at)
            elif char in _CLOSE:
                self.depth -= 1
            else:
                self.depth += 1
                self._add(1)
        self._add(part.count(b",", at))

    def _add(self, values: int) -> None:
        self.values += values
        if self._nesting and self.depth > self._nesting:
            raise TooMuch(f"the body is nested more than {self._nesting} levels deep")
        if self._most and self.values > self._most:
            raise TooMuch(f"the body holds more than {self._most:,} values")

    def _skip_text(self, part: bytes, at: int) -> int:
        """Where a text ends that we are in, or where the part does."""
        if self._escaped and at < len(part):
            self._escaped, at = False, at + 1
        match = _INSIDE.match(part, at)
        assert match is not None  # it matches nothing, too
        at = match.end()
        if at < len(part) and part[at] == _BACKSLASH:  # the last of this part
            self._escaped = True
            return len(part)
        if at < len(part):
            self._in_text = False
            return at + 1
        return at
