"""Programs that would notice a watcher: each is run with and without one, and must not."""

from __future__ import annotations

from tests.watcher.programs import (
    descriptors,
    libraries,
    outputs,
    processes,
    signals,
    stand_ins,
    start_up,
)
from tests.watcher.programs.program import Program

ROOMS = (descriptors, processes, signals, start_up, outputs, stand_ins, libraries)
PROGRAMS: dict[str, Program] = {
    name: program for room in ROOMS for name, program in room.PROGRAMS.items()
}
