"""slurmdbd and a database for a throw-away Slurm, on loopback: associations are enforced."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from tests.clusters.slurm import SBIN, SlurmCluster, _kill, missing
from tests.ports import free_ports

PROGRAMS = ("slurmdbd", "sacctmgr", "mariadbd", "mariadb-install-db", "mariadb")
INSTALL = "apt-get install -y --no-install-recommends slurmdbd mariadb-server"
WAIT_S = 600.0
CONF = """AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
CommunicationParameters=NoInAddrAny
DbdHost=localhost
DbdAddr=127.0.0.1
DbdPort={dbd}
SlurmUser=root
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={port}
StorageUser=slurm
StoragePass=slurm
StorageLoc=slurm
LogFile={folder}/log/slurmdbd.log
PidFile={folder}/slurmdbd.pid
"""
SLURM = """AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={dbd}
AccountingStoragePass={folder}/munge/socket
AccountingStorageEnforce=associations,qos"""


def what_is_missing() -> str:
    """Which programs are not installed here, in words; empty if all are and we are root."""
    gone = [name for name in PROGRAMS if shutil.which(name, path=_path()) is None]
    if gone:
        return f"{', '.join(gone)} not installed: {INSTALL}"
    return missing() or ("" if os.geteuid() == 0 else "only root can start a database as its user")


@contextmanager
def accounted_cluster(folder: Path) -> Iterator[SlurmCluster]:
    """Slurm that knows accounts; `sacctmgr -i` adds them, with SLURM_CONF of its environment."""
    port, dbd = free_ports(2)
    cluster = replace(SlurmCluster(folder), accounting=SLURM.format(dbd=dbd, folder=folder))
    (folder / "log").mkdir(parents=True)
    with ExitStack() as stack:
        stack.callback(_start_database(folder, port).wait)
        stack.callback(_kill, folder / "database/pid", signal.SIGTERM)
        conf = folder / "slurmdbd.conf"
        conf.write_text(CONF.format(folder=folder, port=port, dbd=dbd))
        conf.chmod(0o600)
        cluster.start_munge()
        cluster.conf.write_text("ClusterName=weft\nSlurmctldHost=localhost\n")
        stack.callback(_kill, folder / "slurmdbd.pid", signal.SIGTERM)
        _run(cluster, "slurmdbd")
        _until(lambda: b" started" in (folder / "log/slurmdbd.log").read_bytes(), "slurmdbd")
        stack.callback(cluster.down)
        cluster.up()
        yield cluster


def _start_database(folder: Path, port: int) -> subprocess.Popen[bytes]:
    place = folder / "database"
    place.mkdir()
    shutil.chown(place, "mysql")
    files = ["--user=mysql", f"--datadir={place}/data"]
    env = {**os.environ, "PATH": _path()}
    install = ["mariadb-install-db", *files, "--auth-root-authentication-method=normal"]
    subprocess.run(install, env=env, check=True, capture_output=True)
    options = [f"--socket={place}/socket", f"--pid-file={place}/pid", f"--port={port}"]
    with (folder / "log/database.log").open("wb") as out:
        database = subprocess.Popen(
            ["mariadbd", *files, *options, "--bind-address=127.0.0.1"],
            env=env,
            stdout=out,
            stderr=out,
        )
    whom = [f"slurm@{host}" for host in ("localhost", "127.0.0.1")]
    grant = "; ".join(f"grant all on *.* to {account} identified by 'slurm'" for account in whom)
    ask = ["mariadb", f"--socket={place}/socket", "--user=root", "--execute", grant]
    _until(lambda: not subprocess.run(ask, capture_output=True).returncode, "the database")
    return database


def _run(cluster: SlurmCluster, *command: str) -> None:
    subprocess.run(command, env=cluster.env, check=True, capture_output=True, timeout=WAIT_S)


def _path() -> str:
    return f"{os.environ.get('PATH', '')}:{SBIN}"


def _until(truth: object, what: str) -> None:
    assert callable(truth)
    until = time.monotonic() + WAIT_S
    while not truth():
        assert time.monotonic() < until, f"{what} does not answer"
        time.sleep(0.1)
