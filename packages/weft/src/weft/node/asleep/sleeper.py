"""Takes the processes of an attempt from running to frozen or suspended, and back.

The service that asked for it may die: a sleeping attempt is woken when no service listens to its
agent any more, so that nothing stays asleep after a service that is gone for good.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from weft.node.attempt_log import Journal
from weft.node.guard.enclosure import Enclosure
from weft.wire.cgroups import freeze_group, is_group_frozen
from weft.wire.processes import is_frozen, is_stopping, resident_gb
from weft.wire.sleep import (
    AWAKE,
    FROZEN,
    SUSPENDED,
    SleepRequest,
    SleepState,
    read_request,
    write_state,
)

WITHIN_S = 5.0  # for all processes to stand still, or to go on
AIR_S = 2.0  # how long processes that wait for each other are let run in between
AGAIN_S = 2.0  # after devices could not take a suspended attempt back
NOBODY = SleepRequest(0)


class Sleeper:
    """One attempt's processes, as `find` lists them.

    `command` suspends and restores what they hold on their devices; empty where nothing can.
    """

    def __init__(
        self,
        folder: Path,
        find: Find,
        enclosure: Enclosure,
        journal: Journal,
        command: Sequence[str] = (),
    ) -> None:
        self._folder, self._all, self._enclosure = folder, find, enclosure
        self._journal = journal
        self._device = DeviceHelper(command)
        self._request = NOBODY
        self._now = self._reported = SleepState(0)
        self._refused = -1  # the request that could not be met, and is not tried again
        self._since = self._asked = self._last_heard = time.monotonic()
        self._air_until = self._again_at = 0.0
        self._resident_gb = 0.0
        self._leaving = False

    def is_asleep(self) -> bool:
        """True if the processes are meant not to run, or about to."""
        return self._now.state != AWAKE or self._device.busy

    @property
    def helpers(self) -> list[int]:
        """Processes of ours that are not the attempt's."""
        return self._device.pids

    def end_sleep(self) -> None:
        """The attempt is to end: from here on it is awake, whatever is asked."""
        self._leaving = True
        self._thaw()  # so that signals reach it; its device may take longer
        self._advance(time.monotonic())

    def poll(self) -> None:
        """Take up what is asked, and go on with what takes a while."""
        request = read_request(self._folder) or NOBODY
        now = time.monotonic()
        if request.number != self._request.number:
            self._asked = now
        sleeps = self.is_asleep() or request.state != AWAKE
        if not sleeps or self._is_heard(request):
            self._last_heard = now
        self._request = request
        self._advance(now)

    def _is_heard(self, request: SleepRequest) -> bool:
        """True if a service is there: it listens, or goes on to write its request again."""
        listens = self._journal.is_heard()
        return request != self._request if listens is None else listens

    # ---- from one state to another

    def _target(self, now: float) -> str:
        wanted = self._request
        if self._leaving or now - self._last_heard > wanted.alone_s or now < self._air_until:
            return AWAKE
        if wanted.number == self._refused:
            return self._now.state
        slept_s = now - self._since
        if wanted.air_s and self._now.state == FROZEN and slept_s > wanted.air_s:
            self._air_until = now + AIR_S
            return AWAKE
        return wanted.state

    def _advance(self, now: float) -> None:
        """One step towards what is wanted; what takes long goes on meanwhile."""
        if self._device.busy:
            if not self._device.done():
                return
            self._moved()
        target, state = self._target(now), self._now.state
        if state == target:
            if self._now.number != self._request.number or self._now != self._reported:
                self._answer(state)
        elif state == SUSPENDED:
            self._restore(now)
        elif target == SUSPENDED:
            self._suspend()
        elif target == FROZEN:
            self._freeze(FROZEN)
        elif self._thaw():
            self._answer(AWAKE)

    def _freeze(self, state: str) -> None:
        if freeze_tree(self._find, self._enclosure.ranks_group, WITHIN_S):
            self._answer(state)
            return
        self._thaw()
        self._refuse(AWAKE, f"a process did not freeze within {WITHIN_S:g} s")

    def _thaw(self) -> bool:
        if thaw_tree(self._find, self._enclosure.ranks_group, WITHIN_S):
            return True
        text = f"its processes could not be woken within {WITHIN_S:g} s"
        self._journal.write("notice", rank=0, level="error", text=text)
        return False

    def _suspend(self) -> None:
        if not self._device.there:
            self._refuse(self._now.state, "nothing here can suspend processes to host memory")
            return
        if self._now.state == FROZEN and self._thaw():
            self._now = replace(self._now, state=AWAKE)  # the driver asks the process itself
        pids = self._find()
        self._resident_gb = sum(map(resident_gb, pids))
        self._device.suspend(pids)

    def _restore(self, now: float) -> None:
        if now >= self._again_at and self._thaw():
            self._device.restore()

    def _moved(self) -> None:
        """Note that the driver has come to an end with what was asked of it."""
        error = self._device.error
        if self._now.state == SUSPENDED:
            if not error:
                self._now = replace(self._now, state=AWAKE, host_gb=0.0)
                return
            self._again_at = time.monotonic() + AGAIN_S
            if not self._leaving:
                freeze_tree(self._find, self._enclosure.ranks_group, WITHIN_S)
            self._answer(SUSPENDED, f"its devices do not take it back yet: {error}")
        elif error:
            self._refuse(AWAKE, error)
        else:
            grown = sum(map(resident_gb, self._find())) - self._resident_gb
            self._now = replace(self._now, host_gb=max(grown, 0.0))
            self._freeze(SUSPENDED)

    # ---- who and what

    def _find(self) -> list[int]:
        own = {*self._device.pids}
        return [pid for pid in self._all() if pid not in own]

    def _refuse(self, state: str, reason: str) -> None:
        self._refused = self._request.number
        self._answer(state, reason)

    def _answer(self, state: str, reason: str = "") -> None:
        now = time.monotonic()
        if not reason and state != self._request.state and not self._leaving:
            reason = "no service asks for it any more"
            if now < self._air_until:
                reason = "let run for a moment, as its processes wait for each other"
            elif self._request.number == self._refused:
                reason = self._reported.reason
        if state != self._now.state:
            self._since = now
        host_gb = self._now.host_gb if state == SUSPENDED else 0.0
        took_s = now - self._asked if self._now.number != self._request.number else 0.0
        self._now = SleepState(self._request.number, state, reason, took_s, host_gb)
        self._reported = self._now
        write_state(self._folder, self._now)
        self._journal.wake_listener()


