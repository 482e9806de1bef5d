"""Control groups (version 2): one for each attempt, so that nothing of it can hide or take more.

A group holds every process that its members start, whatever they do to their session, parent or
environment. Killing the group ends them all at once. CPU time and memory are limited where the
kernel lends us these controllers; without them a group still knows its members.
"""

from __future__ import annotations

import errno
import os
import signal
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from weft.frozen import frozen
from weft.wire.processes import skip_gone

CPU, MEMORY = "cpu", "memory"
PERIOD_US = 100_000
SERVICE = "service"  # where a service puts itself, so that its own group may have children
_MISSING = (errno.ENOENT, errno.ENODEV)


@frozen
class Base:
    """A group of ours that those of attempts are made in, and what they can limit."""

    path: Path
    controllers: frozenset[str]

    @property
    def limits_cpu(self) -> bool:
        """True if CPU time can be limited."""
        return CPU in self.controllers

    @property
    def limits_memory(self) -> bool:
        """True if memory can be limited."""
        return MEMORY in self.controllers


def find_base(name: str) -> Base | None:
    """A group `name` below this process's own; None where none may be made or killed."""
    own = own_group()
    if own is None:
        return None
    if own.name == SERVICE:
        own = own.parent  # an earlier start moved itself away
    path = own / name
    try:
        path.mkdir(exist_ok=True)
        controllers = _lend(own) & _lend(path)
    except OSError:
        return None
    return Base(path, controllers) if _usable(path) else None


def _usable(path: Path) -> bool:
    """True if a process of ours can live in a group below `path` and be killed with it."""
    group = path / "trial"
    try:
        make_group(group, {})
        command = ["sh", "-c", 'echo 0 > "$0/cgroup.procs" && kill -STOP $$', str(group)]
        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:  # noqa: S603
            _, status = os.waitpid(process.pid, os.WUNTRACED)
            if os.WIFSTOPPED(status):
                kill_group(group)
                _, status = os.waitpid(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
    except OSError:
        return False
    finally:
        remove_group(group)
    return process.returncode == -signal.SIGKILL


def own_group() -> Path | None:
    """The folder of this process's group; None without version 2."""
    root = _mount()
    if root is None:
        return None
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        if line.startswith("0::"):
            return root / line[3:].lstrip("/")
    return None


def limits_of(
    controllers: frozenset[str], cpus: float, mem_gb: float, soft_gb: float = 0.0
) -> dict[str, str]:
    """The texts for a group's files; 0 sets no limit.

    `soft_gb` is where the kernel begins to take pages back; beyond `mem_gb` processes are killed.
    """
    files: dict[str, str] = {}
    if CPU in controllers and cpus > 0.0:
        files["cpu.max"] = f"{max(round(cpus * PERIOD_US), 1000)} {PERIOD_US}"
    if MEMORY in controllers:
        if soft_gb > 0.0:
            files["memory.high"] = str(int(soft_gb * 1e9))
        if mem_gb > 0.0:
            files["memory.max"] = str(int(mem_gb * 1e9))
            files["memory.oom.group"] = "1"
    return files


def make_group(path: Path, limits: Mapping[str, str]) -> None:
    """Make a group with limits, or change them."""
    path.mkdir(exist_ok=True)
    for name, text in limits.items():
        (path / name).write_text(text)


def join_group(path: Path) -> None:
    """Make this process a member, and with it all that it will start."""
    (path / "cgroup.procs").write_text("0")


def members(path: Path) -> list[int]:
    """Processes of a group and of groups below it; none if it is gone."""
    pids: list[int] = []
    for folder, _, _ in os.walk(path, onerror=_pass_over):
        with skip_gone():  # or made a group of threads
            pids += map(int, Path(folder, "cgroup.procs").read_text().split())
    return pids


def _pass_over(error: OSError) -> None:
    """Skip what os.walk cannot enter and is gone; raise if it was we who could not look."""
    with skip_gone():
        raise error


def kill_group(path: Path) -> None:
    """SIGKILL to every member, also to those being born; nothing if the group is gone."""
    try:
        (path / "cgroup.kill").write_text("1")
    except OSError as error:
        if error.errno not in _MISSING:
            raise


def freeze_group(path: Path, *, frozen: bool) -> bool:
    """Ask the kernel to freeze every member, or to let them go on; False if it cannot."""
    try:
        (path / "cgroup.freeze").write_text("1" if frozen else "0")
    except OSError:
        return False
    return True


def is_group_frozen(path: Path) -> bool:
    """True if no member of a group runs because it is frozen."""
    try:
        return "frozen 1" in (path / "cgroup.events").read_text().splitlines()
    except OSError:
        return False


def remove_group(path: Path) -> bool:
    """Take an empty group away with those below it; whether it is gone."""
    for folder, _, _ in os.walk(path, topdown=False):
        with suppress(OSError):  # still populated
            Path(folder).rmdir()
    return not path.exists()


def out_of_memory(path: Path) -> bool:
    """True if the kernel killed members because the group was over its limit."""
    try:
        lines = (path / "memory.events").read_text().splitlines()
    except OSError:
        return False
    return any(line.startswith("oom_kill ") and line.split()[1] != "0" for line in lines)


def _lend(path: Path) -> frozenset[str]:
    """Let groups below `path` be limited, as far as may be; the controllers they then have."""
    offered = set((path / "cgroup.controllers").read_text().split()) & {CPU, MEMORY}
    switch = path / "cgroup.subtree_control"
    present = set(switch.read_text().split()) & {CPU, MEMORY}
    if offered > present and _vacate(path):
        for name in sorted(offered - present):
            with suppress(OSError):  # not ours to lend
                switch.write_text(f"+{name}")
                present.add(name)
    return frozenset(present)


def _vacate(path: Path) -> bool:
    """True if a group has no processes of its own, as one whose children are limited must not.

    This process moves into a child. Others are not ours to move; the root may have some.
    """
    if not (path / "cgroup.type").exists():
        return True
    inside = {int(pid) for pid in (path / "cgroup.procs").read_text().split()}
    if inside == {os.getpid()}:
        make_group(path / SERVICE, {})
        join_group(path / SERVICE)
    return inside <= {os.getpid()}


def _mount() -> Path | None:
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        if after.startswith("cgroup2 "):
            return Path(before.split()[4].encode().decode("unicode_escape"))
    return None
