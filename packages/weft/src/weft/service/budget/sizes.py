"""The size that a short text would grow to, counted before any of it is built."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from weft.core.model.cluster import count_machines
from weft.plural import say_gpus
from weft.service.http.replies import HttpProblem
from weft.service.requests.job_file import NAMED, JobFile, search_of
from weft.service.requests.sweep import MOST_OF_A_SWEEP, combinations

MOST_EXPANDED = 32 << 20  # characters of all jobs of a sweep
MOST_MORE_NODES, MOST_MORE_GPUS = 1_024, 16_384  # of a what-if


def check_sweep(body: JobFile) -> None:
    """Refuse a sweep whose jobs would be too large together."""
    if body.sweep is None:
        return
    names: Counter[str] = Counter()
    search = search_of(body)
    plain = 0 if search is None else len(search.body)  # each job keeps it
    for text in _texts(body):
        plain += len(text)
        names.update(NAMED.findall(text))
    total = sum(
        plain + _weigh(names, values) for values in combinations(body.sweep, MOST_OF_A_SWEEP)
    )
    if total > MOST_EXPANDED:
        raise HttpProblem(
            422,
            f"the jobs of this sweep would be {total / 1e6:,.0f} MB together",
            f"at most {MOST_EXPANDED / 1e6:.0f} MB; put what is long into a file",
            "sweep",
        )


def check_machines(text: str) -> None:
    """Refuse more machines than a what-if may add."""
    nodes, gpus = count_machines(text) if text else (0, 0)
    if nodes > MOST_MORE_NODES or gpus > MOST_MORE_GPUS:
        raise HttpProblem(
            422,
            f"nodes: {nodes:,} nodes with {say_gpus(gpus)} are too many",
            f"add at most {MOST_MORE_NODES:,} nodes and {say_gpus(MOST_MORE_GPUS)}",
            "nodes",
        )


def _texts(body: JobFile) -> Iterator[str]:
    """Whatever of a job file parameters are put into, and what each job keeps of it."""
    yield from body.command or ()
    yield from (body.run or "", body.setup or "", body.workdir)
    for name, value in body.env.items():
        yield name
        yield str(value)
    if body.checkpoint is not None:
        yield body.checkpoint.dir


def _weigh(names: Mapping[str, int], values: Mapping[str, str]) -> int:
    """Characters that one job's parameters add: where they are named, and as variables."""
    return sum((names.get(name, 0) + 2) * len(value) for name, value in values.items())
