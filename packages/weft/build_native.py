"""Compiles `weft.native` when Weft is installed; where that is not possible, Weft is all Python.

So too the library by which allocations of GPU memory wait, on Linux: without it they do not.
`python build_native.py` builds both in place, for those who change the sources.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zlib import crc32

FOLDER = Path(__file__).parent / "src" / "weft" / "native"
# No sums in another order, no fused steps: results equal those of Python to the last bit.
FLAGS = ["-std=c11", "-O2", "-fPIC", "-fno-fast-math", "-ffp-contract=off", "-fvisibility=hidden"]
# The library for LD_PRELOAD: it needs what glibc adds to C, and no place for its own variables.
PRELOAD = FOLDER.parent / "node" / "memory" / "preload"
PRELOAD_FLAGS = ["-std=gnu11", "-O2", "-fPIC", "-fvisibility=hidden", "-ftls-model=initial-exec"]


def digest(folder: Path = FOLDER) -> str:
    """What the sources are; the module carries it, so that an old one is not used with new code."""
    texts = [path.read_bytes() for path in sorted(folder.glob("*.[ch]"))]
    return f"{crc32(b''.join(texts)):08x}"


def build() -> Path:
    """The module beside its sources; CalledProcessError or OSError where it cannot be built."""
    target = FOLDER / f"_native{sysconfig.get_config_var('EXT_SUFFIX')}"
    scratch = target.with_suffix(f".{os.getpid()}")
    mac = sys.platform == "darwin"
    command = [
        *(*find_compiler(), *FLAGS, f'-DDIGEST="{digest()}"'),
        *(("-bundle", "-undefined", "dynamic_lookup") if mac else ("-shared",)),
        *(f"-I{sysconfig.get_paths()['include']}", *map(str, sorted(FOLDER.glob("*.c")))),
        *("-o", str(scratch), "-lm"),
    ]
    try:
        subprocess.run(command, check=True, capture_output=True, text=True)
        scratch.replace(target)
    finally:
        scratch.unlink(missing_ok=True)
    return target


def find_compiler() -> list[str]:
    """The words that start a C compiler."""
    return shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")


def build_preload(folder: Path = PRELOAD) -> Path:
    """The library for LD_PRELOAD in `folder`, named after its sources."""
    target = folder / f"guard-{digest(PRELOAD)}.so"
    scratch = target.with_suffix(f".{os.getpid()}")
    sources = map(str, sorted(PRELOAD.glob("*.c")))
    command = [*find_compiler(), *PRELOAD_FLAGS, "-shared", *sources, "-o", str(scratch), "-ldl"]
    try:
        subprocess.run([*command, "-lpthread"], check=True, capture_output=True, text=True)
        for old in folder.glob("guard-*.so"):
            old.unlink()
        scratch.replace(target)
    finally:
        scratch.unlink(missing_ok=True)
    return target


def try_to_build() -> Path | None:
    """`weft.native`, or None with the reason on standard error."""
    return try_to(build, "weft.native was not compiled; Weft works without it, slower")


def try_to(build: Callable[[], Path], lost: str) -> Path | None:
    """What was built, or None with the reason on standard error."""
    try:
        return build()
    except subprocess.CalledProcessError as problem:
        reason: object = problem.stderr
    except OSError as problem:
        reason = problem
    print(f"{lost}: {reason}", file=sys.stderr)
    return None


def build_all() -> dict[str, Path]:
    """What could be built, by its place in a wheel."""
    if os.environ.get("WEFT_PURE"):
        return {}
    built = {
        "weft/native": try_to(build, "weft.native was not compiled; Weft is slower without it")
    }
    if sys.platform == "linux":
        lost = "the memory guard was not compiled; GPU memory is limited instead of waited for"
        built["weft/node/memory/preload"] = try_to(build_preload, lost)
    return {f"{place}/{path.name}": path for place, path in built.items() if path is not None}


try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ImportError:  # run by hand
    pass
else:

    class CustomBuildHook(BuildHookInterface):  # type: ignore[misc, type-arg, unused-ignore]
        """Adds the module to a wheel; an editable install has it beside its sources."""

        def initialize(self, version: str, build_data: dict[str, Any]) -> None:
            """Called by hatchling before it collects files."""
            self._include_examples(version, build_data)
            built = build_all()
            if not built:
                return
            if version != "editable":
                build_data["force_include"].update((str(at), to) for to, at in built.items())
            build_data["pure_python"] = False
            build_data["infer_tag"] = True

        def _include_examples(self, version: str, build_data: dict[str, Any]) -> None:
            """What `weft demo` runs: from the checkout, or from an unpacked sdist."""
            places = (
                FOLDER.parents[4] / "examples" / "train",
                Path(self.root) / "examples" / "train",
            )
            if version != "editable" and self.target_name == "wheel":
                folder = next(place for place in places if place.is_dir())
                build_data["force_include"][str(folder)] = "weft/examples/train"


if __name__ == "__main__":
    print(build(), build_preload() if sys.platform == "linux" else "", sep="\n")
