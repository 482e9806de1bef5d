"""Batch jobs that are offered to persons' clients: what counts as one, and what is ended."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.core.batch_work import NO_CLIENT, BatchWork
from weft.core.errors import InvalidConfig
from weft.core.model.job import JobId
from weft.engines.fleet.port import AttemptPhase, Key
from weft.engines.slurm import offers as module
from weft.engines.slurm.answers import SlurmJob, read_tag
from weft.engines.slurm.offers import SlurmOffers
from weft.wire.identity import Identity

ANN, BEN = 1001, 1002
USERS = {"ann": Identity(ANN, ANN), "ben": Identity(BEN, BEN)}
JOB: Key = (JobId("train"), 1)
OFFERED = SlurmJob("7", "RUNNING", "", "a1", 2, ANN, "a1")


class Clock:
    now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    it = Clock()
    monkeypatch.setattr(module, "time", it)
    yield it


@pytest.fixture
def offers(tmp_path: Path, clock: Clock) -> SlurmOffers:
    return opened(tmp_path, clock)


def opened(folder: Path, clock: Clock) -> SlurmOffers:
    assert clock.now
    it = SlurmOffers(folder / "offers", USERS)
    it.open()
    it.add_offer(JOB, ANN, "#!/bin/sh\n", {"a1": 2})
    it._offers[JOB].made = clock.now
    return it


def test_an_offer_goes_to_one_client_of_its_user(offers: SlurmOffers, clock: Clock) -> None:
    assert not offers.claim_work("ben").submit
    (offer,) = offers.claim_work("ann").submit
    assert not offers.claim_work("ann").submit
    with pytest.raises(InvalidConfig, match="no user"):
        offers.claim_work("carl")
    assert offers.find("ben", offer.secret) is None
    assert offers.find("ann", offer.secret) is not None

    clock.now += module.LEASE_S + 1  # that client has gone

    assert offers.claim_work("ann").submit == (offer,)


@pytest.mark.parametrize(
    "other",
    [
        replace(OFFERED, uid=BEN),
        replace(OFFERED, gpus=4),
        replace(OFFERED, wanted="a2"),
        replace(OFFERED, wanted="a[1-2]"),
        replace(OFFERED, wanted=""),
        replace(OFFERED, id="7_[0-3]"),
        replace(OFFERED, id="7_1"),
    ],
)
def test_what_is_not_as_offered_does_not_count_and_is_ended(
    offers: SlurmOffers, other: SlurmJob
) -> None:
    assert offers.keep_wanted([(JOB, other)]) == {}
    whose = "ben" if other.uid == BEN else "ann"
    assert offers.claim_work(whose).cancel == ("7",)
    assert offers.waiting()[JOB].phase is AttemptPhase.PENDING

    assert offers.keep_wanted([(JOB, replace(OFFERED, id="9")), (JOB, other)]) == {
        JOB: [replace(OFFERED, id="9")]
    }


def test_only_the_first_counts_and_its_components(tmp_path: Path, clock: Clock) -> None:
    offers = opened(tmp_path, clock)
    offers.withdraw(JOB)
    offers.add_offer(JOB, ANN, "", {"a1": 2, "t1": 1})
    first = replace(OFFERED, id="7+0")
    second = replace(OFFERED, id="7+1", gpus=1, wanted="t1")
    late, again = replace(OFFERED, id="8"), replace(OFFERED, id="7+2")

    ours = offers.keep_wanted([(JOB, late), (JOB, again), (JOB, second), (JOB, first)])

    assert {part.wanted for part in ours[JOB]} == {"a1", "t1"}
    assert all(part.id.startswith("7+") for part in ours[JOB])
    assert set(offers.claim_work("ann").cancel) == {"7", "8"}  # it asks for a1 twice


def test_an_offer_that_nobody_takes_is_given_up(offers: SlurmOffers, clock: Clock) -> None:
    clock.now += module.PATIENCE_S + 1

    seen = offers.waiting()[JOB]

    assert (seen.phase, seen.reason[: len(NO_CLIENT)]) == (AttemptPhase.LOST, NO_CLIENT)
    assert not offers.claim_work("ann").submit
    assert offers.keep_wanted([(JOB, OFFERED)]) == {}  # too late
    assert offers.claim_work("ann").cancel == ("7",)
    clock.now += module.KEPT_S + 1
    offers.waiting()
    assert JOB not in offers.waiting()


def test_one_that_a_client_took_and_never_submitted_is_given_up(
    offers: SlurmOffers, clock: Clock
) -> None:
    offers.claim_work("ann")
    clock.now += module.PATIENCE_S + 1
    assert offers.waiting()[JOB].phase is AttemptPhase.PENDING
    clock.now += module.LEASE_S
    assert offers.waiting()[JOB].phase is AttemptPhase.LOST


def test_what_is_withdrawn_is_ended_whenever_it_comes(offers: SlurmOffers) -> None:
    offers.withdraw(JOB)

    assert JOB not in offers.waiting()
    assert offers.keep_wanted([(JOB, OFFERED)]) == {}
    assert offers.claim_work("ann").cancel == ("7",)


def test_one_that_runs_is_ended_and_told_of_until_it_is_gone(offers: SlurmOffers) -> None:
    offers.keep_wanted([(JOB, OFFERED)])
    offers.withdraw(JOB)

    assert offers.keep_wanted([(JOB, OFFERED)]) == {JOB: [OFFERED]}
    assert offers.claim_work("ann").cancel == ("7",)
    gone = replace(OFFERED, state="CANCELLED")
    assert offers.keep_wanted([(JOB, gone)]) == {JOB: [gone]}
    assert offers.claim_work("ann").cancel == ()
    assert offers.keep_wanted([]) == {}
    assert JOB not in offers._offers


def test_offers_outlive_the_service(offers: SlurmOffers, tmp_path: Path, clock: Clock) -> None:
    (offer,) = offers.claim_work("ann").submit
    offers.keep_wanted([(JOB, OFFERED)])

    again = opened(tmp_path, clock)

    assert again.find("ann", offer.secret) is not None
    assert not again.claim_work("ann").submit
    assert again.keep_wanted([(JOB, OFFERED), (JOB, replace(OFFERED, id="6"))]) == {JOB: [OFFERED]}


@given(st.text(max_size=30), st.text(alphabet="0123456789²٣", max_size=6000))
def test_any_comment_can_be_read(word: str, digits: str) -> None:
    """Comments are anybody's: a number that Python does not read must not end the round."""
    for text in (word, f"weft:own:{word}:{digits}", f"weft:own:job:{digits}"):
        key = read_tag("own", text)
        assert key is None or key[1] >= 0


