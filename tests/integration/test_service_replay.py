"""A recorded run under quotas and priorities replays to the same decisions."""

from __future__ import annotations

import time
from pathlib import Path

from tests.integration.serving import serving
from tests.waiting import LIMIT_S
from weft.app.serve.predicting import HintedOrAlike
from weft.core.knowledge.knowledge import Knowledge
from weft.perf.linear import LinearBeliefs
from weft.runtime.deciding.replay import decide_again
from weft.store.sqlite import SqliteStore

API = "/api/v1"
ENGINE = "simulated:cluster=2x4:a100+1x4:t4,speed=600"


def test_quotas_and_priorities_are_part_of_the_log(tmp_path: Path) -> None:
    with serving(ENGINE, tmp_path, policy="las") as client:
        rules = {"limits": {"a": 5, "b@a100": 2}, "weights": {"a": 2}}
        assert client.put(f"{API}/quotas", json=rules).status_code == 200
        for i in range(24):
            body = {
                "id": f"j{i}",
                "gpus": 1 + i % 3,
                "tenant": "abc"[i % 3],
                "priority": ("normal", "opportunistic", "guaranteed")[i % 5 % 3],
                "preemptible": i % 2 == 0 or i % 5 % 3 == 1,  # as opportunistic ones must be
                "hints": {"duration_s": 100 + 200 * (i % 4)},
            }
            assert client.post(f"{API}/jobs", json=body).status_code == 201
        end = time.monotonic() + LIMIT_S
        while client.get(f"{API}/cluster").json()["jobs"].get("succeeded", 0) < 24:
            assert time.monotonic() < end
            time.sleep(0.1)
    store = SqliteStore(tmp_path / "events.db")
    log = store.since(0)
    store.close()

    turns = decide_again(log, knowledge=Knowledge(HintedOrAlike(), LinearBeliefs()))

    assert sum(turn.then is not None for turn in turns) > 24
    assert [turn for turn in turns if turn.then != turn.now] == []
    reasons = [why for turn in turns if turn.then for why in turn.then.reasons.values()]
    assert any(why.startswith("over ") for why in reasons)
