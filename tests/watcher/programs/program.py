"""A program of the collection, and the modules that all of them find on their path."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

# As the real one is: its class keeps `n` and `total`, moves by `update` and ends by `close`.
TQDM = """
class tqdm:
    def __init__(self, total=None):
        self.n, self.total, self.disable = 0, total, False
    def update(self, n=1):
        self.n += n
    def close(self):
        self.disable = True
"""
STEPS = """
import os, stat
def steps(n=20):
    from tqdm import tqdm
    bar = tqdm(n)
    for _ in range(n):
        bar.update()
    bar.close()
def descriptors():
    kept = []
    for name in os.listdir("/proc/self/fd"):
        try:
            kept.append((int(name), stat.S_IFMT(os.fstat(int(name)).st_mode)))
        except OSError:
            pass  # the listing itself
    print(sorted(kept), flush=True)
"""
# Every move sends a message: a program of a few steps meets what others meet in hours.
HURRY = """
import sys
counting = sys.modules.get("_weft_watch.counting")
if counting is not None:
    counting.EVERY_S = 0.0
del counting
"""
SHARED = {
    "tqdm/__init__.py": "from .std import tqdm\n",
    "tqdm/std.py": TQDM,
    "tools.py": STEPS,
    "sitecustomize.py": HURRY,
}
START = "from tools import steps, descriptors\n"
END = "\ndescriptors()\n"


@dataclass(frozen=True)
class Program:
    """What is run: `code` by Python with `options`, or `command` in its place.

    `files` are put in its folder, in the places of the shared ones where they have their names.
    `needs` is a package that is not of Python's own. `shell` begins the program by a shell line.
    """

    code: str
    options: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    command: Sequence[str] = ()
    stdin: str = ""
    needs: str = ""
    shell: str = ""
    agent: bool = True

    def write(self, folder: Path) -> None:
        """Put the program and its modules into a folder."""
        for name, text in {**SHARED, **self.files, "program.py": self.code}.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)


def plain(code: str, **more: object) -> Program:
    """A program that steps, and lists its descriptors at the end."""
    return Program(START + code + END, **more)  # type: ignore[arg-type]
