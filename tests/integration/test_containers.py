"""Jobs in images: what Apptainer and Podman are told, by stand-ins that note their arguments."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.integration.serving import API, get, serving, submit
from tests.tiny_image import make_tiny_image
from tests.waiting import wait_until
from weft.core.errors import InvalidConfig
from weft.core.model.job import Allocation, Job, JobId, NodeId, Slice
from weft.core.model.launch import Launch, Software, SoftwareKind
from weft.engines.attempts.request import common_spec
from weft.engines.machine.containers import check_image
from weft.node.ranks.command_plan import activate, plan_setup
from weft.wire.attempt import AttemptSpec
from weft.wire.processes import find_tagged

ENGINE = "local:slots=2,cpu=true,warm=false"

STAND_IN = '#!/bin/bash\nprintf "%s\\0" "$@" > "$0.told"\n'
TOOLS = ("bash", "id")
WORDS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)
PATHS = st.text(
    st.characters(exclude_characters="\0:,\"'\\", exclude_categories=["Cs", "Cc"]), max_size=20
).map(lambda text: f"/{text}")


def spec_of(workdir: Path, *words: str, image: str = "torch:2", **launch: object) -> AttemptSpec:
    volumes = launch.pop("volumes", ())
    software = Software(SoftwareKind.IMAGE, image, volumes)  # type: ignore[arg-type]
    job = Job(
        JobId("j"),
        launch=Launch(words, workdir=str(workdir), software=software, **launch),  # type: ignore[arg-type]
    )
    return common_spec(job, Allocation((Slice(NodeId("n"), (0,)),)), 1, workdir)


def container_args(
    program: str, workdir: Path, command: object, env: dict[str, str] | None = None
) -> list[str]:
    """What the container program was started with."""
    with tempfile.TemporaryDirectory() as folder:
        for tool in TOOLS:
            Path(folder, tool).symlink_to(shutil.which(tool) or tool)
        stand_in = Path(folder, program)
        stand_in.write_text(STAND_IN)
        stand_in.chmod(0o755)
        subprocess.run(
            list(command),  # type: ignore[call-overload]
            check=True,
            cwd=workdir,
            env={"PATH": folder, **(env or {})},
            stdin=subprocess.DEVNULL,
        )
        return Path(f"{stand_in}.told").read_bytes().decode().split("\0")[:-1]


@pytest.mark.parametrize("program", ["apptainer", "podman"])
@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(words=st.lists(WORDS, max_size=4), volumes=st.lists(PATHS, max_size=3))
def test_words_and_paths_arrive_as_they_are(
    tmp_path: Path, program: str, words: list[str], volumes: list[str]
) -> None:
    spec = spec_of(tmp_path, "train", *words, volumes=tuple(volumes))

    args = container_args(program, tmp_path, activate(spec, spec.command))

    name = "docker://torch:2" if program == "apptainer" else "torch:2"
    at = args.index(name)
    assert args[at:] == [name, "train", *words]
    option = "--bind" if program == "apptainer" else "--volume"
    bound = [args[i + 1] for i in range(at) if args[i] == option]
    paths = [str(tmp_path), *volumes]
    assert bound == (paths if program == "apptainer" else [f"{path}:{path}" for path in paths])


def test_values_of_variables_are_on_no_command_line(tmp_path: Path) -> None:
    env = {"HF_TOKEN": "very-secret", "PYTHONPATH": "/mine", "LD_PRELOAD": "", "RANK": "3"}
    spec = spec_of(tmp_path, "train", env={"HF_TOKEN": "very-secret", "PYTHONPATH": "/mine"})

    args = container_args("podman", tmp_path, activate(spec, spec.command), env)

    named = {args[i + 1] for i in range(len(args)) if args[i] == "--env"}
    assert {"HF_TOKEN", "PYTHONPATH", "RANK"} <= named
    assert not {"PATH", "LD_PRELOAD", "HOME"} & named
    assert "very-secret" not in " ".join(args)


def test_folders_of_the_agent_and_of_checkpoints_are_seen_inside(tmp_path: Path) -> None:
    for name in ("socket", "kept", "work"):
        (tmp_path / name).mkdir()
    env = {"WEFT_AGENT": f"{tmp_path}/socket/s", "WEFT_CHECKPOINTS": f"{tmp_path}/kept"}
    spec = spec_of(tmp_path / "work", "train")

    args = container_args("apptainer", tmp_path / "work", activate(spec, spec.command), env)

    bound = [args[i + 1] for i in range(len(args)) if args[i] == "--bind"]
    assert bound == [f"{tmp_path}/{name}" for name in ("work", "socket", "kept")]
    env["WEFT_CHECKPOINTS"] = "s3://kept/run"
    assert "s3://kept/run" not in container_args(
        "apptainer", tmp_path / "work", activate(spec, spec.command), env
    )


@pytest.mark.parametrize(
    ("image", "apptainer", "podman"),
    [
        ("nvcr.io/nvidia/pytorch:25.01", "docker://nvcr.io/nvidia/pytorch:25.01", None),
        ("docker://torch:2", "docker://torch:2", "torch:2"),
        ("/images/torch.sif", "/images/torch.sif", None),
        ("oras://registry/torch:2", "oras://registry/torch:2", None),
    ],
)
def test_an_image_is_named_as_each_program_does(
    tmp_path: Path, image: str, apptainer: str, podman: str | None
) -> None:
    spec = spec_of(tmp_path, "train", image=image)

    assert container_args("apptainer", tmp_path, activate(spec, spec.command))[-2] == apptainer
    assert container_args("podman", tmp_path, activate(spec, spec.command))[-2] == (podman or image)


def test_a_setup_runs_inside_too(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, "train", setup="pip install 'a b'\ntrue")

    assert container_args("podman", tmp_path, plan_setup(spec))[-4:] == [
        *("torch:2", "sh", "-ec"),
        "pip install 'a b'\ntrue",
    ]


def test_a_node_with_neither_program_says_so(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, "train")

    ran = subprocess.run(
        ["/bin/bash", *activate(spec, spec.command)[1:]],
        capture_output=True,
        text=True,
        env={"PATH": "/nowhere"},
    )

    assert ran.returncode == 1
    assert "neither apptainer nor podman nor Pyxis is installed here" in ran.stderr


PYXIS = """#!/bin/bash
if [ "$1" = --help ]; then echo "  --container-image=[USER@][REGISTRY#]IMAGE[:TAG]|PATH"; exit; fi
printf "%s\\0" "$@" > "$0.told"
"""


@pytest.mark.parametrize(
    ("image", "named"),
    [
        ("torch:2", "torch:2"),
        ("nvcr.io/nvidia/pytorch:25.01", "nvcr.io#nvidia/pytorch:25.01"),
        ("localhost:5000/torch", "localhost:5000#torch"),
        ("team/torch:2", "team/torch:2"),
        ("/images/torch.sqsh", "/images/torch.sqsh"),
    ],
)
def test_pyxis_runs_a_rank_as_a_step_where_there_is_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, image: str, named: str
) -> None:
    spec = spec_of(tmp_path, "train", "a b", image=image, volumes=("/data:/inside:ro",))
    monkeypatch.setattr(f"{__name__}.STAND_IN", PYXIS)
    env = {"SLURM_JOB_ID": "7", "SLURMD_NODENAME": "a1", "CUDA_VISIBLE_DEVICES": "1"}

    args = container_args("srun", tmp_path, activate(spec, spec.command), env)

    assert args[-2:] == ["train", "a b"]
    assert {"--jobid=7", "--overlap", "--nodelist=a1", f"--container-image={named}"} <= {*args}
    assert f"--container-mounts={tmp_path}:{tmp_path},/data:/inside:ro" in args
    assert f"--container-workdir={tmp_path}" in args
    assert 'export CUDA_VISIBLE_DEVICES="$WEFT_VISIBLE"' in args[args.index("-c") + 1]


def test_a_machine_with_neither_program_refuses_it_when_it_is_submitted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    launch = Launch(("true",), software=Software(SoftwareKind.IMAGE, "pytorch:2"))
    monkeypatch.setenv("PATH", "/nowhere")

    with pytest.raises(InvalidConfig, match="neither apptainer nor podman"):
        check_image(Job(JobId("j"), launch=launch))


WAITING = "trap 'echo asked; exit 0' TERM; echo ready; while :; do sleep 1; done"


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, str]]:
    return make_tiny_image(tmp_path_factory.mktemp("image"))


def test_a_job_runs_in_its_image_with_its_variables_and_volumes(
    image: tuple[str, dict[str, str]], tmp_path: Path
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "file").write_text("read inside\n")
    name, env = image
    with serving(ENGINE, tmp_path / "state") as client:
        job = submit(
            client,
            command=["sh", "-c", "cat /inside/file; echo $MINE; test ! -e /usr; echo $?; exit 3"],
            workdir=str(tmp_path),
            env={**env, "MINE": "a b"},
            environment={"image": name, "volumes": [f"{tmp_path}/data:/inside:ro"]},
            retries=0,
        )
        wait_until(lambda: get(client, f"/jobs/{job}")["state"] == "failed")

        assert client.get(f"{API}/jobs/{job}/logs").text == "read inside\na b\n0\n"
        assert "exit code 3" in get(client, f"/jobs/{job}")["reason"]


def test_a_cancelled_job_leaves_no_process_in_its_container(
    image: tuple[str, dict[str, str]], tmp_path: Path
) -> None:
    name, env = image
    with serving(ENGINE, tmp_path / "state") as client:
        job = submit(
            client,
            command=["sh", "-c", WAITING],
            workdir=str(tmp_path),
            env={**env, "MARK": str(tmp_path)},
            environment={"image": name},
            retries=0,
        )
        wait_until(lambda: "ready" in client.get(f"{API}/jobs/{job}/logs").text)
        client.delete(f"{API}/jobs/{job}")
        wait_until(lambda: get(client, f"/jobs/{job}")["state"] == "cancelled")

        wait_until(lambda: "asked" in client.get(f"{API}/jobs/{job}/logs").text)
        wait_until(lambda: not list(find_tagged("MARK", str(tmp_path))))
