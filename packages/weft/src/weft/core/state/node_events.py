"""Changes of the state when machines come and go."""

from __future__ import annotations

from weft.core.asleep.fold import stop_sleeper
from weft.core.events.actions import Action
from weft.core.model.cluster import Node
from weft.core.model.job import NodeId
from weft.core.state.parts import StateParts


def take_down(state: StateParts, now: float, node: NodeId) -> list[Action]:
    """A machine is gone, or given back: jobs that hold devices of it or sleep there must leave."""
    at = state.cluster.index.get(node)
    if at is None:
        return []
    if state.recalled and state.cluster.nodes[at].loaned:
        state.recalled -= 1
    actions: list[Action] = []
    for row, on in enumerate(state.table.allocations):
        job = state.table.jobs[row].id
        if on is not None and any(
            part.node == node for part in state.live.all_held(job, on).slices
        ):
            actions += state.end_attempts(job)
            state.table.meters_off(row, now)
    for job, sleeping in [*state.asleep.sleepers.items()]:
        if any(part.node == node for part in sleeping.on.slices):
            actions += stop_sleeper(state, job)
    state.rebuild(state.cluster.without(node))
    return actions


def bring_up(state: StateParts, now: float, node: Node) -> list[Action]:
    """A machine came, or came back."""
    actions: list[Action] = []
    at = state.cluster.index.get(node.id)
    if at is not None and state.cluster.nodes[at] != node:
        # Other devices than before: whatever ran there is gone with the old ones.
        actions = take_down(state, now, node.id)
    state.rebuild(state.cluster.having(node, state.whole.index))
    return actions
