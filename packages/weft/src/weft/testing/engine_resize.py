"""Live resize, for engines that declare it: a real training that grows, shrinks, and is let down.

The training is one of `weft_train` (PyTorch is needed); engines without `Controls.RESIZE` are
skipped.
"""

from __future__ import annotations

import re
import sys
from dataclasses import replace

from weft.core.events.event import Resizable, Resized, ResizeFailed, Started, Stopped
from weft.core.model.job import Allocation, Demand, Job
from weft.core.plan.about import Controls
from weft.testing.engine_subject import (
    ENDS,
    EngineSession,
    Script,
    Subject,
    by_script,
    read_all,
    session,
)

DOOMED = 3  # the change whose new rank dies as it gets ready
TRAIN = f"""exec {sys.executable} -c '
import os, sys, time
if os.environ.get("WEFT_JOIN") == "{DOOMED}":
    raise SystemExit(7)
import torch
import weft_train as wt
torch.set_num_threads(1)
job = wt.init(report_every_s=0.05)
net = torch.nn.Linear(4, 1)
model, optimizer = job.wrap(net, torch.optim.Adam(net.parameters()), scaling="none")
x = torch.randn(64, 4)
loader = job.loader(torch.utils.data.TensorDataset(x, x.sum(1, keepdim=True)), 8)
for epoch in job.epochs(1_000_000):
    for x, y in loader:
        with job.step():
            job.backward(torch.nn.functional.mse_loss(model(x), y))
        # In one write, or a warning of a thread of torch may come between its words.
        sys.stdout.write(f"step {{job.steps}} of {{job.size}}\\n")
        sys.stdout.flush()
        time.sleep(0.02)
'"""
LINE = re.compile(r"^step (\d+) of (\d+)$", re.MULTILINE)


@by_script
async def a_training_is_resized(subject: Subject, script: Script) -> None:
    """Resized is true: other ranks, the same attempt, no step lost; ResizeFailed: as before."""
    async with session(subject) as it:
        if Controls.RESIZE not in it.engine.supports:
            return
        job = replace(script("resized", 1, TRAIN), demand=Demand(1, min=1, max=2))
        await it.begin(job)
        await it.told(Resizable)
        await train_on(it, job, 1)

        await _change(it, job, 2, 1)
        await train_on(it, job, 2)
        await _change(it, job, 1, 2)
        await train_on(it, job, 1)
        await _fail(it, job)
        await train_on(it, job, 1)

        await it.engine.stop(job.id, 1, 30.0)
        assert await it.next() == Stopped(job.id, 1)
        _check_steps(read_all(it.engine, job.id))


@by_script
async def a_training_moves_to_another_node(subject: Subject, script: Script) -> None:
    """A training grows onto a second node, leaves the first one with its rank 0, and grows back."""
    async with session(subject) as it:
        if not await _has_nodes(it, 2):
            return
        both = await it.over(1, 1)
        first, second = (replace(both, slices=(part,)) for part in both.slices)
        job = await begin_training(it, script("wanders", 1, TRAIN), first)
        for epoch, to in ((1, both), (2, second), (4, both)):
            answer = await change_ranks(it, job, to, epoch)
            assert isinstance(answer, Resized), f"a change to {to} was answered by {answer}"
            await train_on(it, job, to.gpus)
        await stop_training(it, job)


@by_script
async def a_change_survives_the_service(subject: Subject, script: Script) -> None:
    """A service that dies as ranks get ready is followed by one that learns their outcome."""
    async with session(subject) as it:
        if Controls.RESIZE not in it.engine.supports:
            return
        job = await begin_training(it, script("survives", 1, TRAIN), await it.on(1))
        to = await it.on(2)
        await it.engine.resize(job, to, 1, 1)
    async with session(subject, frozenset({(job.id, 1)})) as it:
        await it.engine.resize(job, to, 1, 1)  # as a service does that has heard no answer
        await end_change_after_restart(it, job, await it.on(1))


@by_script
async def a_node_lost_in_a_change_is_no_loss(subject: Subject, script: Script) -> None:
    """New ranks that die with their node leave the others as they were."""
    async with session(subject) as it:
        if subject.kill_node is None or subject.restore_node is None or not await _has_nodes(it, 2):
            return
        both = await it.over(1, 1)
        first, lost = replace(both, slices=both.slices[:1]), both.slices[1].node
        job = await begin_training(it, script("left", 1, TRAIN), first)
        await it.engine.resize(job, both, 1, 1)
        subject.kill_node(lost)
        try:
            answer = await _answer(it, job, 1)
            assert isinstance(answer, ResizeFailed), f"its node was lost, answered by {answer}"
            await train_on(it, job, 1)
            await stop_training(it, job)
        finally:
            subject.restore_node(lost)


