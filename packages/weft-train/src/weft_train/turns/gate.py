"""The gate before an iteration: its beat, and stage tokens for the whole gang."""

from __future__ import annotations

import logging
import os
import select
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from weft_train.base.alignment import Alignment
from weft_train.base.environment import Environment
from weft_train.base.errors import WireError
from weft_train.base.messages import Turns
from weft_train.base.tokens import (
    FROM_MEMBER,
    SILENCE_S,
    Ask,
    Expired,
    Free,
    FromCoordinator,
    FromMember,
    Granted,
    Join,
    Recall,
    from_coordinator,
)
from weft_train.ranks.gang import RankGang
from weft_train.turns.stopwatch import Stopwatch


class Gate:
    """The gate of a stage; open where there is no coordinator and no beat.

    Of the tokens of a gang, rank 0 asks for all, and the others follow it through.
    """

    def __init__(self, env: Environment, gang: RankGang, watch: Stopwatch) -> None:
        self._gang, self._watch = gang, watch
        self._tokens = TurnTokens(env)
        self.beat = Alignment()
        # There is one coordinator per node, so a gang over several nodes is not interleaved.
        self._alone = env.nodes > 1
        self.guarded = bool(env.coordinator) and not self._alone
        self.gpus = tuple(f"gpu:{number}" for number in env.gang_devices)

    def wait_for_beat(self) -> None:
        """Until this iteration may begin, so that jobs on one link take turns."""
        if self.beat.period_s and (wait_s := self.beat.measure_wait(time.time())) > 0.0:
            time.sleep(wait_s)

    def enter(self, *tokens: str) -> None:
        if self.guarded:
            if self._gang.rank == 0:
                self._watch.add("token_s", self._tokens.acquire(*tokens))
            self._gang.wait_for_first()

    def leave(self, *tokens: str, used_s: float) -> None:
        if self.guarded and self._gang.rank == 0:
            self._tokens.release(*tokens, used_s=used_s)

    @contextmanager
    def hold(self, token: str) -> Iterator[None]:
        """Hold a token (`io`, `cpu`, `net`) around a part of the script, where stages take turns.

        For what is done neither in fetching a batch nor in `job.step()`; on all ranks alike. What
        it starts on the device should have ended.
        """
        self.enter(token)
        began = time.perf_counter()
        try:
            yield
        finally:
            self.leave(token, used_s=time.perf_counter() - began)

    def change_turns(self, to: Turns | None, *, guarded: bool) -> None:
        """Take turns otherwise from here on; all ranks at the same step, `to` is for rank 0."""
        if self._alone:
            return
        if to is not None:
            self._tokens.change_turns(to)
        self.guarded = guarded

    def close(self) -> None:
        """Close the gate: no turn will be asked for again."""
        self._tokens.close()


# ---- A rank's stage tokens: held around a stage if the node has a coordinator, else nothing at
# all
#
# A coordinator that dies or falls silent never stops training: the stage goes ahead without a
# token and the connection is tried again, at most once a second.


log = logging.getLogger(__name__)

AGAIN_S = 1.0


@dataclass(slots=True)
class TurnLease:
    """A grant that is being used."""

    stage: int
    left: int  # uses that are left after this one; -1 is until recalled
    ends: float
    used_s: float = 0.0
    uses: int = 0
    recalled: bool = False
    flying: int = 1  # stages that run under it; a GPU may be one behind

    def over(self) -> bool:
        """Return true if it covers no further stage."""
        return self.recalled or self.left == 0 or time.monotonic() > self.ends


