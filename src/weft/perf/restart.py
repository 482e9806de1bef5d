"""What stopping a job and starting it again costs, in seconds without progress.

Per model where it was published: the Sia simulator (SOSP 2023) charges these per restart, and
30 s for any other model.
"""

from __future__ import annotations

RESTART_S = {
    "bert": 120.0,
    "cifar10": 50.0,
    "deepspeech2": 25.0,
    "imagenet": 250.0,
    "ncf": 15.0,
    "yolov3": 80.0,
}
OTHER_S = 30.0


def restart_s(model: str) -> float:
    """Seconds a restart costs a job that trains `model`."""
    return RESTART_S.get(model.lower(), OTHER_S)
