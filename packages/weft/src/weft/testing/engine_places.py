"""Places of ranks, their variables, and what they may use there."""

from __future__ import annotations

import sys
from dataclasses import replace

from weft.core.events.event import Failed, Finished, Started, Stopped
from weft.core.model.job import (
    Allocation,
    Batch,
    Demand,
    Discipline,
    Job,
    Sharing,
    Slice,
    Tier,
    TimeShift,
)
from weft.core.plan.about import Controls
from weft.testing.engine_subject import (
    ENDS,
    Check,
    EngineSession,
    Script,
    Subject,
    by_script,
    read_all,
    run_script,
    session,
)

NAMES = "RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT WEFT_JOB WEFT_ATTEMPT"
NOWHERE = '""'
TELL = f'for n in {NAMES} WEFT_DEVICES; do eval "echo $n=\\$$n"; done; echo WHERE=%s'
# Rank 0 waits for all others at the address that every rank got.
MEET = f"""exec {sys.executable} -c '
import os, socket, time
at = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
if os.environ["RANK"] == "0":
    door = socket.create_server(at)
    lines = [door.accept()[0] for _ in range(int(os.environ["WORLD_SIZE"]) - 1)]
    print("met", len(lines))
else:
    for _ in range(200):
        try:
            socket.create_connection(at).close()
            break
        except OSError:
            time.sleep(0.1)
    else:
        raise SystemExit("rank 0 does not listen")
    print("met rank 0")
'"""
LISTEN = f"""exec {sys.executable} -c '
import os, time
from weft.base.client import AgentConnection
from weft.base.environment import Environment
from weft.base.messages import Hello
me = Environment.read()
line = AgentConnection(me.agent, Hello(me.job, me.attempt, me.rank, os.getpid()))
while True:
    for said in line.poll():
        print(said, flush=True)
    time.sleep(0.05)
'"""
MEMORY = f"""exec {sys.executable} -c '
import time
held = []
for _ in range(60):
    held.append(bytearray(20_000_000))
    time.sleep(0.05)
time.sleep(100)
'"""


async def nodes_and_kinds_are_told(subject: Subject) -> None:
    """Every node has a name of its own, a kind and devices."""
    async with session(subject) as it:
        nodes = await it.engine.nodes()

        assert nodes
        assert len({node.id for node in nodes}) == len(nodes)
        assert all(node.kind and node.gpus > 0 and node.mem_gb >= 0.0 for node in nodes)


@by_script
async def ranks_are_told_who_they_are(subject: Subject, script: Script) -> None:
    """RANK, WORLD_SIZE, MASTER_ADDR and the rest; the job's variables, none of the service's."""
    rest = 'echo "OURS=${WEFT_TOKEN-}"; echo "MINE=$MINE"; test -d $WEFT_CHECKPOINTS && echo dir'
    job = script("told", 2, f"{TELL % NOWHERE}; {rest}")
    job = _with_variable(job, "MINE", "yes")
    async with session(subject) as it:
        ended, printed = await run_script(it, job, await it.on(2))

    assert ended == Finished(job.id, 1), f"{ended}, {printed}"
    variables = {rank: _variables(text) for rank, text in printed.items()}
    assert sorted(variables) == [0, 1]
    for rank, own in variables.items():
        assert own["RANK"] == own["LOCAL_RANK"] == str(rank)
        assert own["WORLD_SIZE"] == own["LOCAL_WORLD_SIZE"] == "2"
        assert own["WEFT_JOB"] == job.id
        assert own["WEFT_ATTEMPT"] == "1"
        assert own["MASTER_ADDR"]
        assert int(own["MASTER_PORT"]) > 0
        assert (own["MINE"], own["OURS"]) == ("yes", "")
        assert "dir" in printed[rank], "there is no folder for checkpoints"
    assert variables[0]["MASTER_PORT"] == variables[1]["MASTER_PORT"]


async def a_gang_starts_on_exactly_the_places_asked(subject: Subject) -> None:
    """One rank a device on the nodes that were named, and nowhere else."""
    if subject.script is None or not await _has_nodes(subject, 2):
        return
    job = subject.script("placed", 2, TELL % (subject.where or NOWHERE))
    async with session(subject) as it:
        on = await it.over(1, 1)
        ended, printed = await run_script(it, job, on)

    assert ended == Finished(job.id, 1), f"{ended}, {printed}"
    variables = [_variables(printed[rank]) for rank in sorted(printed)]
    assert [rank["RANK"] for rank in variables] == ["0", "1"]
    assert [rank["LOCAL_RANK"] for rank in variables] == ["0", "0"]
    if subject.where:
        assert [rank["WHERE"] for rank in variables] == [part.node for part in on.slices]


