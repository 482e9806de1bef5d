"""Processes by who they are, not by a number that may be given to another: Linux only."""

from __future__ import annotations

import ctypes
import errno
import os
import signal
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from stat import S_IWUSR

PROC = Path("/proc")
# We could not look, which says nothing of the process itself.
CANNOT_LOOK = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
STOP_BIT = 1 << (signal.SIGSTOP - 1)
LISTENING = "0A"  # as /proc/net/tcp says it
LOOPBACK = {"tcp": "127.0.0.1", "tcp6": "::1"}
PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_NAME = 15
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38


@contextmanager
def skip_gone() -> Iterator[None]:
    """Pass over what is not there any more, or not for us to see; not over our own troubles."""
    try:
        yield
    except OSError as error:
        if error.errno in CANNOT_LOOK:
            raise


def start_time(pid: int) -> int | None:
    """The start of a process, in ticks since boot; None if it is gone or only a zombie."""
    stat = _stat(pid)
    return None if stat is None or stat[0] in "ZX" else int(stat[19])


def is_frozen(pid: int) -> bool:
    """True if a process was made to stand still by a signal."""
    stat = _stat(pid)
    return stat is not None and stat[0] == "T"


def is_stopping(pid: int) -> bool:
    """True if a process stands in the kernel and will be stopped before it runs again.

    Such as one that waits for the child of a vfork, which is stopped itself.
    """
    stat = _stat(pid)
    if stat is None or stat[0] != "D":
        return False
    with suppress(OSError):
        for line in (PROC / str(pid) / "status").read_text().splitlines():
            if line.startswith(("SigPnd:", "ShdPnd:")) and int(line.split()[1], 16) & STOP_BIT:
                return True
    return False


def _stat(pid: int) -> list[str] | None:
    """Fields of /proc/PID/stat from the state on; None if there is no such process."""
    try:
        text = (PROC / str(pid) / "stat").read_text()
    except OSError as error:
        if error.errno in CANNOT_LOOK:
            raise
        return None
    return text[text.rindex(")") + 2 :].split()


def cpu_seconds(pid: int) -> float:
    """Processor seconds that a process has used so far; 0 where that cannot be read."""
    stat = _stat(pid)
    return 0.0 if stat is None else (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")


def alive(pid: int, began: int) -> bool:
    """True if the process that began then still runs."""
    return start_time(pid) == began


def descendants(pid: int) -> list[int]:
    """Children of a process, theirs, and so on, zombies left out.

    Of a process that adopts orphans these are all that it ever started, whatever they did.
    """
    children: dict[int, list[int]] = {}
    for child in _pids():
        stat = _stat(child)
        if stat is not None:
            children.setdefault(int(stat[1]), []).append(child)
    pids, to_visit = [], [pid]
    while to_visit:
        below = children.get(to_visit.pop(), [])
        pids += below
        to_visit += below
    return [child for child in pids if start_time(child) is not None]


def find_holding(path: Path, *, writing: bool = False) -> list[int]:
    """Processes that have the file `path` open: open files are inherited, environments are not.

    With `writing` those that may write to it, not those that read.
    """
    try:
        wanted = path.stat()
    except OSError:
        return []
    mark = (wanted.st_dev, wanted.st_ino)
    others = (pid for pid in _pids() if pid != os.getpid())
    return [pid for pid in others if mark in _open_files(pid, writing=writing)]


def _open_files(pid: int, *, writing: bool) -> set[tuple[int, int]]:
    open_files: set[tuple[int, int]] = set()
    with skip_gone():  # or another user's
        for entry in os.scandir(PROC / str(pid) / "fd"):
            with suppress(OSError):  # closed meanwhile
                # The link's own mode says how the file was opened.
                if not writing or entry.stat(follow_symlinks=False).st_mode & S_IWUSR:
                    file = entry.stat()
                    open_files.add((file.st_dev, file.st_ino))
    return open_files


def _pids() -> Iterator[int]:
    return (int(entry.name) for entry in os.scandir(PROC) if entry.name.isdigit())


def find_tagged(name: str, value: str) -> Iterator[int]:
    """Processes that were started with `name=value` in their environment."""
    wanted = f"{name}={value}".encode()
    for pid in _pids():
        with skip_gone():  # or another user's
            environ = (PROC / str(pid) / "environ").read_bytes().split(b"\0")
            if wanted in environ and start_time(pid) is not None:
                yield pid


def user_of(pid: int) -> int | None:
    """The user who runs a process, whatever rights it has; None if it is gone."""
    with skip_gone():
        for line in (PROC / str(pid) / "status").read_text().splitlines():
            if line.startswith("Uid:"):
                return int(line.split()[1])
    return None


def kill_all(pids: Collection[int]) -> None:
    """SIGKILL to each that is still there."""
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def memory_gb(pid: int) -> float:
    """Memory of one process, what it shares with others divided among them; 0 when it is gone."""
    try:
        for line in (PROC / str(pid) / "smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024 / 1e9
    except OSError:
        return resident_gb(pid)
    return 0.0


def bind(pid: int, cores: Collection[int]) -> None:
    """Make every thread of a process run on `cores` only; nothing if it is gone."""
    with suppress(OSError):
        for task in os.scandir(PROC / str(pid) / "task"):
            with suppress(OSError):
                os.sched_setaffinity(int(task.name), cores)


def reap_others(spare: Collection[int]) -> None:
    """Take note of the ends of children that no code waits for; `spare` are waited for."""
    while True:
        try:
            result = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        if result is None or result.si_pid in spare:
            return
        with suppress(ChildProcessError):
            os.waitpid(result.si_pid, os.WNOHANG)


def resident_gb(pid: int) -> float:
    """Memory of one process, what it shares with others counted in full; 0 when it is gone."""
    try:
        pages = int((PROC / str(pid) / "statm").read_text().split()[1])
    except OSError:
        return 0.0
    return pages * os.sysconf("SC_PAGESIZE") / 1e9


def die_with_parent(how: signal.Signals = signal.SIGKILL) -> None:
    """From here on this process ends when the thread that started it does."""
    _prctl(PR_SET_PDEATHSIG, how)


def adopt_orphans() -> None:
    """Descendants whose parent dies become children of this process."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


def set_name(name: str) -> None:
    """Set the name of this process in `ps` and `top`, up to fifteen bytes of it."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(PR_SET_NAME, name.encode()[:15], 0, 0, 0)


def no_new_privileges() -> None:
    """From here on no program gives this process or its children more rights than it has."""
    _prctl(PR_SET_NO_NEW_PRIVS, 1)


def allow_own_proc() -> None:
    """Let this process read its own entries in /proc, which a change of user takes from it."""
    _prctl(PR_SET_DUMPABLE, 1)


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))


def find_port(pids: Collection[int], port: int) -> tuple[str, int] | None:
    """The address at which one of these processes listens on `port`; None if none does."""
    own = {inode for pid in pids for inode in _open_sockets(pid)}
    for family, host in LOOPBACK.items():
        if any(inode in own for inode in _listeners(family, port)):
            return host, port
    return None


def _listeners(family: str, port: int) -> Iterator[str]:
    with suppress(OSError):
        for line in (PROC / "net" / family).read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == LISTENING and int(words[1].rpartition(":")[2], 16) == port:
                yield words[9]


def _open_sockets(pid: int) -> Iterator[str]:
    with suppress(OSError):  # gone meanwhile
        for entry in (PROC / str(pid) / "fd").iterdir():
            with suppress(OSError):
                target = str(entry.readlink())
                if target.startswith("socket:["):
                    yield target[8:-1]
