"""Start one rank: fork, bind it to its parent's life, limit it, and run the command.

A Python script is run in the forked process itself where the parent has what it needs loaded
already (`weft.node.warm`); any other command replaces it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import resource
import shutil
import signal
import sys
import termios
import time
import traceback
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NoReturn

from weft.frozen import frozen
from weft.node.guard.identity import switch_user
from weft.wire.cgroups import join_group
from weft.wire.identity import Identity
from weft.wire.processes import die_with_parent, is_frozen, set_name, start_time

CANNOT_RUN = 127
STILL_S, STILL_LOOK_S = 0.2, 0.001  # one that stands in the kernel is not waited for
BY_ERROR = {errno.EACCES: 126, errno.ENOEXEC: 126}  # as shells have it


@frozen
class Rank:
    """A rank that runs: its process leads a group of its own; `output` is all it prints.

    `pidfd` can be read from when it has ended; None where the kernel has no such thing.
    """

    number: int
    pid: int
    began: int
    output: int
    pidfd: int | None

    def warn(self) -> None:
        """Send SIGUSR1 to the process alone; it ends a process that does not handle it."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGUSR1)

    def read_rest(self) -> bytes:
        """Output that has not been read yet; `output` does not block."""
        rest = b""
        with suppress(OSError):  # nothing more for now, or a terminal that is closed
            while chunk := os.read(self.output, 65_536):
                rest += chunk
        return rest

    def signal(self, what: signal.Signals) -> None:
        """To the whole group; nothing if it is gone."""
        try:
            os.killpg(self.pid, what)
        except ProcessLookupError:
            return


@contextmanager
def held_still(ranks: Collection[Rank]) -> Iterator[bool]:
    """Keep ranks where they are meanwhile; True if any of them had not come to its end by itself.

    A rank that ends while it is asked to leave would look as if it had left for that.
    """
    for rank in ranks:
        rank.signal(signal.SIGSTOP)
    try:
        until = time.monotonic() + STILL_S
        while not all(map(_is_still, ranks)) and time.monotonic() < until:
            time.sleep(STILL_LOOK_S)
        yield any(start_time(rank.pid) is not None for rank in ranks)
    finally:
        for rank in ranks:
            rank.signal(signal.SIGCONT)


def _is_still(rank: Rank) -> bool:
    return is_frozen(rank.pid) or start_time(rank.pid) is None


def pids_of(ranks: Mapping[int, Rank]) -> dict[str, list[int]]:
    """Processes and when they began, as an agent writes them down."""
    return {str(rank.number): [rank.pid, rank.began] for rank in ranks.values()}


@frozen
class RankLimits:
    """Cores to run on (none: all), GB of memory for data (0: no limit), and a control group.

    `nice` is how far it goes behind others on the same cores.
    """

    cores: tuple[int, ...] = ()
    mem_gb: float = 0.0
    group: Path | None = None
    nice: int = 0


def start_rank(
    number: int,
    *,
    command: Sequence[str],
    env: Mapping[str, str],
    workdir: str,
    limits: RankLimits,
    keep: Sequence[int] = (),
    run: Callable[[Sequence[str]], int] | None = None,
    user: Identity | None = None,
    link: str = "",
    pty: bool = False,
) -> Rank:
    """Fork a rank that runs `command`, in this process image by `run` if that is given.

    It becomes `user` before it looks at anything the job named. `link` leads to the command's
    program under the name that the process is to have. With `pty` it has a terminal, whose other
    side is `output`.
    """
    parent = os.getpid()
    output, theirs = os.openpty() if pty else os.pipe()
    armed, arming = os.pipe()
    if user is not None:
        os.fchown(theirs, user.uid, user.gid)  # so that it may open /dev/stdout
    pid = os.fork()
    if pid == 0:
        _child(parent, theirs, command, env, workdir, limits, keep, run, user, link, pty)
    os.close(theirs)
    os.close(arming)
    # Until the child has a group and default signals, a SIGTERM would be lost: it closes its end
    # of this pipe once it has both.
    os.read(armed, 1)
    os.close(armed)
    began = start_time(pid) or 0
    return Rank(number, pid, began, output, _pidfd(pid))


def _child(
    parent: int,
    out: int,
    command: Sequence[str],
    env: Mapping[str, str],
    workdir: str,
    limits: RankLimits,
    keep: Sequence[int],
    run: Callable[[Sequence[str]], int] | None,
    user: Identity | None,
    link: str,
    pty: bool,
) -> NoReturn:
    code = CANNOT_RUN
    try:
        _bind_to(parent)
        if pty:
            os.setsid()
            fcntl.ioctl(out, termios.TIOCSCTTY, 0)
        else:
            os.setpgid(0, 0)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD, signal.SIGPIPE):
            signal.signal(number, signal.SIG_DFL)
        _plumb(out, keep, pty=pty)
        if limits.group is not None:
            join_group(limits.group)
        _limit(limits)
        if user is not None:
            switch_user(user)
            _bind_to(parent)  # a change of user undoes it
        os.chdir(workdir)
        if run is not None:
            if link:
                set_name(Path(link).name)
            os.environ.clear()
            os.environ.update(env)
            code = run(command)
        else:
            if link:
                with suppress(OSError):  # then by its own name
                    os.execve(link, list(command), dict(env))  # noqa: S606 - no shell is meant
            path = shutil.which(command[0], path=env.get("PATH")) or command[0]
            os.execve(path, list(command), dict(env))  # noqa: S606 - no shell is meant
    except OSError as error:
        code = BY_ERROR.get(error.errno or 0, CANNOT_RUN)
        os.write(2, f"cannot run {command[0]!r} in {workdir!r}: {error.strerror}\n".encode())
    except BaseException:
        os.write(2, traceback.format_exc().encode())
    finally:
        os._exit(code)


def _bind_to(parent: int) -> None:
    die_with_parent()
    if os.getppid() != parent:
        os._exit(CANNOT_RUN)


def _plumb(out: int, keep: Sequence[int], *, pty: bool) -> None:
    """Nothing to read but a terminal; what is printed goes to the agent; nothing else is open."""
    os.dup2(out if pty else os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(out, 1)
    os.dup2(out, 2)
    kept = {0, 1, 2, *keep}
    for handle in [int(entry.name) for entry in Path("/proc/self/fd").iterdir()]:
        if handle not in kept:
            with suppress(OSError):  # the listing's own handle
                os.close(handle)
    for handle in keep:
        os.set_inheritable(handle, True)


def _limit(limits: RankLimits) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if limits.mem_gb > 0.0:
        most = int(limits.mem_gb * 1e9)
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    if limits.nice:
        os.nice(limits.nice)
    if limits.cores:
        os.sched_setaffinity(0, limits.cores)


def _pidfd(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except OSError as error:
        if error.errno not in (errno.ENOSYS, errno.EPERM):
            raise
        return None  # a sandboxed kernel: the agent looks for itself


def python_script(command: Sequence[str], path: str | None) -> Sequence[str] | None:
    """The script and its arguments if `command` is this interpreter with a script; else None."""
    if len(command) < 2 or command[1].startswith("-") or not command[1].endswith(".py"):
        return None
    program = shutil.which(command[0], path=path)
    if program is None or not _same_python(program):
        return None
    return command[1:]


def _same_python(program: str) -> bool:
    """True if `program` starts the interpreter that this process is, with its packages."""
    if Path(program).resolve() != Path(sys.executable).resolve():
        return False
    home = Path(program).parent.parent
    return sys.prefix == sys.base_prefix or home.resolve() == Path(sys.prefix).resolve()
