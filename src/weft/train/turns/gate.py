"""What an iteration passes before it begins: its beat, and stage tokens for the whole gang."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from weft.perf.network.alignment import Alignment
from weft.train.ranks.gang import Gang
from weft.train.turns.stage_tokens import Tokens
from weft.train.turns.stopwatch import Stopwatch
from weft.wire.environment import Environment
from weft.wire.messages import Turns


class Gate:
    """What a stage passes before it begins; wide open where there is no coordinator and no beat.

    Of the tokens of a gang, rank 0 asks for all, and the others follow it through.
    """

    def __init__(self, env: Environment, gang: Gang, watch: Stopwatch) -> None:
        self._gang, self._watch = gang, watch
        self._tokens = Tokens(env)
        self.beat = Alignment()
        # Coordinators are one a node, so a gang over several nodes is not interleaved.
        self._alone = env.nodes > 1
        self.guarded = bool(env.coordinator) and not self._alone
        self.gpus = tuple(f"gpu:{number}" for number in env.gang_devices)

    def wait_for_beat(self) -> None:
        """Until this iteration may begin, so that jobs on one link take turns."""
        if self.beat.period_s and (wait_s := self.beat.measure_wait(time.time())) > 0.0:
            time.sleep(wait_s)

    def enter(self, *tokens: str) -> None:
        """Wait for the tokens."""
        if self.guarded:
            if self._gang.rank == 0:
                self._watch.add("token_s", self._tokens.acquire(*tokens))
            self._gang.wait_for_first()

    def leave(self, *tokens: str, used_s: float) -> None:
        """The stage is over."""
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
        """Nothing will be asked for any more."""
        self._tokens.close()
