"""From an attempt's description to the processes its command is started as: pure but for a look.

torchrun, accelerate, deepspeed, mpirun and Ray start a process for each GPU themselves, so they are
started once per node, with how many and where they meet; options that a person set stay. A Python
script that imports `weft_train` is started once for each GPU. Anything else is one process that
sees all GPUs of the job on its node.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Callable, Mapping, Sequence
from itertools import takewhile
from pathlib import Path, PurePath

from weft.frozen import frozen
from weft.node.ranks.rank import RankLimits, python_script
from weft.wire.attempt import AttemptSpec

AUTO, ONE, PER_GPU = "auto", "1", "per-gpu"
MOST_BYTES = 1 << 20  # of a script that is looked into
_TRAINER = re.compile(
    rb"^[ \t]*(?:(?:import|from)[ \t]+weft[._]train\b|from[ \t]+weft[ \t]+import[ \t]+train\b)",
    re.M,
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
class LaunchPlace:
    """The place of an attempt's processes: GPUs of this node, nodes of the gang, meeting point."""

    gpus: int
    nodes: int
    node: int
    address: str
    port: int


def starts_per_gpu(processes: str, command: Sequence[str], workdir: str, gpus: int) -> bool:
    """True if `command` is started once for each of `gpus` GPUs rather than once per node."""
    if processes == PER_GPU:
        return True
    if find_launcher(command) is not None:
        return False
    return gpus == 1 or (processes == AUTO and imports_trainer(command, workdir))


def fit_launcher(command: Sequence[str], place: LaunchPlace) -> list[str]:
    """The command with options for its launcher; other commands as they are."""
    launcher = find_launcher(command)
    if launcher is None:
        return list(command)
    name, after = launcher
    return [*command[:after], *_FITTED[name](list(command[after:]), place)]


def launcher_variables(place: LaunchPlace) -> dict[str, str]:
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


def why_restarted(spec: AttemptSpec) -> str:
    """Say why ranks of a job that may have several cannot come and go; empty if they may."""
    launcher = find_launcher(spec.command)
    if launcher is None or spec.most_ranks < 2 or spec.first_rank:
        return ""
    return (
        f"the job is restarted for another number of GPUs: {launcher[0]} starts its processes, and "
        "ends all of them when one leaves; `processes: per-gpu` lets Weft start them"
    )


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
    """True if the Python script that a command runs imports `weft_train` (or `weft.train`)."""
    script = next((word for word in command if word.endswith(".py")), None)
    if script is None:
        return False
    try:
        with Path(workdir, script).open("rb") as source:
            return _TRAINER.search(source.read(MOST_BYTES)) is not None
    except OSError:  # it may exist by the time it is run, and fails if not
        return False


def _fit_torchrun(words: list[str], place: LaunchPlace) -> list[str]:
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


def _fit_accelerate(words: list[str], place: LaunchPlace) -> list[str]:
    options: dict[str, object] = {
        "num_processes": place.gpus * place.nodes,
        "num_machines": place.nodes,
        "main_process_port": place.port,
    }
    if place.nodes > 1:
        options |= {"machine_rank": place.node, "main_process_ip": place.address}
    return _add(words, options)


def _fit_deepspeed(words: list[str], place: LaunchPlace) -> list[str]:
    options: dict[str, object] = {"num_gpus": place.gpus, "master_port": place.port}
    if place.nodes > 1:
        options |= {"num_nodes": place.nodes, "node_rank": place.node}
        return ["--no_ssh", *_add(words, {**options, "master_addr": place.address})]
    return _add(words, options)


def _fit_mpirun(words: list[str], place: LaunchPlace) -> list[str]:
    counted = _option_names(words) & {"np", "n", "c"}
    return words if counted else ["-np", str(place.gpus), *words]


_FITTED: dict[str, Callable[[list[str], LaunchPlace], list[str]]] = {
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


SHELL = ("bash", "-eo", "pipefail", "-c")
SETTINGS = Path(__file__).parents[1] / "sessions" / "shell.bash"
LOOPBACK = "127.0.0.1"
NICE = 5  # a job without devices goes behind those that feed theirs


@frozen
class CommandPlan:
    """`count` processes of `command`; `alone` is for one that has all devices here.

    `warm` ones are forked with their imports behind them: the command is a script's arguments.
    """

    command: Sequence[str]
    count: int
    alone: LaunchPlace | None
    warm: bool


def plan_command(spec: AttemptSpec, port: int, *, warm: bool) -> CommandPlan:
    """The way in which the command is started; `warm`: scripts can be run without a new Python."""
    gpus = len(spec.devices)
    each = not spec.run.pty and starts_per_gpu(spec.run.processes, spec.command, spec.workdir, gpus)
    alone = None if each else launch_place(spec, port)
    count = max(gpus, 1) if each else 1
    script = python_script(spec.command, {**os.environ, **spec.env}.get("PATH"))
    if warm and script is not None and not spec.activate and not spec.container:
        return CommandPlan(script, count, alone, warm=True)
    command = spec.command if alone is None else fit_launcher(spec.command, alone)
    if spec.run.pty and len(command) == 1:
        command = shell_command(command[0])
    return CommandPlan(activate(spec, command), count, alone, warm=False)


def plan_setup(spec: AttemptSpec) -> Sequence[str]:
    """The command that runs once before the job's; empty for nothing."""
    if not spec.prepare and not spec.run.setup:
        return ()
    if spec.container:
        return activate(spec, ("sh", "-ec", spec.run.setup))
    return (*SHELL, "\n".join(filter(None, (spec.prepare, spec.activate, spec.run.setup))))


def activate(spec: AttemptSpec, command: Sequence[str]) -> Sequence[str]:
    """The command in the environment that the job asks for."""
    lines = "\n".join(filter(None, (spec.activate, spec.container)))
    return (*SHELL, f'{lines}\nexec "$@"', "bash", *command) if lines else command


def shell_command(shell: str) -> tuple[str, ...]:
    """A person's shell; bash with the job's variables also after what `.bashrc` sets."""
    return (shell, "--rcfile", str(SETTINGS)) if Path(shell).name == "bash" else (shell,)


def launch_place(spec: AttemptSpec, port: int) -> LaunchPlace:
    """The place where the attempt's processes on this node run."""
    gpus = len(spec.devices)
    each = max(gpus, 1)  # a launcher starts one process also where there is no device
    return LaunchPlace(each, spec.nodes, spec.node_rank, spec.master_addr, port)


def limits_of(
    spec: AttemptSpec, local: int, alone: LaunchPlace | None, group: Path | None
) -> RankLimits:
    """The part of the machine that one process may use: its device's part, or all of the job's."""
    parts = spec.cores if alone else spec.cores[local : local + 1]
    cores = tuple(core for part in parts for core in part)
    # CUDA maps far more addresses than memory: with GPUs, also such as only the node knows, none.
    plain = spec.visible is None and not spec.learnt
    mem_gb = spec.mem_gb / (1 if alone else max(len(spec.devices), 1)) if plain else 0.0
    return RankLimits(cores, mem_gb, group, nice=0 if spec.devices else NICE)


def find_free_port(address: str = LOOPBACK) -> int:
    """A port that nothing listens on, of loopback or where other nodes reach this one."""
    with socket.socket() as listener:
        listener.bind((LOOPBACK if address == LOOPBACK else "", 0))
        port: int = listener.getsockname()[1]
        return port
