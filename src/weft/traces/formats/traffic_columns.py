"""The columns of our CSV that say what a job's workers send in an iteration."""

from __future__ import annotations

from collections.abc import Mapping

from weft.core.errors import InvalidConfig
from weft.core.knowledge.traffic import Architecture, Pattern, Phase, Traffic
from weft.traces.table import Table

TRAFFIC = (
    "iteration_s",
    "comm_share",
    "comm_gbit",
    "comm_pattern",
    "comm_phases",
    "comm_sensitive",
    "architecture",
)


def read_traffic(table: Table, row: list[str], at: Mapping[str, int]) -> Traffic | None:
    """What the job of a row sends; None without `iteration_s`."""
    iteration_s = table.optional(row, at["iteration_s"])
    if iteration_s is None:
        return None
    try:
        return Traffic(
            iteration_s,
            table.optional(row, at["comm_share"]) or 0.0,
            table.optional(row, at["comm_gbit"]) or 0.0,
            Pattern(table.text(row, at["comm_pattern"]) or "ring"),
            _read_phases(table, row, at["comm_phases"]),
            table.text(row, at["comm_sensitive"]).lower() != "false",
            Architecture(table.text(row, at["architecture"]) or "all-reduce"),
        )
    except (InvalidConfig, ValueError) as error:
        expected = f"an iteration that can be: {error}"
        raise table.wrong(row, at["iteration_s"], expected) from None


def write_traffic(sent: Traffic | None) -> dict[str, object]:
    """The cells of a job."""
    if sent is None:
        return dict.fromkeys(TRAFFIC, "")
    phases = (f"{p.start_s!r}/{p.seconds!r}/{p.gbps!r}" for p in sent.phases)
    return {
        "iteration_s": repr(sent.iteration_s),
        "comm_share": repr(sent.share),
        "comm_gbit": repr(sent.gbit),
        "comm_pattern": sent.pattern.value,
        "comm_phases": ";".join(phases),
        "comm_sensitive": "" if sent.sensitive else "false",
        "architecture": sent.architecture.value,
    }


def _read_phases(table: Table, row: list[str], column: int) -> tuple[Phase, ...]:
    parts = filter(None, table.text(row, column).split(";"))
    try:
        return tuple(Phase(*map(float, part.split("/"))) for part in parts)
    except (TypeError, ValueError):
        raise table.wrong(row, column, "START_S/SECONDS/GBPS joined by ';'") from None