async def an_uneven_gang_is_one(subject: Subject) -> None:
    """Two devices here and one there: ranks count through, meet at rank 0, and log apart."""
    if subject.script is None or not await _has_nodes(subject, 2):
        return
    job = subject.script("uneven", 3, f"{TELL % (subject.where or NOWHERE)}\n{MEET}")
    async with session(subject) as it:
        on = await it.over(2, 1)
        ended, printed = await run_script(it, job, on)

    assert ended == Finished(job.id, 1), f"{ended}, {printed}"
    variables = [_variables(printed[rank]) for rank in sorted(printed)]
    assert [rank["RANK"] for rank in variables] == ["0", "1", "2"]
    assert [rank["LOCAL_RANK"] for rank in variables] == ["0", "1", "0"]
    assert [rank["LOCAL_WORLD_SIZE"] for rank in variables] == ["2", "2", "1"]
    assert {rank["WORLD_SIZE"] for rank in variables} == {"3"}
    assert len({(rank["MASTER_ADDR"], rank["MASTER_PORT"]) for rank in variables}) == 1
    assert "met 2" in printed[0]
    assert all("met rank 0" in printed[rank] for rank in (1, 2))


async def devices_are_those_asked_for(subject: Subject) -> None:
    """If an engine declares it, a rank has the device numbers of the plan."""
    if subject.script is None or not subject.exact:
        return
    job = subject.script("exact", 1, TELL % '"$CUDA_VISIBLE_DEVICES"')
    async with session(subject) as it:
        node = (await it.engine.nodes())[0]
        last = node.gpus - 1
        ended, printed = await run_script(it, job, Allocation((Slice(node.id, (last,)),)))

    assert ended == Finished(job.id, 1), f"{ended}, {printed}"
    assert _variables(printed[0])["WEFT_DEVICES"] == str(last)
    assert _variables(printed[0])["WHERE"] in ("", str(last))


@by_script
async def exit_codes_and_signals_are_told(subject: Subject, script: Script) -> None:
    """Failed carries the code of the process, negative for a signal."""
    async with session(subject) as it:
        for name, text, code in (("seven", "exit 7", 7), ("killed", "kill -9 $$", -9)):
            job = script(name, 1, text)
            ended, _ = await run_script(it, job, await it.on(1))

            assert isinstance(ended, Failed), ended
            assert (ended.code, ended.lost) == (code, False), ended


@by_script
async def a_job_is_asked_to_save_before_it_stops(subject: Subject, script: Script) -> None:
    """A file written when a job is asked to leave is there for its next attempt."""
    text = (
        "test -f $WEFT_CHECKPOINTS/step && { cat $WEFT_CHECKPOINTS/step; exit 0; }\n"
        "trap 'echo saved-by-$WEFT_ATTEMPT > $WEFT_CHECKPOINTS/step; exit 0' TERM\n"
        "echo ready; while :; do sleep 0.05; done"
    )
    job = script("saves", 1, text)
    async with session(subject) as it:
        await it.begin(job)
        await it.becomes(lambda: "ready" in read_all(it.engine, job.id).get(0, ""), "ready")

        await it.engine.stop(job.id, 1, 15.0)

        assert await it.next() == Stopped(job.id, 1)
        ended, printed = await run_script(it, job, await it.on(1), 2)
        assert ended == Finished(job.id, 2)
        assert "saved-by-1" in printed[0]


@by_script
async def the_host_is_divided(subject: Subject, script: Script) -> None:
    """CPUs bind, and a job that takes more memory than it asked for is ended."""
    async with session(subject) as it:
        if Controls.HOST not in it.engine.supports:
            return
        job = replace(script("bound", 1, "echo CPUS=$WEFT_CPUS; nproc"), cpus=1.0)
        ended, printed = await run_script(it, job, await it.on(1))
        assert ended == Finished(job.id, 1), f"{ended}, {printed}"
        assert printed[0].split() == ["CPUS=1", "1"], printed

        greedy = replace(script("greedy", 1, MEMORY), mem_gb=0.3)
        ended, _ = await run_script(it, greedy, await it.on(1))
        assert isinstance(ended, Failed), ended
        assert "memory" in ended.reason.lower(), ended


async def what_it_supports_has_an_effect(subject: Subject) -> None:
    """Each flag of `supports`, with processes that say what they were given or told."""
    if subject.script is None:
        return
    async with session(subject) as it:
        for check in (_count, _batch, _share, _turns):
            await check(subject, it)


async def _count(subject: Subject, it: EngineSession) -> None:
    """COUNT: another number of devices than the job asked for."""
    assert subject.script is not None
    if Controls.COUNT not in it.engine.supports:
        return
    job = subject.script("elastic", 2, "echo OF=$WORLD_SIZE")
    job = replace(job, demand=Demand(2, 1, 2))

    ended, printed = await run_script(it, job, await it.on(1))

    assert ended == Finished(job.id, 1)
    assert printed == {0: "OF=1\n"}


