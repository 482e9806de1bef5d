"""An agent's part in a gang: one of several of an attempt, each on its own node.

They meet through the attempt's folder: the agent of rank 0 finds a free port and writes it into
`master.json`, the others wait for that. No other agent can see whether an agent on another machine
lives, so it counts in `beat`. It looks at the job's `CURRENT` and ends its ranks when a newer
attempt has taken over: its node may have been given up for lost while it was only out of sight.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from weft.base.errors import WireError
from weft.node.ranks.command_plan import find_free_port
from weft.wire.attempt import (
    ADDRESS,
    BEAT,
    CURRENT,
    MASTER,
    STOP,
    AttemptSpec,
    read_json,
    write_whole,
)
from weft.wire.shared_files import OPEN, make_file

BEAT_S = 2.0
MEET_S = 300.0  # for the agent of rank 0 to come up: gangs are started together
PAUSE_S = 0.1


class GangMember:
    """One agent among those of an attempt; alone, it has nothing to do."""

    def __init__(self, folder: Path, spec: AttemptSpec) -> None:
        self._folder, self._spec = folder, spec
        self._beats = 0
        self._beaten = float("-inf")

    @property
    def job_folder(self) -> Path:
        """The folder of all attempts of the job."""
        return self._folder.parent.parent if self._spec.part else self._folder.parent

    @property
    def kept_in(self) -> Path:
        """The folder in which agents leave what later attempts of the job are to know."""
        return Path(self._spec.common) if self._spec.common else self.job_folder

    def fill_local_fields(self) -> AttemptSpec:
        """Its request, with what only this node knows: its devices, its cores, its address."""
        spec = self._spec
        if not spec.part:
            return spec
        if spec.learnt:
            spec = replace(spec, visible=os.environ.get("CUDA_VISIBLE_DEVICES"))
        if os.environ.get(ADDRESS):
            spec = replace(spec, address=os.environ[ADDRESS])
            if spec.first_rank == 0:
                spec = replace(spec, master_addr=os.environ[ADDRESS])
        self._spec = replace(spec, cores=self.own_cores(spec.cores))
        return self._spec

    def own_cores(self, cores: Sequence[Sequence[int]]) -> tuple[tuple[int, ...], ...]:
        """Cores by their place among those that this process may use, whatever their numbers."""
        if not self._spec.part:
            return tuple(map(tuple, cores))
        there = sorted(os.sched_getaffinity(0))
        return tuple(tuple(sorted({there[core % len(there)] for core in some})) for some in cores)

    def wait_for_address(self) -> tuple[str, int]:
        """The address at which rank 0 listens; port 0 if the attempt is to stop before it began."""
        spec = self._spec
        if not spec.part:
            return spec.master_addr, spec.master_port or find_free_port()
        if spec.join:  # its ranks learn where the others are when they have come so far
            return spec.master_addr, 0
        meeting = self._folder.parent / MASTER
        if spec.common:
            meeting = Path(spec.common, f"{spec.attempt}.{MASTER}")
        if spec.first_rank == 0:
            port = spec.master_port or find_free_port(spec.master_addr)
            write_whole(meeting, {"address": spec.master_addr, "port": port})
            return spec.master_addr, port
        until = time.monotonic() + MEET_S
        while (point := read_json(meeting)) is None:
            if (self._folder / STOP).exists():
                return spec.master_addr, 0
            if why := self.poll():
                raise WireError(why)
            if time.monotonic() > until:
                raise WireError(f"the agent of rank 0 did not come up within {MEET_S:g} s")
            time.sleep(PAUSE_S)
        return str(point["address"]), int(point["port"])

    def poll(self) -> str:
        """Show that it lives; why it must end at once, empty if it need not."""
        if not self._spec.part:
            return ""
        self._beat()
        newest = read_current(self.job_folder)
        if newest > self._spec.attempt:
            return f"attempt {newest} of the job has taken over"
        return ""

    def _beat(self) -> None:
        now = time.monotonic()
        if now - self._beaten < BEAT_S:
            return
        self._beaten = now
        self._beats += 1
        with suppress(OSError):  # a full disk, or a file system that is away: it may come back
            beat = make_file(self._folder / BEAT, os.O_WRONLY | os.O_TRUNC, OPEN)
            with os.fdopen(beat, "w") as out:
                out.write(f"{self._beats}\n")


def read_current(job_folder: Path) -> int:
    """The newest attempt of a job; 0 if unknown."""
    try:
        return int((job_folder / CURRENT).read_text() or 0)
    except (OSError, ValueError):
        return 0
