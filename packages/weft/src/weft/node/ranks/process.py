"""From a plan of a command to one of its processes, with its variables and its name in `ps`.

The kernel calls a process after the file it was started from. So a command is started by a link
of the job's name to its program; what the program sees of itself, its arguments and
`/proc/self/exe`, is as ever. Programs with `#!` are started as they are, since they see the name.
"""

from __future__ import annotations

import os
import shutil
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from weft.base.environment import Environment
from weft.frozen import frozen
from weft.node.guard.identity import acting_as
from weft.node.ranks.command_plan import (
    CommandPlan,
    LaunchPlace,
    find_launcher,
    launcher_variables,
    limits_of,
)
from weft.node.ranks.rank import Rank, start_rank
from weft.wire.attempt import TAG, AttemptSpec
from weft.wire.memory_waits import without_guard

WATCHER = Path(__file__).parents[1] / "watcher"
# A launcher tells its own processes these; a plain program is not one of several.
SCRIPT_OF_SLURM = "SLURM_SUBMIT_DIR"  # told to scripts of sbatch
SLURM_NUMBERS = 1 << 26  # its own are smaller
OF_A_GANG = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")


def rank_environment(
    spec: AttemptSpec,
    folder: Path,
    local: int,
    *,
    socket: str,
    port: int,
    alone: LaunchPlace | None = None,
) -> dict[str, str]:
    """Our own variables that are not secret, the job's, and the rank's identity and place.

    `alone` is for the one process that has all devices of the job here.
    """
    here = max(len(spec.devices), 1)  # one process also where there is no device
    # A launcher starts a process for each device, with the cores of one.
    whole = alone is not None and not find_launcher(spec.command)
    parts = spec.cores if whole else spec.cores[local : local + 1]
    cores = tuple(core for part in parts for core in part)
    environment = Environment(
        job=spec.job,
        attempt=spec.attempt,
        checkpoints=spec.objects or spec.checkpoints,
        agent=socket,
        **asdict(spec.turns),
        devices=spec.devices,
        kind=spec.kind,
        nodes=spec.nodes,
        cpus=spec.cpus / (1 if whole else here) or float(len(cores)),
        gpu_mem_gb=spec.gpu_mem_gb,
        most_ranks=0 if alone is not None else spec.most_ranks,
        rank=spec.first_rank + local,
        world_size=spec.world_size or here,
        local_rank=local,
        local_world_size=here,
        master_addr=spec.master_addr,
        master_port=port,
    )
    # The service's own variables are not the job's: its token may be among them.
    env = {k: v for k, v in without_guard(os.environ).items() if not k.startswith("WEFT_")}
    if spec.user is not None:
        env.update(spec.user.variables(spec.workdir))
    env["PYTHONUNBUFFERED"] = "1"
    if environment.cpus:
        env["OMP_NUM_THREADS"] = str(len(cores) or max(int(environment.cpus), 1))
    if spec.master_addr == "127.0.0.1":
        env["GLOO_SOCKET_IFNAME"] = "lo"
    if spec.visible is not None:
        env["CUDA_VISIBLE_DEVICES"] = spec.visible
    place = environment.variables()
    if alone is not None:
        place = {name: value for name, value in place.items() if name not in OF_A_GANG}
        place |= launcher_variables(alone)
    env = {**slurm_variables(spec, local), **env, **spec.env, **place, TAG: str(folder)}
    return {**env, **watcher_variables(env.get("PYTHONPATH", ""))} if spec.run.watch else env


def slurm_number(job: str) -> int:
    """A job as a number in the range of Slurm's: scripts compute ports and seeds from it."""
    return zlib.crc32(job.encode()) % SLURM_NUMBERS or 1


def slurm_variables(spec: AttemptSpec, local: int) -> dict[str, str]:
    """Variables that scripts written for Slurm look for; none for jobs that are none."""
    if SCRIPT_OF_SLURM not in spec.env:
        return {}
    tasks = spec.world_size or max(len(spec.devices), 1)
    number = slurm_number(spec.job)
    variables = {
        "SLURM_JOB_ID": number,
        "SLURM_JOBID": number,
        "SLURM_JOB_NUM_NODES": spec.nodes,
        "SLURM_NNODES": spec.nodes,
        "SLURM_NODEID": spec.node_rank,
        "SLURM_PROCID": spec.first_rank + local,
        "SLURM_LOCALID": local,
        "SLURM_GPUS_ON_NODE": len(spec.devices),
        "SLURM_CPUS_ON_NODE": max(round(spec.cpus), 1),
        "SLURM_NTASKS": tasks,
        "SLURM_RESTART_COUNT": spec.attempt - 1,
        "SLURMD_NODENAME": (here := os.uname().nodename),
        **({"SLURM_JOB_NODELIST": here, "SLURM_NODELIST": here} if spec.nodes == 1 else {}),
    }
    return {name: str(value) for name, value in variables.items()}


def watcher_variables(python_path: str) -> dict[str, str]:
    """Variables that put the watcher into every Python process, before the job's own modules."""
    path = os.pathsep.join(filter(None, (str(WATCHER), python_path)))
    return {"WEFT_WATCH": "1", "PYTHONPATH": path}


LINKS = "bin"
LONGEST = 15  # what the kernel keeps of a name


@frozen
class Home:
    """The things that the processes of an attempt have in common.

    Its folder, its agent's socket, the port at which they meet, handles that they inherit, and
    their control group.
    """

    folder: Path
    socket: str
    port: int
    held: Sequence[int]
    group: Path | None


def start_process(
    home: Home,
    spec: AttemptSpec,
    number: int,
    local: int,
    plan: CommandPlan,
    run: Callable[[Sequence[str]], int] | None,
    *,
    pty: bool,
    more: Mapping[str, str],
) -> Rank:
    """Process `local` of a plan, with `more` variables; `run` is for one that is forked warm."""
    env = rank_environment(
        spec, home.folder, local, socket=home.socket, port=home.port, alone=plan.alone
    )
    env.update(more)
    return start_rank(
        number,
        command=plan.command,
        env=env,
        workdir=spec.workdir,
        limits=limits_of(spec, local, plan.alone, home.group),
        keep=home.held,
        run=run,
        user=spec.user,
        link=link_program(home.folder, spec, spec.command if run else plan.command, env),
        pty=pty,
    )


def link_program(
    folder: Path, spec: AttemptSpec, command: Sequence[str], env: Mapping[str, str]
) -> str:
    """A link of the job's name to the command's program; empty where there can be none."""
    with acting_as(spec.user):
        program = _program(command[0], env, spec.workdir)
    if program is None:
        return ""
    links = folder / LINKS
    links.mkdir(exist_ok=True)
    links.chmod(0o711)
    link = links / short_name(spec.name or spec.job)
    if not link.is_symlink():  # another rank may start by it just now
        link.symlink_to(program)
    return str(link)


def short_name(name: str) -> str:
    """A name as the kernel can keep it, and as a file can have it."""
    plain = "".join(sign if sign.isalnum() or sign in "-_.:" else "_" for sign in name)
    cut = plain.encode()[:LONGEST].decode(errors="ignore")
    return cut if cut.strip(".") else "job"


def _program(word: str, env: Mapping[str, str], workdir: str) -> Path | None:
    """The file that a command's first word means, unless it is a script or cannot be read."""
    executable = shutil.which(word, path=env.get("PATH")) if "/" not in word else word
    if executable is None:
        return None
    path = Path(workdir, executable)
    try:
        with path.open("rb") as program:
            return None if program.read(2) == b"#!" else path
    except OSError:
        return None
