"""Text of an attacker in every view of the page and in every report: all of it is shown as text.

The page is also shown with a text of the attacker at the end of every text that the service
answers, and without its content security policy: what holds then holds for fields to come.
"""

from __future__ import annotations

import csv
import json
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from playwright.sync_api import Browser, Dialog, Page, expect

import weft
from tests.browser.conftest import PATIENCE_MS
from tests.integration.serving import API, serving, submit
from tests.waiting import wait_until
from weft.judge.books import TenantAccount
from weft.judge.finding import LAWFUL, Finding
from weft.judge.judge import Verdict
from weft.judge.page import write_page
from weft.report.html import write_report
from weft.service.routes.people.pages import find_file
from weft_client.cards import job_card, sweep_card
from weft_client.job import JobStatus

IMAGE = "<img src=x onerror=struck()>"
NAME = f"{IMAGE}</script><script>struck()</script>\"'><a href=javascript:struck()>x</a>"
WRITTEN = (
    f"{NAME}<svg onload=struck()><script>struck()</script></svg> [m](javascript:struck())"
    " `<b onclick=struck()>` <p style='background:url(//127.0.0.1:9/)'>${struck()}{{struck()}}"
    "<iframe srcdoc='<script>parent.struck()</script>'></iframe><base href='//127.0.0.1:9/'>"
)
PRINTS = """
import sys
for step in range(9):
    print(f"{sys.argv[1]} step={step} loss={1 / (step + 1)}", flush=True)
"""
STRUCK = "window.struck = () => { document.documentElement.dataset.struck = 1; };"
# Words by which the page chooses what it shows.
KEPT = ("state", "role", "unit", "better")
KEYED = ("parameters", "metrics", "policies", "sides", "never", "env")
EVERY_TEXT = f"""
const written = {json.dumps(WRITTEN)}, kept = {json.dumps(KEPT)}, keyed = {json.dumps(KEYED)};
const parse = JSON.parse, ask = window.fetch;
const add = (key, value) => {{
  if (typeof value === "string") return kept.includes(key) ? value : value + written;
  if (!keyed.includes(key) || !value || Array.isArray(value)) return value;
  return Object.fromEntries(Object.entries(value).map(([name, held]) => [name + written, held]));
}};
JSON.parse = (text) => parse(text, add);
Response.prototype.json = async function () {{ return JSON.parse(await this.text()); }};
const coded = [encodeURIComponent(written), `${{new URLSearchParams({{ "": written }})}}`.slice(1)];
coded.push(JSON.stringify(written).slice(1, -1));
const without = (text) => coded.reduce((left, one) => left.replaceAll(one, ""), text);
window.fetch = (path, options) =>
  ask(without(path), options?.body ? {{ ...options, body: without(options.body) }} : options);
"""
ALIVE = """() => [...document.querySelectorAll("*")].filter((one) =>
  one.matches("iframe, object, embed, base, img[src=x]")
  || (one.localName === "script" && one.textContent.trim().startsWith("struck"))
  || [...one.attributes].some(({ name, value }) => name.startsWith("on")
    || /^javascript:/i.test(value) || (name === "style" && value.includes("127.0.0.1")))
).map((one) => one.outerHTML.slice(0, 200))"""


class Watched:
    """A page that notes what an attacker would have made it do."""

    def __init__(self, page: Page, address: str) -> None:
        self.page, self.strikes = page, list[str]()
        page.on("dialog", self._asked)
        page.on("pageerror", lambda error: self.strikes.append(str(error)))
        page.on("request", lambda request: self._heard(request.url, address))

    def _asked(self, dialog: Dialog) -> None:
        self.strikes.append(dialog.message)
        dialog.dismiss()

    def _heard(self, url: str, address: str) -> None:
        if not url.startswith((address, "data:", "blob:")):
            self.strikes.append(url)

    def check(self) -> None:
        """Nothing of the attacker's ran, and no element is of theirs."""
        assert self.page.evaluate(ALIVE) == []
        assert self.page.evaluate("document.documentElement.dataset.struck") is None
        assert self.strikes == []


def views() -> list[str]:
    """Names of all views, from the page's own table."""
    table = find_file("js/main.js").body.decode().partition("const VIEWS = {")[2]
    return re.findall(r'^  "?([a-z-]+)"?: \{', table.partition("\n};")[0], re.MULTILINE)


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    state = tmp_path_factory.mktemp("state")
    with serving("local:cpu=true,slots=2,warm=false", state, "fifo") as client:
        yield client


@pytest.fixture(scope="module")
def parts(client: httpx.Client) -> dict[str, str]:
    """What each view that shows one thing shows: an attacker's, with a log and curves."""
    command = [sys.executable, "-c", PRINTS, WRITTEN]
    fields: dict[str, Any] = {"name": NAME, "user": NAME, "model": NAME, "metrics": ["loss"]}
    ended = submit(client, command=command, env={"<script>struck()</script>": WRITTEN}, **fields)
    swept = {"grid": {"word": [WRITTEN, IMAGE]}}
    answer = client.post(f"{API}/jobs", json={"command": command, "sweep": swept, **fields})
    sweep = answer.raise_for_status().json()
    jobs = [ended, *sweep["jobs"]]
    wait_until(
        lambda: {client.get(f"{API}/jobs/{job}").json()["state"] for job in jobs} == {"succeeded"}
    )
    failed = submit(client, command=["false"], name=NAME, user=NAME)
    wait_until(lambda: client.get(f"{API}/jobs/{failed}").json()["state"] == "failed")
    submit(client, command=["sleep", "600"], name=NAME, gpus=2)
    submit(client, command=["true"], name=NAME, gpus=2)
    (node,) = client.get(f"{API}/nodes").json()["nodes"]
    return {"job": ended, "sweep": sweep["id"], "node": node["id"], "compare": ended}


