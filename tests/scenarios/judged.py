"""Drawn scenarios before the judge."""

from __future__ import annotations

from tests.scenarios.drawn import draw
from tests.scenarios.live import play
from weft.judge.finding import BOOKS, Finding
from weft.judge.judge import Verdict, judge
from weft.judge.log_lines import make_log
from weft.runtime.loop.driver import Driver


def judge_scenario(policy: str, wrapper: str, seed: int) -> Verdict:
    """Play a scenario and judge it; its books must be those that the service shows."""
    verdicts: list[Verdict] = []

    def look(driver: Driver) -> None:
        verdict = judge(make_log(f"{wrapper}{policy} {seed}", driver.store.since(0)))
        verdicts.append(verdict)
        for status in driver.jobs():
            record, account = status.record, verdict.books[status.record.job.id]
            shown = (record.starts, record.started, record.ended, record.outcome)
            ours = (account.starts, account.started, account.ended, account.outcome)
            until = account.ended or verdict.end
            if ours != shown or abs(account.gpu_s - record.gpu_s.at(until)) > 1e-3:
                text = f"{ours} and {account.gpu_s} GPU-seconds by the log, {shown} are shown"
                raise AssertionError(Finding(BOOKS, "differ", until, 0, (account.job,), text))

        for tenant, used in driver.ledger.used(verdict.end).items():
            due = verdict.tenants[tenant]
            counted, shown_s = (due.gpu_s, due.entitled_s), (used.gpu_s, used.entitled_s)
            if any(abs(a - b) > 1e-3 for a, b in zip(counted, shown_s, strict=True)):
                text = f"{counted} GPU-seconds by the log, {shown_s} are shown: had, entitled to"
                raise AssertionError(Finding(BOOKS, "differ", verdict.end, 0, (tenant,), text))

    if wrong := play(draw(seed, [policy], [wrapper]), look):
        raise AssertionError(str(wrong))
    return verdicts[0]
