"""One attempt of a job on one node: the request to its agent, and the folder they share.

The engine writes `spec.json` and starts an agent; the agent claims the folder by `claim.json`
and from then on writes `events.jsonl`. Requests are files too (`stop.json`, `adjust.json`), so
they cannot be lost between two processes that may both be killed at any time.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Mapping
from dataclasses import asdict, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from weft.base.errors import WireError
from weft.base.messages import Turns
from weft.base.typed import LEAVES, Reader
from weft.frozen import frozen
from weft.run_terms import Processes, RunTerms
from weft.wire.identity import Identity
from weft.wire.shared_files import given_to, make_file, read_regular

SPEC, CLAIM, EVENTS = "spec.json", "claim.json", "events.jsonl"
STOP, ADJUST, AGENT_LOG = "stop.json", "adjust.json", "agent.log"
RESIZE = "resize.json"
JOINED = "+"  # between a node and the change that its part joined with; never in a node's name
CHANGE = "change.json"  # the same for one part of several, step by step
MEASURED = "measured.json"  # what the agent saw of the attempt in the last minutes
MASTER, BEAT, CURRENT = "master.json", "beat", "CURRENT"  # of attempts on several nodes
ADDRESS = "WEFT_NODE_ADDRESS"  # how other nodes reach this one, where only it knows
TERMINAL = "terminal.sock"
SHELLS = "shell.sock"  # each connection gets its own shell beside the job
USER = "user.json"  # in a job's folder: whom its ranks run as
TAG = "WEFT_ATTEMPT_DIR"  # in the environment of every process of an attempt
LONGEST_NAME = 120
LONGEST_SOCKET = 100


PLAIN_RUN = RunTerms(processes=Processes.PER_GPU, watch=False)  # of a job that says nothing


@frozen
class AttemptSpec:
    """Everything an agent needs to know.

    `devices` are the node's device numbers, one for each rank here; `cores` the CPUs of each.
    `run` is what the job says about its processes. `prepare` is a script that runs once before its
    `setup`; `activate` is what every process begins with, lines for bash as both of them, as is
    `container`, which puts a command into an image. `turns` is how ranks share their devices.
    `visible` is the value of CUDA_VISIBLE_DEVICES, None on a node without GPUs. `cpus` and
    `mem_gb` limit all ranks together, 0 does not. `group` is the control group of the attempt,
    empty for none, and `limits` what is written into its files.
    `gpu_mem_gb` is its claim on the memory of each device, `time_shift` the period and the shift of
    its iterations in seconds, None where they begin when they may. `notices` are words on what
    could not be applied, each with its level. `notify` is a datagram socket that is poked after
    every event. `lock` is held by every process of the attempt, `audit` a file that agents append
    their begin and end to. `user` is whom the ranks run as, None for the agent's own. `name` is
    what `ps` calls them. `most_ranks` is how many they may become as they train, 0 if they may not
    change; new ones may take `resize_limit_s` to be ready, and the others as long to switch. `part`
    says that this is one of an attempt's parts, a folder inside the attempt's, of which there is
    one on each of `nodes` nodes; `node_rank` is which. `learnt` says that its devices are those in
    CUDA_VISIBLE_DEVICES of the agent. `suspender` is the command that moves what processes hold on
    their devices to host memory and back (`weft.node.asleep`), empty where nothing can.
    `objects` is where its checkpoints are if not in a folder: an address in an object store, which
    the job alone reads and writes. `common` is a folder that the agents of all its attempts may
    write in, empty where they may write in those of the job and of its attempts. `join` is the
    change of an attempt's ranks that a part is started for, 0 for those it begins with, and
    `members` are the numbers of all ranks by rank, where these differ. `address` is how others
    reach this node.
    """

    job: str
    attempt: int
    command: tuple[str, ...]
    workdir: str
    checkpoints: str
    devices: tuple[int, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    run: RunTerms = PLAIN_RUN
    prepare: str = ""
    activate: str = ""
    container: str = ""
    kind: str = "cpu"
    node: str = ""
    nodes: int = 1
    node_rank: int = 0
    first_rank: int = 0
    world_size: int = 0
    master_addr: str = "127.0.0.1"
    master_port: int = 0
    visible: str | None = None
    cores: tuple[tuple[int, ...], ...] = ()
    cpus: float = 0.0
    asked_cpus: float = 0.0
    mem_gb: float = 0.0
    group: str = ""
    limits: Mapping[str, str] = field(default_factory=dict)
    gpu_mem_gb: float = 0.0
    notices: tuple[tuple[str, str], ...] = ()
    batch: tuple[int, int] | None = None
    discipline: str = "none"
    turns: Turns = Turns("")
    time_shift: tuple[float, float] | None = None
    notify: str = ""
    lock: str = ""
    audit: str = ""
    user: Identity | None = None
    name: str = ""
    most_ranks: int = 0
    resize_limit_s: float = 120.0
    part: bool = False
    learnt: bool = False
    suspender: tuple[str, ...] = ()
    objects: str = ""
    common: str = ""
    join: int = 0
    members: tuple[int, ...] = ()
    address: str = ""

    def write(self, folder: Path) -> None:
        write_whole(folder / SPEC, self.as_json())

    def as_json(self) -> dict[str, Any]:
        """Plain values, as `of` reads them; an agent of the last version finds the parts' too."""
        body = asdict(self)
        return {**body["run"], **body["turns"], **body}

    @classmethod
    def read(cls, path: Path) -> AttemptSpec:
        """The spec that `write` wrote."""
        try:
            body = read_json(path)
        except OSError as error:
            raise WireError(f"{path} is not the description of an attempt: {error}") from error
        if body is None:
            raise WireError(f"{path} is not there")
        return cls.of(body, str(path))

    @classmethod
    def of(cls, body: Mapping[str, Any], path: str = RESIZE) -> AttemptSpec:
        """From the values that `write` wrote into `path`; the last version had no parts."""
        try:
            parts = {name: body.get(name, body) for name in ("run", "turns")}
            spec: AttemptSpec = _READER.of(cls)({**body, **parts})
        except (TypeError, ValueError) as error:
            raise WireError(f"{path} does not describe an attempt: {error}") from error
        return spec


