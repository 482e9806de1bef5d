"""What a rank says when it joins counts only as far as the engine wrote the same down."""

from __future__ import annotations

from pathlib import Path

import pytest

from weft.base.errors import WireError
from weft.base.messages import Turns
from weft.base.tokens import Ask, Join
from weft.node.tokens.coordinator import Coordinator
from weft.node.tokens.disciplines import discipline
from weft.node.tokens.members import Key
from weft.node.tokens.server import TokenServer, TokenTerms, read_terms
from weft.wire.attempt import ADJUST, AttemptSpec, folder_of, write_whole

GREEDY = Join("j", 0, 1, "guaranteed", 1e9, 0.9, ("gpu:0", "gpu:1", "gpu:7"))


def written(state: Path, attempt: int, tier: str, weight: float, *devices: int) -> Path:
    folder = folder_of(state, "j", attempt)
    folder.mkdir(parents=True)
    spec = AttemptSpec("j", attempt, ("x",), "/", "", devices, turns=Turns("", tier, weight, 0.25))
    spec.write(folder)
    return folder


def test_the_engines_terms_of_the_last_attempt_hold(tmp_path: Path) -> None:
    written(tmp_path, 9, "guaranteed", 1.0, 0)
    written(tmp_path, 10, "opportunistic", 0.5, 1, 2)

    terms = read_terms(tmp_path, "j")

    assert terms == TokenTerms("opportunistic", 0.5, 0.25, ("gpu:1", "gpu:2"))
    assert terms.of(GREEDY) == Join("j", 0, 1, "opportunistic", 0.5, 0.25, ("gpu:1",))
    assert terms.of(Join("j", 0, 1)).gpus == ("gpu:1", "gpu:2")


def test_terms_that_changed_while_it_runs_hold_from_then_on(tmp_path: Path) -> None:
    folder = written(tmp_path, 1, "guaranteed", 1.0, 0)
    turns = {"coordinator": "", "tier": "opportunistic", "weight": 0.25, "phase": 0.5}
    write_whole(folder / ADJUST, {"turns": turns})

    assert read_terms(tmp_path, "j") == TokenTerms("opportunistic", 0.25, 0.5, ("gpu:0",))


def test_a_job_that_the_engine_does_not_know_has_no_terms(tmp_path: Path) -> None:
    assert read_terms(tmp_path, "nobody") is None


def test_a_member_may_not_ask_for_devices_of_others(tmp_path: Path) -> None:
    written(tmp_path, 1, "guaranteed", 1.0, 0)
    server = TokenServer(Coordinator(discipline("work-conserving")), tmp_path / "x.sock", tmp_path)
    key = Key(1)

    joined = server._allow(key, GREEDY)

    assert joined == Join("j", 0, 1, "guaranteed", 1.0, 0.25, ("gpu:0",))
    mine = Ask(1, ("gpu:0", "cpu"))
    assert server._allow(key, mine) == mine
    with pytest.raises(WireError, match="gpu:1 is not one of its devices"):
        server._allow(key, Ask(2, ("gpu:0", "gpu:1")))
