"""A short job that arrives behind one which fills most of the device for long.

Its first step should come within 5 s, its own start-up, and 0.6 s for each GB that has to leave the
device. The losses of both are those of undisturbed runs, to the last digit.
"""

from __future__ import annotations

import time
from http import HTTPStatus
from typing import Any
from urllib.error import HTTPError

from benchmarks.any_job.kinds import Job, read_loss, read_steps
from benchmarks.any_job.ways import call, one_at_a_time, service, submit, wait_for

HEAD_START_S = 5.0
SLACK_S, PER_GB_S = 5.0, 0.6


def run(step_s: dict[str, float], *, seconds: float, flags: list[str], gpu: bool) -> dict[str, Any]:
    """Both alone, then both through a service."""
    long_job = Job(0.0, "large-90", max(50, round(4 * seconds / step_s["large-90"])))
    short_job = Job(0.0, "large-60", max(20, round(seconds / 2 / step_s["large-60"])))
    before = time.time()
    alone = one_at_a_time([short_job, long_job])
    start_up = read_steps(alone[0].text)[0][0] - before
    with service(flags) as port:
        first = submit(port, long_job.command)
        wait_for_steps(port, first, HEAD_START_S)
        submitted = time.time()
        second = submit(port, short_job.command)
        wait_for(port, [first, second])
        texts = [call(port, f"/jobs/{name}/logs?rank=0", text=True) for name in (second, first)]
        states = [call(port, f"/jobs/{name}")["state"] for name in (second, first)]
    steps = read_steps(texts[0])
    allowed = SLACK_S + start_up + PER_GB_S * (90.0 if gpu else 0.0)
    losses = [
        [read_loss(job.text), read_loss(text)] for job, text in zip(alone, texts, strict=True)
    ]
    return {
        "start_up_s": start_up,
        "first_step_s": steps[0][0] - submitted if steps else None,
        "allowed_s": allowed,
        "states": states,
        "losses": losses,
        "losses_equal": all(alone_one and alone_one == beside for alone_one, beside in losses),
    }


def read_log(port: int, name: str) -> str:
    """What it wrote so far; nothing before it runs."""
    try:
        return str(call(port, f"/jobs/{name}/logs?rank=0", text=True))
    except HTTPError as error:
        if error.code != HTTPStatus.NOT_FOUND:
            raise
        return ""


def wait_for_steps(port: int, name: str, seconds: float) -> None:
    """Until the job has trained for a while."""
    until = time.time() + 180.0
    while time.time() < until:
        points = read_steps(read_log(port, name))
        if points and points[-1][0] - points[0][0] >= seconds:
            return
        time.sleep(0.5)
    raise TimeoutError("the long job does not train")
