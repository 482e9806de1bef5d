"""Batch jobs of the persons themselves: theirs in Slurm, and nothing of others within reach."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.clusters.slurm import SlurmCluster
from tests.engines.contract import every_check
from tests.integration.users import AS_ROOT, open_folder, own_folder, system_user
from weft.core.errors import InvalidConfig
from weft.core.events.event import Failed, Finished, Started, Stopped
from weft.core.model.job import Job
from weft.engines.slurm.engine import SlurmEngine
from weft.service.routes.jobs.logs import read_at
from weft.testing.engine_subject import Check, EngineTenant, session, shell_job, shell_subject
from weft.wire.attempt import EVENTS, STOP, folder_of
from weft.wire.identity import Identity

pytestmark = pytest.mark.skipif(not AS_ROOT, reason="only root may become other users")


@pytest.fixture
def site(open_cluster: SlurmCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    open_cluster.use_in(monkeypatch)
    with open_folder() as folder:
        yield folder
        open_cluster.clear()


def engine(site: Path, python: str, *names: str) -> SlurmEngine:
    users = {name: system_user(name) for name in names or ("nobody", "daemon")}
    return SlurmEngine(site / "state", python=python, users=users)


def of(name: str, job: Job, home: Path | None = None) -> Job:
    assert job.launch is not None
    launch = replace(job.launch, workdir=str(home)) if home else job.launch
    return replace(job, tenant=name, launch=launch)


def squeue(form: str) -> list[str]:
    return subprocess.check_output(["squeue", "-h", "-t", "all", "-o", form], text=True).split()


def charged(job: str) -> tuple[int, str]:
    """Whom Slurm says that the first attempt of a job belongs to."""
    (line,) = [line for line in squeue("%j|%U|%a") if line.startswith(f"weft-{job}-1|")]
    _, uid, account = line.split("|")
    return int(uid), account


@pytest.mark.parametrize(
    "check", every_check("running_jobs_are_adopted", "a_job_is_charged_to_its_tenant")
)
def test_slurm_keeps_the_contract_for_persons(
    check: Check, open_cluster: SlurmCluster, site: Path, python: str
) -> None:
    def script(name: str, gpus: int, text: str) -> Job:
        return shell_job(name, gpus, text.replace(sys.executable, python))

    users = {name: system_user(name) for name in ("nobody", "daemon")}
    users[shell_job("any", 1, "").tenant] = users["nobody"]
    accounts = "nobody:vis/daemon:nlp"
    subject = shell_subject(
        lambda: SlurmEngine(site / "state", python=python, users=users, accounts=accounts),
        tenants=(
            EngineTenant("nobody", users["nobody"].uid, "vis"),
            EngineTenant("daemon", users["daemon"].uid, "nlp"),
        ),
        charged=charged,
        where="$SLURMD_NODENAME",
        kill_node=open_cluster.kill_node,
        restore_node=open_cluster.start_node,
        kill_controller=open_cluster.kill_controller,
        restore_controller=open_cluster.start_controller,
    )
    asyncio.run(check(replace(subject, script=script)))


@pytest.mark.parametrize("gpus", [(2,), (2, 2), (2, 1)], ids=["one", "even", "uneven"])
def test_a_job_is_its_persons_in_slurm_and_on_the_nodes(
    site: Path, python: str, gpus: tuple[int, ...]
) -> None:
    home = own_folder(site, system_user("nobody").uid)
    script = "exec > mine-$RANK; id -u; umask; echo $USER"
    job = of("nobody", shell_job(f"whose{len(gpus)}{sum(gpus)}", sum(gpus), script), home)

    async def life() -> None:
        subject = shell_subject(lambda: engine(site, python))
        async with session(subject) as it:
            await it.engine.start(job, await it.over(*gpus), 1)
            assert await it.next() == Started(job.id, 1)
            assert isinstance(await it.told(Finished), Finished)

    asyncio.run(life())

    uid = system_user("nobody").uid
    for rank in range(sum(gpus)):
        assert (home / f"mine-{rank}").read_text().split() == [str(uid), "0027", "nobody"]
    mine = [line for line in squeue("%j|%u") if line.startswith(f"weft-{job.id}-1|")]
    assert mine
    assert all(line.endswith("|nobody") for line in mine)
    assert folder_of(site / "state", job.id, 1).stat().st_uid == 0


def test_a_tag_of_somebody_else_is_no_attempt(site: Path, python: str) -> None:
    """daemon writes the tag of nobody's job into a batch job of its own."""
    job = of("nobody", shell_job("targeted", 1, "exec sleep 1000"))

    async def life() -> None:
        subject = shell_subject(lambda: engine(site, python))
        async with session(subject) as it:
            await it.engine.nodes()
            owner = (site / "state" / "owner").read_text().strip()
            forged = ["sbatch", f"--comment=weft:{owner}:targeted:1", "-o", "/dev/null"]
            command = [*forged, "--wrap", "sleep 1000"]
            subprocess.run(command, user="daemon", cwd="/", check=True, stdout=subprocess.DEVNULL)
            await it.start(job)
            assert await it.next() == Started(job.id, 1)
            await it.engine.stop(job.id, 1, 5.0)
            assert isinstance(await it.told(Stopped), Stopped)
        assert [line for line in squeue("%u|%T") if line == "daemon|RUNNING"]

    asyncio.run(life())


