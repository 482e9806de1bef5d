"""Wire a live scheduler: settings in, a driver on an engine with its store out."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from weft.app.engine import build_engine, colocate_on
from weft.app.serve.hinted_or_history import HintedOrAlike
from weft.app.serve.limits import Limits
from weft.app.state.folder import LOG, check_log_is_there, make_private, refuse_beside_jobs
from weft.core.cluster import Cluster
from weft.core.errors import InvalidConfig
from weft.core.knowledge import Knowledge, Predictor
from weft.core.model import Job
from weft.core.ports import Store
from weft.core.registry import Described, build, find, read_spec
from weft.core.spec import PartSpec
from weft.engines.users_file import find_users, users_of
from weft.perf.goodput.beliefs import FittedBeliefs
from weft.perf.training.learner import Learner
from weft.runtime.admit import check_job
from weft.runtime.clock import Seconds
from weft.runtime.decider import LIMIT_S, Decider, InProcess, InWorker
from weft.runtime.driver import Driver
from weft.runtime.file_limit import raise_file_limit
from weft.runtime.job_records import ALL, ENDED, JobRecords
from weft.runtime.ledger import JobRecord
from weft.runtime.retention import FOR_EVER, Keep, Retention
from weft.runtime.status import JobStatus, active_words, status_of
from weft.runtime.waiting import Waits, waits_of, why_waits
from weft.store.memory import MemoryStore
from weft.store.sqlite import SqliteStore

__all__ = [
    "ALL",
    "ENDED",
    "Driver",
    "JobRecord",
    "JobRecords",
    "JobStatus",
    "Keep",
    "Live",
    "Quotas",
    "Settings",
    "Waits",
    "active_words",
    "check_job",
    "status_of",
    "users_of",
    "waits_of",
    "why_waits",
]

QUOTA_FILE = "quotas.json"
STEADY, QUOTA = PartSpec("steady"), "quota"


@dataclass(frozen=True, slots=True)
class Settings:
    """What `weft serve` is told.

    `engine` and `policy` are names with parameters. `state` is the folder of everything that
    survives; None keeps nothing, for tests. `policy` None goes on with what decided last.
    `slots` is for the local engine: CPU slots where there are no GPUs, 0 for one a core. `pairs`
    is a file of speeds of jobs beside each other, as `weft profile` writes it. `pass_env` names
    variables of the service's environment that jobs get beside the usual ones. `users` is a file
    or table that says which users of this machine tenants' jobs run as. `tls_cert` and
    `tls_key` are PEM files; with them the service speaks HTTPS. `smtp` is the address of a
    mail server and `mail_from` that of who sends. With `end_unknown` running jobs that the log
    knows nothing of are ended; without it the service does not start beside them. `keep` says for
    how long ended jobs and events are kept.
    """

    engine: str = "local"
    state: Path | None = None
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
    limits: Limits = field(default_factory=Limits)
    decide_in: Literal["worker", "service"] = "worker"
    decide_limit_s: float = LIMIT_S


@dataclass(frozen=True, slots=True)
class Quotas:
    """GPUs a tenant may hold at once, in all (`nlp`) or of a kind (`nlp@a100`), and weights.

    `guaranteed` is how many GPUs its jobs of that priority may ask for together.
    """

    limits: Mapping[str, float] = field(default_factory=dict)
    weights: Mapping[str, float] = field(default_factory=dict)
    guaranteed: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, policy: PartSpec) -> Quotas:
        """The rules that `around` put around a policy."""
        told = next((one.params for one in policy.wrappers if one.name == QUOTA), {})
        return cls(dict(told.get("limits", {})), dict(told.get("weights", {})))

    def around(self, policy: PartSpec) -> PartSpec:
        """The policy with these rules and those of single jobs around it."""
        rules = {
            name: dict(sorted(told.items()))
            for name, told in (("limits", self.limits), ("weights", self.weights))
            if told
        }
        tenants = [PartSpec(QUOTA, rules)] if rules else []
        own = any(wrapper.name == STEADY.name for wrapper in policy.wrappers)
        jobs = [PartSpec("priority"), PartSpec("firm"), *([] if own else [STEADY])]
        return policy.inside(PartSpec("spare"), *tenants, *jobs)


def without_wrappers(policy: PartSpec) -> PartSpec:
    """The policy as a person named it, without what the service puts around it."""
    inner = policy.without("spare", QUOTA, "priority", "firm")
    return inner.without(STEADY.name) if inner.wrappers[:1] == (STEADY,) else inner


class Live:
    """A running scheduler: the driver, its store, and the rules of tenants."""

    def __init__(self, settings: Settings, seconds: Seconds = time.monotonic) -> None:
        self.settings = settings
        self.engine = read_spec("engine", settings.engine)
        self.quotas = Quotas()
        policy = None if settings.policy is None else read_spec("policy", settings.policy)
        folder = settings.state
        if folder is not None:
            make_private(folder)
            check_log_is_there(folder)
            self.quotas = read_quotas(folder / QUOTA_FILE)
        self._cluster = Cluster(())
        self.users = find_users(settings.users)
        engine = build_engine(
            self.engine,
            state=folder,
            slots=settings.slots,
            pass_env=settings.pass_env,
            users=self.users,
            seconds=seconds,
        )
        self.store: Store = MemoryStore() if folder is None else SqliteStore(folder / LOG)
        self.driver = Driver(
            engine,
            self.store,
            policy=None if policy is None else self.quotas.around(policy),
            knowledge=lambda: Knowledge(
                _predictor(settings.predictor),
                FittedBeliefs(),
                colocate_on(engine, self._cluster, settings.pairs),
                Learner(),
            ),
            seconds=seconds,
            end_unknown=settings.end_unknown,
            decider=_decider(settings),
        )
        self.retention = Retention(self.driver, settings.keep)

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
        try:
            if self.settings.state is not None and not self.store.last():
                refuse_beside_jobs(self.settings.state, "the log has no events")
            self._cluster = Cluster(tuple(await self.driver.engine.nodes()))
            await self.driver.open()
            wanted = self.quotas.around(self.policy)
            if self.driver.policy != wanted:
                await self.driver.set_policy(wanted)
            self.retention.open()
        except BaseException:
            self.store.close()
            raise

    async def close(self) -> None:
        """Stop deciding; jobs go on and are taken up by the next start."""
        await self.retention.close()
        await self.driver.close()
        self.store.close()

    def check(self, job: Job) -> None:
        """Raise InvalidConfig for a job that could never run here."""
        self.driver.engine.check(job)
        check_job(job, Cluster(tuple(node for node, _ in self.driver.nodes())))

    async def set_policy(self, policy: Described) -> None:
        """Decide by another policy from now on."""
        named = without_wrappers(read_spec("policy", policy))
        await self.driver.set_policy(self.quotas.around(named))

    async def set_quotas(self, quotas: Quotas) -> None:
        """Other rules for tenants from now on; on disk before they hold."""
        spec = quotas.around(self.policy)
        build("policy", spec)
        if self.settings.state is not None:
            write_private(self.settings.state / QUOTA_FILE, asdict(quotas))
        self.quotas = quotas
        await self.driver.set_policy(spec)


def read_quotas(path: Path) -> Quotas:
    """The rules on disk; none where there is no file."""
    found = read_private(path)
    if found is None:
        return Quotas()
    try:
        return Quotas(
            dict(found["limits"]), dict(found["weights"]), dict(found.get("guaranteed", {}))
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InvalidConfig(f"{path} does not hold quotas: {error!r}") from error


def read_private(path: Path) -> Any:
    """JSON of a file; None where there is none."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise InvalidConfig(f"{path} cannot be read: {error}", hint="fix or remove it") from error


def write_private(path: Path, body: Any) -> None:
    """JSON that only we can read, there completely or not at all."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as out:
        json.dump(body, out, indent=1)
        out.flush()
        os.fsync(out.fileno())
    fresh.replace(path)


def _decider(settings: Settings) -> Decider:
    if not settings.decide_limit_s > 0.0:
        limit = f"{settings.decide_limit_s:g} s"
        raise InvalidConfig(f"no decision takes {limit}", hint="--decide-limit is above 0")
    if settings.decide_in == "service":
        return InProcess()
    return InWorker(limit_s=settings.decide_limit_s)


def _predictor(spec: str) -> Predictor:
    if not spec:
        return HintedOrAlike()
    name = read_spec("predictor", spec).name
    if find("predictor", name).asks.facts:
        raise InvalidConfig(
            f"predictor {name!r} reads the truth, which only a simulation has",
            hint="choose hinted or history; without --predictor it is one, else the other",
        )
    predictor: Predictor = build("predictor", spec)
    return predictor
