"""Many runs: in order, whatever the number of processes, and the first error ends it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.waiting import LIMIT_S, wait_until
from weft.core.errors import EngineError, InvalidConfig
from weft.sim.sweep import Report, sweep


def square(number: int, report: Report) -> tuple[int, float]:
    report(0.5)
    return number, sum(i * i for i in range(number)) / 7.0


def picky(number: int, report: Report) -> int:
    if number < 0:
        raise InvalidConfig(f"{number} is negative", hint="use another")
    return number


def test_results_are_in_order_and_the_same_for_any_number_of_processes() -> None:
    specs = [50_000, 3, 20_000, 1, 7]
    progress: list[Sequence[float]] = []

    alone = sweep(square, specs, processes=1)
    together = sweep(square, specs, processes=2, progress=lambda done: progress.append(list(done)))

    assert [number for number, _ in alone] == specs
    assert together == alone
    assert len(progress[-1]) == len(specs)


def test_the_first_error_is_raised_here_with_its_hint() -> None:
    with pytest.raises(InvalidConfig, match="-1 is negative\n  hint: use another"):
        sweep(picky, [1, -1, 2, -2], processes=1)


def test_an_error_of_one_of_two_processes_is_the_same_error() -> None:
    with pytest.raises(InvalidConfig, match="-1 is negative\n  hint: use another"):
        sweep(picky, [1, -1], processes=2)


def test_progress_of_each_is_told_as_it_goes() -> None:
    progress: list[list[float]] = []

    sweep(square, [1, 2], processes=1, progress=lambda done: progress.append(list(done)))

    assert progress == [[0.5, 0.0], [1.0, 0.0], [1.0, 0.5], [1.0, 1.0]]


def where(notes: Path, report: Report) -> int:
    """The process, once two have begun a run."""
    (notes / str(os.getpid())).touch()
    wait_until(lambda: len(list(notes.iterdir())) == 2)
    return os.getpid()


def die_elsewhere(parent: int, report: Report) -> None:
    if os.getpid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)
    while True:
        report(0.5)


class Unsendable(Exception):  # noqa: N818
    def __init__(self, what: str, *, also: str) -> None:
        super().__init__(what)


def fail_unsendably(parent: int, report: Report) -> None:
    if os.getpid() != parent:
        raise Unsendable("not here", also="it takes two to make one")
    while True:
        report(0.5)


def fail_elsewhere(parent: int, report: Report) -> None:
    if os.getpid() != parent:
        raise InvalidConfig("not here")
    while True:
        report(0.5)


def test_this_process_takes_its_part_from_the_back(tmp_path: Path) -> None:
    pids = sweep(where, [tmp_path] * 4, processes=2)

    assert pids[-1] == os.getpid()
    assert pids[0] != os.getpid()


def test_every_run_is_made_once_whoever_takes_it(tmp_path: Path) -> None:
    notes = sweep(note_each, [(tmp_path, number) for number in range(300)], processes=4)

    assert notes == list(range(300))
    assert sorted(path.read_text() for path in tmp_path.iterdir()) == ["once"] * 300


def note_each(spec: tuple[Path, int], report: Report) -> int:
    folder, number = spec
    with (folder / str(number)).open("a") as file:
        file.write("once")
    return number


def test_a_process_that_is_killed_ends_the_sweep() -> None:
    with pytest.raises(EngineError, match="ended with -9"):
        sweep(die_elsewhere, [os.getpid()] * 3, processes=2)


def test_an_error_that_cannot_be_sent_is_told_by_its_text() -> None:
    with pytest.raises(RuntimeError, match="Unsendable: not here"):
        sweep(fail_unsendably, [os.getpid()] * 3, processes=2)


def test_an_error_of_another_process_ends_a_run_of_this_one() -> None:
    with pytest.raises(InvalidConfig, match="not here"):
        sweep(fail_elsewhere, [os.getpid()] * 3, processes=2)


def test_nothing_to_run_is_no_result() -> None:
    assert sweep(picky, [], processes=4) == []


LOADED = """
import os, pathlib, sys, threading, time
from weft.sim.sweep import sweep

