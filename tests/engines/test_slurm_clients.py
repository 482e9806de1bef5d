"""A service that is nobody's superior: persons' own clients submit its batch jobs to Slurm.

The service is a process of the user games, and the persons are nobody and daemon.
"""

from __future__ import annotations

import os
import pwd
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.clusters.slurm import SlurmCluster
from tests.integration.users import AS_ROOT, open_folder
from tests.ports import free_port
from tests.waiting import LIMIT_S
from weft.wire.attempt import AGENT_LOG, EVENTS, job_folder
from weft.wire.processes import find_tagged, kill_all
from weft.wire.shared_files import shared_with

pytestmark = pytest.mark.skipif(not AS_ROOT, reason="only root may become other users")

SERVICE, PERSONS = "games", ("nobody", "daemon")
NOTHING = {"make": [], "submit": [], "cancel": [], "left": 0}
Line = dict[str, Any]


@dataclass
class Site:
    """The service and its persons; `tokens` are theirs by name."""

    folder: Path
    python: str
    slurm: SlurmCluster
    port: int = field(default_factory=free_port)
    tokens: dict[str, str] = field(default_factory=dict)
    service: subprocess.Popen[bytes] | None = None
    clients: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @cached_property
    def web(self) -> httpx.Client:
        address = f"http://127.0.0.1:{self.port}"
        return httpx.Client(base_url=address, timeout=LIMIT_S, trust_env=False, verify=False)

    @property
    def state(self) -> Path:
        return self.folder / "state"

    def begin(self) -> None:
        """Start the service, once more if it was there before."""
        users = "".join(f'[{name}]\nuser = "{name}"\n' for name in PERSONS)
        (self.folder / "users.toml").write_text(users)
        command = ["serve", "--port", str(self.port), "--state", str(self.state)]
        command += ["--policy", "fifo", "--users", str(self.folder / "users.toml")]
        command += ["--engine", f"slurm:submit_as=client,python={self.python}"]
        self.service = self._weft(SERVICE, "service.log", *command)
        until = time.monotonic() + LIMIT_S
        while not self._answers():
            log = (self.folder / "service.log").read_text()
            assert self.service.poll() is None, log
            assert time.monotonic() < until, log
            time.sleep(0.2)

    def _answers(self) -> bool:
        try:
            return self.web.get("/healthz").status_code == 200
        except httpx.HTTPError:
            return False

    def kill(self) -> None:
        assert self.service is not None
        self.service.kill()
        self.service.wait()

    def _weft(self, user: str, log: str, *words: str) -> subprocess.Popen[bytes]:
        with (self.folder / log).open("ab") as out:
            command = [self.python, "-m", "weft", *words]
            return subprocess.Popen(
                command,
                env=self.env(user),
                cwd="/",
                stdout=out,
                stderr=out,
                user=user,
                group=pwd.getpwnam(user).pw_gid,
                extra_groups=[],
            )

    def env(self, user: str) -> dict[str, str]:
        home = self.folder / f"home-{user}"
        own = {"HOME": str(home), "USER": user, "LOGNAME": user, "XDG_STATE_HOME": str(home)}
        kept = {name: self.slurm.env[name] for name in ("PATH", "SLURM_CONF")}
        url = f"http://127.0.0.1:{self.port}"
        return {**kept, **own, "WEFT_URL": url, "WEFT_TOKEN": self.tokens.get(user, "")}

    def make_tokens(self) -> None:
        self.tokens["root"] = self.ask("root", "POST", "/tokens", {"role": "admin"})["token"]
        for name in PERSONS:
            body = {"role": "user", "tenant": name}
            self.tokens[name] = self.ask("root", "POST", "/tokens", body)["token"]

    def send(self, who: str, method: str, path: str, body: Line | None = None) -> httpx.Response:
        token = self.tokens.get(who)
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        return self.web.request(method, f"/api/v1{path}", json=body, headers=headers)

    def ask(self, who: str, method: str, path: str, body: Line | None = None) -> Any:
        answer = self.send(who, method, path, body)
        assert answer.status_code < 300, answer.text
        return answer.json()

    def submit(self, who: str, script: str, **more: Any) -> str:
        home = self.folder / f"home-{who}"
        job = {"command": ["sh", "-c", script], "workdir": str(home), **more}
        made = self.ask(who, "POST", "/jobs", job)
        assert made["by_client"]
        return str(made["id"])

    def begin_client(self, who: str) -> None:
        self.clients[who] = self._weft(who, f"client-{who}.log", "slurm-client")

    def end_client(self, who: str) -> None:
        client = self.clients.pop(who)
        client.kill()
        client.wait()

    def end_clients(self) -> None:
        for name in [*self.clients]:
            self.end_client(name)

    def job(self, job: str) -> Line:
        answer: Line = self.ask("root", "GET", f"/jobs/{job}")
        return answer

    def becomes(self, truth: Callable[[], Any], what: str) -> Any:
        until = time.monotonic() + LIMIT_S
        while not (seen := truth()):
            assert time.monotonic() < until, f"not so: {what}\n{self._logs()}"
            time.sleep(0.3)
        return seen

    def _logs(self) -> str:
        """What the service and every agent wrote last."""
        agents = sorted((self.folder / "state").rglob(AGENT_LOG))
        logs = [self.folder / "service.log", *agents]
        return "\n".join(f"{log}:\n{log.read_text()[-4000:]}" for log in logs)

    def ends(self, job: str) -> str:
        ended = ("succeeded", "failed", "cancelled")
        self.becomes(lambda: self.job(job)["state"] in ended, f"{job} has ended")
        status = self.job(job)
        return str(status["state"] if status["state"] != "failed" else status["reason"])

    def offered(self, who: str) -> Line:
        """One offer, taken as the person's client would."""

        def take() -> Line | None:
            offers = self.ask(who, "POST", "/batch-jobs/take")["submit"]
            return offers[0] if offers else None

        offer: Line = self.becomes(take, f"there is an offer for {who}")
        return offer

    def sbatch(self, who: str, script: str, *options: str) -> str:
        done = subprocess.run(
            ["sbatch", "--parsable", "-o", "/dev/null", *options],
            input=script,
            user=who,
            group=pwd.getpwnam(who).pw_gid,
            cwd="/",
            env=self.env(who),
            check=True,
            text=True,
            stdout=subprocess.PIPE,
        )
        return done.stdout.strip()

    def report(self, who: str, offer: Line, number: str) -> int:
        body = {"secret": offer["secret"], "number": number}
        return self.send(who, "POST", "/batch-jobs/report", body).status_code

    def says(self, pattern: str) -> None:
        """Wait until the service's log has a line."""
        log = self.folder / "service.log"
        self.becomes(lambda: re.search(pattern, log.read_text()), pattern)

    def may_read(self, who: str, path: Path) -> bool:
        command = ["ls" if path.is_dir() else "cat", str(path)]
        group = pwd.getpwnam(who).pw_gid
        done = subprocess.run(command, user=who, group=group, extra_groups=[], capture_output=True)
        return done.returncode == 0

    def phase(self, job: str) -> str:
        """What Slurm says of the first attempt of a job; nothing once it has forgotten that job."""
        lines = [line for line in self.squeue("%k|%T") if f":{job}:1|" in line]
        return lines[0].partition("|")[2] if lines else ""

    def squeue(self, form: str) -> list[str]:
        command = ["squeue", "-h", "-t", "all", "-o", form]
        return subprocess.check_output(command, env=self.slurm.env, text=True).split()


