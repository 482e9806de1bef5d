"""Cost of stopping a job and starting it again, in seconds without progress.

Per model where it was published: the Sia simulator (SOSP 2023) charges these per restart, and
30 s for any other model. A job that changes its devices as it trains pauses instead; the pauses
are those of `weft_train` as `benchmarks.live_resize` measured them.
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

# Weights and what the optimizer keeps of each: 12 bytes a parameter with Adam, 8 with momentum.
STATE_GB = {
    "bert": 1.32,  # 110 M, Adam (Devlin et al., NAACL 2019)
    "cifar10": 0.09,  # ResNet-18, 11.2 M, momentum
    "deepspeech2": 0.33,  # about 41 M, momentum
    "imagenet": 0.21,  # ResNet-50, 25.6 M, momentum (He et al., CVPR 2016)
    "ncf": 0.02,  # embeddings of MovieLens-1M, Adam
    "yolov3": 0.50,  # 61.9 M, momentum (Redmon and Farhadi, 2018)
}
OTHER_GB = 0.3


def restart_s(model: str) -> float:
    """Seconds a restart costs a job that trains `model`."""
    return RESTART_S.get(model.lower(), OTHER_S)


def state_gb(model: str) -> float:
    """Return the GB to send to a new process of a job that trains `model`."""
    return STATE_GB.get(model.lower(), OTHER_GB)
