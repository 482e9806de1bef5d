"""Accounts on a Slurm with a database of them: who may use which is asked of sacctmgr."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.clusters.slurm import SlurmCluster
from tests.clusters.slurm_accounting import accounted_cluster, what_is_missing
from tests.integration.users import open_folder, system_user
from weft.core.errors import EngineError, InvalidConfig
from weft.core.events.event import Finished
from weft.core.model.job import Job, JobId
from weft.engines.slurm.accounts import are_enforced, check_association, read_associations
from weft.engines.slurm.engine import SlurmEngine
from weft.engines.slurm.script import SbatchOptions
from weft.testing.engine_subject import session, shell_job, shell_subject

KNOWN = [
    ["add", "account", "vis", "cluster=weft"],
    ["add", "account", "vis-urgent", "cluster=weft"],
    ["add", "account", "nlp", "cluster=weft"],
    ["add", "qos", "fast"],
    ["add", "user", "nobody", "account=vis", "cluster=weft"],
    ["add", "user", "nobody", "account=vis-urgent", "cluster=weft", "qos=normal,fast"],
    ["add", "user", "daemon", "account=nlp", "cluster=weft"],
]


@pytest.fixture(scope="module")
def accounted() -> Iterator[SlurmCluster]:
    if lacking := what_is_missing():
        pytest.skip(lacking)
    with open_folder() as folder, accounted_cluster(folder / "slurm") as cluster:
        for words in KNOWN:
            command = ["sacctmgr", "-i", *words]
            subprocess.run(command, env=cluster.env, check=True, capture_output=True)
        yield cluster


@pytest.fixture
def state(accounted: SlurmCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    accounted.use_in(monkeypatch)
    with open_folder() as folder:
        yield folder / "state"
        accounted.clear()


def engine(state: Path, python: str, **more: Any) -> SlurmEngine:
    users = {
        "vision": system_user("nobody"),
        "nlp": system_user("daemon"),
        "strange": system_user("games"),
    }
    return SlurmEngine(state, python=python, users=users, **more)


def of(tenant: str, **env: str) -> Job:
    job = shell_job("charged", 1, "true")
    assert job.launch is not None
    return replace(job, tenant=tenant, launch=replace(job.launch, env=env))


@pytest.mark.slow
def test_slurm_accounts_a_job_to_its_person_and_account(state: Path, python: str) -> None:
    accounts = "vision:vis+vis-urgent/nlp:nlp"
    jobs = {
        "daemon|nlp|normal": of("nlp"),
        "nobody|vis|normal": of("vision"),
        "nobody|vis-urgent|fast": of("vision", SBATCH_ACCOUNT="vis-urgent", SBATCH_QOS="fast"),
    }

    async def life() -> None:
        made = engine(state, python, accounts=accounts, qoses="vision:normal+fast")
        async with session(shell_subject(lambda: made)) as it:
            for number, job in enumerate(jobs.values()):
                named = replace(job, id=JobId(f"charged-{number}"))
                it.engine.check(named)
                await it.begin(named)
                assert await it.next() == Finished(named.id, 1)

    with pytest.raises(EngineError, match="tenant 'vision'"):
        asyncio.run(life())  # vis has no QOS of that name
    allow = ["modify", "user", "nobody", "where", "account=vis", "set", "qos+=fast"]
    subprocess.run(["sacctmgr", "-i", *allow], check=True, capture_output=True)
    asyncio.run(life())

    seen = subprocess.check_output(["squeue", "-h", "-t", "all", "-o", "%u|%a|%q"], text=True)
    assert sorted(seen.split()) == sorted(jobs)


@pytest.mark.slow
def test_jobs_have_the_account_the_qos_and_the_time_of_the_service(
    state: Path, python: str
) -> None:
    async def life() -> None:
        made = engine(state, python, account="vis-urgent", qos="fast", time_min=90)
        async with session(shell_subject(lambda: made)) as it:
            job = replace(of("vision"), id=JobId("of-the-service"))
            it.engine.check(job)
            await it.begin(job)
            assert await it.next() == Finished(job.id, 1)

    asyncio.run(life())

    asked = ["squeue", "-h", "-t", "all", "-n", "weft-of-the-service-1", "-o", "%u|%a|%q|%l"]
    seen = subprocess.check_output(asked, text=True)
    assert seen.split() == ["nobody|vis-urgent|fast|1:30:00"]


@pytest.mark.slow
def test_what_sacctmgr_does_not_allow_is_refused_at_submission(state: Path, python: str) -> None:
    made = engine(state, python)
    asyncio.run(made.nodes())

    made.check(of("vision"))
    made.check(of("nlp"))
    with pytest.raises(InvalidConfig, match="does not know user 'games'"):
        made.check(of("strange"))
    for more, words in (
        ({"account": "vis"}, "'daemon' may not use account 'vis'"),
        ({"qos": "fast"}, "'daemon' may not use qos 'fast'"),
    ):
        other = engine(state, python, **more)
        asyncio.run(other.nodes())
        with pytest.raises(InvalidConfig, match=words):
            other.check(of("nlp"))


ROWS = "|root|||\nann|vis||normal,fast|fast\nann|old|cpu|normal|\nbob|nlp|gpu|normal|\n"


@pytest.mark.parametrize(
    ("who", "asked", "words"),
    [
        ("ann", {}, ""),
        ("ann", {"account": "vis", "qos": "fast", "partition": "gpu"}, ""),
        ("ann", {"account": "old", "partition": "cpu"}, ""),
        ("ann", {"account": "nlp"}, "'ann' may not use account 'nlp'"),
        ("ann", {"account": "old", "qos": "fast"}, "'ann' may not use qos 'fast'"),
        ("ann", {"account": "old", "partition": "gpu"}, "'ann' may not use partition 'gpu'"),
        ("bob", {"partition": "cpu"}, "'bob' may not use partition 'cpu'"),
        ("eve", {}, "does not know user 'eve'"),
    ],
)
def test_rows_of_sacctmgr_say_who_may_use_what(who: str, asked: dict[str, str], words: str) -> None:
    known = read_associations(ROWS)
    wanted = SbatchOptions("python", "", **asked)  # type: ignore[arg-type]

    if not words:
        check_association(known, who, wanted)
        return
    with pytest.raises(InvalidConfig, match=words):
        check_association(known, who, wanted)


@pytest.mark.parametrize(
    ("kind", "enforced", "is_so"),
    [
        ("accounting_storage/slurmdbd", "associations,limits", True),
        ("accounting_storage/slurmdbd", "safe", True),
        ("accounting_storage/slurmdbd", "none", False),
        ("accounting_storage/none", "associations", False),
    ],
)
def test_associations_count_where_a_site_enforces_them(
    kind: str, enforced: str, is_so: bool
) -> None:
    config = {"AccountingStorageType": kind, "AccountingStorageEnforce": enforced}

    assert are_enforced(config) is is_so
