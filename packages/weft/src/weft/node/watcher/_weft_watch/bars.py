"""Progress bars of tqdm and rich: how many steps the whole training has.

The outermost bar that moves with the steps counts. Where it moves with epochs, the bar inside it
tells how many steps one of them has. Bars of compilers and downloads do not live through steps.
"""

from __future__ import annotations

import functools
import sys
import weakref
from typing import Any, Callable

from . import counting
from .counting import guarded

FEW = 3  # steps that a bar must have seen
MOST_BARS = 64
NEAR = 0.25  # a bar is drawn a few times per second: it may lag behind the steps so far


class Bar:
    """One bar: where it stands, and the steps that were done when it appeared."""

    def __init__(self, owner: Any, read: Callable[[Any], Any], steps: float) -> None:
        self._owner, self._read = weakref.ref(owner), read
        self.since = steps
        self.initial = (read(owner) or (0.0, None))[0]
        self.per_unit = 0.0

    def now(self) -> Any:
        """Units done and in total; None once the bar is gone."""
        owner = self._owner()
        return None if owner is None else self._read(owner)


class Bars:
    """All bars of this process that may still move, outermost first."""

    def __init__(self) -> None:
        self._bars: list[Bar] = []

    def appeared(self, owner: Any, read: Callable[[Any], Any]) -> None:
        """A bar is shown from now on."""
        counter = counting.COUNTER
        if counter is not None:
            self._live()
            del self._bars[: max(len(self._bars) - MOST_BARS + 1, 0)]
            self._bars.append(Bar(owner, read, counter.done))

    def moved(self, units: float) -> None:
        """Where no framework is that has optimizers to count, its units are the steps."""
        counter = counting.COUNTER
        if counter is not None and units > 0 and "torch" not in sys.modules:
            counter.bar(units)

    def total(self, steps: float) -> float | None:
        """Steps of the whole training by the outermost bar; None where no bar tells."""
        seen = [bar for bar in self._live() if steps - bar.since >= FEW]
        for at, bar in enumerate(seen):
            _, total = bar.now() or (0.0, None)
            if not total:
                continue
            unit = self._steps_per_unit(seen, at, steps)
            if unit:
                return float(bar.since + (total - bar.initial) * unit)
        return None

    def _steps_per_unit(self, seen: list[Bar], at: int, steps: float) -> float:
        """Steps of one unit of a bar: by the bar inside it, else as it has moved so far."""
        bar = seen[at]
        done, _ = bar.now() or (0.0, None)
        if at + 1 < len(seen):
            _, inside = seen[at + 1].now() or (0.0, None)
            each = self._steps_per_unit(seen, at + 1, steps) if inside else 0.0
            if inside and each:
                bar.per_unit = inside * each
                return bar.per_unit
        moved = done - bar.initial
        if bar.per_unit or moved <= 0:
            return bar.per_unit
        unit = (steps - bar.since) / moved
        return 1.0 if abs(unit - 1.0) < NEAR or (moved < FEW and 0.5 <= unit <= 2.0) else unit

    def _live(self) -> list[Bar]:
        self._bars = [bar for bar in self._bars if bar.now() is not None]
        return self._bars


BARS = Bars()


def on_tqdm(module: Any) -> None:
    """`tqdm.std`: every kind of bar there is begins, moves and ends here."""
    bar = module.tqdm
    init, update, close = bar.__init__, bar.update, bar.close
    shown = guarded(BARS.appeared)
    counted = guarded(_count)
    keep_total = guarded(_keep_total)

    @functools.wraps(init)
    def begin(self: Any, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        if not getattr(self, "disable", True):
            shown(self, _read_tqdm)
            self._weft_counted = self.n

    @functools.wraps(update)
    def move(self: Any, n: Any = 1) -> Any:
        drawn = update(self, n)
        counted(self)
        return drawn

    @functools.wraps(close)
    def end(self: Any) -> Any:
        counted(self)  # the last units come without a move
        keep_total()
        return close(self)

    bar.__init__, bar.update, bar.close = begin, move, end
    _begin_totals()


def _count(bar: Any) -> None:
    before = getattr(bar, "_weft_counted", None)
    if before is not None:
        bar._weft_counted = bar.n
        BARS.moved(bar.n - before)


def _keep_total() -> None:
    if counting.COUNTER is not None:
        counting.COUNTER.look_up_total()


def _read_tqdm(bar: Any) -> Any:
    if getattr(bar, "disable", True):  # closed
        return None
    return float(bar.n), bar.total


def on_rich(module: Any) -> None:
    """`rich.progress`: tasks of a display are bars."""
    progress = module.Progress
    add, advance = progress.add_task, progress.advance
    shown = guarded(BARS.appeared)
    moved = guarded(BARS.moved)

    @functools.wraps(add)
    def add_task(self: Any, *args: Any, **kwargs: Any) -> Any:
        number = add(self, *args, **kwargs)
        shown(self, functools.partial(_read_rich, number))
        return number

    @functools.wraps(advance)
    def move(self: Any, *args: Any, **kwargs: Any) -> Any:
        drawn = advance(self, *args, **kwargs)
        moved(kwargs["advance"] if "advance" in kwargs else (*args, None, 1)[1] or 1)
        return drawn

    progress.add_task, progress.advance = add_task, move
    _begin_totals()


def _read_rich(number: Any, display: Any) -> Any:
    task = next((task for task in display.tasks if task.id == number), None)
    if task is None or task.finished:
        return None
    return float(task.completed), task.total


def _begin_totals() -> None:
    counter = counting.COUNTER
    if counter is not None and BARS.total not in counter.totals:
        counter.totals.append(BARS.total)


HOOKS: dict[str, Callable[[Any], None]] = {"tqdm.std": on_tqdm, "rich.progress": on_rich}
