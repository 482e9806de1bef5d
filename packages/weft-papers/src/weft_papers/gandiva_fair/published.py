"""Gandiva_fair on a cluster of two generations: `python -m weft_papers.gandiva_fair.published`.

`shares`: four users with weights 1, 1, 2 and 4 keep enough jobs of one GPU on 16 slow and 16 fast
GPUs; their shares of GPU time must be within 5 % of ideal. `trading`: four equal users, each
with jobs of one type of Gavel's table, with and without trading. What a user gets done is the time
that its jobs ran on each kind times their speed there, less what starts cost; everybody must
get at least as much done with trading, and all together more. The paper says tens of percent for
those who trade, and nobody worse. Without a word both are run.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress

import weft
from weft.core.events.event import Decided, Event
from weft.core.knowledge.knowledge import Knowledge
from weft.core.model.cluster import parse_cluster
from weft.core.model.job import Allocation, Demand, Job, JobId
from weft.core.model.trace import Trace, Truth
from weft.core.scheduler import Scheduler
from weft.perf.throughputs import ThroughputBeliefs, Throughputs, load_published
from weft.sim.driver import Simulation
from weft.sim.physics import ChangeTerms, Physics
from weft.sim.result import Outcome
from weft_papers.gandiva_fair.policy import GandivaFair

CLUSTER = "4x4:k80+4x4:v100"
WEIGHTS = {"u0": 1.0, "u1": 1.0, "u2": 2.0, "u3": 4.0}
JOBS, LENGTH = 40, 40_000.0
CLOSE = 0.05
# One type of job a user; how much faster it is on a V100 than on a K80 comes from the table.
TYPES = {
    "games": "A3C",
    "words": "LM (batch size 20)",
    "faces": "ResNet-50 (batch size 64)",
    "styles": "CycleGAN",
}
TRADERS, HORIZON = 16, 6 * 3600.0
MOVE_S, RESUME_S = 30.0, 0.5
NOISE = 0.01  # jobs are whole: what a user is due on a kind need not be a whole number of them


def main(what: Sequence[str]) -> int:
    """Run what was asked for; fail where a promise is broken."""
    kept = [run() for name, run in RUNS.items() if name in what or not what]
    return 0 if all(kept) else 1


def check_shares() -> bool:
    """Print the shares; false where one is 5 % off."""
    shares = measure_shares()
    worst = max(abs(got / ideal - 1.0) for got, ideal in shares.values())
    for user, (got, ideal) in shares.items():
        print(f"{user}: {got:.4f} of the GPU time, ideal {ideal:.4f}")
    print(f"worst deviation {100 * worst:.2f} %", flush=True)
    return worst <= CLOSE


def check_trading() -> bool:
    """Print what each user gets done; false where one is worse off, or all together are."""
    truth = load_published()
    plain, traded = (work_done(truth, trading=on) for on in (False, True))
    gains = {user: traded[user] / plain[user] - 1.0 for user in TYPES}
    for user, model in TYPES.items():
        faster = truth.rate(model, 1, "v100") / truth.rate(model, 1, "k80")
        print(
            f"{user:7} {faster:5.2f} times as fast on a V100: {plain[user]:6.2f} K80s' work "
            f"without trading, {traded[user]:6.2f} with, {100 * gains[user]:+.1f} %"
        )
    whole = sum(traded.values()) / sum(plain.values()) - 1.0
    print(f"all together {100 * whole:+.1f} %; the paper: tens of percent, nobody worse")
    return min(gains.values()) >= -NOISE and whole > 0.0


def measure_shares() -> dict[str, tuple[float, float]]:
    """GPU time of each user while all of them have enough jobs, and the ideal."""
    rows = [
        (Job(JobId(f"{user}-{i}"), 0.0, Demand(1), user=user), Truth(LENGTH))
        for user in WEIGHTS
        for i in range(JOBS)
    ]
    trace = Trace("users", tuple(rows), weights=WEIGHTS)
    outcome: Outcome = weft.simulate(
        trace, "gandiva_fair:trading=false", CLUSTER, restart_cost=5.0
    ).outcomes["gandiva_fair:trading=false"][0]
    first = min(float(e) for e in outcome.per_job.end_s)
    got = {
        share.user: float(share.received[share.time_s < 0.9 * first].sum())
        for share in outcome.shares
    }
    whole, weight = sum(got.values()), sum(WEIGHTS.values())
    return {user: (got[user] / whole, WEIGHTS[user] / weight) for user in WEIGHTS}


def work_done(truth: Throughputs, *, trading: bool) -> dict[str, float]:
    """Return the work that each user's jobs do within the horizon, in GPUs of the slow kind."""
    machines = parse_cluster(CLUSTER)
    jobs = [
        Job(JobId(f"{user}-{i}"), 0.0, Demand(1), user=user, model=model)
        for i in range(TRADERS)
        for user, model in TYPES.items()
    ]
    trace = Trace("traders", tuple((job, Truth(2.0 * HORIZON)) for job in jobs))
    count = ServedWork({job.id: job for job in jobs}, {n.id: n.kind for n in machines.nodes}, truth)
    scheduler = Scheduler(
        GandivaFair(trading=trading),
        machines,
        knowledge=Knowledge(beliefs=ThroughputBeliefs(truth)),
        journal=count.note,
    )
    with suppress(HorizonReached):
        Simulation(
            scheduler, Physics(trace, truth, terms=ChangeTerms(resume_s=RESUME_S)), machines
        ).run()
    return {user: seconds / HORIZON for user, seconds in count.done.items()}


class HorizonReached(Exception):  # noqa: N818 - nothing went wrong
    """Everything that is measured has happened."""


class ServedWork:
    """Adds up what users' jobs do, decision by decision, until the horizon."""

    def __init__(
        self, jobs: Mapping[JobId, Job], kinds: Mapping[str, str], truth: Throughputs
    ) -> None:
        self._jobs, self._kinds, self._truth = jobs, kinds, truth
        self._since: dict[JobId, tuple[float, str]] = {}
        self._lived: dict[JobId, str] = {}
        self.done = dict.fromkeys((job.user for job in jobs.values()), 0.0)

    def note(self, at: float, event: Event) -> None:
        """Fold one event of the scheduler's journal in."""
        if isinstance(event, Decided):
            for name, on in event.changes.items():
                self._change(name, on, min(at, HORIZON))
            if at >= HORIZON:
                for name in list(self._since):
                    self._change(name, None, HORIZON)
                raise HorizonReached

    def _change(self, name: JobId, on: Allocation | None, at: float) -> None:
        job = self._jobs[name]
        if name in self._since:
            start, node = self._since.pop(name)
            kind = self._kinds[node]
            speed = self._truth.rate(job.model, 1, kind) / self._truth.rate(job.model, 1, "k80")
            self.done[job.user] += max(at - start, 0.0) * speed
        if on is not None:
            node = on.slices[0].node
            before = self._lived.get(name)
            cost = 0.0 if before is None else RESUME_S if before == node else MOVE_S
            self._since[name] = at + cost, node
            self._lived[name] = node


RUNS = {"shares": check_shares, "trading": check_trading}

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
