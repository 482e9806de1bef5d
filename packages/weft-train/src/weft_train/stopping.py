"""Being asked to stop, and saying how it ended."""

from __future__ import annotations

import atexit
import signal
import sys
import threading
from collections.abc import Callable
from multiprocessing import util
from types import FrameType, TracebackType
from typing import Any


class StopRequest:
    """Set by the agent, or by SIGTERM while training. A second SIGTERM acts as it always did."""

    def __init__(self) -> None:
        self.asked = False
        self._before: Any = None

    def __enter__(self) -> None:
        if threading.current_thread() is threading.main_thread():  # others cannot catch signals
            self._before = signal.signal(signal.SIGTERM, self._caught)

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGTERM, self._before)
            self._before = None

    def _caught(self, _number: int, _frame: FrameType | None) -> None:
        self.asked = True
        signal.signal(signal.SIGTERM, self._before or signal.SIG_DFL)


def call_at_exit(then: Callable[[BaseException | None], None]) -> None:
    """Call `then` when the process ends, with the error that ended it if there is one."""
    met: list[BaseException] = []
    before = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        met.append(error)
        before(kind, error, trace)

    def ended() -> None:
        then(met[-1] if met else None)

    sys.excepthook = hook
    atexit.register(ended)
    # Forked workers leave without atexit, but run these.
    util.Finalize(None, ended, exitpriority=10)
