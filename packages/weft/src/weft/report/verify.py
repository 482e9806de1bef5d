"""Checks of a comparison's honesty, for any result, ours or another simulator's.

A run is rows of (job, submit, start, end, GPUs), one per stretch of time in which a job held the
same number of GPUs. Findings say with numbers what is wrong, and what is unknown.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from enum import IntEnum
from itertools import pairwise
from math import inf, isfinite
from statistics import median

from weft.core.errors import InvalidConfig
from weft.frozen import frozen
from weft.plural import say_gpus

ENOUGH, ENOUGH_AGAIN = 5, 3  # jobs that are started once in both, and again in one
SLACK_S, SLACK = 1.0, 0.01
Rows = Sequence[tuple[float, float, float]]  # start, end and GPUs of what a job held


@frozen
class Inferred:
    """Seconds beyond those of the run `beside`, by run: of a start, and of each restart."""

    beside: str = ""
    starts: Mapping[str, float] = field(default_factory=dict)
    restarts: Mapping[str, float] = field(default_factory=dict)


def infer_costs(runs: Mapping[str, Mapping[str, Rows]]) -> Inferred:
    """Infer costs from finished jobs by run; nothing where too few can be compared."""
    times = {name: _attempt_times(jobs) for name, jobs in runs.items()}
    if len(times) < 2:
        return Inferred()
    once = {run: sum(starts == 1 for _, _, starts in own.values()) for run, own in times.items()}
    beside = max(once, key=lambda run: once[run])
    starts, restarts = {}, {}
    for run, own in times.items():
        offset = None if run == beside else _offset(own, times[beside])
        if offset is None:
            continue
        starts[run] = offset
        again = _again(own, times[beside], offset)
        if again is not None:
            restarts[run] = again
    return Inferred(beside, starts, restarts)


Time = tuple[float, float, int]  # GPUs, seconds on them, starts


def _attempt_times(jobs: Mapping[str, Rows]) -> dict[str, Time]:
    """Jobs that keep one number of GPUs, and wait between any two stretches."""
    times = {}
    for name, rows in jobs.items():
        held = sorted(rows)
        joined = any(after[0] <= before[1] + EPS for before, after in pairwise(held))
        if held and not joined and len({gpus for _, _, gpus in held}) == 1:
            times[name] = (held[0][2], sum(end - start for start, end, _ in held), len(held))
    return times


def _offset(own: Mapping[str, Time], other: Mapping[str, Time]) -> float | None:
    """By how many seconds jobs that are started once take longer; None if that is not a number."""
    pairs = [
        (mine[1], other[job][1])
        for job, mine in own.items()
        if job in other and mine[0] == other[job][0] and mine[2] == other[job][2] == 1
    ]
    return _centre([a - b for a, b in pairs], [b for _, b in pairs], ENOUGH)


def _again(own: Mapping[str, Time], other: Mapping[str, Time], offset: float) -> float | None:
    pairs = [
        (mine, other[job][1])
        for job, mine in own.items()
        if job in other and mine[0] == other[job][0] and mine[2] > 1 and other[job][2] == 1
    ]
    costs = [(mine[1] - was - offset) / (mine[2] - 1) for mine, was in pairs]
    return _centre(costs, [was for _, was in pairs], ENOUGH_AGAIN)


def _centre(values: Sequence[float], lengths: Sequence[float], enough: int) -> float | None:
    """The median, if most are about that; None where they are too few or too far apart."""
    if len(values) < enough:
        return None
    centre = median(values)
    apart = median(abs(value - centre) for value in values)
    return centre if apart <= SLACK_S + SLACK * min(abs(centre), median(lengths)) else None


EPS = 1e-6
TRUTH = ("oracle", "truth", "durations", "future")
NAMED = 3
STARTS, RESTARTS, RESIZES = "of a start:", "of a restart:", "of a change without a stop:"


class Severity(IntEnum):
    """Severity of a finding."""

    OK = 0
    UNKNOWN = 1  # the result does not say
    WRONG = 2


@frozen
class CheckResult:
    """Finding of one check in a run, or in all of them."""

    check: str
    level: Severity
    text: str
    run: str = ""


@frozen
class Stretch:
    """A job on that many GPUs for a while, and what starting took of it; None: it is not said."""

    start: float
    end: float
    gpus: float
    startup_s: float | None = None


@frozen
class JobRun:
    """One job: when it was submitted and ended (None: it did not), and what it held."""

    submit: float
    end: float | None
    held: tuple[Stretch, ...] = ()


@frozen
class SimRun:
    """One run: its jobs, and what its author says about it; None where nothing is said.

    `total` is how many jobs the author counts, `torn` are jobs whose rows contradict each other.
    """

    name: str
    gpus: float | None
    jobs: Mapping[str, JobRun]
    avg_jct_s: float | None = None
    finished: int | None = None
    knows: str | None = None
    seeds: int | None = None
    intervals: bool = False
    total: int | None = None
    torn: tuple[str, ...] = ()
    facts: Mapping[str, str] = field(default_factory=dict)


def verify(runs: Sequence[SimRun]) -> list[CheckResult]:
    """All findings, run by run, then over all of them."""
    if not runs:
        raise InvalidConfig("it contains no run", hint="a result has at least one policy")
    findings: list[CheckResult] = []
    for run in runs:
        findings += [_numbers(run), _capacity(run), _twice(run), _times(run), _counted(run)]
        findings += [_mean(run), _future(run), _seeds(run)]
    findings += [_same_jobs(runs), _costs(runs), _charged(runs)]
    return findings


# ---- checks


def _numbers(run: SimRun) -> CheckResult:
    bad = [name for name, job in run.jobs.items() if not all(map(_is_possible, _numbers_of(job)))]
    text = f"times or GPUs below 0 or that are no numbers: {_some(bad)}"
    ok = CheckResult("numbers", Severity.OK, "times and GPUs are 0 or more", run.name)
    return CheckResult("numbers", Severity.WRONG, text, run.name) if bad else ok


def _numbers_of(job: JobRun) -> Iterator[float]:
    yield job.submit
    if job.end is not None:
        yield job.end
    for stretch in job.held:
        yield from (stretch.start, stretch.gpus, stretch.startup_s or 0.0)
        yield 0.0 if stretch.end == inf and job.end is None else stretch.end


def _is_possible(number: float) -> bool:
    return isfinite(number) and number >= 0.0


def _capacity(run: SimRun) -> CheckResult:
    if run.gpus is None:
        return CheckResult(
            "capacity", Severity.UNKNOWN, "the file does not say how many GPUs there are", run.name
        )
    changes = sorted(
        change
        for job in run.jobs.values()
        for stretch in job.held
        if _is_possible(stretch.gpus)  # else it is reported already, and must not hide the others
        for change in ((stretch.start, stretch.gpus), (stretch.end, -stretch.gpus))
        if isfinite(change[0])
    )
    if not changes:
        return CheckResult(
            "capacity",
            Severity.UNKNOWN,
            "the file does not say which job held which GPUs",
            run.name,
        )
    used = most = above_s = above = busy = 0.0
    for (at, change), (until, _) in zip(changes, [*changes[1:], (changes[-1][0], 0)], strict=True):
        used += change
        span = until - at
        busy += used * span
        if span > EPS and used > run.gpus + EPS:
            most = max(most, used)
            above_s += span
            above += (used - run.gpus) * span
    if not most:
        return CheckResult("capacity", Severity.OK, f"never above {say_gpus(run.gpus)}", run.name)
    text = (
        f"{most:g} of {say_gpus(run.gpus)} in use at once; above it for {above_s:.0f} s, "
        f"{above / busy:.1%} of all GPU time is on GPUs that are not there"
    )
    return CheckResult("capacity", Severity.WRONG, text, run.name)


def _twice(run: SimRun) -> CheckResult:
    bad = []
    for name, job in run.jobs.items():
        ends = -inf
        for stretch in sorted(job.held, key=lambda stretch: stretch.start):
            if stretch.start < ends - EPS:
                bad.append(name)
                break
            ends = max(ends, stretch.end)
    text = f"in two places at once: {_some(bad)}" if bad else "one at a time"
    return CheckResult("overlap", Severity.WRONG if bad else Severity.OK, text, run.name)


def _times(run: SimRun) -> CheckResult:
    bad = [
        name
        for name, job in run.jobs.items()
        if any(not job.submit - EPS <= stretch.start <= stretch.end + EPS for stretch in job.held)
        or (job.end is not None and any(stretch.end > job.end + EPS for stretch in job.held))
    ]
    if bad:
        text = f"run before they were submitted or after their end: {_some(bad)}"
        return CheckResult("times", Severity.WRONG, text, run.name)
    has_stretches = any(job.held for job in run.jobs.values())
    idle = [name for name, job in run.jobs.items() if has_stretches and not _worked_to_its_end(job)]
    if idle:
        text = f"end while they hold no GPUs: {_some(idle)}"
        return CheckResult("times", Severity.WRONG, text, run.name)
    return CheckResult("times", Severity.OK, "submitted, then run, then ended", run.name)


def _worked_to_its_end(job: JobRun) -> bool:
    if job.end is None:
        return True
    last = max((stretch.end for stretch in job.held if stretch.gpus > 0.0), default=-inf)
    return last >= job.end - EPS


def _counted(run: SimRun) -> CheckResult:
    done = sum(job.end is not None for job in run.jobs.values())
    left = len(run.jobs) - done
    if run.torn:
        text = f"listed twice, or with several submit times: {_some(run.torn)}"
        return CheckResult("all jobs", Severity.WRONG, text, run.name)
    if run.total is not None and run.total != len(run.jobs):
        text = f"it reports {run.total} jobs, and has rows of {len(run.jobs)}"
        return CheckResult("all jobs", Severity.WRONG, text, run.name)
    if run.finished is not None and run.finished != done:
        text = f"it reports {run.finished} finished jobs, and {done} of its rows have an end"
        return CheckResult("all jobs", Severity.WRONG, text, run.name)
    if left and run.finished is None:
        text = f"{left} of {len(run.jobs)} jobs have no end, and the file does not mention it"
        return CheckResult("all jobs", Severity.WRONG, text, run.name)
    unfinished = f"; {left} did not finish, as the file says" if left else ""
    return CheckResult(
        "all jobs", Severity.OK, f"{done} of {len(run.jobs)} finished{unfinished}", run.name
    )


def _mean(run: SimRun) -> CheckResult:
    """The mean that is reported against that of the rows."""
    times = [job.end - job.submit for job in run.jobs.values() if job.end is not None]
    if run.avg_jct_s is None or not times:
        return CheckResult(
            "mean", Severity.UNKNOWN, "no mean completion time is reported", run.name
        )
    ours = sum(times) / len(times)
    if not abs(ours - run.avg_jct_s) <= 1e-3 * max(ours, 1.0):
        text = (
            f"it reports a mean completion time of {run.avg_jct_s:.1f} s; its rows say {ours:.1f}"
        )
        return CheckResult("mean", Severity.WRONG, text, run.name)
    if len(times) < len(run.jobs):
        last = max(job.end or job.submit for job in run.jobs.values())
        least = sum((job.end or last) - job.submit for job in run.jobs.values()) / len(run.jobs)
        text = f"of the finished alone: {ours:.0f} s; with the others it is at least {least:.0f} s"
        return CheckResult("mean", Severity.UNKNOWN, text, run.name)
    return CheckResult("mean", Severity.OK, f"{ours:.1f} s, as reported", run.name)


def _future(run: SimRun) -> CheckResult:
    if run.knows is None:
        return CheckResult(
            "future",
            Severity.UNKNOWN,
            "the file does not say what the policy knows beforehand",
            run.name,
        )
    if run.knows in TRUTH:
        return CheckResult(
            "future", Severity.OK, f"knows the future, as the file says: {run.knows}", run.name
        )
    return CheckResult("future", Severity.OK, f"what it knows beforehand: {run.knows}", run.name)


def _seeds(run: SimRun) -> CheckResult:
    if run.seeds is None:
        return CheckResult("seeds", Severity.UNKNOWN, "the file names no seed", run.name)
    if run.seeds < 2:
        return CheckResult(
            "seeds", Severity.UNKNOWN, "one seed: the uncertainty is unknown", run.name
        )
    level = Severity.OK if run.intervals else Severity.UNKNOWN
    intervals = "with intervals" if run.intervals else "without intervals"
    return CheckResult("seeds", level, f"{run.seeds} seeds, {intervals}", run.name)


def _same_jobs(runs: Sequence[SimRun]) -> CheckResult:
    first = {name: job.submit for name, job in runs[0].jobs.items()}
    for run in runs[1:]:
        other = {name: job.submit for name, job in run.jobs.items()}
        lacks, more = sorted(first.keys() - other.keys()), sorted(other.keys() - first.keys())
        if lacks or more:
            words = [f"lacks {_some(lacks)}"] * bool(lacks) + [f"adds {_some(more)}"] * bool(more)
            text = f"{run.name} was given other jobs than {runs[0].name}: it {' and '.join(words)}"
            return CheckResult("same jobs", Severity.WRONG, text)
        if moved := [name for name, at in first.items() if abs(at - other[name]) > EPS]:
            text = f"{run.name} has jobs that came at other times than in {runs[0].name}"
            return CheckResult("same jobs", Severity.WRONG, f"{text}: {_some(moved)}")
    return CheckResult("same jobs", Severity.OK, f"{len(first)} jobs in each of {len(runs)} runs")


def _costs(runs: Sequence[SimRun]) -> CheckResult:
    """Check the costs of starts, in the mean of each run: the first ones, and after a stop."""
    for run in runs:
        costs = [stretch.startup_s for job in run.jobs.values() for stretch in job.held]
        if not costs or None in costs:
            facts = {run.facts.get("costs") for run in runs}
            if len(facts) == 1 and None not in facts:
                return CheckResult("costs", Severity.OK, f"the same for all: {facts.pop()}")
            return CheckResult(
                "costs", Severity.UNKNOWN, f"{run.name} does not say what a start costs"
            )
    changes = [(run.name, *change) for run in runs for change in _changes(run)]
    if not any(cost for *_, cost in changes):
        again = any(what != STARTS for _, what, _, _ in changes)
        text = "jobs stop and start again, and no start costs anything"
        return CheckResult("costs", *((Severity.UNKNOWN, text) if again else (Severity.OK, "none")))
    free = [
        f"{job} under {run}" for run, what, job, cost in changes if what == RESTARTS and not cost
    ]
    if free:
        text = f"other starts cost something, and these restarts nothing: {_some(free)}"
        return CheckResult("costs", Severity.WRONG, text)
    words, unlike = [], False
    for kind in (STARTS, RESTARTS, RESIZES):
        means = {run.name: _mean_cost(changes, run.name, kind) for run in runs}
        known = {name: mean for name, mean in means.items() if mean is not None}
        if known:
            unlike |= max(known.values()) > 1.5 * min(known.values()) + 1.0
            words.append(f"{kind} {', '.join(f'{n} {m:.1f} s' for n, m in known.items())}")
    return CheckResult("costs", Severity.WRONG if unlike else Severity.OK, "; ".join(words))


def _charged(runs: Sequence[SimRun]) -> CheckResult:
    """Check the costs of starts that job times imply, against each other and what is stated."""
    inferred = infer_costs({run.name: _finished(run) for run in runs})
    if not inferred.starts:
        text = "too little to compare: jobs that keep their GPUs, and take as long under two runs"
        return CheckResult("charged", Severity.UNKNOWN, text)
    unlike = {name: cost for name, cost in inferred.starts.items() if abs(cost) > 2.0 * SLACK_S}
    words = [
        f"a start costs {cost:+.1f} s under {name}, against {inferred.beside}"
        for name, cost in unlike.items()
    ] or [f"starts cost as much as under {inferred.beside}"]
    wrong, alike = bool(unlike), dict[str, list[str]]()
    most = max(inferred.restarts.values(), default=0.0)
    for name, cost in inferred.restarts.items():
        claimed_cost = _mean_cost(
            [(name, *change) for change in _claimed_changes(runs, name)], name, RESTARTS
        )
        unpaid = claimed_cost is not None and claimed_cost > 1.5 * max(cost, 0.0) + SLACK_S
        wrong |= unpaid or (most > 10.0 * SLACK_S and cost < SLACK_S)
        claim = f", is said to cost {claimed_cost:.1f} s," if unpaid else ""
        alike.setdefault(f"a restart costs {cost:z.1f} s{claim} under", []).append(name)
    words += [f"{text} {_some(names)}" for text, names in alike.items()]
    return CheckResult("charged", Severity.WRONG if wrong else Severity.OK, "; ".join(words))


def _finished(run: SimRun) -> dict[str, Rows]:
    ended = {name: job.held for name, job in run.jobs.items() if job.end is not None}
    return {n: [(s.start, s.end, s.gpus) for s in held] for n, held in ended.items()}


def _claimed_changes(runs: Sequence[SimRun], name: str) -> Iterator[tuple[str, str, float]]:
    """Changes of a run that says what each costs."""
    for run in runs:
        startups = [stretch.startup_s for job in run.jobs.values() for stretch in job.held]
        if run.name == name and None not in startups:
            yield from _changes(run)


def _changes(run: SimRun) -> Iterator[tuple[str, str, float]]:
    """Yield the kind of start of each stretch, its job and its cost."""
    for name, job in run.jobs.items():
        held = sorted(job.held, key=lambda stretch: stretch.start)
        for stretch in held[:1]:
            yield STARTS, name, stretch.startup_s or 0.0
        for before, stretch in pairwise(held):
            gap = stretch.start > before.end + EPS
            yield RESTARTS if gap else RESIZES, name, stretch.startup_s or 0.0


def _mean_cost(changes: Sequence[tuple[str, str, str, float]], run: str, kind: str) -> float | None:
    costs = [cost for of, what, _, cost in changes if (of, what) == (run, kind)]
    return sum(costs) / len(costs) if costs else None


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more