def _missing(kind: type, name: str) -> ValueError:
    return ValueError(f"{kind.__name__} has no {name!r}")


_READER = Reader(LEAVES, missing=_missing)


def folder_of(root: Path, job: str, attempt: int) -> Path:
    """The folder of an attempt of `job` below `root`."""
    return job_folder(root, job) / str(attempt)


def job_folder(root: Path, job: str) -> Path:
    """The folder of a job below `root`, whatever characters its id has."""
    name = quote(job, safe="").replace(".", "%2E")
    if len(name) > LONGEST_NAME:
        name = name[:60] + "-" + hashlib.sha256(job.encode()).hexdigest()[:32]
    return root / "jobs" / name


def part_folder(attempt: Path, node: str, epoch: int = 0) -> Path:
    """The folder of the part of an attempt on `node`; host names stand for themselves.

    A part that joins the others with a change of the ranks has its `epoch` behind the name.
    """
    name = quote(node, safe="")
    plain = name if name.strip(".") else name.replace(".", "%2E")
    return attempt / (f"{plain}{JOINED}{epoch}" if epoch else plain)


def short_path(path: Path) -> str:
    """A path for a socket: the kernel takes 108 bytes, so a deep one moves to the temp folder."""
    if len(str(path).encode()) <= LONGEST_SOCKET:
        return str(path)
    name = hashlib.sha256(str(path).encode()).hexdigest()[:24]
    folder = Path(f"/tmp/weft-{os.getuid()}")  # noqa: S108 - must be short; its sockets are closed themselves
    folder.mkdir(mode=0o711, exist_ok=True)
    if folder.stat().st_uid != os.getuid():
        raise WireError(f"{folder} belongs to someone else")
    return str(folder / f"{name}.sock")


def token_socket(root: Path, node: str, discipline: str) -> str:
    """The socket of a node's coordinator of stage tokens: in a folder of that machine alone."""
    name = hashlib.sha256(f"{root}|{node}|{discipline}".encode()).hexdigest()[:24]
    return f"/tmp/weft-{os.getuid()}/{name}.tokens"  # noqa: S108 - its folder is the user's own


def write_whole(path: Path, body: Any) -> None:
    """JSON that is there completely or not at all.

    In a folder that root gave to a user the file is that user's, and in one that is shared with a
    user both may read it. Links that were there before are
    not followed.
    """
    fresh = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_native_id()}")
    fresh.unlink(missing_ok=True)
    handle = make_file(fresh, os.O_WRONLY | os.O_EXCL | os.O_NOFOLLOW)
    with os.fdopen(handle, "w") as out:
        own = os.fstat(handle).st_uid
        if (owner := given_to(path.parent, own)) != own:
            os.fchown(handle, owner, -1)
        json.dump(body, out)
        out.flush()
        os.fsync(out.fileno())
    fresh.replace(path)


def read_json(path: Path) -> dict[str, Any] | None:
    """The content of a file that is written whole; None if there is none, WireError if no JSON."""
    try:
        body = json.loads(read_regular(path))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise WireError(f"{path} is not JSON: {error}") from error
    if not isinstance(body, dict):
        raise WireError(f"{path} holds {str(body)[:50]!r}, expected an object")
    return body


def put_claim(fresh: Path, folder: Path) -> bool:
    """Make the written file `fresh` the claim of a folder; False if there is one."""
    try:
        os.link(fresh, folder / CLAIM)
    except FileExistsError:
        return False
    finally:
        fresh.unlink()
    return True