def test_links_in_a_persons_folder_lead_nowhere(site: Path, python: str) -> None:
    """It puts links where the service reads and writes as root."""
    target, read = site / "precious", site / "secret"
    target.write_text("precious")
    read.write_text("secret")
    read.chmod(0o600)
    script = (
        "cd $WEFT_ATTEMPT_DIR; "
        f"rm -f beat; ln -s {target} {STOP}; ln -s {read} rank-7.log; exec sleep 1000"
    )
    job = of("nobody", shell_job("links", 1, script))

    async def life() -> None:
        subject = shell_subject(lambda: engine(site, python))
        async with session(subject) as it:
            await it.start(job)
            assert await it.next() == Started(job.id, 1)
            await it.becomes(lambda: 7 in it.engine.logs(job.id, 1), "that its links are there")
            with pytest.raises(Exception, match="expected a regular file"):
                await it.engine.stop(job.id, 1, 1.0)
            assert read_at(it.engine.logs(job.id, 1)[7], 0) == b""
            assert isinstance(await it.told((Failed, Stopped)), (Failed, Stopped))

    asyncio.run(life())

    assert target.read_text() == "precious"


def test_a_person_cannot_have_a_node_set_aside(site: Path, python: str) -> None:
    """It writes into the log of its agent, which is its own, that a GPU has a fault."""
    devices = [[gpu, "Xid 79", []] for gpu in range(4)]
    head = {"event": "health", "at": 1.0, "node": "a1", "alone": False, "world": 1}
    forged = {**head, "devices": devices, "paces": []}
    script = f"echo '{json.dumps(forged)}' >>$WEFT_ATTEMPT_DIR/{EVENTS}; exec sleep 1000"
    ours, theirs = (of(who, shell_job(who, 1, script)) for who in ("nobody", "daemon"))

    async def life() -> None:
        subject = shell_subject(lambda: engine(site, python))
        async with session(subject) as it:
            on = await it.over(1)
            (node,) = (part.node for part in on.slices)
            await it.engine.start(ours, on, 1)

            await it.becomes(lambda: it.engine.health.devices.get(node), "that it has spoken")
            seen = it.engine.health.devices[node]
            assert [device.fault for device in seen] == [""] * 4
            assert all("alone)" in note for device in seen for note in device.notes)

            (there,) = on.slices
            await it.engine.start(theirs, replace(on, slices=(replace(there, gpus=(1,)),)), 1)
            await it.becomes(
                lambda: all(device.fault for device in it.engine.health.devices[node]),
                "that a second person's agent confirms it",
            )
            for job in (ours, theirs):
                await it.engine.stop(job.id, 1, 1.0)

    asyncio.run(life())


@pytest.mark.parametrize("mode", ["native", "pilot"])
def test_a_job_under_an_agent_of_root_says_nothing_of_gpus(
    mode: str, site: Path, python: str
) -> None:
    """It writes where its agent does, or would: it may not."""
    home = own_folder(site, system_user("nobody").uid)
    forged = {"event": "health", "at": 1.0, "node": "a1", "alone": False, "world": 1}
    line = json.dumps({**forged, "devices": [[0, "Xid 79", []]], "paces": []})
    script = (
        f"echo '{line}' >>$WEFT_ATTEMPT_DIR/{EVENTS} || echo denied > told; "
        f"mv $WEFT_ATTEMPT_DIR $WEFT_ATTEMPT_DIR-2 || echo denied >> told"
    )
    job = of("nobody", shell_job(f"hostile-{mode}", 1, script), home)
    held, submit_as = ("a1", "") if mode == "pilot" else ("", "service")
    users = {"nobody": system_user("nobody")}

    def make() -> SlurmEngine:
        state = site / "state"
        return SlurmEngine(state, mode, held=held, submit_as=submit_as, python=python, users=users)

    async def life() -> None:
        subject = shell_subject(make)
        async with session(subject) as it:
            await it.start(job)
            assert await it.next() == Started(job.id, 1)
            assert isinstance(await it.told(Finished), Finished)
            assert "Xid" not in str(it.engine.health.devices)

    asyncio.run(life())

    assert (home / "told").read_text().split() == ["denied", "denied"]


def test_a_user_that_slurm_does_not_know_is_refused_at_the_start(site: Path, python: str) -> None:
    unknown = SlurmEngine(site / "state", python=python, users={"a": Identity(61001, 61001)})

    with pytest.raises(InvalidConfig, match="whom this machine does not know"):
        asyncio.run(unknown.nodes())
