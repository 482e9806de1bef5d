"""What follows from agents' words and a manager's, without either."""

from __future__ import annotations

import errno
import json
import shutil
from math import inf
from pathlib import Path

import pytest

from weft.core.events.event import Failed, Finished, Saved, Started, StartFailed, Stopped
from weft.core.model.job import JobId, NodeId
from weft.engines.fleet import gang as part_watch
from weft.engines.fleet.attempts import LAG_S, LINGER_S, SILENT_S, RunningAttempt, next_step
from weft.engines.fleet.gang import GangWatch
from weft.engines.fleet.port import AttemptObservation, AttemptPart, AttemptPhase, Gang
from weft.wire.attempt import BEAT, CLAIM, EVENTS
from weft.wire.shared_files import open_regular

RUNNING, ENDED = AttemptObservation(AttemptPhase.RUNNING), AttemptObservation(AttemptPhase.ENDED)
JOB = JobId("j")


def run_of(tmp_path: Path, *nodes: str) -> RunningAttempt:
    parts = []
    for node in nodes:
        (tmp_path / node).mkdir()
        (tmp_path / node / CLAIM).touch()
        parts.append(AttemptPart(NodeId(node), (0,), 1.0, 0.0, tmp_path / node))
    return RunningAttempt(GangWatch(Gang(JOB, 1, "j", "", tuple(parts))), submitted=0.0)


def say(tmp_path: Path, node: str, event: str, **values: object) -> None:
    with (tmp_path / node / EVENTS).open("a") as out:
        out.write(json.dumps({"at": 1.0, "event": event, **values}) + "\n")


def end(tmp_path: Path, node: str, outcome: str, **values: object) -> None:
    say(tmp_path, node, "ended", outcome=outcome, reason=values.pop("reason", ""), **values)


def test_a_gang_has_started_when_all_its_parts_have(tmp_path: Path) -> None:
    run = run_of(tmp_path, "a", "b")
    say(tmp_path, "a", "started")

    early = run.watch.read(0.0)
    say(tmp_path, "b", "started")
    late = run.watch.read(1.0)

    assert (early, late) == ([], [Started(JOB, 1)])


def test_what_was_read_is_told_though_another_part_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_of(tmp_path, "a", "b")
    say(tmp_path, "a", "saved", step=7)

    def fail(path: Path) -> int:
        if path.parent.name == "b":
            raise OSError(errno.ESTALE, "the file server is away")
        return open_regular(path)

    with monkeypatch.context() as patch, pytest.raises(OSError, match="file server"):
        patch.setattr(part_watch, "open_regular", fail)
        run.watch.read(0.0)

    assert run.watch.read(1.0) == [Saved(JOB, 1, 7)]


def test_its_end_is_told_when_agents_and_manager_agree(tmp_path: Path) -> None:
    run = run_of(tmp_path, "a")
    say(tmp_path, "a", "started")
    end(tmp_path, "a", "finished")
    run.watch.read(0.0)

    before = next_step(run, RUNNING, heard=True, now=1.0)
    after = next_step(run, ENDED, heard=True, now=2.0)

    assert (before.tell, before.hurry, after.tell) == (False, True, True)
    assert run.watch.end_events(asked=False) == [Finished(JOB, 1)]


def test_the_first_failure_ends_the_others_and_is_the_reason(tmp_path: Path) -> None:
    run = run_of(tmp_path, "a", "b")
    for node in "ab":
        say(tmp_path, node, "started")
    end(tmp_path, "b", "failed", reason="rank 1 ended with exit code 3", code=3)
    run.watch.read(0.0)

    step = next_step(run, RUNNING, heard=True, now=1.0)
    end(tmp_path, "a", "stopped")
    run.watch.read(2.0)

    assert step.ask
    assert run.deadline < inf
    assert run.watch.end_events(asked=False) == [
        Failed(JOB, 1, "rank 1 ended with exit code 3 (on b)", code=3)
    ]


def test_a_part_without_a_last_word_is_lost_only_after_files_had_time_to_be_seen(
    tmp_path: Path,
) -> None:
    run = run_of(tmp_path, "a")
    say(tmp_path, "a", "started")
    run.watch.read(0.0)

    soon = next_step(run, None, heard=True, now=1.0)
    late = next_step(run, None, heard=True, now=1.1 + LAG_S)

    assert (soon.tell, late.tell) == (False, True)
    (event,) = run.watch.end_events(asked=False)
    assert isinstance(event, Failed)
    assert event.lost
    assert event.agent_died


def test_silence_of_the_manager_decides_nothing(tmp_path: Path) -> None:
    run = run_of(tmp_path, "a")
    say(tmp_path, "a", "started")
    run.watch.read(0.0)

    steps = [next_step(run, None, heard=False, now=now) for now in (1.0, 100.0, 1e6)]

    assert not any(step.tell or step.cancel or step.ask for step in steps)


