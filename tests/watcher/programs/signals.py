"""Programs that are interrupted: by signals, alarms, other threads and tracing."""

from __future__ import annotations

from tests.watcher.programs.program import Program, plain

# Every exception that a handler raises is caught here, or was lost somewhere.
ALARMS = """
import signal, time
from tools import steps, descriptors
from tqdm import tqdm
raised = caught = 0
{error}
{handler}
signal.signal(signal.SIGALRM, handler)
ends = time.monotonic() + 30.0
while caught < 400 and raised == caught and time.monotonic() < ends:
    try:
        signal.setitimer(signal.ITIMER_REAL, 2e-5 + (caught * 37 % 101) * 2e-6)
        bar = tqdm(5)
        while raised == caught: bar.update()
    except {kind}: caught += 1
signal.setitimer(signal.ITIMER_REAL, 0)
print(raised == caught); descriptors()
"""
RAISING = "def handler(*_):\n    global raised; raised += 1; raise {kind}('mine')"
OWN_ERROR = "class Mine(Exception): pass"


def alarms(kind: str, handler: str = RAISING, error: str = "") -> Program:
    """A program whose alarms raise this."""
    return Program(ALARMS.format(kind=kind, error=error, handler=handler.format(kind=kind)))


PROGRAMS = {
    "alarms-raise-timeouts": alarms("TimeoutError"),
    "alarms-raise-value-errors": alarms("ValueError"),
    "alarms-raise-errors-of-its-own": alarms("Mine", error=OWN_ERROR),
    "alarms-raise-errors-of-the-system": alarms("BlockingIOError"),
    "alarms-raise-broken-pipes": alarms("BrokenPipeError"),
    "alarms-interrupt-as-a-keyboard": alarms("KeyboardInterrupt"),
    "alarms-raise-exits": alarms("SystemExit"),
    "alarms-raise-in-a-method": alarms(
        "ValueError",
        "class Handler:\n    def __call__(self, number, frame):\n"
        "        global raised; raised += 1; self.fail()\n"
        "    def fail(self): raise {kind}('mine')\nhandler = Handler()",
    ),
    "alarms-raise-in-a-partial": alarms(
        "LookupError",
        "import functools\ndef raising(name, number, frame):\n"
        "    global raised; raised += 1; raise {kind}(name)\n"
        "handler = functools.partial(raising, 'mine')",
    ),
    "is-interrupted-by-a-keyboard": plain("""
import os, signal
steps()
for _ in range(20):
    try: steps(2); os.kill(os.getpid(), signal.SIGINT); steps(2)
    except KeyboardInterrupt: print("interrupted")
"""),
    "dies-of-a-keyboard": plain("""
import os, signal
steps(); os.kill(os.getpid(), signal.SIGINT); print("never")
"""),
    "leaves-when-asked-to": plain("""
import os, signal, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
steps(); os.kill(os.getpid(), signal.SIGTERM); steps()
"""),
    "dies-when-asked-to": plain("""
import os, signal
steps(); os.kill(os.getpid(), signal.SIGTERM)
"""),
    "ends-by-broken-pipes-and-has-no-agent": plain(
        "import signal\nsignal.signal(signal.SIGPIPE, signal.SIG_DFL)\nsteps(); steps()",
        agent=False,
    ),
    "ends-by-broken-pipes": plain(
        "import signal\nsignal.signal(signal.SIGPIPE, signal.SIG_DFL)\nsteps(); steps()"
    ),
    "is-told-of-signals-by-a-descriptor": plain("""
import os, signal, socket
mine, told = socket.socketpair(); told.setblocking(False)
signal.set_wakeup_fd(told.fileno()); signal.signal(signal.SIGUSR1, lambda *_: None)
steps(); os.kill(os.getpid(), signal.SIGUSR1); steps(); print(mine.recv(10))
signal.set_wakeup_fd(-1)
"""),
    "waits-for-children-by-signals": plain("""
import os, signal
ended = []
signal.signal(signal.SIGCHLD, lambda *_: ended.append(os.waitstatus_to_exitcode(os.wait()[1])))
steps()
if os.fork() == 0: steps(); os._exit(4)
while not ended: steps(1)
print(ended)
"""),
    "blocks-all-signals": plain("""
import os, signal
signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 32)); steps()
os.kill(os.getpid(), signal.SIGUSR1); steps(); print(signal.sigwait([signal.SIGUSR1]))
print(sorted(signal.pthread_sigmask(signal.SIG_BLOCK, []))[:3], signal.sigpending())
"""),
    "counts-its-alarms": plain("""
import signal, time
rung = 0
def ring(*_):
    global rung; rung += 1
signal.signal(signal.SIGALRM, ring); signal.setitimer(signal.ITIMER_REAL, 1e-3, 1e-3)
while rung < 20: steps(3)
signal.setitimer(signal.ITIMER_REAL, 0); print(rung >= 20, signal.getitimer(signal.ITIMER_REAL))
"""),
    "another-thread-interrupts-it": plain("""
import ctypes, threading
interrupt = ctypes.pythonapi.PyThreadState_SetAsyncExc
class Stop(Exception): pass
caught = 0
steps(1)  # what it imports is closed again before it is interrupted
def work(inside):
    global caught
    try:
        inside.set()
        while True: steps(3)
    except Stop: caught += 1
for _ in range(60):
    inside = threading.Event(); thread = threading.Thread(target=work, args=(inside,))
    thread.start(); inside.wait()
    interrupt(ctypes.c_ulong(thread.ident), ctypes.py_object(Stop))
    thread.join(60.0)
    if thread.is_alive(): print("lost", flush=True); __import__("os")._exit(1)
print(caught)
"""),
    "is-traced": plain("""
import sys
seen = set()
def trace(frame, event, argument):
    if frame.f_code.co_filename.endswith("program.py"): seen.add((event, frame.f_lineno))
    return trace
def work():
    steps(3)
    return 1
sys.settrace(trace); work(); sys.settrace(None); print(sorted(seen))
"""),
    "is-traced-and-left": plain("""
import sys
class Quit(Exception): pass
left = calls = 0
def trace(frame, event, argument):
    global calls; calls += 1
    if calls == limit: raise Quit
    return trace
for limit in range(30, 600, 7):
    calls = 0; sys.settrace(trace)
    try:
        while True: steps(2)
    except Quit: left += 1
    finally: sys.settrace(None)
print(left)
"""),
    "is-profiled": plain("""
import sys
from tqdm import tqdm
calls = []
sys.setprofile(lambda frame, event, argument: calls.append(event)
    if frame.f_code.co_filename.endswith("std.py") and event in ("call", "return") else None)
bar = tqdm(3); bar.update(); bar.close(); sys.setprofile(None); print(calls)
"""),
    "is-debugged": Program(
        "from tools import steps, descriptors\ntotal = 3\nsteps(total)\nsteps()\ndescriptors()\n",
        options=("-m", "pdb"),
        stdin="next\nnext\nnext\nbreak 5\ncontinue\np total\nwhere\nquit\n",
    ),
    "fails-under-a-debugger": Program(
        "from tools import steps\nsteps()\nraise ValueError('mine')\n",
        options=("-m", "pdb", "-c", "continue"),
        stdin="quit\n",
    ),
}
