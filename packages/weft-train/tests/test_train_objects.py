"""A training with checkpoints in an S3 store goes on elsewhere, with nothing else shared."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest
import real_ranks as ranks
from s3_server import running_s3
from test_train_elastic import each_id_once
from train_script import notes, train


@pytest.mark.slow
def test_a_stopped_training_goes_on_with_more_ranks_from_the_store(tmp_path: Path) -> None:
    codes: list[int | None] = []
    with running_s3("kept") as variables:
        for attempt, (size, term_at) in enumerate(((1, 40), (1, 75), (2, 0)), start=1):
            here = tmp_path / f"node-{attempt}"
            here.mkdir()
            env = {"WEFT_JOB": "line", "WEFT_ATTEMPT": str(attempt), "TMPDIR": str(here)}
            env |= {"WEFT_CHECKPOINTS": "s3://kept/run", **variables}
            script = functools.partial(train, str(tmp_path / "seen"), batch=32, term_at=term_at)
            codes += ranks.finish(ranks.start(script, size, env))
            assert not list(here.iterdir())

    assert codes == [0] * 4
    seen = notes(tmp_path, "seen")
    each_id_once(seen, epochs=4)
    assert {note["size"] for note in seen if "ids" in note} == {1, 2}