def test_a_part_without_heartbeat_is_given_up_and_ended(tmp_path: Path) -> None:
    run = run_of(tmp_path, "a")
    say(tmp_path, "a", "started")
    run.watch.read(1.0)

    step = next_step(run, RUNNING, heard=True, now=2.0 + SILENT_S)

    assert step.cancel
    assert not step.tell
    assert "no heartbeat" in run.watch.parts[0].lost


def test_a_lost_node_before_all_had_started_is_a_start_that_failed(tmp_path: Path) -> None:
    run = run_of(tmp_path, "a", "b")
    say(tmp_path, "a", "started")
    run.watch.read(0.0)

    run.watch.mark_lost((NodeId("b"),), "node b is down")
    end(tmp_path, "a", "stopped")
    run.watch.read(1.0)

    assert next_step(run, RUNNING, heard=True, now=2.0).tell
    assert run.watch.end_events(asked=False) == [StartFailed(JOB, 1, "node b is down", lost=True)]


def test_who_had_finished_when_it_was_asked_to_stop_has_finished(tmp_path: Path) -> None:
    run = run_of(tmp_path, "a", "b")
    for node, outcome in (("a", "finished"), ("b", "stopped")):
        say(tmp_path, node, "started")
        end(tmp_path, node, outcome)
    run.watch.read(0.0)

    assert run.watch.end_events(asked=True) == [Finished(JOB, 1)]


def test_a_file_that_no_agent_wrote_fails_its_attempt_alone(tmp_path: Path) -> None:
    run = run_of(tmp_path, "a")
    (tmp_path / "a" / EVENTS).write_text("not an agent's\n")

    run.watch.read(0.0)

    assert run.watch.over
    assert isinstance(run.watch.parts[0].end, Failed)


def test_parts_that_no_agent_took_have_stopped(tmp_path: Path) -> None:
    run = run_of(tmp_path, "a")
    run.watch.revoke(tmp_path / "a")

    assert run.watch.end_events(asked=True) == [Stopped(JOB, 1)]


def test_what_the_manager_knows_of_an_end_is_told_with_it(tmp_path: Path) -> None:
    run = run_of(tmp_path, "a")
    failed = AttemptObservation(AttemptPhase.ENDED, "its batch script failed", code=-9)
    run.watch.read(0.0)

    for now in (1.0, 2.0 + LAG_S):
        next_step(run, failed, heard=True, now=now)

    (event,) = run.watch.end_events(asked=False)
    assert isinstance(event, StartFailed)
    assert event.reason == "its agent on a died: its batch script failed (signal 9)"


def test_who_makes_a_folder_of_its_heartbeat_fails_alone(tmp_path: Path) -> None:
    run = run_of(tmp_path, "a", "b")
    (tmp_path / "a" / BEAT).mkdir()
    say(tmp_path, "b", "started")

    run.watch.read(0.0)

    assert [part.over for part in run.watch.parts] == [True, False]
    assert run.watch.parts[1].started


def test_a_job_that_removes_its_folder_has_failed_of_its_own_doing(tmp_path: Path) -> None:
    run = run_of(tmp_path, "a")
    say(tmp_path, "a", "started")
    run.watch.read(0.0)
    shutil.rmtree(tmp_path / "a")
    run.watch.read(1.0)

    next_step(run, RUNNING, heard=True, now=1.0)
    cancelled = next_step(run, RUNNING, heard=True, now=2.0 + LINGER_S)

    assert cancelled.cancel
    (failed,) = run.watch.end_events(asked=False)
    assert isinstance(failed, Failed)
    assert failed.reason == "quarantined: its folder on a was removed"
    assert not failed.lost


@pytest.mark.parametrize(("code", "lost"), [(-15, True), (-9, True), (3, False)])
def test_ranks_that_a_manager_ended_for_a_lost_node_were_lost_with_it(
    code: int, lost: bool, tmp_path: Path
) -> None:
    run = run_of(tmp_path, "a", "b")
    for node in ("a", "b"):
        say(tmp_path, node, "started")
    end(tmp_path, "a", "failed", reason="killed", code=code)
    run.watch.read(0.0)
    next_step(run, RUNNING, heard=True, now=1.0)
    end(tmp_path, "b", "stopped")  # it was asked to leave, and its node was only out of sight
    run.watch.read(1.0)

    step = next_step(run, AttemptObservation(AttemptPhase.LOST, "b went down"), heard=True, now=2.0)

    assert step.tell
    (failed,) = run.watch.end_events(asked=False)
    assert isinstance(failed, Failed)
    assert failed.lost is lost
    assert not failed.agent_died
