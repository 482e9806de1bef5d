"""Real gloo ranks: a job that grows and shrinks trains as if nothing had happened."""

from __future__ import annotations

import functools
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import real_ranks as ranks
from train_script import SAMPLES, notes, train

from weft_train.base import fence
from weft_train.base.messages import Adjust, Leaving, Notice, Report, Saved, Stop

Notes = list[dict[str, Any]]


def weft_env(folder: Path, attempt: int, agent: Path | None = None) -> dict[str, str]:
    fence.claim(folder / "ckpt", attempt)
    env = {
        "WEFT_JOB": "line", "WEFT_ATTEMPT": str(attempt), "WEFT_CHECKPOINTS": str(folder / "ckpt"),
    }  # fmt: skip
    return env | ({"WEFT_AGENT": str(agent)} if agent else {})


def run(folder: Path, attempt: int, size: int, **options: Any) -> list[int | None]:
    script = functools.partial(train, str(folder / "seen"), **options)
    return ranks.finish(ranks.start(script, size, weft_env(folder, attempt)))


def each_id_once(seen: Notes, epochs: int, samples: int = SAMPLES) -> None:
    for epoch in range(epochs):
        counts = Counter(at for note in seen if note.get("epoch") == epoch for at in note["ids"])
        assert counts == Counter(range(samples)), f"epoch {epoch}"


def final(seen: Notes) -> float:
    return float(next(note["final"] for note in seen if "final" in note))


def test_one_rank_then_four_then_two_sees_every_sample_once_an_epoch(tmp_path: Path) -> None:
    calm, moved = tmp_path / "calm", tmp_path / "moved"
    calm.mkdir()
    moved.mkdir()

    codes = run(calm, 1, 1, batch=32)
    codes += run(moved, 1, 1, batch=32, term_at=40)
    codes += run(moved, 2, 4, batch=32, term_at=75, term_rank=2)
    codes += run(moved, 3, 2, batch=32)

    assert codes == [0] * 8
    seen = notes(moved, "seen")
    each_id_once(seen, epochs=4)
    sizes = [note["size"] for note in sorted(steps(seen), key=lambda note: note["step"])]
    assert Counter(sizes).keys() == {1, 2, 4}
    assert sizes == sorted(sizes, key=[1, 4, 2].index)
    rates = {note["epoch"]: note["lr"] for note in steps(seen)}
    assert rates == {0: 0.02, 1: 0.02, 2: 0.01, 3: 0.01}
    # Batch norms over the few samples of each of four ranks cost a little; four all along, 0.13.
    assert final(seen) == pytest.approx(final(notes(calm, "seen")), abs=0.05)
    assert mean_loss(seen, 3) < 0.75 * mean_loss(seen, 0)


def steps(seen: Notes) -> Notes:
    return [note for note in seen if "ids" in note]


def mean_loss(seen: Notes, epoch: int) -> float:
    losses = [note["loss"] for note in steps(seen) if note["epoch"] == epoch]
    return float(sum(losses) / len(losses))


def test_a_rest_smaller_than_the_gang_is_still_trained_on_once(tmp_path: Path) -> None:
    # 33 samples in steps of 16: a rest of 1 joins the second step; stopped before it, 17 are left
    # for four ranks at per-GPU batches of 1, so some ranks have nothing in the last micro-batch.
    codes = run(tmp_path, 1, 1, batch=16, samples=33, epochs=2, term_at=1)
    codes += run(tmp_path, 2, 4, batch=16, max_per_gpu=1, samples=33, epochs=2)

    assert codes == [0] * 5
    each_id_once(notes(tmp_path, "seen"), epochs=2, samples=33)


def test_the_agent_stops_adjusts_and_is_told(tmp_path: Path) -> None:
    agent = ranks.Agent(tmp_path / "agent")
    script = functools.partial(
        train,
        str(tmp_path / "seen"),
        batch=16,
        max_batch=256,
        samples=99,
        epochs=9999,
        scaling="sqrt",
    )
    processes = ranks.start(script, 2, weft_env(tmp_path, 1, agent.path))

    def reported(name: str, value: float) -> bool:
        return any(report.values.get(name) == value for report in agent.of(Report))

    agent.until(lambda: any("user.test" in report.values for report in agent.of(Report)))
    agent.send_to_rank(Adjust(per_gpu=16, accumulate=2))
    agent.until(lambda: reported("batch", 64.0))
    agent.send_to_rank(Stop(grace_s=10.0))
    codes = ranks.finish(processes)

    assert codes == [0, 0]
    assert [message.reason for message in agent.of(Leaving)] == ["stopped", "stopped"]
    (saved,) = agent.of(Saved)
    assert Path(saved.path).is_file()
    last = agent.of(Report)[-1].values
    assert last["steps"] == saved.step
    assert (last["per_gpu"], last["accumulate"], last["lr_factor"]) == (16, 2, 2.0)
    assert last["step_s"] > 0
    assert last["grad_s"] > 0
    assert 0 < last["progress"] < 1
    assert "user.test" in last


