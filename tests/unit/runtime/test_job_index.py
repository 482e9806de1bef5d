"""Pages and counts of jobs, against a scan of all of them."""

from __future__ import annotations

from itertools import islice

from hypothesis import given
from hypothesis import strategies as st

from weft.core.model import JobId
from weft.runtime.job_index import ALL, ENDED, JobIndex

Step = tuple[str, int, str]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["add", "end", "remove"]), st.integers(0, 30), st.sampled_from(ENDED)
    ),
    max_size=80,
)


class Scan:
    """The same by looking at every job."""

    def __init__(self) -> None:
        self.jobs: dict[JobId, tuple[str, str]] = {}

    def after(self, last: JobId | None, tenant: str, outcome: str) -> list[JobId]:
        names = list(self.jobs)
        rest = names if last is None else names[names.index(last) + 1 :]
        return [
            name
            for name in rest
            if tenant in (ALL, self.jobs[name][0]) and outcome in (ALL, self.jobs[name][1])
        ]


def played(steps: list[Step]) -> tuple[JobIndex, Scan]:
    index, scan = JobIndex(), Scan()
    for what, number, outcome in steps:
        job, tenant = JobId(f"j{number}"), ("", "t0", "t1")[number % 3]
        known = scan.jobs.get(job)
        if what == "add" and known is None:
            index.add(job, tenant)
            scan.jobs[job] = (tenant, "")
        elif what == "end" and known is not None and not known[1]:
            index.end(job, tenant, outcome)
            scan.jobs[job] = (tenant, outcome)
        elif what == "remove" and known is not None:
            index.remove(job, *known)
            del scan.jobs[job]
    return index, scan


@given(STEPS, st.sampled_from([ALL, "t0", "t1"]), st.sampled_from([ALL, *ENDED]))
def test_pages_are_those_of_a_scan(steps: list[Step], tenant: str, outcome: str) -> None:
    index, scan = played(steps)

    for last in (None, *scan.jobs):
        found = list(index.after(last, tenant=tenant, outcome=outcome))
        assert found == scan.after(last, tenant, outcome)


@given(STEPS)
def test_counts_and_the_active_are_those_of_a_scan(steps: list[Step]) -> None:
    index, scan = played(steps)

    for tenant in (ALL, "t0", "t1"):
        assert index.counts(tenant) == {word: len(scan.after(None, tenant, word)) for word in ENDED}
    assert list(index.active) == [name for name, (_, outcome) in scan.jobs.items() if not outcome]


def test_those_since_a_time_are_found_without_reading_the_earlier() -> None:
    index, read = JobIndex(), list[JobId]()
    for number in range(10_000):
        index.add(JobId(f"j{number}"), "t")

    def when(job: JobId) -> float:
        read.append(job)
        return float(job[1:])

    found = list(islice(index.after(None, since=9_000.0, when=when), 2))

    assert found == ["j9000", "j9001"]
    assert len(read) < 20
