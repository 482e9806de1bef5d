"""Make this machine a node of a cluster that a service elsewhere began."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from weft.core.errors import EngineError, InvalidConfig
from weft.engines.machine.devices import find_gpus
from weft.engines.ray.joining import (
    Leaving,
    check_address,
    join,
    stay_joined,
    unit_path,
    unit_text,
    write_unit,
)
from weft.engines.ray.starting import NodeSetup, check_token, find_setup, read_token, write_token
from weft.frozen import frozen
from weft.wire.gpu_check import check_gpus


@frozen
class Joining:
    """The settings of `weft join`."""

    address: str
    token: Path
    name: str = ""
    kind: str = ""
    gpus: int | None = None
    slots: int = 0
    ip: str = ""
    files: str = ""
    leave_s: float = 60.0

    @property
    def setup(self) -> NodeSetup:
        """The set-up of this machine, found or stated."""
        setup = find_setup(self.name, self.kind, self.gpus, self.slots, self.ip)
        own = str(Path(self.files).absolute()) if self.files else ""
        return replace(setup, own=own, leave_s=self.leave_s)

    def command(self) -> list[str]:
        """The command that joins again, for a machine that boots."""
        setup = self.setup
        options = {
            "--token-file": str(self.token.absolute()),
            "--name": setup.name,
            "--kind": setup.kind,
            "--gpus": str(setup.gpus),
            "--slots": str(setup.slots),
            "--ip": self.ip,
            "--files": setup.own,
            "--leave-s": f"{self.leave_s:g}",
        }
        words = [word for name, value in options.items() if value for word in (name, value)]
        return [sys.executable, "-m", "weft", "join", self.address, *words, "--no-install"]


def find_token(given: Path | None, usual: Path, ask: Callable[[], bytes]) -> Path:
    """The file with a cluster's token: the one named, or one that is written from `ask`."""
    typed = b"" if given is not None or sys.stdin is None else ask().strip()
    if typed:
        write_token(usual, check_token(typed))
    elif given is None and not usual.is_file():
        raise InvalidConfig(
            "no token was given",
            hint="pipe it in, as `weft serve --engine ray` prints it, or use --token-file",
        )
    read_token(given or usual)
    return given or usual


def join_cluster(joining: Joining, say: Callable[[str], None]) -> None:
    """Be a node until asked to leave; EngineError if Ray never takes this machine."""
    if find_spec("ray") is None:
        raise InvalidConfig("joining needs ray", hint="pip install 'weft[ray]'")
    check_address(joining.address)
    setup = joining.setup
    refuse_broken(setup.gpus)
    what = f"{setup.gpus} x {setup.kind}" if setup.gpus else f"{setup.slots} CPU slots"
    say(f"{setup.name} joins {joining.address} with {what}")
    leaving = Leaving(setup, say)
    once = partial(join, setup, joining.address, joining.token, leaving, say)
    done = stay_joined(once, leaving, f"a head at {joining.address}", say)
    if done.code:
        raise EngineError(
            f"{setup.name} is not in the cluster at {joining.address}: {done.reason}",
            hint="is the head up, is the token right, are Ray and Python of the same version?",
        )


def refuse_broken(count: int) -> None:
    """EngineError if one of the first `count` GPUs of this machine cannot be opened."""
    names = [str(gpu.index) for gpu in find_gpus()[:count]]
    faults = {name: fault for name, fault in check_gpus(names).items() if fault}
    if faults:
        well = ",".join(name for name in names if name not in faults)
        raise EngineError(
            "; ".join(f"GPU {name} cannot be used: {fault}" for name, fault in faults.items()),
            hint=f"CUDA_VISIBLE_DEVICES={well} weft join ... leaves it out"
            if well
            else "`nvidia-smi` and `dmesg` say more",
        )


def write_join_unit(joining: Joining) -> tuple[Path, str]:
    """A systemd unit that joins at every boot; where it is, and what switches it on."""
    check_address(joining.address)
    system = os.geteuid() == 0
    text = unit_text(joining.command(), joining.address, joining.leave_s, system=system)
    path = unit_path(system=system)
    return path, write_unit(path, text)
