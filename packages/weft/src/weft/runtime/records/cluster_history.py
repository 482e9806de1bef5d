"""Use, queue and measurements of the cluster over time, in bounded space: a fold of the log.

What goes on is held as rates: GPUs in use, jobs that wait, watts, of each tenant and kind of GPU.
Their sums are noted at the end of each window. There are rings of windows: short ones for the last
hour, longer ones for as many as last a month. The sums of jobs' GPUs are those of the accounts.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from itertools import islice
from math import inf
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from weft.core.codec.plain_values import decode, encode
from weft.core.events import event as facts
from weft.core.model.cluster import Node
from weft.core.model.job import NodeId
from weft.core.spec.part_spec import PartSpec
from weft.frozen import frozen
from weft.runtime.records.job_records import ALL, JobRecord
from weft.stack.layers import BY_NAME
from weft.stack.windows import ASIDE, DRAIN, ReservedWindow, find_windows

# Seconds of a window and how many are kept: an hour, 12 hours, 4 days, 32 days.
RINGS = ((10.0, 360), (120.0, 360), (900.0, 384), (7200.0, 384))
MOST_MARKS = 2_000
MANY_ROWS = 64  # with as many it is seen which can be freed
TINY = 1e-9  # what is left of a rate after all that made it up is gone

Key = tuple[str, str]  # tenant and kind; ALL for the cluster, and no kind for what waits
Floats = npt.NDArray[np.float64]
MarkWord = Literal["policy", "rules", "drained", "aside", "down", "back", "joined"]


class Measure(IntEnum):
    """Sums over time, and counts.

    Of a tenant on a kind: GPUs in use, jobs, steps, useful samples, GPUs that ran a kernel of
    those whose use was measured, GB and watts. Of a tenant that waits: jobs, the GPUs that they ask
    for, first starts, the seconds that these had waited, failed attempts. Of the cluster: all GPUs,
    those out of use, decisions, and the jobs that these moved.
    """

    USED = 0
    RUNNING = 1
    STEPS = 2
    GOODPUT = 3
    BUSY = 4
    MEASURED = 5
    MEMORY = 6
    POWER = 7
    WAITING = 8
    WANTED = 9
    STARTED = 10
    WAITED = 11
    FAILED = 12
    ALL = 13
    OUT = 14
    DECIDED = 15
    MOVED = 16


COLUMNS = len(Measure)


@frozen
class Mark:
    """Something that happened to a node, to some GPUs of one, or to the policy, and who did it."""

    at: float
    what: MarkWord
    about: str
    by: str = ""
    why: str = ""

    @property
    def node(self) -> str:
        """The node that it happened to; empty for a change of the policy."""
        return "" if self.what in ("policy", "rules") else self.about.partition(":")[0]


@frozen
class PastWindows:
    """Sums of windows in a row: `sums` by window, row and column; `keys` name the rows."""

    width_s: float
    begins: Sequence[float]
    seconds: Sequence[float]
    keys: Sequence[Key]
    sums: Floats


class _Ring:
    """Windows of one width: the closed ones packed, and the sums when the open one began."""

    def __init__(self, width_s: float, most: int, number: int = 0) -> None:
        self.width_s, self.most, self.number = width_s, most, number
        self.base: Floats = np.zeros((0, COLUMNS))
        self.windows: dict[int, str] = {}

    @property
    def end(self) -> float:
        """The end of the open window."""
        return (self.number + 1) * self.width_s

    @property
    def first(self) -> int:
        """The number of the oldest window that is kept."""
        return self.number - self.most + 1

    def pass_on(self, at: float, until: float, total: Floats, rates: Floats) -> None:
        """Note the windows that end between two times, when `total` at `at` grows by `rates`."""
        if self.end > until:
            return
        self.windows[self.number] = _pack(total + rates * (self.end - at) - self.base)
        number = int(until // self.width_s)
        between = range(max(self.number + 1, number - self.most), number)
        if between:  # alike: packed once
            self.windows |= dict.fromkeys(between, _pack(rates * self.width_s))
        self.begin(number, total + rates * (number * self.width_s - at))

    def begin(self, number: int, total: Floats) -> None:
        """Begin a window; what is too old is dropped."""
        self.number, self.base = number, total
        for old in [*islice(self.windows, max(len(self.windows) - self.most + 1, 0))]:
            del self.windows[old]
        while self.windows and (old := next(iter(self.windows))) < self.first:
            del self.windows[old]

    def copy(self) -> _Ring:
        other = _Ring(self.width_s, self.most, self.number)
        other.base, other.windows = self.base, self.windows.copy()
        return other


class ClusterHistory:
    """The last month of a cluster; it follows each event before the jobs' records do."""

    def __init__(self) -> None:
        self.begun: float | None = None
        self.at = 0.0
        self.marks: deque[Mark] = deque(maxlen=MOST_MARKS)
        self.out: dict[str, Mark] = {}  # why nodes, or GPUs of them, are out of use
        self._keys: list[Key | None] = []
        self._rows: dict[Key, int] = {}
        self._rates: Floats = np.zeros((0, COLUMNS))
        self._total: Floats = np.zeros((0, COLUMNS))
        self._rings = [_Ring(width, most) for width, most in RINGS]
        self._nodes: dict[NodeId, Node] = {}
        self._windows: tuple[ReservedWindow, ...] = ()
        self._policy = ""
        self._turns_at, self._stale = inf, False  # when a reservation begins or ends

    def copy(self) -> ClusterHistory:
        """A copy that can be advanced to the present without changing this one."""
        other = ClusterHistory()
        other.__dict__.update(self.__dict__)
        other._rates, other._total = self._rates.copy(), self._total.copy()
        other._rows, other._keys = self._rows.copy(), self._keys.copy()
        other._rings = [ring.copy() for ring in self._rings]
        return other

    # ---- time

    def advance(self, at: float) -> None:
        """Let time pass at the rates of now; windows that end are noted."""
        if self.begun is None:
            self.begun = self.at = at
            for ring in self._rings:
                ring.begin(int(at // ring.width_s), self._total.copy())
        if at <= self.at:
            return
        if self._stale:
            self._count_capacity()
        while self.at < at:
            self._pass_to(min(at, self._turns_at))

    def _pass_to(self, until: float) -> None:
        """Let time pass while rates stay as they are."""
        for ring in self._rings:
            ring.pass_on(self.at, until, self._total, self._rates)
        self._total += self._rates * (until - self.at)
        self.at = until
        if self._turns_at <= until:
            self._count_capacity()

    # ---- what happens

    def fold(self, at: float, event: facts.Event) -> None:
        """Take in an event about the cluster, before the records of jobs do."""
        self.advance(at)
        match event:
            case facts.NodeUp(node, by):
                self._came(node, by)
            case facts.NodeDown(node, drained, by, why):
                self._note(Mark(self.at, "drained" if drained else "down", node, by, why))
                self._stale = True
            case facts.PolicyChanged():
                self._ruled(event)
            case facts.Decided(_, changes, rejected) if changes or rejected:
                self.count((ALL, ""), Measure.DECIDED)
                self.count((ALL, ""), Measure.MOVED, len(changes))
            case _:
                pass  # what it means for jobs is in their records

    def count(self, key: Key, column: Measure, by: float = 1.0) -> None:
        """Count something that happened at once."""
        row = self._row(key)  # first: the tables may grow
        self._total[row, column] += by

    def replace_record(self, was: JobRecord | None, record: JobRecord) -> None:
        """A job's record is another one from now on."""
        before, after = () if was is None else rates_of(was), rates_of(record)
        if before != after:
            for sign, rates in ((-1.0, before), (1.0, after)):
                for key, column, rate in rates:
                    self._change((key, column), sign * rate)

    def _change(self, cell: tuple[Key, Measure], by: float) -> None:
        row, column = self._row(cell[0]), cell[1]
        rate = self._rates[row, column] + by
        self._rates[row, column] = 0.0 if abs(rate) < TINY else rate

    # ---- nodes and rules

    def _came(self, node: Node, by: str) -> None:
        known = node.id in self._nodes
        self._nodes[node.id] = node
        self._stale = True
        if known and node.id in self.out:
            self._note(Mark(self.at, "back", node.id, by))
        elif not known and self.begun is not None and self.at > self.begun:
            self._note(Mark(self.at, "joined", node.id))

    def _ruled(self, event: facts.PolicyChanged) -> None:
        bare, by, why = event.policy.without(*BY_NAME), event.by, event.reason
        windows = tuple(find_windows(event.policy))
        ours = {each.name for each in windows if each.name.startswith((DRAIN, ASIDE))}
        old = {name for name in self._window_names() if name.startswith((DRAIN, ASIDE))}
        for name in sorted(ours - old):
            word: MarkWord = "drained" if name.startswith(DRAIN) else "aside"
            self._note(Mark(self.at, word, _devices(name), by, why))
        for name in sorted(old - ours):
            self._note(Mark(self.at, "back", _devices(name), by, why))
        if bare.text != self._policy:
            self._policy = bare.text
            self._note(Mark(self.at, "policy", bare.text, by, why))
        elif ours == old and by:
            self._note(Mark(self.at, "rules", "", by, why))
        self._windows, self._stale = windows, True

    def _window_names(self) -> Iterator[str]:
        return (window.name for window in self._windows)

    def _note(self, mark: Mark) -> None:
        self.marks.append(mark)
        if mark.what in ("drained", "aside", "down"):
            self.out[mark.about] = mark
        elif mark.what == "back":
            self.out.pop(mark.about, None)

    def _count_capacity(self) -> None:
        """Count the GPUs of each kind and those out of use: gone, drained, kept for no tenant."""
        kept = [w for w in self._windows if not w.tenant and w.holds(self.at)]
        ends = [t for w in self._windows for t in (w.start, w.end) if t > self.at]
        self._turns_at, self._stale = min(ends, default=inf), False
        for key, row in self._rows.items():
            if key[0] == ALL:
                self._rates[row, [Measure.ALL, Measure.OUT]] = 0.0
        for node in self._nodes.values():
            mask = 0
            for window in kept:
                mask |= window.mask(node.id, node.gpus)
            gone = node.id in self.out and self.out[node.id].what != "aside"
            row = self._row((ALL, node.kind))
            self._rates[row, Measure.ALL] += node.gpus
            self._rates[row, Measure.OUT] += node.gpus if gone else mask.bit_count()

    # ---- rows

    def _row(self, key: Key) -> int:
        row = self._rows.get(key)
        if row is None:
            if len(self._keys) >= MANY_ROWS and len(self._keys).bit_count() == 1:
                self._free_rows()  # else at twice as many
            row = self._keys.index(None) if None in self._keys else len(self._keys)
            if row == len(self._keys):
                self._keys.append(None)
            if row >= len(self._total):
                more = max(8, row)
                self._rates, self._total = (_grown(a, more) for a in (self._rates, self._total))
                for ring in self._rings:
                    ring.base = _grown(ring.base, more)
            self._keys[row], self._rows[key] = key, row
        return row

    def _free_rows(self) -> None:
        """Let others have the rows of tenants that no window has a value of."""
        packed = [text for ring in self._rings for text in ring.windows.values()]
        places = np.concatenate([_unpack(text)[0] for text in ("", *packed)])
        open_sums = self._total - self._rings[-1].base
        used = {*np.unique(places // COLUMNS).tolist(), *np.flatnonzero(open_sums.any(1)).tolist()}
        for key, row in [*self._rows.items()]:
            if row not in used and not self._rates[row].any():
                del self._rows[key]
                self._keys[row] = None

    # ---- reading

    def windows_between(self, since: float, until: float) -> PastWindows:
        """The windows between two times, as short as they are still kept for all of them."""
        begun = self.at if self.begun is None else self.begun
        since, until = max(since, begun), min(until, self.at)
        fits = (ring for ring in self._rings if ring.first * ring.width_s <= since)
        ring = next(fits, self._rings[-1])
        first = max(int(since // ring.width_s), ring.first)
        numbers = range(first, min(int(until // ring.width_s), ring.number) + 1)
        sums = np.zeros((len(numbers), len(self._total), COLUMNS))
        for place, number in enumerate(numbers):
            if number == ring.number:
                sums[place] = self._total - ring.base
            else:
                at, values = _unpack(ring.windows.get(number, ""))
                sums[place].reshape(-1)[at] = values
        edges = [(n * ring.width_s, (n + 1) * ring.width_s) for n in numbers]
        seconds = [max(min(end, self.at) - max(begin, begun), TINY) for begin, end in edges]
        keys = [key or ("", "") for key in self._keys]
        begins = [max(begin, begun) for begin, _ in edges]
        return PastWindows(ring.width_s, begins, seconds, keys, sums[:, : len(keys)])

    def marks_between(self, since: float, until: float) -> list[Mark]:
        """Return the marks in a window of time, in order."""
        return [mark for mark in self.marks if since <= mark.at <= until]

    # ---- as a part of a snapshot

    def save(self) -> dict[str, Any]:
        rows = len(self._keys)
        return {
            "columns": [column.name for column in Measure],
            "begun": self.begun,
            "at": self.at,
            "keys": self._keys.copy(),
            "rates": _write(self._rates[:rows]),
            "total": _write(self._total[:rows]),
            "rings": [
                [ring.width_s, ring.number, _write(ring.base[:rows]), ring.windows.copy()]
                for ring in self._rings
            ],
            "nodes": [encode(node) for node in self._nodes.values()],
            "windows": {window.name: window.text for window in self._windows},
            "policy": self._policy,
            "marks": [encode(mark) for mark in self.marks],
            "out": [encode(mark) for mark in self.out.values()],
            "turns_at": None if self._turns_at == inf else self._turns_at,
            "stale": self._stale,
        }

    def load(self, saved: Mapping[str, Any]) -> None:
        """Go on from what was saved; one of other windows or columns is forgotten."""
        widths = [ring[0] for ring in saved["rings"]]
        if saved["columns"] != [c.name for c in Measure] or widths != [w for w, _ in RINGS]:
            return
        self.begun, self.at, self._policy = saved["begun"], saved["at"], saved["policy"]
        self._keys = [None if key is None else (key[0], key[1]) for key in saved["keys"]]
        self._rows = {key: row for row, key in enumerate(self._keys) if key is not None}
        self._rates, self._total = _read(saved["rates"]), _read(saved["total"])
        for ring, (_, number, base, windows) in zip(self._rings, saved["rings"], strict=True):
            ring.number, ring.base = number, _read(base)
            ring.windows = {int(key): text for key, text in windows.items()}
        self._nodes = {node.id: node for node in (decode(Node, row) for row in saved["nodes"])}
        rules = PartSpec("reserve", {"windows": saved["windows"]})
        self._windows = tuple(find_windows(PartSpec("fifo", wrappers=(rules,))))
        self.marks.extend(decode(Mark, row) for row in saved["marks"])
        self.out = {mark.about: mark for mark in (decode(Mark, row) for row in saved["out"])}
        self._turns_at = inf if saved["turns_at"] is None else saved["turns_at"]
        self._stale = saved["stale"]

    def begin_with(self, at: float, records: Iterable[JobRecord], nodes: Iterable[Node]) -> None:
        """Go on from what is there, where a snapshot of an earlier version has no history."""
        self.advance(at)
        self._nodes, self._stale = {node.id: node for node in nodes}, True
        for record in records:
            self.replace_record(None, record)


def rates_of(record: JobRecord) -> tuple[tuple[Key, Measure, float], ...]:
    """Return the rates that a job adds to while its record is this one."""
    gpus, job = record.gpu_s.rate, record.job
    if not gpus:
        if record.outcome or record.suspended is not None or record.allocation is not None:
            return ()
        wanted, queue = job.demand.gpus * job.demand.share, (job.tenant, "")
        return (queue, Measure.WAITING, 1.0), (queue, Measure.WANTED, wanted)
    report, rates = record.report, [(Measure.USED, gpus), (Measure.RUNNING, 1.0)]
    measured = {
        Measure.STEPS: 1.0 / report.step_s if report.step_s else None,
        Measure.GOODPUT: record.goodput,
        Measure.BUSY: None if report.sm is None else report.sm * gpus,
        Measure.MEASURED: None if report.sm is None else gpus,
        Measure.MEMORY: None if report.held_gb is None else report.held_gb * gpus,
        Measure.POWER: report.power_w,
    }
    rates += [(column, rate) for column, rate in measured.items() if rate]
    kinds = record.spending.mix or {"": 1.0}
    return tuple(
        ((job.tenant, kind), column, rate * part)
        for kind, part in kinds.items()
        for column, rate in rates
    )


def _devices(name: str) -> str:
    return name.removeprefix(DRAIN).removeprefix(ASIDE)


def _grown(rows: Floats, more: int) -> Floats:
    return np.vstack([rows, np.zeros((more, COLUMNS))])


def _pack(sums: Floats) -> str:
    """Pack the values that are not 0: the places first, then the values."""
    flat = sums.reshape(-1)
    at = np.flatnonzero(flat)
    return b64encode(at.astype("<u4").tobytes() + flat[at].astype("<f4").tobytes()).decode()


def _unpack(text: str) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.float32]]:
    data = b64decode(text)
    half = len(data) // 2
    return np.frombuffer(data[:half], "<u4"), np.frombuffer(data[half:], "<f4")


def _write(values: Floats) -> str:
    return b64encode(np.ascontiguousarray(values, "<f8").tobytes()).decode()


def _read(text: str) -> Floats:
    return np.frombuffer(b64decode(text), "<f8").reshape(-1, COLUMNS).astype(np.float64)
