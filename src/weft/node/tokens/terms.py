"""On what terms a job takes part: as the engine wrote them down, not as its ranks say."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from weft.frozen import frozen
from weft.wire.attempt import ADJUST, SPEC, AttemptSpec, job_folder, read_json
from weft.wire.errors import WireError
from weft.wire.tokens import Join

GPU = "gpu:"


@frozen
class Terms:
    """Of one job on this node; `gpus` are the tokens of its devices."""

    tier: str
    weight: float
    phase: float
    gpus: tuple[str, ...]

    def of(self, join: Join) -> Join:
        """The same with these terms; it may name fewer devices than it has."""
        named = tuple(gpu for gpu in join.gpus if gpu in self.gpus)
        return replace(
            join,
            tier=self.tier,
            weight=self.weight,
            phase=self.phase,
            gpus=named or self.gpus,
        )


def read_terms(state: Path, job: str) -> Terms | None:
    """Those of the job's last attempt and what was changed since; None where nothing is known."""
    folder = _last_attempt(job_folder(state, job))
    if folder is None:
        return None
    try:
        spec = AttemptSpec.read(folder / SPEC)
        since: dict[str, Any] = (read_json(folder / ADJUST) or {}).get("turns", {})
        return Terms(
            str(since.get("tier", spec.tier)),
            float(since.get("weight", spec.weight)),
            float(since.get("phase", spec.phase)),
            tuple(f"{GPU}{device}" for device in spec.devices),
        )
    except (AttributeError, KeyError, OSError, TypeError, ValueError) as error:
        raise WireError(f"the terms of job {job[:64]!r} cannot be read: {error!r}") from error


def _last_attempt(folder: Path) -> Path | None:
    try:
        parts = {
            int(path.name): _described(path) for path in folder.iterdir() if path.name.isdigit()
        }
    except OSError:
        return None
    known = {number: part for number, part in parts.items() if part is not None}
    return known[max(known)] if known else None


def _described(attempt: Path) -> Path | None:
    """Where an attempt's description is: in its folder, or in that of its only part."""
    if (attempt / SPEC).exists():
        return attempt
    parts = [spec.parent for spec in attempt.glob(f"*/{SPEC}")]
    return parts[0] if len(parts) == 1 else None
