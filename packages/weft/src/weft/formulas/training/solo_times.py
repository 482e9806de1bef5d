"""Times of jobs alone on one socket and on two, and what they tell about the jobs' traffic.

A table has model, batch, gpus, placement (intra-socket or inter-socket) and time_s, measured on a
POWER8 machine. A model and its batch class are one name here, `alexnet-b4`.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path

from weft.core.errors import InvalidConfig
from weft.core.knowledge.traffic import Traffic
from weft.core.model.node_types import NODE_TYPES
from weft.frozen import frozen

FILE = "solo_times.csv"
ITERATIONS = 1000.0  # a job's times are split into that many
MEASURED_ON = NODE_TYPES["power8"]
NEAR_GB_S, FAR_GB_S = MEASURED_ON.bandwidths[0][1], MEASURED_ON.bandwidths[0][2]

Described = tuple[str, int]  # model with its batch class, GPUs


@frozen
class SoloTimes:
    """Seconds of each job on one socket, and on two where it was measured there."""

    near: Mapping[Described, float]
    far: Mapping[Described, float]

    def traffic(self, name: str, gpus: int) -> Traffic | None:
        """The traffic that makes one socket differ from two; None where there is none.

        A pair on one socket talks over NVLink, any other job over the bus between sockets.
        """
        pair = (name, 2)
        if gpus < 2 or pair not in self.near or pair not in self.far:
            return None
        slower = self.far[pair] - self.near[pair]
        gigabytes = max(slower, 0.0) / (1.0 / FAR_GB_S - 1.0 / NEAR_GB_S)
        waiting = gigabytes / (NEAR_GB_S if gpus == 2 else FAR_GB_S)
        length = self.near[name, gpus]
        if not 0.0 < waiting < length:
            return None
        share = waiting / length
        return Traffic(length / ITERATIONS, share, gigabytes * 8.0 / ITERATIONS)


def read_solo_times(path: Path) -> SoloTimes:
    """The table of a file; InvalidConfig naming the line that cannot be read."""
    near: dict[Described, float] = {}
    far: dict[Described, float] = {}
    line = 1
    try:
        with path.open(encoding="utf-8", newline="") as stream:
            for line, row in enumerate(csv.DictReader(stream), 2):  # noqa: B007 - named in errors
                into = far if row["placement"] == "inter-socket" else near
                into[describe(row["model"], row["batch"]), int(row["gpus"])] = float(row["time_s"])
    except OSError as error:
        raise InvalidConfig(f"cannot read {path}: {error.strerror}") from error
    except (KeyError, ValueError, TypeError) as error:
        raise InvalidConfig(
            f"{path}, line {line}: {error}", hint="columns: model, batch, gpus, placement, time_s"
        ) from error
    return SoloTimes(near, far)


def describe(model: str, batch: str) -> str:
    """A model and its batch class as one name."""
    return f"{model}-b{batch}"
