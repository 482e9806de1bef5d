"""Whatever is sent to the API, no answer is an error of ours."""

from __future__ import annotations

from benchmarks.random_requests import fire

from tests.integration.serving import API, serving, submit
from tests.seeds import varied

COUNT = 600


def test_random_requests_are_answered_and_the_service_goes_on() -> None:
    with serving() as client:
        for number in range(5):
            submit(client, id=f"job{number}", gpus=1)

        seen, wrong = fire(client, COUNT, seed=varied(7))

        assert not wrong
        assert sum(seen.values()) == COUNT
        assert {200, 404, 422} <= set(seen)
        assert client.get(f"{API}/jobs").status_code == 200
