"""Nothing idles without a true reason.

Whenever time passes, every job that waits and could start on idle devices must have been given a
reason that is true then, or the policy must have said that it leaves devices idle, or the next
decision must be on its way.
"""

from __future__ import annotations

from math import inf

from weft.core.plan.reasons import Blocker
from weft.judge.finding import IDLE, REASONS, Finding, Weight
from weft.judge.lives import Life
from weft.judge.reasons import PAST, false_part
from weft.judge.replay import LogWatch, PlayedLog
from weft.judge.rules import fits_idle_devices, kept_from, over_limit

SHORT_S = 2.0  # a decision may be on its way
LATE_S = 5.0  # after its time


class IdlenessWatch(LogWatch):
    """Jobs that wait beside devices that they could use, and reasons that are not true."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, str], Finding] = {}
        self._seconds: dict[tuple[str, str], float] = {}
        self.by_policy_s = self.by_reason_s = 0.0  # job-seconds beside idle devices, explained

    def pause(self, replay: PlayedLog, until: float) -> None:
        """Look at every waiting job once in each stretch without events."""
        seconds = until - replay.now
        waiting = [*replay.waiting()]
        names = {life.job.id for life in waiting}
        for key in [key for key in self._open if key[1] not in names]:
            self._report(replay, key)
        if seconds <= SHORT_S or not replay.knows_nodes:
            return
        rooms: dict[object, bool] = {}
        for life in waiting:
            job = life.job
            kept = kept_from(replay, job)
            shape = (job.demand, kept, job.cpus, job.mem_gb if job.demand.max == 0 else None)
            if shape not in rooms:
                rooms[shape] = fits_idle_devices(replay, job, kept)
            self._judge_job(replay, life, seconds, room=rooms[shape])

    def close(self, replay: PlayedLog) -> None:
        """Report idle devices that were still open at the end."""
        for key in [*self._open]:
            self._report(replay, key)

    def _judge_job(self, replay: PlayedLog, life: Life, seconds: float, *, room: bool) -> None:
        given = life.reason
        opened = max(replay.changed_at, life.pause_ends())
        stale = replay.decided_at is None or opened > replay.decided_at
        if stale and self._awaits_decision(replay, seconds):
            return
        if given is not None and given.blocker not in PAST:
            text = given.text
            untrue = false_part(replay, life, given.blocker, given.numbers)
            once = given.blocker is Blocker.RESERVED and not self._is_new(replay, life)
            if untrue and not once:
                text = f"it was given the reason {text!r}, but {untrue}"
                self._note(replay, REASONS, "untrue reason", life, seconds, text)
                return
            self._close_if_open(replay, "untrue reason", life)
            if not untrue:
                self.by_reason_s += seconds if room else 0.0
                return
        if not room or over_limit(replay, life.job) or self._is_behind(replay, life):
            self._close_if_open(replay, "no reason", life)
            self.by_reason_s += seconds if room else 0.0
            return
        if replay.terms is None or replay.terms.idles:
            self.by_policy_s += seconds
            return
        late = ", and no decision came" if stale else ""
        text = f"devices that it could start on are idle, and it has no reason{late}"
        self._note(replay, IDLE, "no reason", life, seconds, text)

    def _is_new(self, replay: PlayedLog, life: Life) -> bool:
        return life.reason is not None and life.reason.at == replay.decided_at

    def _is_behind(self, replay: PlayedLog, life: Life) -> bool:
        """Return true if a rule of classes keeps it back, for a waiting job of a higher class."""
        ruled = replay.policy is not None and any(
            wrapper.name == "priority" for wrapper in replay.policy.wrappers
        )
        return ruled and false_part(replay, life, Blocker.CLASS, {}) == ""

    def _awaits_decision(self, replay: PlayedLog, seconds: float) -> bool:
        """Return true if the next decision is due, within a round or the time asked for."""
        every = replay.terms.every if replay.terms is not None else None
        wake = inf if replay.wake_at is None or replay.wake_at < replay.now else replay.wake_at
        due = min(wake, replay.now + every if every else inf)
        if due == inf:
            due = replay.changed_at + LATE_S
        return replay.now + seconds <= due + LATE_S

    def _note(
        self, replay: PlayedLog, check: str, what: str, life: Life, seconds: float, text: str
    ) -> None:
        key = (what, life.job.id)
        if key not in self._open:
            line = life.reason.line if check == REASONS and life.reason else replay.line
            self._open[key] = Finding(check, what, replay.now, line, (life.job.id,), text)
        self._seconds[key] = self._seconds.get(key, 0.0) + seconds

    def _close_if_open(self, replay: PlayedLog, what: str, life: Life) -> None:
        if (what, life.job.id) in self._open:
            self._report(replay, (what, life.job.id))

    def _report(self, replay: PlayedLog, key: tuple[str, str]) -> None:
        finding, seconds = self._open.pop(key), self._seconds.pop(key)
        text = f"{finding.text}; for {seconds:.0f} s"
        replay.findings.append(
            Finding(
                finding.check,
                finding.what,
                finding.at,
                finding.line,
                finding.jobs,
                text,
                Weight.WRONG,
            )
        )
