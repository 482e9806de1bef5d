"""The job's name in `ps` and `top`, without touching the arguments of its command.

The kernel calls a process after the file it was started from. So a command is started by a link
of the job's name to its program; what the program sees of itself, its arguments and
`/proc/self/exe`, is as ever. Programs with `#!` are started as they are, since they see the name.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from weft.node.guard.identity import acting_as
from weft.wire.attempt import AttemptSpec

LINKS = "bin"
LONGEST = 15  # what the kernel keeps of a name


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
