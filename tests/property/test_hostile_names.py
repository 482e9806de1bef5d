"""Whatever a job is called, other programs read in its name what was meant and nothing else."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples

from weft.core.errors import EngineError
from weft.core.model.job import JobId, NodeId
from weft.engines.fleet.port import AttemptPart, Gang
from weft.engines.kubernetes.pods import Mount, PodSettings, key_of, pods_of
from weft.engines.slurm.answers import read_jobs, read_nodes, read_steps, read_tag, write_tag
from weft.engines.slurm.script import SbatchOptions, batch_script, step_command
from weft.wire.attempt import folder_of, part_folder

SPICE = st.sampled_from(["%", "%j", "%2E", ".", "..", ":", "/", " ", "'", '"', "$(id)", "`id`"])
MORE = st.sampled_from([";", "&", "|", "\\", "\n", "*", "{", "#", "-", "--", "\u00e9", "=", ","])
LETTERS = st.text("abcXYZ019_", min_size=1, max_size=8)
NAMES = st.lists(SPICE | MORE | LETTERS, min_size=1, max_size=8).map("".join)
STATES = st.sampled_from(["/nfs/weft", "/nfs/100% weft", "/nfs/it's %x"])
SLURM = read_nodes(
    "a1|idle|8|16000|gpu:a100:4|10.0.0.1|none\na2|idle|8|16000|gpu:a100:4|10.0.0.2|none\n", 0
)
OPTIONS = SbatchOptions(python="/opt/weft/bin/python", owner="0123456789ab")
SITE = PodSettings(
    "0123456789ab", "weft", "example/weft:1", mounts=(Mount("/state/jobs", "weft-jobs"),)
)
LABEL = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
DNS = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


def gang(name: str, root: str, *nodes: str) -> Gang:
    whole = folder_of(Path(root), name, 1)
    parts = (AttemptPart(NodeId(n), (0, 1), 2.0, 0.0, part_folder(whole, n)) for n in nodes)
    return Gang(JobId(name), 1, name, name, tuple(parts))


def options_of(script: str) -> list[str]:
    """What sbatch reads in the head of a script: words, as a shell would split them."""
    head = [line for line in script.splitlines() if line.startswith("#SBATCH ")]
    return [word for line in head for word in shlex.split(line.removeprefix("#SBATCH "))]


def file_of(pattern: str) -> str:
    """The file that Slurm makes of a pattern; with `%` only what stands for itself is left."""
    assert "\\" not in pattern
    assert re.fullmatch(r"([^%]|%%)*", pattern), f"Slurm would replace a part of {pattern}"
    return pattern.replace("%%", "%")


@examples(200)
@given(NAMES, STATES, st.sampled_from([("a1",), ("a1", "a2")]))
def test_slurm_writes_where_the_attempt_lives_and_runs_nothing_else(
    name: str, root: str, nodes: tuple[str, ...]
) -> None:
    wanted = gang(name, root, *nodes)

    script = batch_script(wanted, SLURM, OPTIONS)

    options = options_of(script)
    output = next(word for word in options if word.startswith("--output="))
    assert file_of(output.removeprefix("--output=")).startswith(str(wanted.parts[0].folder.parent))
    assert all(word.startswith("--") for word in options)
    lines = [line for line in script.splitlines() if not line.startswith("#")]
    assert len(lines) == 1  # nothing of the name became a line of its own
    assert lines[0].startswith("exec ")
    assert str(wanted.parts[0].folder.parent) in " ".join(shlex.split(lines[0]))


@examples(200)
@given(NAMES, st.integers(1, 99))
def test_slurm_gives_a_tag_back_as_it_was_beside_any_other_comment(name: str, attempt: int) -> None:
    key = JobId(name), attempt
    tag = write_tag("0123456789ab", key)
    strange = f"7|RUNNING|None|a1|N/A|1000||{name}"

    rows = read_jobs(f"{strange}\n8|RUNNING|None|a1|N/A|1000||{tag}\n")
    steps = read_steps(f"7.0|a1|{name}\n8.0|a1|{tag}\n")

    assert read_tag("0123456789ab", rows[-1][0]) == key
    assert rows[-1][1].reason == ""
    assert read_tag("0123456789ab", steps[-1][0]) == key
    assert not set(tag) & set("|\n ")


@examples(200)
@given(NAMES, STATES)
def test_a_step_has_the_folder_as_one_word(name: str, root: str) -> None:
    wanted = gang(name, root, "a1")

    command = step_command(wanted, wanted.parts[0], SLURM[NodeId("a1")], "77", OPTIONS)

    assert str(wanted.parts[0].folder) in command


def test_a_folder_that_slurm_cannot_name_is_refused() -> None:
    with pytest.raises(EngineError, match="backslash"):
        batch_script(gang("j", "/nfs/back\\slash", "a1"), SLURM, OPTIONS)


@examples(200)
@given(NAMES, st.integers(1, 10**6))
def test_kubernetes_is_told_names_and_labels_that_it_takes(name: str, attempt: int) -> None:
    wanted = gang(name, "/state", "a", "b")
    wanted = Gang(wanted.job, attempt, name, name, wanted.parts, grace_s=30.0)

    pods = pods_of(wanted, SITE)

    assert len({pod["metadata"]["name"] for pod in pods}) == 2
    for pod in pods:
        assert DNS.fullmatch(pod["metadata"]["name"])
        assert DNS.fullmatch(pod["spec"].get("hostname", "a"))
        for value in pod["metadata"]["labels"].values():
            assert LABEL.fullmatch(value), value
        assert key_of(pod) == (name, attempt)
        container = pod["spec"]["containers"][0]
        words = [*container.get("command", ()), *container.get("args", ())]
        words += [str(variable.get("value", "")) for variable in container.get("env", ())]
        assert not any("$(" in word for word in words)  # Kubernetes would put a variable there


@examples(200)
@given(NAMES, NAMES)
def test_jobs_of_different_names_live_apart_and_below_the_state_folder(
    first: str, other: str
) -> None:
    root = Path("/state")
    folders = [folder_of(root, name, 1) for name in (first, other)]

    assert (folders[0] == folders[1]) == (first == other)
    for folder in folders:
        assert folder.parts[:3] == ("/", "state", "jobs")
        assert len(folder.parts) == 5
        assert not set(folder.parts[3]) & set("/\\\n '\"$`*.")
    assert unquote(folders[0].parts[3]) == first
