"""HiveD: virtual clusters made of cells, each with the policy inside it.

Paper       Zhao et al., "HiveD: Sharing a GPU Cluster for Deep Learning with Guarantees", OSDI
            2020.
Objective   sharing safety: no tenant waits longer than in a private cluster of its cells.
Needs       what the policy inside needs.
Controls    where a tenant's jobs run; the inner policy decides which jobs run and on how many
            devices.
Cost        O(nodes + jobs) a decision beside the policy's own; O(levels) for each cell bound.
Deviations  the policy inside is asked once for each virtual cluster, on machines made of its cells,
            and once for all opportunistic jobs, on what is idle; HiveD has one packer for all. A
            job that is in the way of a guaranteed gang is stopped at once and waits again. Tenants
            without cells are opportunistic. Idle cells are divided by weighted max-min fairness
            where the policy inside does that: `hived|quota:weights=a=2/b=1|fifo`; without a quota
            in its own order. Jobs that may not be preempted run in their own cells alone. A job
            larger than its virtual cluster is rejected.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from typing import Any

from weft.core.errors import InvalidConfig, did_you_mean
from weft.core.model.cluster import Cluster
from weft.core.plan.about import About, Ties, may_idle
from weft.core.plan.plan import Plan
from weft.core.plan.policy import recall
from weft.core.plan.taxonomy import Fairness, Objective, Preemption, TopologyKnowledge, declare
from weft.core.plan.view import View
from weft.frozen import frozen
from weft.pieces.wrap.priority import Priority
from weft.pieces.wrap.reason_news import tell_news
from weft.stack.ask_policy import ask
from weft.stack.wrapper import Wrapper, WrapperMemory
from weft_papers.hived.assignment import Machine, lay_out, machines_of
from weft_papers.hived.rules import CellOptions, read_rules
from weft_papers.hived.turn import Asked, HivedDecision

# ---- Virtual clusters as people write them in a file
#
# levels:                                  # optional: of what machines of a kind are made
#   v100: {switch: 2, socket: 2, node: 2, rack: 4}
# virtual_clusters:
#   vision: {v100: {node: 4, socket: 1}}   # or {node: 4} where there is one kind
#   nlp: {a100: {node: 2}, pinned: [n7, "n8:0-3"]}


LEVELS, CLUSTERS, PINNED = "levels", "virtual_clusters", "pinned"
EXAMPLE = "virtual_clusters: {vision: {v100: {node: 4}}}"


def read_content(content: object) -> dict[str, Any]:
    """Parameters of `hived` from what a file holds; InvalidConfig names the field at fault."""
    whole = _fields(content, "the file", EXAMPLE)
    for key in whole:
        if key not in (LEVELS, CLUSTERS):
            close = did_you_mean(key, (LEVELS, CLUSTERS))
            raise InvalidConfig(
                f"unknown field {key!r}{close}", hint=f"known are {LEVELS} and {CLUSTERS}"
            )
    cells: dict[str, float] = {}
    pinned: dict[str, str] = {}
    clusters = _fields(whole.get(CLUSTERS, {}), CLUSTERS, EXAMPLE)
    for tenant, held in clusters.items():
        where = f"{CLUSTERS}.{tenant}"
        for key, value in _fields(held, where, EXAMPLE).items():
            if key == PINNED:
                pinned[tenant] = "+".join(_nodes(value, f"{where}.{PINNED}"))
            elif isinstance(value, Mapping):
                for level, count in _fields(value, f"{where}.{key}", EXAMPLE).items():
                    cells[f"{tenant}@{key}.{level}"] = _count(count, f"{where}.{key}.{level}")
            else:
                cells[f"{tenant}@{key}"] = _count(value, f"{where}.{key}")
    if not cells and not pinned:
        raise InvalidConfig(f"{CLUSTERS}: there is none", hint=f"for example {EXAMPLE}")
    levels = {
        kind: _levels(levels, f"{LEVELS}.{kind}")
        for kind, levels in _fields(whole.get(LEVELS, {}), LEVELS, "").items()
    }
    return {"cells": cells, "levels": levels, "pinned": pinned}


def _fields(value: object, where: str, example: str) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        hint = f"for example {example}" if example else ""
        raise InvalidConfig(f"{where} is {value!r}, expected fields", hint=hint)
    return {str(key): item for key, item in value.items()}


def _count(value: object, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise InvalidConfig(f"{where} is {value!r}, expected a number of cells")
    return float(value)


def _levels(value: object, where: str) -> str:
    words = []
    for name, fan in _fields(value, where, "{switch: 2, node: 4}").items():
        if isinstance(fan, bool) or not isinstance(fan, int) or fan < 1:
            raise InvalidConfig(
                f"{where}.{name} is {fan!r}, expected a number of cells of the level below"
            )
        words.append(f"{name}*{fan}")
    return " ".join(words)


def _nodes(value: object, where: str) -> list[str]:
    if not isinstance(value, (list, tuple)) or not all(isinstance(node, str) for node in value):
        raise InvalidConfig(f"{where} is {value!r}, expected a list of nodes", hint="such as [n1]")
    return list(value)


# ---- HiveD


STARVES = "an opportunistic job while owners use their cells"


@frozen
class HivedMemory(WrapperMemory):
    """Memory of the policy inside each virtual cluster; machines that were there.

    `bound` is where cells are in use, `last` where others were; `told` the reasons of jobs,
    `asked` how virtual clusters stood when their policy was asked last.
    """

    inner: Mapping[str, object] = field(default_factory=dict)
    machines: tuple[Machine, ...] = ()
    bound: Mapping[str, str] = field(default_factory=dict)
    last: Mapping[str, str] = field(default_factory=dict)
    asked: Mapping[str, Asked] = field(default_factory=dict)


@frozen
class Hived(Wrapper):
    """Give every tenant a virtual cluster of its own cells, and lend idle cells.

    `cells` are numbers of cells of `TENANT@LEVEL` or `TENANT@KIND.LEVEL`; `levels` describe the
    parts of machines of a kind, such as `switch*2 socket*2 node*2 rack*4` from the device up;
    `pinned` are nodes of a tenant that stay the same, such as `n1+n2:0-3`. `file` has all three and
    is read where the policy is named. With `priorities` jobs of higher priority choose first.
    """

    adds = declare(
        Objective.GUARANTEES | Objective.UTILIZATION,
        TopologyKnowledge.CELLS,
        Fairness.USERS,
        Preemption.STOPS,
    )
    cells: Mapping[str, float] = field(default_factory=dict)
    levels: Mapping[str, str] = field(default_factory=dict)
    pinned: Mapping[str, str] = field(default_factory=dict)
    file: str = field(default="", metadata={"file": read_content})
    priorities: bool = True

    def __post_init__(self) -> None:
        if self.file:
            raise InvalidConfig(
                f"hived: file={self.file!r} is read where the policy is named, not here",
                hint="use the command line, or give cells, levels and pinned themselves",
            )
        self._rules()

    @property
    def about(self) -> About:
        """The inner policy's; it must be shown everything, and knows what it can be asked for."""
        inner = self.inner.about
        if not self.cells and not self.pinned:
            return inner
        starves = "; ".join(filter(None, (inner.starves, STARVES)))
        return replace(
            may_idle(inner, "cells are kept whole for the tenants they belong to"),
            starves=starves,
            whole=True,
            objection=self.object_to,
            ties=Ties.NONE,
        )

    def object_to(self, cluster: Cluster) -> str:
        """Say why these machines cannot hold the virtual clusters; empty if they can."""
        problems = lay_out(machines_of(cluster), self._rules()).problems
        return f"hived: {problems[0]}" if problems else ""

    def decide(self, view: View) -> Plan:
        """The inner policy's decision in each virtual cluster, then about opportunistic jobs."""
        if not self.cells and not self.pinned:
            return ask(self.inner, view)
        kept = recall(view, HivedMemory)
        policy = Priority(self.inner) if self.priorities else self.inner
        machines = _known(kept.machines, view.cluster)
        mark = view.free.mark()
        try:
            layout = lay_out(machines, self._rules())
            turn = HivedDecision(policy, view, layout, kept.inner, kept.asked, kept.told)
            turn.bind_running(kept.bound, kept.last)
            plan = turn.plan_all()
        finally:
            view.free.rollback(mark)
        bound, last = turn.bound_places()
        kept = HivedMemory({}, kept.told, machines, bound, last, turn.asked)
        return tell_news(view, replace(plan, memory=turn.memory), turn.reasons, kept)

    def _rules(self) -> CellOptions:
        return read_rules(self.cells, self.levels, self.pinned)


def _known(before: tuple[Machine, ...], cluster: Cluster) -> tuple[Machine, ...]:
    """All machines that there were, those away too."""
    here = machines_of(cluster)
    if not before or before == here:
        return here
    now = {machine[0]: machine for machine in here}
    kept = [now.pop(machine[0], machine) for machine in before]
    return (*kept, *now.values())
