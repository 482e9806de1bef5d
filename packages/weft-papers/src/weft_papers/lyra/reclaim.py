"""Choice of the machines to give back so that few jobs are stopped (Lyra, EuroSys 2023).

A job with workers that it cannot do without on several machines is stopped by the loss of any, and
then all of them are empty. Stopping as few as possible is a smallest union of a given
number of sets, which is NP-hard: here are the paper's greedy, an exact search for few machines, and
two simple rules.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Literal

import numpy as np

Hosts = Mapping[int, AbstractSet[int]]  # machine to the jobs that need workers there
Rule = Literal["cost", "exact", "fewest", "random"]
BUDGET = 20_000  # branches of the exact search, after which the greedy choice is kept


def choose_servers(
    rule: Rule, hosts: Hosts, used: Mapping[int, int], count: int, rng: np.random.Generator
) -> list[int]:
    """Choose that many machines by a rule; `used` are GPUs in use on each."""
    if rule == "random":
        return [int(server) for server in rng.permutation(sorted(hosts))[:count]]
    if rule == "fewest":
        return sorted(hosts, key=lambda server: (len(hosts[server]), used[server], server))[:count]
    chosen = empty_cheapest(hosts, used, count, fewest_jobs=True)
    return chosen if rule == "cost" else empty_exactly(hosts, chosen)


def server_costs(hosts: Hosts) -> dict[int, float]:
    """Return the cost of losing each machine: a job counts 1, divided over its machines."""
    spread = Counter(job for jobs in hosts.values() for job in jobs)
    return {server: sum(1.0 / spread[job] for job in jobs) for server, jobs in hosts.items()}


def empty_cheapest(
    hosts: Hosts, used: Mapping[int, int], count: int, *, fewest_jobs: bool = False
) -> list[int]:
    """One cheapest machine after the other; its jobs are stopped everywhere, and costs fall.

    Ties go to fewest GPUs in use, then to the first; with `fewest_jobs` to fewest jobs before.
    """
    left = {server: set(jobs) for server, jobs in hosts.items()}
    chosen: list[int] = []

    def rank(server: int) -> tuple[float, int, int, int]:
        jobs = len(left[server]) if fewest_jobs else 0
        return round(costs[server], 9), jobs, used[server], server

    while left and len(chosen) < count:
        costs = server_costs(left)
        server = min(left, key=rank)
        stopped = left.pop(server)
        chosen.append(server)
        for jobs in left.values():
            jobs -= stopped
    return chosen


def empty_exactly(hosts: Hosts, first: list[int], budget: int = BUDGET) -> list[int]:
    """As many machines as `first` whose jobs are as few as can be; `first` if none is better."""
    search = _Search(hosts, first, budget)
    search.branch([], frozenset(), sorted(hosts, key=lambda server: (len(hosts[server]), server)))
    return search.best


def jobs_lost(hosts: Hosts, chosen: list[int]) -> set[int]:
    """The jobs that the loss of these machines stops."""
    return set().union(*(hosts[server] for server in chosen))


class _Search:
    """Branch and bound: take the next machine, or leave it."""

    def __init__(self, hosts: Hosts, first: list[int], budget: int) -> None:
        self.best, self._least = first, len(jobs_lost(hosts, first))
        self._hosts, self._count, self._budget = hosts, len(first), budget

    def branch(self, taken: list[int], lost: frozenset[int], open_: list[int]) -> None:
        """Complete `taken` from `open_`, if that may beat the best known."""
        self._budget -= 1
        need = self._count - len(taken)
        if need == 0:
            if len(lost) < self._least:
                self.best, self._least = taken, len(lost)
            return
        if self._budget <= 0 or len(open_) < need:
            return
        more = {server: len(self._hosts[server] - lost) for server in open_}
        # However the rest is chosen, the largest of `need` additions is no less than this.
        if len(lost) + sorted(more.values())[need - 1] >= self._least:
            return
        open_ = sorted(open_, key=lambda server: (more[server], server))
        first, rest = open_[0], open_[1:]
        self.branch([*taken, first], lost | self._hosts[first], rest)
        if more[first]:  # a job that stops no other may as well be taken
            self.branch(taken, lost, rest)
