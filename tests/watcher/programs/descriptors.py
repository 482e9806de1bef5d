"""Programs that close, count and reuse descriptors."""

from __future__ import annotations

from tests.watcher.programs.program import Program, plain

PROGRAMS = {
    "closes-a-range": plain("""
import os
for _ in range(5):
    steps(3); os.closerange(3, 1000); descriptors()
"""),
    "closes-all-that-are-listed": plain("""
import os
steps()
for name in os.listdir("/proc/self/fd"):
    if int(name) > 2:
        try: os.close(int(name))
        except OSError: print("not open", name)
steps()
"""),
    "closes-a-range-and-opens-sockets": plain("""
import os, socket
steps(); os.closerange(3, 1000)
pairs = [socket.socketpair() for _ in range(8)]
steps(); steps()
for one, other in pairs:
    for end in (one, other):
        end.setblocking(False)
        try: print(end.recv(100))
        except BlockingIOError: print("nothing")
"""),
    "closes-a-range-and-opens-a-file": plain("""
import os
steps(); os.closerange(3, 1000)
out = [os.open(f"out{n}", os.O_RDWR | os.O_CREAT) for n in range(8)]
steps(); steps()
for each in out:
    os.write(each, b"mine"); os.lseek(each, 0, 0); print(each, os.read(each, 100))
"""),
    "puts-a-file-on-every-number": plain("""
import os
steps()
out = os.open("out", os.O_RDWR | os.O_CREAT)
for number in range(3, 1024):
    if number != out: os.dup2(out, number)
steps()
print(os.path.getsize("out"), sum(os.fstat(n).st_size for n in range(3, 1024)))
os.closerange(3, 1100)
"""),
    "closes-in-a-thread-while-it-steps": plain("""
import os, threading
stop = False
steps(1)  # what it imports is read before descriptors are closed
def close():
    while not stop:
        os.closerange(3, 1100)
closer = threading.Thread(target=close); closer.start()
for _ in range(20): steps(10)
stop = True; closer.join()
"""),
    "opens-in-a-thread-while-it-steps": plain("""
import os, threading
stop, sizes = False, []
def use():
    while not stop:
        out = os.open("out", os.O_RDWR | os.O_CREAT); sizes.append(os.fstat(out).st_size)
        os.close(out)
user = threading.Thread(target=use); user.start()
for _ in range(20): steps(10)
stop = True; user.join(); print(set(sizes))
"""),
    "may-have-16-descriptors": plain("""
import os, resource
resource.setrlimit(resource.RLIMIT_NOFILE, (16, 16))
steps()
opened = []
try:
    while True: opened.append(os.open("/dev/null", os.O_RDONLY))
except OSError as error: print(error)
steps(); print(opened)
for each in opened: os.close(each)
steps()
"""),
    "has-16-descriptors-from-the-start": plain("steps()", shell="ulimit -n 16"),
    "may-open-none": Program("""
from tools import steps
import resource, tqdm
steps(); resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3)); steps()
try: open("/dev/null")
except OSError as error: print(error)
"""),
    "begins-without-input": plain(
        "steps()\nimport os; print(os.open('/dev/null', 0))", shell="exec <&-"
    ),
    "begins-without-any-descriptor": plain(
        "import os\nsteps(); out = [os.open('out', os.O_RDWR | os.O_CREAT) for _ in range(3)]\n"
        "steps(); print(out, os.path.getsize('out'))\n",
        shell="exec <&- 2>&-",
    ),
    "lowest-number-is-always-the-same": plain("""
import os
numbers = set()
for _ in range(20):
    steps(2); out = os.open("/dev/null", 0); numbers.add(out); os.close(out)
print(numbers)
"""),
    "waits-with-select-on-all-it-has": plain("""
import os, select
steps()
mine = [int(name) for name in os.listdir("/proc/self/fd")]
read = [n for n in mine if n > 2 and os.path.exists(f"/proc/self/fd/{n}")]
print(len(read), select.select(read, [], [], 0))
"""),
    "writes-on-what-it-takes-for-its-own": plain("""
import os
steps()
for number in range(3, 1024):
    try: os.write(number, b"words")
    except OSError: pass
    else: print("open", number)
steps()
"""),
    "passes-all-to-a-child": plain("""
import subprocess, sys
steps()
code = "import os; print(sorted(os.listdir('/proc/self/fd'))[:-1])"
subprocess.run([sys.executable, "-I", "-c", code], close_fds=False, check=True)
"""),
}
