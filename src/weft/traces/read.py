"""Load a workload file of any known format."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from weft.core.errors import InvalidConfig, TraceError
from weft.core.model.trace import Trace
from weft.core.spec import registry
from weft.traces.draft import Format, TracePart
from weft.traces.filters import finish
from weft.traces.options import Options
from weft.traces.source import Member, closing_all, members

DEFAULTS = Options()


def load(path: Path, options: Options = DEFAULTS) -> Trace:
    """The jobs behind `path`, whatever the format; recognised by content, never by name."""
    claims = _claims(path)
    if len(claims) > 1:
        several = " and ".join(f"{form.name} ({files[0].path})" for form, files in claims)
        raise TraceError(f"{path}: holds several traces: {several}", hint="name one of the files")
    form, files = claims[0]
    try:
        with closing_all():
            draft = form.load(files, options)
    except InvalidConfig as error:  # a job that no cluster could run
        raise TraceError(f"{path}: {error.what}", hint=error.hint) from error
    return finish(_name(path), draft, options)


def recognise(path: Path) -> Format:
    """The format of `path`."""
    return _claims(path)[0][0]


def formats() -> Iterator[Format]:
    """Every registered file format, in order of name."""
    for name in registry.names("trace"):
        part = trace_part(name)
        if isinstance(part, Format):
            yield part


def trace_part(name: str) -> TracePart:
    """The file format or workload that is registered as `name`."""
    part = registry.find("trace", name)
    if not isinstance(part, TracePart):
        raise InvalidConfig(
            f"trace {name!r} is a {type(part).__name__}, neither a Format nor a Workload",
            hint="a plug-in names one of these in its entry point; see weft.traces.draft",
        )
    return part


def _claims(path: Path) -> list[tuple[Format, list[Member]]]:
    files = members(path)
    known = list(formats())
    claimed: dict[str, tuple[Format, list[Member]]] = {}
    for file in files:
        sample = file.sample()
        form = next((form for form in known if form.sniff(sample)), None)
        if form is not None:
            claimed.setdefault(form.name, (form, []))[1].append(file)
        elif len(files) == 1 and not sample.text.strip():
            raise TraceError(f"{path}: the file is empty", hint="a trace has at least one job")
    if not claimed:
        raise _refuse_unrecognised(path, files, known)
    return list(claimed.values())


def _refuse_unrecognised(path: Path, files: tuple[Member, ...], known: list[Format]) -> TraceError:
    first = files[0].sample().lines[:1] if len(files) == 1 else [f"{len(files)} files"]
    return TraceError(
        f"{path}: no known trace format; it begins {' '.join(first)[:60]!r}",
        hint=f"known formats are {', '.join(form.name for form in known)}; "
        "weft-csv is the simplest: id,submit_s,num_gpus,duration_s",
    )


def _name(path: Path) -> str:
    name = path.name
    while (stem := Path(name)).suffix in (".gz", ".zip", ".tar", ".tgz", ".csv", ".trace"):
        name = stem.stem
    return name
