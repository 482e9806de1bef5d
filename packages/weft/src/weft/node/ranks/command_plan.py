"""How many processes a command is started as, and the options of a launcher among them.

torchrun, accelerate, deepspeed, mpirun and Ray start a process for each GPU themselves, so they are
started once per node, with how many and where they meet; options that a person set stay. A Python
script that imports `weft.train` is started once for each GPU. Anything else is one process that
sees all GPUs of the job on its node.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import takewhile
from pathlib import Path, PurePath

from weft.frozen import frozen

AUTO, ONE, PER_GPU = "auto", "1", "per-gpu"
MOST_BYTES = 1 << 20  # of a script that is looked into
_TRAINER = re.compile(
    rb"^[ \t]*(?:(?:import|from)[ \t]+weft\.train\b|from[ \t]+weft[ \t]+import[ \t]+train\b)", re.M
)
_AROUND = {"env", "exec", "nice", "nohup", "numactl", "pipenv", "poetry", "run", "time", "uv"}
_MODULES = {
    "torch.distributed.run": "torchrun",
    "torch.distributed.launch": "torchrun",
    "accelerate.commands.launch": "accelerate",
    "deepspeed.launcher.runner": "deepspeed",
    "weft.node.ray_job": "ray_job",
}


@frozen
class Place:
    """Where an attempt's processes run: GPUs of this node, nodes of the gang, where they meet."""

    gpus: int
    nodes: int
    node: int
    address: str
    port: int


def starts_per_gpu(processes: str, command: Sequence[str], workdir: str, gpus: int) -> bool:
    """Whether `command` is started once for each of `gpus` GPUs rather than once per node."""
    if processes == PER_GPU:
        return True
    if find_launcher(command) is not None:
        return False
    return gpus == 1 or (processes == AUTO and imports_trainer(command, workdir))


def fit_launcher(command: Sequence[str], place: Place) -> list[str]:
    """The command with options for its launcher; other commands as they are."""
    launcher = find_launcher(command)
    if launcher is None:
        return list(command)
    name, after = launcher
    return [*command[:after], *_FITTED[name](list(command[after:]), place)]


def launcher_variables(place: Place) -> dict[str, str]:
    """Variables for a single process per node, for launchers inside its scripts.

    torchrun reads the PET_ variables where it has no such argument.
    """
    return {
        "WEFT_GPUS": str(place.gpus),
        "WEFT_NODE_RANK": str(place.node),
        "MASTER_ADDR": place.address,
        "MASTER_PORT": str(place.port),
        "PET_NPROC_PER_NODE": str(place.gpus),
        "PET_NNODES": str(place.nodes),
        "PET_NODE_RANK": str(place.node),
        "PET_MASTER_ADDR": place.address,
        "PET_MASTER_PORT": str(place.port),
    }


def find_launcher(command: Sequence[str]) -> tuple[str, int] | None:
    """The launcher a command begins with, and how many words come before its arguments."""
    for at, word in enumerate(command):
        name = PurePath(word).name
        if name == "accelerate" and command[at + 1 : at + 2] == ["launch"]:
            return name, at + 2
        if name in _FITTED and name != "accelerate":
            return name, at + 1
        if word in _MODULES and command[at - 1] == "-m":
            return _MODULES[word], at + 1
        around = word in _AROUND or word.startswith("-") or "=" in word
        if not (around or name.startswith("python")):
            return None
    return None


def imports_trainer(command: Sequence[str], workdir: str) -> bool:
    """Whether the Python script that a command runs imports `weft.train`."""
    script = next((word for word in command if word.endswith(".py")), None)
    if script is None:
        return False
    try:
        with Path(workdir, script).open("rb") as source:
            return _TRAINER.search(source.read(MOST_BYTES)) is not None
    except OSError:  # it may exist by the time it is run, and fails if not
        return False


def _fit_torchrun(words: list[str], place: Place) -> list[str]:
    options: dict[str, object] = {
        "nproc-per-node": place.gpus,
        "nnodes": place.nodes,
        "node-rank": place.node,
        "master-addr": place.address,
        "master-port": place.port,
    }
    if "--standalone" in words or any("rdzv" in name for name in _option_names(words)):
        options = {"nproc-per-node": place.gpus}  # it has a meeting point of its own
    return _add(words, options)


def _fit_accelerate(words: list[str], place: Place) -> list[str]:
    options: dict[str, object] = {
        "num_processes": place.gpus * place.nodes,
        "num_machines": place.nodes,
        "main_process_port": place.port,
    }
    if place.nodes > 1:
        options |= {"machine_rank": place.node, "main_process_ip": place.address}
    return _add(words, options)


def _fit_deepspeed(words: list[str], place: Place) -> list[str]:
    options: dict[str, object] = {"num_gpus": place.gpus, "master_port": place.port}
    if place.nodes > 1:
        options |= {"num_nodes": place.nodes, "node_rank": place.node}
        return ["--no_ssh", *_add(words, {**options, "master_addr": place.address})]
    return _add(words, options)


def _fit_mpirun(words: list[str], place: Place) -> list[str]:
    counted = _option_names(words) & {"np", "n", "c"}
    return words if counted else ["-np", str(place.gpus), *words]


_FITTED: dict[str, Callable[[list[str], Place], list[str]]] = {
    "torchrun": _fit_torchrun,
    "accelerate": _fit_accelerate,
    "deepspeed": _fit_deepspeed,
    "mpirun": _fit_mpirun,
    "mpiexec": _fit_mpirun,
    "ray_job": lambda words, _: words,  # it reads the variables
}


def _add(words: list[str], options: Mapping[str, object]) -> list[str]:
    """These options in front, but for those that the person gave."""
    present = _option_names(words)
    new = [
        f"--{name}={value}"
        for name, value in options.items()
        if name.replace("_", "-") not in present
    ]
    return [*new, *words]


def _option_names(words: Sequence[str]) -> set[str]:
    """The names of the launcher's own options: those before the program."""
    own = takewhile(lambda word: not _is_program(word), words)
    names = (word.lstrip("-").partition("=")[0] for word in own if word.startswith("-"))
    return {name.replace("_", "-") for name in names}


def _is_program(word: str) -> bool:
    path = word.endswith(".py") or "/" in word
    return not word.startswith("-") and (path or word.startswith("python"))
