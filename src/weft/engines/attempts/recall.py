"""What an attempt that ran before a restart has of this machine, from its files."""

from __future__ import annotations

from pathlib import Path

from weft.frozen import frozen
from weft.wire.attempt import ADJUST, RESIZE, SPEC, AttemptSpec, read_json
from weft.wire.errors import WireError


@frozen
class Recalled:
    """The terms that were asked for last; `group` is its control group, if it is one of ours."""

    spec: AttemptSpec
    discipline: str
    cores: tuple[int, ...]
    group: Path | None


def recall(folder: Path, groups: str = "") -> Recalled:
    """Of the attempt in `folder`, where groups are in one called `groups`.

    WireError or OSError if its files are not as they were left.
    """
    spec = AttemptSpec.read(folder / SPEC)
    resized = read_json(folder / RESIZE)
    if resized is not None:
        if not isinstance(resized.get("spec"), dict):
            raise WireError(f"{folder / RESIZE} is not ours")
        spec = AttemptSpec.of(resized["spec"])
    since = read_json(folder / ADJUST) or {}
    cores = tuple(core for rank in since.get("cores", spec.cores) for core in rank)
    group = Path(spec.group)
    own = (group.parent.name, group.name) == (groups, f"{folder.parent.name}@{folder.name}")
    discipline = str(since.get("discipline", spec.discipline))
    return Recalled(spec, discipline, cores, group if own else None)
