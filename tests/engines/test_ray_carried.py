"""Live resizes and artifacts on a real Ray cluster without a shared folder."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.clusters.ray import ADDRESS, throw_away_ray, why_not
from tests.engines.left_files import files_are_read
from weft.engines.ray.engine import RayEngine
from weft.testing.check_engine import CHECKS
from weft.testing.engine_subject import shell_subject

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(why_not()), reason=why_not())]


def test_a_training_is_resized_through_folders_that_are_carried(tmp_path: Path) -> None:
    with throw_away_ray("a1:a100:2", "a2:a100:2") as cluster:

        def engine() -> RayEngine:
            state, token = tmp_path / "state", str(cluster.token)
            return RayEngine(state, ADDRESS, token=token, uses="labelled", files="carried")

        subject = shell_subject(engine, where="$HOSTNAME", exact=True)
        for check in ("a_training_is_resized", "a_training_moves_to_another_node"):
            asyncio.run(CHECKS[check](subject))
        assert any((cluster.folder / "a2-files").rglob("events.jsonl"))


def test_files_that_a_job_left_are_read_on_its_node(tmp_path: Path) -> None:
    with throw_away_ray("a1:a100:2") as cluster:
        state, token = tmp_path / "state", str(cluster.token)
        (state / "work").mkdir(parents=True)
        subject = shell_subject(
            lambda: RayEngine(state, ADDRESS, token=token, uses="labelled", files="carried")
        )
        there = cluster.folder / "a1-files" / "work"

        asyncio.run(files_are_read(subject, state / "work", there))
        assert not any((state / "work").iterdir())
