"""A CUDA runtime and driver that stand in for the real ones, and a program that uses them."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import wait_until
from weft.wire.memory_waits import add_guard

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
MB = 1 << 20
ROWS = 24 * 512  # bytes of the device's file after its total
GLIBC = pytest.mark.skipif(
    sys.platform != "linux" or shutil.which("cc") is None,
    reason="no C compiler: apt-get install gcc",
)


class StandIn:
    """One device of `total` MB and a book of it in a folder; `library` is beside what it needs."""

    def __init__(self, folder: Path, library: Path, total: int = 1000) -> None:
        self.folder, self.library, self.built = folder, library, library.parent
        self.gpu, self.socket = folder / "gpu", folder / "book"
        self.gpu.write_bytes(struct.pack("Q", total * MB) + bytes(ROWS))
        self.programs: list[Program] = []
        self.book: subprocess.Popen[bytes] | None = None

    def open_book(self) -> None:
        """Start the book, and wait until it listens."""
        command = [sys.executable, "-m", "weft.node.memory", str(self.socket)]
        with (self.folder / "book.log").open("ab") as out:
            self.book = subprocess.Popen([*command, "--state", str(self.folder)], stderr=out)
        wait_until(self.socket.is_socket, "the book listens")

    def replace_book(self) -> None:
        """Start another book at the same place, then end the first."""
        first, before = self.book, made_at(self.socket)
        assert first is not None
        self.open_book()
        wait_until(lambda: made_at(self.socket) not in (0, before), "another book listens")
        first.kill()
        first.wait()

    def close_book(self) -> None:
        """End it as a fault would, or not at all where it has ended."""
        if self.book is not None:
            self.book.kill()
            self.book.wait()
            self.socket.unlink(missing_ok=True)

    def start(self, job: str, *, guarded: bool = True, **env: str) -> Program:
        """A program of a job."""
        ours = add_guard(self.library, str(self.socket), 0.0, {}) if guarded else {}
        plain = {"PATH": os.environ["PATH"], "LD_LIBRARY_PATH": str(self.built)}
        names = {"STAND_IN_GPU": str(self.gpu), "WEFT_JOB": job, "WEFT_ATTEMPT": "1"}
        program = Program(job, self.built / "program", {**plain, **names, **ours, **env})
        self.programs.append(program)
        return program

    def held(self) -> int:
        """The MB that living processes hold, by the device's own file."""
        rows = struct.iter_unpack("qQQ", self.gpu.read_bytes()[8:])
        there = [held for pid, held, _ in rows if pid and Path(f"/proc/{pid}/stat").exists()]
        return int(sum(there)) // MB

    def end(self) -> None:
        """End everything."""
        for program in self.programs:
            program.end()
        self.close_book()


class Program:
    """A program that allocates as it is told, one request at a time."""

    def __init__(self, job: str, path: Path, env: dict[str, str]) -> None:
        self.job = job
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self._process = subprocess.Popen([str(path)], bufsize=0, env=env, **pipes)
        self.pid = self._process.pid
        os.set_blocking(self._process.stdout.fileno(), False)  # type: ignore[union-attr]
        self._answer = b""

    def ask(self, text: str) -> str:
        """The answer to one request."""
        self.send(text)
        return self.answer()

    def send(self, text: str) -> None:
        """A request whose answer is read later."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{text}\n".encode())

    def answer(self) -> str:
        """The answer to the last request, however long that takes."""
        wait_until(self.has_answered, f"{self.job} answers")
        answer, self._answer = self._answer, b""
        return answer.decode().strip()

    def has_answered(self) -> bool:
        """True once there is an answer."""
        assert self._process.stdout is not None
        assert self._process.poll() is None, f"{self.job} has ended"
        self._answer += self._process.stdout.read() or b""
        return self._answer.endswith(b"\n")

    def cpu_s(self) -> float:
        """CPU seconds that it has used."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def end(self) -> None:
        """Kill it."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


def made_at(path: Path) -> int:
    """The time at which a socket was made; 0 where there is none."""
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return 0


def build(folder: Path) -> Path:
    """Compile everything into a folder; the library to preload."""
    compile_to(folder / "libcuda.so.1", "driver.c", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1")
    (folder / "libnvidia-ml.so.1").symlink_to("libcuda.so.1")
    shared = ("-shared", "-fPIC", "-Wl,-soname,libcudart.so.12")
    compile_to(folder / "libcudart.so.12", "runtime.c", *shared, "-ldl")
    runtime = str(folder / "libcudart.so.12")
    compile_to(folder / "libc10_cuda.so", "torch.c", "-shared", "-fPIC", runtime)
    compile_to(folder / "program", "program.c", str(folder / "libc10_cuda.so"), runtime, "-ldl")
    code = "import pathlib, build_native as b; print(b.build_preload(pathlib.Path.cwd()))"
    env = {**os.environ, "PYTHONPATH": str(ROOT / "packages" / "weft")}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=env, check=True)
    return Path(done.stdout.strip())


def compile_to(target: Path, source: str, *flags: str) -> None:
    """One file in C."""
    command = ["cc", "-std=gnu11", "-O1", str(HERE / source), "-o", str(target), *flags]
    subprocess.run(command, check=True, capture_output=True, text=True)
