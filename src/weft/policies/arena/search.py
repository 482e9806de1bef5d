"""Single steps through kinds and sizes: down so that a job finds room, up while GPUs are free."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from weft.frozen import frozen

Size = tuple[str, int]  # a kind and GPUs
Speeds = Sequence[Mapping[Size, float]]  # by row: samples per second where it runs
EPS = 1e-9


@frozen
class Standing:
    """Which row stands where, and what that leaves of each kind; below 0 where it is too much."""

    at: Mapping[int, Size]
    free: Mapping[str, int]

    @property
    def overfull(self) -> list[str]:
        """Kinds of which more is given than there is."""
        return [kind for kind, left in self.free.items() if left < 0]

    def put(self, row: int, to: Size) -> Standing:
        """The same with a row elsewhere."""
        free = dict(self.free)
        if row in self.at:
            free[self.at[row][0]] += self.at[row][1]
        free[to[0]] -= to[1]
        return Standing({**self.at, row: to}, free)


def find_room(
    standing: Standing, row: int, wish: Size, speeds: Speeds, fixed: Collection[int], depth: int
) -> Standing | None:
    """A newcomer with what it wishes, or what is possible if few others, and it, take less.

    Breadth first: each step halves one job of a kind that is overfull, or moves one to another
    kind. Of all that fits within `depth` steps the one with the most samples per second.
    """
    first = standing.put(row, wish)
    if not first.overfull:
        return first
    frontier, fitting = [first], list[Standing]()
    for _ in range(depth):
        after = [step for state in frontier for step in _steps_down(state, speeds, fixed)]
        frontier = [step for step in after if step.overfull]
        fitting += [step for step in after if not step.overfull]
    return max(fitting, key=lambda step: _total(step, speeds), default=None)


def _total(standing: Standing, speeds: Speeds) -> float:
    return sum(speeds[row].get(size, 0.0) for row, size in standing.at.items())


def _steps_down(state: Standing, speeds: Speeds, fixed: Collection[int]) -> Iterator[Standing]:
    """The cheapest halving on each kind of which too much is given, and the cheapest moves off."""
    for kind in state.overfull:
        there = [(row, gpus) for row, (on, gpus) in state.at.items() if on == kind]
        largest = max(gpus for _, gpus in there)
        movable = [(row, gpus) for row, gpus in there if row not in fixed]
        halved = [(row, (kind, n // 2)) for row, n in movable if 2 * n >= largest]
        moved = [[(row, (other, n)) for row, n in movable] for other in state.free if other != kind]
        for choices in (halved, *moved):
            losses = [
                (speeds[row].get(state.at[row], 0.0) - speeds[row][to], row, to)
                for row, to in choices
                if to in speeds[row]
            ]
            if losses:
                _, row, to = min(losses)
                yield state.put(row, to)


def climb(standing: Standing, speeds: Speeds, fixed: Collection[int], steps: int) -> Standing:
    """Up to `steps` times the single step that gains most: another kind, or twice the GPUs."""
    for _ in range(steps):
        best: tuple[float, int, Size] | None = None
        for row in sorted(standing.at):
            if row in fixed:
                continue
            for gain, to in _steps_up(standing, row, speeds[row]):
                if gain > EPS and (best is None or gain > best[0]):
                    best = gain, row, to
        if best is None:
            return standing
        standing = standing.put(best[1], best[2])
    return standing


def _steps_up(
    standing: Standing, row: int, speeds: Mapping[Size, float]
) -> Iterator[tuple[float, Size]]:
    """What a row gains by single steps that there is room for: kinds first, then growth."""
    kind, gpus = standing.at[row]
    now = speeds.get((kind, gpus), 0.0)
    for other, left in standing.free.items():
        if other != kind and gpus <= left and (other, gpus) in speeds:
            yield speeds[other, gpus] - now, (other, gpus)
    if gpus <= standing.free[kind] and (kind, 2 * gpus) in speeds:
        yield speeds[kind, 2 * gpus] - now, (kind, 2 * gpus)
