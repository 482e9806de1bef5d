"""A process that has the heavy imports behind it and forks agents on request.

    python -m weft.node.warm SOCKET ENGINE_PID [MODULE ...]

Each line on the socket is an attempt's folder: the server forks, the child becomes a session of
its own and that attempt's agent, and the agent forks its ranks, which run Python scripts with
everything imported already. So a restart costs fractions of a second instead of the seconds that
`import torch` takes. The server itself dies with the engine; its agents do not.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import os
import runpy
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Sequence
from pathlib import Path

from weft.node import agent
from weft.node.guard.identity import hand_over, may_speak
from weft.node.ranks.process import WATCHER
from weft.node.watcher._weft_watch import begin as watch_process
from weft.wire.attempt import AGENT_LOG
from weft.wire.processes import die_with_parent

TORCH = (
    "numpy",
    "torch",
    "torch.distributed",
    "torch._dynamo",
    "torch.nn.parallel",
    "torch.optim",
    "torch.utils.data",
    "weft_train",
)


def serve(path: str, modules: Sequence[str]) -> None:
    """Import `modules`, then fork an agent for every folder that is named on the socket."""
    for name in modules:
        preload(name)
    gc.freeze()  # collections in children would copy every page
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(path)
        hand_over(Path(path), None)
        listener.listen(128)
        while True:
            conversation, _ = listener.accept()
            with conversation, conversation.makefile("r") as lines:
                if not may_speak(conversation):
                    continue
                for line in lines:
                    _fork_agent(Path(line.rstrip("\n")), listener, conversation)
                    conversation.sendall(b"ok\n")


def preload(name: str) -> bool:
    """Import a module if it is installed; whether it is."""
    try:
        importlib.import_module(name)
    except ImportError:
        return False
    return True


def _fork_agent(folder: Path, *sockets: socket.socket) -> None:
    if os.fork() != 0:
        return
    code = 1
    try:
        os.setsid()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for inherited in sockets:
            inherited.close()
        out = os.open(folder / AGENT_LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(out, 1)
        os.dup2(out, 2)
        code = agent.main(folder, run_script)
    except Exception:
        traceback.print_exc()  # into its log, which would be empty
    finally:
        sys.stderr.flush()
        os._exit(code)


def run_script(command: Sequence[str]) -> int:
    """Run a Python script in this process as `python SCRIPT ARGS` would; its exit code."""
    script, *_ = command
    sys.argv = list(command)
    python_path = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    extra = [path for path in python_path if path and path != str(WATCHER)]
    sys.path[:0] = [str(Path(script).resolve().parent), *extra]
    _reopen_output()
    _threads()
    watch_process()
    code = 0
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as leave:
        code = _exit_code(leave)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    return code


def _exit_code(leave: SystemExit) -> int:
    if leave.code is None or isinstance(leave.code, int):
        return leave.code or 0
    sys.stderr.write(f"{leave.code}\n")
    return 1


def _reopen_output() -> None:
    """Fresh, line-buffered streams: the inherited ones may hold the parent's words."""
    sys.stdout = open(1, "w", buffering=1, closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115
    sys.stdin = open(0, closefd=False)  # noqa: SIM115


def _threads() -> None:
    """OpenMP read its variable when torch was imported, in the parent."""
    torch = sys.modules.get("torch")
    wanted = os.environ.get("OMP_NUM_THREADS", "")
    if torch is not None and wanted.isdigit():
        torch.set_num_threads(int(wanted))


if __name__ == "__main__":
    die_with_parent(signal.SIGKILL)
    if os.getppid() != int(sys.argv[2]):
        sys.exit(1)  # the engine died before it could be watched
    serve(sys.argv[1], sys.argv[3:] or TORCH)
