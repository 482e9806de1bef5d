"""Batch jobs that are offered to persons' own clients, and those of them that were submitted.

Each offer is a file, so that a service that was restarted knows what it offered. A batch job counts
as an attempt only if there is an offer for it, its own user submitted it, it asks for exactly the
nodes and GPUs that were offered, and it is the first that does.
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from weft.base.errors import WireError
from weft.core.batch_work import NO_CLIENT, BatchOffer, BatchWork, FoldersWanted
from weft.core.errors import InvalidConfig
from weft.core.model.job import JobId
from weft.engines.fleet.port import AttemptObservation, AttemptPhase, Key
from weft.engines.slurm.answers import PENDING, RUNNING, SlurmJob, expand_hosts
from weft.engines.slurm.handover import make_room, put_in_place
from weft.wire.attempt import job_folder, read_json, write_whole
from weft.wire.identity import Identity

PATIENCE_S = 60.0  # with clients that do not take an offer
LEASE_S = 90.0  # in which a client has submitted what it took; then another may take it
KEPT_S = 30.0  # for what was given up, so that the reason is read
LONGEST = 500  # characters of a refusal
NUMBER = re.compile(r"([0-9]{1,12})(\+[0-9]+)?")  # a batch job, or a component of one


@dataclass(slots=True)
class Offer:
    """One batch job: `gpus` are those of each of its nodes, `number` its name in Slurm.

    In the place of `folders` its client is to make others first; `asked` says that it was asked to.
    `refused` is why it came to nothing, `unwanted` says that it is to be ended. `made`, `taken` and
    `over` are of this process's clock.
    """

    key: Key
    uid: int
    secret: str
    script: str
    gpus: Mapping[str, int]
    number: str = ""
    refused: str = ""
    unwanted: bool = False
    folders: Sequence[str] = ()
    asked: bool = False
    made: float = field(default_factory=time.monotonic)
    taken: float | None = None
    over: float | None = None

    def is_open(self, now: float) -> bool:
        """True if a client is to submit it."""
        free = self.taken is None or now - self.taken > LEASE_S
        return not self.number and not self.refused and free

    def is_ignored(self, now: float) -> bool:
        """True if no client took it in time, or none that did submitted it."""
        since = self.made if self.taken is None else max(self.made, self.taken + LEASE_S)
        return now - since > PATIENCE_S

    def is_for(self, job: SlurmJob, others: Sequence[SlurmJob]) -> bool:
        """True if a batch job, or one more component of it, is what was offered."""
        nodes, number = expand_hosts(job.wanted), submitted_number(job)
        again = {node for other in others for node in expand_hosts(other.wanted)}
        offered = bool(nodes) and all(self.gpus.get(node) == job.gpus for node in nodes)
        return (
            job.uid == self.uid
            and bool(number)
            and self.number in ("", number)
            and offered
            and again.isdisjoint(nodes)
        )


class SlurmOffers:
    """Offers of one service, in `folder`; `users` are the persons by tenant or account."""

    def __init__(self, folder: Path, users: Mapping[str, Identity]) -> None:
        self._folder, self._users = folder, users
        self._room = folder.parent / "jobs" / ".handed"
        self._offers: dict[Key, Offer] = {}
        self._ends: dict[int, set[str]] = {}

    def open(self) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._room.parent.mkdir(mode=0o711, exist_ok=True)
        make_room(self._room, self._users)
        for file in self._folder.glob("*.json"):
            body = read_json(file)
            if body is not None:
                key = JobId(body.pop("job")), int(body.pop("attempt"))
                self._offers[key] = Offer(key, **body)

    def add_offer(
        self, key: Key, uid: int, script: str, gpus: Mapping[str, int], folders: Sequence[str] = ()
    ) -> None:
        """Offer a batch job to its user, unless that was done."""
        if key not in self._offers:
            offer = Offer(key, uid, secrets.token_hex(16), script, gpus, folders=folders)
            self._offers[key] = offer
            self._save(offer)

    def withdraw(self, key: Key) -> None:
        """Drop an offer that is not wanted any more; its user's client ends what runs of it."""
        offer = self._offers.get(key)
        if offer is not None and not offer.number:
            self._drop(offer)
        elif offer is not None and not offer.unwanted:
            offer.unwanted = True
            self._save(offer)

    # ---- what Slurm shows

    def keep_wanted(self, jobs: Iterable[tuple[Key, SlurmJob]]) -> dict[Key, list[SlurmJob]]:
        """The batch jobs that count, of those with our tags; the others are to be ended."""
        ours: dict[Key, list[SlurmJob]] = {}
        self._ends = {}
        for key, job in sorted(jobs, key=lambda pair: int(submitted_number(pair[1]) or 0)):
            offer = self._offers.get(key)
            if offer is None or offer.refused or not offer.is_for(job, ours.get(key, ())):
                self._end(job)
                continue
            ours.setdefault(key, []).append(job)
            if not offer.number:
                offer.number = submitted_number(job)
                self._save(offer)
            if offer.unwanted:
                self._end(job)
        for offer in [*self._offers.values()]:
            if offer.number and offer.key not in ours:
                self._drop(offer)  # Slurm has forgotten it
        return ours

    def waiting(self) -> dict[Key, AttemptObservation]:
        """Offers that no batch job was seen of; one that no client takes is given up."""
        now, seen = time.monotonic(), {}
        for offer in [*self._offers.values()]:
            if offer.number:
                continue
            if not offer.refused and offer.is_ignored(now):
                self.drop_offer(
                    offer, f"{NO_CLIENT} within {PATIENCE_S:g} s: run `weft slurm-client`"
                )
            if offer.refused:
                offer.over = offer.over or now
                lost = offer.refused.startswith(NO_CLIENT)
                phase = AttemptPhase.LOST if lost else AttemptPhase.ENDED
                seen[offer.key] = AttemptObservation(phase, offer.refused)
                if now - offer.over > KEPT_S:
                    self._drop(offer)
            else:
                why = "`weft slurm-client` of its user has not submitted it yet"
                seen[offer.key] = AttemptObservation(AttemptPhase.PENDING, why)
        return seen

    def _end(self, job: SlurmJob) -> None:
        number = re.match("[0-9]+", job.id)
        if number and job.state in PENDING | RUNNING:
            self._ends.setdefault(job.uid, set()).add(number[0])

    # ---- what clients say

    def claim_work(self, account: str) -> BatchWork:
        """The work for this person's client; each offer goes to one client."""
        uid, now = self._uid(account), time.monotonic()
        mine = (offer for offer in self._offers.values() if offer.uid == uid)
        chosen, wanted = list[Offer](), list[FoldersWanted]()
        for offer in [offer for offer in mine if offer.is_open(now)]:
            if lacking := self._lacking(offer):
                wanted.append(FoldersWanted(offer.secret, lacking))
            elif not offer.refused:
                offer.taken = now
                chosen.append(offer)
        offered = tuple(BatchOffer(offer.secret, offer.script) for offer in chosen)
        return BatchWork(tuple(wanted), offered, tuple(sorted(self._ends.get(uid, ()))))

    def _lacking(self, offer: Offer) -> tuple[str, ...]:
        """Folders that its client is to make; those that it has made are put in place.

        None is looked at before it was asked for: NFS would go on not to find it for a minute.
        """
        lacking = []
        try:
            for fresh, folder in self._folders(offer):
                if folder.stat().st_uid == offer.uid:
                    continue
                if not offer.asked or not put_in_place(fresh, folder, offer.uid):
                    lacking.append(str(fresh))
        except (OSError, WireError) as error:
            self.drop_offer(offer, str(error))
            return ()
        offer.asked = True
        return tuple(lacking)

    def _folders(self, offer: Offer) -> list[tuple[Path, Path]]:
        """Pairs of the folder that its client makes and ours."""
        folders = enumerate(map(Path, offer.folders))
        return [(self._room / f"{offer.secret}-{number}", folder) for number, folder in folders]

    def find(self, account: str, secret: str) -> Offer | None:
        """The person's own offer of that name."""
        uid = self._uid(account)
        mine = {offer.secret: offer for offer in self._offers.values() if offer.uid == uid}
        return mine.get(secret)

    def drop_offer(self, offer: Offer, why: str) -> None:
        """Drop an offer that comes to nothing."""
        offer.refused = why[:LONGEST]
        self._save(offer)

    def _uid(self, account: str) -> int:
        user = self._users.get(account)
        if user is None:
            raise InvalidConfig(
                f"{account!r} is no user of this cluster",
                hint="an admin adds it to the users of `weft serve`",
            )
        return user.uid

    # ---- on disk

    def _save(self, offer: Offer) -> None:
        body = {
            "job": offer.key[0],
            "attempt": offer.key[1],
            "uid": offer.uid,
            "secret": offer.secret,
            "script": offer.script,
            "gpus": dict(offer.gpus),
            "number": offer.number,
            "refused": offer.refused,
            "unwanted": offer.unwanted,
            **({"folders": list(offer.folders)} if offer.folders else {}),
        }
        write_whole(self._file(offer.key), body)

    def _drop(self, offer: Offer) -> None:
        self._offers.pop(offer.key, None)
        for fresh, _ in self._folders(offer):
            with suppress(OSError):
                fresh.rmdir()
        self._file(offer.key).unlink(missing_ok=True)

    def _file(self, key: Key) -> Path:
        return self._folder / f"{job_folder(self._folder, key[0]).name}@{key[1]}.json"


def submitted_number(job: SlurmJob) -> str:
    """The number that a job was submitted as; empty for a member of an array, as ours never are.

    Components of a heterogeneous job have a plus sign behind it.
    """
    number = NUMBER.fullmatch(job.id)
    return number[1] if number else ""
