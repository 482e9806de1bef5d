"""Drives `Scheduler.step` in real time: the sibling of the simulator's driver.

One task takes whatever happened since its last turn, steps the scheduler, appends the facts and
the decision to the store, and only then acts. So one that dies has either not acted, or left a
record; the next one reads the log, asks the engine what runs, and repeats what was not answered.

Called from the event loop's thread. What is asked is on disk on return; jobs go on after `close`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import replace
from math import inf

from weft.core.asleep.rules import rules_of
from weft.core.errors import EngineError, UnknownName
from weft.core.events.actions import Action, Wake
from weft.core.events.event import (
    Cancelled,
    Event,
    Foretold,
    NodeDown,
    NodeUp,
    PolicyChanged,
    Submitted,
    Woken,
)
from weft.core.knowledge.knowledge import Knowledge
from weft.core.model.cluster import Cluster, Node
from weft.core.model.job import AT_ONCE, Job, JobId, NodeId
from weft.core.model.launch import Launch
from weft.core.protocols import Engine, Store
from weft.core.scheduler import Scheduler
from weft.core.spec.part_spec import PartSpec
from weft.core.spec.registry import Described
from weft.runtime.deciding.decider import Decider, InProcess
from weft.runtime.deciding.decision import Decisions
from weft.runtime.deciding.live_policy import live_policy, with_terms
from weft.runtime.loop.admit import (
    admit_events,
    admit_policy,
    check_after,
    check_new,
    read_outcomes,
)
from weft.runtime.loop.clock import Clock, Seconds
from weft.runtime.loop.messages import (
    Asked,
    Messages,
    Unwritten,
    answer_all,
    append,
    fail_all,
    find_blamed,
    read_again,
    without,
)
from weft.runtime.loop.requests import AGAIN_S, Requests
from weft.runtime.records.job_records import Archive
from weft.runtime.records.ledger import Ledger
from weft.runtime.records.start_scores import RangeCorrection, StartScores
from weft.runtime.records.status import JobStatus, find_record, status_of
from weft.runtime.recovery.follow import Row, Tail, follow
from weft.runtime.recovery.recover import FIFO, reconcile, recover, refuse_strangers, wishes_of
from weft.runtime.recovery.snapshot_pace import SnapshotSaver
from weft.wire.ending import end_if_asked


class NodeList:
    """Machines by name, and all of them as a cluster, whether they are up or not."""

    def __init__(self, nodes: Iterable[Node] = ()) -> None:
        self._nodes = {node.id: node for node in nodes}
        self.whole = Cluster(tuple(self._nodes.values()))

    def add_node(self, node: Node) -> None:
        """One that came up: it may not have been there when the service began."""
        if self._nodes.get(node.id) != node:
            self._nodes[node.id] = node
            self.whole = Cluster(tuple(self._nodes.values()))

    def find(self, node: NodeId) -> Node:
        """The machine of that name; UnknownName if there is none."""
        if node not in self._nodes:
            raise UnknownName.among("node", node, self._nodes, "weft nodes")
        return self._nodes[node]

    def with_words(self, words: Mapping[NodeId, str]) -> list[tuple[Node, str]]:
        """Every machine with the word for its state; `down` where there is none."""
        return [(node, words.get(name, "down")) for name, node in self._nodes.items()]


log = logging.getLogger(__name__)

NO_LAUNCH = Launch(())
CLOSING = EngineError("the scheduler is closing", hint="ask again when it is back")
FORETOLD_KEPT = 10_000  # jobs whose last note is remembered
FORETOLD_S = 300.0  # between two notes of when a job is predicted to start
SCORED_EVENTS = 2_000  # of the log before a start from which ranges are scored
SOON_S = 0.5  # a decision that takes longer is not waited for by those who submit


class Driver:
    """One scheduler on one engine, with one store as its only memory.

    `policy` None goes on with the policy of the log. `knowledge` makes what the scheduler knows
    of jobs before the first event. Running attempts that the log does not know are stopped if
    `end_unknown`, else the driver does not open. `decider` asks the policy, by default here.
    """

    def __init__(
        self,
        engine: Engine,
        store: Store,
        *,
        policy: Described | None = None,
        knowledge: Callable[[], Knowledge] = Knowledge,
        snapshot_every: int = 5_000,
        seconds: Seconds = time.monotonic,
        end_unknown: bool = False,
        decider: Decider | None = None,
    ) -> None:
        self._end_unknown, self._asked_policy = end_unknown, policy
        self.engine, self.store, self._tail = engine, store, Tail(store)
        self._make = lambda: Scheduler(
            live_policy(FIFO),
            Cluster(()),
            knowledge=knowledge(),
            journal=self._note,
            stops=rules_of(engine.stops),
            early_rounds=True,
        )
        self._decider: Decider = decider or InProcess()
        self.saver, self._shelf = SnapshotSaver(store, snapshot_every), Archive(store.ended)
        self._inbox, self._noted = Asked(), list[tuple[float, Event]]()
        self.incoming: dict[JobId, Job] = {}  # as they will be, and not yet on disk
        self._wake: float | None = None
        self._seconds, self._clock = seconds, Clock()
        self.decisions = Decisions(self._clock)
        self.node_list = NodeList()
        self._tasks: list[asyncio.Task[None]] = []
        self._requests = Requests(engine, self._grace_s, self._post)
        self._closing, self.messages = False, Messages()
        self._foretold: dict[JobId, float] = {}
        self._start_scores: StartScores | None = None
        self._error: BaseException | None = None
        self._unwritten: Unwritten | None = None

    # ---- life

    async def open(self) -> None:
        """Read the log, reconcile with what runs, and begin. The policy is checked first."""
        self._bell, self._changed = asyncio.Event(), asyncio.Event()
        self._known = known = await asyncio.to_thread(recover, self.store, self._make)
        asked = self._asked_policy
        begins = known.begins(None if asked is None else self._admit(asked))
        self._clock = Clock(self.engine.speed, known.at, self._seconds)
        self.decisions = Decisions(self._clock, self._decider, begins.policy)
        self._wake = self.scheduler.state.wake_at
        if not self._end_unknown:
            refuse_strangers(known.ledger, self.engine.running())
        nodes = await self.engine.nodes()
        self.node_list = NodeList(nodes)
        events, wishes = reconcile(known, nodes, await self.engine.adopt(known.attempts()))
        try:
            await self._decider.start()
            for wish in wishes:
                await self._requests.carry_out(wish)
            await self._turn(self._clock.tick(), [begins, *events], Asked())
            await self._decider.prepare(self.scheduler, self.decisions.policy)
        except BaseException:
            await self._decider.close()
            await self.engine.close()
            raise
        self._tasks = [asyncio.create_task(self._run()), asyncio.create_task(self._listen())]
        for task in self._tasks:
            task.add_done_callback(self.stop_if_failed)

    async def close(self) -> None:
        """Stop deciding and let go; what runs goes on running."""
        if not self._closing:
            self._closing = True
            self._bell.set()
            run, listen, *_ = self._tasks
            await asyncio.gather(run, return_exceptions=True)  # to the end of its turn
            listen.cancel()
            self._requests.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        fail_all(self._inbox, CLOSING)
        await self._shelf.finish()
        await self.saver.finish(self._known if self._error is None else None)
        self._announce()
        await self._decider.close()
        await self.engine.close()

    async def wait(self) -> None:
        """Wait until the driver is closed; raises what broke it. Cancelling ends nothing."""
        await asyncio.wait(self._tasks)
        if self._error is not None:
            raise self._error

    # ---- what is asked of it

    async def submit(self, job: Job, *more: Job) -> JobId:
        """Submit jobs; they are on disk on return. Their time of submission is set here.

        They are `incoming` before anything else happens: code that counts a tenant's jobs sees
        them. One that waits in vain is cancelled. InvalidConfig if it exists or can never run.
        """
        coming: list[Job] = []
        try:
            for new in (job, *more):
                self.engine.check(new)
                check_new(new, self.node_list.whole, self.ledger, self.incoming)
                self.incoming[new.id] = new
                coming.append(replace(new, submitted=self.now))
            outcomes: dict[JobId, str] = {}
            if any(new.after is not AT_ONCE for new in coming):  # some are in the log's table
                outcomes = await asyncio.to_thread(read_outcomes, coming, self.ledger.jobs)
            in_vain = check_after(coming, outcomes)
            await asyncio.gather(*(self.write_down(Submitted(new)) for new in coming))
            for vain, why in in_vain.items():
                if vain in self.ledger.jobs.active:  # as a decision may have found before
                    await self.write_down(Cancelled(vain, why))
        finally:
            for new in coming:
                self.incoming.pop(new.id, None)
        return job.id

    async def cancel(self, job: JobId) -> None:
        """Cancel a job; one that has ended stays as it ended. Unknown ones are refused."""
        if not find_record(self.ledger, job).outcome:
            await self.write_down(Cancelled(job))

    async def drain(self, node: NodeId, by: str = "", why: str = "") -> None:
        """Move every job off `node` and give it no more, until `undrain`."""
        self.node_list.find(node)
        await self.write_down(NodeDown(node, drained=True, by=by, why=why))

    async def undrain(self, node: NodeId, by: str = "") -> None:
        """Use `node` again."""
        await self.write_down(NodeUp(self.node_list.find(node), by))

    async def set_policy(self, policy: Described, by: str = "", why: str = "") -> None:
        """Decide by another policy from now on; running jobs stay until it says otherwise."""
        await self.write_down(PolicyChanged(self._admit(policy), reason=why, by=by))

    def _admit(self, policy: Described) -> PartSpec:
        return admit_policy(policy, self.engine.supports, self.scheduler.knowledge.predictor)

    async def restate_policy(self) -> None:
        """Say again what decides, without memory: a point that the log can begin from."""
        coming = any(isinstance(event, PolicyChanged) for event, _ in self._inbox)  # such a point
        if not coming and self.decisions.policy == self.policy:
            await self.write_down(self._known.begins(None))

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
        return self._known.policy

    @property
    def trouble(self) -> str:
        """The trouble with decisions or with the engine; empty while all is well."""
        return self.decisions.trouble or self.decisions.given_up or self.engine.health.reason

    @property
    def seq(self) -> int:
        """The number of the last event on disk."""
        return self._known.seq

    @property
    def now(self) -> float:
        """Cluster time: seconds since the epoch, ahead of the wall if the engine is faster."""
        return self._clock.now

    def job(self, job: JobId) -> JobStatus:
        """Return one job, ended or not."""
        return status_of(find_record(self.ledger, job), self.scheduler.state)

    def jobs(self) -> list[JobStatus]:
        return [status_of(record, self.scheduler.state) for record in self.ledger.jobs.values()]

    def nodes(self) -> list[tuple[Node, str]]:
        """Every machine with `up`, `drained` or `down`."""
        return self.node_list.with_words(self._known.node_words())

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

    async def _run(self) -> None:
        while not self._closing:
            end_if_asked()
            if not self._inbox:
                await self._sleep()
            asked, self._inbox = self._inbox, Asked()
            now = self._clock.tick()
            events = [event for event, _ in asked]
            if self._wake is not None and now >= self._wake:
                self._wake = None
                events.append(Woken())
            try:
                await self._turn(now, events, asked)
            except Unwritten as error:
                await self._take_back(asked, error)
                continue
            except BaseException as error:
                if (blamed := find_blamed(self._noted, error)) is not None:
                    await self._begin_again(without(asked, blamed, error))
                    continue
                self._inbox = asked + self._inbox  # so that waiting callers get an answer
                raise
            answer_all(asked)

    async def _take_back(self, asked: Asked, error: Unwritten) -> None:
        """Take back what could not be written; what the engine told is tried again.

        Where the log may have it after all, that is known once it can be read again. Then it is
        done as if it had been answered at once.
        """
        end = self.seq + len(self._noted)
        self.decisions.trouble, self._unwritten = error.what, error
        if not error.perhaps:
            fail_all(asked, error)
        try:
            await self._begin_again(Asked())
            if written := error.perhaps and self.seq >= end:
                answer_all(asked)
                self._announce()
        finally:
            fail_all(asked, error)
        for wish in wishes_of(self.scheduler.state) if written else ():
            await self._requests.carry_out(wish)
        self._inbox.extendleft(reversed([request for request in asked if request[1] is None]))
        await asyncio.sleep(0.0 if self._closing else AGAIN_S)
        self._unwritten = None

    async def _begin_again(self, asked: Asked) -> None:
        """From the log, as after a restart, with what was asked and is still to be done."""
        self._noted = []
        await self._shelf.finish()
        self._known = await read_again(self.store, self._make, lambda: self._closing)
        self._decider.reset()
        self.scheduler.put_off(self.now)  # the log does not say what was still to be decided
        self._wake = self.scheduler.state.wake_at
        self._inbox.extendleft(reversed(asked))

    async def _sleep(self) -> None:
        """Until something is asked or it is time to wake."""
        self._bell.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._clock.seconds_until(self._wake)):
                await self._bell.wait()

    async def _turn(self, now: float, events: list[Event], asked: Asked) -> None:
        """Fold, decide, write down, act."""
        valid = self.messages.validate(events)
        events = admit_events(valid, self.scheduler.state, self.ledger)
        if not events:
            return
        events = [*map(with_terms, events)]
        for event in events:
            if isinstance(event, PolicyChanged):
                self.saver.take_base(self._known, self.stop_if_failed)
                self.scheduler.use(live_policy(event.policy))
                self.decisions.change(event)
            elif isinstance(event, NodeUp):
                self.node_list.add_node(event.node)
        actions, due = self.scheduler.apply_events(now, events)
        if due and not self.decisions.put_off(self.scheduler, now, self._noted):
            actions += await self._decide(now, asked)
        actions += self.scheduler.wake_request()
        await self._write()
        for action in actions:
            if isinstance(action, Wake):
                self._wake = action.at
            else:
                await self._requests.carry_out(action)

    async def _decide(self, now: float, asked: Asked) -> list[Action]:
        """The actions of a decision; callers of `asked` do not wait for one that takes long."""
        deciding = asyncio.ensure_future(self.decisions.ask(self.scheduler, now))
        try:
            done, _ = await asyncio.wait({deciding}, timeout=SOON_S)
            if not done:
                await self._write()
                answer_all(asked)
            verdict = await deciding
        finally:
            deciding.cancel()
        if verdict is not None and verdict.given_up is not None:
            self._post(verdict.given_up)
        return [] if verdict is None else self.decisions.adopt(self.scheduler, now, verdict)

    def _note(self, at: float, event: Event) -> None:
        """Log what the scheduler takes in, and send it to the process that decides."""
        self._noted.append((at, event))
        self._decider.add_event(at, event)

    async def _write(self) -> None:
        last = await append(self.store, self._noted)
        noted, self._noted = self._noted, []
        for seq, (at, event) in enumerate(noted, start=last - len(noted) + 1):
            if self._start_scores is not None:
                self._start_scores.fold(at, event)
            self._known.note(seq, at, event)
            self._tail.add(seq, at, event)
        self._known.release_ended()
        self.saver.start_if_due(self._known, self.stop_if_failed)
        self._shelf.start_if_due(self.ledger.jobs, self.stop_if_failed)
        self._announce()

    async def _listen(self) -> None:
        async for event in self.engine.events():
            self._post(event)

    async def write_down(self, event: Event) -> None:
        """Take in a fact that is not the engine's news; on disk on return."""
        if refusal := CLOSING if self._closing else self._unwritten:
            raise refusal
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._post(event, answer)
        await answer

    def log_prediction(self, event: Foretold) -> None:
        """Note in the log what people were shown, once in a while of each job."""
        if self.now - self._foretold.get(event.job, -inf) >= FORETOLD_S and not self._closing:
            if len(self._foretold) >= FORETOLD_KEPT:
                self._foretold.clear()
            self._foretold[event.job] = self.now
            self._post(event)

    def start_correction(self) -> RangeCorrection:
        """Return what makes ranges for starts hold, by how the last ones came out."""
        if self._start_scores is None:
            self._start_scores = StartScores()
            for _, at, event in self.store.since(max(self.seq - SCORED_EVENTS, 0)):
                self._start_scores.fold(at, event)
        return self._start_scores.correction(self.now)

    def _grace_s(self, job: JobId) -> float:
        return (self.ledger.jobs[job].job.launch or NO_LAUNCH).grace_s

    def _post(self, event: Event, answer: asyncio.Future[None] | None = None) -> None:
        self._inbox.append((event, answer))
        self._bell.set()

    def _announce(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def stop_if_failed(self, task: asyncio.Task[None]) -> None:
        """Stop for good if a task that everything needs has failed."""
        if task.cancelled() or not (error := task.exception()):
            return
        log.error("the driver stopped: %s", error, exc_info=error)
        self._closing, self._error = True, error
        fail_all(self._inbox, error)
        for other in self._tasks:
            other.cancel()
        self._requests.cancel()
        self._announce()
