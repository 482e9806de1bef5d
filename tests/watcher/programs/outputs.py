"""Programs that end in every way, with outputs and clocks of their own."""

from __future__ import annotations

from tests.watcher.programs.program import Program, plain

PROGRAMS = {
    "ends-at-once": plain("import os; steps(); os._exit(5)"),
    "aborts": plain("import os; steps(); os.abort()"),
    "fails-in-a-loop": plain("""
from tqdm import tqdm
bar = tqdm(9)
for n in range(9):
    bar.update(); 1 / (5 - n)
"""),
    "fails-in-a-chain": plain("""
steps()
try: {}["no"]
except KeyError as error: raise ValueError("mine") from error
"""),
    "says-why-it-exits": plain("import sys; steps(); sys.exit('mine')"),
    "has-threads-at-the-end": plain("""
import threading, time
def late():
    while threading.main_thread().is_alive(): time.sleep(1e-3)
    steps(); print("late")
threading.Thread(target=late).start(); steps()
"""),
    "has-daemon-threads-at-the-end": Program("""
from tools import steps
import threading
begun = threading.Event()
def work():
    while True: steps(3); begun.set()
threading.Thread(target=work, daemon=True).start(); begun.wait(); print("left")
"""),
    "fails-in-a-thread": plain("""
import threading
def work(): steps(); threading.excepthook = lambda error: print(error.exc_type); 1 / 0
thread = threading.Thread(target=work); thread.start(); thread.join()
print(threading.active_count())
"""),
    "has-last-words": plain("""
import atexit
for n in range(3): atexit.register(lambda n=n: (steps(), print("last", n)))
atexit.register(lambda: 1 / 0)
steps()
"""),
    "counts-its-last-words": plain("""
import atexit
atexit._clear(); atexit.register(print, "mine"); steps()
"""),
    "steps-as-it-is-taken-apart": plain("""
class Late:
    def __del__(self, steps=steps): steps(2)
late = Late(); steps()
"""),
    "has-closed-its-outputs": plain("""
import os, sys
steps(); out = os.dup(1); sys.stdout.close(); sys.stderr.close(); steps()
os.write(out, b"still here"); os._exit(0)
"""),
    "has-another-file-for-its-errors": plain("""
import os
os.close(2); out = os.open("errors", os.O_RDWR | os.O_CREAT); steps()
print(out, os.path.getsize("errors"))
"""),
    "has-no-errors": plain("import sys; sys.stderr = sys.__stderr__ = None; steps()"),
    "has-errors-that-fail": plain("""
import sys
class Broken:
    def write(self, text): raise ValueError("mine")
    flush = write
sys.stderr = Broken(); steps(); sys.stderr = sys.__stderr__
"""),
    "has-a-frozen-clock": plain("""
import time
time.time = lambda: 1.0; time.monotonic = lambda: 1.0; time.perf_counter = lambda: 1.0
for _ in range(3): steps()
print(time.time())
"""),
    "has-a-clock-that-fails": plain("""
import time
def fail(): raise RuntimeError("no time")
time.time = time.monotonic = time.perf_counter = fail
steps()
"""),
    "has-a-clock-that-runs-out": plain("""
from unittest import mock
with mock.patch("time.time", side_effect=[1.0, 2.0]) as clock: steps(); print(clock.call_count)
with mock.patch("time.time", return_value="late"): steps()
with mock.patch("time.time") as clock: steps(); print(clock.call_count)
"""),
    "sets-the-time-in-all-modules": plain("""
import sys, time
real, frozen = time.time, lambda: "frozen"
for module in list(sys.modules.values()):
    for name, value in list(vars(module).items()):
        if value is real: setattr(module, name, frozen)
steps(); print(time.time())
"""),
    "has-mocked-systems": plain("""
from unittest import mock
import os, socket, json
with mock.patch("os.getpid", return_value="me"), mock.patch("os.fstat", side_effect=OSError):
    steps()
fails = {"side_effect": OSError}
with mock.patch("socket.socket", **fails), mock.patch("json.dumps", **fails):
    steps()
with mock.patch.dict("os.environ", clear=True): steps()
"""),
    "recurses-to-the-end": plain("""
def down(n):
    steps(1) if n < 100 else None
    return down(n + 1)
try: down(0)
except RecursionError as error: print(error)
steps()
"""),
    "counts-what-it-holds": plain("""
import gc, sys
from tqdm import tqdm
bar = tqdm(5); bar.update(); held = sys.getrefcount(bar); gc.collect()
print(held, len(gc.get_referrers(bar)), vars(bar)); bar.close(); del bar
gc.collect(); print(gc.garbage)
"""),
    "watches-a-bar-go": plain("""
import weakref
from tqdm import tqdm
gone = []
bar = tqdm(5); bar.update(); kept = weakref.finalize(bar, gone.append, 1); del bar; print(gone)
"""),
    "copies-a-bar": plain("""
import copy, pickle
from tqdm import tqdm
bar = tqdm(5); bar.update(2); other = pickle.loads(pickle.dumps(copy.deepcopy(bar))); other.update()
print(vars(bar), vars(other), pickle.loads(pickle.dumps(tqdm.update)) is tqdm.update)
"""),
    "reads-signatures": plain("""
import inspect
from tqdm import tqdm
print(inspect.signature(tqdm), inspect.signature(tqdm.update), tqdm.update.__qualname__)
print(inspect.getsource(tqdm.update), tqdm.update.__doc__)
"""),
    "is-in-a-loop-of-events": plain("""
import asyncio, signal, os
async def work():
    loop = asyncio.get_running_loop(); got = asyncio.Event()
    loop.add_signal_handler(signal.SIGUSR1, got.set); steps()
    os.kill(os.getpid(), signal.SIGUSR1); await got.wait(); steps()
    try:
        async with asyncio.timeout(1e-3):
            while True: steps(2); await asyncio.sleep(0)
    except TimeoutError: print("timeout")
asyncio.run(work())
"""),
    "says-nothing": Program("from tools import steps; steps()"),
}
