"""The processes of an attempt as a whole: where they live, what they may use, and their end."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType

from weft.node.attempt_log import is_heard
from weft.node.ranks.rank import Rank
from weft.wire.attempt import TAG, AttemptSpec, read_json, write_whole
from weft.wire.cgroups import kill_group, make_group, members, out_of_memory, remove_group
from weft.wire.processes import (
    bind,
    descendants,
    find_tagged,
    kill_all,
    memory_gb,
    reap_others,
    start_time,
)

DYING_S = 10.0  # what processes may take to be gone after SIGKILL before a person is notified
WEIGH_S = 0.4  # at least between two looks at the memory of all processes
PAUSE_S, LONG_PAUSE_S = 0.01, 0.5
RANKS = "ranks"
NO_PLACES: Mapping[int, int] = MappingProxyType({})

Tell = Callable[[str, str], None]  # a notice: level and text


class Enclosure:
    """All that an attempt started, whatever it did to hide.

    They are descendants of this process, which must adopt orphans, and members of the control
    group of the attempt where there is one.
    """

    def __init__(self, folder: Path, spec: AttemptSpec, tell: Tell) -> None:
        self._folder, self._spec, self._tell = folder, spec, tell
        self.group: Path | None = None
        self._weigh_at = 0.0
        self.ranks_group: Path | None = (
            None  # inside it: people's shells go on when ranks are frozen
        )

    def make(self) -> None:
        """The group with its limits; without one we go on, and say so."""
        if not self._spec.group:
            return
        try:
            make_group(Path(self._spec.group), self._spec.limits)
            make_group(Path(self._spec.group, RANKS), {})
        except OSError as error:
            self._tell("warning", f"no control group for this attempt: {error.strerror}")
            return
        self.group = Path(self._spec.group)
        self.ranks_group = self.group / RANKS

    def apply(
        self,
        ranks: Collection[Rank],
        cores: Sequence[Sequence[int]],
        limits: Mapping[str, str],
        places: Mapping[int, int] = NO_PLACES,
    ) -> None:
        """Another part of the host for ranks that run, and for all they started.

        `places` says which of the cores are whose, where that is not by the ranks' numbers.
        """
        if len(ranks) == 1:
            cores = [[core for some in cores for core in some]]  # one process has all of them
        for rank in ranks:
            local = places.get(rank.number, rank.number - self._spec.first_rank)
            if local < len(cores) and cores[local]:
                for pid in (rank.pid, *descendants(rank.pid)):
                    bind(pid, cores[local])
        if self.group is not None and limits:
            make_group(self.group, limits)

    def lift_memory_limit(self) -> None:
        """Ranks of two epochs are there for a while."""
        if self.group is not None:
            named = [name for name in self._spec.limits if name.startswith("memory.")]
            make_group(self.group, dict.fromkeys(named, "max"))

    def change_devices(
        self, spec: AttemptSpec, ranks: Collection[Rank], places: Mapping[int, int]
    ) -> None:
        """The attempt has other devices, and their part of the host."""
        self._spec = spec
        self.apply(ranks, spec.cores, spec.limits, places)

    def memory_excess(self) -> str:
        """The reason why the attempt used too much memory; empty if it did not."""
        most = self._spec.mem_gb
        if most <= 0.0:
            return ""
        if self.group is not None and out_of_memory(self.group):
            return f"it used more than the {most:g} GB of memory that were allowed"
        if time.monotonic() < self._weigh_at:
            return ""  # to look at every page of every process takes a while
        used = sum(map(memory_gb, descendants(os.getpid())))
        self._weigh_at = time.monotonic() + WEIGH_S  # ranks are heard in between on any machine
        return f"it used {used:.2f} GB of memory; {most:g} were allowed" if used > most else ""

    def members(self) -> list[int]:
        """Processes that are there now, at little cost: a process that hides may be missing."""
        return descendants(os.getpid()) if self.group is None else members(self.group)

    def clear(self) -> None:
        """No process of the attempt is left on return.

        One that the kernel does not let go keeps its device: then this waits, and a person is
        notified.
        """
        until, pause = time.monotonic() + DYING_S, PAUSE_S
        while left := self._processes():
            if self.group is not None:
                kill_group(self.group)
            kill_all(left)
            reap_others(())
            if pause == PAUSE_S and time.monotonic() > until:
                pause = LONG_PAUSE_S
                shown = ", ".join(map(str, sorted(left)[:5]))
                self._tell("error", f"processes {shown} cannot be killed; its devices stay held")
            time.sleep(pause)
        if self.group is not None:
            self._remove_group(self.group)

    def _remove_group(self, group: Path) -> None:
        """Ours, and if no engine is there any more, the one around it once it is empty."""
        gone = remove_group(group)
        if gone and self._spec.notify and not is_heard(self._spec.notify):
            with suppress(OSError):  # others' attempts are in it
                group.parent.rmdir()

    def ranks_processes(self, others: Callable[[], Collection[int]]) -> list[int]:
        """The ranks and everything they started; `others` are not theirs."""
        spared = {*others()}
        for pid in [*spared]:
            spared.update(descendants(pid))
        return [pid for pid in descendants(os.getpid()) if pid not in spared]

    def _processes(self) -> set[int]:
        pids = {*descendants(os.getpid()), *find_tagged(TAG, str(self._folder))}
        if self.group is not None:
            pids.update(pid for pid in members(self.group) if start_time(pid) is not None)
        return pids - {os.getpid()}


RAN = "ran.json"  # beside a job's attempts: how long they took together


class TimeLimit:
    """Counts while an attempt runs. A limit of 0 is none; the warning comes `warn_s` before it."""

    def __init__(self, job_folder: Path, limit_s: float, warn_s: float) -> None:
        self._file = job_folder / RAN
        self._limit_s = limit_s or float("inf")
        self._warn_at = self._limit_s - warn_s if warn_s else float("inf")
        self._before_s = float((read_json(self._file) or {}).get("seconds", 0.0))
        self._began = time.monotonic()
        self._over = False
        self._stood: float | None = None  # since when it is asleep

    def note_asleep(self, *, asleep: bool) -> None:
        """Note if its processes are asleep: that time does not count."""
        now = time.monotonic()
        if asleep and self._stood is None:
            self._stood = now
        elif not asleep and self._stood is not None:
            self._began += now - self._stood
            self._stood = None

    @property
    def ran_s(self) -> float:
        """Seconds of this and earlier attempts."""
        until = time.monotonic() if self._stood is None else self._stood
        return self._before_s + until - self._began

    def warns(self) -> bool:
        """True once, when it is time to warn its processes."""
        if self.ran_s < self._warn_at:
            return False
        self._warn_at = float("inf")
        return True

    def ends(self) -> bool:
        """True once, when its time is over."""
        if self._over or self.ran_s < self._limit_s:
            return False
        self._over = True
        return True

    @property
    def passed(self) -> bool:
        """True if its time was over while it ran."""
        return self._over

    def save_used(self) -> None:
        """The attempt has ended: remember what it took."""
        if self._limit_s < float("inf"):
            write_whole(self._file, {"seconds": self.ran_s})
