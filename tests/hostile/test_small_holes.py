"""Small things that a stranger, a tenant or a job could do to others, each closed with its like."""

from __future__ import annotations

import resource
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import get_type_hints

import httpx
import pytest
from fastapi.routing import APIRoute
from starlette.datastructures import Headers

import weft.service
from tests.integration.serving import API, serving
from weft.app.serve.private_file import write_private
from weft.base.errors import WireError
from weft.core.codec.event_lines import readable_line
from weft.core.errors import StoreError
from weft.core.events.event import PolicyChanged
from weft.core.spec.registry import read_spec
from weft.node.attempt_log import BURST, Journal
from weft.service.access.page_sessions import COOKIE, MOST_OF_ONE, PageSessions
from weft.service.access.tokens import TokenFile
from weft.service.budget.intake import ENDLESS
from weft.service.routes import API as ROUTERS
from weft.service.routes.jobs.sessions import Duplex
from weft.wire.terminal import RESIZE, Frames, read_window, window


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    with serving() as serving_client:
        yield serving_client


def test_every_session_may_last_longer_than_a_body_may_take() -> None:
    """Shells ended after half a minute: their route was not named."""
    sessions = [
        route.path
        for router in ROUTERS
        for route in router.routes
        if isinstance(route, APIRoute) and get_type_hints(route.endpoint).get("return") is Duplex
    ]

    assert len(sessions) >= 3
    for path in sessions:
        assert ENDLESS.fullmatch(path.replace("{job_id}", "x").replace("{port}", "8080")), path


def test_signing_in_again_and_again_signs_nobody_else_out() -> None:
    tokens = TokenFile(None)
    ann, ben = (tokens.create("admin", "", name)[0].caller for name in ("ann", "ben"))
    sessions = PageSessions(None, tokens)
    hers = sessions.begin(ann)

    his = [sessions.begin(ben) for _ in range(1_005)]

    def is_in(secret: str) -> bool:
        headers = Headers({"cookie": f"{COOKIE}={secret}", "x-weft-page": "1"})
        return sessions.caller_of(headers) is not None

    assert is_in(hers)
    assert sum(map(is_in, his)) == MOST_OF_ONE
    assert is_in(his[-1])


@pytest.mark.parametrize(
    "text", ["las:thresholds=1e999", "las:thresholds=5/inf", "las:quantum=inf"]
)
def test_an_infinite_parameter_can_be_written_to_the_log(text: str) -> None:
    event = PolicyChanged(read_spec("policy", text))

    assert '"inf"' in readable_line(1.0, event)


def test_such_a_policy_is_taken_by_a_service(client: httpx.Client) -> None:
    answer = client.put(f"{API}/policy", json={"policy": "las:thresholds=1e999"})

    assert answer.status_code == 200, answer.text


def test_a_file_that_cannot_be_written_is_said_and_stays_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    write_private(path, ["before"])
    program = f"""
import resource, signal, sys
from pathlib import Path
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (64, 64))
from weft.app.serve.private_file import write_private
from weft.core.errors import StoreError
try:
    write_private(Path({str(path)!r}), ["x" * 1000])
except StoreError as error:
    print(error)
"""

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)

    assert "tokens.json cannot be written" in done.stdout, done.stderr
    assert path.read_text() == '[\n "before"\n]'
    assert [entry.name for entry in tmp_path.iterdir()] == ["tokens.json"]


def test_a_token_that_cannot_be_kept_is_refused_not_an_error_of_ours(
    client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise StoreError("tokens.json cannot be written: No space left on device")

    monkeypatch.setattr(TokenFile, "_keep", fail)

    answer = client.post(f"{API}/tokens", json={"role": "admin"})

    assert answer.status_code == 503
    assert "No space left" in answer.json()["error"]


def test_a_worker_starts_where_less_memory_is_allowed_than_it_would_take() -> None:
    program = """
import asyncio, resource
resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))
from weft.runtime.deciding.decider import InWorker
async def life():
    worker = InWorker(memory_gb=4.0)
    await worker.start()
    print("started", worker.pid is not None)
    await worker.close()
asyncio.run(life())
"""

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)

    assert done.stdout.strip() == "started True", done.stderr[-500:]
    assert resource.getrlimit(resource.RLIMIT_AS)[1] == resource.RLIM_INFINITY


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://elsewhere.example"},
        {"Origin": "http://localhost:9999"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_without_tokens_no_other_page_drains_a_node(
    client: httpx.Client, headers: dict[str, str]
) -> None:
    node = client.get(f"{API}/nodes").json()["nodes"][0]["id"]

    foreign = client.post(f"{API}/nodes/{node}/drain", headers=headers)
    own = {"Origin": str(client.base_url).rstrip("/"), "Sec-Fetch-Site": "same-origin"}
    ours = client.post(f"{API}/nodes/{node}/undrain", headers=own)

    assert foreign.status_code == 403
    assert ours.status_code == 200, ours.text


@pytest.mark.parametrize("path", ["/healthz", f"{API}/jobs", f"{API}/nothing", "/", "/metrics"])
def test_every_answer_is_what_it_says_it_is(client: httpx.Client, path: str) -> None:
    answer = client.get(path)

    assert answer.headers.get_list("x-content-type-options") == ["nosniff"]


def test_what_a_job_says_of_itself_does_not_fill_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.fsync", lambda _: None)
    with closing(Journal(tmp_path, "")) as journal:
        for _ in range(300):
            journal.write("report", text="x" * 100_000)
        journal.write("exited", code=0)

    written = (tmp_path / "events.jsonl").read_bytes()
    assert BURST / 2 < len(written) < BURST + 200_000
    assert written.splitlines()[-1].endswith(b'"event":"exited","code":0}')


@pytest.mark.parametrize("size", [(-1, -1), (0, 0), (10**9, 10**9), (24, 80)])
def test_a_window_of_any_size_is_one_that_a_terminal_takes(size: tuple[int, int]) -> None:
    ((kind, payload),) = Frames().feed(window(*size))

    assert kind == RESIZE
    struct.pack("HH", *read_window(payload))


@pytest.mark.parametrize("payload", [b"", b"1", b"1 2 3", b"a b"])
def test_what_is_no_size_is_an_error_of_who_sent_it(payload: bytes) -> None:
    with pytest.raises(WireError):
        read_window(payload)


def test_names_in_an_address_are_looked_up_among_our_own_alone() -> None:
    """`#/__proto__` and `?colour=constructor` found what every object has."""
    web = Path(weft.service.__file__).parent / "web" / "js"

    assert "const VIEWS = {\n  __proto__: null" in (web / "main.js").read_text()
    for script in web.rglob("*.js"):
        assert "[route.query." not in script.read_text(), script
