"""Whether ranks can change live: tried once, kept, and messages; and a new rank's first pass."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from real_ranks import Agent

from weft_train.base.environment import Environment
from weft_train.base.messages import Drop, FromRank, GroupPlan, Notice
from weft_train.callback_base import UNTRIED, CallbackLink
from weft_train.ranks import self_test
from weft_train.ranks.gang import RankGang
from weft_train.ranks.live_resize import LiveResize
from weft_train.ranks.rehearsal import CallShapes, rehearse
from weft_train.ranks.self_test import AGAIN_S, Ability, find_ability, try_out
from weft_train.reports import Reports

CPU = torch.device("cpu")
BROKEN = "a rank was ended by signal 11"


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """What the self-test says of a new PyTorch, one answer after the other; an empty cache."""
    messages: list[str] = []
    monkeypatch.setattr(torch, "__version__", "9.9.8+cpu")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(self_test, "try_out", lambda _: messages.pop(0))
    return messages


def test_what_was_tried_is_not_tried_again(answers: list[str]) -> None:
    answers += [""]

    assert find_ability(CPU) == Ability()
    assert find_ability(CPU) == Ability()
    assert not answers


def test_a_change_that_is_asked_for_again_is_formed_once() -> None:
    """An agent repeats it to a rank whose line was broken, which may have given it up."""
    env = Environment()
    live = LiveResize(env, RankGang(env, "cpu"), Reports(env, 1.0))
    plan = GroupPlan(1, (0,), (), (0,), "", 0, 1)
    live.on_message(plan)
    live.give_up("it is not wanted")

    live.on_message(plan)

    assert live.flags == (False, False)
    live.on_message(Drop(1))
    assert live.flags == (False, False)


def test_another_pytorch_is_another_question(
    answers: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    answers += ["", BROKEN]
    find_ability(CPU)
    monkeypatch.setattr(torch, "__version__", "9.9.9")

    assert BROKEN in find_ability(CPU).several


def test_a_failure_says_of_what_it_is_and_is_tried_again_after_a_while(
    answers: list[str], tmp_path: Path
) -> None:
    answers += [BROKEN, ""]
    failed = find_ability(CPU)

    assert failed.alone == failed.several
    assert torch.__version__ in failed.several
    assert find_ability(CPU) == failed

    kept = next(tmp_path.rglob("*.json"))
    kept.write_text(json.dumps({"why": BROKEN, "at": time.time() - AGAIN_S}))
    assert find_ability(CPU) == Ability()


@pytest.mark.parametrize("text", ["", "[]", '{"why": ""}', '{"why": "", "at": "soon"}'])
def test_a_cache_that_cannot_be_read_is_none(answers: list[str], tmp_path: Path, text: str) -> None:
    answers += ["", ""]
    find_ability(CPU)
    next(tmp_path.rglob("*.json")).write_text(text)

    assert find_ability(CPU) == Ability()
    assert not answers


def test_nor_is_one_that_cannot_be_written(
    answers: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    answers += ["", ""]
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc")

    assert find_ability(CPU) == find_ability(CPU) == Ability()


def test_on_gpus_a_rank_without_peers_needs_the_lines_of_cpus_alone(
    answers: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.distributed, "is_nccl_available", lambda: True)
    monkeypatch.setattr(torch.cuda.nccl, "version", lambda: (2, 28, 9))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "NVIDIA H200")
    answers += [BROKEN, ""]

    able = find_ability(torch.device("cuda", 0))

    assert able.alone == ""
    assert able.several.endswith(BROKEN)
    assert "NCCL 2.28.9, NVIDIA H200" in able.several


def test_what_every_change_is_tested_with_needs_no_test(
    answers: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "__version__", f"{self_test.KNOWN[0]}.5+cpu")

    assert find_ability(CPU) == Ability()
    assert not answers


def test_the_self_test_itself_passes_here() -> None:
    assert try_out(CPU) == ""


@pytest.mark.parametrize(
    ("ended", "why"),
    [
        (subprocess.CompletedProcess([], 1, "", "warned\nRuntimeError: no sums\n"), "no sums"),
        (subprocess.CompletedProcess([], -11, "", ""), "exit code -11"),
        (subprocess.TimeoutExpired([], 1.0), "did not end"),
        (OSError("no memory"), "could not be started"),
    ],
)
def test_however_it_ends_there_is_a_reason(
    ended: Any, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(*_: object, **__: object) -> Any:
        if isinstance(ended, Exception):
            raise ended
        return ended

    monkeypatch.setattr(subprocess, "run", run)

    assert why in try_out(CPU)


class Said(Reports):
    """What a rank tells its agent."""

    def __init__(self) -> None:
        super().__init__(Environment(), 1.0)
        self.messages: list[FromRank] = []

    def say(self, message: FromRank) -> None:
        self.messages.append(message)


def decide(able: Ability, monkeypatch: pytest.MonkeyPatch) -> tuple[LiveResize, list[FromRank]]:
    """A rank that may change, where the self-test says this."""
    monkeypatch.setattr("weft_train.ranks.live_resize.find_ability", lambda _: able)
    reports, env = Said(), Environment(agent="/there", most_ranks=4)
    return LiveResize(env, RankGang(env, "cpu"), reports), reports.messages


def test_a_job_that_can_be_resized_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    live, messages = decide(Ability(), monkeypatch)

    assert (live.wanted, live.wraps, messages) == (True, True, [])


def test_a_rank_that_can_only_move_is_not_wrapped_and_says_why(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    live, messages = decide(Ability("", BROKEN), monkeypatch)

    assert (live.wanted, live.wraps) == (True, False)
    assert messages == [
        Notice("info", f"the job is restarted for another number of GPUs: {BROKEN}")
    ]


def test_a_job_that_cannot_be_resized_at_all_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    live, messages = decide(Ability(BROKEN, BROKEN), monkeypatch)

    assert (live.wanted, live.wraps) == (False, False)
    assert messages == [Notice("info", f"the job is restarted for other GPUs: {BROKEN}")]


# ---- a new rank's first pass


class Picky(torch.nn.Module):  # type: ignore[misc, unused-ignore]
    """Takes its inputs in several ways, has a state, and counts."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.norm = torch.nn.Embedding(8, 4), torch.nn.BatchNorm1d(4)
        self.calls: list[tuple[torch.Size, torch.dtype]] = []

    def forward(self, ids: torch.Tensor, *, more: dict[str, Any]) -> dict[str, torch.Tensor]:
        self.calls.append((more["x"].shape, torch.mm(more["x"], more["x"].t()).dtype))
        return {"out": self.norm(self.words(ids) + more["x"]) * more["scale"], "ids": ids}


