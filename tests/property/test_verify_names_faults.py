"""Whatever is wrong with a result, `weft verify` names it; and nothing else is."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.core.errors import InvalidConfig
from weft.report.result_files import read_runs
from weft.report.verify import Severity, verify

GPUS, STARTUP_S, RUNS = 8, 30.0, ("fifo", "srtf")


@dataclass
class Row:
    run: str
    job: str
    submit: float
    start: float | None
    end: float | None
    gpus: float
    startup: float = STARTUP_S


@dataclass
class Drawn:
    """Rows of two runs, and what their author says."""

    rows: list[Row]
    claims: dict[str, str] = field(default_factory=dict)

    def of(self, job: str, run: str = "") -> list[Row]:
        return [row for row in self.rows if row.job == job and run in ("", row.run)]

    def csv(self) -> str:
        claims = "".join(f"# {key}: {value}\n" for key, value in self.claims.items())
        lines = [
            ",".join(["" if cell is None else str(cell) for cell in vars(row).values()])
            for row in self.rows
        ]
        return "\n".join([f"{claims}run,job,submit_s,start_s,end_s,gpus,startup_s", *lines]) + "\n"

    def json(self) -> str:
        policies: dict[str, Any] = {}
        for run in RUNS:
            names = list(dict.fromkeys(row.job for row in self.rows if row.run == run))
            rows = []
            for name in names:
                own = [row for row in self.of(name, run) if row.start is not None]
                held = [[row.start, row.end, row.gpus, row.startup] for row in own]
                end = self.of(name, run)[-1].end
                submit = self.of(name, run)[0].submit
                rows.append({"id": name, "submit_s": submit, "end_s": end, "held": held})
            policies[run] = {
                "per_job": rows,
                "avg_jct_h": float(self.claims[f"avg_jct_s of {run}"]) / 3600.0,
                "finished": int(self.claims["finished"]),
                "jobs": int(self.claims["jobs"]),
                "predictor": "none",
            }
        return json.dumps({"gpus": GPUS, "seeds": [0], "policies": policies})


def draw(rng: np.random.Generator) -> Drawn:
    """Jobs on lanes that are theirs until they end; some stop for a while and start again."""
    count, rows = int(rng.integers(3, 12)), []
    submits = np.cumsum(rng.exponential(200.0, count)).tolist()
    sizes = rng.choice([1, 2, 4, 8], count).tolist()
    claims = {"gpus": str(GPUS), "knows": "nothing", "jobs": str(count), "finished": str(count)}
    for run in RUNS:
        lanes, times = np.zeros(GPUS), []
        for number in rng.permutation(count) if run == "srtf" else range(count):
            own = np.argsort(lanes)[: sizes[number]]
            at = max(float(lanes[own].max()), submits[number]) + float(rng.integers(0, 50))
            for part in range(parts := 2 if number == 0 else int(rng.integers(1, 4))):
                end = at + float(rng.integers(60, 900))
                row = Row(run, f"j{number}", submits[number], at, end, float(sizes[number]))
                rows.append(row)
                at = end + float(rng.integers(5, 100)) * (part + 1 < parts)
            lanes[own] = at
            times.append(at - submits[number])
        claims[f"avg_jct_s of {run}"] = repr(float(np.mean(times)))
    return Drawn(rows, claims)


def pick(rng: np.random.Generator, drawn: Drawn) -> Row:
    return drawn.rows[int(rng.integers(len(drawn.rows)))]


def too_many(rng: np.random.Generator, drawn: Drawn) -> None:
    pick(rng, drawn).gpus += GPUS


def hidden_by_less_than_nothing(rng: np.random.Generator, drawn: Drawn) -> None:
    row = pick(rng, drawn)
    drawn.rows.append(replace(row, job="ghost", gpus=-float(GPUS)))


def left_out_of_one(rng: np.random.Generator, drawn: Drawn) -> None:
    gone = pick(rng, drawn)
    drawn.rows = [row for row in drawn.rows if (row.job, row.run) != (gone.job, gone.run)]


def left_out_of_both(rng: np.random.Generator, drawn: Drawn) -> None:
    gone = pick(rng, drawn).job
    drawn.rows = [row for row in drawn.rows if row.job != gone]


def another_job(rng: np.random.Generator, drawn: Drawn) -> None:
    other = pick(rng, drawn)
    for row in drawn.of(other.job, other.run):
        row.job = "other"


def came_earlier(rng: np.random.Generator, drawn: Drawn) -> None:
    other = pick(rng, drawn)
    for row in drawn.of(other.job, other.run):
        row.submit *= 0.5


def before_the_beginning(rng: np.random.Generator, drawn: Drawn) -> None:
    for row in drawn.of(pick(rng, drawn).job):
        row.submit = -row.submit - 1.0


def no_number(rng: np.random.Generator, drawn: Drawn) -> None:
    row = pick(rng, drawn)
    row.gpus = float("nan")


def backwards(rng: np.random.Generator, drawn: Drawn) -> None:
    row = pick(rng, drawn)
    row.start, row.end = row.end, row.start


def before_it_came(rng: np.random.Generator, drawn: Drawn) -> None:
    row = pick(rng, drawn)
    row.start = row.submit - 0.5


def twice_at_once(rng: np.random.Generator, drawn: Drawn) -> None:
    row = pick(rng, drawn)
    drawn.rows.insert(drawn.rows.index(row), replace(row))


def without_an_end(rng: np.random.Generator, drawn: Drawn) -> None:
    other = pick(rng, drawn)
    drawn.of(other.job, other.run)[-1].end = None


def without_gpus(rng: np.random.Generator, drawn: Drawn) -> None:
    other = pick(rng, drawn)
    *more, last = drawn.of(other.job, other.run)
    last.start = None
    for row in more:
        drawn.rows.remove(row)


def restart_for_nothing(_rng: np.random.Generator, drawn: Drawn) -> None:
    drawn.of("j0", "srtf")[1].startup = 0.0


def cheap_starts(_rng: np.random.Generator, drawn: Drawn) -> None:
    for row in drawn.rows:
        row.startup = 2.0 if row.run == "srtf" else row.startup


def flattering_mean(_rng: np.random.Generator, drawn: Drawn) -> None:
    drawn.claims["avg_jct_s of fifo"] = repr(0.95 * float(drawn.claims["avg_jct_s of fifo"]))


def several_submit_times(_rng: np.random.Generator, drawn: Drawn) -> None:
    for run in RUNS:
        drawn.of("j0", run)[-1].submit *= 0.5


FAULTS: dict[Callable[[np.random.Generator, Drawn], None], str] = {
    too_many: "capacity",
    hidden_by_less_than_nothing: "numbers",
    left_out_of_one: "same jobs",
    left_out_of_both: "all jobs",
    another_job: "same jobs",
    came_earlier: "same jobs",
    before_the_beginning: "numbers",
    no_number: "numbers",
    backwards: "times",
    before_it_came: "times",
    twice_at_once: "overlap",
    without_an_end: "all jobs",
    without_gpus: "times",
    restart_for_nothing: "costs",
    cheap_starts: "costs",
    flattering_mean: "mean",
    several_submit_times: "all jobs",
}
ONLY_CSV = (several_submit_times,)  # JSON has one submit time of each job


def wrong(path: Path, text: str) -> set[str]:
    path.write_text(text)
    return {finding.check for finding in verify(read_runs(path)) if finding.level is Severity.WRONG}


@given(seed=st.integers(0, 10**6))
def test_an_honest_result_stands_up(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    drawn, path = draw(np.random.default_rng(seed)), tmp_path_factory.mktemp("verify") / "result"

    assert wrong(path, drawn.csv()) == wrong(path, drawn.json()) == set()


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
@given(seed=st.integers(0, 10**6))
def test_each_fault_is_named(
    tmp_path_factory: pytest.TempPathFactory,
    fault: Callable[[np.random.Generator, Drawn], None],
    seed: int,
) -> None:
    rng, path = np.random.default_rng(seed), tmp_path_factory.mktemp("verify") / "result"
    drawn = draw(rng)

    fault(rng, drawn)

    assert FAULTS[fault] in wrong(path, drawn.csv())
    if fault not in ONLY_CSV:
        assert FAULTS[fault] in wrong(path, drawn.json())


@given(seed=st.integers(0, 10**6))
def test_a_spoilt_file_is_refused_or_checked(
    tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    rng, path = np.random.default_rng(seed), tmp_path_factory.mktemp("verify") / "result"
    drawn = draw(rng)
    text = drawn.csv() if seed % 2 else drawn.json()
    words = ["", "x", "-1", "nan", "null", "[]", "{}", '"', ",", "\n", "1e400", "\x00"]
    at = int(rng.integers(len(text)))
    spoilt = text[:at] + str(rng.choice(words)) + text[at + int(rng.integers(0, 6)) :]
    path.write_text(spoilt)

    try:
        assert verify(read_runs(path))
    except InvalidConfig as error:
        assert "result" in str(error) or "no run" in str(error)
