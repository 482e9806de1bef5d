"""Load a workload by what a user types: a built-in name, or a file of any known format."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from math import ceil, inf, isnan
from pathlib import Path

import numpy as np

from weft.core.errors import InvalidConfig, TraceError, did_you_mean
from weft.core.model.job import Job, JobId
from weft.core.model.trace import LoadReport, Trace, Truth
from weft.core.paths import expand
from weft.core.spec import registry
from weft.traces.draft import Format, Pair, TraceDraft, TracePart, Workload
from weft.traces.options import DrawRequest, Options
from weft.traces.source import TraceFile, closing_all, members

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


def _claims(path: Path) -> list[tuple[Format, list[TraceFile]]]:
    files = members(path)
    known = list(formats())
    claimed: dict[str, tuple[Format, list[TraceFile]]] = {}
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


def _refuse_unrecognised(
    path: Path, files: tuple[TraceFile, ...], known: list[Format]
) -> TraceError:
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


# ---- Filters that every format shares, applied once, each counted


Reason = Callable[[Job, Truth], str]


def finish(name: str, draft: TraceDraft, options: Options) -> Trace:
    """Drop what the options exclude, sort, change what they ask for, and report it all."""
    dropped = Counter(draft.dropped)
    pairs = _keep(draft.pairs, options, dropped)
    if not pairs:
        raise _nothing_left(name, draft, dropped)
    pairs.sort(key=lambda pair: pair[0].submitted)
    pairs = _sample(pairs, options, dropped)
    warnings = [*draft.warnings, *_find_missed(draft)]
    pairs = _distinct(_change(pairs, options), warnings)
    report = LoadReport(
        rows=draft.rows, kept=len(pairs), dropped=dict(dropped), warnings=tuple(warnings)
    )
    cluster = draft.cluster or size_cluster(pairs)
    return Trace(name, tuple(pairs), cluster, draft.origin, report, draft.detail)


def size_cluster(pairs: list[Pair], load: float = 0.8, node: int = 8) -> str:
    """A cluster of equal nodes on which `pairs` offer about `load`, and the largest job fits."""
    work = sum(t.length * j.demand.gpus * j.demand.share for j, t in pairs if t.length < inf)
    span = pairs[-1][0].submitted - pairs[0][0].submitted
    largest = max(job.demand.gpus for job, _ in pairs)
    wanted = work / (span * load) if span > 0 else largest
    return f"{max(1, ceil(max(min(wanted, 100_000), largest) / node))}x{node}:v100"


def _keep(pairs: list[Pair], options: Options, dropped: Counter[str]) -> list[Pair]:
    reasons = _reasons(options)
    kept: list[Pair] = []
    for pair in pairs:
        for reason in reasons:
            why = reason(*pair)
            if why:
                dropped[why] += 1
                break
        else:
            kept.append(pair)
    return kept


def _reasons(options: Options) -> list[Reason]:
    reasons: list[Reason] = [_unusable]
    if not options.cpu_jobs:
        reasons.append(lambda job, _: "" if job.demand.gpus else "no GPU")
    if not options.censored:
        reasons.append(lambda _, truth: "non-terminal state" if truth.censored else "")
    if options.states:
        states = {state.lower() for state in options.states}
        reasons.append(lambda _, truth: "" if truth.state in states else "state")
    if options.tenants:
        tenants = set(options.tenants)
        reasons.append(lambda job, _: "" if job.tenant in tenants else "tenant")
    if options.max_gpus is not None:
        most = options.max_gpus
        reasons.append(lambda job, _: "more than max_gpus" if job.demand.gpus > most else "")
    if options.window is not None:
        start, end = options.window
        reasons.append(lambda job, _: "" if start <= job.submitted < end else "outside window")
    if options.min_duration > 0 or options.max_duration < inf:
        reasons.append(_bound(options.min_duration, options.max_duration))
    return reasons


def _unusable(job: Job, truth: Truth) -> str:
    if truth.length > 0 and job.submitted >= -inf:
        return ""
    return "no start or end" if isnan(truth.length + job.submitted) else "non-positive duration"


def _bound(shortest: float, longest: float) -> Reason:
    def reason(_: Job, truth: Truth) -> str:
        if truth.length < shortest:
            return "shorter than min_duration"
        return "longer than max_duration" if truth.length > longest else ""

    return reason


def _sample(pairs: list[Pair], options: Options, dropped: Counter[str]) -> list[Pair]:
    if options.sample is None or options.sample >= len(pairs):
        return pairs
    rng = np.random.Generator(np.random.PCG64(options.seed))
    chosen = np.sort(rng.choice(len(pairs), options.sample, replace=False))
    dropped["not sampled"] += len(pairs) - options.sample
    return [pairs[i] for i in chosen]


def _change(pairs: list[Pair], options: Options) -> list[Pair]:
    start = pairs[0][0].submitted
    base = 0.0 if options.rebase else start
    if options.rebase or options.scale_arrivals != 1.0:
        x = options.scale_arrivals
        pairs = [(replace(j, submitted=base + (j.submitted - start) / x), t) for j, t in pairs]
    if options.scale_duration != 1.0 or options.clip_duration < inf:
        pairs = [(job, _resize(truth, options)) for job, truth in pairs]
    return pairs


def _resize(truth: Truth, options: Options) -> Truth:
    clipped = truth.length > options.clip_duration
    length = min(truth.length, options.clip_duration) * options.scale_duration
    points = tuple(p * options.scale_duration for p in truth.failures if p <= options.clip_duration)
    return replace(truth, length=length, failures=points, censored=truth.censored or clipped)


def _distinct(pairs: list[Pair], warnings: list[str]) -> list[Pair]:
    if len({job.id for job, _ in pairs}) == len(pairs):
        return pairs
    seen: Counter[str] = Counter()
    distinct: list[Pair] = []
    for job, truth in pairs:
        seen[job.id] += 1
        again = seen[job.id] > 1
        new = replace(job, id=JobId(f"{job.id}#{seen[job.id]}")) if again else job
        distinct.append((new, truth))
    warnings.append(f"{len(pairs) - len(seen):,} repeated job ids got a number")
    return distinct


def _find_missed(draft: TraceDraft) -> list[str]:
    if not draft.published or abs(draft.rows - draft.published) <= 0.01 * draft.published:
        return []
    return [f"{draft.rows:,} rows read; the complete public file has {draft.published:,}"]


def _nothing_left(name: str, draft: TraceDraft, dropped: Counter[str]) -> TraceError:
    if not draft.rows:
        return TraceError(f"{name}: no jobs in the file", hint="a trace has at least one job")
    why = ", ".join(f"{count:,} {reason}" for reason, count in dropped.most_common())
    return TraceError(
        f"{name}: no jobs left of {draft.rows:,} rows ({why})",
        hint="relax the option that names the largest count",
    )


def find(text: str, request: DrawRequest | None = None, options: Options | None = None) -> Trace:
    """The workload named `text`, drawn as `request` says, or the file, read with `options`."""
    if text in registry.names("trace"):
        return workload(text).generate(request or DrawRequest())
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
