"""From a plan of a command to one of its processes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from weft.frozen import frozen
from weft.node.ranks.command_plan import CommandPlan, limits_of
from weft.node.ranks.environment import rank_environment
from weft.node.ranks.process_name import link_program
from weft.node.ranks.rank import Rank, start_rank
from weft.wire.attempt import AttemptSpec


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
