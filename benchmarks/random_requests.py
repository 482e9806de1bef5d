"""Random requests to every route of the API: none may be answered with an error of ours.

    python -m benchmarks.random_requests [--count 100000] [--seed 0]

Methods, paths, queries, headers and bodies are drawn from what the routes take and from what they
do not: wrong types, huge numbers, odd characters, cut-off JSON. Prints how often each status came,
and what was answered with 500 or more.
"""

from __future__ import annotations

import argparse
import json
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import httpx

from benchmarks.loop_stalls import PREFIX, Service, routes

LEFT_OUT = ("/events", "/watch", "/tokens", "/terminal", "/shell", "/ports/{port}", "/sign-in")
# What simulates is asked seldom: each takes seconds, in a process of its own.
DEAR = ("/what-if", "/stream", "/explain", "/plan", "/queue", "/job-file")
NAMES = ("gpus", "command", "run", "env", "sweep", "grid", "list", "after", "name", "id", "nodes")
FIELDS = (*NAMES, "policy", "limits", "weights", "change", "text", "priority", "tenant", "hints")
SHOWN_EACH = 1000  # requests: how it stands is reported
TEXTS = ("", "a", "x" * 300, "\x00", "\ud800", "ä😀", "../..", "${x}", "1e999", "*", "@last", "%2e")
NUMBERS = (0, -1, 1, 2**31, 2**63, 10**40, 1e308, -1e-300, float("inf"), float("nan"), 0.5)


def draw_value(rng: random.Random, depth: int = 0) -> Any:
    """Any JSON value."""
    kind = rng.randrange(8 if depth < 4 else 5)
    if kind < 2:
        return rng.choice(TEXTS)
    if kind < 4:
        return rng.choice(NUMBERS)
    if kind == 4:
        return rng.choice((None, True, False))
    inner = [draw_value(rng, depth + 1) for _ in range(rng.randrange(4))]
    if kind == 5:
        return inner
    return {rng.choice(FIELDS): value for value in inner}


def draw_request(rng: random.Random, jobs: list[str]) -> tuple[str, str, bytes, dict[str, str]]:
    """One request: method, path with query, body and headers."""
    method, path = rng.choice(ROUTES)
    while path.endswith(LEFT_OUT) or (path.endswith(DEAR) and rng.random() > 0.02):
        method, path = rng.choice(ROUTES)
    for part in ("job_id", "node_id", "name", "hook_id", "token_id", "name:path"):
        word = rng.choice((*jobs, "a100-0", "x", "%00", "%ff", "y" * 200, "a%2Fb", "@last"))
        path = path.replace(f"{{{part}}}", word)
    if rng.random() < 0.4:
        key = rng.choice(("limit", "after", "since", "state", "format", "tenant", "app", "rank"))
        path += f"?{key}={rng.choice(('-1', '0', '1e400', 'x', '', '%00', '999999999999999999'))}"
    body = json.dumps(draw_value(rng)).encode("utf-8", "surrogatepass")
    if rng.random() < 0.1:
        body = body[: rng.randrange(len(body) + 1)] + bytes(rng.randrange(256) for _ in range(3))
    headers = {"Content-Type": rng.choice(("application/json", "text/plain", "x", "a/b;c=\\"))}
    if rng.random() < 0.1:
        headers["Authorization"] = rng.choice(("Bearer", "Bearer x", "Basic !!", "\\"))
    return method, path, body if method != "GET" else b"", headers


ROUTES = routes()


def fire(
    client: httpx.Client, count: int, seed: int, report: Callable[[str], None] = lambda _: None
) -> tuple[Counter[int], list[str]]:
    """How often each status came, and the requests that were answered with an error of ours."""
    rng = random.Random(seed)
    jobs = [job["id"] for job in client.get(f"{PREFIX}/jobs?limit=5").json()["jobs"]]
    seen: Counter[int] = Counter()
    wrong: list[str] = []
    for number in range(1, count + 1):
        method, path, body, headers = draw_request(rng, jobs)
        answer = client.request(method, path, content=body, headers=headers)
        seen[answer.status_code] += 1
        if answer.status_code >= 500 and not path.startswith("/health"):
            wrong.append(f"{method} {path} {body!r:.300}: {answer.status_code} {answer.text:.200}")
            report(wrong[-1])
        if number % SHOWN_EACH == 0:
            report(f"{number} requests, {say(seen)}: {len(wrong)} answered with an error of ours")
    return seen, wrong


def say(seen: Counter[int]) -> str:
    """Each status, and how often it came."""
    return ", ".join(f"{status}: {count}" for status, count in sorted(seen.items()))


def main() -> None:
    """Fire and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    service = Service(50, "fifo")
    client = service.begin()
    service.fill(client)
    seen, wrong = fire(client, asked.count, asked.seed, lambda text: print(text, flush=True))
    client.close()
    service.end()
    print(f"{asked.count} requests, {say(seen)}: {len(wrong)} answered with an error of ours")


if __name__ == "__main__":
    main()
