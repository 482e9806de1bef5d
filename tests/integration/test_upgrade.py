"""A state folder that the last release wrote is gone on with by this version.

`states/0.1.0.tar.gz` is of a service of 0.1.0 that was ended while a job ran and one waited.
"""

from __future__ import annotations

from pathlib import Path

from tests.integration.serving import API, get, serving, submit
from tests.integration.versions import extract
from tests.waiting import wait_until

STATES = Path(__file__).parent / "states"
ENGINE = "simulated:cluster=1x4:a100,speed=600"


def test_jobs_of_the_last_release_are_known_and_go_on(tmp_path: Path) -> None:
    newest = sorted(STATES.glob("*.tar.gz"))[-1]
    with newest.open("rb") as packed:
        extract(packed, tmp_path)

    with serving(ENGINE, state=tmp_path) as client:
        states = {job["id"]: job["state"] for job in get(client, "/jobs")["jobs"]}
        assert {states[f"done-{i}"] for i in range(3)} == {"succeeded"}
        assert states.keys() >= {"runs", "waits"}
        assert get(client, "/jobs/waits")["reason"] == "waits for runs to end"
        assert get(client, "/policy")["policy"] == "fifo"
        assert get(client, "/jobs/done-0/events")["events"][0]["event"] == "Submitted"
        client.delete(f"{API}/jobs/runs")
        wait_until(lambda: get(client, "/jobs/waits")["state"] == "succeeded")
        new = submit(client, gpus=1, hints={"duration_s": 60})
        wait_until(lambda: get(client, f"/jobs/{new}")["state"] == "succeeded")

    with serving(ENGINE, state=tmp_path) as client:  # and by this version again
        assert get(client, "/jobs/waits")["state"] == "succeeded"
