"""Policies joined from parts: the contract, the policies they equal, and what is refused."""

from __future__ import annotations

import re

import pytest
from tests.cheap import check_contract
from tests.property.test_wrappers import run

from weft.core.errors import WeftError
from weft.core.plan.about import Ties
from weft.core.plan.taxonomy import QUESTIONS
from weft.core.spec.registry import ROLES, build, names

# Together they have every part at least once.
SAMPLE = (
    "compose:order=fifo,place=spread,admit=backfill",
    "compose:order=srtf,place=whole-nodes",
    "compose:order=sjf,place=gaps,share=lucid",
    "compose:order=srsf,place=packed",
    "compose:order=gittins-predicted,place=packed",
    "compose:order=gavel,place=packed",
    "compose:order=las,place=mapa:rule=greedy",
    "compose:order=fifo,place=fgd,admit=backfill",
    "compose:order=las,size=equal:interval=300,place=beside",
    "compose:order=gittins,size=asked,place=consolidated,share=alone",
    "compose:order=tiresias,size=sia:interval=1800,place=tiresias",
    "compose:order=ftf,size=optimus,admit=in-turn",
    "compose:order=none,size=rubick,place=whole-nodes",
    "compose:order=none,size=arena,place=whole-nodes",
    "compose:order=priority,size=slaq:epoch=300,admit=preempt",
    "compose:order=muri:known=false,share=muri,place=consolidated",
    "compose:order=allox,place=packed,admit=worst-off:alpha=0.5",
    'compose:order=themis,size="pollux:generations=2,population=6,interval=1800",place=packed',
    "compose:order=none,size=least,place=whole-nodes",
)
SAME = {
    "fifo": "compose",
    "fifo:backfill=true,place=consolidated": "compose:admit=backfill,place=consolidated",
    "sjf": "compose:order=sjf",
    "mapa:backfill=true": "compose:place=mapa,admit=backfill",
    "srtf": "compose:order=srtf,admit=preempt",
    "srsf:place=spread": "compose:order=srsf,place=spread",
    "las:by=time,thresholds=600/3600": 'compose:order="las:by=time,thresholds=600/3600"',
    "gittins": "compose:order=gittins",
    "tiresias:knob=2": "compose:order=tiresias:knob=2,place=tiresias",
    "muri": "compose:order=muri,share=muri,place=consolidated",
    "sia": "compose:order=none,size=sia,place=whole-nodes",
    "optimus": "compose:order=none,size=optimus",
    "slaq": "compose:order=none,size=slaq,place=beside",
}
REFUSED = {
    "compose:order=none": "order=none leaves the choice to the size, and size=asked makes none",
    "compose:order=none,size=sia,admit=preempt": "so admit=preempt has none to start",
    "compose:order=fifo,size=sia": "size=sia may leave running jobs without GPUs",
    "compose:order=sjf,place=whole-nodes": "place=whole-nodes moves running jobs to make room",
    "compose:order=srtf,size=sia,share=muri": "share=muri needs jobs that keep their size",
    "compose:order=srtf,share=lucid": "share=lucid needs an admission that stops no job",
    "compose:order=fifo,share=muri": "share=muri needs an admission that stops jobs",
    "compose:order=las,every=0": "every=0 must be above 0 seconds",
    "compose:order=lsa": "no order named 'lsa'; did you mean 'las'?",
    "compose:order=las:quantum=0": "quantum=0 must be above 0",
    "compose:place=packed:tight=true": "has no parameter 'tight'",
    "fifo:place=whole-nodes": "compose:order=fifo,place=whole-nodes does that",
    "srtf:place=nowhere": "no place named 'nowhere'",
}


@pytest.mark.parametrize("spec", SAMPLE)
def test_a_composition_keeps_the_contract(spec: str) -> None:
    check_contract(build("policy", spec))


def test_the_sample_has_every_part() -> None:
    written = " ".join(SAMPLE)

    missing = [
        f"{role}={n}"
        for role in ROLES
        for n in names(role)
        if not re.search(rf'{role}="?{n}\b', written)
    ]

    assert not missing, "add them to a composition of the sample"


@pytest.mark.parametrize("policy", SAME)
def test_a_policy_spelled_in_parts_is_the_same_policy(policy: str) -> None:
    ours = run("tiny-20", SAME[policy])

    assert ours.partition("'metrics'")[2] == run("tiny-20", policy).partition("'metrics'")[2]


@pytest.mark.parametrize("spec", REFUSED)
def test_nonsense_is_refused_in_one_line_that_says_why(spec: str) -> None:
    with pytest.raises(WeftError) as refused:
        build("policy", spec)

    message = f"{refused.value.what} {refused.value.hint}"
    assert REFUSED[spec] in message
    assert "\n" not in refused.value.what.partition("\n  ")[0]


def test_a_composition_stands_where_its_parts_do() -> None:
    about = build("policy", "compose:order=ftf,size=sia,place=tiresias").about

    assert not about.taxonomy.missing()
    assert tuple(about.taxonomy.answers()) == QUESTIONS
    assert about.every == 60.0


@pytest.mark.parametrize(("place", "ties"), [("packed", Ties.NODES), ("fgd", Ties.NONE)])
def test_nodes_are_alike_to_a_composition_unless_one_of_its_parts_tells_them_apart(
    place: str, ties: Ties
) -> None:
    assert build("policy", f"compose:order=las,place={place}").about.ties is ties
