"""The jobs of the demonstration: the training examples, elastic and shared, some seconds apart."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from weft.core.errors import InvalidConfig


@dataclass(frozen=True, slots=True)
class Later:
    """A job that comes `after` seconds; it may be given up to `most` GPUs."""

    after: float
    name: str
    script: str
    epochs: int
    tenant: str
    batch: tuple[int, int]
    most: int = 1

    def body(self, scripts: Path) -> dict[str, Any]:
        """As a job file has it."""
        return {
            "name": self.name,
            "command": [sys.executable, str(scripts / f"{self.script}.py")],
            "workdir": str(scripts),
            "env": {"EPOCHS": str(self.epochs), "OMP_NUM_THREADS": "1"},
            "gpus": {"min": 1, "max": self.most} if self.most > 1 else 1,
            "batch": {"init": self.batch[0], "max": self.batch[1]},
            "share": "allowed",
            "tenant": self.tenant,
        }


IMAGE, LANGUAGE, REGRESSION = (64, 256), (16, 64), (64, 512)  # as the scripts allow
WORKLOAD = (
    Later(0.0, "pictures", "image", 16, "vision", IMAGE, most=4),
    Later(5.0, "speller", "language", 12, "words", LANGUAGE, most=2),
    Later(8.0, "law-a", "regression", 40, "science", REGRESSION),
    Later(10.0, "law-b", "regression", 40, "science", REGRESSION),
    Later(12.0, "thumbnails", "image", 6, "vision", IMAGE),
    Later(14.0, "primer", "language", 6, "words", LANGUAGE),
)
GROW = "gandiva:elastic=true,quantum=30"
SHARE = "muri"
SAID = {
    GROW: "jobs grow into free slots and shrink when others come",
    SHARE: "more jobs than slots: two share one and take turns stage by stage",
}


def fitting(to_come: int, active: int, slots: int) -> str:
    """The policy for this moment of the show: grow while there is room, share while there is none.

    A service changes its policy while jobs run; the demonstration does so by itself.
    """
    return SHARE if not to_come and active > slots else GROW


def find_scripts() -> Path:
    """The folder of the training examples, in a checkout or in an installed package."""
    here = Path(__file__).resolve()
    for folder in (here.parents[1] / "examples" / "train", here.parents[3] / "examples" / "train"):
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
            hint="pip install 'weft[train,service]'",
        )
