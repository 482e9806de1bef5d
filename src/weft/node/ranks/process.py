"""From a plan of a command to one of its processes, which has the job's name in `ps` and `top`.

The kernel calls a process after the file it was started from. So a command is started by a link
of the job's name to its program; what the program sees of itself, its arguments and
`/proc/self/exe`, is as ever. Programs with `#!` are started as they are, since they see the name.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from weft.frozen import frozen
from weft.node.guard.identity import acting_as
from weft.node.ranks.command_plan import CommandPlan, limits_of
from weft.node.ranks.environment import rank_environment
from weft.node.ranks.rank import Rank, start_rank
from weft.wire.attempt import AttemptSpec

LINKS = "bin"
LONGEST = 15  # what the kernel keeps of a name


@frozen
class Home:
    """What the processes of an attempt have in common.

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
