"""Contents of every format of the event log, so that no version misreads the log of a newer one.

A log names its format by a number, and a version refuses a number above its own. `formats/N.txt`
lists all that format N can hold: a line for each event and each field in it, with its type and what
it is when it is left out. A test holds the classes of events to the last of these files, so the
number grows with them.
"""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import Enum
from functools import cache
from importlib.resources import files
from typing import Any, NewType, Union, get_args, get_origin, get_type_hints

from weft.core.events.event import EVENTS
from weft.core.events.report import Report
from weft.core.spec.part_spec import RENAMED, PartSpec

FORMAT = 5
WRITTEN_BY = {4: "0.2.0"}  # the last version that wrote each earlier format whose schema is known
PARTS = ("PolicyChanged.policy", "PolicyChanged.instead_of", "Decided.by")
WHOLE = (PartSpec, Report)  # read as they are, whatever is in them
# Fields that logs of earlier versions have and `read_event` drops or reads by another name.
RETIRED: Mapping[str, frozenset[str]] = {
    "Decided": frozenset({"asleep"}),
    "Reported": frozenset({"values"}),
}
PLACE_OF_EVENT = "Woken"  # changes nothing
# Wrappers by the names they had, for policies in logs of each earlier format.
OLD_NAMES: Mapping[int, Mapping[str, str]] = {4: {new: old for old, new in RENAMED.items()}}
# What a log can lose to be of an earlier format, and what that means for people. Without the rest
# an earlier version would act otherwise.
MAY_GO: Mapping[str, str] = {
    "Measured": "metrics of jobs",
    "Foretold": "forecasts that were shown are not compared with what came",
    "PolicyChanged.by": "who changed a policy or a rule",
    "NodeDown.by": "who drained a node",
    "NodeDown.why": "why a node was drained",
    "NodeUp.by": "who put a node back into use",
    "PolicyChanged.terms": "what the policy says about itself, which `weft verify` reads",
    "Decided.memory_order": "memory that becomes free goes by priority and by the longest wait",
    "Decided.facts": "the numbers in reasons for waiting",
    "Decided.blockers{}": "the kind of a reason for waiting",
    "names": "new names of wrappers",
    "Submitted.job.launch.search": "sweeps search no more: their jobs go on to their ends",
    "Submitted.job.launch.artifacts": "the files that jobs leave cannot be fetched",
    "Submitted.job.launch.notify": "users are not notified of the ends of jobs that ask for it",
    "Submitted.job.launch.owner": "mail goes to the user that a job file names",
    "Submitted.job.launch.metrics": "no metrics are read from the output of jobs",
    "Submitted.job.launch.log_mb": "16 MB of output of each process are kept",
}


@cache
def paths_of(log_format: int) -> Mapping[str, str]:
    """Everything that a format can hold: the path of each field, and the rest of its line."""
    text = files("weft.core.codec").joinpath("formats", f"{log_format}.txt").read_text()
    return {path: rest for path, _, rest in (line.partition(" ") for line in text.splitlines())}


@cache
def _objects_of(log_format: int) -> frozenset[str]:
    """The paths of all that has fields; what a part of `WHOLE` holds is its own affair."""
    paths = paths_of(log_format)
    events = {path for path in paths if "." not in path}
    return frozenset(events | {path.rpartition(".")[0] for path in paths if "." in path})


def find_unknown(record: Mapping[str, Any], log_format: int = FORMAT) -> list[str]:
    """The paths of what stands in a line of a log and is unknown to a format."""
    known = _Known(log_format)
    known.keep(record)
    return known.unknown


def rewrite(record: Mapping[str, Any], log_format: int) -> tuple[dict[str, Any], list[str]]:
    """A line as an earlier format has it, and the paths of what it lacks."""
    known = _Known(log_format)
    kept = known.keep(record)
    if not kept:
        kept = {"at": record["at"], "event": PLACE_OF_EVENT}
    return kept, known.unknown


