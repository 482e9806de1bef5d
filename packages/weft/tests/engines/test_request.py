"""What an agent is told, as values."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from weft.core.errors import InvalidConfig
from weft.core.model import job as model
from weft.core.model.cluster import Node
from weft.core.model.launch import Launch
from weft.engines.attempts.request import LocalSite, adjustment, attempt_spec, check_launch
from weft.engines.machine.devices import Gpu, LocalMachine
from weft.engines.machine.host_part import Means
from weft.node.ranks.process import rank_environment
from weft.wire.attempt import AttemptSpec, folder_of, job_folder, short_path

SITE = LocalSite(Path("/state"), notify="/run/bell")
GPUS = tuple(Gpu(i, "NVIDIA H200", 140.0) for i in (0, 2, 3))
MACHINE = LocalMachine(
    Node(model.NodeId("n"), "h200", 3, 12.0, 90.0), GPUS, ((0, 1), (2, 3), (4, 5))
)
CPUS = LocalMachine(Node(model.NodeId("n"), "cpu", 3), (), ((0,), (1,), (2,)))
JOB = model.Job(
    model.JobId("a/b"),
    mem_gb=8.0,
    launch=Launch(("python", "t.py"), workdir="/home/ada", env={"X": "1"}, checkpoint="ckpt"),
)


def on(*gpus: int, **sharing: object) -> model.Allocation:
    shared = model.Sharing(**sharing)  # type: ignore[arg-type]
    return model.Allocation((model.Slice(model.NodeId("n"), gpus),), shared, model.Batch(32, 4))


def test_devices_are_named_by_the_drivers_numbers() -> None:
    spec = attempt_spec(JOB, on(1, 2), 3, MACHINE, SITE)

    assert spec.devices == (1, 2)
    assert spec.visible == "2,3"
    assert spec.cpus == pytest.approx(8.0)
    assert (spec.attempt, spec.world_size, spec.kind) == (3, 2, "h200")
    assert spec.batch == (32, 4)
    assert spec.checkpoints == "/home/ada/ckpt"


def test_slots_need_no_visible_devices() -> None:
    assert attempt_spec(JOB, on(0), 1, CPUS, SITE).visible is None


def test_a_job_that_asks_for_a_part_is_limited_to_it_and_others_are_not() -> None:
    part = attempt_spec(
        replace(JOB, demand=model.Demand(1, share=0.25)), on(0, share=0.25), 1, MACHINE, SITE
    )
    beside = attempt_spec(JOB, on(0, share=0.5, tier=model.Tier.OPPORTUNISTIC), 1, MACHINE, SITE)

    percentage = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
    assert part.env == {**beside.env, percentage: "25"}
    assert (beside.turns.tier, beside.turns.weight) == ("opportunistic", 0.5)
    assert beside.env["X"] == "1"
    assert percentage not in beside.env


def test_new_terms_are_told_to_the_agent_of_a_running_attempt() -> None:
    terms = adjustment(on(0, share=0.5, phase=0.25), "lockstep", "/run/tokens")

    assert terms["batch"] == (32, 4)
    assert terms["turns"] == {
        "coordinator": "/run/tokens",
        "tier": "guaranteed",
        "weight": 0.5,
        "phase": 0.25,
    }
    assert attempt_spec(JOB, on(0, phase=0.25), 1, MACHINE, SITE).turns.phase == 0.25


def test_a_time_shift_is_told_at_the_start_and_taken_back_later() -> None:
    shifted = replace(on(0), time_shift=model.TimeShift(0.25, 0.1))

    assert attempt_spec(JOB, shifted, 1, MACHINE, SITE).time_shift == (0.25, 0.1)
    assert adjustment(shifted, "none", "")["time_shift"] == (0.25, 0.1)
    assert adjustment(on(0), "none", "")["time_shift"] == (0.0, 0.0)


def test_a_job_without_a_checkpoint_folder_gets_one() -> None:
    job = model.Job(model.JobId("j"), launch=Launch(("true",), workdir="/home/ada"))

    assert attempt_spec(job, on(0), 1, CPUS, SITE).checkpoints == "/state/jobs/j/checkpoints"


def test_an_address_in_an_object_store_is_the_jobs_and_locks_are_in_its_folder() -> None:
    launch = Launch(("true",), workdir="/home/ada", checkpoint="s3://bucket/run")
    spec = attempt_spec(model.Job(model.JobId("j"), launch=launch), on(0), 1, CPUS, SITE)

    assert (spec.checkpoints, spec.objects) == ("/state/jobs/j/checkpoints", "s3://bucket/run")
    env = rank_environment(spec, Path("/f"), 0, socket="", port=1)
    assert env["WEFT_CHECKPOINTS"] == "s3://bucket/run"


@pytest.mark.parametrize(
    ("launch", "message"),
    [
        (None, "has no command"),
        (Launch(()), "has no command"),
        (Launch(("a\0b",)), "NUL"),
        (Launch(("a",), env={"A=B": "c"}), "'A=B' is not the name of a variable"),
        (Launch(("a",), workdir="/no/such"), "'/no/such' is not a folder here"),
    ],
)
def test_what_cannot_be_launched_is_refused(launch: Launch | None, message: str) -> None:
    with pytest.raises(InvalidConfig, match=message):
        check_launch(model.Job(model.JobId("j"), launch=launch))


def test_a_spec_survives_its_file(tmp_path: Path) -> None:
    spec = attempt_spec(JOB, on(1, 2), 3, MACHINE, SITE, coordinator="/c", env={"E": "é\n"})

    spec.write(tmp_path)

    assert AttemptSpec.read(tmp_path / "spec.json") == spec


@pytest.mark.parametrize("job", ["..", ".", "../../x", "/etc", "a/b", "%2E", "x" * 500, "\n"])
def test_every_job_has_a_folder_of_its_own_below_the_root(job: str) -> None:
    root = Path("/state")

    folder = job_folder(root, job)

    assert folder.parent == root / "jobs"
    assert folder.name not in ("", ".", "..")
    assert len(folder.name.encode()) < 200
    assert folder_of(root, job, 2) == folder / "2"


def test_different_jobs_have_different_folders() -> None:
    names = ["a/b", "a%2Fb", "a.b", "a%2Eb", "A", "a", "x" * 500, "x" * 501]

    assert len({job_folder(Path("/s"), name) for name in names}) == len(names)


def test_deep_sockets_move_to_a_short_place() -> None:
    deep = Path("/tmp") / ("x" * 120) / "s.sock"

    assert short_path(Path("/run/s.sock")) == "/run/s.sock"
    assert len(short_path(deep)) < 100
    assert short_path(deep) == short_path(deep)


def test_an_estimate_of_a_models_memory_leaves_room_for_its_process() -> None:
    known = replace(JOB, model="bert-base")
    claims = on(0, share=0.5, gpu_mem_gb=4.0)

    def cap(job: model.Job, at: model.Allocation) -> float:
        return attempt_spec(job, at, 1, MACHINE, SITE, means=Means(mps=True, gpus=True)).gpu_mem_gb

    assert cap(known, claims) == pytest.approx(4.0 * 2.0 + 2.0)
    assert cap(JOB, claims) == 4.0  # measured, and with a margin of its own
    assert cap(replace(known, gpu_mem_gb=4.0), claims) == 4.0  # its owner said so
    assert cap(known, on(0, gpu_mem_gb=4.0)) == 0.0  # nobody is beside it
    assert cap(known, on(0, share=0.5)) == 0.0


def test_the_limits_of_torch_and_of_mps_are_the_same() -> None:
    known = replace(JOB, model="bert-base")
    means = Means(mps=True, gpus=True)
    spec = attempt_spec(known, on(0, share=0.5, gpu_mem_gb=4.0), 1, MACHINE, SITE, means=means)

    part = float(spec.env["WEFT_GPU_MEMORY_FRACTION"])
    assert part * MACHINE.node.device_gb == pytest.approx(10.0, rel=1e-2)
    assert spec.env["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=10240M"
