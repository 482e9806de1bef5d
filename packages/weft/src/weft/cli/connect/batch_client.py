"""A person's own client of Slurm: submits what the service offers, as the person who runs it.

It asks every second, so that the service needs no way to it. Everything is Slurm's to check: who
calls `sbatch` is known to Slurm by munge.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from weft.cli.connect.client import RequestRefused, ServiceClient, ServiceUnreachable
from weft.core.errors import InvalidConfig, WeftError
from weft.engines.machine.job_environment import filter_environment
from weft.service.responses.answers import BatchJobs, BatchJobToSubmit, Done, FoldersToMake, Made
from weft_client.own_state import user_folder

ASK_S = 1.0
SUBMIT_S = 60.0  # less than a service waits before it gives the same to another client
LEAVE_S = 30.0  # without jobs, until one that was started by `weft submit` leaves
GONE, WRONG = 404, 409
LEAVES = "--until-done"

Say = Callable[[str], None]


def submit_job(client: ServiceClient, body: Mapping[str, Any]) -> str:
    """Submit a job, with a client for its batch jobs where it needs one; its id."""
    made = client.post(Made, "/jobs", body)
    if made.by_client:
        begin_client(client)
    return made.id


def begin_client(client: ServiceClient) -> None:
    """One beside us that stays until all jobs have ended, unless one runs."""
    if not shutil.which("sbatch"):
        return  # submitted from elsewhere: the person's client runs where Slurm is
    folder = user_folder()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (folder / "slurm-client.log").open("ab") as out:
        subprocess.Popen(  # noqa: S603 - our own command
            [sys.executable, "-m", "weft", "slurm-client", LEAVES],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            cwd="/",
            start_new_session=True,  # it outlives this command and its terminal
            env={**os.environ, "WEFT_URL": client.url},
        )


@contextmanager
def only_one(client: ServiceClient) -> Iterator[bool]:
    """Hold the lock of this person and service; yield false if another client has it."""
    folder = user_folder()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    name = hashlib.sha256(client.url.encode()).hexdigest()[:16]
    with (folder / f"slurm-client-{name}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
            return
        yield True


def serve_batch_jobs(client: ServiceClient, say: Say, *, until_done: bool) -> None:
    """Do what the service asks for, until no job is left, or forever."""
    idle_since = time.monotonic()
    while True:
        try:
            work = client.post(BatchJobs, "/batch-jobs/take")
        except ServiceUnreachable as error:  # it may be restarting
            say(error.what)
            time.sleep(5 * ASK_S)
            continue
        for wanted in work.make:
            make_folders(client, wanted, say)
        for offer in work.submit:
            submit_batch_job(client, offer, say)
        for number in work.cancel:
            say(f"ending batch job {number}")
            end_batch_job(number)
        if work.left or work.submit or work.cancel or work.make:
            idle_since = time.monotonic()
        elif until_done and time.monotonic() - idle_since > LEAVE_S:
            return
        time.sleep(ASK_S / 10 if work.make else ASK_S)  # the batch job is there at once


def make_folders(client: ServiceClient, wanted: FoldersToMake, say: Say) -> None:
    """Make the folders of a job, for us and the group that the service's own folder gives them."""
    before = os.umask(0o007)
    try:
        for folder in wanted.folders:
            Path(folder).mkdir(mode=0o770, exist_ok=True)
    except OSError as error:
        refusal = f"a folder of the job cannot be made: {error}"
        say(refusal)
        with suppress(WeftError):  # the next one that makes them does
            client.post(Done, "/batch-jobs/report", {"secret": wanted.secret, "refusal": refusal})
    finally:
        os.umask(before)


def submit_batch_job(client: ServiceClient, offer: BatchJobToSubmit, say: Say) -> None:
    """Sbatch as the person that we are, and its report; what does not count is ended."""
    number, refusal = run_sbatch(offer.script)
    say(f"submitted batch job {number}" if number else f"sbatch refused a job: {refusal}")
    body = {"secret": offer.secret, "number": number, "refusal": refusal}
    try:
        client.post(Done, "/batch-jobs/report", body)
    except RequestRefused as error:
        say(f"batch job {number}: {error.what}")
        if number and error.status == WRONG:
            end_batch_job(number)
    except WeftError as error:  # the service finds it by its comment
        say(f"batch job {number} is not reported: {error.what}")


def run_sbatch(script: str) -> tuple[str, str]:
    """The number of the batch job, or why there is none; with what jobs get of our environment."""
    env = {**filter_environment(), **_own("SLURM_CONF")}
    try:
        done = subprocess.run(
            ["sbatch", "--parsable"],  # noqa: S607 - the site's own, wherever it is
            input=script,
            env=env,
            cwd="/",
            capture_output=True,
            text=True,
            timeout=SUBMIT_S,
            check=False,
        )
    except FileNotFoundError:
        raise InvalidConfig(
            "sbatch is not here", hint="run it where you submit jobs to Slurm: a login node"
        ) from None
    except subprocess.TimeoutExpired:
        return "", f"sbatch gave no answer within {SUBMIT_S:g} s"
    number = done.stdout.strip().partition(";")[0]
    if done.returncode == 0 and number.isdigit():
        return number, ""
    return "", (done.stderr.strip() or f"sbatch ended with {done.returncode}")[:1000]


def end_batch_job(number: str) -> None:
    """Kill its processes, then the job; fine for one that is not there."""
    if number.isdigit():
        for command in (["scancel", "--full", "--signal=KILL"], ["scancel"]):
            subprocess.run([*command, number], capture_output=True, check=False)  # noqa: S603


def _own(*names: str) -> dict[str, str]:
    return {name: os.environ[name] for name in names if name in os.environ}
