"""Everything Weft raises on purpose.

WeftError
├── UnknownName      a policy, trace, engine, ... that is not registered
├── InvalidConfig    a parameter, cluster string or option that cannot be used
│   └── NewerEvent   a line of a log that a newer version wrote
├── TraceError       a workload file that cannot be read, with file, line and column
├── PlanError        a policy returned a plan that cannot be carried out: a bug in the policy
├── StateError       an event that cannot follow from those before it, with the job's history
├── StoreError       the store could not be written: a full disk, mostly
│   ├── MaybeWritten it went away just as it was to keep something, which may be there
│   └── Superseded   another service has taken over the log
├── UnreadableEvent  an event that the log refuses: it could not be read back
└── EngineError      an engine could not do what it was asked

The first three are the user's to fix (exit code 2); the others are ours (exit code 1).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from operator import attrgetter
from typing import Any

from weft.base.hinted import HintedError


class WeftError(HintedError):
    """Base of all errors raised on purpose: what happened, and a hint that fixes it."""


@contextmanager
def needs(what: str, hint: str) -> Iterator[None]:
    """Around an import of a package that need not be installed: InvalidConfig without it."""
    try:
        yield
    except ImportError as error:
        raise InvalidConfig(what, hint=hint) from error


class UnknownName(WeftError):  # noqa: N818 - reads better at the call site
    """A name that is not registered."""

    @classmethod
    def among(
        cls,
        kind: str,
        name: str,
        known: Iterable[str],
        shown_by: str = "",
        also: Iterable[str] = (),
    ) -> UnknownName:
        """Name the thing, suggest the closest, and say which command shows all `known`.

        `also` are names that would be there if more were installed.
        """
        names = sorted(known)
        return cls(
            f"no {kind} named {name!r}{did_you_mean(name, [*names, *also])}",
            hint=f"`{shown_by or f'weft list {kind}'}` shows all {len(names)}",
        )


class StoreError(WeftError):
    """The store could not be written; nothing of what was to be written is there."""


class MaybeWritten(StoreError):  # noqa: N818
    """The store did not answer the end of a transaction: all of it is there, or nothing."""


class Superseded(StoreError):  # noqa: N818
    """Another service has taken over the log: this one may write and do nothing more."""


class InvalidConfig(WeftError):  # noqa: N818
    """A setting that cannot be used as it is."""


def bad_values(name: str, part: Any, parameters: str, rule: str) -> InvalidConfig:
    """Parameters of a policy, predictor, ... that break a rule, with the values they have."""
    given = ((word, attrgetter(word)(part)) for word in parameters.split())
    shown = (f"{word}={v:g}" if isinstance(v, float) else f"{word}={v}" for word, v in given)
    return InvalidConfig(f"{name}: {', '.join(shown)}", hint=rule)


class NewerEvent(InvalidConfig):
    """A line of a log that a newer version wrote, with an event or field that is unknown here."""


class MakesNoSense(InvalidConfig):
    """Settings that are fine each, but not together."""


class TraceError(WeftError):
    """A workload file that cannot be read."""

    @classmethod
    def at(
        cls, path: object, line: int, column: str, value: object, expected: str, *, hint: str = ""
    ) -> TraceError:
        """Name the file, the line, the column, what is there and what should be."""
        where = f"{path}, line {line}" + (f", column {column!r}" if column else "")
        return cls(f"{where}: found {value!r}, expected {expected}", hint=hint)


class PlanError(WeftError):
    """A plan that promises what is not there, or what the policy did not declare.

    `job` is the one that it goes wrong with, where that is known.
    """

    def __init__(self, what: str, *, hint: str = "", job: str | None = None) -> None:
        super().__init__(what, hint=hint)
        self.job = job


class StateError(WeftError):
    """An event that the state machine cannot take in; carries the last events of its job."""


class UnreadableEvent(WeftError):  # noqa: N818
    """An event that would not come back from the log as it is, so it is not written."""


class EngineError(WeftError):
    """An engine that could not do what it was asked."""


class NotRunningError(EngineError):
    """An attempt that has ended, or has not begun, when something was asked of it."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`; did you mean 'x'?` for the closest known name, or nothing."""
    close = get_close_matches(name, list(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""
