"""Programs that fork, become daemons and run others."""

from __future__ import annotations

from tests.watcher.programs.program import plain

PROGRAMS = {
    "forks-and-both-go-on": plain("""
import os
steps()
if os.fork() == 0:
    steps(); descriptors(); os._exit(0)
print(os.waitstatus_to_exitcode(os.wait()[1])); steps()
"""),
    "forks-five-that-end-in-five-ways": plain("""
import os, signal, sys
steps()
codes = []
for way in range(5):
    child = os.fork()
    if child == 0:
        steps()
        if way == 0: sys.exit(3)
        if way == 1: os._exit(4)
        if way == 2: os.kill(os.getpid(), signal.SIGKILL)
        if way == 3: os.abort()
        sys.stderr = open(os.devnull, "w"); raise ValueError
    codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
print(codes)
"""),
    "forks-in-a-thread": plain("""
import os, threading
def fork():
    child = os.fork()
    if child == 0:
        steps(); descriptors(); os._exit(0)
    os.waitpid(child, 0)
steps(); thread = threading.Thread(target=fork); thread.start(); thread.join(); steps()
"""),
    "forks-within-a-bar": plain("""
import os
from tqdm import tqdm
bar = tqdm(9)
for n in range(9):
    bar.update()
    if n == 4 and (child := os.fork()) == 0:
        bar.update(4); bar.close(); print("child", bar.n, flush=True); os._exit(0)
os.wait(); print(bar.n)
"""),
    "becomes-a-daemon": plain("""
import os
steps()
done, told = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() != 0: os._exit(0)
    for number in range(3, 1024):
        if number != told:
            try: os.close(number)
            except OSError: pass
    null = os.open("/dev/null", os.O_RDWR)
    for number in (0, 1, 2): os.dup2(null, number)
    os.chdir("/"); os.umask(0); steps()
    os.write(told, repr((null, sorted(os.listdir("/proc/self/fd")))).encode()); os._exit(0)
os.wait(); os.close(told); print(os.read(done, 1000)); os.close(done)
"""),
    "runs-a-terminal": plain("""
import os, pty
steps()
child, end = pty.fork()
if child == 0:
    steps(); descriptors(); os._exit(6)
text = b""
try:
    while chunk := os.read(end, 1000): text += chunk
except OSError: pass
print(text, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])); os.close(end)
"""),
    "becomes-another-program": plain("""
import os, sys
steps(); sys.stdout.flush()
os.execv(sys.executable, [sys.executable, "-c",
    "from tools import *; steps(); descriptors(); print('became')"])
"""),
    "becomes-a-shell": plain("""
import os
steps(); os.execv("/bin/sh", ["sh", "-c", "ls /proc/$$/fd; exit 9"])
"""),
    "runs-a-pool": plain("""
import multiprocessing
def work(n):
    steps(); return n * n
steps()
with multiprocessing.get_context("fork").Pool(2) as pool: print(pool.map(work, range(6)))
"""),
    "spawns-a-process": plain("""
import multiprocessing, os
def work(queue):
    steps(); queue.put(os.environ.get("RANK"))
if __name__ == "__main__":
    context = multiprocessing.get_context("spawn"); queue = context.SimpleQueue()
    process = context.Process(target=work, args=(queue,)); process.start()
    print(queue.get()); process.join(); print(process.exitcode); queue.close()
"""),
    "runs-children-by-spawn-and-pipes": plain("""
import os, subprocess, sys
steps()
print(subprocess.check_output([sys.executable, "-c", "from tools import *; steps(); descriptors()"],
    stderr=subprocess.STDOUT))
child = os.posix_spawn(sys.executable, [sys.executable, "-c", "raise SystemExit(8)"], os.environ)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""),
    "runs-children-with-an-empty-environment": plain("""
import subprocess, sys
steps()
print(subprocess.check_output([sys.executable, "-c", "import sys; print(sys.path)"], env={}))
"""),
    "is-another-user": plain("""
import os
steps()
if os.getuid() == 0: os.setgroups([]); os.setgid(65534); os.setuid(65534)
steps(); print(os.getuid() != 0)
"""),
    "has-another-root": plain("""
import os, tqdm
steps()
if os.getuid() == 0: os.chroot("."); os.chdir("/"); steps()
print(os.path.exists("program.py")); steps(); os._exit(0)
"""),
    "has-lost-its-folder": plain("""
import os, shutil
import tqdm
steps(); os.mkdir("gone"); os.chdir("gone"); os.rmdir("../gone"); steps()
"""),
    "may-write-nothing": plain("""
import resource, tqdm
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)); steps()
try: open("out", "w").write("x" * 10)
except OSError as error: print(error)
"""),
}
