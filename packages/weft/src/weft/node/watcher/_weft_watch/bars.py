"""Progress bars of tqdm and rich: how many steps the whole training has.

The outermost bar that moves with the steps counts. Where it moves with epochs, the bar inside it
tells how many steps one of them has. Bars of compilers and downloads do not live through steps.
"""

from __future__ import annotations

import sys
from _weakref import ref

from . import counting
from .guard import guarded, is_function, number, stand_in

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

FEW = 3  # steps that a bar must have seen
MOST_BARS = 64
PLAIN_READING: Any = object.__getattribute__
NEAR = 0.25  # a bar is drawn a few times per second: it may lag behind the steps so far


class ProgressBar:
    """One bar: where it stands, and the steps that were done when it appeared."""

    def __init__(self, owner: Any, read: Callable[[Any], Any], steps: float) -> None:
        self._owner, self._read = ref(owner), read
        self.since = steps
        self.initial = (read(owner) or (0.0, None))[0]
        self.counted = self.initial
        self.per_unit = 0.0

    def now(self) -> Any:
        """Units done and in total; None once the bar is gone."""
        owner = self._owner()
        return None if owner is None else self._read(owner)

    def belongs_to(self, owner: Any) -> bool:
        """Return True for the bar of this object."""
        return self._owner() is owner

    def advance(self) -> float:
        """Units done since the last call."""
        done = (self.now() or (self.counted, None))[0]
        before, self.counted = self.counted, done
        return float(done - before)


class ProgressBars:
    """All bars of this process that may still move, outermost first."""

    def __init__(self) -> None:
        self._bars: list[ProgressBar] = []

    def appeared(self, owner: Any, read: Callable[[Any], Any]) -> None:
        """A bar is shown from now on."""
        counter = counting.COUNTER
        if counter is not None:
            self._live()
            del self._bars[: max(len(self._bars) - MOST_BARS + 1, 0)]
            self._bars.append(ProgressBar(owner, read, counter.done))

    def moved(self, units: float) -> None:
        """Count units of bars as steps, where no framework is that has optimizers to count."""
        counter = counting.COUNTER
        if counter is not None and units > 0 and "torch" not in sys.modules:
            counter.bar(units)

    def advanced(self, owner: Any) -> None:
        """A bar may have moved."""
        for bar in self._bars:
            if bar.belongs_to(owner):
                self.moved(bar.advance())

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

    def _steps_per_unit(self, seen: list[ProgressBar], at: int, steps: float) -> float:
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

    def _live(self) -> list[ProgressBar]:
        self._bars = [bar for bar in self._bars if bar.now() is not None]
        return self._bars


BARS = ProgressBars()


def on_tqdm(module: Any) -> None:
    """`tqdm.std`: every kind of bar there is begins, moves and ends here."""
    bar: Any = getattr(module, "tqdm", None)
    if not is_function(bar, "__init__", "update", "close") or not _keeps_attributes(bar):
        return  # a stand-in of tests, or a version that nobody has seen yet
    init, update, close = bar.__init__, bar.update, bar.close
    shown, advanced, ends = guarded(_show_tqdm), guarded(BARS.advanced), guarded(_end_tqdm)

    def begin(self: Any, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        shown(self)

    def move(self: Any, *args: Any, **kwargs: Any) -> Any:
        drawn = update(self, *args, **kwargs)
        advanced(self)
        return drawn

    def end(self: Any, *args: Any, **kwargs: Any) -> Any:
        ends(self)
        return close(self, *args, **kwargs)

    bar.__init__, bar.update = stand_in(begin, init), stand_in(move, update)
    bar.close = stand_in(end, close)
    _begin_totals()


def _keeps_attributes(kind: Any) -> bool:
    """Return True if the attributes of its objects can be read without running code of theirs."""
    return bool(
        type(kind) is type
        and kind.__dictoffset__
        and kind.__weakrefoffset__
        and kind.__getattribute__ is PLAIN_READING
    )


def _show_tqdm(bar: Any) -> None:
    if _read_tqdm(bar) is not None:
        BARS.appeared(bar, _read_tqdm)


def _end_tqdm(bar: Any) -> None:
    BARS.advanced(bar)  # the last units come without a move
    if counting.COUNTER is not None:
        counting.COUNTER.look_up_total()


def _read_tqdm(bar: Any) -> Any:
    known = {"disable": getattr(type(bar), "disable", True), **bar.__dict__}
    done = number(known.get("n"))
    if known["disable"] is not False or done is None:  # closed
        return None
    return done, number(known.get("total"))


def on_rich(module: Any) -> None:
    """`rich.progress`: tasks of a display are bars."""
    progress: Any = getattr(module, "Progress", None)
    if not is_function(progress, "add_task", "advance") or not progress.__weakrefoffset__:
        return
    add, advance = progress.add_task, progress.advance
    shown = guarded(_show_rich)
    moved = guarded(_move_rich)

    def add_task(self: Any, *args: Any, **kwargs: Any) -> Any:
        number_of_task = add(self, *args, **kwargs)
        shown(self, number_of_task)
        return number_of_task

    def move(self: Any, *args: Any, **kwargs: Any) -> Any:
        drawn = advance(self, *args, **kwargs)
        moved(*args, **kwargs)
        return drawn

    progress.add_task = stand_in(add_task, add)
    progress.advance = stand_in(move, advance)
    _begin_totals()


def _show_rich(display: Any, task: Any) -> None:
    BARS.appeared(display, lambda display: _read_rich(task, display))


def _move_rich(*args: Any, **kwargs: Any) -> None:
    BARS.moved(number(kwargs["advance"] if "advance" in kwargs else (*args, None, 1)[1]) or 1.0)


def _read_rich(task_id: Any, display: Any) -> Any:
    task = next((task for task in display.tasks if task.id == task_id), None)
    if task is None or task.finished:
        return None
    return number(task.completed) or 0.0, number(task.total)


def _begin_totals() -> None:
    counter = counting.COUNTER
    if counter is not None and BARS.total not in counter.totals:
        counter.totals.append(BARS.total)


HOOKS: dict[str, Callable[[Any], None]] = {"tqdm.std": on_tqdm, "rich.progress": on_rich}
