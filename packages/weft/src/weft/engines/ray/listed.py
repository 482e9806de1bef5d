"""Waits until a Ray cluster lists a node.

    python -m weft.engines.ray.listed ADDRESS NAME

A process of its own, so that `weft join` need not load Ray: it ends once the node is there.
"""

from __future__ import annotations

import sys
import time

from weft.engines.ray.labels import NODE

PAUSE_S = 0.5


def wait_until_listed(address: str, name: str) -> None:
    """Until the head at `address` has a living node with our label `name`."""
    from ray._private.state import GlobalState
    from ray._raylet import GcsClientOptions  # type: ignore[attr-defined, unused-ignore]  # it is compiled, if there

    state = GlobalState()
    state._initialize_global_state(  # as a driver does, without being one
        GcsClientOptions.create(
            address, None, allow_cluster_id_nil=True, fetch_cluster_id_if_nil=True
        )
    )
    while not any(row["Alive"] and row["Labels"].get(NODE) == name for row in state.node_table()):
        time.sleep(PAUSE_S)


if __name__ == "__main__":
    wait_until_listed(*sys.argv[1:3])
