"""A Slurm cluster of four nodes on this machine, from Debian's packages.

    python -m tests.clusters.slurm up FOLDER      # prints the SLURM_CONF to use
    python -m tests.clusters.slurm down FOLDER

Everything listens on loopback and writes below FOLDER, with a munge key of its own. Nodes a1 and a2
have four A100s each, t1 and t2 four T4s: device files that swallow everything. Slurm does not
confine processes here, so that those of a killed slurmd run on, as on a node that lost its network.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.ports import free_ports
from weft.wire.processes import descendants, find_tagged, kill_all, start_time

if TYPE_CHECKING:
    import pytest

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "squeue", "sinfo", "scancel")
INSTALL = "apt-get install -y --no-install-recommends slurm-wlm slurmctld slurmd slurm-client munge"
NODES = ("a1", "a2", "t1", "t2")
GPUS = 4
UP_S = 600.0
STEP = "slurmstepd"  # runs a step, and outlives its slurmd
SBIN = "/usr/sbin:/sbin"

CONF = """ClusterName=weft
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/log/slurmctld.log
SlurmdLogFile={folder}/log/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
{accounting}
MpiDefault=none
SwitchType=switch/none
ReturnToService=2
SlurmdTimeout={lost_s}
KillWait=5
MinJobAge=86400
MaxJobCount=20000
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=2,bf_interval=2,sched_min_interval=0,batch_sched_delay=0
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
GresTypes=gpu
SlurmdParameters=config_overrides
NodeName=a1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} {sizes} Gres=gpu:a100:4
NodeName=a2 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} {sizes} Gres=gpu:a100:4
NodeName=t1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[3]} {sizes} Gres=gpu:t4:4
NodeName=t2 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[4]} {sizes} Gres=gpu:t4:4
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
{more}
"""
GRES = """AutoDetect=off
NodeName=a[1-2] Name=gpu Type=a100 File={folder}/dev/gpu[0-3]
NodeName=t[1-2] Name=gpu Type=t4 File={folder}/dev/gpu[0-3]
"""


def missing() -> str:
    """Which of Slurm's programs are not installed here, in words; empty if all are."""
    path = f"{os.environ.get('PATH', '')}:{SBIN}"
    gone = [name for name in PROGRAMS if shutil.which(name, path=path) is None]
    return f"{', '.join(gone)} not installed: {INSTALL}" if gone else ""


