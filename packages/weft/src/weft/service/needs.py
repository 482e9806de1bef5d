"""List of what needs a person: each trouble in a sentence, with the next step.

A pure function of what the service knows, for the page, `weft doctor` and the metrics. Jobs of one
sweep, or of one name, are one entry, and a job that is still there is in one entry alone.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import field
from itertools import islice
from typing import Any, get_args

from weft.app.insight.counted_start import in_words
from weft.core.model.job import JobId, name_of
from weft.core.plan.reasons import Blocker, name_some
from weft.frozen import frozen
from weft.plural import say_gpus
from weft.runtime.records.cluster_history import Mark
from weft.runtime.records.job_records import JobRecord
from weft.service.access.redaction import mask, secrets_of
from weft.service.jobs.job_view import name_fields
from weft.service.responses.answers import Need, NeedKind, Needs, NodeAnswer
from weft.service.responses.job_row import JobName
from weft.service.watchdog import PartCheck

KINDS: tuple[NeedKind, ...] = get_args(NeedKind)  # the gravest first
AGAIN = 2  # failures in a row, from which on a job fails again and again
PER_KIND = 8  # entries that are shown of each kind
NAMED = 3
LONGEST_NAME, LONGEST_WHY = 60, 160
QUOTA = (Blocker.QUOTA, Blocker.TOO_LARGE)
STEPS: Mapping[str, str] = {
    "deadline": "`weft explain {job}` says what holds it up; or cancel it: `weft cancel {job}`",
    "slowdown": "Let it go on, or submit it again with `share: never`",
    "failing": "Read why, `weft logs {job}`, and cancel it if it cannot work: `weft cancel {job}`",
    "failed": "Read the end of its output, `weft logs {job}`, then submit it again",
    "memory": "It goes on when the others free memory; or cancel one of them",
    "idle": "See what it does, `weft logs {job}`, or cancel it: `weft cancel {job}`",
    "quota": "Cancel what is not needed, or ask an admin for more: `weft quota set {tenant} "
    "--gpus N`",
    "node": "Find out why, then put it to use again: `weft undrain {node}`",
    "drained": "Put it to use again once that is done: `weft undrain {node}`",
    "down": "Start it again; `weft nodes` says when it is back",
    "judge": "Read the findings under Tenants, or with `weft verify`",
    "service": "`weft doctor` looks at all parts",
}
# Of one job, and of several of one sweep or name.
SENTENCES: Mapping[str, tuple[str, str]] = {
    "deadline": ("has missed its deadline and has not ended", "have missed their deadlines"),
    "slowdown": ("{why}", "are slower beside others than they were promised"),
    "failing": ("failed {times} times in a row: {why}", "fail again and again, the last: {why}"),
    "failed": ("failed {ago} ago: {why}", "failed, the last {ago} ago: {why}"),
    "memory": ("{why}", "wait for GPU memory"),
    "idle": ("{why}", "hold GPUs and do not use them"),
}

Group = tuple[NeedKind, str, str, str]  # with tenant, user, and sweep or name


@frozen
class Sight:
    """The state of the service at an instant.

    `active` are jobs that have not ended, `failed` and `succeeded` those that did so lately. What
    is said of jobs that use no GPU, wait for memory, or are slower than promised is in `idle`,
    `memory` and `slow`.
    `drained` are nodes that a person drained, `asleep` those that only sleep. `marks` say of nodes
    that are out of use who drained them, and why.
    """

    now: float
    active: Iterable[JobRecord] = ()
    failed: Iterable[JobRecord] = ()
    idle: Mapping[JobId, str] = field(default_factory=dict)
    memory: Mapping[JobId, str] = field(default_factory=dict)
    slow: Mapping[JobId, str] = field(default_factory=dict)
    limits: Mapping[str, float] = field(default_factory=dict)
    nodes: Sequence[NodeAnswer] = ()
    drained: Set[str] = frozenset()
    asleep: Set[str] = frozenset()
    marks: Mapping[str, Mark] = field(default_factory=dict)
    verdict: Mapping[str, Any] = field(default_factory=dict)
    checks: Mapping[str, PartCheck] = field(default_factory=dict)
    succeeded: Iterable[JobRecord] = ()


def find_needs(sight: Sight) -> list[Need]:
    """Everything that needs a person, the gravest kinds first and the newest of each first."""
    groups: defaultdict[Group, list[JobRecord]] = defaultdict(list)
    for record in sight.active:
        if (kind := kind_of(sight, record)) is not None:
            groups[_group(kind, record)].append(record)
    again = ran_again(sight)
    for record in sight.failed:
        group = _group("failed", record)
        if (record.ended or 0.0) >= again.get(group, 0.0):
            groups[group].append(record)
    needs = [*_of_service(sight), *_of_nodes(sight)]
    last = sorted(groups.items(), key=lambda group: -_time(group[1][-1]))
    needs += [_of_jobs(sight, group, records) for group, records in last]
    return sorted(needs, key=lambda need: KINDS.index(need.kind))


def ran_again(sight: Sight) -> dict[Group, float]:
    """Return when the last job that runs or succeeded was submitted, by group: it is mended."""
    last: dict[Group, float] = {}
    for record in (*sight.active, *sight.succeeded):
        if record.running is not None or record.outcome:
            group = _group("failed", record)
            last[group] = max(last.get(group, 0.0), record.submitted)
    return last


def choose(needs: Iterable[Need], tenant: str | None) -> Needs:
    """Some of each kind, of one tenant; None sees all, and what is about the cluster."""
    mine = [need for need in needs if tenant in (None, need.tenant)]
    seen: Counter[str] = Counter()
    shown = []
    for need in mine:
        seen[need.kind] += 1
        if seen[need.kind] <= PER_KIND:
            shown.append(need)
    return Needs(needs=shown, more=len(mine) - len(shown))


def count_needs(needs: Iterable[Need]) -> dict[str, int]:
    """The number of jobs, nodes and findings of each kind; 0 where there are none."""
    counts = {str(kind): 0 for kind in KINDS}
    for need in needs:
        counts[need.kind] += need.count
    return counts


def kind_of(sight: Sight, record: JobRecord) -> NeedKind | None:
    """The gravest trouble of a job that has not ended; None for one that is well."""
    job = record.job.id
    if record.missed:
        return "deadline"
    if job in sight.slow:
        return "slowdown"
    if _failures(record) >= AGAIN:
        return "failing"
    if job in sight.memory:
        return "memory"
    if job in sight.idle:
        return "idle"
    waits = record.allocation is None and record.suspended is None
    return "quota" if waits and record.said and record.blocker in QUOTA else None


def _failures(record: JobRecord) -> int:
    return max(record.failures, record.alike[1])


def _time(record: JobRecord) -> float:
    return record.submitted if record.ended is None else record.ended


def _group(kind: NeedKind, record: JobRecord) -> Group:
    job = record.job
    if kind == "quota":
        return kind, job.tenant, "", str(record.blocker)
    return kind, job.tenant, job.user, job.app or name_of(job)


def _of_jobs(sight: Sight, group: Group, records: list[JobRecord]) -> Need:
    """The entry of one group, whose newest job is the last."""
    kind, tenant, _, about = group
    last, count = records[-1], len(records)
    text = _quota_text(sight, last, count) if kind == "quota" else _text(sight, group, records)
    return Need(
        kind=kind,
        tenant=tenant,
        text=text,
        step=STEPS[kind].format(job=last.job.id, tenant=tenant),
        count=count,
        about="over quota" if kind == "quota" else about,
        jobs=[JobName(**name_fields(r.job)) for r in islice(reversed(records), NAMED)],
    )


def _text(sight: Sight, group: Group, records: list[JobRecord]) -> str:
    kind, tenant, user, about = group
    last, count = records[-1], len(records)
    job = last.job.id
    texts = {"idle": sight.idle, "memory": sight.memory, "slowdown": sight.slow}
    why = texts[kind].get(job, "") if kind in texts else last.reason or "no reason is known"
    why = mask(why.partition("\n")[0], secrets_of(last.job))
    sentence = SENTENCES[kind][count > 1].format(
        why=_short(why, LONGEST_WHY),
        times=_failures(last),
        ago=in_words(max(sight.now - _time(last), 0.0)),
    )
    what = _short(name_of(last.job) if count == 1 else about, LONGEST_NAME)
    who = f"{tenant}/{user}" if user else tenant
    return f"{f'{count} jobs of ' * (count > 1)}{what} ({who}) {sentence}"


def _quota_text(sight: Sight, last: JobRecord, count: int) -> str:
    """`3 jobs of nlp wait: its quota of 16 GPUs is used up`."""
    tenant = last.job.tenant
    limits = [
        say_gpus(most).replace(" ", f" {kind} " if kind else " ")
        for name, most in sorted(sight.limits.items())
        for whose, _, kind in (name.partition("@"),)
        if whose == tenant
    ]
    quota = f"its quota of {' and '.join(limits)}" if limits else "its quota"
    jobs = f"{count} job{'s' * (count > 1)} of {tenant}"
    if last.blocker is Blocker.TOO_LARGE:
        return f"{jobs} can never start: {quota} is smaller than what each asks for"
    return f"{jobs} wait{'s' * (count == 1)}: {quota} is used up"


def _of_service(sight: Sight) -> Iterator[Need]:
    for part, check in sight.checks.items():
        if not check.ok:
            why = _short(check.message.partition("\n")[0], LONGEST_WHY)
            text = f"The service is not well: {part}{f': {why}' * bool(why)}"
            yield Need(kind="service", tenant="", text=text, step=STEPS["service"])
    wrong, trouble = sight.verdict.get("wrong") or 0, sight.verdict.get("trouble")
    if wrong:
        things = f"{wrong} thing{'s' * (wrong > 1)}"
        text = f"The judge found {things} wrong in the last month's log"
        yield Need(kind="judge", tenant="", text=text, step=STEPS["judge"], count=wrong)
    if trouble:
        text = f"The log could not be judged: {_short(str(trouble), LONGEST_WHY)}"
        yield Need(kind="judge", tenant="", text=text, step=STEPS["judge"])


def _of_nodes(sight: Sight) -> Iterator[Need]:
    groups: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for node in sight.nodes:
        if (trouble := _node_trouble(sight, node)) is not None:
            groups[trouble].append(node.id)
    for (state, why), names in groups.items():
        text = f"{name_some(names)} {'is' if len(names) == 1 else 'are'} {state}"
        known = "drained" if state.startswith("drained by ") and why else "node"
        yield Need(
            kind="node",
            tenant="",
            text=text + (f": {_short(why, LONGEST_WHY)}" if why else ""),
            step=STEPS["down" if state == "down" else known].format(node=names[0]),
            count=len(names),
            nodes=names[:NAMED],
        )


def _node_trouble(sight: Sight, node: NodeAnswer) -> tuple[str, str] | None:
    """Its trouble and why; None for a node that is used, or kept for others on purpose."""
    aside = [device for device in node.health if device.aside]
    why = node.reason or ", ".join(sorted({device.fault for device in aside if device.fault}))
    if node.id in sight.asleep:
        return None
    if node.state == "up":
        gpus = ", ".join(str(device.gpu) for device in aside)
        return (f"used without GPU {gpus}", why) if aside else None
    if node.state == "set aside":
        return node.state, why or "one job after the other failed at its start there"
    mark = sight.marks.get(node.id)
    if node.state == "drained" and node.id in sight.drained and mark is not None and mark.by:
        return f"drained by {mark.by}", mark.why or why
    if node.state == "down" or node.id in sight.drained:
        return node.state, why
    return None


def _short(text: str, most: int) -> str:
    """The text, cut in its middle where it is too long: what differs is often at the end."""
    return text if len(text) <= most else f"{text[: most - most // 3 - 1]}…{text[-(most // 3) :]}"
