"""The Python client under load, while the service is killed and started again.

    python -m benchmarks.client_load [--calls 300] [--kills 1]

Starts `weft serve` on loopback with real processes and submits calls by `map`, an executor, single
submissions of several threads and coroutines, and commands whose output is followed. Meanwhile the
service is killed by SIGKILL and started again. Every call must run once and give its result once,
every line must arrive once and in order, and nothing may be raised. Prints calls per second, how
long submissions took, how long after its end a result was seen, and how long an import takes.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import as_completed
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from tests.ports import free_port
from tests.waiting import LIMIT_S, read_address

from benchmarks.service_load import cpu_s
from weft_client import AsyncClient, Client

T = TypeVar("T")
Mark = tuple[str, float]  # which call, and when its function ended

LINES, THREADS, FOLLOWED = 40, 4, 1
PRINTS = "import time; [(print('line', i, flush=True), time.sleep(0.05)) for i in range({lines})]"
IMPORTS = ("weft_client", "weft")


def mark(folder: str, name: str) -> Mark:
    """Leave a trace of this run, so that a second one shows."""
    with Path(folder, name).open("a") as file:
        file.write("ran\n")
    return name, time.time()


class Service:
    """`weft serve` on one port, again and again."""

    def __init__(self, state: Path, slots: int) -> None:
        self._command = [sys.executable, "-m", "weft", "serve", "--state", str(state)]
        self._command += ["--engine", f"local:slots={slots}", "--port", str(free_port())]
        self.cpu_s = 0.0
        self.address = self.begin()

    def begin(self) -> str:
        self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, text=True)
        return read_address(self._process)

    def kill(self) -> None:
        self.cpu_s += cpu_s(self._process.pid)
        self._process.kill()
        self._process.communicate()

    def end(self) -> None:
        self.cpu_s += cpu_s(self._process.pid)
        self._process.terminate()
        self._process.communicate(timeout=LIMIT_S)


class Load:
    """Calls of every kind, and what came of them."""

    def __init__(self, client: Client, folder: Path, calls: int) -> None:
        self.client, self.folder, self.calls = client, folder, calls
        self.results: list[Mark] = []
        self.late: list[float] = []  # seconds between the end of a function and its result
        self.submits: list[float] = []
        self.errors: list[BaseException] = []

    def by_map(self, count: int) -> None:
        jobs = self.timed(self.client.map, mark, [str(self.folder)] * count, names("map", count))
        for job in jobs:
            self.seen(job.result(LIMIT_S))

    def by_executor(self, count: int) -> None:
        with self.client.executor() as executor:
            futures = [
                self.timed(executor.submit, mark, str(self.folder), name)
                for name in names("executor", count)
            ]
            for future in as_completed(futures):
                self.seen(future.result())

    def one_by_one(self, count: int, part: int) -> None:
        for name in names(f"single{part}", count):
            job = self.timed(self.client.submit, mark, str(self.folder), name)
            self.seen(job.result(LIMIT_S))

    def by_coroutines(self, count: int) -> None:
        async def call(client: AsyncClient, name: str) -> None:
            job = await client.submit(mark, str(self.folder), name)
            self.seen(await job.result(LIMIT_S))

        async def all_of_them() -> None:
            async with AsyncClient(self.client.connection.url, calls=self.client.calls) as client:
                await client.cluster()  # one that answered is waited for
                await asyncio.gather(*(call(client, name) for name in names("async", count)))

        asyncio.run(all_of_them())

    def by_following(self, count: int) -> None:
        for number in range(count):
            command = [sys.executable, "-c", PRINTS.format(lines=LINES)]
            job = self.timed(self.client.submit, command, name=f"print{number}")
            lines = list(job.logs(follow=True))
            wrong = f"{job.id} printed {lines}"
            assert lines == [f"line {number}" for number in range(LINES)], wrong
            assert job.wait(LIMIT_S).state == "succeeded"

    def timed(self, call: Callable[..., T], *args: object, **fields: object) -> T:
        began = time.monotonic()
        value = call(*args, **fields)
        self.submits.append(time.monotonic() - began)
        return value

    def seen(self, result: Mark) -> None:
        self.results.append(result)
        self.late.append(time.time() - result[1])

    @contextmanager
    def running(self) -> Iterator[None]:
        """All of it, in threads, until it has ended."""
        each, single = self.calls // 4, self.calls // 4 // THREADS
        work: list[tuple[Callable[..., None], tuple[int, ...]]] = [
            (self.by_map, (self.calls - 2 * each - THREADS * single,)),
            (self.by_executor, (each,)),
            (self.by_coroutines, (each,)),
            *((self.one_by_one, (single, part)) for part in range(THREADS)),
            *((self.by_following, (FOLLOWED,)) for _ in range(THREADS)),
        ]
        threads = [threading.Thread(target=self._try, args=(does, some)) for does, some in work]
        for thread in threads:
            thread.start()
        yield
        for thread in threads:
            thread.join()

    def _try(self, work: Callable[..., None], numbers: Iterable[int]) -> None:
        try:
            work(*numbers)
        except BaseException as error:
            self.errors.append(error)
            raise


def names(kind: str, count: int) -> list[str]:
    return [f"{kind}.{number}" for number in range(count)]


def import_s(package: str) -> float:
    """CPU seconds that `from package import Client` takes; the best of five."""
    script = f"import time; b = time.process_time(); from {package} import Client"
    command = [sys.executable, "-c", f"{script}; print(time.process_time() - b)"]
    return min(float(subprocess.check_output(command)) for _ in range(5))


def measure(calls: int, kills: int, slots: int) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        marks = Path(scratch, "marks")
        marks.mkdir()
        service = Service(Path(scratch, "state"), slots)
        client = Client(service.address, calls=Path(scratch, "calls"))
        client.cluster()
        load, began = Load(client, marks, calls), time.monotonic()
        with load.running():
            for number in range(kills):
                due = calls * (number + 1) / (kills + 2)
                while len([*marks.iterdir()]) < due and not load.errors:
                    time.sleep(0.05)
                service.kill()
                time.sleep(1.0)
                service.begin()
        took_s = time.monotonic() - began
        jobs = list(client.jobs())
        service.end()
        report(load, took_s, service.cpu_s)
        check(load, len(jobs), {path.name: path.read_text() for path in marks.iterdir()})


def report(load: Load, took_s: float, service_s: float) -> None:
    late = sorted(load.late)
    print(f"{len(load.results)} calls in {took_s:.1f} s: {len(load.results) / took_s:.2f} calls/s")
    print(f"service: {service_s:.1f} CPU s; client: {time.process_time():.1f} CPU s")
    print(f"slowest submission, through the restart: {max(load.submits):.2f} s")
    middle, last = late[len(late) // 2], late[-1]
    print(f"result seen after the function ended: median {middle:.2f} s, longest {last:.2f} s")


def check(load: Load, jobs: int, runs: dict[str, str]) -> None:
    assert not load.errors, load.errors
    seen = [name for name, _ in load.results]
    assert len(seen) == len(set(seen)) == load.calls, "a result is missing, or came twice"
    assert runs == dict.fromkeys(seen, "ran\n"), "a call ran twice"
    assert jobs == load.calls + FOLLOWED * THREADS, "a submission made two jobs, or none"
    print("every call ran once and gave one result; every line came once")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=300)
    parser.add_argument("--kills", type=int, default=1)
    parser.add_argument("--slots", type=int, default=4)
    asked = parser.parse_args()
    for package in IMPORTS:
        print(f"from {package} import Client: {import_s(package):.2f} CPU s")
    measure(asked.calls, asked.kills, asked.slots)


if __name__ == "__main__":
    main()
