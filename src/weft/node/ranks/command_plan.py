"""From an attempt's description to the processes its command is started as: pure but for a look."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from pathlib import Path

from weft.frozen import frozen
from weft.node.ranks.launchers import Place, fit_launcher, starts_per_gpu
from weft.node.ranks.rank import Limits, python_script
from weft.wire.attempt import AttemptSpec

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
    alone: Place | None
    warm: bool


def plan_command(spec: AttemptSpec, port: int, *, warm: bool) -> CommandPlan:
    """How the command is started; `warm` says whether scripts can be run without a new Python."""
    gpus = len(spec.devices)
    each = not spec.pty and starts_per_gpu(spec.processes, spec.command, spec.workdir, gpus)
    alone = None if each else place_of(spec, port)
    count = max(gpus, 1) if each else 1
    script = python_script(spec.command, {**os.environ, **spec.env}.get("PATH"))
    if warm and script is not None and not spec.activate and not spec.container:
        return CommandPlan(script, count, alone, warm=True)
    command = spec.command if alone is None else fit_launcher(spec.command, alone)
    if spec.pty and len(command) == 1:
        command = shell_command(command[0])
    return CommandPlan(activate(spec, command), count, alone, warm=False)


def plan_setup(spec: AttemptSpec) -> Sequence[str]:
    """What runs once before the command; empty for nothing."""
    if not spec.prepare and not spec.setup:
        return ()
    if spec.container:
        return activate(spec, ("sh", "-ec", spec.setup))
    return (*SHELL, "\n".join(filter(None, (spec.prepare, spec.activate, spec.setup))))


def activate(spec: AttemptSpec, command: Sequence[str]) -> Sequence[str]:
    """The command in the environment that the job asks for."""
    lines = "\n".join(filter(None, (spec.activate, spec.container)))
    return (*SHELL, f'{lines}\nexec "$@"', "bash", *command) if lines else command


def shell_command(shell: str) -> tuple[str, ...]:
    """A person's shell; bash with the job's variables also after what `.bashrc` sets."""
    return (shell, "--rcfile", str(SETTINGS)) if Path(shell).name == "bash" else (shell,)


def place_of(spec: AttemptSpec, port: int) -> Place:
    """Where the attempt's processes on this node run."""
    gpus = len(spec.devices)
    each = max(gpus, 1)  # a launcher starts one process also where there is no device
    return Place(each, spec.nodes, spec.node_rank, spec.master_addr, port)


def limits_of(spec: AttemptSpec, local: int, alone: Place | None, group: Path | None) -> Limits:
    """What one process may use of the machine: its device's part, or all of the job's."""
    parts = spec.cores if alone else spec.cores[local : local + 1]
    cores = tuple(core for part in parts for core in part)
    # CUDA maps far more addresses than memory: with GPUs, also such as only the node knows, none.
    plain = spec.visible is None and not spec.learnt
    mem_gb = spec.mem_gb / (1 if alone else max(len(spec.devices), 1)) if plain else 0.0
    return Limits(cores, mem_gb, group, nice=0 if spec.devices else NICE)


def find_free_port(address: str = LOOPBACK) -> int:
    """A port that nothing listens on, of loopback or where other nodes reach this one."""
    with socket.socket() as listener:
        listener.bind((LOOPBACK if address == LOOPBACK else "", 0))
        port: int = listener.getsockname()[1]
        return port
