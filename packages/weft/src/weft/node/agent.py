"""One job attempt on one node: starts its ranks, listens to them, ends them, writes it all down.

    python -m weft.node.agent FOLDER

`FOLDER` holds the attempt's `spec.json` (`weft.wire.attempt`). The agent is a session of its own
and outlives the process that started it; its ranks do not outlive it. Exactly one agent ever runs
an attempt: the one whose `claim.json` is there. The last line of `events.jsonl` is `ended`, written
when the last process is gone, with `outcome` finished, stopped or failed.
"""

from __future__ import annotations

import os
import selectors
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from weft.base.errors import WireError
from weft.base.messages import (
    FromAgent,
    FromRank,
    Hello,
    Leaving,
    Metrics,
    Notice,
    Report,
    Saved,
    Stop,
    Welcome,
)
from weft.node.asleep.sleeper import Sleeper
from weft.node.attempt_log import Journal, audit
from weft.node.errors import FULL
from weft.node.gang_member import GangMember
from weft.node.guard.enclosure import Enclosure, TimeLimit
from weft.node.guard.identity import hand_over
from weft.node.guard.locks import claim_attempt, hold_all
from weft.node.measuring.measurer import Measurer
from weft.node.measuring.metric_lines import MetricLines
from weft.node.measuring.printed_metrics import PrintedMetrics
from weft.node.ranks.command_plan import (
    CommandPlan,
    launch_place,
    plan_command,
    plan_setup,
    why_restarted,
)
from weft.node.ranks.conversation import (
    RankConnection,
    RankListener,
    ask_to_exit,
    attempt_outcome,
    first_code,
    tell_terms,
)
from weft.node.ranks.frozen import FrozenRanks
from weft.node.ranks.logs import RankLog
from weft.node.ranks.process import Home, start_process
from weft.node.ranks.rank import Rank, held_still, pids_of
from weft.node.resizer import Resizer
from weft.node.sessions.shells import Shells
from weft.node.sessions.terminal import Terminal
from weft.wire.attempt import ADJUST, SPEC, STOP, AttemptSpec, read_json, short_path
from weft.wire.processes import adopt_orphans, reap_others, start_time

BLIND_S = 0.05  # how often ranks are looked after where the kernel tells nothing
LOOK_S = 0.5  # interval for polling requests when no message comes by the socket
PEERS_GRACE_S = 5.0  # what the others get to leave when one rank has failed

Run = Callable[[Sequence[str]], int]


def main(folder: Path, run: Run | None = None) -> int:
    """Run the attempt described in `folder` to its end; 0 unless another agent has it."""
    spec = AttemptSpec.read(folder / SPEC)
    if spec.user is not None:
        os.umask(0o077)  # private; the ranks have their own
    if not claim_attempt(folder):
        return 3
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    adopt_orphans()
    agent = Agent(folder, spec, run)
    try:
        agent.run()
    finally:
        agent.clear()
    return 0


