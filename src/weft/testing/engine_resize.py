"""Live resize, for engines that declare it: a real training that grows, shrinks, and is let down.

The training is one of `weft.train` (PyTorch is needed); engines without `Controls.RESIZE` are
passed over.
"""

from __future__ import annotations

import re
import sys
from dataclasses import replace

from weft.core.events.event import Resizable, Resized, ResizeFailed, Started, Stopped
from weft.core.model.job import Demand, Job
from weft.core.plan.about import Controls
from weft.testing.engine_subject import ENDS, Script, Session, Subject, by_script, read_all, session

DOOMED = 3  # the change whose new rank dies as it gets ready
TRAIN = f"""exec {sys.executable} -c '
import os, time
if os.environ.get("WEFT_JOIN") == "{DOOMED}":
    raise SystemExit(7)
import torch
import weft.train as wt
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
        print("step", job.steps, "of", job.size, flush=True)
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
        await _trains_on(it, job, 1)

        await _change(it, job, 2, 1)
        await _trains_on(it, job, 2)
        await _change(it, job, 1, 2)
        await _trains_on(it, job, 1)
        await _fail(it, job)
        await _trains_on(it, job, 1)

        await it.engine.stop(job.id, 1, 30.0)
        assert await it.next() == Stopped(job.id, 1)
        _check_steps(read_all(it.engine, job.id))


async def _change(it: Session, job: Job, gpus: int, epoch: int) -> None:
    """To so many devices, as it trains."""
    before = it.engine.pids(job.id, 1)
    answer = await _ask(it, job, gpus, epoch)
    assert isinstance(answer, Resized), f"a change to {gpus} devices was answered by {answer}"
    after = it.engine.pids(job.id, 1)
    assert len(after) == gpus, f"Resized was reported, and there are {len(after)} ranks on {gpus}"
    stayed = {*before.values()} & {*after.values()}
    assert len(stayed) == min(len(before), gpus), "ranks that could stay were started anew"


async def _fail(it: Session, job: Job) -> None:
    before = it.engine.pids(job.id, 1)
    answer = await _ask(it, job, 2, DOOMED)
    assert isinstance(answer, ResizeFailed), f"a new rank died, which was answered by {answer}"
    assert answer.reason
    assert it.engine.pids(job.id, 1) == before, "the ranks are others after a change that failed"


async def _ask(it: Session, job: Job, gpus: int, epoch: int) -> object:
    """What answers a change, or ends the attempt instead."""
    await it.engine.resize(job, await it.on(gpus), 1, epoch)
    answer = await it.told((Resized, ResizeFailed, Started, *ENDS))
    assert (answer.job, answer.attempt) == (job.id, 1)
    if isinstance(answer, (Resized, ResizeFailed)):
        assert answer.epoch == epoch
    return answer


async def _trains_on(it: Session, job: Job, size: int) -> None:
    """A few more steps are done, by so many ranks."""
    goal = _last_step(it, job) + 3
    what = f"step {goal} with {size} ranks"
    await it.becomes(lambda: _last_step(it, job, size) >= goal, what)


def _last_step(it: Session, job: Job, size: int | None = None) -> int:
    """The last step of a gang of so many ranks, or of any; 0 if there is none."""
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


RESIZES = (a_training_is_resized,)