@contextmanager
def served(slurm: SlurmCluster, python: str, *, lists: bool = True) -> Iterator[Site]:
    """A site whose file system keeps access control lists, or none of them."""
    with open_folder() as folder, nullcontext() if lists else without_lists(folder):
        for name in (SERVICE, *PERSONS):
            home = folder / f"home-{name}"
            home.mkdir(mode=0o700)
            os.chown(home, pwd.getpwnam(name).pw_uid, pwd.getpwnam(name).pw_gid)
        site = Site(folder, python, slurm)
        site.state.mkdir(mode=0o755)
        os.chown(site.state, pwd.getpwnam(SERVICE).pw_uid, pwd.getpwnam(SERVICE).pw_gid)
        with ExitStack() as stack:
            site.begin()
            stack.callback(site.kill)
            stack.callback(site.end_clients)
            stack.callback(site.web.close)
            site.make_tokens()
            yield site
        for name in PERSONS:  # those that `weft submit` started
            kill_all([*find_tagged("XDG_STATE_HOME", str(folder / f"home-{name}"))])
        slurm.clear()


@contextmanager
def without_lists(folder: Path) -> Iterator[None]:
    """A file system that keeps no access control lists, as NFS version 4."""
    command = ["mount", "-t", "ramfs", "-o", "mode=755", "weft-test", str(folder)]
    if shutil.which("mount") is None or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("a file system without access control lists cannot be mounted here")
    try:
        with pytest.raises(OSError, match="not supported"):
            os.getxattr(folder, "system.posix_acl_access")
        yield
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


