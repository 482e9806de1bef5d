"""Pack by discretised queues, and remember where everyone stood."""

from __future__ import annotations

from collections.abc import Callable

from weft.core.plan import Plan
from weft.core.table import Rows
from weft.core.view import View
from weft.pieces.order.queues import Queues, Standing
from weft.pieces.pack import pack, running_after, start_all
from weft.pieces.place.gangs import Placer, fewest_nodes

Order = Callable[[View, Standing], Rows]


def queue_jobs(
    view: View, queues: Queues, place: Placer = fewest_nodes, order: Order | None = None
) -> Plan:
    """Scan the queues in order, first fit; wake when the next job sinks or rises."""
    if not queues.promotes and (plan := start_all(view, place)) is not None:
        # Nobody waits, so no order matters: who sank meanwhile is worked out when somebody does.
        return Plan(plan.changes, memory=view.memory)
    standing = queues.stand(view)
    rows = (order or queues.order)(view, standing)
    plan = pack(view, rows, place)
    running = running_after(view, plan)
    return Plan(
        plan.changes,
        wake_at=queues.next_change(view, standing, running),
        memory=queues.remember(standing, rows, running),
    )
