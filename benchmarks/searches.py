"""What searches find, and what they spend: `python -m benchmarks.searches`.

Real trainings of a small network on scikit-learn's digits, sixty trials of up to 27 epochs on four
devices. Each trial is trained as far as a search lets it, and takes the CPU seconds that this took;
which trial runs when is simulated, by the code that stops trials in the service.

`--policies fifo,themis,weft` runs the same searches in a service of this machine instead, with four
slots and a pause in each epoch, so that a busy machine changes little.
"""

from __future__ import annotations

import argparse
import heapq
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
from tests.ports import free_port
from tests.waiting import read_address

from weft.app.search.halving import find_behind, rungs, values_at
from weft.app.search.space import Range, Space, Value, choose
from weft.core.model.search import SearchKind, SearchTerms

EPOCHS, TRIALS, DEVICES = 27, 60, 4
SPACE: Space = {
    "lr": Range(1e-4, 3.0, "log"),
    "hidden": Range(4, 64, "int"),
    "momentum": Range(0.0, 0.95),
    "decay": Range(1e-6, 1e-1, "log"),
}
BATCH = 64
PAUSE_S = 0.3  # of an epoch in a service


def train(point: dict[str, Value], data: Any) -> Iterator[float]:
    """The validation loss after each epoch of a network with one hidden layer."""
    (x, y), (held_x, held_y) = data
    draws = np.random.default_rng(0)
    width, rate = int(point["hidden"]), float(point["lr"])
    sizes = [(x.shape[1], width), (width, 10)]
    weights = [draws.normal(0.0, shape[0] ** -0.5, shape) for shape in sizes]
    speeds = [np.zeros_like(w) for w in weights]
    for _ in range(EPOCHS):
        order = draws.permutation(len(x))
        for start in range(0, len(x), BATCH):
            some = order[start : start + BATCH]
            hidden = np.maximum(x[some] @ weights[0], 0.0)
            error = softmax(hidden @ weights[1])
            error[np.arange(len(some)), y[some]] -= 1.0
            error /= len(some)
            back = (error @ weights[1].T) * (hidden > 0.0)
            for layer, slope in enumerate((x[some].T @ back, hidden.T @ error)):
                slope += float(point["decay"]) * weights[layer]
                speeds[layer] = float(point["momentum"]) * speeds[layer] - rate * slope
                weights[layer] += speeds[layer]
        chances = softmax(np.maximum(held_x @ weights[0], 0.0) @ weights[1])
        yield float(-np.log(chances[np.arange(len(held_y)), held_y] + 1e-12).mean())


def softmax(scores: Any) -> Any:
    """Chances of each class, by row."""
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


@dataclass
class Trial:
    """A training that goes on when it has a device."""

    losses: Iterator[float]
    curve: list[tuple[float, float]] = field(default_factory=list)
    cpu_s: float = 0.0

    def go_on(self) -> float:
        """Train one more epoch; the seconds that it took."""
        began = time.process_time()
        loss = next(self.losses)
        took = time.process_time() - began
        self.curve.append((len(self.curve) + 1.0, loss))
        self.cpu_s += took
        return took


def search(points: list[dict[str, Value]], data: Any, terms: SearchTerms) -> dict[str, float]:
    """The best loss, the device seconds spent and when all was done, in simulated time."""
    trials = {f"{place:03}": Trial(train(point, data)) for place, point in enumerate(points)}
    running: list[tuple[float, str]] = []  # when an epoch ends, and whose
    now = 0.0
    behind: dict[str, Any] = {}
    while True:
        busy = {name for _, name in running}
        for name, trial in trials.items():
            able = name not in busy and name not in behind and len(trial.curve) < EPOCHS
            if able and len(running) < DEVICES:
                heapq.heappush(running, (now + trial.go_on(), name))
        if not running:
            break
        now, _ = heapq.heappop(running)
        if terms.halves:
            ended = {
                name: trial.curve[: -1 if any(name == other for _, other in running) else None]
                for name, trial in trials.items()
            }
            steps = rungs(terms)
            reached = {name: values_at(curve, steps) for name, curve in ended.items()}
            behind = find_behind(reached, terms)
    best = min(loss for trial in trials.values() for _, loss in trial.curve)
    whole = sum(len(trial.curve) == EPOCHS for trial in trials.values())
    spent = sum(trial.cpu_s for trial in trials.values())
    epochs = sum(len(trial.curve) for trial in trials.values())
    return {"best": best, "device_s": spent, "epochs": epochs, "whole": whole, "end_s": now}


def learn(seed: int, data: Any) -> dict[str, float]:
    """The same of Optuna's sampler, asked for each trial when a device is free."""
    from weft.app.search.optuna_sampler import PastTrial, ask

    trials: list[tuple[dict[str, Value], Trial]] = []
    now, running = 0.0, list[tuple[float, int]]()
    while len(trials) < TRIALS or running:
        while len(trials) < TRIALS and len(running) < DEVICES:
            busy = {place for _, place in running}
            past = [
                PastTrial(
                    {name: f"{value}" for name, value in point.items()},
                    None if place in busy else min(loss for _, loss in trial.curve),
                    place not in busy,
                )
                for place, (point, trial) in enumerate(trials)
            ]
            point = ask(SPACE, past, maximize=False, seed=seed)
            trial = Trial(train(point, data))
            took = sum(trial.go_on() for _ in range(EPOCHS))
            heapq.heappush(running, (now + took, len(trials)))
            trials.append((point, trial))
        now, _ = heapq.heappop(running)
    best = min(loss for _, trial in trials for _, loss in trial.curve)
    spent = sum(trial.cpu_s for _, trial in trials)
    epochs = len(trials) * EPOCHS
    return {
        "best": best,
        "device_s": spent,
        "epochs": epochs,
        "whole": float(len(trials)),
        "end_s": now,
    }


