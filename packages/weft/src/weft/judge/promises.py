"""Promises: deadlines, slowdowns, quotas and kept devices, and whether they were kept."""

from __future__ import annotations

from weft.core.events import event as facts
from weft.judge.devices import devices_of
from weft.judge.finding import PROMISES, Finding, Weight
from weft.judge.log_lines import LogLine
from weft.judge.replay import LogWatch, PlayedLog
from weft.judge.rules import held_by, limits, windows
from weft.plural import say_gpus


class PromiseBook:
    """Counts of promises made and kept, by what was promised and who decided."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, str], tuple[int, int]] = {}

    def count(self, what: str, who: str, *, kept: bool) -> None:
        made, held = self.rows.get((what, who), (0, 0))
        self.rows[what, who] = made + 1, held + kept

    def made_and_kept(self, what: str) -> tuple[int, int]:
        """All of a kind: made, and kept."""
        rows = [row for (each, _), row in self.rows.items() if each == what]
        return sum(made for made, _ in rows), sum(kept for _, kept in rows)


class PromiseWatch(LogWatch):
    """Counts what was kept, and reports what was not."""

    def __init__(self, book: PromiseBook) -> None:
        self._book = book
        self._slow: dict[str, float] = {}
        self._deadlines: dict[str, str] = {}  # and who promised them

    def after(self, replay: PlayedLog, line: LogLine) -> None:
        event = line.event
        if isinstance(event, facts.Observed):
            self._slow[event.job] = max(self._slow.get(event.job, 0.0), event.broken_s)
        elif isinstance(event, facts.Decided):
            self._deadlines.update(dict.fromkeys(event.promised, replay.policy_name))
            if event.changes:
                self._quotas(replay, event)
                self._reservations(replay, event)

    def close(self, replay: PlayedLog) -> None:
        """Deadlines and slowdowns, at the end."""
        for name, who in self._deadlines.items():
            if name in replay.jobs and replay.jobs[name].job.deadline is not None:
                self._deadline(replay, name, who)
        for name, seconds in self._slow.items():
            if name in replay.jobs and replay.jobs[name].job.slowdown is not None:
                text = f"it was slower than it was promised for {seconds:.0f} s"
                line = replay.jobs[name].line
                self._say(replay, "slowdown", (name,), text * (seconds > 0), line, Weight.DOUBT)

    def _deadline(self, replay: PlayedLog, name: str, who: str) -> None:
        life = replay.jobs[name]
        deadline, line = life.job.deadline or 0.0, life.deadline_promised or 0
        late = (replay.now if life.ended is None else life.ended) - deadline
        if life.outcome == "succeeded" or (not life.outcome and late > 0):
            text = f"its deadline was promised, and it is {late:.0f} s late" if late > 0 else ""
            self._say(replay, "deadline", (name,), text, line, Weight.DOUBT, who)

    def _quotas(self, replay: PlayedLog, event: facts.Decided) -> None:
        for (tenant, kind), limit in limits(replay).items():
            held = held_by(replay, tenant, kind)
            grows = [
                name
                for name, to in event.changes.items()
                if to is not None and name in replay.jobs and replay.jobs[name].job.tenant == tenant
            ]
            if grows:
                text = f"tenant {tenant!r} may hold {say_gpus(limit)}, and holds {held:g}"
                over = held > limit + 1e-6
                self._say(replay, "quota", tuple(grows), text * over, replay.line)

    def _reservations(self, replay: PlayedLog, event: facts.Decided) -> None:
        kept = windows(replay)
        for name, to in event.changes.items() if kept else ():
            life = replay.jobs.get(name)
            if to is None or life is None or life.current is None:
                continue
            attempt = life.attempts[life.current]
            if attempt.promised < replay.now:  # it was there before
                continue
            for window in kept:
                if window.forbids_start(life.job, replay.now):
                    on_it = any(map(window.covers, devices_of(to)))
                    text = f"it starts on devices that are kept: {window.name}"
                    self._say(replay, "reservation", (name,), text * on_it, replay.line)

    def _say(
        self,
        replay: PlayedLog,
        what: str,
        jobs: tuple[str, ...],
        broken: str,
        line: int,
        weight: Weight = Weight.WRONG,
        who: str = "",
    ) -> None:
        """Count a promise, and report what broke it if anything did."""
        self._book.count(what, who or replay.policy_name, kept=not broken)
        if broken:
            finding = Finding(PROMISES, what, replay.now, line, jobs, broken, weight)
            replay.findings.append(finding)
