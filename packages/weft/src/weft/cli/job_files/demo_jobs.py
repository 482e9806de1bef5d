"""The jobs of the demonstration: the training examples, elastic and shared, some seconds apart."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any

from weft.cli.connect.client import ServiceClient, ServiceUnreachable, active_jobs
from weft.core.errors import InvalidConfig
from weft.frozen import frozen
from weft.service.responses.answers import Made

GRACE_S = 10.0


@frozen
class DemoJob:
    """A job that comes `after` seconds; it takes a `part` of one GPU, or up to `most`."""

    after: float
    name: str
    script: str
    epochs: int
    tenant: str
    batch: tuple[int, int]
    most: int = 1
    part: float = 1.0

    def body(self, scripts: Path) -> dict[str, Any]:
        """Return the job as a job file states it."""
        return {
            "name": self.name,
            "command": [sys.executable, str(scripts / f"{self.script}.py")],
            "workdir": str(scripts),
            "env": {"EPOCHS": str(self.epochs), "OMP_NUM_THREADS": "1"},
            "gpus": {"min": 1, "max": self.most} if self.most > 1 else 1,
            "batch": {"init": self.batch[0], "max": self.batch[1]},
            "share": self.part if self.part < 1.0 else "allowed",
            "tenant": self.tenant,
            "checkpoint": {"grace_s": GRACE_S},
        }


IMAGE, LANGUAGE, REGRESSION = (64, 256), (16, 64), (64, 512)  # as the scripts allow
WORKLOAD = (
    DemoJob(0.0, "pictures", "image", 32, "vision", IMAGE, most=4),
    DemoJob(5.0, "speller", "language", 40, "words", LANGUAGE, most=2),
    DemoJob(10.0, "law-a", "regression", 60, "science", REGRESSION, part=0.5),
    DemoJob(12.0, "law-b", "regression", 60, "science", REGRESSION, part=0.5),
    DemoJob(14.0, "thumbnails", "image", 8, "vision", IMAGE, part=0.5),
    DemoJob(16.0, "primer", "language", 10, "words", LANGUAGE),
)
GROW = "gandiva:elastic=true,quantum=30"
SHARE = "las"
CAPTIONS = {
    GROW: "few jobs: they grow into unused slots",
    SHARE: "many jobs: large ones make room, small ones share a slot by halves",
}
FEW = 2


def choose_fitting(active: int) -> str:
    """The policy for that many jobs: grow while there is room, share while there is none.

    A service changes its policy while jobs run; the demonstration does so by itself.
    """
    return GROW if active <= FEW else SHARE


def find_scripts() -> Path:
    """The folder of the training examples, in a checkout or in an installed package."""
    here = Path(__file__).resolve()
    for folder in (here.parents[2] / "examples" / "train", here.parents[6] / "examples" / "train"):
        if (folder / "image.py").is_file():
            return folder
    raise InvalidConfig(
        "the training examples are not here", hint="install Weft again, or run in its checkout"
    )


def check_torch() -> None:
    """Raise InvalidConfig where the jobs could not run."""
    missing = [name for name in ("weft_train", "fastapi", "uvicorn") if find_spec(name) is None]
    if missing:
        raise InvalidConfig(
            f"the demonstration needs {' and '.join(missing)}",
            hint="pip install 'weft[serve,train]'",
        )


EVERY_S = 40.0  # gently: a job or two at a time on someone's laptop
MOST = 3  # that run or wait


def feed(client: ServiceClient, pause: Callable[[float], object] = time.sleep) -> int:
    """Submit one of the workload from time to time, until the service has gone; how many."""
    scripts, made = find_scripts(), 0
    for number in count():
        later = WORKLOAD[number % len(WORKLOAD)]
        later = replace(later, name=f"{later.name}-{number // len(WORKLOAD) + 2}")
        try:
            if len(active_jobs(client)) < MOST:
                client.post(Made, "/jobs", later.body(scripts))
                made += 1
        except ServiceUnreachable:
            break
        pause(EVERY_S)
    return made


if __name__ == "__main__":
    feed(ServiceClient(sys.argv[1], token=""))