# ---- all processes at once, those that are being born included
# By the control group of the ranks where there is one, else by SIGSTOP and SIGCONT.


PAUSE_S = 0.0005
LONGEST_PAUSE_S = 0.02

Find = Callable[[], Collection[int]]  # the processes that are meant


def freeze_tree(find: Find, group: Path | None, within_s: float) -> bool:
    """None of them runs on return; False if that could not be had in time."""
    if group is not None and freeze_group(group, frozen=True):
        return _until(lambda: is_group_frozen(group), within_s)
    calm = 0

    def all_stopped() -> bool:
        # A process that was stopped after we listed them may have had a child by then: no process
        # is left out once two lists in a row show only stopped ones.
        nonlocal calm
        running = [pid for pid in find() if not is_frozen(pid) and not is_stopping(pid)]
        _signal(running, signal.SIGSTOP)
        calm = 0 if running else calm + 1
        return calm > 1

    return _until(all_stopped, within_s)


def thaw_tree(find: Find, group: Path | None, within_s: float) -> bool:
    """All of them go on; False if one could not be woken in time."""
    if group is not None:
        freeze_group(group, frozen=False)

    def none_stopped() -> bool:
        stopped = [pid for pid in find() if is_frozen(pid) or is_stopping(pid)]
        _signal(stopped, signal.SIGCONT)
        still = group is not None and is_group_frozen(group)
        return not stopped and not still

    return _until(none_stopped, within_s)


def _signal(pids: Collection[int], what: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, what)


def _until(done: Callable[[], bool], within_s: float) -> bool:
    until, pause = time.monotonic() + within_s, PAUSE_S
    while not done():
        if time.monotonic() > until:
            return False
        time.sleep(pause)
        pause = min(2.0 * pause, LONGEST_PAUSE_S)
    return True


# ---- A process of ours that moves what others hold on their devices to host memory, and back
#
# It is a process because a move takes seconds, in which the agent has to go on reading what its
# ranks print, and because the driver's library does not belong into an agent.


class DeviceHelper:
    """Runs `command suspend PID...` and `command restore PID...`, one at a time.

    It prints a JSON object: `moved`, the processes that had anything to move, and `error`, empty
    where it went well. After an error everything is where it was before.
    """

    def __init__(self, command: Sequence[str]) -> None:
        self._command = command
        self._process: subprocess.Popen[str] | None = None
        self._moved: list[int] = []
        self._restoring = False
        self.error = ""

    @property
    def there(self) -> bool:
        """True if there is such a program here."""
        return bool(self._command)

    @property
    def busy(self) -> bool:
        """True if something is being moved."""
        return self._process is not None

    @property
    def pids(self) -> list[int]:
        return [] if self._process is None else [self._process.pid]

    def suspend(self, pids: Collection[int]) -> None:
        """Begin to move what these processes hold to host memory."""
        self._restoring = False
        self._begin("suspend", pids)

    def restore(self) -> None:
        """Begin to move it back."""
        self._restoring = True
        self._begin("restore", self._moved)

    def _begin(self, what: str, pids: Collection[int]) -> None:
        command = [*self._command, what, *map(str, pids)]
        self.error = ""
        try:
            self._process = subprocess.Popen(  # noqa: S603 - our own program
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
            )
        except OSError as error:
            self.error = f"{command[0]} cannot be run: {error.strerror}"

    def done(self) -> bool:
        """True if it has come to its end, well or with an `error`."""
        process = self._process
        if process is None:
            return True
        if process.poll() is None:
            return False
        assert process.stdout is not None
        with process.stdout:
            self._read(process.stdout.read(), process.returncode)
        self._process = None
        return True

    def _read(self, text: str, code: int) -> None:
        try:
            body = json.loads(text)
            moved, self.error = [int(pid) for pid in body["moved"]], str(body["error"])
        except (ValueError, KeyError, TypeError):
            self.error = f"the driver's helper ended with exit code {code}"
            return
        if not self._restoring and not self.error:
            self._moved = moved
