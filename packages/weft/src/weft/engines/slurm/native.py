"""One batch job for each attempt: Slurm sees, queues and accounts every one of them."""

from __future__ import annotations

import getpass
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf

from weft.core.batch_work import BatchWork
from weft.core.errors import EngineError, InvalidConfig
from weft.core.model.job import Job, NodeId
from weft.engines.attempts.agent_engine import AGENT_CONTROLS
from weft.engines.attempts.request import CHECKPOINTS
from weft.engines.fleet.port import (
    Abilities,
    AttemptObservation,
    AttemptPhase,
    ControllerUnreachable,
    Gang,
    Key,
    Machine,
)
from weft.engines.fleet.requests import COMMON
from weft.engines.slurm.accounts import (
    QUESTION,
    Associations,
    Charges,
    Submitters,
    are_enforced,
    check_association,
    read_associations,
)
from weft.engines.slurm.answers import (
    JOBS,
    NODES,
    USED,
    WORDS,
    SlurmJob,
    SlurmNode,
    expand_hosts,
    in_partition,
    observe_attempt,
    read_config,
    read_exit_code,
    read_jobs,
    read_nodes,
    read_tag,
    read_taken,
)
from weft.engines.slurm.clients import Clients, Reservations
from weft.engines.slurm.handover import find_unshared
from weft.engines.slurm.offers import SlurmOffers
from weft.engines.slurm.script import SbatchOptions, batch_script

log = logging.getLogger(__name__)

ASK_S = 60.0  # between two questions who may use which account
PATIENCE_S = 10.0  # with a job that waits for GPUs that others have


