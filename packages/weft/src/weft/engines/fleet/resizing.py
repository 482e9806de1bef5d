"""Changes the ranks of attempts as they train, over all nodes of a fleet.

New ranks are parts of their own: a gang that the manager is given beside the one that runs. On
this machine the agent that is there starts them instead. All that must not be lost is in the
attempt's folder (`roster`) and in what agents write, so that the next service goes on where this
one was killed. A change that cannot be made is answered as failed once nothing of it is left; the
job then goes through a checkpoint.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from weft.base.errors import WireError
from weft.core.errors import EngineError, WeftError
from weft.core.events.event import Resized, ResizeFailed
from weft.core.model.job import Allocation, Job
from weft.engines.attempts.watch import wake_agent
from weft.engines.fleet.attempts import ChangeInProgress, ResizeStep, RunningAttempt
from weft.engines.fleet.fleet_loop import FleetLoop
from weft.engines.fleet.port import AttemptPart, ControllerUnreachable, Gang, Key
from weft.engines.fleet.requests import RESIZE_LIMIT_S, AttemptSite, make_part, make_specs
from weft.engines.fleet.roster import (
    PendingChange,
    Roster,
    check_change,
    extend_part,
    find_added,
    find_emptied,
    keep_parts,
    make_form,
    numbers_of,
    plan_gang,
    save_roster,
)
from weft.engines.machine.cores import CorePools
from weft.wire.attempt import (
    ADJUST,
    CHANGE,
    RESIZE,
    SPEC,
    AttemptSpec,
    folder_of,
    read_json,
    write_whole,
)
from weft.wire.ending import end_if_asked
from weft.wire.identity import Identity

log = logging.getLogger(__name__)

AGAIN_S = 5.0  # until those that do not leave are ended by the manager
TRY_S = 1.0  # between two tries to reach it


@dataclass
class GangChanges:
    """The changes of all attempts that `loop` watches; `user` is whom a job runs as.

    New ranks may take `limit_s` to be ready, and all as long to switch. Where the agent that is
    there starts new ranks itself, `describe` makes what it must know of the attempt by then.
    """

    loop: FleetLoop
    cores: CorePools
    site: Callable[[], AttemptSite]
    user: Callable[[Job], Identity | None]
    limit_s: float = RESIZE_LIMIT_S
    describe: Callable[[Job, Allocation, int], AttemptSpec] | None = None
    _next: dict[Key, tuple[Job, Allocation, int]] = field(default_factory=dict)

    # ---- requests

    async def begin_or_replace(
        self, run: RunningAttempt, job: Job, to: Allocation, epoch: int
    ) -> None:
        """Begin a change, or have it take the place of the one that is under way."""
        answer = run.watch.roster.answer
        if run.changing is not None:
            if run.changing.change.epoch != epoch:
                self._next[run.key] = (job, to, epoch)
                run.changing.superseded = True
        elif answer.get("epoch") == epoch:
            self._tell(run, answer)
        elif run.watch.unread:  # adopted just now: what it is able to is in its agents' logs
            self._next[run.key] = (job, to, epoch)
        else:
            await self._begin(run, job, to, epoch)

    def resume(self, run: RunningAttempt) -> None:
        """Go on with a change from before a restart: agents' logs say how far it has come."""
        roster, now = run.watch.roster, time.monotonic()
        if roster.change is None:
            return
        request = read_json(roster.parts[0].folder / CHANGE) or {}
        pending = request if request.get("epoch") == roster.change.epoch else {}
        run.changing = ChangeInProgress(roster.change, self.limit_s, now, resumed=True)
        run.changing.asked = now if "form" in pending or "drop" in pending else 0.0
        run.changing.dropping = "drop" in pending
        if roster.change.extension is not None and not run.asked:
            del run.joined[roster.change.extension.key]  # it may have to be submitted first
        run.changing.refused = run.asked
        self.loop.spawn(self._redo(run, run.changing, pending))

    async def _redo(
        self, run: RunningAttempt, changing: ChangeInProgress, pending: Mapping[str, Any]
    ) -> None:
        """Repeat what may have been cut short: agents ignore a request that they know."""
        change, watch = changing.change, run.watch
        members = [member.part for member in watch.members]
        parts = watch.gang.parts if "form" in pending else members if pending else members[:1]
        added = () if change.extension is None else change.extension.parts
        try:
            await self._tell_parts(parts, pending or _meet(change))
            await self.loop.channel.send([part.folder / SPEC for part in added])
        except EngineError as error:
            log.warning("job=%s attempt=%d is not asked again: %s", *run.key, error)
        await self._submit(run, changing)

    async def _begin(self, run: RunningAttempt, job: Job, to: Allocation, epoch: int) -> None:
        watch, site = run.watch, self.site()
        if run.asked or watch.broken or not watch.started:
            raise EngineError(f"attempt {run.key[1]} of job {job.id!r} is not running")
        before = watch.roster
        kept = keep_parts(before, to, site.abilities)
        added = find_added(kept, to)
        if not watch.able:
            raise EngineError("its ranks cannot change as they train")
        check_change(before, kept, to, job, several=watch.several)
        if self.describe is not None:
            spec = await asyncio.to_thread(self.describe, job, to, run.key[1])
            change = extend_part(before, kept[0], added, epoch, spec)
        else:
            change = plan_gang(before, kept, job, to, run.key[1], epoch, site, added)
        specs = self._specs(job, to, change, site)
        count = before.next_number + len(change.joining_ranks)
        watch.roster = replace(before, next_number=count, change=change, several=watch.several)
        run.changing = changing = ChangeInProgress(change, self.limit_s, time.monotonic())
        watch.watch_extension()
        try:
            files = await asyncio.to_thread(self._write, run, specs)
            await self._tell_parts(before.parts[:1], _meet(change))
            await self.loop.channel.send(files)
        except (OSError, EngineError) as error:
            changing.failed, changing.refused = f"it cannot be written: {error}", True
        self.loop.spawn(self._submit(run, changing))

    def _specs(
        self, job: Job, to: Allocation, change: PendingChange, site: AttemptSite
    ) -> list[tuple[AttemptPart, AttemptSpec]]:
        gang = change.extension
        if gang is None:
            return []
        cores = {} if site.abilities.limits_host else self.cores.take(gang, site)
        at = len(change.parts) - len(gang.parts)
        same: dict[str, Any] = {
            "nodes": len({part.node for part in change.parts}),
            "join": change.epoch,
            "members": numbers_of(change.parts),
            "user": self.user(job),
            "job": job.id,
        }
        return [
            (
                part,
                replace(
                    spec,
                    run=replace(spec.run, pty=False),
                    node_rank=at + i,
                    first_rank=part.numbers[0],
                    **same,
                ),
            )
            for i, (part, spec) in enumerate(
                zip(gang.parts, make_specs(job, to, gang, site, cores), strict=True)
            )
        ]

    def _write(
        self, run: RunningAttempt, specs: Sequence[tuple[AttemptPart, AttemptSpec]]
    ) -> list[Path]:
        as_users = self.site().abilities.as_users
        for part, spec in specs:
            make_part(self.loop.root, run.watch.gang, part, spec, as_users=as_users)
        save_roster(folder_of(self.loop.root, *run.key), run.watch.roster)
        return [part.folder / SPEC for part, _ in specs]

    async def _submit(self, run: RunningAttempt, changing: ChangeInProgress) -> None:
        """Until the manager has those that join, refuses them, or they are no longer wanted."""
        gang = changing.change.extension
        while gang is not None and run.changing is changing and not changing.refused:
            end_if_asked()
            if changing.failed or changing.superseded:
                self._refuse(run, changing, gang)
                return
            try:
                await self.loop.manager.submit(gang)
            except ControllerUnreachable as error:
                log.warning("job=%s attempt=%d cannot grow yet: %s", *run.key, error.what)
                await asyncio.sleep(TRY_S)
            except WeftError as error:
                changing.failed = str(error)
                self._refuse(run, changing, gang)
            else:
                run.joined[gang.key] = time.monotonic()
                break
        self.loop.poll_soon()

    def _refuse(self, run: RunningAttempt, changing: ChangeInProgress, gang: Gang) -> None:
        """Refuse a change; nothing is submitted, unless a service before us did."""
        changing.refused = True
        if changing.resumed:
            run.joined[gang.key] = time.monotonic()

    # ---- what follows

    async def bring_on(self, run: RunningAttempt, now: float) -> None:
        """Do what the change of an attempt needs next, if there is one."""
        changing, watch = run.changing, run.watch
        notes, watch.notes = watch.notes, []
        if changing is None:
            await self._begin_next(run)
            return
        for note in notes:
            changing.on_note(note)
        if changing.adopted:
            watch.commit()
        ending = run.asked or watch.broken or all(part.over for part in watch.members)
        move = changing.next_move(
            watch.joiners,
            now,
            ending=ending,
            joiners_gone=self._joiners_gone(run, changing),
            leavers_gone=changing.adopted and self._leavers_gone(run, changing),
        )
        match move:
            case ResizeStep.FORM:
                form = make_form(watch.roster, changing.change, changing.store)
                request = {"epoch": form.epoch, "form": asdict(form)}
                await self._tell_parts(watch.gang.parts, request)
                changing.asked = now
            case ResizeStep.DROP:
                why = changing.failed or "another change is wanted"
                parts = [member.part for member in watch.members]
                await self._tell_parts(parts, {"epoch": changing.change.epoch, "drop": why})
                changing.dropping = True
            case ResizeStep.END:
                await self._end_joiners(run, changing, now)
            case ResizeStep.FAIL:
                await self._fail(run, changing, tell=not ending)
            case ResizeStep.FINISH:
                await self._finish(run, changing)
            case ResizeStep.WAIT if changing.adopted:
                await self._end_leavers(run, changing, now)

    def _joiners_gone(self, run: RunningAttempt, changing: ChangeInProgress) -> bool:
        if changing.change.start:
            return changing.closed == "undone"
        gang = changing.change.extension
        if gang is None or (changing.refused and gang.key not in run.joined):
            return True
        return self.loop.is_gone(gang.key, run.joined.get(gang.key))

    def _leavers_gone(self, run: RunningAttempt, changing: ChangeInProgress) -> bool:
        """True if no process is left of those that leave, and their managers' parts are free."""
        if changing.change.start:
            return changing.closed == "settled"
        roster = run.watch.roster
        over = {watch.part.folder for watch in run.watch.parts if watch.over}
        left = roster.leaving.items()
        if not all(number in changing.gone or part.folder in over for number, part in left):
            return False
        return all(
            self.loop.is_gone(gang.key, self._since(run, gang)) for gang in find_emptied(roster)
        )

    def _since(self, run: RunningAttempt, gang: Gang) -> float | None:
        return run.submitted if gang.key == run.key else run.joined.get(gang.key)

    async def _end_joiners(
        self, run: RunningAttempt, changing: ChangeInProgress, now: float
    ) -> None:
        gang = changing.change.extension
        if now - changing.ended < AGAIN_S:
            return
        first, changing.ended = changing.ended == float("-inf"), now
        if gang is None:
            parts = [member.part for member in run.watch.members]
            await self._tell_parts(parts, {"epoch": changing.change.epoch, "undo": True})
            return
        if await self.loop.ask_parts(run, gang, 0.0) or not first:
            await self.loop.cancel_gang(gang.key)
        self.loop.poll_soon()

    async def _end_leavers(
        self, run: RunningAttempt, changing: ChangeInProgress, now: float
    ) -> None:
        """End parts that a manager still has though they left a while ago."""
        if changing.ended == float("-inf"):
            changing.ended = now
        self.loop.poll_soon()
        if now - changing.ended > 2 * AGAIN_S:
            changing.ended = now
            for gang in find_emptied(run.watch.roster):
                await self.loop.cancel_gang(gang.key)

    async def _fail(self, run: RunningAttempt, changing: ChangeInProgress, *, tell: bool) -> None:
        change = changing.change
        answer = {"epoch": change.epoch, "failed": changing.failed}
        roster = replace(run.watch.roster, change=None, answer=answer)
        if change.extension is not None:
            if any(watch.lost for watch in run.watch.joiners):
                await self._let_go(run, change.extension)
            self.cores.give(change.extension.key)
            run.joined.pop(change.extension.key, None)
        await self._close(run, roster, answer if tell and not changing.superseded else {})

    async def _let_go(self, run: RunningAttempt, gang: Gang) -> None:
        """End a gang on a lost node: what runs there ends as soon as it can."""
        try:
            await self.loop.ask_parts(run, gang, 0.0)
        except EngineError as error:
            log.warning("job=%s attempt=%d has new ranks that are not asked: %s", *run.key, error)
        await self.loop.cancel_gang(gang.key)

    async def _finish(self, run: RunningAttempt, changing: ChangeInProgress) -> None:
        """The devices that were left are free, and the new ones are the attempt's."""
        change = changing.change
        ready_s = max(changing.asked - changing.began, 0.0) if change.joining_ranks else 0.0
        answer = {"epoch": change.epoch, "pause_s": changing.pause_s, "prepare_s": ready_s}
        gone = find_emptied(run.watch.roster)
        try:
            await self._send_terms(change)
        except EngineError as error:
            log.warning("job=%s attempt=%d is not told its new terms: %s", *run.key, error)
        for gang in gone:
            self.cores.give(gang.key)
            run.joined.pop(gang.key, None)
        roster = run.watch.roster.finish(answer)
        await self._close(run, roster, {} if changing.superseded else answer)

    async def _close(self, run: RunningAttempt, roster: Roster, answer: Mapping[str, Any]) -> None:
        folder = folder_of(self.loop.root, *run.key)
        await asyncio.to_thread(save_roster, folder, roster)
        run.watch.adopt_roster(roster)
        run.changing = None
        if answer:
            self._tell(run, answer)
        await self._begin_next(run)

    async def _begin_next(self, run: RunningAttempt) -> None:
        """The change that waited until now, if one did."""
        if run.key in self._next and not run.watch.unread:
            job, to, epoch = self._next.pop(run.key)
            try:
                await self._begin(run, job, to, epoch)
            except EngineError as error:
                self.loop.told(ResizeFailed(*run.key, epoch, str(error)))

    def _tell(self, run: RunningAttempt, answer: Mapping[str, Any]) -> None:
        epoch = int(answer["epoch"])
        if "failed" in answer:
            self.loop.told(ResizeFailed(*run.key, epoch, str(answer["failed"])))
        else:
            took = (float(answer["pause_s"]), float(answer["prepare_s"]))
            self.loop.told(Resized(*run.key, epoch, *took))

    # ---- to the agents

    async def _send_terms(self, change: PendingChange) -> None:
        def write() -> list[Path]:
            if change.start:  # its agent has them, and so must the next service
                current = {"epoch": change.epoch, "spec": change.start["spec"]}
                write_whole(change.parts[0].folder / RESIZE, current)
                return []
            for part in change.parts:
                cores = AttemptSpec.read(part.folder / SPEC).cores
                write_whole(part.folder / ADJUST, {**change.terms, "cores": cores})
                wake_agent(part.folder)
            return [part.folder / ADJUST for part in change.parts]

        await self._send(write)

    async def _tell_parts(self, parts: Sequence[AttemptPart], request: Mapping[str, Any]) -> None:
        def write() -> list[Path]:
            for part in parts:
                write_whole(part.folder / CHANGE, dict(request))
                wake_agent(part.folder)
            return [part.folder / CHANGE for part in parts]

        await self._send(write)

    async def _send(self, write: Callable[[], list[Path]]) -> None:
        try:
            files = await asyncio.to_thread(write)
        except (OSError, WireError) as error:
            raise EngineError(f"a change cannot be sent to agents: {error}") from error
        await self.loop.channel.send(files)


def _meet(change: PendingChange) -> dict[str, Any]:
    return {"epoch": change.epoch, "meet": True, **change.start}
