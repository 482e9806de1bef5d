"""One batch job for each attempt: Slurm sees, queues and accounts every one of them."""

from __future__ import annotations

import getpass
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace

from weft.core.errors import EngineError, InvalidConfig
from weft.core.model.job import Job, NodeId
from weft.core.plan.about import Controls
from weft.engines.fleet.port import Abilities, Gang, Key, Machine, Observation
from weft.engines.slurm.accounts import Charges
from weft.engines.slurm.answers import (
    JOBS,
    NODES,
    USED,
    WORDS,
    SlurmJob,
    SlurmNode,
    read_config,
    read_exit_code,
    read_jobs,
    read_nodes,
    read_tag,
    read_taken,
    see,
)
from weft.engines.slurm.clients import Clients
from weft.engines.slurm.script import SbatchOptions, batch_script

log = logging.getLogger(__name__)

CONTROLS = (
    Controls.BATCH
    | Controls.HOST
    | Controls.COUNT
    | Controls.SHIFT
    | Controls.PLAN
    | Controls.RESIZE
)


class NativeSlurm:
    """A `Manager` by sbatch, squeue and scancel; `as_users` needs agents that are root."""

    def __init__(
        self, charges: Charges, slots: int, pass_env: tuple[str, ...], *, as_users: bool = False
    ) -> None:
        self._charges, self._slots, self._as_users = charges, slots, as_users
        self._clients = Clients(pass_env)
        self._nodes: Mapping[NodeId, SlurmNode] = {}
        self._jobs: dict[Key, list[SlurmJob]] = {}
        self._uncertain: set[Key] = set()
        self._codes: dict[Key, int | None] = {}
        self._taken: dict[NodeId, int] = {}
        self._seen_taken: dict[NodeId, int] | None = None
        self.abilities = Abilities(CONTROLS)

    async def open(self, owner: str) -> None:
        """Read how the site divides hosts."""
        self._clients.check()
        config = read_config(await self._clients.ask("scontrol", "show", "config"))
        memory = "MEMORY" in config.get("SelectTypeParameters", "").upper()
        binds = config.get("TaskPlugin", "task/none") not in ("task/none", "")
        if self._as_users and config.get("DisableRootJobs", "No").lower() == "yes":
            raise EngineError(
                "this site runs no jobs of root (DisableRootJobs), so none can become its user",
                hint="drop --users",
            )
        wishes = replace(self._wishes, owner=owner, counts_memory=memory)
        self._charges = replace(self._charges, others=wishes)
        for tenant, options in self._charges.combinations():
            await self._try(tenant, options)
        self.abilities = replace(self.abilities, limits_host=binds)
        await self.look()

    async def _try(self, tenant: str, options: SbatchOptions) -> None:
        """Raise EngineError for what Slurm would refuse a tenant's jobs."""
        script = "#!/bin/sh\n"
        try:
            await self._clients.order("sbatch", "--test-only", *options.options(), script=script)
        except EngineError as error:
            raise EngineError(f"tenant {tenant!r}: {error.what}", hint=error.hint) from error

    @property
    def _wishes(self) -> SbatchOptions:
        return self._charges.others

    async def close(self) -> None:
        """Jobs go on."""

    async def nodes(self) -> Sequence[Machine]:
        """Those of the partition, or of all that may be seen."""
        only = ("-p", self._wishes.partition) if self._wishes.partition else ()
        self._nodes = read_nodes(await self._clients.ask(*NODES, *only), self._slots)
        if not self._nodes:
            raise EngineError(
                f"Slurm shows no node in partition {self._wishes.partition!r}"
                if only
                else "Slurm shows no nodes",
                hint="`sinfo -s` lists partitions: --engine slurm:partition=NAME",
            )
        await self._note_taken(only)
        return [
            replace(node.machine, taken=min(self._taken.get(name, 0), node.machine.node.gpus))
            for name, node in self._nodes.items()
        ]

    async def _note_taken(self, only: tuple[str, ...]) -> None:
        """What others hold: believed once it was seen twice, for ours come and go in between."""
        text = await self._clients.ask(*USED, *only)
        seen = read_taken(text, [job for jobs in self._jobs.values() for job in jobs])
        if self._seen_taken is None or seen == self._seen_taken:
            self._taken = seen
        self._seen_taken = seen

    def check(self, job: Job) -> None:
        """Refuse shares of devices, and accounts of others: Slurm gives whole GPUs to a job."""
        self._charges.options(job.tenant, {} if job.launch is None else job.launch.env)
        if job.demand.share < 1.0:
            raise InvalidConfig(
                f"job {job.id!r}: share is {job.demand.share:g}, but Slurm gives whole GPUs to "
                "jobs of their own",
                hint="ask for a whole GPU, or serve with --engine slurm:mode=pilot",
            )

    async def submit(self, gang: Gang) -> None:
        """sbatch, unless it is there already."""
        if gang.key in self._uncertain:  # sbatch gave no answer; it may have been heard
            await self.look()
        if gang.key in self._jobs:
            return
        for part in gang.parts:
            if part.node not in self._nodes:
                raise EngineError(f"node {part.node!r} is not in Slurm any more")
        self._uncertain.add(gang.key)
        options = self._charges.options(gang.tenant, gang.asked)
        script = batch_script(gang, self._nodes, options)
        name = await self._clients.order("sbatch", "--parsable", script=script, for_job=True)
        self._uncertain.discard(gang.key)
        number = name.strip().split(";")[0]
        self._jobs.setdefault(gang.key, [SlurmJob(number, "PENDING", "", "")])

    async def cancel(self, key: Key) -> None:
        """Kill its processes, then the job: without the site's own grace time."""
        if key not in self._jobs:
            await self.look()
        ids = [job.id for job in self._jobs.get(key, ())]
        if not ids:
            return
        await self._clients.try_order("scancel", "--full", "--signal=KILL", *ids)
        await self._clients.try_order("scancel", *ids)

    async def look(self) -> Mapping[Key, Observation]:
        """One squeue for all."""
        text = await self._clients.ask(*JOBS, "-u", getpass.getuser())
        jobs: dict[Key, list[SlurmJob]] = {}
        for comment, job in read_jobs(text):
            if (key := read_tag(self._wishes.owner, comment)) is not None:
                jobs.setdefault(key, []).append(job)
        self._jobs = jobs
        seen = {key: see(parts) for key, parts in jobs.items()}
        self._codes = {key: code for key, code in self._codes.items() if key in seen}
        for key, word in seen.items():
            if word.reason == WORDS["FAILED"]:  # an agent leaves with 0 whatever its job did
                seen[key] = replace(word, code=await self._find_code(key, jobs[key][0]))
        return seen

    async def _find_code(self, key: Key, job: SlurmJob) -> int | None:
        """The exit code of a job that failed; asked for once, however this release tells it."""
        if key not in self._codes:
            first = job.id.split("+")[0]
            text = await self._clients.ask("squeue", "--json", "-t", "all", "-j", first)
            self._codes[key] = read_exit_code(text, first)
        return self._codes[key]
