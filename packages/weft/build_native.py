"""Compiles `weft.native` when Weft is installed; where that is not possible, Weft is all Python.

`python build_native.py` builds it in place, for those who change the sources.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any
from zlib import crc32

FOLDER = Path(__file__).parent / "src" / "weft" / "native"
# No sums in another order, no fused steps: results equal those of Python to the last bit.
FLAGS = ["-std=c11", "-O2", "-fPIC", "-fno-fast-math", "-ffp-contract=off", "-fvisibility=hidden"]


def digest() -> str:
    """What the sources are; the module carries it, so that an old one is not used with new code."""
    texts = [path.read_bytes() for path in sorted(FOLDER.glob("*.[ch]"))]
    return f"{crc32(b''.join(texts)):08x}"


def build() -> Path:
    """The module beside its sources; CalledProcessError or OSError where it cannot be built."""
    target = FOLDER / f"_native{sysconfig.get_config_var('EXT_SUFFIX')}"
    scratch = target.with_suffix(f".{os.getpid()}")
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
    mac = sys.platform == "darwin"
    command = [
        *(*compiler, *FLAGS, f'-DDIGEST="{digest()}"'),
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


def try_to_build() -> Path | None:
    """The same, or None with the reason on standard error."""
    try:
        return build()
    except subprocess.CalledProcessError as problem:
        reason: object = problem.stderr
    except OSError as problem:
        reason = problem
    print(f"weft.native was not compiled; Weft works without it, slower: {reason}", file=sys.stderr)
    return None


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
            if os.environ.get("WEFT_PURE") or (built := try_to_build()) is None:
                return
            if version != "editable":
                build_data["force_include"][str(built)] = f"weft/native/{built.name}"
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
    print(build())