def use(view: str, page: Page) -> None:
    """Ask for what a view shows only then."""
    if view == "cluster":
        expect(page.get_by_role("region", name="What needs you")).to_contain_text(IMAGE)
        page.get_by_role("application").focus()
        page.get_by_role("application").press("End")
        expect(page.locator(".tip")).to_contain_text(IMAGE)
    elif view == "what-if":
        page.get_by_role("button", name="From now on").click()
        page.get_by_label("More machines").fill("1x2:cpu")
        page.get_by_role("button", name="Simulate both").click()
        expect(page.get_by_role("region", name="Numbers side by side")).to_be_visible()
    elif view == "submit":
        page.get_by_label("Command, not run by a shell").fill("true")
        expect(page.get_by_text(re.compile("^Would (start now|wait)$"))).to_be_visible()
    elif view == "job":
        expect(page.locator("pre.log")).to_contain_text(IMAGE)
        page.get_by_role("button", name="Submit again …").click()
        expect(page.get_by_role("dialog")).to_contain_text(IMAGE)
        page.keyboard.press("Escape")


SILENT = ("audit", "submit", "tenants", "policies", "what-if")  # where no one may write


@pytest.mark.parametrize("everywhere", [False, True])
def test_no_view_runs_what_an_attacker_wrote(
    browser: Browser, client: httpx.Client, parts: dict[str, str], *, everywhere: bool
) -> None:
    context = browser.new_context(bypass_csp=True)
    context.set_default_timeout(PATIENCE_MS)
    context.add_init_script(STRUCK + EVERY_TEXT * everywhere)
    address = str(client.base_url)
    watched = Watched(page := context.new_page(), address)
    more = WRITTEN * everywhere
    unknown = [("job", f"x{WRITTEN}"), (WRITTEN, "")]
    for view, part in [*((view, parts.get(view, "")) for view in views()), *unknown]:
        known = WRITTEN not in view + part
        words = (view, part + more * known) if part else (view,)
        page.goto("about:blank")  # else the view before could be taken for this one
        place = "/".join(quote(word, safe="") for word in words)
        page.goto(f"{address}#/{f'compare?jobs={part}' if view == 'compare' else place}")
        expect(page.locator("main :is(.panel, .empty, .problem)").first).to_be_visible()
        expect(page.locator("main .loading")).to_have_count(0)
        if known:
            use(view, page)
        page.evaluate("document.querySelectorAll('details').forEach((one) => (one.open = true))")
        if known and (everywhere or view not in SILENT):
            expect(page.locator("main")).to_contain_text(IMAGE)
        watched.check()
    context.close()


def write_compared(path: Path) -> None:
    """Compare two policies on jobs, users and machines whose names are an attacker's."""
    trace = path.with_suffix(".csv")
    with trace.open("w", newline="") as out:
        rows = csv.writer(out)
        rows.writerow(("id", "user", "submit_s", "num_gpus", "duration_s"))
        rows.writerows((f"{WRITTEN}{n}", WRITTEN, n, 1 + n % 2, 60 + n) for n in range(8))
    result = weft.compare(trace, ["fifo", "srtf"], cluster="1x2:v100")
    named = {f"{policy}{WRITTEN}": each for policy, each in result.outcomes.items()}
    hostile = replace(result, workload=WRITTEN, cluster=WRITTEN, outcomes=named)
    write_report(hostile, path, title=WRITTEN, command=WRITTEN)
    path.with_name("table.html").write_text(hostile._repr_html_())


def write_judged(path: Path) -> None:
    """A verdict on a log whose texts are an attacker's."""
    finding = Finding(LAWFUL, WRITTEN, 1.0, 1, (WRITTEN,), WRITTEN)
    verdict = Verdict(
        WRITTEN, 3, 0.0, 9.0, True, (finding,), {(WRITTEN, WRITTEN): (2, 1)}, ((0.0, 2.0, 1.0),),
        {LAWFUL: {WRITTEN: 1.0}}, {}, {WRITTEN: TenantAccount(1, 5.0, 5.0, 5.0)},
    )  # fmt: skip
    path.write_text(write_page(verdict))


def write_cards(path: Path) -> None:
    """A job and a sweep as a notebook shows them."""
    fields = dict.fromkeys(("id", "name", "state", "reason"), WRITTEN)
    more = {"attempt": 1, "progress": 0.5, "gpu_seconds": 1.0, "parameters": {WRITTEN: WRITTEN}}
    status = JobStatus.of({**fields, **more})
    path.write_text(job_card(status) + sweep_card(WRITTEN, [status]))


@pytest.mark.parametrize("write", [write_compared, write_judged, write_cards])
def test_no_report_runs_what_an_attacker_wrote(
    browser: Browser, tmp_path: Path, write: Callable[[Path], None]
) -> None:
    write(path := tmp_path / "report.html")
    context = browser.new_context()
    context.set_default_timeout(PATIENCE_MS)
    context.add_init_script(STRUCK)
    watched = Watched(page := context.new_page(), "file://")
    for shown in (path, path.with_name("table.html")):
        if shown.exists():
            page.goto(f"file://{shown}")
            if (chart := page.locator(".plot:visible")).count():
                expect(page.locator(".plot:visible .main-svg").first).to_be_attached()
                chart.last.hover()
            expect(page.locator("body")).to_contain_text(IMAGE)
            watched.check()
    context.close()
