"""Foretold is what came: ranges for starts that people were shown, against when jobs started."""

from __future__ import annotations

from weft.core.events import event as facts
from weft.frozen import frozen
from weft.judge.finding import FORETOLD, Finding, Weight
from weft.judge.log_lines import LogLine
from weft.judge.promises import PromiseBook
from weft.judge.replay import LogWatch, PlayedLog

SLACK_S = 30.0  # a start itself takes a while
FAR_S, FAR = 600.0, 2.0  # later than this, and than so many times the end of the range
ENOUGH, LEAST = 20, 0.65  # statements from which coverage is judged; 0.8 is meant
BUSY, FULL = 0.5, 0.9  # parts of all GPUs


@frozen
class StartStatement:
    """A range for a start, in seconds from `at`, and who decided under which load."""

    at: float
    line: int
    span: facts.Foretold
    who: str
    load: str


class StartsWatch(LogWatch):
    """Predicted starts, and how many of the predictions held."""

    def __init__(self, book: PromiseBook) -> None:
        self._book = book
        self._open: dict[str, list[StartStatement]] = {}
        self.points: list[tuple[float, float, float]] = []  # from, until, and when it came
        self.worst_s = 0.0

    def after(self, replay: PlayedLog, line: LogLine) -> None:
        """A statement, a start, or the end of a job that will never start."""
        event = line.event
        if isinstance(event, facts.Foretold):
            statement = StartStatement(
                line.at, line.number, event, replay.policy_name, _load(replay)
            )
            self._open.setdefault(event.job, []).append(statement)
        elif isinstance(event, (facts.Started, facts.Awoke)):
            for statement in self._open.pop(event.job, ()):
                self._compare(replay, statement, line.at)
        elif isinstance(event, (facts.Cancelled, facts.Suspended, facts.PolicyChanged)):
            gone = [event.job] if not isinstance(event, facts.PolicyChanged) else [*self._open]
            for job in gone:  # something else was done than what was predicted
                self._open.pop(job, None)

    def close(self, replay: PlayedLog) -> None:
        """Ranges that are over although the job still waits, and how many held in all."""
        for statements in self._open.values():
            for statement in statements:
                if replay.now > statement.at + statement.span.high_s + SLACK_S:
                    self._compare(replay, statement, replay.now)
        made, kept = self._book.made_and_kept("start in its range")
        if made >= ENOUGH and kept < LEAST * made:
            text = f"{kept} of {made} ranges held, where four of five should"
            replay.findings.append(Finding(FORETOLD, "ranges", replay.now, replay.line, (), text))

    def _compare(self, replay: PlayedLog, statement: StartStatement, started: float) -> None:
        waited, span = started - statement.at, statement.span
        off_s = max(waited - span.high_s, span.low_s - waited, 0.0)
        self.worst_s = max(self.worst_s, off_s)
        self.points.append((span.low_s, span.high_s, waited))
        who = f"{statement.who}, {statement.load}"
        self._book.count("start in its range", who, kept=off_s <= SLACK_S)
        if waited > max(FAR * span.high_s, span.high_s + FAR_S):
            words = f"{span.low_s:.0f} to {span.high_s:.0f} s"
            text = f"it was to start in {words}, and took {waited:.0f}"
            jobs, line = (span.job,), statement.line
            late = Finding(FORETOLD, "late", statement.at, line, jobs, text, Weight.DOUBT)
            replay.findings.append(late)


def _load(replay: PlayedLog) -> str:
    room = sum(node.gpus for node in replay.nodes.values())
    held = len(replay.claims().owners) / room if room else 1.0
    return "full" if held >= FULL else "busy" if held >= BUSY else "half empty"
