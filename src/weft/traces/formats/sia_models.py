"""Models of the Pollux and Sia workloads: batch ranges and reference lengths.

Facts from the public artifact of Sia (Jayaram Subramanya et al., SOSP'23), which extends that of
Pollux (Qiao et al., OSDI'21): seconds to train alone on 1, 4, 8, 16 and 24 RTX 2080 Ti GPUs, the
kind on which the requested sizes of those workloads were tuned, with the batch size adapted.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from weft.core.model.job import BatchRange
from weft.frozen import frozen

COUNTS = (1, 4, 8, 16, 24)
MAX_GPUS = 64


@frozen
class Model:
    """How long it trains, on which batches, and what users ask for (GPUs, batch)."""

    seconds: tuple[float, ...]
    batch: BatchRange
    tuned: tuple[tuple[int, int], ...]


MODELS: Mapping[str, Model] = {
    "cifar10": Model(
        (3365.0, 1030.0, 667.0, 565.0, 528.0),
        BatchRange(128, 4096, 1024),
        ((4, 2048), (6, 2048), (8, 2048), (8, 4096), (10, 4096), (12, 4096), (16, 4096)),
    ),
    "deepspeech2": Model(
        (13401.0, 4166.0, 2647.0, 1677.0, 1557.0),
        BatchRange(20, 640, 80),
        ((6, 320), (8, 320), (12, 640)),
    ),
    "bert": Model(
        (8044.0, 2222.0, 1395.0, 987.0, 936.0),
        BatchRange(12, 384, 12),
        ((6, 384), (8, 384), (12, 384), (16, 384)),
    ),
    "yolov3": Model(
        (73417.0, 20728.0, 11694.0, 8449.0, 7653.0), BatchRange(8, 512, 16), ((4, 64),)
    ),
    "imagenet": Model(
        (320730.0, 87845.0, 50895.0, 28619.0, 21115.0),
        BatchRange(200, 12800, 200),
        ((10, 1600), (12, 3200), (14, 3200)),
    ),
}


def length(model: str, gpus: int) -> float:
    """Seconds on `gpus` reference GPUs, log-linear between measurements."""
    known = MODELS[model].seconds
    return round(float(np.exp(np.interp(np.log(gpus), np.log(COUNTS), np.log(known)))), 3)