class NativeSlurm:
    """A `Manager` by sbatch, squeue and scancel.

    With `submitters` users submit their own jobs, where there are `offers` by clients of their own;
    `as_users` without them needs agents that are root.
    """

    def __init__(
        self,
        charges: Charges,
        slots: int,
        pass_env: tuple[str, ...],
        submitters: Submitters,
        *,
        as_users: bool = False,
        offers: SlurmOffers | None = None,
    ) -> None:
        self._charges, self._slots, self._as_users = charges, slots, as_users
        self._offers = offers
        self._clients, self._submitters = Clients(pass_env), submitters
        self._nodes: Mapping[NodeId, SlurmNode] = {}
        self._jobs: dict[Key, list[SlurmJob]] = {}
        self._uncertain: set[Key] = set()
        self._codes: dict[Key, int | None] = {}
        self._taken: dict[NodeId, int] = {}
        self._reservations = Reservations(charges.others.reservation)
        self._pending: dict[Key, float] = {}  # since when
        self._enforced, self._read_at = False, -inf
        self._associations: Associations = {}
        self._seen_taken: dict[NodeId, int] | None = None
        self.abilities = Abilities(AGENT_CONTROLS, as_users=bool(submitters.users))

    async def open(self, owner: str) -> None:
        """Read how the site divides hosts."""
        self._clients.check()
        config = read_config(await self._clients.ask("scontrol", "show", "config"))
        memory = "MEMORY" in config.get("SelectTypeParameters", "").upper()
        binds = config.get("TaskPlugin", "task/none") not in ("task/none", "")
        self._submitters.check()
        if (
            self._as_users
            and not self._submitters.users
            and config.get("DisableRootJobs", "No").lower() == "yes"
        ):
            raise EngineError(
                "this site does not run jobs of root (DisableRootJobs), so jobs cannot run as "
                "their users",
                hint="drop submit_as=service, so that users submit their own jobs",
            )
        self._enforced = are_enforced(config)
        await self._read_associations()
        wishes = replace(self._charges.others, owner=owner, counts_memory=memory)
        self._charges = replace(self._charges, others=wishes)
        if self._offers is not None:
            self._offers.open()
        for tenant, options in self._charges.combinations() if self._offers is None else ():
            await self._try(tenant, options)
        self.abilities = replace(self.abilities, limits_host=binds)
        await self.poll()

    async def _read_associations(self) -> None:
        """Ask sacctmgr about users, once a minute where it decides."""
        now = time.monotonic()
        if not self._enforced or now - self._read_at < ASK_S:
            return
        self._read_at = now
        try:
            self._associations = read_associations(await self._clients.ask(*QUESTION))
        except (ControllerUnreachable, OSError) as error:  # jobs are refused later, by sbatch
            log.warning("sacctmgr does not say who may use which account: %s", error)

    async def _try(self, tenant: str, options: SbatchOptions) -> None:
        """Raise EngineError for what Slurm would refuse a tenant's jobs."""
        user, script = self._submitters.users.get(tenant), "#!/bin/sh\n"
        try:
            await self._clients.submit(script, "--test-only", *options.options(), user=user)
        except EngineError as error:
            raise EngineError(f"tenant {tenant!r}: {error.what}", hint=error.hint) from error

    async def close(self) -> None:
        """Close the engine and let its jobs go on."""

    async def nodes(self) -> Sequence[Machine]:
        """Return the nodes of the partition, or all that may be seen."""
        only = in_partition(self._charges.others.partition)
        self._nodes = read_nodes(await self._clients.ask(*NODES, *only), self._slots)
        if not self._nodes:
            raise EngineError(
                f"Slurm shows no node in partition {self._charges.others.partition!r}"
                if only
                else "Slurm shows no nodes",
                hint="`sinfo -s` lists partitions: --engine slurm:partition=NAME",
            )
        await self._note_taken(only)
        await self._read_associations()
        await self._reservations.refresh(self._clients)
        self._nodes = self._reservations.keep_own(self._nodes)
        return [
            replace(
                node.machine,
                taken=min(self._taken.get(name, 0), node.machine.node.gpus),
                closings=self._reservations.closings.get(name, ()),
            )
            for name, node in self._nodes.items()
        ]

    async def _note_taken(self, only: tuple[str, ...]) -> None:
        """Note what others hold: believed once it was seen twice, for ours come and go."""
        text = await self._clients.ask(*USED, *only)
        seen = read_taken(text, [job for jobs in self._jobs.values() for job in jobs])
        if self._seen_taken is None or seen == self._seen_taken:
            self._taken = seen
        self._seen_taken = seen

    def check(self, job: Job) -> None:
        """Refuse shares of devices, and accounts of others: Slurm gives whole GPUs to a job."""
        chosen = self._charges.options(job.tenant, {} if job.launch is None else job.launch.env)
        if self._associations:
            check_association(self._associations, self._submitters.name_of(job), chosen)
        if job.demand.share < 1.0:
            raise InvalidConfig(
                f"job {job.id!r}: share is {job.demand.share:g}, but Slurm gives whole GPUs to "
                "jobs of their own",
                hint="ask for a whole GPU, or serve with --engine slurm:mode=pilot",
            )

    async def submit(self, gang: Gang) -> None:
        """sbatch, unless it is there already."""
        if gang.key in self._uncertain:  # sbatch gave no answer; it may have been heard
            await self.poll()
        if gang.key in self._jobs:
            return
        for part in gang.parts:
            if part.node not in self._nodes:
                raise EngineError(f"node {part.node!r} is not in Slurm any more")
        self._uncertain.add(gang.key)
        options = self._charges.options(gang.tenant, gang.asked)
        nodes = [part.node for part in gang.parts]
        options = replace(options, most_min=self._reservations.minutes_left(nodes, time.time()))
        script = batch_script(gang, self._nodes, options)
        if self._offers is not None:
            self._offer(self._offers, gang, script)
            return
        number = await self._clients.submit(script, user=self._submitters.submitting_user(gang.job))
        self._uncertain.discard(gang.key)
        self._jobs.setdefault(gang.key, [SlurmJob(number, "PENDING", "", "")])

    def _offer(self, offers: SlurmOffers, gang: Gang, script: str) -> None:
        """Have its user's client submit it."""
        user = self._submitters.submitting_user(gang.job)
        assert user is not None
        counted = ((part, self._nodes[part.node].gres) for part in gang.parts)
        gpus = {str(part.node): len(part.gpus) if gres else 0 for part, gres in counted}
        self._uncertain.discard(gang.key)
        parts = [part.folder for part in gang.parts]
        own = parts[0].parent.parent
        folders = [own / COMMON, own / CHECKPOINTS, *parts]
        offers.add_offer(gang.key, user.uid, script, gpus, find_unshared(folders, user.uid))

    def claim_work(self, account: str) -> BatchWork:
        assert self._offers is not None
        return self._offers.claim_work(account)

    async def report(self, account: str, secret: str, number: str, refusal: str) -> str:
        """Compare what a client did with what Slurm shows; the answer to it."""
        assert self._offers is not None
        offer = self._offers.find(account, secret)
        if offer is None:
            return "it is not wanted any more"
        if refusal and not offer.number:
            self._offers.drop_offer(offer, f"the client of its user: {refusal}")
            return ""
        await self.poll()
        if offer.number and offer.number == number:
            return ""
        return (
            f"Slurm shows no batch job {number} that is this user's and asks for what was offered"
        )

    async def cancel(self, key: Key) -> None:
        """Kill its processes, then the job: without the site's own grace time.

        Slurm lets only its owner and operators end a job, so that its user's client is asked too.
        """
        if key not in self._jobs:
            await self.poll()
        if self._offers is not None:
            self._offers.withdraw(key)
        ids = [job.id for job in self._jobs.get(key, ())]
        if not ids:
            return
        await self._clients.try_order("scancel", "--full", "--signal=KILL", *ids)
        await self._clients.try_order("scancel", *ids)

    async def poll(self) -> Mapping[Key, AttemptObservation]:
        """Ask Slurm about all jobs with one squeue."""
        whose = () if self._submitters.users else ("-u", getpass.getuser())
        text = await self._clients.ask(*JOBS, *whose)
        tagged = [
            (read_tag(self._charges.others.owner, comment), job) for comment, job in read_jobs(text)
        ]
        ours = [(key, job) for key, job in tagged if key is not None]
        jobs: dict[Key, list[SlurmJob]] = {}
        if self._offers is not None:
            jobs = self._offers.keep_wanted(ours)
        else:
            for key, job in ours:
                if self._submitters.may_own(key[0], job):
                    jobs.setdefault(key, []).append(job)
        self._jobs = jobs
        seen = {key: observe_attempt(parts) for key, parts in jobs.items()}
        self._codes = {key: code for key, code in self._codes.items() if key in seen}
        await self._give_back_taken(seen)
        for key, word in seen.items():
            if word.reason == WORDS["FAILED"]:  # an agent leaves with 0 whatever its job did
                seen[key] = replace(word, code=await self._find_code(key, jobs[key][0]))
        return seen if self._offers is None else {**self._offers.waiting(), **seen}

    async def _give_back_taken(self, seen: dict[Key, AttemptObservation]) -> None:
        """End what waits for GPUs that others took before it began: there may be room elsewhere."""
        now = time.monotonic()
        waiting = [key for key, word in seen.items() if word.phase is AttemptPhase.PENDING]
        self._pending = {key: self._pending.get(key, now) for key in waiting}
        for key, since in self._pending.items():
            queued = [job for job in self._jobs[key] if job.state == "PENDING"]
            wanted = {NodeId(node) for job in queued for node in expand_hosts(job.wanted)}
            if now - since > PATIENCE_S and wanted & self._taken.keys():
                log.info("job=%s attempt=%d waits for GPUs that others took", *key)
                await self.cancel(key)
                seen[key] = AttemptObservation(
                    AttemptPhase.LOST, "jobs of others took its GPUs before it began"
                )

    async def _find_code(self, key: Key, job: SlurmJob) -> int | None:
        """The exit code of a job that failed; asked for once, however this release tells it."""
        if key not in self._codes:
            first = job.id.split("+")[0]
            text = await self._clients.ask("squeue", "--json", "-t", "all", "-j", first)
            self._codes[key] = read_exit_code(text, first)
        return self._codes[key]
