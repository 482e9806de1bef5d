"""Drives `Scheduler.step` in real time: the sibling of the simulator's driver.

One task takes whatever happened since its last turn, steps the scheduler, appends the facts and
the decision to the store, and only then acts. So a process that dies at any moment has either
not acted, or left a record of what it was about to do; the next one reads the log, asks the
engine what really runs, and repeats what was not answered.

What a service uses, all of it from the event loop's thread::

    driver = Driver(engine, store, policy="fifo")
    await driver.open()                    # replays, reconciles, begins to decide
    job_id = await driver.submit(job)      # on disk when it returns
    await driver.cancel(job_id)            # likewise
    await driver.drain(node); await driver.undrain(node); await driver.set_policy("las")
    driver.now, driver.seq                 # cluster time (epoch seconds), last event's number
    driver.job(job_id), driver.jobs(), driver.nodes(), driver.scheduler.state
    async for rows in driver.subscribe(from_seq): ...  # of (seq, at, event)
    await driver.ended(job_id)             # its JobStatus once it has left
    await driver.wait()                    # until closed; raises what broke it
    await driver.close()                   # jobs go on running; the next open() adopts them
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import replace

from weft.core.actions import Action, Start, Wake
from weft.core.cluster import Cluster, Node
from weft.core.errors import EngineError, InvalidConfig, UnknownName, WeftError
from weft.core.events import (
    Cancelled,
    Event,
    NodeDown,
    NodeUp,
    PolicyChanged,
    StartFailed,
    Submitted,
    Woken,
)
from weft.core.knowledge import Knowledge
from weft.core.launch import Launch
from weft.core.model import Job, JobId, NodeId
from weft.core.ports import Engine, Store
from weft.core.registry import Described
from weft.core.scheduler import Scheduler
from weft.core.spec import PartSpec
from weft.runtime.admit import admit_policy, check_job, policy_of, taken
from weft.runtime.backoff import Backoff
from weft.runtime.clock import Clock, Seconds
from weft.runtime.decision import Decisions
from weft.runtime.follow import Row, Tail, follow
from weft.runtime.ledger import Ledger
from weft.runtime.log_failure import Unwritten, append, read_again
from weft.runtime.recover import FIFO, reconcile, recover, refuse_strangers
from weft.runtime.requests import act
from weft.runtime.saving import Saver
from weft.runtime.status import JobStatus, find_record, status_of

log = logging.getLogger(__name__)

Asked = deque[tuple[Event, asyncio.Future[None] | None]]
NO_LAUNCH = Launch(())
CLOSING = EngineError("the scheduler is closing", hint="ask again when it is back")
AGAIN_S = 1.0  # until what the engine or the log could not take is tried again


class Driver:
    """One scheduler on one engine, with one store as its only memory.

    `policy` None goes on with the policy of the log. `knowledge` makes what the
    scheduler knows of jobs, as it is before the first event. Attempts that run and that the log
    knows nothing of are ended if `end_unknown`, else the driver does not open.
    """

    def __init__(
        self,
        engine: Engine,
        store: Store,
        *,
        policy: Described | None = None,
        knowledge: Callable[[], Knowledge] = Knowledge,
        seed: int = 0,
        snapshot_every: int = 5_000,
        seconds: Seconds = time.monotonic,
        end_unknown: bool = False,
    ) -> None:
        self._end_unknown = end_unknown
        self.engine, self.store, self._tail = engine, store, Tail(store)
        self._asked_policy = policy
        self._make = lambda: Scheduler(
            Backoff(policy_of(FIFO)),
            Cluster(()),
            knowledge=knowledge(),
            seed=seed,
            journal=lambda at, event: self._noted.append((at, event)),
        )
        self._saver = Saver(store, snapshot_every)
        self._inbox, self._noted = Asked(), list[tuple[float, Event]]()
        self.incoming: dict[JobId, Job] = {}  # submitted, and not yet on disk
        self._wake: float | None = None
        self._seconds = seconds
        self._clock = Clock()
        self._decisions = Decisions(self._clock)
        self._all_nodes: dict[NodeId, Node] = {}
        self._whole = Cluster(())
        self._tasks: list[asyncio.Task[None]] = []
        self._closing = False
        self._error: BaseException | None = None
        self._unwritten: Unwritten | None = None

    # ---- life

    async def open(self) -> None:
        """Read the log, reconcile with what runs, and begin. The policy is checked first."""
        self._bell, self._changed = asyncio.Event(), asyncio.Event()
        self._known = known = await asyncio.to_thread(recover, self.store, self._make)
        policy = self._admit(self._asked_policy or known.policy)
        self._clock = Clock(self.engine.speed, known.at, self._seconds)
        self._decisions = Decisions(self._clock)
        self._wake = self.scheduler.state.wake_at
        if not self._end_unknown:
            refuse_strangers(known.ledger, self.engine.running())
        nodes = await self.engine.nodes()
        self._all_nodes, self._whole = {node.id: node for node in nodes}, Cluster(tuple(nodes))
        events, wishes = reconcile(known, nodes, await self.engine.adopt(known.attempts()))
        try:
            for wish in wishes:
                await self._carry_out(wish)
            await self._turn(self._clock.tick(), [PolicyChanged(policy), *events])
        except BaseException:
            await self.engine.close()
            raise
        self._tasks = [asyncio.create_task(self._run()), asyncio.create_task(self._listen())]
        for task in self._tasks:
            task.add_done_callback(self._broken)

    async def close(self) -> None:
        """Stop deciding and let go; what runs goes on running."""
        if not self._closing:
            self._closing = True
            self._bell.set()
            run, listen, *_ = self._tasks
            await asyncio.gather(run, return_exceptions=True)  # to the end of its turn
            listen.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._fail_waiting(CLOSING, self._inbox)
        await self._saver.finish(self._known if self._error is None else None)
        self._announce()
        await self.engine.close()

    async def wait(self) -> None:
        """Until the driver is closed; raises whatever broke it."""
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._error is not None:
            raise self._error

    # ---- what is asked of it

    async def submit(self, job: Job) -> JobId:
        """Hand in a job; it is on disk on return. Its time of submission is set here.

        Raises InvalidConfig for a job that is already there or can never run here.
        """
        if job.id in self.ledger.jobs or job.id in self.incoming:
            raise InvalidConfig(f"there is a job {job.id!r} already", hint="choose another id")
        self.engine.check(job)
        check_job(job, self._whole)
        self.incoming[job.id] = job
        try:
            await self._ask(Submitted(replace(job, submitted=self.now)))
        finally:
            self.incoming.pop(job.id, None)
        return job.id

    async def cancel(self, job: JobId) -> None:
        """Withdraw a job; one that has ended stays as it ended. Unknown ones are refused."""
        if not find_record(self.ledger, job).outcome:
            await self._ask(Cancelled(job))

    async def drain(self, node: NodeId) -> None:
        """Move every job off `node` and give it no more, until `undrain`."""
        self._node(node)
        await self._ask(NodeDown(node, drained=True))

    async def undrain(self, node: NodeId) -> None:
        """Use `node` again."""
        await self._ask(NodeUp(self._node(node)))

    async def set_policy(self, policy: Described) -> None:
        """Decide by another policy from now on; running jobs stay until it says otherwise."""
        await self._ask(PolicyChanged(self._admit(policy)))

    def _admit(self, policy: Described) -> PartSpec:
        return admit_policy(policy, self.engine.supports, self.scheduler.knowledge.predictor)

    # ---- what can be read

    @property
    def scheduler(self) -> Scheduler:
        """The scheduler; its `state` may be read between awaits, never changed."""
        return self._known.scheduler

    @property
    def ledger(self) -> Ledger:
        """Every job's record and the accounts."""
        return self._known.ledger

    @property
    def policy(self) -> PartSpec:
        """What decides now."""
        return self._known.policy

    @property
    def trouble(self) -> str:
        """Why nothing is decided, or why the engine is not well; empty while all is well."""
        return self._decisions.trouble or self.engine.health.reason

    @property
    def seq(self) -> int:
        """The number of the last event on disk."""
        return self._known.seq

    @property
    def now(self) -> float:
        """Cluster time: seconds since the epoch, ahead of the wall if the engine is faster."""
        return self._clock.now

    def job(self, job: JobId) -> JobStatus:
        """One job, ended or not."""
        return status_of(find_record(self.ledger, job), self.scheduler.state)

    def jobs(self) -> list[JobStatus]:
        """Every job in order of submission."""
        return [status_of(one, self.scheduler.state) for one in self.ledger.jobs.values()]

    def nodes(self) -> list[tuple[Node, str]]:
        """Every machine with `up`, `drained` or `down`."""
        up, drained = self.scheduler.state.cluster.index, self._known.drained
        word = {**dict.fromkeys(drained, "drained"), **dict.fromkeys(up, "up")}
        return [(node, word.get(name, "down")) for name, node in self._all_nodes.items()]

    def subscribe(self, from_seq: int = 0) -> AsyncIterator[list[Row]]:
        """Events after number `from_seq`, some at a time, the past first; ends with the driver."""
        return follow(self._tail, from_seq, lambda: None if self._closing else self._changed)

    async def ended(self, job: JobId) -> JobStatus:
        """Wait until a job has left for good."""
        while not (status := self.job(job)).record.outcome:
            if self._closing:
                raise EngineError(f"the scheduler closed before job {job!r} ended")
            await self._changed.wait()
        return status

    # ---- the loop

    async def _run(self) -> None:
        while not self._closing:
            if not self._inbox:
                await self._sleep()
            asked, self._inbox = self._inbox, Asked()
            now = self._clock.tick()
            events = [event for event, _ in asked]
            if self._wake is not None and now >= self._wake:
                self._wake = None
                events.append(Woken())
            try:
                await self._turn(now, events)
            except Unwritten as error:
                await self._take_back(asked, error)
                continue
            except BaseException:
                self._inbox = asked + self._inbox  # so that whoever waits is told
                raise
            for _, answer in asked:
                if answer is not None and not answer.done():
                    answer.set_result(None)

    async def _take_back(self, asked: Asked, error: Unwritten) -> None:
        """What could not be written has not happened; what the engine told is tried again."""
        self._fail_waiting(error, asked)
        self._decisions.trouble, self._unwritten = error.what, error
        self._known = await read_again(self.store, self._make)
        self.scheduler.put_off(self.now)  # the log does not say what was still to be decided
        self._wake = self.scheduler.state.wake_at
        self._inbox.extendleft(reversed([one for one in asked if one[1] is None]))
        await asyncio.sleep(0.0 if self._closing else AGAIN_S)
        self._unwritten = None

    async def _sleep(self) -> None:
        """Until something is asked or it is time to wake."""
        self._bell.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._clock.until(self._wake)):
                await self._bell.wait()

    async def _turn(self, now: float, events: list[Event]) -> None:
        """Fold, decide, write down, act."""
        state, ledger = self.scheduler.state, self.ledger
        events = [told for event in events if (told := taken(event, state, ledger)) is not None]
        if not events:
            return
        for event in events:
            if isinstance(event, PolicyChanged):
                self.scheduler.use(Backoff(policy_of(event.policy)))
        actions = self._step(now, events)
        await self._write()
        for action in actions:
            await self._carry_out(action)

    def _step(self, now: float, events: list[Event]) -> list[Action]:
        actions, due = self.scheduler.take_in(now, events)
        if due:
            actions += self._decisions.make(self.scheduler, self.policy.text, now, self._noted)
        return actions + self.scheduler.asks()

    async def _write(self) -> None:
        noted, self._noted = self._noted, []
        last = await append(self.store, noted)
        for seq, (at, event) in enumerate(noted, start=last - len(noted) + 1):
            self._known.note(seq, at, event)
            self._tail.add(seq, at, event)
        self._saver.look(self._known, self._broken)
        self._announce()

    # ---- action

    async def _carry_out(self, action: Action) -> None:
        try:
            if isinstance(action, Wake):
                self._wake = action.at
            else:
                await act(self.engine, action, self._grace_s)
        except WeftError as error:
            if isinstance(action, Start):
                lost = isinstance(error, EngineError)  # not the job's doing
                self._post(StartFailed(action.job.id, action.attempt, str(error), lost))
                return
            log.warning("%s is tried again: %s", action, error)
            asyncio.get_running_loop().call_later(AGAIN_S, self._do_again, action)

    def _do_again(self, action: Action) -> None:
        if not self._closing:
            self._tasks.append(asyncio.create_task(self._carry_out(action)))

    def _grace_s(self, job: JobId) -> float:
        return (self.ledger.jobs[job].job.launch or NO_LAUNCH).grace_s

    async def _listen(self) -> None:
        async for event in self.engine.events():
            self._post(event)

    async def _ask(self, event: Event) -> None:
        if refusal := CLOSING if self._closing else self._unwritten:
            raise refusal
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._post(event, answer)
        await answer

    def _post(self, event: Event, answer: asyncio.Future[None] | None = None) -> None:
        self._inbox.append((event, answer))
        self._bell.set()

    def _announce(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def _node(self, node: NodeId) -> Node:
        if node not in self._all_nodes:
            raise UnknownName.among("node", node, self._all_nodes, "weft nodes")
        return self._all_nodes[node]

    def _broken(self, task: asyncio.Task[None]) -> None:
        if task.cancelled() or not (error := task.exception()):
            return
        log.error("the driver stopped: %s", error, exc_info=error)
        self._closing, self._error = True, error
        self._fail_waiting(error, self._inbox)
        for other in self._tasks:
            other.cancel()
        self._announce()

    def _fail_waiting(self, error: BaseException, asked: Asked) -> None:
        for _, answer in asked:
            if answer is not None and not answer.done():
                answer.set_exception(error)
