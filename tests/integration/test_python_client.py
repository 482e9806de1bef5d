"""The Python client against a service that runs real processes."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

import weft
from tests.integration.sent_function import train
from tests.integration.serving import API, serving
from tests.waiting import LIMIT_S
from weft.service.requests.job_file import JobFile
from weft_client import AsyncClient, Client, JobCancelled, JobFailed, Misused, NoResult, Refused
from weft_client.client import FIELDS
from weft_client.steps import patiently

GUIDE = Path(__file__).parents[2] / "docs" / "how-to" / "run-jobs-from-python.md"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    state = tmp_path_factory.mktemp("state")
    with serving("local:slots=3,warm=false", state, policy="fifo") as client:
        yield client


@pytest.fixture
def client(service: httpx.Client, tmp_path: Path) -> Iterator[Client]:
    with Client(str(service.base_url), calls=tmp_path / "calls") as client:
        yield client


def test_a_command_is_submitted_followed_and_looked_at(client: Client) -> None:
    job = client.submit([sys.executable, "-c", "print('one'); print('two')"], name="base")

    assert list(job.logs(follow=True)) == ["one", "two"]
    assert job.wait(LIMIT_S).state == "succeeded"
    assert job.result() is None
    assert client.job(job.id).status().name == "base"
    assert str(job.explain()) == "it has succeeded"
    assert job.id in [status.id for status in client.jobs(state="succeeded")]


def test_functions_return_values_and_raise_where_they_are_asked_for(client: Client) -> None:
    good = client.submit(train, 0.1, epochs=3, gpus=1)
    bad = client.submit(train, -1.0)
    both = client.map(train, [1, 2], gpus=1)

    assert good.result(LIMIT_S) == {"rate": 0.1, "epochs": 3}
    assert [job.result(LIMIT_S) for job in both] == [train(1), train(2)]
    with pytest.raises(ValueError, match=r"rate is -1\.0") as raised:
        bad.result(LIMIT_S)
    assert bad.id in raised.value.__notes__[0]
    assert bad.status().attempt == 1, "what raised would raise again"


def test_another_client_reads_a_result_only_from_its_own_folder(
    client: Client, service: httpx.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = client.submit(train, 0.5)
    job.wait(LIMIT_S)
    other = Client(str(service.base_url)).job(job.id)

    with pytest.raises(NoResult, match="is not in"):
        other.result()
    monkeypatch.setenv("WEFT_CALLS", str(tmp_path / "calls"))
    assert other.result() == train(0.5)


def test_a_command_that_fails_shows_its_last_lines(client: Client) -> None:
    job = client.submit("echo no data; exit 3", retries=0)

    with pytest.raises(JobFailed, match=r"(?s)failed: .*no data"):
        job.result(LIMIT_S)


def test_a_job_that_was_cancelled_says_so(client: Client) -> None:
    job = client.submit(["sleep", "1000"])
    with pytest.raises(TimeoutError, match=job.id):
        job.wait(0.0)
    job.cancel()

    with pytest.raises(JobCancelled):
        job.result(LIMIT_S)


def test_an_executor_runs_calls_as_jobs(client: Client) -> None:
    with client.executor(gpus=1) as executor:
        futures = {executor.submit(train, rate): rate for rate in (1.0, -2.0)}
        outcomes = {rate: future.exception(LIMIT_S) for future, rate in futures.items()}

    assert outcomes[1.0] is None
    assert isinstance(outcomes[-2.0], ValueError)
    assert len({future.job.status().fields["app"] for future in futures}) == 1
    with pytest.raises(RuntimeError):
        executor.submit(train, 1.0)


def test_a_sweep_is_a_table(client: Client, tmp_path: Path) -> None:
    file = tmp_path / "tune.json"
    file.write_text('{"command": ["echo", "${lr}"], "sweep": {"grid": {"lr": ["<b>", 0.1]}}}')

    sweep = client.sweep(file)

    assert {status.state for status in sweep.wait(LIMIT_S)} == {"succeeded"}
    assert [row["lr"] for row in sweep.rows()] == ["<b>", "0.1"]
    assert list(sweep.table()["state"]) == ["succeeded", "succeeded"]
    assert "&lt;b&gt;" in sweep._repr_html_()
    assert "<b>tune.0</b>" in sweep.jobs[0]._repr_html_()
    with pytest.raises(Misused, match="several jobs"):
        client.submit(file)


def test_coroutines_have_the_same_client(service: httpx.Client, tmp_path: Path) -> None:
    async def use() -> tuple[object, list[str]]:
        async with AsyncClient(str(service.base_url), calls=tmp_path) as client:
            job = await client.submit(train, 2.0)
            value = await job.result(LIMIT_S)
            return value, [line async for line in job.logs()]

    assert asyncio.run(use()) == (train(2.0), ["training at 2.0"])


def test_coroutines_that_wait_take_no_thread_from_others(
    service: httpx.Client, tmp_path: Path
) -> None:
    async def use() -> tuple[str, list[str]]:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        async with AsyncClient(str(service.base_url), calls=tmp_path) as client:
            job = await client.submit("echo begun; sleep 1000")

            async def read() -> list[str]:
                return [line async for line in job.logs(follow=True)]

            waiting, reading = asyncio.create_task(job.wait(LIMIT_S)), asyncio.create_task(read())
            await asyncio.sleep(0.0)  # both have begun
            await job.cancel()
            return (await waiting).state, await reading

    state, lines = asyncio.run(use())
    assert state == "cancelled"
    assert lines in ([], ["begun"])


def test_a_sweep_can_be_awaited(service: httpx.Client, tmp_path: Path) -> None:
    async def use() -> list[str]:
        async with AsyncClient(str(service.base_url), calls=tmp_path) as client:
            grid = {"command": ["echo", "${lr}"], "sweep": {"grid": {"lr": [1, 2]}}}
            sweep = await client.sweep(grid)
            statuses = await sweep.wait(LIMIT_S)
            assert len(await sweep.table()) == len(sweep.jobs)
            return [status.state for status in statuses]

    assert asyncio.run(use()) == ["succeeded"] * 2


@pytest.mark.parametrize("path", ["/jobs", "/jobs/batch"])
def test_a_submission_with_the_same_key_is_one_job(service: httpx.Client, path: str) -> None:
    def send(key: str, *words: str) -> httpx.Response:
        body: dict[str, object] = {"command": ["true", *words], "gpus": 0}
        body = {"jobs": [body, body]} if path == "/jobs/batch" else body
        return service.post(API + path, json=body, headers={"Idempotency-Key": key + path})

    first, again, other = send("a"), send("a"), send("b")

    assert first.status_code == again.status_code == 201
    assert first.json() == again.json()
    assert first.json() != other.json()
    assert send("a", "more").status_code == 409
    assert send("x" * 300).status_code == 422


def test_mistakes_are_named_before_anything_is_sent(client: Client) -> None:
    def size(gpus: int) -> int:
        return gpus

    with pytest.raises(Misused, match=r"(?s)'gpu'.*did you mean 'gpus'"):
        client.submit(["true"], gpu=1)
    with pytest.raises(Misused, match="a parameter of size and a field of the job"):
        client.submit(size, gpus=1)
    with pytest.raises(Refused, match="none-such"):
        client.submit(["true"], kinds=["none-such"])


def test_the_guide_runs_as_written(
    service: httpx.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEFT_URL", str(service.base_url))
    monkeypatch.setenv("WEFT_CALLS", str(tmp_path))
    blocks = re.findall(r"^```py\n(.*?)^```$", GUIDE.read_text(), re.DOTALL | re.MULTILINE)
    script = tmp_path / "guide.py"
    script.write_text("\n".join(blocks))

    printed = subprocess.check_output([sys.executable, script], text=True, cwd=tmp_path)

    assert printed.startswith("training\nsucceeded\n{'rate': 0.1, 'loss': 3.3")
    assert printed.endswith("{'rate': 0.5, 'loss': 2.0}\n")


def test_the_fields_of_a_job_are_those_that_the_service_takes() -> None:
    assert set(JobFile.model_fields) == FIELDS


def test_a_service_that_is_away_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    from weft_client.errors import Unreachable

    answers = iter([Unreachable("away"), Unreachable("away"), None])
    monkeypatch.setattr("weft_client.steps.time.sleep", lambda _: None)

    def ask() -> str:
        if error := next(answers):
            raise error
        return "here"

    assert patiently(ask) == "here"


def test_an_import_loads_nothing_that_takes_time() -> None:
    script = "import sys, weft_client; print(*{'http.client', 'ssl', 'numpy'} & set(sys.modules))"

    printed = subprocess.check_output([sys.executable, "-c", script], text=True)

    assert printed.split() == []
    assert weft.Client is Client
