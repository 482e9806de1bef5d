"""Wire a live scheduler: settings in, a driver on an engine with its store out."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from dataclasses import asdict, field, replace
from pathlib import Path
from typing import Any, Literal

from weft.app.engine import build_engine, colocate_on
from weft.app.policy_file import check_machines
from weft.app.serve.bad_devices import BadNodes, DeviceFaults, TakenDevices
from weft.app.serve.device_history import DeviceHistory
from weft.app.serve.idle_jobs import IdleBeside, IdleWatch
from weft.app.serve.predicting import HintedOrAlike, Refits
from weft.app.serve.private_file import LiveSettings, write_private
from weft.app.serve.rules import Quotas, TenantLimits, read_quotas, without_wrappers
from weft.app.serve.sleep_nodes import SleepNodes, SleepSettings
from weft.app.serve.standby import describe_process
from weft.app.state.folder import LOG, check_log_is_there, make_private, refuse_beside_jobs
from weft.core.asleep.ahead import Device
from weft.core.errors import InvalidConfig
from weft.core.knowledge.knowledge import Knowledge
from weft.core.knowledge.measured import Sees
from weft.core.knowledge.predictor import Predictor
from weft.core.model.cluster import Cluster, Node
from weft.core.model.job import Job, JobId, NodeId
from weft.core.plan.about import Controls
from weft.core.plan.policy import Policy
from weft.core.plan.taxonomy import NeededKnowledge
from weft.core.protocols import Engine, Store
from weft.core.spec.part_spec import PartSpec
from weft.core.spec.registry import Described, build, find, read_spec
from weft.core.stops import Rung
from weft.engines.machine.users import find_users
from weft.frozen import frozen
from weft.perf.goodput.beliefs import FittedBeliefs
from weft.perf.goodput.pooled import PooledBeliefs
from weft.perf.learnt_costs import LearntCosts
from weft.perf.plans.learnt import LearntPlans
from weft.perf.sharing.programs import LearntPrograms
from weft.perf.training.learner import Learner
from weft.runtime.deciding.decider import LIMIT_S, Decider, InProcess, InWorker
from weft.runtime.loop.admit import check_job
from weft.runtime.loop.clock import Seconds
from weft.runtime.loop.deadlines import Deadlines
from weft.runtime.loop.driver import Driver
from weft.runtime.loop.file_limit import raise_file_limit
from weft.runtime.loop.leading import Leading
from weft.runtime.recovery.retention import FOR_EVER, Keep, Retention
from weft.runtime.sharing.ahead import AheadStarts
from weft.runtime.sharing.guard import SharingGuard
from weft.stack.windows import ASIDE, DRAIN
from weft.store.memory import MemoryStore
from weft.store.sqlite import SqliteStore

log = logging.getLogger(__name__)

QUOTA_FILE = "quotas.json"
# Of `weft serve`; the first with all that the engine sees and can honour.
DEFAULT_POLICY = ("weft:strangers=true", "weft")

SLOWDOWN = 1.3  # that jobs may have beside others while they run, unless they ask for another


@frozen
class Settings:
    """The settings of `weft serve`.

    `engine` and `policy` are names with parameters. `state` is the folder of everything that
    survives; None keeps nothing, for tests. The log is in `database`, the address of a PostgreSQL
    database, if one is named. `policy` None goes on with what decided last; where no policy has
    decided yet, with `default`, if the engine can do all that it asks for: `fifo`, which every
    engine can, and `weft` under `weft serve`. A policy or a quota that was changed live lasts
    until `policy` or `lending` says something new.
    `slots` is for the local engine: CPU slots where there are no GPUs, 0 for one per core. `pairs`
    is a file of speeds of jobs beside each other, as `weft profile` writes it. `pass_env` names
    variables of the service's environment that jobs get beside the usual ones. `users` is a file
    or table that says which users of this machine tenants' jobs run as. `tls_cert` and
    `tls_key` are PEM files; with them the service speaks HTTPS. `smtp` is the address of a
    mail server and `mail_from` the sender's. With `end_unknown` running jobs that the log
    knows nothing of are ended; without it the service does not start beside them. `keep` says for
    how long ended jobs and events are kept. `lending` are rules of `Quotas` that take the place of
    those on disk. `slowdown` is promised to jobs that ask for none while they run, None promises
    them nothing. With `start_ahead` the next in line is started before its turn where that can be
    done. Jobs that do not use their GPUs for `stop_idle_s` seconds are stopped; None stops none.
    `sleep_nodes` says how idle nodes are put to sleep, None that they never are. Every `verify_s`
    seconds the log is judged, with None only when an admin asks for it.
    """

    engine: str = "local"
    state: Path | None = None
    database: str = ""
    host: str = "127.0.0.1"
    port: int = 7878
    policy: Described | None = None
    slots: int = 0
    predictor: str = ""
    pairs: str = ""
    pass_env: tuple[str, ...] = ()
    users: Path | Mapping[str, Any] | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = None
    smtp: str = ""
    mail_from: str = ""
    end_unknown: bool = False
    keep: Keep = FOR_EVER
    limits: TenantLimits = field(default_factory=TenantLimits)
    decide_in: Literal["worker", "service"] = "worker"
    decide_limit_s: float = LIMIT_S
    lending: Mapping[str, Any] = field(default_factory=dict)
    slowdown: float | None = SLOWDOWN
    start_ahead: bool = True
    stop_idle_s: float | None = None
    verify_s: float | None = None
    sleep_nodes: SleepSettings | None = None
    default: Described | tuple[Described, ...] = "fifo"


class Live:
    """A running scheduler: the driver, its store, and the rules of tenants."""

    def __init__(self, settings: Settings, seconds: Seconds = time.monotonic) -> None:
        self.settings = settings
        self.engine = read_spec("engine", settings.engine)
        self.quotas = Quotas()
        policy = None if settings.policy is None else read_spec("policy", settings.policy)
        folder = settings.state
        self._configured, before = LiveSettings.of(policy, settings.lending), None
        if folder is not None:
            make_private(folder)
            if not settings.database:
                check_log_is_there(folder)
            self.quotas = read_quotas(folder / QUOTA_FILE)
            before = LiveSettings.read(folder)
        if before is None or before.lending != self._configured.lending:
            self.quotas = replace(self.quotas, **settings.lending)
        build("policy", self.quotas.wrap_policy(PartSpec("fifo")))
        self._cluster = Cluster(())
        self.users = find_users(settings.users)
        engine = build_engine(
            self.engine,
            state=folder,
            slots=settings.slots,
            pass_env=settings.pass_env,
            users=self.users,
            seconds=seconds,
            why_apart=self._why_apart,
        )
        self.store = _open_store(settings)
        if not self.store.last_seq():
            policy = policy or _first_policy(settings.default, engine)
        elif before is not None and before.policy == self._configured.policy:
            policy = None  # what was changed live lasts until the configuration changes
        self.driver = Driver(
            engine,
            self.store,
            policy=None if policy is None else self.quotas.wrap_policy(policy),
            knowledge=self._knowledge,
            seconds=seconds,
            end_unknown=settings.end_unknown,
            decider=_decider(settings),
        )
        self.leading = Leading(self.store, self.driver.stop_if_failed)
        self._refits = Refits(self.driver)
        self.retention = Retention(self.driver, settings.keep)
        self.bad_nodes = BadNodes(self._owner_of)
        self._watching: asyncio.Task[None] | None = None
        self._deadlines = Deadlines(self.driver)
        self.sharing = SharingGuard(self.driver)
        self._ahead = AheadStarts(self.driver, self._allow)
        self.sleep_nodes = _sleep_nodes(settings, self.driver, self.engine.name)
        self.idle_beside = IdleBeside(self.driver, lambda: self.quotas)
        self.idle_watch = IdleWatch(self.driver, settings.stop_idle_s)
        self._taken = TakenDevices(engine, lambda: self.quotas, self.set_quotas)
        self.device_history = DeviceHistory(engine, lambda: self.driver.now, folder)
        self.device_faults = DeviceFaults(engine, lambda: self.quotas, self.set_quotas, folder)

    @property
    def isolation(self) -> Literal["users", "none", ""]:
        """Users if jobs run as their tenants' users, none if as us; empty if there are no jobs."""
        if not self.driver.engine.real:
            return ""
        return "users" if self.users else "none"

    @property
    def policy(self) -> PartSpec:
        """The policy that decides, as a person named it."""
        return without_wrappers(self.driver.policy)

    async def open(self) -> None:
        """Replay, reconcile, begin; nothing stays open if that fails."""
        raise_file_limit()
        self.leading.open()
        try:
            if self.settings.state is not None and not self.store.last_seq():
                refuse_beside_jobs(self.settings.state, "the log has no events")
            self._cluster = Cluster(tuple(await self.driver.engine.nodes()))
            if self.settings.policy is not None:
                check_machines(build("policy", self.settings.policy), self._cluster)
            await self.driver.open()
            wanted = self.quotas.wrap_policy(self.policy)
            if self.driver.policy != wanted:
                await self.driver.set_policy(wanted)
            self._note_configuration()
            self.retention.open()
            self._watching = asyncio.create_task(self._watch_nodes())
            self._deadlines.open()
            self._refits.open()
            self.sharing.open()
            if self.settings.start_ahead:
                self._ahead.open()
            self.idle_beside.open()
            if self.sleep_nodes is not None:
                self.sleep_nodes.open()
            self.idle_watch.open()
            self._taken.open()
            self.device_faults.open()
            self.device_history.open()
        except BaseException:
            await self.leading.close()
            self.store.close()
            raise

    def _knowledge(self) -> Knowledge:
        """The knowledge about jobs before the first event."""
        knowledge = Knowledge(
            _predictor(self.settings.predictor),
            FittedBeliefs(),
            colocate_on(self.driver.engine, self._cluster, self.settings.pairs),
            Learner(),
            costs=LearntCosts(),
            pooled=PooledBeliefs(),
            programs=LearntPrograms(
                self.settings.slowdown, waits=Sees.WAITS in self.driver.engine.sees
            ),
            plans=LearntPlans(),
        )
        knowledge.fit_aside()
        return knowledge

    def _why_apart(self, job: Job, node: Node) -> str:
        """The reason why a job must not be a client of MPS; empty if it may."""
        scheduler = self.driver.scheduler
        about, programs = scheduler.policy.about, scheduler.knowledge.programs
        if Controls.SHARE not in about.controls or programs is None:
            return "the policy puts no other job beside it"
        if NeededKnowledge.PROFILES in (about.taxonomy.knowledge or NeededKnowledge.NOTHING):
            return "the policy goes by how busy each job keeps its GPU, which MPS hides"
        return programs.why_apart(job, node.kind, node.device_gb)

    def _note_configuration(self) -> None:
        """Keep it for the next start, and say what runs otherwise than it says."""
        for change in self._configured.describe_changes(self.policy, self.quotas):
            log.warning(change)
        if self.settings.state is not None:
            self._configured.write(self.settings.state)

    async def close(self) -> None:
        """Stop deciding; jobs go on and are taken up by the next start."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
        await self._taken.close()
        await self.device_faults.close()
        await self.device_history.close()
        await self._refits.close()
        await self._deadlines.close()
        await self.idle_beside.close()
        if self.sleep_nodes is not None:
            await self.sleep_nodes.close()
        await self._ahead.close()
        await self.idle_watch.close()
        await self.sharing.close()
        await self.retention.close()
        await self.driver.close()
        await self.leading.close()
        self.store.close()

    def check(self, job: Job) -> None:
        """Raise InvalidConfig for a job that could never run here."""
        self.driver.engine.check(job)
        check_job(job, self.driver.node_list.whole)

    async def set_policy(self, policy: Described, by: str = "") -> None:
        """Decide by another policy from now on; `by` is who says so."""
        named = without_wrappers(read_spec("policy", policy))
        check_machines(build("policy", named), self.driver.node_list.whole)
        await self.driver.set_policy(self.quotas.wrap_policy(named), by)

    async def set_quotas(self, quotas: Quotas, by: str = "", why: str = "") -> None:
        """Other rules for tenants from now on; on disk before they hold. `by` is who says so."""
        spec = quotas.wrap_policy(self.policy)
        build("policy", spec)
        if self.settings.state is not None:
            write_private(self.settings.state / QUOTA_FILE, asdict(quotas))
        self.quotas = quotas
        await self.driver.set_policy(spec, by, why)

    async def drain(self, node: NodeId, by: str = "", why: str = "") -> None:
        """Move every job off a machine and place no more there until a person undrains it."""
        await self.driver.drain(node, by, why)
        if self.sleep_nodes is not None:
            self.sleep_nodes.keep_drained(node)

    async def use_again(self, node: NodeId, by: str = "") -> None:
        """Use a machine again, with all its devices; one that sleeps, once it has booted."""
        names = [
            name
            for name in self.quotas.windows
            if name.startswith((DRAIN, ASIDE))
            and name.removeprefix(DRAIN).removeprefix(ASIDE).partition(":")[0] == node
        ]
        self.bad_nodes.forget(node)
        self.device_faults.use_again(node)
        if names:
            await self.set_quotas(self.quotas.without_windows(*names), by)
        if self.sleep_nodes is None or not await self.sleep_nodes.wake(node):
            await self.driver.undrain(node, by)

    async def _watch_nodes(self) -> None:
        """Set machines aside where one job after the other fails at its start."""
        async for rows in self.driver.subscribe(self.driver.seq):
            for _, at, event in rows:
                node = self.bad_nodes.check_event(at, event)
                if node is not None and self._can_spare(node):
                    await self._set_aside(node)

    def _allow(self, job: Job, device: Device, beside: Job) -> bool:
        """True if rules let a job have a device in the place of the job that runs there."""
        return self.quotas.allow(job, device, beside, self.driver.scheduler.state, self.driver.now)

    def _owner_of(self, job: JobId) -> str:
        """The owner of a job: the tenant, and the person where that is known."""
        record = self.driver.ledger.jobs.get(job)
        return "" if record is None else f"{record.job.tenant}/{record.job.user}"

    def _can_spare(self, node: NodeId) -> bool:
        """True if another machine is up: without one, the cause could be anywhere."""
        gone = {name.removeprefix(ASIDE) for name in self.quotas.windows}
        up = {other.id for other, word in self.driver.nodes() if word == "up"}
        return node not in gone and bool(up - gone - {node})

    async def _set_aside(self, node: NodeId) -> None:
        why = self.bad_nodes.why(node)
        log.warning("node=%s set aside: %s; `weft undrain %s` uses it again", node, why, node)
        quotas = self.quotas.with_window(f"{ASIDE}{node}", f"~{node}")
        await self.set_quotas(quotas, why=why)


def _first_policy(described: Described | tuple[Described, ...], engine: Engine) -> PartSpec | None:
    """The policy before anyone chooses one; None if the engine cannot support it.

    Sharing needs an engine that sees the memory of devices, and can freeze the jobs on them.
    """
    supports = engine.supports
    if Sees.DEVICE not in engine.sees or Rung.FREEZE not in engine.stops:
        supports &= ~Controls.SHARE
    for choice in described if isinstance(described, tuple) else (described,):
        spec = read_spec("policy", choice)
        policy: Policy = build("policy", spec)
        if not policy.about.controls & ~supports:
            return spec
    return None


def _open_store(settings: Settings) -> Store:
    if settings.state is None:
        return MemoryStore()
    if settings.database:
        from weft.store.postgres import PostgresStore

        return PostgresStore(settings.database, describe_process())
    return SqliteStore(settings.state / LOG, describe_process())


def _decider(settings: Settings) -> Decider:
    if not settings.decide_limit_s > 0.0:
        limit = f"{settings.decide_limit_s:g} s"
        raise InvalidConfig(f"--decide-limit is {limit}", hint="give seconds above 0")
    if settings.decide_in == "service":
        return InProcess()
    return InWorker(limit_s=settings.decide_limit_s)


def _sleep_nodes(settings: Settings, driver: Driver, engine: str) -> SleepNodes | None:
    if settings.sleep_nodes is None:
        return None
    return SleepNodes(driver, settings.sleep_nodes.on(engine), settings.state)


def _predictor(spec: str) -> Predictor:
    if not spec:
        return HintedOrAlike()
    name = read_spec("predictor", spec).name
    if find("predictor", name).asks.facts:
        raise InvalidConfig(
            f"predictor {name!r} reads the truth, which only a simulation has",
            hint="choose hinted or alike; without --predictor it is one, else the other",
        )
    predictor: Predictor = build("predictor", spec)
    return predictor
