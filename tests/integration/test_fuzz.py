"""Random event files, request bodies and job files; the service lives and others' jobs end.

`make test-all` runs 2,000 bodies, 500 event files and 500 job files, `make test-slow` 10,000 each.
Reports have the same in `test_hostile_messages.py`: 1,200, and 10,000 for each of four policies.
Seeds are fixed.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.integration.serving import API, get, serving, submit
from tests.integration.test_local_details import job
from tests.seeds import varied
from tests.waiting import LIMIT_S
from weft.app.serve.rules import TenantLimits
from weft.cli.job_files.job_file import from_file, from_sbatch
from weft.cli.job_files.job_options import Flags
from weft.core.errors import WeftError
from weft.core.events.event import Event, Failed, Finished, StartFailed, Stopped
from weft.core.model.job import Allocation, JobId, Slice
from weft.engines.local import LocalEngine
from weft.service.requests.job_file import JobFile
from weft.wire.attempt import CLAIM, EVENTS, AttemptSpec, folder_of, write_whole

COUNTS = [100, pytest.param(10_000, marks=pytest.mark.slow)]
ENDS = (Finished, Failed, Stopped, StartFailed)
FAST = "simulated:cluster=2x4:a100,speed=3600"
NOBODY = {"pid": 4_194_303, "began": 1}  # above any process there is
NASTY: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 7, 10**18, 10**400, 0.5, -0.0, 1e-300, 1e308, "x", ""),
    *("nan", "\ud800", "\0", "../../etc", "a" * 3000, "{", "$(id)", "=1", "*", "@last"),
)


def value(rng: random.Random, depth: int = 0) -> Any:
    roll = rng.random()
    if depth < 3 and roll < 0.12:
        return [value(rng, depth + 1) for _ in range(rng.randint(0, 4))]
    if depth < 3 and roll < 0.24:
        return {word(rng): value(rng, depth + 1) for _ in range(rng.randint(0, 4))}
    return rng.choice(NASTY) if roll < 0.8 else rng.uniform(-10.0, 1e6)


def word(rng: random.Random) -> str:
    return rng.choice(("min", "max", "init", "dir", "grid", "list", "ok", "A", "lr", "", "x" * 99))


# ---- event files


LINES: tuple[dict[str, Any], ...] = (
    {"event": "started", "ranks": {"0": [4_194_302, 1]}},
    {"event": "ranks", "ranks": {"0": [4_194_302, 1], "1": [4_194_301, 1]}},
    {"event": "report", "rank": 0, "values": {"loss": 1.0, "step_s": 0.1}},
    {"event": "saved", "step": 3, "epoch": 0, "path": ""},
    {"event": "notice", "level": "info", "text": "x"},
    {"event": "exited", "rank": 0, "code": 0},
    {"event": "stopping"},
    {"event": "ended", "outcome": "finished", "reason": ""},
    {"event": "ended", "outcome": "failed", "reason": "x", "code": 3},
)


def event_file(rng: random.Random) -> bytes:
    """Lines of an agent, some of them spoilt in one of many ways."""
    whole = b""
    for _ in range(rng.randint(0, 8)):
        line = dict(rng.choice(LINES))
        for name in [*line]:
            if rng.random() < 0.15:
                line[name] = value(rng)
            elif rng.random() < 0.05:
                del line[name]
        text = json.dumps(line).encode("utf-8", "surrogatepass")
        if rng.random() < 0.05:
            text = rng.randbytes(rng.randint(0, 40))
        whole += text + (b"" if rng.random() < 0.03 else b"\n")
    return whole


def lay_out(state: Path, name: str, body: bytes) -> Path:
    folder = folder_of(state, name, 1)
    folder.mkdir(parents=True)
    AttemptSpec(name, 1, ("true",), "/", "", (0,)).write(folder)
    write_whole(folder / CLAIM, NOBODY)
    (folder / EVENTS).write_bytes(body)
    return folder


@pytest.mark.parametrize("count", COUNTS)
def test_random_event_files_end_their_own_attempts_and_others_finish(
    tmp_path: Path, count: int
) -> None:
    rng, ends = random.Random(varied(12)), Counter[str]()

    async def life() -> list[str]:
        engine = LocalEngine(tmp_path, slots=2, warm=False, cpu=True)
        await engine.adopt(())
        node = (await engine.nodes())[0]
        news, others = engine.events(), []
        for start in range(0, count, 100):
            names = {f"f{i}" for i in range(start, start + 100)}
            other = f"good{start}"
            on = Allocation((Slice(node.id, (0,)),))
            await engine.start(job(other, "true"), on, 1)
            for name in names:
                lay_out(tmp_path, name, event_file(rng))
                assert engine._resume((JobId(name), 1))
            waiting = names | {other}
            async with asyncio.timeout(LIMIT_S):
                while waiting:
                    event: Event = await anext(news)
                    if isinstance(event, ENDS) and event.job in waiting:
                        waiting.discard(event.job)
                        ends[type(event).__name__] += 1
                        others += [type(event).__name__] if event.job == other else []
        assert not engine.health.reason
        await engine.close()
        return others

    others = asyncio.run(life())

    assert others == ["Finished"] * (count // 100)
    assert ends.total() == count + count // 100
    assert ends["Failed"]  # those that had said that they started


# ---- bodies of requests


FIELDS = [*JobFile.model_fields]
ROUTES = (
    "jobs",
    "jobs",
    "jobs",
    "plan",
    "what-if",
    "quotas",
    "policy",
    "webhooks",
    "tokens/x/rotate",
)
SOUND: dict[str, Any] = {"command": ["true"], "gpus": 1, "hints": {"duration_s": 1.0}}


def body_of(rng: random.Random) -> Any:
    if rng.random() < 0.05:
        return value(rng)
    body: dict[str, Any] = dict(SOUND) if rng.random() < 0.7 else {}
    for _ in range(rng.randint(1, 4)):
        name = rng.choice(FIELDS) if rng.random() < 0.9 else word(rng)
        body[name] = value(rng)
    return body


def bytes_of(rng: random.Random, body: Any) -> bytes:
    data = json.dumps(body).encode("utf-8", "surrogatepass")
    if rng.random() < 0.03:
        return rng.randbytes(rng.randint(0, 60))
    return data[: rng.randrange(len(data))] if rng.random() < 0.03 else data


@pytest.fixture
def client() -> Iterator[httpx.Client]:
    limits = TenantLimits(rate=0.0, jobs=0.0)
    with serving(FAST, policy="fifo", limits=limits) as serving_client:
        yield serving_client


def till_ended(client: httpx.Client, jobs: list[str]) -> None:
    for name in jobs:
        while (state := get(client, f"/jobs/{name}")["state"]) != "succeeded":
            assert state in ("pending", "starting", "running", "preempted"), (name, state)


@pytest.mark.parametrize("count", [1_000, pytest.param(10_000, marks=pytest.mark.slow)])
def test_random_bodies_are_answered_and_others_jobs_end(client: httpx.Client, count: int) -> None:
    rng, codes, good = random.Random(varied(13)), Counter[int](), list[str]()

    for i in range(count):
        if i % 100 == 0:
            good.append(submit(client, name="good", gpus=1, hints={"duration_s": 1.0}))
        route = rng.choice(ROUTES)
        method = "PUT" if route in ("quotas", "policy") else "POST"
        answer = client.request(
            method,
            f"{API}/{route}",
            content=bytes_of(rng, body_of(rng)),
            headers={"Content-Type": "application/json"},
        )
        assert answer.status_code < 500, (route, answer.text)
        codes[answer.status_code] += 1
        if answer.status_code == 201:
            made = answer.json()
            for job_id in made.get("jobs", [made["id"]]):
                client.delete(f"{API}/jobs/{job_id}")

    client.put(f"{API}/quotas", json={})
    client.put(f"{API}/policy", json={"policy": "fifo"})
    till_ended(client, good)
    assert codes[201] > 0
    assert codes[422] > count // 3
    assert not get(client, "/cluster")["trouble"]


# ---- job files


SLURM = (
    "nodes",
    "ntasks",
    "gres",
    "time",
    "mem",
    "array",
    "export",
    "chdir",
    "signal",
    "gpus",
    "x",
)


def job_file(rng: random.Random) -> bytes:
    """YAML, JSON or a Slurm script, or what is left of one."""
    body = body_of(rng)
    try:
        text = json.dumps(body) if rng.random() < 0.3 else yaml.safe_dump(body)
    except (yaml.YAMLError, ValueError):
        text = json.dumps(body)
    if rng.random() < 0.2:
        lines = [
            f"#SBATCH --{rng.choice(SLURM)}={rng.choice(NASTY)!s:.60}"
            for _ in range(rng.randint(1, 4))
        ]
        text = "\n".join(["#!/bin/sh", *lines, "srun true"])
    data = text.encode("utf-8", "surrogatepass")
    if rng.random() < 0.1:
        at = rng.randrange(len(data) + 1)
        data = data[:at] + rng.randbytes(rng.randint(1, 5)) + data[at:]
    return data


@pytest.mark.parametrize("count", COUNTS)
def test_random_job_files_are_read_or_refused_and_others_jobs_end(
    client: httpx.Client, tmp_path: Path, count: int
) -> None:
    rng, good, read, accepted = random.Random(varied(14)), list[str](), 0, 0
    path = tmp_path / "job.yaml"

    for i in range(count):
        if i % 100 == 0:
            good.append(submit(client, name="good", gpus=1, hints={"duration_s": 1.0}))
        data = job_file(rng)
        path.write_bytes(data)
        try:
            if data.startswith(b"#!"):
                body = from_sbatch(path, (), Flags(), lambda _: None)
            else:
                body = from_file(path, Flags())
            content = json.dumps(body, default=str).encode("utf-8", "surrogatepass")
        except WeftError:
            continue
        read += 1
        headers = {"Content-Type": "application/json"}
        answer = client.post(f"{API}/jobs", content=content, headers=headers)
        assert answer.status_code < 500, (data, answer.text)
        if answer.status_code == 201:
            accepted += 1
            made = answer.json()
            for job_id in made.get("jobs", [made["id"]]):
                client.delete(f"{API}/jobs/{job_id}")

    till_ended(client, good)
    assert read > count // 4
    assert accepted > 0
