"""Programs with libraries that change how Python runs: their own loops, clocks and tracing."""

from __future__ import annotations

from tests.watcher.programs.program import START, Program, plain

LOOP = """
import asyncio, uvloop
async def work():
    steps(); await asyncio.sleep(0); process = await asyncio.create_subprocess_exec("true")
    print(await process.wait()); steps()
with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner: runner.run(work())
"""
PATCHED = """
import os, socket, threading, time
done = []
def work(n):
    steps(); time.sleep(0.001); done.append(n)
threads = [threading.Thread(target=work, args=(n,)) for n in range(5)]
for thread in threads: thread.start()
for thread in threads: thread.join()
one, other = socket.socketpair(); one.sendall(b"mine"); steps(); print(sorted(done), other.recv(9))
if os.fork() == 0: steps(); os._exit(0)
print(os.waitstatus_to_exitcode(os.wait()[1]))
"""

PROGRAMS = {
    "is-patched-by-gevent": Program(
        "from gevent import monkey; monkey.patch_all()\n" + START + PATCHED, needs="gevent"
    ),
    "runs-on-uvloop": plain(LOOP, needs="uvloop"),
    "is-measured-by-coverage": Program(
        START + "def work(n):\n    if n > 3:\n        return 1\n    steps()\nwork(1)\n",
        command=("-m", "coverage", "run", "--data-file=cover", "program.py"),
        needs="coverage",
    ),
    "reports-its-coverage": Program(
        START + "import runpy, sys, coverage\n"
        "cover = coverage.Coverage(data_file=None); cover.start(); steps(); cover.stop()\n"
        "print(sorted(cover.get_data().measured_files()))\ndescriptors()\n",
        needs="coverage",
    ),
    "freezes-its-time": plain(
        """
import time
from freezegun import freeze_time
with freeze_time("1999-12-31"): steps(); print(time.time()); steps()
""",
        needs="freezegun",
    ),
}
