"""Training steps per second on V100s, alone, by job type and number of GPUs.

Facts from the simulation throughput table of Gavel (Narayanan et al., OSDI'20), rounded to six
digits; they turn the steps of a Gavel trace into seconds. Entries are for 1, 2, 4 and 8 GPUs;
single-GPU job types have one.
"""

from __future__ import annotations

from collections.abc import Mapping

STEPS_PER_S: Mapping[str, tuple[float, ...]] = {
    "A3C": (7.17577,),
    "CycleGAN": (4.42609,),
    "LM (batch size 5)": (109.167, 185.724, 126.716, 698.773),
    "LM (batch size 10)": (81.6516, 163.129, 121.478, 615.093),
    "LM (batch size 20)": (64.7425, 132.174, 110.997, 497.295),
    "LM (batch size 40)": (45.2374, 91.5927, 96.0312, 359.307),
    "LM (batch size 80)": (28.24, 58.0915, 74.8073, 231.176),
    "Recommendation (batch size 512)": (23.3176,),
    "Recommendation (batch size 1024)": (13.2826,),
    "Recommendation (batch size 2048)": (7.46963,),
    "Recommendation (batch size 4096)": (3.90605,),
    "Recommendation (batch size 8192)": (2.84151,),
    "ResNet-18 (batch size 16)": (32.3534, 100.142, 123.854, 382.597),
    "ResNet-18 (batch size 32)": (29.9472, 94.2489, 114.733, 340.038),
    "ResNet-18 (batch size 64)": (24.0932, 74.1359, 95.5881, 255.829),
    "ResNet-18 (batch size 128)": (17.9949, 23.9854, 69.9505, 162.092),
    "ResNet-18 (batch size 256)": (10.3003, 15.8828, 27.7821, 81.5066),
    "ResNet-50 (batch size 16)": (11.3961, 13.8598, 23.1956, 27.7991),
    "ResNet-50 (batch size 32)": (7.78726, 10.8346, 13.7632, 24.0674),
    "ResNet-50 (batch size 64)": (4.39477, 7.92205, 9.45195, 17.3032),
    "ResNet-50 (batch size 128)": (2.49677, 4.22301, 7.02929, 10.2932),
    "Transformer (batch size 16)": (11.0641, 14.1538, 20.085, 71.6517),
    "Transformer (batch size 32)": (10.6209, 13.328, 22.8225, 63.9777),
    "Transformer (batch size 64)": (8.61776, 15.8765, 19.6596, 49.6507),
    "Transformer (batch size 128)": (5.44611, 10.0692, 14.1745, 30.8835),
    "Transformer (batch size 256)": (1.59514, 2.88524, 4.76305, 9.71702),
}
COUNTS = (1, 2, 4, 8)


def steps_per_s(job_type: str, gpus: int) -> float:
    """The rate of a gang; beyond what was measured, that of the largest measured gang."""
    rates = STEPS_PER_S[job_type]
    measured = [rate for count, rate in zip(COUNTS, rates, strict=False) if count <= gpus]
    return measured[-1]
