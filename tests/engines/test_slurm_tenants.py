"""Tenants on Slurm: their users, accounts, QOS and partitions."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from pathlib import Path

import pytest

from tests.clusters.slurm import SlurmCluster
from tests.integration.users import open_folder, own_folder
from weft.core.errors import EngineError, InvalidConfig
from weft.core.events.event import Finished, Started
from weft.core.model.job import Job
from weft.engines.slurm.accounts import Charges, read_lists
from weft.engines.slurm.engine import SlurmEngine
from weft.engines.slurm.script import SbatchOptions
from weft.testing.engine_subject import session, shell_job, shell_subject
from weft.wire.identity import Identity

AS_ROOT = os.geteuid() == 0
ANN = 61001


def run(engine: SlurmEngine, job: Job) -> None:
    """Run a job to its end."""

    async def life() -> None:
        subject = shell_subject(lambda: engine, where="$SLURMD_NODENAME")
        async with session(subject) as it:
            await it.start(job)
            assert await it.next() == Started(job.id, 1)
            assert isinstance(await it.told(Finished), Finished)

    asyncio.run(life())


def of_tenant(job: Job, tenant: str, **env: str) -> Job:
    assert job.launch is not None
    return replace(job, tenant=tenant, launch=replace(job.launch, env=env))


def test_a_tenants_jobs_have_its_account_and_the_one_they_choose(
    slurm: SlurmCluster, tmp_path: Path
) -> None:
    account_file = tmp_path / "account"
    job = shell_job("charged", 1, f'echo "$SLURM_JOB_ACCOUNT" >> {account_file}')

    for env in ({}, {"SBATCH_ACCOUNT": "vis-urgent"}):
        engine = SlurmEngine(
            tmp_path / f"state{len(env)}", accounts="vision:vis+vis-urgent/nlp:nlp"
        )
        run(engine, of_tenant(job, "vision", **env))

    assert account_file.read_text().split() == ["vis", "vis-urgent"]


def test_what_slurm_would_refuse_is_refused_at_the_start(
    slurm: SlurmCluster, tmp_path: Path
) -> None:
    engine = SlurmEngine(tmp_path / "state", partitions="vision:nowhere")

    with pytest.raises(EngineError, match=r"tenant 'vision'.*partition"):
        asyncio.run(engine.nodes())


@pytest.mark.skipif(not AS_ROOT, reason="only root may become other users")
@pytest.mark.parametrize("mode", ["native", "pilot"])
def test_ranks_run_as_their_tenants_user(slurm: SlurmCluster, mode: str) -> None:
    with open_folder() as folder:
        home = own_folder(folder, ANN)
        job = shell_job("whose", 2, 'echo "$(id -u) $(id -g)" > mine-$RANK')
        assert job.launch is not None
        job = replace(job, tenant="a", launch=replace(job.launch, workdir=str(home)))

        def engine() -> SlurmEngine:
            users = {"a": Identity(ANN, ANN)}
            return SlurmEngine(folder / "state", mode=mode, users=users, submit_as="service")

        run(engine(), job)

        assert (home / "mine-0").read_text().split() == [str(ANN), str(ANN)]
        assert {path.stat().st_uid for path in home.iterdir()} == {ANN}
        with pytest.raises(InvalidConfig, match="has no user"):
            engine().check(replace(job, tenant="b"))


def test_an_account_of_others_is_refused_at_submission() -> None:
    charges = Charges(SbatchOptions("python", ""), {"account": read_lists("a:x+y/b:z", "account")})

    assert charges.options("a", {}).account == "x"
    assert charges.options("b", {"SBATCH_ACCOUNT": "z"}).account == "z"
    assert charges.options("c", {}).account == ""
    for tenant, account in (("a", "z"), ("c", "x")):
        with pytest.raises(InvalidConfig, match=f"tenant '{tenant}' may not use account"):
            charges.options(tenant, {"SBATCH_ACCOUNT": account})


@pytest.mark.parametrize("text", ["vision", "vision:", ":vis", "a:x/a:y"])
def test_lists_that_say_nothing_are_refused(text: str) -> None:
    with pytest.raises(InvalidConfig, match="accounts"):
        read_lists(text, "account")
