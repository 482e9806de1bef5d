"""Errors, coverage and resulting completion times of predictors on one trace.

The plainest setting in which predictions decide which jobs wait: a job's key is its predicted
length times its GPUs, made again every ten minutes; the first that does not fit holds up the rest.
Predictors learn from the ends of this replay, so nothing is known before it happened here.

Everything is in time order: a job is predicted when it is submitted, by what had ended by then.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from math import ceil
from pathlib import Path

import numpy as np

from weft.core.errors import InvalidConfig
from weft.core.events.job_end import Ended, EndKind
from weft.core.knowledge.predictor import Predictor
from weft.core.model.job import Job
from weft.core.model.trace import Truth
from weft.core.spec.registry import build, names
from weft.core.state.cells import Floats
from weft.core.state.table import JobTable
from weft.frozen import frozen
from weft.predict.calibration import pinball
from weft.predict.none import NoPredictor
from weft.traces.options import DrawRequest, Options
from weft.traces.read import find

LOOK_AGAIN_S = 600.0
Keys = Callable[[JobTable, float], Floats]
HOW = {"completed": EndKind.COMPLETED, "failed": EndKind.FAILED, "cancelled": EndKind.CANCELLED}


@frozen
class Replayed:
    """Seconds from submission to end and to start, in order of submission."""

    jct_s: Floats
    wait_s: Floats


def ended_as(job: Job, truth: Truth, at: float) -> Ended:
    """The end of a job that ran as the trace says."""
    gpus = job.demand.gpus * job.demand.share
    how = HOW.get(truth.state, EndKind.COMPLETED)
    done = how is EndKind.COMPLETED
    return Ended(job, truth.length, truth.length * gpus, done, how, None, at)


def replay(
    jobs: Sequence[tuple[Job, Truth]],
    predictor: Predictor,
    nodes: int,
    per_node: int,
    keys: Keys | None = None,
    submitted: Callable[[int, Job, float], None] | None = None,
) -> Replayed:
    """Run every job once; `keys` takes the place of predicted service, smallest first.

    `submitted` gets each job before the predictor does, so that it can ask for the prediction.
    """
    pool, queue, running = NodePool(nodes, per_node), WaitingQueue(predictor, keys), _Running()
    jct, wait = np.zeros(len(jobs)), np.zeros(len(jobs))
    coming = 0
    while coming < len(jobs) or running.ends:
        now = min(jobs[coming][0].submitted if coming < len(jobs) else np.inf, running.next_end())
        for seq, held in running.ended_by(now):
            pool.give(held)
            predictor.learn(ended_as(*jobs[seq], now))
        while coming < len(jobs) and jobs[coming][0].submitted <= now:
            job = jobs[coming][0]
            if submitted is not None:
                submitted(coming, job, now)
            predictor.note_submitted(job, now)
            queue.add(job, coming, now)
            coming += 1
        queue.refresh_keys(now)
        while (first := queue.first()) is not None:
            seq, places = first, pool.take(jobs[first][0].demand.gpus)
            if places is None:
                break
            queue.remove_first()
            wait[seq] = now - jobs[seq][0].submitted
            jct[seq] = wait[seq] + jobs[seq][1].length
            running.start(now + jobs[seq][1].length, seq, places)
    return Replayed(jct, wait)


class WaitingQueue:
    """Waiting jobs, by key; keys are made at submission, and again every ten minutes."""

    def __init__(self, predictor: Predictor, keys: Keys | None) -> None:
        self._keys = keys or (lambda rows, now: predictor.remaining(rows, now) * rows.need)
        self._fixed = keys is not None
        self._jobs: dict[int, Job] = {}
        self._alike: defaultdict[tuple[object, ...], list[int]] = defaultdict(list)
        self._order: list[tuple[float, int]] = []
        self._looked_at = -np.inf

    def add(self, job: Job, seq: int, now: float) -> None:
        """A job that came; its key may depend on how many alike wait."""
        self._jobs[seq] = job
        alike = self._alike[_who(job)]
        alike.append(seq)
        heapq.heappush(self._order, (self._of(alike, now)[-1], seq))

    def refresh_keys(self, now: float) -> None:
        """Make all keys again, if it is time."""
        if self._fixed or not self._jobs or now < self._looked_at + LOOK_AGAIN_S:
            return
        waiting = [*self._jobs]
        self._order = list(zip(self._of(waiting, now), waiting, strict=True))
        heapq.heapify(self._order)
        self._looked_at = now

    def _of(self, some: list[int], now: float) -> list[float]:
        table = JobTable(len(some))
        for seq in some:
            table.add(self._jobs[seq], seq)
        made: list[float] = self._keys(table, now).tolist()
        return made

    def first(self) -> int | None:
        """The job to start next; None where none waits."""
        return self._order[0][1] if self._order else None

    def remove_first(self) -> None:
        """Take out the first job, which starts."""
        _, seq = heapq.heappop(self._order)
        self._alike[_who(self._jobs.pop(seq))].remove(seq)


def _who(job: Job) -> tuple[object, ...]:
    return job.tenant, job.user, job.model, job.app, job.demand.gpus


class _Running:
    def __init__(self) -> None:
        self.ends: list[tuple[float, int]] = []
        self._places: dict[int, list[tuple[int, int]]] = {}

    def start(self, until: float, seq: int, places: list[tuple[int, int]]) -> None:
        heapq.heappush(self.ends, (until, seq))
        self._places[seq] = places

    def next_end(self) -> float:
        return self.ends[0][0] if self.ends else np.inf

    def ended_by(self, now: float) -> list[tuple[int, list[tuple[int, int]]]]:
        gone = []
        while self.ends and self.ends[0][0] <= now:
            seq = heapq.heappop(self.ends)[1]
            gone.append((seq, self._places.pop(seq)))
        return gone


class NodePool:
    """Free GPUs of nodes: the fullest node that has room, whole empty nodes for large jobs."""

    def __init__(self, nodes: int, per_node: int) -> None:
        self._per_node = per_node
        self._free = [per_node] * nodes
        self._with: list[set[int]] = [set() for _ in range(per_node)] + [set(range(nodes))]

    def take(self, gpus: int) -> list[tuple[int, int]] | None:
        """Nodes with how many of their GPUs; None where there is no room."""
        whole = gpus // self._per_node if gpus > self._per_node else 0
        rest = gpus - whole * self._per_node
        if len(self._with[self._per_node]) < whole:
            return None
        places = [(node, self._per_node) for node in sorted(self._with[self._per_node])[:whole]]
        for node, count in places:
            self._set(node, self._free[node] - count)
        if rest:
            fullest = next(
                (free for free in range(rest, self._per_node + 1) if self._with[free]), 0
            )
            if not fullest:
                self.give(places)
                return None
            node = min(self._with[fullest])
            self._set(node, self._free[node] - rest)
            places.append((node, rest))
        return places

    def give(self, places: list[tuple[int, int]]) -> None:
        for node, count in places:
            self._set(node, self._free[node] + count)

    def _set(self, node: int, free: int) -> None:
        self._with[self._free[node]].discard(node)
        self._free[node] = free
        self._with[free].add(node)


PER_NODE = 8
LOAD = 0.85
P = (0.1, 0.5, 0.9)
LISTED = ("pai-history", "pai-group", "history", "last", "qssf", "lucid", "three-sigma", "alike")
PREDICTORS = tuple(name for name in LISTED if name in names("predictor"))  # of what is installed
SIGMAS = (0.5, 1.0, 2.0)
MOST_LEARNT = 10_000  # ends before the first prediction: older ones say little
MOST_ASKED = 1_500  # jobs whose predictions are scored, evenly drawn


@frozen
class PredictorResult:
    """One line of the table; numbers that a predictor has none of are nan.

    Errors are of the median, in powers of ten; `within_2x` and `coverage` (of the 80 % range) are
    parts of all jobs; `pinball` is of natural logarithms.
    """

    name: str
    jct_s: float
    wait_s: float
    error_p50: float = float("nan")
    error_p90: float = float("nan")
    within_2x: float = float("nan")
    pinball: float = float("nan")
    coverage: float = float("nan")
    spearman: float = float("nan")


@frozen
class Evaluation:
    """The table, and what it was measured on: `warm_up` jobs were learnt from only."""

    jobs: int
    warm_up: int
    nodes: int
    load: float
    rows: tuple[PredictorResult, ...]


def evaluate(
    jobs: Sequence[tuple[Job, Truth]],
    predictors: Sequence[str] = PREDICTORS,
    nodes: int = 0,
    warm_up: int | None = None,
    shipped: Mapping[str, Floats] | None = None,
) -> Evaluation:
    """Compare predictors; `nodes` of eight GPUs, by default as many as make a load of 0.85.

    The first `warm_up` jobs (a fifth) are only learnt from, as the trace ran them. `shipped` are
    predictions that someone else made of the others, in seconds.
    """
    count = len(jobs) // 5 if warm_up is None else warm_up
    before, after = list(jobs[:count]), list(jobs[count:])
    work = sum(t.length * j.demand.gpus for j, t in after)
    span = max(after[-1][0].submitted - after[0][0].submitted, 1.0)
    largest = max(j.demand.gpus for j, _ in after)
    nodes = nodes or max(ceil(work / span / PER_NODE / LOAD), ceil(largest / PER_NODE))
    rows = [_row(name, keys, after, nodes) for name, keys in _bounds(after).items()]
    for name, seconds in (shipped or {}).items():
        rows.append(_row(name, _fixed(seconds, after), after, nodes, seconds))
    rows += [_learnt(name, before, after, nodes) for name in predictors]
    lengths = _lengths(after)
    rows.append(_row("oracle", _fixed(lengths, after), after, nodes))
    return Evaluation(len(jobs), count, nodes, work / span / PER_NODE / nodes, tuple(rows))


Ranking = Callable[[JobTable, float], Floats]


def _bounds(jobs: Sequence[tuple[Job, Truth]]) -> dict[str, Ranking]:
    """Orders that need no predictor, and the truth blurred by known errors."""
    rng = np.random.default_rng(0)
    lengths = _lengths(jobs)
    blurred = {
        f"truth, sigma {sigma:g}": _fixed(lengths * rng.lognormal(0.0, sigma, len(jobs)), jobs)
        for sigma in SIGMAS
    }
    return {
        "fifo": lambda table, _now: table.seq,
        "none (fewest GPUs)": lambda table, _now: table.need,
        **blurred,
    }


def _lengths(jobs: Sequence[tuple[Job, Truth]]) -> Floats:
    return np.array([max(truth.length, 1.0) for _, truth in jobs])


def _fixed(seconds: Floats, jobs: Sequence[tuple[Job, Truth]]) -> Ranking:
    service = seconds * np.array([job.demand.gpus for job, _ in jobs])
    return lambda table, _now: service[table.seq.astype(np.intp)]


def _row(
    name: str,
    keys: Ranking,
    jobs: Sequence[tuple[Job, Truth]],
    nodes: int,
    seconds: Floats | None = None,
) -> PredictorResult:
    done = replay(jobs, NoPredictor(), nodes, PER_NODE, keys)
    if seconds is None:
        return PredictorResult(name, float(done.jct_s.mean()), float(done.wait_s.mean()))
    predicted = np.repeat(np.maximum(seconds, 1.0)[:, None], 3, axis=1)
    return _scored(name, done, predicted, _lengths(jobs), ranges=None)


def _learnt(
    name: str, before: Sequence[tuple[Job, Truth]], jobs: Sequence[tuple[Job, Truth]], nodes: int
) -> PredictorResult:
    predictor: Predictor = build("predictor", name)
    learn_trace(predictor, before, jobs[0][0].submitted)
    predicted, ranges = np.full((len(jobs), 3), np.nan), np.full((len(jobs), 3), np.nan)

    every = ceil(len(jobs) / MOST_ASKED)

    def ask(seq: int, job: Job, now: float) -> None:
        if seq % every:
            return
        table = JobTable(1)
        table.add(job, seq)
        predicted[seq] = predictor.quantiles(table, now, P)[0]
        ranges[seq] = predictor.ranges(table, now)[0]

    done = replay(jobs, predictor, nodes, PER_NODE, submitted=ask)
    return _scored(name, done, predicted, _lengths(jobs), ranges)


def learn_trace(predictor: Predictor, jobs: Sequence[tuple[Job, Truth]], until: float) -> None:
    """The last ends of a trace that came by a moment, in order, as if no job had waited."""
    ends = sorted((job.submitted + truth.length, i) for i, (job, truth) in enumerate(jobs))
    for at, i in [end for end in ends if end[0] <= until][-MOST_LEARNT:]:
        predictor.learn(ended_as(*jobs[i], at))


def _scored(
    name: str, done: Replayed, predicted: Floats, truth: Floats, ranges: Floats | None
) -> PredictorResult:
    middle = predicted[:, 1]
    known = np.isfinite(middle)
    jct, wait = float(done.jct_s.mean()), float(done.wait_s.mean())
    if not known.any():
        return PredictorResult(name, jct, wait)
    error = np.abs(np.log10(middle[known] / truth[known]))
    losses, inside = float("nan"), float("nan")
    if ranges is not None:
        rows = zip(predicted[known].tolist(), truth[known].tolist(), strict=True)
        losses = float(np.mean([pinball(q, t) for q, t in rows]))
        low, high = ranges[known, 0], ranges[known, 2]
        low = np.where(low <= 1.0, 0.0, low)
        inside = float(((low <= truth[known]) & (truth[known] <= high)).mean())
    return PredictorResult(
        name,
        jct,
        wait,
        float(np.quantile(error, 0.5)),
        float(np.quantile(error, 0.9)),
        float((error <= np.log10(2.0)).mean()),
        losses,
        inside,
        _spearman(middle[known], truth[known]),
    )


def _spearman(a: Floats, b: Floats) -> float:
    """Rank correlation; ties take their mean rank."""
    x, y = (ranks - ranks.mean() for ranks in (_ranks(a), _ranks(b)))
    spread = float(np.sqrt((x * x).sum() * (y * y).sum()))
    return float((x * y).sum()) / spread if spread else 0.0


def _ranks(x: Floats) -> Floats:
    _, where, counts = np.unique(x, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return np.asarray((last - (counts - 1) / 2.0)[where], dtype=float)


# The jobs of a trace that predictors are compared on.

FEWEST = 50


def read_jobs(
    workload: str, most: int, seed: int, options: Options | None = None
) -> list[tuple[Job, Truth]]:
    """The first jobs with GPUs of a built-in workload or a trace file, in order of submission."""
    if workload in names("trace") and not Path(workload).exists():
        trace = find(workload, DrawRequest(jobs=most, seed=seed))
    else:
        trace = find(workload, None, options)
    jobs = [(job, truth) for job, truth in trace if job.demand.gpus > 0][:most]
    if len(jobs) < FEWEST:
        raise InvalidConfig(
            f"{workload} has {len(jobs)} jobs with GPUs",
            hint=f"predictors are compared on {FEWEST} or more",
        )
    return jobs
