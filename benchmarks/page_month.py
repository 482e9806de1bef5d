"""The web page of 300 nodes, 5,000 jobs and a month of history, and what the history costs.

    python -m benchmarks.page_month [--quick] [--keep FOLDER] [--month FOLDER]

A log of a month is written as a service would have written it: jobs of five tenants that wait, run,
report and fail, and nodes that are drained and come back. It is read with the history and without,
which gives its CPU time a day, and a snapshot is taken of both, which gives its bytes. A service
then goes on from that log with 5,000 more jobs, and Chromium opens the page: the time until the
cluster, its month and a node are drawn, and until a drag, another range or another grouping is.
Wall times follow the load of the machine, which is printed beside them.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush
from pathlib import Path
from typing import Any
from unittest.mock import patch

from benchmarks.page import FLAGS, fill
from benchmarks.service_load import SERVE, Asker
from weft.core.events import event as facts
from weft.core.events.report import Report
from weft.core.model.cluster import Cluster, Node, parse_cluster
from weft.core.model.job import Allocation, Demand, Job, JobId, NodeId, Slice
from weft.core.model.launch import Launch
from weft.core.scheduler import Scheduler
from weft.runtime.deciding.live_policy import live_policy
from weft.runtime.records.cluster_history import ClusterHistory
from weft.runtime.recovery.recover import FIFO, Recovered, freeze, recover
from weft.runtime.recovery.snapshot import fingerprint
from weft.store.sqlite import SqliteStore

HOUR_S, DAY_S = 3600.0, 86_400.0
DAYS = 30
TENANTS = ("vision", "speech", "nlp", "recsys", "robots")
PATIENCE_MS = 60_000.0
REPORTS_S = 1800.0  # between two reports that are written; agents may send more
Row = tuple[float, facts.Event]


@dataclass
class Month:
    """A month of jobs that are placed first come, first served."""

    nodes: dict[NodeId, list[int]]
    repaired: dict[NodeId, Node]
    draw: random.Random
    begin: float
    rows: list[Row] = field(default_factory=list)
    _due: list[tuple[float, int, str, str]] = field(default_factory=list)
    _queue: deque[Job] = field(default_factory=deque)
    _on: dict[JobId, tuple[NodeId, tuple[int, ...]]] = field(default_factory=dict)
    _number: int = 0

    def write(self, jobs: int) -> Iterator[list[Row]]:
        """The events, some at a time, in order."""
        at = self.begin
        for day in range(1, DAYS, 2):  # a node that gets no jobs here
            node = self.draw.choice([*self.repaired])
            heappush(self._due, (at + day * DAY_S, 0, "drain", node))
            heappush(self._due, (at + (day + 1.3) * DAY_S, 0, "back", node))
        for number in range(jobs):
            busy = 1.6 if 8 <= at / HOUR_S % 24 <= 19 else 0.5  # most people submit by day
            at += self.draw.expovariate(busy * jobs / (DAYS * DAY_S - 2 * HOUR_S))
            self._until(min(at, self.begin + DAYS * DAY_S - HOUR_S))
            gpus = self.draw.choice([1, 1, 2, 4, 4, 8, 8])
            name, tenant = JobId(f"past-{number:06d}"), self.draw.choice(TENANTS)
            launch = Launch(("python", "train.py"), name=f"train-{number}")
            job = Job(name, at, Demand(gpus), tenant=tenant, user="somebody", launch=launch)
            self._add(at, facts.Submitted(job))
            self._queue.append(job)
            self._place(at)
            if len(self.rows) > 4000:
                yield self.rows
                self.rows = []
        self._queue.clear()
        self._until(self.begin + DAYS * DAY_S)
        yield self.rows

    def _add(self, at: float, event: facts.Event) -> None:
        self.rows.append((at, event))

    def _place(self, at: float) -> None:
        while self._queue:
            job = self._queue[0]
            size = job.demand.gpus
            node = next((n for n, free in self.nodes.items() if len(free) >= size), None)
            if node is None:
                return
            self._queue.popleft()
            free = self.nodes[node]
            gpus = tuple(sorted(free.pop() for _ in range(size)))
            self._on[job.id], self._number = (node, gpus), self._number + 1
            self._add(at, facts.Decided(self._number, {job.id: Allocation((Slice(node, gpus),))}))
            self._add(at, facts.Started(job.id, 1))
            long = min(self.draw.lognormvariate(10.3, 0.9), 4 * DAY_S)
            heappush(self._due, (at + long, self._number, "end", job.id))
            when = at + 60.0
            while when < at + long:
                heappush(self._due, (when, self._number, "report", job.id))
                when += REPORTS_S

    def _until(self, at: float) -> None:
        while self._due and self._due[0][0] <= at:
            when, _, what, name = heappop(self._due)
            job, node = JobId(name), NodeId(name)
            if what == "drain":
                self._add(when, facts.NodeDown(node, drained=True, by="ann", why="a fan is loud"))
            elif what == "back":
                self._add(when, facts.NodeUp(self.repaired[node], "ann"))
            elif job not in self._on:
                continue
            elif what == "report":
                size = len(self._on[job][1])
                sm, watts = self.draw.uniform(0.5, 1.0), size * self.draw.uniform(250.0, 650.0)
                report = Report(step_s=0.2, sm=sm, held_gb=40.0, power_w=watts)
                self._add(when, facts.Reported(job, 1, report))
            else:
                self._end(when, job)

    def _end(self, at: float, job: JobId) -> None:
        node, gpus = self._on.pop(job)
        if self.draw.random() < 0.05:
            self._add(at, facts.Failed(job, 1, "exit code 1", code=1))
        else:
            self._add(at, facts.Finished(job, 1))
        self.nodes[node] += gpus
        self._place(at)


def write_month(state: Path, cluster: str, jobs: int) -> int:
    """A log whose last event is now; how many events it has."""
    state.mkdir(parents=True, exist_ok=True)
    store = SqliteStore(state / "events.db")
    nodes, begin = parse_cluster(cluster).nodes, time.time() - DAYS * DAY_S - 60.0
    used = {node.id: [*range(node.gpus)] for node in nodes[:-8]}
    repaired = {node.id: node for node in nodes[-8:]}
    month = Month(used, repaired, random.Random(1), begin)
    store.append([(begin, facts.NodeUp(node)) for node in nodes])
    for rows in month.write(jobs):
        store.append(sorted(rows, key=lambda row: row[0]))
    store.close()
    return last_event(state)


def last_event(state: Path) -> int:
    """The number of the last event of a log."""
    store = SqliteStore(state / "events.db")
    last = store.last_seq()
    store.close()
    return last


def read(state: Path, *, history: bool) -> tuple[float, Recovered]:
    """CPU seconds to read the log, and what it says."""
    idle: dict[str, Any] = {"fold": lambda *_: None, "replace_record": lambda *_: None}

    def make() -> Scheduler:
        return Scheduler(live_policy(FIFO), Cluster(()))

    store = SqliteStore(state / "events.db")
    began = time.process_time()
    if history:
        back = recover(store, make)
    else:
        with patch.multiple(ClusterHistory, **idle):
            back = recover(store, make)
    took = time.process_time() - began
    store.close()
    return took, back


def write_snapshot(back: Recovered) -> tuple[float, float]:
    """The KB of a snapshot, and the CPU milliseconds of its largest part: a turn of the loop."""
    fingerprint()  # a service has it before its first part
    parts, longest_s, began = list[bytes](), 0.0, time.process_time()
    frozen = freeze(back)
    for part in frozen.parts():
        now = time.process_time()
        parts, longest_s, began = [*parts, part], max(longest_s, now - began), now
    return len(frozen.whole(parts)) / 1e3, 1e3 * longest_s


def begin(page: Any, what: str, changes: str, drawn: str = "true") -> None:
    """Wait in the page until something there has changed and `drawn`, after an action to come."""
    page.evaluate(
        f"""() => {{
          window.was = {changes};
          window.took = (async () => {{
            const first = performance.now();
            while (!({drawn} && {changes} !== window.was)) {{
              if (performance.now() - first > {PATIENCE_MS}) throw new Error({json.dumps(what)});
              await new Promise(requestAnimationFrame);
            }}
            return performance.now() - window.began;
          }})();
        }}"""
    )


def after(page: Any, what: str, act: str, changes: str, drawn: str = "true") -> float:
    """Milliseconds from an action in the page until something has changed and is painted."""
    begin(page, what, changes, drawn)
    page.evaluate(f"() => {{ window.began = performance.now(); {act}; }}")
    return float(page.evaluate("window.took"))


def browse(address: str, node: str) -> dict[str, float]:
    """Seconds until the page is drawn, and milliseconds until what a person does is."""
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium") or sys.exit("needs Chromium: apt-get install chromium")
    numbers: dict[str, float] = {}
    charts = '[aria-label="Over time"] canvas'
    first = f"document.querySelector('{charts}')"

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=list(FLAGS))
        page = browser.new_page(viewport={"width": 1400, "height": 900})
        page.goto(f"{address}/#/cluster?past=720")
        page.wait_for_selector(".gpu-map canvas", timeout=120_000)
        numbers["cluster drawn, s"] = page.evaluate("performance.now()") / 1e3
        page.wait_for_selector(charts, timeout=120_000)
        numbers["its month drawn, s"] = page.evaluate("performance.now()") / 1e3
        page.wait_for_timeout(2_000)
        windows = "document.querySelector('.windows')?.textContent"
        buttons = "document.querySelectorAll('[aria-label=\"Over time\"] button')"
        press = f"[...{buttons}].find(b => b.textContent === '{{}}').click()"
        for words, what in (("Tenant", "grouped by tenant, ms"), ("Kind", "by kind, ms")):
            drawn = f"location.hash.includes('by={words.lower()}')"
            numbers[what] = after(page, what, press.format(words), first, drawn)
        for words in ("1 h", "7 d"):
            what = f"range of {words}, ms"
            numbers[what] = after(page, what, press.format(words), windows)
        page.locator(charts).first.scroll_into_view_if_needed()
        box = page.locator(charts).first.bounding_box()
        assert box is not None
        page.mouse.move(box["x"] + 0.4 * box["width"], box["y"] + 60)
        page.mouse.down()
        page.mouse.move(box["x"] + 0.7 * box["width"], box["y"] + 60, steps=5)
        begin(page, "dragged to look closer, ms", windows, "location.hash.includes('from=')")
        ends = "() => (window.began = performance.now())"
        page.evaluate(f"() => addEventListener('mouseup', {ends}, {{once: true, capture: true}})")
        page.mouse.up()
        numbers["dragged to look closer, ms"] = page.evaluate("window.took")
        heading = "document.querySelector('main h1')?.textContent"
        drawn = f"{heading} === '{node}' && document.querySelector('.stream canvas')"
        act = f"location.hash = '#/node/{node}'"
        numbers["a node's page, ms"] = after(page, "a node's page", act, heading, drawn)
        browser.close()
    return numbers


def measure_page(state: Path, cluster: str, jobs: int) -> dict[str, float]:
    """What it takes a service that goes on from there, with that many more jobs, and its page."""
    engine = f"simulated:cluster={cluster},speed=1"
    command = [sys.executable, "-c", SERVE, engine, str(state), "fifo"]
    service = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert service.stdout is not None
        address = service.stdout.readline().strip()
        asker = Asker(address)
        fill(asker, jobs)
        began = time.monotonic()
        asker.ask("GET", f"/history?since={time.time() - DAYS * DAY_S}")
        took_ms = 1e3 * (time.monotonic() - began)
        repaired = parse_cluster(cluster).nodes[-1].id  # drained now and then
        return {"the month answered, ms": took_ms, **browse(address, repaired)}
    finally:
        service.terminate()
        service.wait()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of the jobs and nodes")
    parser.add_argument("--keep", type=Path, help="write the month here, and do nothing else")
    parser.add_argument("--month", type=Path, help="go on from a month that --keep wrote")
    asked = parser.parse_args()
    cluster, past, jobs = "250x8:a100+50x8:h200", 14_000, 5_000
    if asked.quick:
        cluster, past, jobs = "25x8:a100+10x8:h200", 1_400, 500
    if asked.keep is not None:
        print(f"{write_month(asked.keep, cluster, past):,} events in {asked.keep}")
        return
    with tempfile.TemporaryDirectory() as folder:
        state = Path(folder) / "state"
        if asked.month is None:
            events = write_month(state, cluster, past)
        else:
            shutil.copytree(asked.month, state)
            events = last_event(state)
        bare_s, bare = read(state, history=False)
        kept_s, kept = read(state, history=True)
        whole_kb, longest_ms = write_snapshot(kept)
        of_history = len(json.dumps(kept.ledger.history.save()))
        history = {
            "events of the month": float(events),
            "CPU to read them without history, s": bare_s,
            "CPU to read them with it, as a part of that": kept_s / bare_s,
            "CPU of the history a day, s": (kept_s - bare_s) / DAYS,
            "history in memory and snapshots, KB": of_history / 1e3,
            "a snapshot without it, KB": write_snapshot(bare)[0],
            "a snapshot with it, KB": whole_kb,
            "CPU of its largest part, a turn of the loop, ms": longest_ms,
        }
        show(history)
        show(measure_page(state, cluster, jobs))
    show({"load average of the machine meanwhile": os.getloadavg()[0]})


def show(numbers: dict[str, float]) -> None:
    """Print a line for each."""
    for name, value in numbers.items():
        print(f"{name:<48} {value:>12,.3g}", flush=True)


if __name__ == "__main__":
    main()