class _Known:
    """Copies the part of a line that a format knows, and lists the rest in `unknown`."""

    def __init__(self, log_format: int) -> None:
        self._paths, self._objects = paths_of(log_format), _objects_of(log_format)
        self._old_names = OLD_NAMES.get(log_format, {})
        self.unknown: list[str] = []

    def keep(self, record: Mapping[str, Any]) -> dict[str, Any]:
        """Keep the fields that are known; none of an unknown event."""
        name = str(record["event"])
        if name not in self._paths:
            self.unknown.append(name)
            return {}
        body = {key: value for key, value in record.items() if key not in ("at", "event")}
        return {"at": record["at"], "event": name, **self._held(name, body)}

    def _held(self, path: str, value: Any) -> Any:
        if path in self._objects and isinstance(value, dict):
            return self._items(path, ".", value)
        if f"{path}{{}}" in self._paths and isinstance(value, dict):
            return self._items(path, "{}", value)
        if f"{path}[]" in self._paths and isinstance(value, list):
            return [self._held(f"{path}[]", each) for each in value]
        return self._part(value) if path in PARTS else value

    def _part(self, value: Any) -> Any:
        """A policy by the names of its wrappers then; old logs have the short form, a text."""
        if not isinstance(value, dict) or not self._old_names:
            return value
        wrappers = [
            {**wrapper, "name": self._old_names.get(wrapper["name"], wrapper["name"])}
            for wrapper in value.get("wrappers", ())
        ]
        if wrappers == value.get("wrappers", []):
            return value
        self.unknown.append("names")
        return {**value, "wrappers": wrappers}

    def _items(self, path: str, mark: str, value: dict[str, Any]) -> dict[str, Any]:
        kept = {}
        for key, held in value.items():
            below = f"{path}.{key}" if mark == "." else f"{path}{mark}"
            if self._knows(below, held):
                kept[key] = self._held(below, held)
            elif path in RETIRED and key in RETIRED[path]:
                kept[key] = held
            else:
                self.unknown.append(below)
        return kept

    def _knows(self, path: str, value: Any) -> bool:
        word = self._paths.get(path)
        if word is None or not word.startswith("one of "):
            return word is not None
        return value is None or str(value) in word.removeprefix("one of ").split(" =")[0].split("|")


def schema() -> list[str]:
    """The lines of this version's own format."""
    return [line for event in EVENTS for line in _lines(event.__name__, event, ())]


def _lines(path: str, kind: Any, inside: tuple[Any, ...], left_out: str = "") -> Iterator[str]:
    """The line of a value at `path`, and those of all that it holds."""
    if isinstance(kind, NewType):
        kind = kind.__supertype__
    if get_origin(kind) in (Union, types.UnionType):
        held = [each for each in get_args(kind) if each is not type(None)]
        kind = held[0] if len(held) == 1 else kind
    yield f"{path} {_word(kind)}{left_out}"
    if is_dataclass(kind) and kind not in (*WHOLE, *inside):
        hints = get_type_hints(kind)
        for each in fields(kind):
            default = f" = {_default(each)}"
            yield from _lines(f"{path}.{each.name}", hints[each.name], (*inside, kind), default)
    origin, items = get_origin(kind), get_args(kind)
    if items and isinstance(origin, type) and origin is not types.UnionType:
        pairs = issubclass(origin, Mapping)
        yield from _lines(f"{path}{'{}' if pairs else '[]'}", items[1 if pairs else 0], inside)


def _word(kind: Any) -> str:
    if isinstance(kind, type) and issubclass(kind, Enum):
        return f"one of {'|'.join(str(each.value) for each in kind)}"
    origin = get_origin(kind)
    if origin is not None:
        return str(origin.__name__)
    return "object" if is_dataclass(kind) else str(kind.__name__)


def _default(each: Field[Any]) -> str:
    if each.default_factory is not MISSING:
        return repr(each.default_factory())
    if isinstance(each.default, Enum):
        return repr(each.default.value)
    return "needed" if each.default is MISSING else repr(each.default)
