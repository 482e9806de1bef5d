"""Changes of ranks over several nodes: who stays, who joins, and when they are answered."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.core.errors import EngineError
from weft.core.model.job import Allocation, JobId, NodeId, Slice
from weft.core.plan.about import Controls
from weft.engines.attempts.asleep import find_longest_stall_s
from weft.engines.fleet.attempts import ChangeInProgress, ResizeStep, RunningAttempt, next_step
from weft.engines.fleet.gang import AgentNote, GangWatch
from weft.engines.fleet.port import (
    Abilities,
    AttemptObservation,
    AttemptPart,
    AttemptPhase,
    Gang,
    name_extension,
    name_job,
)
from weft.engines.fleet.roster import (
    PendingChange,
    Roster,
    begin_roster,
    find_added,
    keep_parts,
    load_roster,
    make_form,
    number_parts,
    numbers_of,
    save_roster,
)
from weft.wire.attempt import CHANGE, RESIZE, AttemptSpec, part_folder, write_whole

ROOT = Path("/state/jobs/j/1")
NODES = ("a", "b", "c")
Frees = Literal["device", "part", "gang"]
devices = st.dictionaries(
    st.sampled_from(NODES), st.sets(st.integers(0, 3), min_size=1), min_size=1
).map(lambda by_node: allocation(**{node: tuple(sorted(gpus)) for node, gpus in by_node.items()}))


def allocation(**by_node: tuple[int, ...]) -> Allocation:
    return Allocation(tuple(Slice(NodeId(node), gpus) for node, gpus in sorted(by_node.items())))


def gang_on(on: Allocation, epoch: int = 0, added: list[Slice] | None = None) -> Gang:
    parts = tuple(
        AttemptPart(part.node, part.gpus, 1.0, 0.0, part_folder(ROOT, part.node, epoch))
        for part in added or on.slices
    )
    job = name_extension(JobId("j"), epoch) if epoch else JobId("j")
    return Gang(job, 1, "j", "", parts)


def abilities(frees: Frees) -> Abilities:
    return Abilities(Controls.RESIZE, frees=frees)


def change_to(roster: Roster, to: Allocation, epoch: int, frees: Frees = "device") -> Roster:
    """With the change to `to` under way."""
    kept = keep_parts(roster, to, abilities(frees))
    added = find_added(kept, to)
    extension = number_parts(gang_on(to, epoch, added), roster.next_number) if added else None
    parts = (*kept, *(extension.parts if extension else ()))
    change = PendingChange(epoch, extension, parts)
    count = roster.next_number + len(change.joining_ranks)
    return replace(roster, next_number=count, change=change, several=True)


@given(st.lists(devices, min_size=2, max_size=6), st.sampled_from(["device", "part", "gang"]))
def test_ranks_have_the_devices_that_were_asked_for_and_numbers_are_never_used_twice(
    places: list[Allocation], frees: Frees
) -> None:
    roster = begin_roster(gang_on(places[0]))
    ever = [*numbers_of(roster.parts)]
    for epoch, to in enumerate(places[1:], 1):
        try:
            changed = change_to(roster, to, epoch, frees)
        except EngineError:
            continue  # cannot be given back so; nothing has changed
        assert changed.change is not None
        before, after = numbers_of(roster.parts), numbers_of(changed.change.parts)
        held = {(part.node, gpu) for part in changed.change.parts for gpu in part.gpus}
        assert held == {(part.node, gpu) for part in to.slices for gpu in part.gpus}
        assert not {*changed.change.joining_ranks} & {*ever}
        assert {*changed.leaving} == {*before} - {*after}
        form = make_form(changed, changed.change, "tcp://x:1")
        assert form.host in before
        assert {*form.sources} <= {*before}
        assert bool(form.sources) == bool(form.new)
        ever += changed.change.joining_ranks
        roster = changed.finish({"epoch": epoch})
        assert {part.folder for gang in roster.gangs for part in gang.parts} >= {
            part.folder for part in roster.parts
        }


@given(st.lists(devices, min_size=2, max_size=4))
def test_what_is_known_of_ranks_is_read_back_as_it_was_written(
    tmp_path_factory: pytest.TempPathFactory, places: list[Allocation]
) -> None:
    folder, gang = tmp_path_factory.mktemp("attempt"), gang_on(places[0])
    roster = begin_roster(gang)
    assert load_roster(folder, gang) == roster
    for epoch, to in enumerate(places[1:], 1):
        roster = change_to(roster, to, epoch)
        save_roster(folder, roster)
        assert load_roster(folder, gang) == roster
        roster = roster.finish({"epoch": epoch, "pause_s": 0.5, "prepare_s": 1.0})
        save_roster(folder, roster)
        assert load_roster(folder, gang) == roster


def test_what_was_given_together_is_given_back_together() -> None:
    roster = begin_roster(gang_on(allocation(a=(0, 1), b=(0,))))

    with pytest.raises(EngineError, match="one by one"):
        keep_parts(roster, allocation(a=(0, 1)), abilities("gang"))
    with pytest.raises(EngineError, match="without the others"):
        keep_parts(roster, allocation(a=(0,), b=(0,)), abilities("part"))
    assert numbers_of(keep_parts(roster, allocation(a=(0, 1)), abilities("part"))) == (0, 1)
    assert numbers_of(keep_parts(roster, allocation(a=(1,)), abilities("device"))) == (1,)


def test_an_extension_is_a_gang_of_its_own_of_the_same_job() -> None:
    name = name_extension(JobId("j"), 3)

    assert name != "j"
    assert name_job(name) == name_job(JobId("j")) == "j"


NOTES = st.one_of(
    st.builds(
        AgentNote, st.sampled_from(["built", "adopted", "dropped"]), st.just(1), st.integers(0, 2)
    ),
    st.builds(AgentNote, st.just("gone"), number=st.integers(0, 2)),
    st.just(AgentNote("meeting", 1, text="tcp://x:1")),
    st.builds(
        AgentNote, st.sampled_from(["built", "adopted", "dropped"]), st.just(7), st.integers(0, 2)
    ),
)


@given(
    st.lists(NOTES, max_size=12),
    st.lists(st.tuples(st.booleans(), st.booleans(), st.booleans()), min_size=12, max_size=12),
)
def test_a_change_is_answered_only_when_nobody_is_left_who_should_not_be(
    notes: list[AgentNote], worlds: list[tuple[bool, bool, bool]]
) -> None:
    roster = change_to(begin_roster(gang_on(allocation(a=(0,)))), allocation(a=(0,), b=(0,)), 1)
    assert roster.change is not None
    watch = GangWatch(gang_on(allocation(a=(0,))), roster=roster)
    watch.watch_extension()
    changing = ChangeInProgress(roster.change, limit_s=5.0, began=0.0)
    for at, (note, (ending, joiners_gone, leavers_gone)) in enumerate(
        zip(notes, worlds, strict=False)
    ):
        changing.on_note(note)
        gone = {"joiners_gone": joiners_gone, "leavers_gone": leavers_gone}
        move = changing.next_move(watch.joiners, float(at), ending=ending, **gone)
        heard = notes[: at + 1]
        adopted = any(entry.event == "adopted" and entry.epoch == 1 for entry in heard)
        if move is ResizeStep.FINISH:
            assert adopted
            assert leavers_gone
        if move is ResizeStep.FAIL:
            raise AssertionError("a part that joins has not ended")
        if move in (ResizeStep.END, ResizeStep.DROP, ResizeStep.FORM):
            assert not adopted
        if move is ResizeStep.FORM:
            assert AgentNote("meeting", 1, text="tcp://x:1") in heard
            assert any(entry.event == "built" and entry.number == 1 for entry in heard)
            changing.asked = float(at) or 0.1
        if move is ResizeStep.END and changing.asked:
            assert changing.dropped or ending


def test_ranks_that_were_told_to_meet_are_asked_and_not_just_ended() -> None:
    roster = change_to(begin_roster(gang_on(allocation(a=(0,)))), allocation(a=(0,), b=(0,)), 1)
    assert roster.change is not None
    watch = GangWatch(gang_on(allocation(a=(0,))), roster=roster)
    watch.watch_extension()
    changing = ChangeInProgress(roster.change, limit_s=5.0, began=0.0, asked=1.0)

    def move(now: float, *, gone: bool = False) -> ResizeStep:
        return changing.next_move(
            watch.joiners, now, ending=False, joiners_gone=gone, leavers_gone=False
        )

    assert move(2.0) is ResizeStep.WAIT
    assert move(7.0) is ResizeStep.DROP
    assert "did not switch" in changing.failed
    changing.dropping = True
    assert move(8.0) is ResizeStep.WAIT
    changing.on_note(AgentNote("dropped", 1, 0))
    assert move(9.0) is ResizeStep.END
    watch.revoke(watch.joiners[0].part.folder)
    assert move(10.0) is ResizeStep.END  # the manager still has it
    assert move(11.0, gone=True) is ResizeStep.FAIL


def test_a_new_rank_that_dies_between_the_agreement_and_its_first_word_ends_the_attempt() -> None:
    roster = change_to(begin_roster(gang_on(allocation(a=(0,)))), allocation(a=(0,), b=(0,)), 1)
    watch = GangWatch(gang_on(allocation(a=(0,))), roster=roster)
    watch.watch_extension()
    (joiner,) = watch.joiners
    watch.revoke(joiner.part.folder)
    joiner.released = True

    watch.commit()

    assert watch.broken
    assert [member.part.node for member in watch.members] == ["a", "b"]


def test_a_part_that_no_rank_stays_in_may_go_in_any_way_once_all_agreed() -> None:
    roster = change_to(begin_roster(gang_on(allocation(a=(0,), b=(0,)))), allocation(b=(0,)), 1)
    watch = GangWatch(gang_on(allocation(a=(0,), b=(0,))), roster=roster)
    watch.commit()

    watch.mark_lost((NodeId("a"),), "node a is down")

    assert not watch.broken
    assert [member.part.node for member in watch.members] == ["b"]


@pytest.mark.parametrize("name", [CHANGE, RESIZE])
def test_a_rank_that_others_have_joined_may_not_stand_still_for_ever(
    tmp_path: Path, name: str
) -> None:
    spec = AttemptSpec("j", 1, ("true",), "/", "/c", (0,), world_size=1)
    spec.write(tmp_path)
    assert find_longest_stall_s(tmp_path) == 0.0

    grown = {"form": {"members": [0, 1]}, "spec": asdict(replace(spec, world_size=2))}
    write_whole(tmp_path / name, {"epoch": 1, **grown})

    assert find_longest_stall_s(tmp_path) > 0.0


def test_an_extension_that_never_began_takes_nobody_with_it() -> None:
    roster = change_to(begin_roster(gang_on(allocation(a=(0,)))), allocation(a=(0, 1)), 1)
    watch = GangWatch(gang_on(allocation(a=(0,))), roster=roster)
    watch.watch_extension()
    (joins,) = watch.joiners
    run = RunningAttempt(watch, submitted=0.0)
    lost = AttemptObservation(AttemptPhase.LOST, "jobs of others took its GPUs")
    taken = {(name_extension(JobId("j"), 1), 1): lost}

    next_step(run, AttemptObservation(AttemptPhase.RUNNING), heard=True, now=1.0, more=taken)

    assert joins.lost == "jobs of others took its GPUs"
    assert not watch.broken
    assert not watch.members[0].lost
