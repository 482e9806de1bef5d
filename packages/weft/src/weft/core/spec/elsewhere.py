"""Names that another distribution registers, for those who have not installed it."""

from __future__ import annotations

from collections.abc import Mapping

# Kind to the names that weft-papers registers.
PAPER_NAMES: Mapping[str, str] = {
    "policy": "allox antman arena astraea elasticflow gandiva gandiva_fair gavel iadeep lucid lyra "
    "mapa muri optimus pollux qssf rubick shockwave sia singularity slaq smd synergy themis "
    "tiresias topology",
    "wrapper": "cassini gfs hived",
    "order": "allox gavel muri themis",
    "size": "arena optimus pollux rubick sia slaq",
    "share": "lucid muri",
    "admit": "worst-off",
    "predictor": "lucid pai-group pai-history qssf three-sigma",
    "trace": "topology-csv",
    "perf": "muri splicing",
}


def names_elsewhere(kind: str) -> list[str]:
    """Names of a kind that another distribution registers."""
    return PAPER_NAMES.get(kind, "").split()


def installed_by(kind: str, name: str) -> str:
    """The distribution that has a part of this name; empty if none is known to."""
    return "weft-papers" if name in names_elsewhere(kind) else ""