def digits() -> Any:
    """Three quarters to train with, and a quarter to compare by."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(1).permutation(len(images))
    cut = len(order) * 3 // 4
    return tuple((images[part] / 16.0, labels[part]) for part in (order[:cut], order[cut:]))


def train_here(point: str, data: Path) -> None:
    """One trial of a service: it prints the loss of each epoch."""
    arrays = np.load(data)
    held = tuple((arrays[f"x{part}"], arrays[f"y{part}"]) for part in (0, 1))
    words = dict(pair.split("=") for pair in point.split(","))
    for epoch, loss in enumerate(train({k: float(v) for k, v in words.items()}, held), 1):
        print(f"step={epoch} val_loss={loss}", flush=True)
        time.sleep(PAUSE_S)


def search_in_service(policy: str, kind: str, trials: int) -> dict[str, float]:
    """What a search of a sweep file finds and spends under a policy."""
    from weft_client import Client

    with tempfile.TemporaryDirectory() as folder:
        (x, y), (held_x, held_y) = digits()
        np.savez(f"{folder}/digits.npz", x0=x, y0=y, x1=held_x, y1=held_y)
        serve = ["serve", "--engine", f"local:cpu=true,slots={DEVICES}", "--policy", policy]
        words = [*serve, "--state", f"{folder}/state", "--port", f"{free_port()}"]
        with (Path(folder) / "service.log").open("w") as log:
            service = subprocess.Popen(
                [sys.executable, "-m", "weft", *words],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        try:
            client = Client(read_address(service))
            values = ",".join(f"{name}=${{{name}}}" for name in SPACE)
            command = [sys.executable, "-m", "benchmarks.searches", "--point", values]
            space = {
                name: {each.kind: [each.low, each.high]}
                for name, each in SPACE.items()
                if isinstance(each, Range)
            }
            terms = {"search": kind, "metric": "val_loss", "space": space, "trials": trials}
            file = {
                "command": [*command, "--data", f"{folder}/digits.npz"],
                "workdir": str(Path.cwd()),
                "metrics": "val_loss",
                "sweep": terms,
            }
            began = time.monotonic()
            statuses = client.sweep(file, name="search").wait()
            took = time.monotonic() - began
            fields = [status.fields for status in statuses]
            held = [job["metrics"].get("val_loss") for job in fields]
            return {
                "best": min(each["least"] for each in held if each and each["least"] is not None),
                "device_s": sum(job["gpu_seconds"] for job in fields),
                "epochs": sum(each["step"] for each in held if each),
                "whole": sum(status.state == "succeeded" for status in statuses),
                "end_s": took,
            }
        finally:
            service.terminate()
            service.wait(60)


def main() -> None:
    """Print a row for each search, the mean of all seeds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--optuna", action="store_true", help="also its sampler, if installed")
    parser.add_argument("--policies", default="", help="run in a service under these policies")
    parser.add_argument("--trials", type=int, default=TRIALS, help="of each search in a service")
    parser.add_argument("--point", help=argparse.SUPPRESS)
    parser.add_argument("--data", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.point:
        train_here(options.point, options.data)
        return
    if options.policies:
        print("| policy | search | best loss | epochs | to the end | device s | done after s |")
        print("|---|---|---|---|---|---|---|")
        for policy in options.policies.split(","):
            for kind in ("grid", "random", "asha"):
                row = search_in_service(policy, kind, options.trials)
                print(
                    f"| {policy} | {kind} | {row['best']:.4f} | {row['epochs']:.0f} | "
                    f"{row['whole']:.0f} | {row['device_s']:.0f} | {row['end_s']:.0f} |",
                    flush=True,
                )
        return
    data = digits()
    plain, asha = SearchTerms(SearchKind.RANDOM), SearchTerms(SearchKind.ASHA)
    ways: dict[str, Callable[[int], dict[str, float]]] = {
        "grid": lambda _: search(choose(SPACE, "grid", TRIALS, 0), data, plain),
        "random": lambda seed: search(choose(SPACE, "random", TRIALS, seed), data, plain),
        "asha": lambda seed: search(choose(SPACE, "random", TRIALS, seed), data, asha),
        "asha, 3 x as many": lambda seed: search(
            choose(SPACE, "random", 3 * TRIALS, seed), data, asha
        ),
    }
    if options.optuna:
        ways["optuna"] = lambda seed: learn(seed, data)
    print("| search | best loss | of each seed | epochs | to the end | device s | done after s |")
    print("|---|---|---|---|---|---|---|")
    for name, way in ways.items():
        seeds = 1 if name == "grid" else options.seeds
        rows = [way(seed) for seed in range(seeds)]
        means = {measure: mean(row[measure] for row in rows) for measure in rows[0]}
        each = ", ".join(f"{row['best']:.4f}" for row in rows)
        print(
            f"| {name} | {means['best']:.4f} | {each} | {means['epochs']:.0f} | "
            f"{means['whole']:.0f} | {means['device_s']:.1f} | {means['end_s']:.1f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
