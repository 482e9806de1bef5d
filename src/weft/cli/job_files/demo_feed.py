"""Jobs that keep coming to a demonstration that was left running: `python -m ... URL`."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import count

from weft.cli.connect.client import Client, Unreachable
from weft.cli.connect.pages import active_jobs
from weft.cli.job_files.demo_jobs import WORKLOAD, find_scripts
from weft.service.responses.answers import Made

EVERY_S = 40.0  # gently: a job or two at a time on someone's laptop
MOST = 3  # that run or wait


def feed(client: Client, pause: Callable[[float], object] = time.sleep) -> int:
    """Submit one of the workload from time to time, until the service has gone; how many."""
    scripts, made = find_scripts(), 0
    for number in count():
        later = WORKLOAD[number % len(WORKLOAD)]
        later = replace(later, name=f"{later.name}-{number // len(WORKLOAD) + 2}")
        try:
            if len(active_jobs(client)) < MOST:
                client.post(Made, "/jobs", later.body(scripts))
                made += 1
        except Unreachable:
            break
        pause(EVERY_S)
    return made


if __name__ == "__main__":
    feed(Client(sys.argv[1], token=""))
