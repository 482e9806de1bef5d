"""`kill -9` of the service while jobs are submitted: whatever was accepted is there afterwards."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import httpx

from tests.waiting import LIMIT_S

SERVE = """
import sys
from pathlib import Path
from weft.app.serve.live import Settings
from weft.service.main import serve
settings = Settings(engine="simulated:cluster=1x4:a100,speed=1", state=Path(sys.argv[1]), port=0)
serve(settings, ready=lambda address: print(address, flush=True))
"""
ROUNDS, SUBMITTERS = 2, 4


def start(state: Path) -> tuple[subprocess.Popen[str], str]:
    command = [sys.executable, "-c", SERVE, str(state)]
    service = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert service.stdout is not None
    return service, service.stdout.readline().strip()


def submit_until_it_dies(
    address: str, number: int, accepted: list[str], some: threading.Event
) -> None:
    with httpx.Client(base_url=address, timeout=LIMIT_S, trust_env=False, verify=False) as client:
        for i in range(10_000):
            name = f"j{number}-{len(accepted)}-{i}"
            try:
                answer = client.post("/api/v1/jobs", json={"id": name, "gpus": 1})
            except httpx.HTTPError:
                return
            assert answer.status_code == 201
            accepted.append(name)
            if len(accepted) % 20 == 19:
                some.set()


def test_every_accepted_submit_is_there_after_a_kill(tmp_path: Path) -> None:
    accepted: list[str] = []
    for _ in range(ROUNDS):
        service, address = start(tmp_path)
        some = threading.Event()
        threads = [
            threading.Thread(target=submit_until_it_dies, args=(address, i, accepted, some))
            for i in range(SUBMITTERS)
        ]
        for thread in threads:
            thread.start()
        assert some.wait(LIMIT_S)
        service.kill()
        service.wait(LIMIT_S)
        for thread in threads:
            thread.join(LIMIT_S)
        assert service.stdout is not None
        service.stdout.close()

    service, address = start(tmp_path)
    try:
        jobs = httpx.get(f"{address}/api/v1/jobs?limit=1000", trust_env=False, verify=False).json()[
            "jobs"
        ]
        accounts = httpx.get(f"{address}/api/v1/accounting", trust_env=False, verify=False).json()
    finally:
        service.terminate()
        assert service.wait(LIMIT_S) == 0
        assert service.stdout is not None
        service.stdout.close()
    there = [job["id"] for job in jobs]
    assert len(accepted) >= 2 * 19
    assert len(there) == len(set(there))
    assert set(accepted) <= set(there)
    assert sum(job["gpu_seconds"] for job in accounts["jobs"]) == sum(
        tenant["gpu_seconds"] for tenant in accounts["tenants"]
    )