class TurnTokens:
    """Asks for and frees tokens. In a gang, rank 0 does it for all of them."""

    def __init__(self, env: Environment) -> None:
        self._path = env.coordinator
        gpus = tuple(f"gpu:{number}" for number in env.gang_devices) if env.devices else ()
        self._join = Join(env.job, env.rank, os.getpid(), env.tier, env.weight, env.phase, gpus)
        self._line: socket.socket | None = None
        self._words = from_coordinator()
        self._stage = 0
        self._leases: dict[tuple[str, ...], TurnLease] = {}
        self._tried = -AGAIN_S
        # On a GPU tokens are freed by the thread that watches the device.
        self._lock = threading.Lock()
        self._freed = threading.Condition(self._lock)
        self._recalls: set[int] = set()
        self._waiting = False
        self.waited_s = 0.0
        self.lost = 0  # times the coordinator was lost

    @property
    def connected(self) -> bool:
        """True if there is a coordinator of tokens."""
        return self._line is not None

    def acquire(self, *tokens: str) -> float:
        """Wait for the tokens; the seconds that took. Without a coordinator there is no wait."""
        if not self._path:
            return 0.0
        began = time.monotonic()
        with self._lock:
            asks = not self._extend_lease(tokens) and self._connect()
            if asks:
                self._stage += 1
                self._waiting = True
                self._send(Ask(self._stage, tokens))
        if asks:
            self._wait(tokens)
        took = time.monotonic() - began
        self.waited_s += took
        return took

    def release(self, *tokens: str, used_s: float) -> None:
        """The stage is over. A lease of several stages is kept unless another job waits for it."""
        with self._lock:
            lease = self._leases.get(tokens)
            if lease is None:
                return
            if not self._waiting:  # else the thread that waits reads
                self._listen()
            lease.used_s += used_s
            lease.uses += 1
            lease.flying -= 1
            if lease.flying == 0 and lease.over():
                self._give_back(tokens, lease)
            self._freed.notify_all()

    def change_turns(self, to: Turns) -> None:
        """Take turns as said from now on; called between stages, by the thread that asks."""
        join = replace(self._join, tier=to.tier, weight=to.weight, phase=to.phase)
        if (to.coordinator, join) == (self._path, self._join):
            return
        with self._lock:
            # The device may still be busy with the last stage; it is not to free a later lease.
            for lease in list(self._leases.values()):
                self._freed.wait_for(lambda lease=lease: lease.flying == 0, timeout=SILENCE_S)  # type: ignore[misc]
            self._close()
            self._path, self._join, self._tried = to.coordinator, join, -AGAIN_S
        log.info("coordinator=%s from now on", to.coordinator or "none")

    def close(self) -> None:
        with self._lock:
            self._drop()

    def _extend_lease(self, tokens: tuple[str, ...]) -> bool:
        """Return true if the lease covers one more stage; at most one runs ahead of the device."""
        lease = self._leases.get(tokens)
        if lease is None:
            return False
        self._listen()
        ahead = 0 if lease.over() else 1
        self._freed.wait_for(lambda: lease.flying <= ahead, timeout=SILENCE_S)
        if self._leases.get(tokens) is not lease:
            return False
        if lease.over():
            self._freed.wait_for(lambda: lease.flying == 0, timeout=SILENCE_S)
            if self._leases.get(tokens) is lease:
                self._give_back(tokens, lease)
            return False
        lease.left -= lease.left > 0
        lease.flying += 1
        return True

    def _lease(self, granted: Granted) -> TurnLease:
        left = granted.iterations - 1 if granted.iterations else -1
        lease = TurnLease(granted.stage, left, time.monotonic() + granted.for_s)
        lease.recalled = granted.stage in self._recalls
        self._recalls.clear()
        return lease

    def _give_back(self, tokens: tuple[str, ...], lease: TurnLease) -> None:
        self._leases.pop(tokens, None)
        self._send(Free(lease.stage, lease.used_s, lease.uses))

    def _connect(self) -> bool:
        if self._line is not None:
            return True
        now = time.monotonic()
        if now - self._tried < AGAIN_S:
            return False
        self._tried = now
        line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            line.settimeout(1.0)
            line.connect(self._path)
        except OSError as error:
            line.close()
            log.debug("coordinator=%s away: %s", self._path, error)
            return False
        self._line, self._words = line, from_coordinator()
        self._send(self._join)
        return self._line is not None

    def _wait(self, tokens: tuple[str, ...]) -> None:
        """Until the grant comes or the coordinator is lost; others may free meanwhile."""
        granted = None
        while granted is None and (line := self._line) is not None:
            ready, _, _ = select.select([line], [], [], SILENCE_S)
            with self._lock:
                if not ready:
                    log.warning("coordinator=%s silent_s=%g", self._path, SILENCE_S)
                    self._drop()
                for message in self._read():
                    if isinstance(message, Granted) and message.stage == self._stage:
                        granted = message
        with self._lock:
            self._waiting = False
            if granted is not None and self._line is not None:
                self._leases[tokens] = self._lease(granted)

    def _listen(self) -> None:
        """Hear of recalls and expiries, without waiting."""
        while self._line is not None:
            ready, _, _ = select.select([self._line], [], [], 0)
            if not ready:
                return
            self._read()

    def _read(self) -> list[FromCoordinator]:
        if self._line is None:
            return []
        try:
            chunk = self._line.recv(65_536)
            heard = list(self._words.feed(chunk))
        except (OSError, WireError) as error:
            log.warning("coordinator=%s lost: %s", self._path, error)
            chunk, heard = b"", []
        if not chunk:
            self._drop()
            return []
        for message in heard:
            if isinstance(message, (Recall, Expired)):
                self._take_recall(message)
        return heard

    def _take_recall(self, message: Recall | Expired) -> None:
        self._recalls.add(message.stage)
        for tokens, lease in list(self._leases.items()):
            if lease.stage != message.stage:
                continue
            lease.recalled = True
            if isinstance(message, Expired):
                del self._leases[tokens]
            elif lease.flying == 0:  # it is unused: we may be waiting for what its waiter holds
                self._give_back(tokens, lease)

    def _send(self, message: FromMember) -> None:
        if self._line is None:
            return
        try:
            self._line.sendall(FROM_MEMBER.encode(message))
        except OSError as error:
            log.warning("coordinator=%s lost: %s", self._path, error)
            self._drop()

    def _drop(self) -> None:
        self.lost += self._line is not None
        self._close()
        self._tried = time.monotonic()

    def _close(self) -> None:
        if self._line is not None:
            self._line.close()
            self._line = None
        self._leases.clear()