async def _has_nodes(it: EngineSession, count: int) -> bool:
    """Return true if changes are made live here, on that many nodes of the last kind."""
    nodes = await it.engine.nodes()
    same = [node for node in nodes if node.kind == nodes[-1].kind]
    return Controls.RESIZE in it.engine.supports and len(same) >= count


async def begin_training(it: EngineSession, job: Job, on: Allocation) -> Job:
    """A job that may have two devices, once it trains on its first."""
    job = replace(job, demand=Demand(1, min=1, max=2))
    await it.engine.start(job, on, 1)
    assert await it.next() == Started(job.id, 1)
    await it.told(Resizable)
    await train_on(it, job, 1)
    return job


async def end_change_after_restart(it: EngineSession, job: Job, then: Allocation) -> None:
    """A change to two ranks that a service before this one began succeeds; so does the next."""
    answer = await it.told((Resized, ResizeFailed, *ENDS))
    assert isinstance(answer, Resized), f"after a restart it was answered by {answer}"
    await train_on(it, job, 2)
    again = await change_ranks(it, job, then, 2)
    assert isinstance(again, Resized), f"the next change was answered by {again}"
    await train_on(it, job, then.gpus)
    await stop_training(it, job)


async def stop_training(it: EngineSession, job: Job) -> None:
    """Stop it; each of its steps was done once, by all of its ranks."""
    await it.engine.stop(job.id, 1, 30.0)
    while not isinstance(event := await it.next(), Stopped):
        assert event == Started(job.id, 1), f"{event} was reported of a job that was asked to stop"
    _check_steps(read_all(it.engine, job.id))


async def _change(it: EngineSession, job: Job, gpus: int, epoch: int) -> None:
    """To that many devices, as it trains."""
    before = it.engine.pids(job.id, 1)
    answer = await change_ranks(it, job, await it.on(gpus), epoch)
    assert isinstance(answer, Resized), f"a change to {gpus} devices was answered by {answer}"
    after = it.engine.pids(job.id, 1)
    if not before and not after:
        return  # their numbers mean nothing here; which rank printed a step is checked at the end
    assert len(after) == gpus, f"Resized was reported, and there are {len(after)} ranks on {gpus}"
    stayed = {*before.values()} & {*after.values()}
    assert len(stayed) == min(len(before), gpus), "ranks that could stay were restarted"


async def _fail(it: EngineSession, job: Job) -> None:
    before = it.engine.pids(job.id, 1)
    answer = await change_ranks(it, job, await it.on(2), DOOMED)
    assert isinstance(answer, ResizeFailed), f"a new rank died, which was answered by {answer}"
    assert answer.reason
    assert it.engine.pids(job.id, 1) == before, "the ranks are others after a change that failed"


async def change_ranks(it: EngineSession, job: Job, to: Allocation, epoch: int) -> object:
    """Ask for a change; return its answer, or the end of the attempt."""
    await it.engine.resize(job, to, 1, epoch)
    return await _answer(it, job, epoch)


async def _answer(it: EngineSession, job: Job, epoch: int) -> object:
    answer = await it.told((Resized, ResizeFailed, Started, *ENDS))
    assert (answer.job, answer.attempt) == (job.id, 1)
    if isinstance(answer, (Resized, ResizeFailed)):
        assert answer.epoch == epoch
    return answer


async def train_on(it: EngineSession, job: Job, size: int) -> None:
    """A few more steps are done, by that many ranks."""
    goal = _last_step(it, job) + 3
    what = f"step {goal} with {size} ranks"
    await it.becomes(lambda: _last_step(it, job, size) >= goal, what)


def _last_step(it: EngineSession, job: Job, size: int | None = None) -> int:
    """The last step of a gang of that many ranks, or of any; 0 if there is none."""
    printed = "".join(read_all(it.engine, job.id).values())
    steps = (int(step) for step, of in LINE.findall(printed) if size in (None, int(of)))
    return max(steps, default=0)


def _check_steps(printed: dict[int, str]) -> None:
    """Each step was done, once, and by all of its ranks."""
    sizes: dict[int, list[int]] = {}
    for text in printed.values():
        for step, of in LINE.findall(text):
            sizes.setdefault(int(step), []).append(int(of))
    last = max(sizes)
    assert {*sizes} == {*range(1, last + 1)}, "steps are missing"
    torn = [step for step, of in sizes.items() if len(of) != of[0] or len({*of}) != 1]
    assert not [step for step in torn if step < last], f"steps {torn[:5]} were not done by all"


RESIZES = (
    a_training_is_resized,
    a_training_moves_to_another_node,
    a_change_survives_the_service,
    a_node_lost_in_a_change_is_no_loss,
)