@pytest.fixture
def site(open_cluster: SlurmCluster, python: str) -> Iterator[Site]:
    with served(open_cluster, python) as it:
        yield it


@pytest.fixture
def plain_site(open_cluster: SlurmCluster, python: str) -> Iterator[Site]:
    with served(open_cluster, python, lists=False) as it:
        yield it


def test_weft_submit_calls_sbatch_as_whoever_types_it(site: Site) -> None:
    """One job over two nodes and one alone, of two persons, with nothing else to type."""
    for who, gpus in (("nobody", "6"), ("daemon", "1")):
        options = ["--quiet", "--gpus", gpus, "--workdir", str(site.folder / f"home-{who}")]
        script = ["--", "sh", "-c", "id -u >> mine; umask"]
        assert site._weft(who, f"submit-{who}.log", "submit", *options, *script).wait() == 0

    for who in PERSONS:
        (job,) = (site.folder / f"submit-{who}.log").read_text().split()
        assert site.ends(job) == "succeeded"
        written = (site.folder / f"home-{who}/mine").read_text().split()
        assert {*written} == {str(pwd.getpwnam(who).pw_uid)}
        owners = {line.partition("|")[2] for line in site.squeue("%k|%u") if f":{job}:1|" in line}
        assert owners == {who}
        assert job_folder(site.state, job).stat().st_uid == pwd.getpwnam(SERVICE).pw_uid
        assert "0022" in site.send(who, "GET", f"/jobs/{job}/logs?rank=0").text


def test_a_job_is_tried_again_by_its_persons_client(site: Site) -> None:
    site.begin_client("nobody")
    job = site.submit("nobody", "test -e second || { touch second; exit 3; }", retries=2)

    assert site.ends(job) == "succeeded"
    assert site.job(job)["attempt"] == 2


def test_nothing_counts_that_was_not_offered(site: Site) -> None:
    """daemon forges nobody's batch job, and nobody submits another one than was offered."""
    job = site.submit("nobody", "sleep 8", gpus=2)
    offer = site.offered("nobody")
    assert site.ask("daemon", "POST", "/batch-jobs/take") == NOTHING
    script = offer["script"]
    (tag,) = re.findall(r"--comment=(\S+)", script)
    (node,) = re.findall(r"--nodelist=(\S+)", script)

    lines = [line for line in script.splitlines() if line.startswith("#") and "--out" not in line]
    sleeps = "\n".join([*lines, "exec sleep 1000\n"])  # the same request
    of_daemon = site.sbatch("daemon", sleeps)
    untagged = site.sbatch("nobody", "#!/bin/sh\nexec sleep 1000\n")
    greedy = site.sbatch("nobody", sleeps.replace("a100:2", "a100:4").replace("t4:2", "t4:4"))
    elsewhere = site.sbatch("nobody", sleeps.replace(f"={node}", "=a2" if node != "a2" else "=a1"))
    array = site.sbatch("nobody", sleeps, "--array=0-1")

    assert site.report("daemon", offer, of_daemon) == 409  # another's offer
    forged = {"secret": "0" * 32}
    assert site.report("nobody", forged, of_daemon) == 409
    for number in (of_daemon, untagged, greedy, elsewhere, array, "999999"):
        assert site.report("nobody", offer, number) == 409, number
    assert tag.split(":")[2] == job
    to_end = set(site.ask("nobody", "POST", "/batch-jobs/take")["cancel"])
    assert to_end == {greedy, elsewhere, array}
    assert site.ask("daemon", "POST", "/batch-jobs/take")["cancel"] == [of_daemon]
    assert site.job(job)["state"] != "running"

    number = site.sbatch("nobody", script)
    subprocess.run(["scancel", of_daemon, untagged, *to_end], env=site.slurm.env, check=True)
    assert site.report("nobody", offer, number) == 200
    site.becomes(lambda: site.job(job)["state"] == "running", "it runs")  # it has the folder
    twice = site.sbatch("nobody", script)
    assert site.report("nobody", offer, twice) == 409
    assert twice in site.ask("nobody", "POST", "/batch-jobs/take")["cancel"]
    subprocess.run(["scancel", twice], env=site.slurm.env, check=True)

    assert site.ends(job) == "succeeded"
    assert site.job(job)["attempt"] == 1


