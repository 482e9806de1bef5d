"""Find a workload by what a user types: a built-in name or a file."""

from __future__ import annotations

from weft.core.errors import InvalidConfig, TraceError, did_you_mean
from weft.core.model.trace import Trace
from weft.core.paths import expand
from weft.core.spec import registry
from weft.traces.draft import Workload
from weft.traces.options import Options, Request
from weft.traces.read import load, trace_part


def find(text: str, request: Request | None = None, options: Options | None = None) -> Trace:
    """The workload named `text`, drawn as `request` says, or the file, read with `options`."""
    if text in registry.names("trace"):
        return workload(text).generate(request or Request())
    path = expand(text)
    if not path.exists():
        known = [name for name, _ in workloads()]
        raise TraceError(
            f"no workload or file named {text!r}{did_you_mean(text, known)}",
            hint="`weft list trace` shows the built-in workloads",
        )
    return load(path, options or Options())


def workload(name: str) -> Workload:
    """The built-in or plugged-in workload `name`."""
    part = trace_part(name)
    if not isinstance(part, Workload):
        raise InvalidConfig(
            f"{name!r} is a file format, not a workload",
            hint="give the file itself; its format is recognised by content",
        )
    return part


def workloads() -> list[tuple[str, str]]:
    """Name and origin of every workload that needs no file."""
    parts = [trace_part(name) for name in registry.names("trace")]
    return [(part.name, part.about) for part in parts if isinstance(part, Workload)]
