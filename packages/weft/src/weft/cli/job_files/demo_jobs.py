"""The jobs of the demonstration: the training examples, elastic and shared, some seconds apart."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from weft.core.errors import InvalidConfig
from weft.frozen import frozen

GRACE_S = 10.0


@frozen
class Later:
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
        """As a job file has it."""
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
    Later(0.0, "pictures", "image", 32, "vision", IMAGE, most=4),
    Later(5.0, "speller", "language", 40, "words", LANGUAGE, most=2),
    Later(10.0, "law-a", "regression", 60, "science", REGRESSION, part=0.5),
    Later(12.0, "law-b", "regression", 60, "science", REGRESSION, part=0.5),
    Later(14.0, "thumbnails", "image", 8, "vision", IMAGE, part=0.5),
    Later(16.0, "primer", "language", 10, "words", LANGUAGE),
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
    for folder in (here.parents[2] / "examples" / "train", here.parents[4] / "examples" / "train"):
        if (folder / "image.py").is_file():
            return folder
    raise InvalidConfig(
        "the training examples are not here", hint="install Weft again, or run in its checkout"
    )


def check_torch() -> None:
    """Raise InvalidConfig where the jobs could not run."""
    from importlib.util import find_spec

    missing = [name for name in ("torch", "fastapi", "uvicorn") if find_spec(name) is None]
    if missing:
        raise InvalidConfig(
            f"the demonstration needs {' and '.join(missing)}",
            hint="pip install 'weft[serve,train]'",
        )
