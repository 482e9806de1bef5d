"""The layers around a service's policy: one list, one order, one figure."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from weft.app.serve.rules import Quotas, without_wrappers
from weft.core.plan.reasons import Blocker
from weft.core.spec.part_spec import PartSpec
from weft.policies.fifo import Fifo
from weft.stack import layers
from weft.stack.layers import LAYERS, Backoff, CpuJobs, EligibleJobs, decided_by, surround


def test_the_figure_shows_every_layer_in_order_with_what_it_does() -> None:
    rows = re.findall(r"^    (\w+) {2,}(\S.*)$", layers.__doc__ or "", re.MULTILINE)

    assert rows == [(layer.name, layer.does) for layer in LAYERS]


def test_the_page_on_the_design_lists_the_same_layers() -> None:
    text = (Path(__file__).resolve().parents[4] / "docs/explanation/design.md").read_text()
    text = text.partition("\n## The layers around a policy\n")[2].partition("\n## ")[0]

    listed = re.findall(r"^\| `(\w+)` \| ([^|]+) \|$", text, re.MULTILINE)

    assert listed == [(layer.name, layer.does) for layer in LAYERS]


def test_the_first_layers_are_around_every_policy() -> None:
    policy = Fifo()

    assert surround(policy) == EligibleJobs(Backoff(CpuJobs(policy)))
    assert surround(policy).about == policy.about


def test_the_rules_of_a_service_are_wrappers_in_the_order_of_the_list() -> None:
    rules = Quotas({"nlp": 4.0}, own={"nlp": 2.0}, windows={"w": "node-1"})

    spec = rules.wrap_policy(PartSpec("las"))

    order = [layer.name for layer in LAYERS if layer.wrap is None]
    assert [wrapper.name for wrapper in spec.wrappers] == order
    assert without_wrappers(spec) == PartSpec("las")


def test_layers_without_rules_are_left_out() -> None:
    names = [wrapper.name for wrapper in Quotas().wrap_policy(PartSpec("las")).wrappers]

    assert names == ["skip_failing", "promise", "easy", "priority", "no_preempt", "steady"]


def test_a_steady_that_a_person_chose_takes_the_place_of_ours() -> None:
    chosen = PartSpec("las").inside(PartSpec("steady", {"min_run_s": 5.0}))

    names = [wrapper.name for wrapper in Quotas().wrap_policy(chosen).wrappers]

    assert names == ["skip_failing", "promise", "easy", "priority", "no_preempt", "steady"]


@pytest.mark.parametrize(
    ("blocker", "by"),
    [
        (Blocker.QUOTA, "quota, which keeps tenants within their limits and shares"),
        (Blocker.DEPENDENCY, "eligible_jobs, which hides jobs that wait for other jobs"),
        (Blocker.TURN, "policy las"),
        (Blocker.FALLBACK, "fifo, which replaces a policy that failed"),
    ],
)
def test_a_reason_names_the_layer_that_decided(blocker: Blocker, by: str) -> None:
    assert decided_by(blocker, "las").startswith(by)


def test_no_reason_belongs_to_two_layers() -> None:
    reasons = [blocker for layer in LAYERS for blocker in layer.reasons]

    assert len(reasons) == len(set(reasons))