def test_a_tag_with_more_digits_than_python_reads_is_none() -> None:
    assert read_tag("own", "weft:own:job:" + "9" * 5000) is None
    assert read_tag("own", "weft:own:job:²") is None


def test_an_offer_waits_for_the_folders_that_its_client_makes(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are asked for, looked for, and the batch job is offered when they are in place."""
    made: set[str] = set()
    looked: list[str] = []

    def put(fresh: Path, folder: Path, uid: int) -> bool:
        assert (folder, uid) == (tmp_path / "part", ANN)
        looked.append(fresh.name)
        return fresh.name in made

    monkeypatch.setattr(module, "put_in_place", put)
    (tmp_path / "part").mkdir()
    offers = opened(tmp_path, clock)
    offers.withdraw(JOB)
    offers.add_offer(JOB, ANN, "#!/bin/sh\n", {"a1": 2}, [str(tmp_path / "part")])
    offers = SlurmOffers(tmp_path / "offers", USERS)
    offers.open()  # a service that was restarted

    (wanted,) = offers.claim_work("ann").make
    assert not looked
    assert offers.claim_work("ann").make == (wanted,)
    assert not offers.claim_work("ben").make
    made.add(Path(wanted.folders[0]).name)
    work = offers.claim_work("ann")

    assert not work.make
    assert [offer.secret for offer in work.submit] == [wanted.secret]


def test_an_offer_whose_folders_cannot_be_used_is_refused(tmp_path: Path, clock: Clock) -> None:
    offers = opened(tmp_path, clock)
    offers.withdraw(JOB)
    offers.add_offer(JOB, ANN, "#!/bin/sh\n", {"a1": 2}, [str(tmp_path / "gone")])

    assert offers.claim_work("ann") == BatchWork()

    assert offers.waiting()[JOB].phase is AttemptPhase.ENDED
    assert "gone" in offers.waiting()[JOB].reason