@dataclass(frozen=True, slots=True)
class SlurmCluster:
    """The cluster below `folder`; a node without a sign of life is down after `lost_s` seconds.

    `accounting` is what its configuration says of that (`tests.clusters.slurm_accounting`), and
    `more` are further lines of it. `bare` are more nodes, without GPUs.
    """

    folder: Path
    lost_s: int = 20
    accounting: str = "AccountingStorageType=accounting_storage/none"
    more: str = ""
    bare: tuple[str, ...] = ()

    @property
    def nodes(self) -> tuple[str, ...]:
        """All of its nodes."""
        return (*NODES, *self.bare)

    @property
    def conf(self) -> Path:
        """What SLURM_CONF is to be."""
        return self.folder / "slurm.conf"

    @property
    def env(self) -> dict[str, str]:
        """The variables that Slurm's programs need."""
        path = f"{os.environ.get('PATH', '')}:{SBIN}"
        return {**os.environ, "PATH": path, "SLURM_CONF": str(self.conf)}

    # ---- all of it

    def use_in(self, environment: pytest.MonkeyPatch) -> None:
        """Have this process's commands of Slurm speak to it."""
        for name in ("PATH", "SLURM_CONF"):
            environment.setenv(name, self.env[name])

    def up(self) -> None:
        """Write its files, start it, and wait until every node is idle; what was there is ended."""
        self.down()
        for name in ("state", "log", "dev", "munge", *(f"spool/{node}" for node in self.nodes)):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        self._write_files()
        self.start_munge()
        self.start_controller()
        for node in self.nodes:
            self.start_node(node)
        self._wait(lambda: set(self._states()) == {"idle"}, "the nodes are not idle")

    def down(self) -> None:
        """End all that was started; what ran on the nodes as well."""
        for node in self.nodes:
            self.kill_node(node)
        self.kill_controller()
        _kill(self.folder / "munge/pid")
        steps = [pid for pid in find_tagged("SLURM_CONF", str(self.conf)) if _name(pid) == STEP]
        kill_all([*steps, *(descendant for pid in steps for descendant in descendants(pid))])

    def _write_files(self) -> None:
        host, sizes = socket.gethostname().split(".")[0], "CPUs=8 RealMemory=16000"
        first, *ports = free_ports(1 + len(self.nodes))
        at = f"NodeHostname={host} NodeAddr=127.0.0.1"
        bare = [
            f"NodeName={name} {at} Port={port} {sizes}"
            for name, port in zip(self.bare, ports[len(NODES) :], strict=True)
        ]
        self.conf.write_text(
            CONF.format(
                host=host,
                folder=self.folder,
                ports=[first, *ports],
                user=_user(),
                lost_s=self.lost_s,
                accounting=self.accounting,
                more="\n".join([*bare, self.more]),
                sizes=sizes,
            )
        )
        (self.folder / "gres.conf").write_text(GRES.format(folder=self.folder))
        (self.folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
        for gpu in range(GPUS):
            file = self.folder / f"dev/gpu{gpu}"
            if os.getuid() == 0 and not file.exists():
                os.mknod(file, 0o666 | 0o020000, os.makedev(1, 3))  # as /dev/null
            file.touch()

    def start_munge(self) -> None:
        """Start munged with a key of its own, unless it runs."""
        folder = self.folder / "munge"
        if (folder / "pid").exists():
            return
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o711)
        (folder / "key").write_bytes(os.urandom(1024))
        (folder / "key").chmod(0o600)
        files = {"key": "key-file", "socket": "socket", "pid": "pid-file", "log": "log-file"}
        files["seed"] = "seed-file"
        options = [f"--{option}={folder / file}" for file, option in files.items()]
        self._run("munged", "--force", *options)

    # ---- parts of it

    def start_controller(self) -> None:
        """Start slurmctld, with the state it had."""
        self._run("slurmctld", "-f", str(self.conf))

    def kill_controller(self) -> None:
        """End slurmctld; jobs go on. It saves its state: killed, it forgets its last seconds."""
        _kill(self.folder / "slurmctld.pid", signal.SIGTERM)

    def start_node(self, node: str) -> None:
        """Start a node's slurmd, unless it runs."""
        if (self.folder / f"slurmd.{node}.pid").exists():
            return
        self._run("slurmd", "-f", str(self.conf), "-N", node)

    def kill_node(self, node: str) -> None:
        """End a node's slurmd at once; its jobs' processes go on, out of reach."""
        _kill(self.folder / f"slurmd.{node}.pid")

    def clear(self) -> None:
        """Cancel every job and wait until none is left."""
        for user in sorted({_user(), *self._ask("squeue", "-h", "-o", "%u").split()}):
            self._run("scancel", "--full", "--signal=KILL", "--user", user)
            self._run("scancel", "--user", user)
        self._wait(lambda: not self._ask("squeue", "-h"), "jobs are left")

    def _ask(self, *command: str) -> str:
        done = subprocess.run(command, env=self.env, capture_output=True, text=True, check=False)
        return done.stdout.strip() if done.returncode == 0 else done.stderr

    def _states(self) -> list[str]:
        return self._ask("sinfo", "-h", "-N", "-o", "%T").split()

    def _run(self, *command: str) -> None:
        done = subprocess.run(
            command, env=self.env, capture_output=True, text=True, check=False, timeout=UP_S
        )
        if done.returncode:
            raise RuntimeError(f"{command[0]}: {done.stderr.strip() or done.stdout.strip()}")

    def _wait(self, truth: object, what: str) -> None:
        assert callable(truth)
        until = time.monotonic() + UP_S
        while not truth():
            if time.monotonic() > until:
                raise RuntimeError(f"{what} after {UP_S:g} s; see {self.folder / 'log'}")
            time.sleep(0.1)


def _kill(file: Path, how: signal.Signals = signal.SIGKILL) -> None:
    """The process that wrote its number there, if it runs."""
    try:
        pid = int(file.read_text())
        os.kill(pid, how)
    except (FileNotFoundError, ValueError, ProcessLookupError):
        return
    while start_time(pid) is not None:
        time.sleep(0.01)
    file.unlink(missing_ok=True)


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def _user() -> str:
    return pwd.getpwuid(os.getuid()).pw_name


def main() -> None:
    """`up FOLDER` or `down FOLDER`."""
    if len(sys.argv) != 3 or sys.argv[1] not in ("up", "down"):
        sys.exit("usage: python -m tests.clusters.slurm up|down FOLDER")
    if lacking := missing():
        sys.exit(lacking)
    cluster = SlurmCluster(Path(sys.argv[2]).absolute())
    if sys.argv[1] == "down":
        cluster.down()
        return
    cluster.up()
    print(f"export SLURM_CONF={cluster.conf}")  # noqa: T201


if __name__ == "__main__":
    main()
