"""Jobs and the links they share, as a graph: one time shift a job out of those of its links.

Links that carry two jobs or more are joined to their jobs. Where the graph has no loop, each job is
reached in one way from another, and all links can have their jobs turned against each other as was
found best (CASSINI, NSDI 2024, section 4).
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from typing import TypeVar

J = TypeVar("J", bound=Hashable)
L = TypeVar("L", bound=Hashable)


def merge_links(
    crossed: Mapping[J, Collection[L]], capacity: Mapping[L, float]
) -> dict[L, tuple[J, ...]]:
    """The links that matter, with the jobs that share each, in the order of `crossed`.

    A link is left out if another carries all of its jobs and has no more room: jobs that get on
    there get on here, and two links with the same jobs would be a loop of no meaning.
    """
    jobs: dict[L, list[J]] = {}
    for job, links in crossed.items():
        for link in links:
            jobs.setdefault(link, []).append(job)
    shared = {link: tuple(dict.fromkeys(on)) for link, on in jobs.items()}
    shared = {link: on for link, on in shared.items() if len(on) > 1}
    # Of one set of jobs the narrowest link; then those inside another's set go, largest sets first.
    narrowest: dict[frozenset[J], L] = {}
    for link, on in shared.items():
        known = narrowest.setdefault(frozenset(on), link)
        if capacity[link] < capacity[known]:
            narrowest[frozenset(on)] = link
    kept: list[tuple[frozenset[J], float, L]] = []
    for on_it, link in sorted(narrowest.items(), key=lambda entry: -len(entry[0])):
        if not any(on_it < larger and room <= capacity[link] for larger, room, _ in kept):
            kept.append((on_it, capacity[link], link))
    chosen = {link for _, _, link in kept}
    return {link: on for link, on in shared.items() if link in chosen}


def has_loop(shared: Mapping[L, Sequence[J]]) -> bool:
    """Whether a job is reached from another in two ways."""
    parent: dict[J, J] = {}
    for jobs in shared.values():
        first, *others = jobs
        for job in others:
            a, b = _root(parent, first), _root(parent, job)
            if a == b:
                return True
            parent[b] = a
    return False


def find_groups(shared: Mapping[L, Sequence[J]]) -> list[list[L]]:
    """Links that hang together by the jobs that cross them."""
    parent: dict[J, J] = {}
    for jobs in shared.values():
        for job in jobs[1:]:
            parent[_root(parent, job)] = _root(parent, jobs[0])
    groups: dict[J, list[L]] = {}
    for link, jobs in shared.items():
        groups.setdefault(_root(parent, jobs[0]), []).append(link)
    return list(groups.values())


def unite_shifts(
    periods: Mapping[J, float],
    shifts: Mapping[L, Mapping[J, float]],
    roots: Mapping[J, float] | None = None,
) -> dict[J, float]:
    """One shift for every job of `periods` from those on each link; the graph has no loop.

    A job that shares nothing is not shifted. Of those that hang together the first stays at 0, or
    the first that is named in `roots` where that says.
    """
    links_of: dict[J, list[L]] = {}
    for link, on_it in shifts.items():
        for job in on_it:
            links_of.setdefault(job, []).append(link)
    united: dict[J, float] = {}
    for root, first in _beginnings(periods, roots or {}):
        if root in united:
            continue
        united[root] = first % periods[root]
        queue = [root]
        for job in queue:  # breadth first: grows as it is read
            for link in links_of.get(job, ()):
                for other, shift in shifts[link].items():
                    if other not in united:
                        moved = united[job] - shifts[link][job] + shift
                        united[other] = moved % periods[other]
                        queue.append(other)
    return united


def _beginnings(periods: Mapping[J, float], roots: Mapping[J, float]) -> Iterator[tuple[J, float]]:
    yield from ((job, roots[job]) for job in periods if job in roots)
    yield from ((job, 0.0) for job in periods)


def _root(parent: dict[J, J], job: J) -> J:
    while (above := parent.get(job, job)) != job:
        parent[job] = parent.get(above, above)
        job = above
    return job