def test_a_new_rank_calls_its_model_as_the_others_called_theirs() -> None:
    theirs, ours, shapes = Picky(), Picky(), CallShapes()
    shapes.watch(theirs)
    more = {"x": torch.randn(5, 4), "scale": 2.0}
    with torch.autocast("cpu", dtype=torch.bfloat16):
        theirs(torch.arange(5), more=more)
        theirs(torch.arange(3), more={"x": torch.randn(3, 4), "scale": 1.0})

    assert rehearse(ours, shapes.packed, CPU)
    assert ours.calls == theirs.calls[:1] == [(torch.Size([5, 4]), torch.bfloat16)]
    assert all(parameter.grad is None for parameter in ours.parameters())


def test_an_evaluation_is_not_what_training_looks_like() -> None:
    model, shapes = torch.nn.Linear(4, 1), CallShapes()
    shapes.watch(model)
    model.eval()(torch.zeros(7, 4))
    assert shapes.packed == b""

    model.train()(torch.zeros(3, 4))
    assert rehearse(torch.nn.Linear(4, 1), shapes.packed, CPU)


def test_a_model_compiled_in_place_keeps_no_hook() -> None:
    model, shapes = torch.nn.Linear(4, 1), CallShapes()
    model._compiled_call_impl = model.forward  # as `model.compile()` does it
    shapes.watch(model)

    assert not model._forward_pre_hooks


def test_a_model_that_cannot_be_called_with_zeros_begins_cold() -> None:
    model, shapes = torch.nn.Linear(4, 1), CallShapes()
    assert not rehearse(model, shapes.packed, CPU)
    shapes.watch(model)
    model(torch.zeros(3, 4))

    assert not rehearse(torch.nn.Linear(5, 1), shapes.packed, CPU)


def test_on_gpus_ranks_of_other_libraries_are_restarted_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = Agent(tmp_path / "agent")
    env = {"WEFT_AGENT": str(agent.path), "WEFT_JOB": "job", "WEFT_ATTEMPT": "1"}
    for name, value in {**env, "WEFT_MOST_RANKS": "4", "WEFT_KIND": "h200"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)

    link = CallbackLink()

    agent.until(lambda: agent.of(Notice))
    assert agent.of(Notice)[0].text.endswith(UNTRIED)
    assert link.changing is None