def test_clients_may_come_and_go(site: Site) -> None:
    """Without one a job waits; it runs on and can be stopped without one."""
    first = site.submit("nobody", "exec sleep 1000")
    why = "weft slurm-client"
    site.becomes(lambda: why in str(site.job(first)), "that it says what it waits for")
    site.begin_client("nobody")
    site.becomes(lambda: site.job(first)["state"] == "running", "it runs")
    site.end_client("nobody")

    site.ask("nobody", "DELETE", f"/jobs/{first}")

    assert site.ends(first) == "cancelled"
    site.becomes(lambda: site.phase(first) in ("CANCELLED", "COMPLETED", ""), "that it is gone")


def test_a_restarted_service_knows_its_offers(site: Site) -> None:
    """One batch job runs and one is offered when the service is killed."""
    site.begin_client("nobody")
    runs = site.submit("nobody", "sleep 8")
    site.becomes(lambda: site.job(runs)["state"] == "running", "it runs")
    site.end_client("nobody")
    waits = site.submit("nobody", "sleep 1")
    offer = site.offered("nobody")
    number = site.sbatch("nobody", offer["script"])

    site.kill()
    site.begin()

    assert site.report("nobody", offer, number) == 200
    for job in (runs, waits):
        assert site.ends(job) == "succeeded"
        assert site.job(job)["attempt"] == 1


def test_an_agent_that_does_not_answer_is_ended_by_its_persons_client(site: Site) -> None:
    site.begin_client("nobody")
    started = (
        f"until grep -q started $WEFT_ATTEMPT_DIR/{EVENTS}; do sleep 0.1; done"  # that it runs
    )
    script = f"{started}; kill -STOP $PPID; exec sleep 1000"
    job = site.submit("nobody", script, checkpoint={"grace_s": 1})
    site.becomes(lambda: site.job(job)["state"] == "running", "it runs")

    site.ask("nobody", "DELETE", f"/jobs/{job}")

    assert site.ends(job) == "cancelled"
    site.becomes(lambda: site.phase(job) in ("CANCELLED", ""), "that it is gone from Slurm")


def test_a_person_alone_sets_no_gpu_aside_and_reads_no_files_of_others(site: Site) -> None:
    """It writes that its GPU has a fault, and puts a link to the service's file into its folder."""
    forged = (
        '{"event":"health","at":1.0,"node":"a1","alone":false,"world":1,'
        '"devices":[[0,"Xid 79",[]]],"paces":[]}'
    )
    secret = site.state / "secret"
    secret.write_text("the service's own")
    os.chown(secret, pwd.getpwnam(SERVICE).pw_uid, 0)
    secret.chmod(0o666)  # so that the kernel lets others make hard links to it
    script = (
        f"cd $WEFT_ATTEMPT_DIR && echo '{forged}' >> {EVENTS}; ln {secret} rank-7.log; "
        f"ls {site.state}/jobs > seen; exec sleep 1000"
    )
    site.begin_client("nobody")
    job = site.submit("nobody", script)
    site.becomes(lambda: site.job(job)["state"] == "running", "it runs")
    folder = next(job_folder(site.state, job).glob(f"*/*/{EVENTS}")).parent

    assert shared_with(folder) == pwd.getpwnam("nobody").pw_uid
    claims = site.becomes(
        lambda: [
            device
            for node in site.ask("root", "GET", "/nodes")["nodes"]
            for device in node["health"]
            if "Xid 79" in str(device)
        ],
        "that the claim is shown",
    )
    assert {device["fault"] for device in claims} == {""}
    site.becomes((folder / "rank-7.log").exists, "that its link is there")
    assert "own" not in site.send("nobody", "GET", f"/jobs/{job}/logs?rank=7").text
    assert not (folder / "seen").read_text()  # folders of other jobs cannot be listed