class Agent:
    """The attempt while it runs."""

    def __init__(self, folder: Path, spec: AttemptSpec, run: Run | None) -> None:
        self._member = GangMember(folder, spec)
        self.folder, self.spec = folder, self._member.fill_local_fields()
        self.journal = Journal(folder, spec.notify)
        self._run_script = run
        self._select = selectors.DefaultSelector()
        self._ranks, self._logs = dict[int, Rank](), dict[int, RankLog]()
        self._enclosure = Enclosure(folder, self.spec, self._notice)
        self._measurer = Measurer(folder, self.spec, self._enclosure.members, self.journal)
        self._metrics = MetricLines(self.spec, self.journal)
        self._printed = PrintedMetrics(spec.run.metrics)
        heard = (self._on_message, self._measurer, self._metrics)
        self._lines = RankListener(self.spec, self._select, *heard)
        self._left, self._codes = dict[int, str](), dict[int, int]()
        self._stop: float | None = None
        self._adjusted: Any = None
        self._kill_at, self._setting_up, self._port = float("inf"), False, 0
        self._why, self._socket, self._held, self._places = "", "", list[int](), dict[int, int]()
        self._resizer = Resizer(folder, self.spec, self.journal, self._ranks, self)
        self._time = TimeLimit(self._member.kept_in, spec.run.time_limit_s, spec.run.warn_s)
        self._terminal = Terminal(folder, self._select, spec.run.idle_s)
        self._shells = Shells(folder, self.spec, self._select, self._enclosure)
        find = partial(self._enclosure.ranks_processes, self._shells.pids)
        self._sleeper = Sleeper(folder, find, self._enclosure, self.journal, spec.suspender)
        asleep, is_member = self._sleeper.is_asleep, self._resizer.is_member
        self._frozen = FrozenRanks(self._ranks, self._notice, is_member, asleep)

    # ---- life

    def run(self) -> None:
        """From the first rank's start to the last one's end."""
        audit(self.spec.audit, "begin", self.spec.job, self.spec.attempt)
        try:
            self._held = hold_all(self.spec)
            self._listen()
            address, self._port = self._member.wait_for_address()
            self.spec = replace(self.spec, master_addr=address)
            if (self.folder / STOP).exists():
                self._end("stopped", "it was stopped before it started")
                return
            self._start()
        except (OSError, WireError) as error:
            self._why = f"it could not be started: {error}"
            self._end("failed", self._why, lost=isinstance(error, OSError) and error.errno in FULL)
            return
        while self._ranks:
            self._turn()
        self._measurer.report_totals()
        self._metrics.write()
        self._why = self._why or self._enclosure.memory_excess()
        asked, first = self._stop is not None, self._resizer.first
        outcome_and_reason = attempt_outcome(self._codes, self._left, asked, self._why, first)
        outcome, reason = self._resizer.released or outcome_and_reason
        if outcome == "failed" and not self._measurer.counts.samples:
            self._measurer.health.check_devices()
        last = self._logs[min(self._codes)].last_line() if self._codes else ""
        self._end(outcome, f"{reason}: {last}" if outcome == "failed" and last else reason)

    def _end(self, outcome: str, reason: str, *, lost: bool = False) -> None:
        self.clear()
        audit(self.spec.audit, "end", self.spec.job, self.spec.attempt)
        for handle in self._held:
            os.close(handle)  # the next attempt may begin
        if self.spec.first_rank == 0:
            self._time.save_used()
        code, final = first_code(self._codes), self._time.passed or self._terminal.idled
        full = outcome == "failed" and any(r.ran_out_of_memory() for r in self._logs.values())
        ended = {"outcome": outcome, "reason": reason, "lost": lost, "code": code, "final": final}
        self.journal.write("ended", **ended, **({"out_of_memory": True} if full else {}))

    def clear(self) -> None:
        """No process of the attempt is left."""
        self._enclosure.clear()
        if self._socket:
            Path(self._socket).unlink(missing_ok=True)

    def _notice(self, level: str, text: str) -> None:
        self.journal.write("notice", rank=0, level=level, text=text)

    def _listen(self) -> None:
        self._socket = path = short_path(self.folder / "agent.sock")
        self._lines.listen(path)
        hand_over(Path(path), self.spec.user)
        self._shells.listen(self._held)

    def _start(self) -> None:
        self._enclosure.make()
        warm = False
        if setup := plan_setup(self.spec):
            self._setting_up = True
            place = launch_place(self.spec, self._port)
            self._start_rank(0, CommandPlan(setup, 1, place, warm=False))
        else:
            warm = self._start_command()
        self.journal.write("started", ranks=pids_of(self._ranks), socket=self._socket, warm=warm)
        for level, text in self.spec.notices:
            self._notice(level, text)
        if why := why_restarted(self.spec):
            self._notice("info", why)

    def _start_command(self) -> bool:
        """Every process of the command; whether they began with their imports behind them."""
        plan = plan_command(self.spec, self._port, warm=self._run_script is not None)
        for local in range(plan.count):
            self._start_rank(local, plan)
        self._resizer.set_first_ranks([] if plan.alone else [*self._ranks])
        return plan.warm

    def start_new(self, number: int, spec: AttemptSpec, local: int, env: Mapping[str, str]) -> None:
        plan = plan_command(spec, self._port, warm=self._run_script is not None)
        self._enclosure.lift_memory_limit()
        self._start_rank(local, plan, spec, number, env)

    def send_to_rank(self, number: int, message: FromAgent) -> None:
        self._lines.send(number, message)

    def apply_spec(self, spec: AttemptSpec, places: Mapping[int, int]) -> None:
        """The attempt has these devices from now on; rank 0 gets its settings again."""
        self.spec, self._places, self._adjusted = spec, dict(places), None
        self._enclosure.change_devices(spec, self._ranks.values(), places)
        self._measurer.health.forget_ranks()
        self._tell_terms()

    def _after_setup(self, number: int, code: int) -> None:
        """Go on with the command if the setup went well and no stop was requested."""
        self._setting_up = False
        if code != 0 or self._stop is not None or self._why:
            self._why = self._why or f"its setup failed with exit code {code}"
            return
        del self._codes[number]
        try:
            self._start_command()
        except OSError as error:
            self._why = f"it could not be started: {error}"
        self.journal.write("ranks", ranks=pids_of(self._ranks))

    def _start_rank(
        self,
        local: int,
        plan: CommandPlan,
        spec: AttemptSpec | None = None,
        number: int | None = None,
        more: Mapping[str, str] | None = None,
    ) -> None:
        """One process: of those for each device, or the one that has them all."""
        spec = spec or self.spec
        number = spec.first_rank + local if number is None else number
        more = more or self._resizer.join_variables(number)
        if number not in self._logs:
            self._logs[number] = RankLog(self.folder / f"rank-{number}.log", spec.run.log_mb << 20)
        pty = spec.run.pty and not self._setting_up and local == 0
        home = Home(self.folder, self._socket, self._port, self._held, self._enclosure.ranks_group)
        run = self._run_script if plan.warm else None
        rank = start_process(home, spec, number, local, plan, run, pty=pty, more=more)
        self._ranks[number] = rank
        os.set_blocking(rank.output, False)
        self._watch(rank.output, partial(self._read, rank))
        if pty:
            self._terminal.open(rank.output, partial(self._read, rank))
        if rank.pidfd is not None:
            self._watch(rank.pidfd, partial(self._reap, rank))

    # ---- the loop

    def _turn(self) -> None:
        blind = [rank for rank in self._ranks.values() if rank.pidfd is None]
        look_s = BLIND_S if blind or self._sleeper.helpers else LOOK_S
        pause = min(look_s, max(0.0, self._kill_at - time.monotonic()))
        for key, _ in self._select.select(pause):
            if self._select.get_map().get(key.fd) is key:  # unless one before it has closed it
                key.data()
        for rank in blind:
            if start_time(rank.pid) is None:
                self._reap(rank)
        own = [*self._shells.pids(), *self._sleeper.helpers]
        reap_others([*(rank.pid for rank in self._ranks.values()), *own])
        self._shells.poll()
        if self._ranks:  # with the last of them gone nothing can be asked any more
            self._poll()
            self._measurer.poll()
            self._metrics.poll()
        if time.monotonic() >= self._kill_at:
            self._kill_at = float("inf")
            for rank in self._ranks.values():
                rank.signal(signal.SIGKILL)

    def _watch(self, what: int | socket.socket, then: Callable[[], None]) -> None:
        self._select.register(what, selectors.EVENT_READ, then)

    def _poll(self) -> None:
        """Read the requests that were left in the folder; a damaged one ends the attempt."""
        try:
            self._read_requests()
        except (WireError, OSError, KeyError, TypeError, ValueError) as error:
            self._why = self._why or f"a request to its agent was spoilt: {error}"
            self._kill_at = 0.0
        self._check_time()
        why = self._member.poll() or self._frozen.poll(time.monotonic())
        if not self._resizer.changing:
            why = why or self._enclosure.memory_excess()
        if why and not self._why:
            self._why, self._kill_at = why, 0.0

    def _check_time(self) -> None:
        asleep = self._sleeper.is_asleep()
        self._time.note_asleep(asleep=asleep)
        self._terminal.note_asleep(asleep=asleep)
        if self._time.warns():
            self._notice("warning", f"its time limit ends it in {self.spec.run.warn_s:g} s")
            for rank in self._ranks.values():
                rank.warn()
        why, grace_s = self._terminal.poll(), self.spec.run.grace_s
        if self._time.ends():
            why = f"it ran for its time limit of {self.spec.run.time_limit_s:g} s"
        if why and not self._why:
            self._why, self._kill_at = why, min(self._kill_at, time.monotonic() + grace_s)
            ask_to_exit([*self._lines], self._ranks, self.spec, grace_s)

    def _read_requests(self) -> None:
        self._sleeper.poll()
        request = read_json(self.folder / STOP)
        if request is not None and (self._stop is None or request["grace_s"] < self._stop):
            self._ask_to_stop(float(request["grace_s"]))
        wanted = read_json(self.folder / ADJUST)
        if wanted is not None and wanted != self._adjusted:
            self._adjusted = wanted
            cores = self._member.own_cores(wanted.get("cores", ()))
            limits = wanted.get("limits", {})
            self._enclosure.apply(self._ranks.values(), cores, limits, self._places)
            self._tell_terms()
        self._resizer.read_request()
        self._resizer.poll()

    def _tell_terms(self) -> None:
        for line in self._lines:
            if line.rank == self._resizer.first:
                tell_terms(line, self.spec, self._adjusted)

    def _ask_to_stop(self, grace_s: float) -> None:
        with held_still(self._ranks.values()) as runs:
            if not runs:
                return  # it had come to its end before
            self._stop, self._resizer.stopping = grace_s, True
            self._kill_at = time.monotonic() + grace_s
            ask_to_exit([*self._lines], self._ranks, self.spec, grace_s)
            self._sleeper.end_sleep()
        self.journal.write("stopping", grace_s=grace_s)

    def _read(self, rank: Rank) -> None:
        try:
            chunk = os.read(rank.output, 65_536)
        except BlockingIOError:
            return
        except OSError:  # how the end of a terminal is reported
            chunk = b""
        if chunk:
            self._logs[rank.number].write(chunk)
            self._terminal.show(chunk)
            self._read_metrics(rank, chunk)
        else:
            self._select.unregister(rank.output)

    def _reap(self, rank: Rank) -> None:
        _, status = os.waitpid(rank.pid, 0)
        if rank.pidfd is not None:
            self._select.unregister(rank.pidfd)
            os.close(rank.pidfd)
        rank.signal(signal.SIGKILL)  # what it started and left behind
        rest = rank.read_rest()
        self._logs[rank.number].write(rest)
        self._terminal.show(rest)
        self._read_metrics(rank, rest + b"\n")
        with suppress(KeyError):
            self._select.unregister(rank.output)
        os.close(rank.output)
        code = os.waitstatus_to_exitcode(status)
        self._terminal.close_ended(code)
        del self._ranks[rank.number]
        self._lines.hear_last(rank.number)  # its last words may still be on the way
        if self._resizer.exited(rank.number, code):
            return
        self._codes[rank.number] = code
        self.journal.write("exited", rank=rank.number, code=code)
        if self._setting_up:
            self._after_setup(rank.number, code)
            return
        if code != 0 and self._stop is None and self._ranks and self._kill_at == float("inf"):
            self._kill_at = time.monotonic() + PEERS_GRACE_S
            for other in self._ranks.values():
                other.signal(signal.SIGTERM)

    def _read_metrics(self, rank: Rank, chunk: bytes) -> None:
        number = self._resizer.rank_of(rank.number)
        if number == 0 and not self._setting_up:
            self._metrics.take_printed(number, self._printed.read(chunk))

    # ---- conversation

    def _on_message(self, line: RankConnection, message: FromRank) -> None:
        """Act on a message of a rank of this attempt."""
        assert line.rank is not None
        rank = self._resizer.rank_of(line.rank)
        match message:
            case Hello():
                self._welcome(line)
            case Report(values):
                self._metrics.take_report(rank, values)
                self.journal.write("report", rank=rank, values=self._measurer.believe(values))
            case Metrics():
                self._metrics.take(rank, message)
            case Saved(step, epoch, path):
                self.journal.write("saved", step=step, epoch=epoch, path=path)
            case Notice(level, text):
                self.journal.write("notice", rank=rank, level=level, text=text)
            case Leaving(reason, text):
                self._left[line.rank] = reason
                self._why = self._why or (text if reason == "error" else "")
                self._resizer.on_message(line.rank, message)
            case _:
                self._resizer.on_message(line.rank, message)

    def _welcome(self, line: RankConnection) -> None:
        line.send(Welcome())
        if line.rank == self._resizer.first:
            tell_terms(line, self.spec, self._adjusted)
        if line.rank is not None:
            self._resizer.repeat(line.rank)
        if self._stop is not None:
            line.send(Stop(max(self._kill_at - time.monotonic(), 0.0)))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