def test_killed_ranks_go_on_from_the_last_checkpoint_and_a_spoilt_one_is_passed_over(
    tmp_path: Path,
) -> None:
    killed = run(tmp_path, 1, 1, die_at=50, every_s=0.0)
    newest, before = sorted((tmp_path / "ckpt").glob("step-*"), reverse=True)
    with newest.open("r+b") as file:
        file.seek(100)
        file.write(b"spoilt")
    agent = ranks.Agent(tmp_path / "agent")
    script = functools.partial(train, str(tmp_path / "again"))

    codes = ranks.finish(ranks.start(script, 1, weft_env(tmp_path, 2, agent.path)))

    assert killed == [-9]
    assert codes == [0]
    (notice,) = agent.of(Notice)
    assert newest.name in notice.text
    assert agent.of(Leaving) == [Leaving("done")]
    first = next(note["step"] for note in notes(tmp_path, "again") if "step" in note)
    assert first == int(before.stem.removeprefix("step-"))


def test_an_old_incarnation_can_no_longer_write_and_leaves(tmp_path: Path) -> None:
    agent = ranks.Agent(tmp_path / "agent")
    script = functools.partial(train, str(tmp_path / "seen"), epochs=100_000)
    processes = ranks.start(script, 1, weft_env(tmp_path, 1, agent.path))
    agent.until(lambda: agent.of(Report))
    fence.claim(tmp_path / "ckpt", 2)

    agent.send_to_rank(Stop(5.0))
    codes = ranks.finish(processes)

    assert codes == [3]
    assert agent.of(Leaving)[0].reason == "error"
    assert "belongs to attempt 2" in agent.of(Notice)[0].text
    assert not list((tmp_path / "ckpt").glob("step-*"))


def test_worker_processes_fetch_the_same_samples(tmp_path: Path) -> None:
    codes = run(tmp_path, 1, 2, workers=1, epochs=1, samples=100, batch=8)

    assert codes == [0, 0]
    each_id_once(notes(tmp_path, "seen"), epochs=1, samples=100)


def test_a_full_disk_is_told_and_training_goes_on(tmp_path: Path) -> None:
    agent = ranks.Agent(tmp_path / "agent")

    codes = ranks.finish(
        ranks.start(on_a_small_disk, 1, weft_env(tmp_path, 1, agent.path), str(tmp_path / "seen"))
    )

    assert codes == [0]
    assert "could not write a checkpoint" in agent.of(Notice)[0].text
    assert agent.of(Leaving) == [Leaving("done")]
    each_id_once(notes(tmp_path, "seen"), epochs=4)
    assert [path.name for path in (tmp_path / "ckpt").iterdir()] == ["OWNER"]


def on_a_small_disk(seen: str) -> None:
    """Train where a file may not be larger than 200 kB, with a state that is."""
    import resource

    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, resource.RLIM_INFINITY))
    train(seen, every_s=0.1, ballast=100_000)


def test_a_noisy_job_chooses_a_larger_batch_and_learns_faster_with_it(tmp_path: Path) -> None:
    agent = ranks.Agent(tmp_path / "agent")
    script = functools.partial(
        train, str(tmp_path / "seen"), batch=4, max_batch=64, max_per_gpu=32,
        epochs=99_999, scaling="adascale",
    )  # fmt: skip
    processes = ranks.start(script, 1, weft_env(tmp_path, 1, agent.path))

    agent.until(lambda: any(report.values["batch"] > 4 for report in agent.of(Report)))
    agent.send_to_rank(Stop(5.0))
    codes = ranks.finish(processes)

    assert codes == [0]
    grown = [report.values for report in agent.of(Report) if report.values["batch"] > 4]
    assert grown[-1]["batch"] <= 64
    assert 1.0 < grown[-1]["lr_factor"] <= grown[-1]["batch"] / 4
    assert grown[-1]["lr_factor"] == pytest.approx(grown[-1]["gain"])
    assert grown[-1]["noise"] > 4