def test_persons_make_the_folders_where_there_are_no_access_control_lists(plain_site: Site) -> None:
    """A gang that is closed to everyone by its umask, and a job beside it that fails once."""
    site, (nobody, daemon) = plain_site, PERSONS
    for name in PERSONS:
        site.begin_client(name)
    script = (
        "echo printed; umask 077; echo mine > $WEFT_ATTEMPT_DIR/own; "
        "echo step > $WEFT_CHECKPOINT_DIR/$RANK; touch began; exec sleep 1000"
    )
    gang = site.submit(nobody, script, gpus=6)
    again = site.submit(daemon, "test -e second || { touch second; exit 3; }", retries=2)
    site.becomes(lambda: site.job(gang)["state"] == "running", "it runs")
    site.becomes((site.folder / f"home-{nobody}/began").exists, "it came so far")
    uid = pwd.getpwnam(nobody).pw_uid
    own = job_folder(site.state, gang)
    parts = [log.parent for log in own.glob(f"*/*/{EVENTS}")]

    assert len(parts) == 2
    for folder in (*parts, own / "agents", own / "checkpoints"):
        facts = folder.stat()
        assert (facts.st_uid, facts.st_mode & 0o7777) == (uid, 0o2770)
        assert facts.st_gid == pwd.getpwnam(SERVICE).pw_gid
    assert own.stat().st_uid == pwd.getpwnam(SERVICE).pw_uid
    for path in (*parts, *own.rglob("*.json"), site.state / "jobs"):
        assert not site.may_read(daemon, path), path
    assert "printed" in site.send(nobody, "GET", f"/jobs/{gang}/logs?rank=0").text
    assert site.ends(again) == "succeeded"
    assert site.job(again)["attempt"] == 2

    site.ask(nobody, "DELETE", f"/jobs/{gang}")

    assert site.ends(gang) == "cancelled"
    assert site.job(gang)["attempt"] == 1
    site.becomes(lambda: site.phase(gang) in ("CANCELLED", "COMPLETED", ""), "that it is gone")


def test_a_folder_that_is_not_as_it_was_asked_for_is_not_taken(plain_site: Site) -> None:
    """A link to a folder of another job, one that others may enter, and one of somebody else."""
    site, who = plain_site, "nobody"
    others = job_folder(site.state, site.submit("daemon", "sleep 1"))
    for what in ("link", "open", "forged"):
        job = site.submit(who, "sleep 1")
        (wanted,) = site.becomes(
            lambda: site.ask(who, "POST", "/batch-jobs/take")["make"], "that folders are asked for"
        )
        path = Path(wanted["folders"][0])
        if what == "link":
            path.symlink_to(others)
        else:
            path.mkdir(mode=0o777)
            path.chmod(0o2777 if what == "open" else 0o2770)
        if what != "forged":
            os.chown(path, pwd.getpwnam(who).pw_uid, -1, follow_symlinks=False)

        assert site.ask(who, "POST", "/batch-jobs/take")["submit"] == []
        site.says(rf"job={job} attempt=1 failed .* not as it was asked for")
        site.ask(who, "DELETE", f"/jobs/{job}")
        assert site.ends(job) == "cancelled"
        assert not site.phase(job)


def test_an_array_runs_in_folders_that_its_person_makes(plain_site: Site) -> None:
    """With one that is tried again, and a gang."""
    site, who = plain_site, "nobody"
    script = "test $n != 3 -o -e second || { touch second; exit 3; }; echo task $n"
    body = {
        "command": ["sh", "-c", f"n=${{number}}; {script}"],
        "workdir": str(site.folder / f"home-{who}"),
        "sweep": {"list": [{"number": number} for number in range(8)]},
        "retries": 2,
    }
    made = site.ask(who, "POST", "/jobs", body)
    gang = site.submit(who, "echo gang", gpus=6)
    site.begin_client(who)

    assert len(made["jobs"]) == 8
    for number, job in enumerate(made["jobs"]):
        assert site.ends(job) == "succeeded"
        assert site.job(job)["attempt"] == (2 if number == 3 else 1)
        assert f"task {number}" in site.send(who, "GET", f"/jobs/{job}/logs?rank=0").text
        own = job_folder(site.state, job)
        owners = {log.parent.stat().st_uid for log in own.rglob(EVENTS)}
        assert owners == {pwd.getpwnam(who).pw_uid}
    assert site.ends(gang) == "succeeded"
    assert not [*(site.state / "jobs" / ".handed").iterdir()]  # nothing is left in the room


def test_a_restarted_service_goes_on_with_folders_that_were_asked_for(plain_site: Site) -> None:
    site, who = plain_site, "nobody"
    job = site.submit(who, "echo went on")
    site.becomes(
        lambda: site.ask(who, "POST", "/batch-jobs/take")["make"], "that folders are asked for"
    )

    site.kill()
    site.begin()
    site.begin_client(who)

    assert site.ends(job) == "succeeded"
    assert site.job(job)["attempt"] == 1
    assert "went on" in site.send(who, "GET", f"/jobs/{job}/logs?rank=0").text
