"""Measure real training jobs on this machine's first GPU with `weft profile`, and ship the tables.

    python -m benchmarks.gpu_profiles alone|timeslicing|mps|noise --out FOLDER
    python -m benchmarks.gpu_profiles ship --out FOLDER

`alone` profiles each model over batch sizes, `timeslicing` and `mps` every pair of the twelve jobs
of `benchmarks.gpu_mix`, `noise` the gradient noise of two networks that learn something, beside
its definition. `ship` puts what is in FOLDER together as `weft/perf/data/h200.json` and says how
far the interference model is from pairs it has never seen.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

from benchmarks.gpu_mix.__main__ import JOBS
from benchmarks.gpu_profiles.ship import ship

HERE = Path(__file__).resolve().parent
JOB = str(HERE.parent / "gpu_mix" / "job.py")
STEPS = "1000000"
# The smallest batch, and the largest that is of interest on a GPU with much memory.
SIZES = {
    "resnet18-cifar": (128, 4096), "resnet50": (32, 256), "vgg19": (32, 128), "vit_b_16": (32, 128),
    "mobilenet_v3": (64, 256), "bert-base": (8, 128), "gpt2": (4, 32), "lstm": (16, 64),
    "dlrm": (2048, 16384),
}  # fmt: skip
TASKS = ("image", "language")


def main() -> int:
    """Do the parts that were named."""
    parser = argparse.ArgumentParser(description="Tables of real jobs on one GPU.")
    parser.add_argument(
        "parts", nargs="+", choices=["alone", "timeslicing", "mps", "noise", "ship"]
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--each", type=float, default=1.5)
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--only", type=int, default=len(JOBS), help="so many jobs or models")
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    measure = ["--each", str(asked.each), *(["--cpu"] if asked.cpu else [])]
    for part in asked.parts:
        if part == "alone":
            alone(asked.out, measure, asked.only)
        elif part == "noise":
            noise(asked.out, measure)
        elif part == "ship":
            ship(asked.out)
        else:
            pairs(asked.out, part, measure, asked.only)
    return 0


def alone(out: Path, measure: list[str], count: int) -> None:
    """Each model from its smallest batch to its largest."""
    for model, (least, most) in [*SIZES.items()][:count]:
        script = [sys.executable, JOB, model, str(least), STEPS, str(most)]
        weft_profile([*measure, "--out", str(out / f"alone-{model}.json"), "--", *script])


def pairs(out: Path, sharing: str, measure: list[str], count: int) -> None:
    """Every pair of the mix's jobs."""
    commands = [[sys.executable, JOB, model, str(batch), STEPS] for model, batch, _ in JOBS]
    options = [*measure, "--every-pair", *(["--mps"] if sharing == "mps" else [])]
    for model, _, _ in JOBS[:count]:
        options += ["--name", model]
    for command in commands[1:count]:
        options += ["--beside", " ".join(command)]
    weft_profile([*options, "--out", str(out / f"pairs-{sharing}.json"), "--", *commands[0]])


def noise(out: Path, measure: list[str]) -> None:
    """Two tasks: how their noise grows, then what batch sizes are worth to them."""
    learn = str(HERE / "learn.py")
    for task in TASKS:
        checks = str(out / f"noise-{task}.json")
        subprocess.run([sys.executable, learn, task, checks], check=True)
        sizes = ["--out", str(out / f"learn-{task}.json"), "--", sys.executable, learn, task]
        weft_profile([*measure, *sizes])
        for check in json.loads(Path(checks).read_text()):
            direct, seen = check["direct"]["noise"], check["running"]["noise"]
            print(f"{task} step {check['step']:,}: noise {direct:,.0f}, as estimated {seen:,.0f}")


def weft_profile(options: list[str]) -> None:
    """Run the command as a person would."""
    subprocess.run([sys.executable, "-m", "weft", "profile", *options], check=True)


if __name__ == "__main__":
    sys.exit(main())