loaded = []

def look(folder, report):
    pathlib.Path(folder, str(os.getpid())).touch()
    while len(os.listdir(folder)) < 2:
        time.sleep(0.01)
    return [*loaded]

if __name__ == "__main__":
    loaded.append("a trace")
    if "thread" in sys.argv:
        threading.Thread(target=threading.Event().wait, daemon=True).start()
    if "library" in sys.argv:
        sys.modules["torch"] = sys
    print(sweep(look, [sys.argv[2]] * 2, processes=2)[0])
"""


@pytest.mark.parametrize(
    ("has", "loaded"), [("nothing", "['a trace']"), ("thread", "[]"), ("library", "[]")]
)
def test_another_process_has_what_this_one_loaded_unless_threads_run(
    has: str, loaded: str, tmp_path: Path
) -> None:
    """A copy of a process lacks its threads, so one that has any begins another from nothing."""
    script, notes = tmp_path / "loaded.py", tmp_path / "notes"
    script.write_text(LOADED)
    notes.mkdir()
    command = [sys.executable, str(script), has, str(notes)]
    ran = subprocess.run(command, capture_output=True, check=True, timeout=LIMIT_S)
    assert ran.stdout.decode().strip() == loaded


ENDLESS = """
import os, pathlib, sys, time
from weft.sim.sweep import sweep

def note(number, report):
    pathlib.Path(sys.argv[1], str(os.getpid())).touch()
    time.sleep(600.0)

if __name__ == "__main__":
    sweep(note, [1, 2, 3, 4], processes=2)
"""


@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_sweep_that_is_ended_leaves_no_process_and_no_file_behind(
    signal_number: int, tmp_path: Path
) -> None:
    script, notes = tmp_path / "endless.py", tmp_path / "workers"
    script.write_text(ENDLESS)
    notes.mkdir()
    files = tmp_path / "files"
    files.mkdir()
    command, env = [sys.executable, str(script), str(notes)], {**os.environ, "TMPDIR": str(files)}
    sweeping = subprocess.Popen(command, stderr=subprocess.PIPE, env=env)
    wait_until(lambda: len(list(notes.iterdir())) == 2)
    workers = [int(path.name) for path in notes.iterdir()]

    sweeping.send_signal(signal_number)

    _, errors = sweeping.communicate(timeout=LIMIT_S)
    wait_until(lambda: not any(runs(worker) for worker in workers))
    assert not list(files.iterdir())
    assert (b"KeyboardInterrupt" in errors) == (signal_number == signal.SIGINT)


def runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


COMPARE = [sys.executable, "-m", "weft", "compare", "philly", "--jobs", "120"]
CHOSEN = ["-p", "fifo", "-p", "srtf", "-p", "las", "-p", "tiresias", "--seeds", "6"]


def test_a_comparison_that_was_killed_goes_on_to_the_very_same_bytes(tmp_path: Path) -> None:
    """Its processes are ended in the middle of their runs; the next comparison makes the rest."""
    command = [*COMPARE, *CHOSEN, "--processes", "2", "--json", "--per-job"]
    whole = subprocess.run(command, check=True, capture_output=True)
    command += ["--keep", str(tmp_path)]
    stopped = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    wait_until(lambda: len(kept_in(tmp_path)) >= 3)
    stopped.kill()
    stopped.wait()
    before = kept_in(tmp_path)

    resumed = subprocess.run(command, check=True, capture_output=True)

    assert len(before) < len(kept_in(tmp_path)) == 24
    assert before.items() <= kept_in(tmp_path).items()  # none of them was made again
    assert resumed.stdout == whole.stdout


def kept_in(folder: Path) -> dict[str, int]:
    """The runs that are kept, with when they were written."""
    return {path.name: path.stat().st_mtime_ns for path in folder.glob("*.json.gz")}
