"""One training, not one for each GPU: launchers, plain programs and scripts with several GPUs."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

from tests.integration.test_local_details import printed, run
from weft.core.events.event import Failed, Finished
from weft.core.model.job import Demand, Job, JobId
from weft.core.model.launch import Launch
from weft.run_terms import Processes

SHOW = """\
import json, os, pathlib
names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "WEFT_GPUS", "OMP_NUM_THREADS")
with open(pathlib.Path(__file__).with_name("seen." + str(os.getpid())), "w") as out:
    json.dump({name: os.environ.get(name) for name in names}, out)
"""
LAUNCHERS = {
    "torchrun": (sys.executable, "-m", "torch.distributed.run"),
    "accelerate": (sys.executable, "-m", "accelerate.commands.launch", "--multi_gpu"),
    "mpirun": ("mpirun", "--allow-run-as-root", "--oversubscribe", sys.executable),
}


def with_gpus(folder: Path, *command: str, processes: Processes = Processes.AUTO) -> Job:
    launch = Launch(command, workdir=str(folder), processes=processes)
    return Job(JobId("job"), demand=Demand(2), launch=launch)


def seen(folder: Path) -> list[dict[str, str | None]]:
    return [json.loads(path.read_text()) for path in sorted(folder.glob("seen.*"))]


@pytest.mark.parametrize(
    "name",
    [
        "torchrun",
        "accelerate",
        pytest.param(
            "mpirun",
            marks=pytest.mark.skipif(
                shutil.which("mpirun") is None, reason="needs mpirun: apt-get install openmpi-bin"
            ),
        ),
    ],
)
def test_a_launcher_is_started_once_and_starts_a_process_for_each_gpu(
    name: str, tmp_path: Path
) -> None:
    (tmp_path / "show.py").write_text(SHOW)

    done = run(tmp_path / "state", with_gpus(tmp_path, *LAUNCHERS[name], "show.py"))

    assert done[-1] == Finished(JobId("job"), 1), done[-1]
    processes = seen(tmp_path)
    assert len(processes) == 2
    if name != "mpirun":
        assert {process["RANK"] for process in processes} == {"0", "1"}
        assert {process["WORLD_SIZE"] for process in processes} == {"2"}
    assert not (tmp_path / "state" / "jobs" / "job" / "1" / "rank-1.log").exists()


def test_a_plain_script_with_two_gpus_is_one_process_that_has_both(tmp_path: Path) -> None:
    (tmp_path / "show.py").write_text(SHOW)

    done = run(tmp_path / "state", with_gpus(tmp_path, sys.executable, "show.py"))

    assert done[-1] == Finished(JobId("job"), 1)
    (alone,) = seen(tmp_path)
    assert (alone["RANK"], alone["WORLD_SIZE"], alone["WEFT_GPUS"]) == (None, None, "2")


def test_a_script_of_the_trainer_and_one_that_asks_for_it_is_started_for_each_gpu(
    tmp_path: Path,
) -> None:
    for name, text, how in (
        ("trainer", SHOW + "if False:\n    import weft.train\n", Processes.AUTO),
        ("asked", SHOW, Processes.PER_GPU),
    ):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "show.py").write_text(text)
        job = with_gpus(folder, sys.executable, "show.py", processes=how)

        done = run(folder / "state", job)

        assert done[-1] == Finished(JobId("job"), 1)
        assert {variables["RANK"] for variables in seen(folder)} == {"0", "1"}


def test_a_trainer_that_is_started_once_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("import weft.train as wt\nwt.init()\n")
    hidden = (sys.executable, "-c", "import mine")

    done = run(tmp_path / "state", with_gpus(tmp_path, *hidden))

    assert isinstance(done[-1], Failed)
    assert "here but was started as one process" in printed(tmp_path / "state", "job")
    assert "processes: per-gpu" in printed(tmp_path / "state", "job")


def test_torchrun_inside_a_shell_script_knows_how_many_too(tmp_path: Path) -> None:
    (tmp_path / "show.py").write_text(SHOW)
    line = f"echo begin | cat\n{sys.executable} -m torch.distributed.run show.py\n"

    done = run(tmp_path / "state", with_gpus(tmp_path, "bash", "-eo", "pipefail", "-c", line))

    assert done[-1] == Finished(JobId("job"), 1)
    assert {variables["RANK"] for variables in seen(tmp_path)} == {"0", "1"}