async def _batch(subject: Subject, it: EngineSession) -> None:
    """BATCH and SHIFT: rank 0 gets them, from the beginning and later."""
    assert subject.script is not None
    controls = it.engine.supports
    if Controls.BATCH not in controls:
        return
    job = subject.script("tuned", 1, LISTEN)
    on = replace(await it.on(1), batch=Batch(16, 3))
    await it.engine.start(job, on, 1)
    assert await it.next() == Started(job.id, 1)
    await it.becomes(lambda: "16" in read_all(it.engine, job.id).get(0, ""), "a first batch")

    shift = TimeShift(7.5, 1.25) if Controls.SHIFT in controls else None
    await it.engine.adjust(job.id, 1, replace(on, batch=Batch(48, 1), time_shift=shift))

    await it.becomes(lambda: "48" in read_all(it.engine, job.id)[0], "a new batch")
    if shift is not None:
        await it.becomes(lambda: "1.25" in read_all(it.engine, job.id)[0], "a time shift")
    await it.engine.stop(job.id, 1, 0.2)
    assert await it.next() == Stopped(job.id, 1)


async def _share(subject: Subject, it: EngineSession) -> None:
    """SHARE and TIER: two jobs run on one device at the same time."""
    controls = it.engine.supports
    for flag, second in (
        (Controls.SHARE, Sharing(0.5)),
        (Controls.TIER, Sharing(0.0, Tier.OPPORTUNISTIC)),
    ):
        if flag not in controls:
            continue
        jobs = [subject.endless(f"{name}-{flag.value}", 1) for name in ("one", "two")]
        for job, sharing in zip(jobs, (Sharing(0.5), second), strict=True):
            await it.engine.start(job, replace(await it.on(1), sharing=sharing), 1)
        assert {(await it.next()).job for _ in jobs} == {job.id for job in jobs}  # type: ignore[union-attr]
        for job in jobs:
            await it.engine.stop(job.id, 1, 5.0)
        ends = [await it.next() for _ in jobs]
        assert all(isinstance(end, ENDS[0]) for end in ends), ends


async def _turns(subject: Subject, it: EngineSession) -> None:
    """PHASE: a job that takes turns finds their coordinator."""
    assert subject.script is not None
    if Controls.PHASE not in it.engine.supports:
        return
    text = "until test -S $WEFT_COORDINATOR; do sleep 0.1; done; echo AT=$WEFT_PHASE"
    job = subject.script("turns", 1, text)
    sharing = Sharing(0.5, phase=0.25, discipline=Discipline.LOCKSTEP)

    ended, printed = await run_script(it, job, replace(await it.on(1), sharing=sharing))

    assert ended == Finished(job.id, 1), f"{ended}, {printed}"
    assert printed == {0: "AT=0.25\n"}


def _variables(text: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)


def _with_variable(job: Job, name: str, value: str) -> Job:
    assert job.launch is not None
    return replace(job, launch=replace(job.launch, env={**job.launch.env, name: value}))


async def _has_nodes(subject: Subject, count: int) -> bool:
    engine = subject.make()
    nodes = await engine.nodes()
    await engine.close()
    return len([node for node in nodes if node.kind == nodes[-1].kind]) >= count


PLACES = (
    nodes_and_kinds_are_told,
    ranks_are_told_who_they_are,
    a_gang_starts_on_exactly_the_places_asked,
    an_uneven_gang_is_one,
    devices_are_those_asked_for,
    exit_codes_and_signals_are_told,
    a_job_is_asked_to_save_before_it_stops,
    the_host_is_divided,
    what_it_supports_has_an_effect,
)


WHO = "id -u"


@by_script
async def a_job_runs_as_its_tenants_user(subject: Subject, script: Script) -> None:
    """Each rank is that user; so is the job where the controller knows whose it is."""
    for tenant in subject.tenants:
        job = replace(script(f"of-{tenant.name}", 2, WHO), tenant=tenant.name)
        async with session(subject) as it:
            it.engine.check(job)
            end, printed = await run_script(it, job, await it.on(2))
        assert end == Finished(job.id, 1), end
        assert printed == dict.fromkeys(range(2), f"{tenant.uid}\n"), printed


@by_script
async def a_job_is_charged_to_its_tenant(subject: Subject, script: Script) -> None:
    """The controller has the user and the account of every job."""
    if subject.charged is None:
        return
    for tenant in subject.tenants:
        job = replace(script(f"charged-{tenant.name}", 1, "true"), tenant=tenant.name)
        async with session(subject) as it:
            end, _ = await run_script(it, job, await it.on(1))
        assert end == Finished(job.id, 1), end
        assert subject.charged(job.id) == (tenant.uid, tenant.account)


TENANTS: tuple[Check, ...] = (a_job_runs_as_its_tenants_user, a_job_is_charged_to_its_tenant)
