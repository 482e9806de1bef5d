"""The web page with 4,000 GPUs and 5,000 jobs on the simulated engine, in a real browser.

    python -m benchmarks.page [--quick]

Starts a service, fills it through the API, and opens the page: how long until the GPUs are drawn,
how long the browser's longest tasks are while jobs start and end, what a frame costs that scrolls
through all jobs, beside one that scrolls by a pixel, how many bytes the page is, and
what ten open pages cost the service in CPU beside none. The ten are their requests alone: a
browser each would measure the browsers. A busy machine makes the browser's times longer and leaves
CPU times as they are.
"""

from __future__ import annotations

import argparse
import http.client
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from benchmarks.service_load import SERVE, Asker, cpu_s

CLUSTER, JOBS = "350x8:a100+100x8:h200+100x4:t4", 5_000
PAGES, BATCH = 10, 250
FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync")
WATCH = """
window.tasks = [];
new PerformanceObserver(list => {
  for (const one of list.getEntries()) window.tasks.push(one.duration);
}).observe({type: "longtask", buffered: true});
"""
FRAMES = 80
SCROLL = """async ([pixels, frames]) => {
  const box = document.querySelector(".jobs-view");
  for (let i = 0; i < frames; i++) {
    box.scrollTop += pixels;
    await new Promise((done) => requestAnimationFrame(done));
  }
}"""
TENANTS = ("vision", "speech", "nlp", "recsys")


def fill(asker: Asker, count: int) -> None:
    """Jobs of mixed sizes, some elastic, some that share."""
    draw, bodies = random.Random(1), []
    for number in range(count):
        gpus = draw.choice([1, 1, 1, 1, 2, 2, 4, 8])
        body: dict[str, Any] = {"name": f"job-{number}", "gpus": gpus}
        body["tenant"] = draw.choice(TENANTS)
        body["hints"] = {"duration_s": draw.lognormvariate(9.0, 1.0)}
        if gpus == 1 and draw.random() < 0.5:
            body["share"] = 0.5
        bodies.append(body)
    for start in range(0, count, BATCH):
        asker.ask("POST", "/jobs/batch", {"jobs": bodies[start : start + BATCH]})


class Page(threading.Thread):
    """What an open page asks for, without a browser around it."""

    def __init__(self, address: str) -> None:
        super().__init__(daemon=True)
        self._host = address.removeprefix("http://")
        self._over = threading.Event()
        self.read = 0

    def run(self) -> None:
        """Watch until the end."""
        watch = http.client.HTTPConnection(self._host, timeout=60)
        watch.request("GET", "/api/v1/watch")
        answer = watch.getresponse()
        threading.Thread(target=self._ask, daemon=True).start()
        while not self._over.is_set():
            self.read += len(answer.read1(1 << 20))
        watch.close()

    def _ask(self) -> None:
        asker, after, line_due = Asker(f"http://{self._host}"), 0, 0.0
        while not self._over.wait(3.0):
            now = asker.ask("GET", "/cluster")["now"] if not after else 0.0
            answer = asker.ask("GET", f"/timeline?since={now}&after={after}")
            after = answer["seq"]
            if time.monotonic() >= line_due:
                line_due = time.monotonic() + asker.ask("GET", "/queue")["again_s"]

    def end(self) -> None:
        """Ask no more."""
        self._over.set()


def browse(address: str, seconds: float) -> dict[str, float]:
    """First view, long tasks and bytes of the page in Chromium."""
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium") or sys.exit("needs Chromium: apt-get install chromium")
    numbers: dict[str, float] = {}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=list(FLAGS))
        page = browser.new_page(viewport={"width": 1400, "height": 900})
        sizes: list[int] = []
        page.on("response", lambda got: sizes.append(_size(got)))
        page.add_init_script(WATCH)
        page.goto(f"{address}/#/cluster")
        page.wait_for_selector(".gpu-map canvas", timeout=120_000)
        numbers["first view, s"] = page.evaluate("performance.now()") / 1000.0
        page.wait_for_timeout(3_000)
        for view in ("cluster", "jobs"):
            page.evaluate(f"location.hash = '#/{view}'; window.tasks.length = 0")
            page.wait_for_timeout(int(seconds * 500))
            tasks = page.evaluate("window.tasks")
            numbers[f"{view}: long tasks (over 50 ms) a minute"] = len(tasks) * 120.0 / seconds
            numbers[f"{view}: longest task, ms"] = max(tasks, default=0.0)
        for pixels in (900, 1):
            numbers[f"jobs: CPU of a frame scrolled {pixels} px, ms"] = _scrolled(page, pixels)
        numbers["page, KB"] = sum(sizes) / 1e3
        browser.close()
    return numbers


def _scrolled(page: Any, pixels: int) -> float:
    """CPU milliseconds of the page for a frame in which the list of jobs moves by that much."""
    measured = page.context.new_cdp_session(page)
    measured.send("Performance.enable", {"timeDomain": "threadTicks"})

    def spent_s() -> float:
        metrics = measured.send("Performance.getMetrics")["metrics"]
        return float(next(row["value"] for row in metrics if row["name"] == "TaskDuration"))

    before = spent_s()
    page.evaluate(SCROLL, [pixels, FRAMES])
    return 1e3 * (spent_s() - before) / FRAMES


def _size(answer: Any) -> int:
    """Bytes of the page's own files; what the API tells is data."""
    if "/api/" in answer.url:
        return 0
    return len(answer.body()) if answer.status == 200 else 0


def cpu_part(pid: int, seconds: float) -> float:
    """The part of a core that the service takes for a while."""
    before = cpu_s(pid)
    time.sleep(seconds)
    return (cpu_s(pid) - before) / seconds


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of the jobs and GPUs")
    quick = parser.parse_args().quick
    cluster, jobs = ("35x8:a100+10x8:h200+10x4:t4", 500) if quick else (CLUSTER, JOBS)
    seconds = 10.0 if quick else 40.0
    with tempfile.TemporaryDirectory() as folder:
        engine = f"simulated:cluster={cluster},speed=20"
        command = [sys.executable, "-c", SERVE, engine, str(Path(folder) / "state"), "fifo"]
        service = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            assert service.stdout is not None
            address = service.stdout.readline().strip()
            fill(Asker(address), jobs)
            time.sleep(5.0)
            alone = cpu_part(service.pid, seconds)
            pages = [Page(address) for _ in range(PAGES)]
            for page in pages:
                page.start()
            time.sleep(10.0)  # the first answers are long, and once
            before = [page.read for page in pages]
            watched = cpu_part(service.pid, seconds)
            read = sum(page.read for page in pages) - sum(before)
            for page in pages:
                page.end()
            numbers = browse(address, seconds)
            report = {
                **numbers,
                "service, part of a core without pages": alone,
                f"service, more with {PAGES} pages": watched - alone,
                "told to each page, KB/s": read / PAGES / seconds / 1e3,
            }
            report["load average of the machine meanwhile"] = os.getloadavg()[0]
            for name, value in report.items():
                print(f"{name:<48} {value:>10.3g}")
        finally:
            service.terminate()
            service.wait()


if __name__ == "__main__":
    main()
