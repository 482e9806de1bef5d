"""The page while the service it shows is killed, and comes back with its jobs."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
from playwright.sync_api import expect

from tests.browser.conftest import Open
from tests.integration.serving import API, submit
from tests.waiting import LIMIT_S, read_address, wait_until


@contextmanager
def weft_serve(state: Path, port: int = 0) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The service as people start it, with its address."""
    engine = "local:cpu=true,slots=2,warm=false"
    options = ["--engine", engine, "--state", str(state), "--port", str(port)]
    service = subprocess.Popen(
        [sys.executable, "-m", "weft", "serve", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert service.stdout is not None
    try:
        yield service, read_address(service)
    finally:
        service.kill()
        service.wait(LIMIT_S)
        service.stdout.close()


def test_the_page_shows_the_same_jobs_after_a_kill(tmp_path: Path, open_page: Open) -> None:
    state = tmp_path / "state"
    with weft_serve(state) as (service, address):
        with httpx.Client(
            base_url=address, timeout=LIMIT_S, trust_env=False, verify=False
        ) as client:
            job = submit(client, name="outlives", gpus=1, command=["sleep", "600"])
            wait_until(lambda: client.get(f"{API}/jobs/{job}").json()["state"] == "running")
        page = open_page(f"{address}#/jobs")
        row = page.get_by_role("row", name=re.compile("outlives"))
        expect(row).to_contain_text("running")

        service.kill()

        expect(page.get_by_text("The service does not answer.")).to_be_visible()
        expect(row).to_contain_text("running")

    with (
        weft_serve(state, int(address.rpartition(":")[2])) as (_, again),
        httpx.Client(base_url=again, timeout=LIMIT_S, trust_env=False, verify=False) as client,
    ):
        assert again == address
        expect(page.get_by_text("The service does not answer.")).to_have_count(0)
        expect(row).to_contain_text("running")
        answer = client.get(f"{API}/jobs/{job}").json()
        assert (answer["state"], answer["attempt"]) == ("running", 1)
        submit(client, name="afterwards", gpus=1, command=["true"])
        page.get_by_label("State").select_option("all")
        expect(page.get_by_role("row", name=re.compile("afterwards"))).to_contain_text("succeeded")

        page.get_by_role("link", name="outlives").click()
        page.get_by_role("button", name="Cancel …").click()
        page.get_by_role("button", name="Cancel the job").click()
        expect(page.locator("main .badge").first).to_contain_text("cancelled")
        wait_until(lambda: not list((state / "live").glob("*")))
        page.close()
