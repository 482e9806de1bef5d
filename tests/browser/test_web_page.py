"""The web page in a real browser, on the simulated engine."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import expect

import weft
from tests.browser.conftest import Open
from tests.integration.serving import API, FAST, STILL, Running, bearer, serving, submit, token
from tests.waiting import wait_until
from weft.app.serve.live import Settings

AXE = (Path(__file__).parent / "vendor" / "axe.min.js").read_text(encoding="utf-8")
MARKUP = "<img src=x onerror=alert(1)>\u202e\u001b[31m"


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    with serving(STILL) as client:
        yield client


def test_jobs_appear_as_they_are_handed_in_and_a_job_can_be_cancelled(
    client: httpx.Client, open_page: Open
) -> None:
    page = open_page(f"{client.base_url}#/jobs")
    expect(page.get_by_role("heading", name="Jobs", exact=True)).to_be_visible()

    made = submit(client, name="watched", gpus=2, tenant="vision")

    row = page.get_by_role("row", name=re.compile("watched"))
    expect(row).to_contain_text("running")
    row.get_by_role("link", name="watched").click()
    expect(page).to_have_url(re.compile(f"#/job/{made}"))
    page.get_by_role("button", name="Cancel …").click()
    page.get_by_role("button", name="Cancel the job").click()
    expect(page.locator("main .badge").first).to_contain_text("cancelled")
    assert client.get(f"{API}/jobs/{made}").json()["state"] == "cancelled"


def test_chosen_jobs_are_suspended_resumed_and_given_another_priority(open_page: Open) -> None:
    with serving("simulated:cluster=1x4:a100,speed=20", policy="fifo") as client:
        hours = {"duration_s": 1e7}
        jobs = [submit(client, name=name, gpus=2, hints=hours) for name in ("left", "right")]
        page = open_page(f"{client.base_url}#/jobs")
        for name in ("left", "right"):
            expect(page.get_by_role("row", name=re.compile(name))).to_contain_text("running")

        page.get_by_label("Choose all").check()
        page.get_by_role("button", name="Suspend …").click()
        page.get_by_role("button", name="Suspend 2 jobs").click()
        for name in ("left", "right"):
            row = page.get_by_role("row", name=re.compile(name))
            expect(row).to_contain_text("suspended by its owner")
        page.get_by_label("Choose all").check()
        page.get_by_label("Priority").select_option("opportunistic")
        page.get_by_role("button", name="Change the priority of 2 jobs").click()
        wait_until(lambda: _priorities(client, jobs) == ["opportunistic"] * 2)

        page.get_by_role("link", name="right").click()
        expect(page.get_by_text("lets it continue")).to_be_visible()
        page.get_by_role("button", name="Resume …").click()
        page.get_by_role("button", name="Resume the job").click()
        expect(page.locator("main .badge").first).to_contain_text("running")
        page.get_by_label("Priority").select_option("normal")
        page.get_by_role("button", name="Change the priority of the job").click()
        expect(page.get_by_label("Priority")).to_have_value("normal")
        assert client.get(f"{API}/jobs/{jobs[0]}").json()["state"] == "suspended"
        page.close()


def test_who_submits_a_job_with_secrets_again_brings_their_own(
    client: httpx.Client, open_page: Open
) -> None:
    env = {"MINE": "first", "THREADS": "4"}
    job = submit(client, name="secretive", gpus=1, run="sleep 9", env=env, secrets=["MINE"])
    page = open_page(f"{client.base_url}#/job/{job}")

    page.get_by_role("button", name="Submit again …").click()
    page.get_by_role("button", name="Submit again", exact=True).click()
    expect(page.locator(".toast.bad")).to_contain_text("values of variables are not copied: MINE")

    page.get_by_role("button", name="Submit again …").click()
    page.get_by_label("MINE").fill("second")
    page.get_by_role("button", name="Submit again", exact=True).click()
    expect(page).not_to_have_url(re.compile(f"{job}$"))
    made = page.url.rpartition("/")[2]
    assert client.get(f"{API}/jobs/{made}/file").json()["job"]["env"].keys() == env.keys()
    assert client.get(f"{API}/jobs/{made}").json()["state"] != "failed"


def _priorities(client: httpx.Client, jobs: list[str]) -> list[str]:
    return [client.get(f"{API}/jobs/{job}").json()["priority"] for job in jobs]


def test_the_map_tells_who_is_on_a_gpu_by_keyboard(client: httpx.Client, open_page: Open) -> None:
    submit(client, name="mapped", gpus=4, kinds=["t4"], tenant="speech")
    page = open_page(f"{client.base_url}#/cluster")
    grid = page.get_by_role("application")

    grid.focus()
    grid.press("End")

    expect(page.locator(".tip")).to_contain_text("mapped")
    expect(page.locator(".tip")).to_contain_text("speech")
    grid.press("Enter")
    expect(page.get_by_role("heading", name="mapped")).to_be_visible()


def test_what_a_person_typed_is_shown_as_text(client: httpx.Client, open_page: Open) -> None:
    name = MARKUP.encode("ascii", "ignore").decode().replace("\u001b", "")
    submit(client, name=name, gpus=1, tenant="speech")

    page = open_page(f"{client.base_url}#/jobs?q=onerror")

    link = page.get_by_role("link", name=name, exact=True)
    expect(link).to_be_visible()
    link.click()
    expect(page.get_by_role("heading", name=name, exact=True)).to_be_visible()
    assert not page.locator("main img").count()


def test_the_filter_is_in_the_address(client: httpx.Client, open_page: Open) -> None:
    submit(client, name="kept", gpus=1, tenant="speech")
    submit(client, name="other", gpus=1, tenant="vision")
    page = open_page(f"{client.base_url}#/jobs")

    page.get_by_label("Filter by words").fill("kept")
    page.get_by_label("Tenant").select_option("speech")

    expect(page.get_by_role("link", name="kept").first).to_be_visible()
    expect(page.get_by_role("link", name="other")).to_have_count(0)
    again = open_page(page.url)
    expect(again.get_by_role("link", name="kept").first).to_be_visible()
    expect(again.get_by_role("link", name="other")).to_have_count(0)


def test_a_filter_is_saved_by_name_used_again_and_forgotten(
    client: httpx.Client, open_page: Open
) -> None:
    submit(client, name="saved", gpus=1, tenant="speech")
    submit(client, name="unsaved", gpus=1, tenant="vision")
    page = open_page(f"{client.base_url}#/jobs?tenant=speech")
    page.on("dialog", lambda dialog: dialog.accept("speech only"))
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_label("Saved filters")).to_have_value("speech only")

    again = open_page(f"{client.base_url}#/jobs")
    expect(again.get_by_role("link", name="unsaved").first).to_be_visible()
    again.get_by_label("Saved filters").select_option("speech only")
    expect(again.get_by_role("link", name="unsaved")).to_have_count(0)
    expect(again).to_have_url(re.compile("tenant=speech"))
    again.get_by_role("button", name="Forget").click()

    expect(again.get_by_label("Saved filters")).to_have_count(0)
    again.reload()
    expect(again.get_by_role("heading", name="Jobs", exact=True)).to_be_visible()
    expect(again.get_by_label("Saved filters")).to_have_count(0)


def test_a_what_if_shows_what_never_starts_and_a_long_one_is_stopped(open_page: Open) -> None:
    with serving(STILL, policy="fifo") as client:
        for _ in range(4):  # one more than there is room for
            submit(client, gpus=4, tenant="vision", share="never", hints={"duration_s": 600})
        page = open_page(f"{client.base_url}#/what-if")
        page.get_by_role("button", name="From now on").click()
        page.get_by_label("More machines").fill("1x4:a100")
        page.get_by_label("Other limits of tenants").fill("vision=3")
        page.get_by_role("button", name="Simulate both").click()
        expect(page.get_by_text("never starts (1)")).to_be_visible()
        expect(page.get_by_text("more than the 3 GPUs").first).to_be_visible()

        page.route("**/what-if/stream", lambda _: None)  # never answered
        page.get_by_role("button", name="Simulate both").click()
        expect(page.get_by_role("status", name="Progress")).to_be_visible()
        page.get_by_role("button", name="Stop").click()

        expect(page.get_by_role("button", name="Simulate both")).to_be_enabled()
        expect(page.get_by_role("status", name="Progress")).to_have_count(0)
        page.close()


def test_a_tenant_signs_in_and_sees_no_job_of_another(open_page: Open) -> None:
    with serving(STILL) as client:
        submit(client, name="theirs", gpus=4, tenant="speech")
        admin = token(client, "admin")
        mine = token(client, "user", "vision", by=admin)
        body = {"name": "ours", "gpus": 1}
        assert client.post(f"{API}/jobs", json=body, headers=bearer(mine)).status_code == 201
        page = open_page(str(client.base_url))

        page.get_by_label("Token").fill("weft_wrong")
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("alert")).to_contain_text("not known here")
        page.get_by_label("Token").fill(mine)
        page.get_by_role("button", name="Sign in").click()

        page.get_by_role("link", name="Jobs").click()
        expect(page.get_by_role("link", name="ours")).to_be_visible()
        expect(page.get_by_text("theirs")).to_have_count(0)
        stored = "[document.cookie, JSON.stringify({...localStorage, ...sessionStorage})].join()"
        assert mine not in page.evaluate(stored) and mine not in page.url
        page.reload()
        expect(page.get_by_role("link", name="ours")).to_be_visible()
        page.get_by_role("button", name="Sign out").click()
        expect(page.get_by_label("Token")).to_be_visible()
        page.close()


def test_the_page_comes_back_with_the_service(open_page: Open) -> None:
    first = Running(Settings(engine=STILL, port=0))
    address = first.begin()
    port = int(address.rpartition(":")[2])
    with httpx.Client(base_url=address, trust_env=False, verify=False) as client:
        submit(client, name="before", gpus=1)
    page = open_page(f"{address}#/jobs")
    expect(page.get_by_role("link", name="before")).to_be_visible()

    first.end()
    expect(page.get_by_text("The service does not answer.")).to_be_visible()
    second = Running(Settings(engine=STILL, port=port))
    second.begin()
    with httpx.Client(base_url=address, trust_env=False, verify=False) as client:
        submit(client, name="after", gpus=1)

    expect(page.get_by_role("link", name="after")).to_be_visible()
    expect(page.get_by_role("link", name="before")).to_have_count(0)
    page.close()
    second.end()


def test_a_form_tells_what_would_happen_before_it_is_sent(
    client: httpx.Client, open_page: Open
) -> None:
    page = open_page(f"{client.base_url}#/submit")
    page.get_by_label("Name", exact=True).fill("from-the-page")
    page.get_by_label("Command, not run by a shell").fill("python train.py --lr '1 e-3'")
    page.get_by_label("Tenant").fill("vision")

    page.get_by_label("GPUs", exact=True).fill("9")
    expect(page.get_by_role("alert")).to_contain_text("there are 8")
    page.get_by_label("GPUs", exact=True).fill("1")
    expect(page.get_by_text("Would start now")).to_be_visible()
    page.get_by_role("button", name="Submit").click()

    expect(page.get_by_role("heading", name="from-the-page")).to_be_visible()
    expect(page.locator("main .badge").first).to_contain_text(re.compile("starting|running"))
    job = page.url.rpartition("/")[2]
    words = client.get(f"{API}/jobs/{job}").json()["command"]
    assert words == ["python", "train.py", "--lr", "1 e-3"]


def test_a_waiting_job_starts_by_the_cheapest_change(open_page: Open) -> None:
    with serving("simulated:cluster=1x4:a100,speed=1") as client:
        submit(client, name="first", gpus=3, hints={"duration_s": 6000}, command=["true"])
        waits = submit(client, name="second", gpus=2, preemptible=False, command=["true"])
        page = open_page(f"{client.base_url}#/job/{waits}")
        expect(page.get_by_text("The cheapest change that would start it now")).to_be_visible()

        page.get_by_role("button", name="Change and start …").click()
        page.get_by_role("button", name="Change and start", exact=True).click()

        expect(page).not_to_have_url(re.compile(waits))
        expect(page.get_by_role("heading", name="second")).to_be_visible()
        expect(page.locator("main .badge").first).to_contain_text("running")
        assert client.get(f"{API}/jobs/{waits}").json()["state"] == "cancelled"
        page.close()


def test_an_admin_switches_the_policy_and_tries_another_on_the_past(open_page: Open) -> None:
    with serving(FAST, policy="fifo") as client:
        jobs = [submit(client, gpus=4, hints={"duration_s": 300}) for _ in range(6)]
        wait_until(lambda: client.get(f"{API}/jobs/{jobs[-1]}").json()["state"] == "succeeded")
        page = open_page(f"{client.base_url}#/policies?q=srtf")

        page.get_by_role("button", name="Use …").first.click()
        page.get_by_role("button", name="Switch the policy").click()
        expect(page.get_by_text("decides now")).to_be_visible()
        expect(page.locator("header .pulse").first).to_contain_text("srtf")
        page.get_by_role("link", name="What if").click()
        page.get_by_label("Another policy").select_option("las")
        page.get_by_role("button", name="Simulate both").click()

        expect(page.get_by_role("region", name="Numbers side by side")).to_contain_text("las")
        expect(page.get_by_text("6 jobs simulated each time")).to_be_visible()
        assert client.get(f"{API}/policy").json()["policy"] == "srtf"
        page.close()


def test_a_node_has_a_page_and_phones_show_names_and_reasons(open_page: Open) -> None:
    with serving("simulated:cluster=2x4:a100,speed=0.001", policy="fifo") as client:
        held = {"hints": {"duration_s": 9000}}
        longer = "a-name-that-is-longer-than-any-phone-is-wide-and-then-some-seed-"
        first = submit(client, name="a-long-name-of-a-job", gpus={"min": 8, "max": 16}, **held)
        wait_until(lambda: client.get(f"{API}/jobs/{first}").json()["state"] == "running")
        submit(client, name="waits-for-it", gpus=8, **held)
        for seed in (41, 42):
            submit(client, name=f"{longer}{seed}", gpus=8, **held)
        page = open_page(f"{client.base_url}#/node/a100-0")

        expect(page.get_by_role("region", name="Jobs on it")).to_contain_text(
            "a-long-name-of-a-job"
        )
        expect(page.get_by_text("Virtual time")).to_be_visible()
        page.set_viewport_size({"width": 420, "height": 860})
        page.get_by_role("link", name="Jobs", exact=True).click()

        name = page.get_by_role("link", name="a-long-name-of-a-job")
        shown = name.evaluate("link => link.closest('td').clientWidth / link.scrollWidth")
        assert shown >= 1.0  # all of it
        for seed in (41, 42):  # cut in the middle: they differ at the end
            end = page.get_by_role("link", name=f"{longer}{seed}").locator(".cut > :last-child")
            outside = """end => end.getBoundingClientRect().right
              - end.closest('td').getBoundingClientRect().right"""
            assert end.evaluate(outside) <= 0.0
        cells = page.locator("td.c-gpus")
        assert cells.evaluate_all("all => all.every((one) => one.scrollWidth <= one.clientWidth)")
        expect(page.get_by_text("a-long-name-of-a-job (8) holds them").first).to_be_visible()
        for word in ("succeeded", "cancelled", "preempted"):
            badge = page.locator(".badge").first
            room = badge.evaluate(
                """(badge, word) => {
                  badge.lastChild.textContent = word;
                  const cell = badge.closest('td');
                  const inner = cell.getBoundingClientRect().right;
                  return inner - parseFloat(getComputedStyle(cell).paddingRight)
                    - badge.getBoundingClientRect().right;
                }""",
                word,
            )
            assert room >= 0.0, word
        page.close()


def test_a_sweep_is_one_row_and_a_page_of_its_own(open_page: Open) -> None:
    with serving("simulated:cluster=1x4:a100,speed=0.001", policy="fifo") as client:
        grid = {"lr": [0.1, 0.01], "optimizer": ["adam", "sgd-with-momentum-and-nesterov"]}
        body = {"name": "lrs", "run": "true", "sweep": {"grid": grid}}
        made = client.post(f"{API}/jobs", json=body).json()
        page = open_page(f"{client.base_url}#/jobs")

        page.get_by_role("link", name=made["id"]).click()

        table = page.get_by_role("region", name="Jobs side by side")
        expect(table.get_by_role("row")).to_have_count(5)
        expect(table).to_contain_text("0.01")
        page.set_viewport_size({"width": 420, "height": 860})
        assert table.evaluate("box => box.scrollWidth <= box.clientWidth")  # long words wrap
        table.get_by_role("link", name="#2").click()
        expect(page.get_by_text("lr=0.01, optimizer=adam")).to_be_visible()
        page.get_by_role("link", name=made["id"], exact=True).click()
        expect(table.get_by_role("row")).to_have_count(5)
        page.close()


def test_a_sweep_says_why_its_jobs_failed(open_page: Open, tmp_path: Path) -> None:
    with serving("local:cpu=true,slots=1,warm=false", tmp_path / "state", "fifo") as client:
        body = {"name": "lrs", "run": "echo no such file >&2; exit 3", "retries": 0}
        made = client.post(f"{API}/jobs", json={**body, "sweep": {"grid": {"lr": [1]}}}).json()
        page = open_page(f"{client.base_url}#/sweep/{made['id']}")

        table = page.get_by_role("region", name="Jobs side by side")
        expect(table.get_by_role("row").last).to_contain_text("no such file", timeout=60_000)
        page.close()


def test_a_job_page_follows_while_the_job_is_resized(open_page: Open) -> None:
    elastic = {"gpus": {"min": 1, "max": 8}, "batch": {"init": 64, "max": 512}}
    engine = "simulated:cluster=1x8:a100,speed=300"
    with serving(engine, policy="optimus") as client:
        job = submit(client, name="grows", hints={"duration_s": 90_000}, **elastic)
        page = open_page(f"{client.base_url}#/job/{job}")
        whole = page.locator("dl.facts dd", has_text="GPU 0\u20137")
        expect(whole).to_be_visible()

        submit(client, name="comes", hints={"duration_s": 90_000}, **elastic)

        expect(whole).to_have_count(0)
        spans = page.get_by_role("region", name="Spans")
        expect(spans.get_by_role("row")).to_have_count(3)
        expect(spans).to_contain_text("preempted")
        page.close()


def test_the_legend_tells_what_was_received_from_what_was_due(open_page: Open) -> None:
    with serving(FAST, policy="fifo") as client:
        for tenant in ("vision", "nlp"):
            submit(client, name="used", gpus=1, tenant=tenant, hints={"duration_s": 1e9})
        page = open_page(f"{client.base_url}#/tenants")

        drawn = page.get_by_role("region", name="Share received").get_by_role("figure")
        expect(drawn).to_have_count(2)
        marker = "css=tr:has-text('{}') .u-marker"
        due, received = (drawn.first.locator(marker.format(text)) for text in ("due", "received"))
        expect(due).to_have_css("border-top-style", "dashed")
        expect(received).to_have_css("border-top-style", "solid")
        drawn.get_by_role("link", name="vision").click()
        expect(page.get_by_role("img", name="GPUs of vision over time")).to_be_visible()
        expect(page.get_by_label("Tenant", exact=True)).to_have_value("vision")
        expect(drawn).to_have_count(0)
        page.close()


def test_an_admin_changes_a_quota_and_the_others_stay(open_page: Open) -> None:
    with serving(STILL) as client:
        submit(client, name="used", gpus=1, tenant="vision")
        before = {"limits": {"nlp": 3}, "weights": {"vision": 2}}
        assert client.put(f"{API}/quotas", json=before).status_code == 200
        page = open_page(f"{client.base_url}#/tenants")

        page.get_by_role("button", name="Change the quota of vision").click()
        page.get_by_label("GPUs at most").fill("6")
        page.get_by_label("Weight").fill("")
        page.get_by_role("button", name="Change …").click()
        expect(page.get_by_role("dialog")).to_contain_text("GPUs at most: no limit → 6")
        page.get_by_role("button", name="Change the quota", exact=True).click()

        row = page.get_by_role("row", name=re.compile("vision"))
        expect(row.get_by_role("cell", name="6", exact=True)).to_be_visible()
        answer = client.get(f"{API}/quotas").json()
        assert (answer["limits"], answer["weights"]) == ({"nlp": 3.0, "vision": 6.0}, {})
        page.close()


def test_both_sides_of_what_comes_are_drawn(open_page: Open) -> None:
    with serving("simulated:cluster=1x4:a100,speed=1", policy="fifo") as client:
        for name, length in (("long", 9000), ("short", 600)):
            submit(client, name=name, gpus=4, hints={"duration_s": length})
        page = open_page(f"{client.base_url}#/what-if")
        page.get_by_role("button", name="From now on").click()
        page.get_by_label("More machines").fill("1x4:a100")
        page.get_by_role("button", name="Simulate both").click()

        streams = page.get_by_role("region", name=re.compile("^Stream of"))
        expect(streams).to_have_count(2)
        expect(streams.first).to_have_attribute("aria-label", re.compile("Stream of 8 GPUs"))
        page.close()


def test_a_result_of_compare_is_opened_with_its_streams(
    client: httpx.Client, tmp_path: Path, open_page: Open
) -> None:
    result = weft.compare("tiny-20", ["fifo", "srtf"], cluster="1x4:v100")
    drawn, plain = tmp_path / "drawn.json", tmp_path / "plain.json"
    drawn.write_text(json.dumps(result.as_dict(per_job=True, timing=False)))
    plain.write_text(json.dumps(result.as_dict(timing=False)))
    page = open_page(f"{client.base_url}#/what-if")
    chosen = page.locator("input[type=file]")

    chosen.set_input_files(drawn)
    expect(page.get_by_role("region", name=re.compile("^Stream of 4 GPUs"))).to_have_count(2)
    chosen.set_input_files(plain)

    expect(page.get_by_text("The file holds no streams")).to_be_visible()


def test_a_real_job_is_followed_and_cancelled(tmp_path: Path, open_page: Open) -> None:
    script = "echo '<script>alert(1)</script>'; printf '\\033[31mred\\033[0m end\\n'; sleep 600"
    with serving("local:cpu=true,slots=2,warm=false", tmp_path / "state") as client:
        page = open_page(f"{client.base_url}#/submit")
        page.get_by_label("it is a script").check()
        page.get_by_label("Script, run by bash").fill(script)
        page.get_by_role("button", name="Submit").click()

        log = page.locator("pre.log")
        expect(log).to_contain_text("<script>alert(1)</script>")
        expect(log).to_contain_text("red end")
        page.get_by_label("Find in the log").fill("red")
        expect(log.locator("mark")).to_have_text("red")
        page.get_by_role("button", name="Cancel …").click()
        page.get_by_role("button", name="Cancel the job").click()
        expect(page.locator("main .badge").first).to_contain_text("cancelled")
        wait_until(lambda: not list((tmp_path / "state" / "live").glob("*")))
        page.close()


VIEWS = ("cluster", "jobs", "submit", "submit?way=file", "tenants", "what-if", "policies", "audit")


def test_every_view_is_accessible(client: httpx.Client, open_page: Open) -> None:
    job = submit(client, name="looked-at", gpus=1, tenant="vision")
    page = open_page(f"{client.base_url}#/cluster")
    page.evaluate(AXE)
    for dark in (False, True):
        page.emulate_media(color_scheme="dark" if dark else "light")
        rules = {"runOnly": ["color-contrast"]} if dark else {}
        for view in (*VIEWS, f"job/{job}", f"compare?jobs={job}"):
            page.evaluate(f"location.hash = '#/{view}'")
            expect(page.locator("main .panel").first).to_be_visible()
            expect(page.locator("main .loading")).to_have_count(0)
            asked = {"resultTypes": ["violations"], **rules}
            violations = page.evaluate("asked => axe.run(asked)", asked)["violations"]
            serious = [
                (view, dark, violation["id"], violation["nodes"][0]["html"])
                for violation in violations
                if violation["impact"] in ("serious", "critical")
            ]
            assert not serious


def test_why_jobs_wait_leads_to_those_jobs(open_page: Open) -> None:
    with serving("simulated:cluster=1x4:a100,speed=0.001", policy="fifo") as client:
        submit(client, name="holder", gpus=4, tenant="vision")
        for tenant in ("vision", "nlp"):  # each is told of other holders by name
            submit(client, name=f"waits-{tenant}", gpus=2, tenant=tenant)
        page = open_page(f"{client.base_url}#/cluster")

        reason = page.locator(".why-list").get_by_role("link")
        expect(reason).to_have_text("waits for 2 GPUs; none is free")
        reason.click()

        for tenant in ("vision", "nlp"):
            expect(page.get_by_role("row", name=re.compile(f"waits-{tenant}"))).to_be_visible()
        expect(page.get_by_role("row", name=re.compile("holder \\w"))).to_have_count(0)
        page.get_by_label("Filter by words").fill("nothing is called that")
        expect(page.get_by_text("No jobs match this filter")).to_be_visible()
        page.close()


def test_legends_say_per_and_show_the_colour_of_what_is_not_measured(
    client: httpx.Client, open_page: Open
) -> None:
    page = open_page(f"{client.base_url}#/cluster")

    expect(page.get_by_text("held, one colour per job")).to_be_visible()
    expect(page.get_by_text("one row per GPU, one colour per job")).to_be_visible()
    page.get_by_role("button", name="Pace").click()
    unmeasured, other = (
        page.locator(f".legend .{name}").evaluate("one => getComputedStyle(one).backgroundColor")
        for name in ("unmeasured", "other")
    )
    assert unmeasured != other
    page.close()


def test_a_nodes_jobs_are_in_the_order_of_its_gpus(open_page: Open) -> None:
    with serving("simulated:cluster=1x4:a100,speed=20", policy="fifo") as client:
        hours = {"duration_s": 1e7}
        first = submit(client, name="first", gpus=2, hints=hours)
        submit(client, name="second", gpus=2, hints=hours)
        client.delete(f"{API}/jobs/{first}").raise_for_status()
        submit(client, name="third", gpus=2, hints=hours)
        node = client.get(f"{API}/nodes").json()["nodes"][0]["id"]
        page = open_page(f"{client.base_url}#/node/{node}")

        rows = page.get_by_role("region", name="Jobs on it").locator("tbody tr")
        expect(rows).to_have_count(2)
        expect(rows.locator("td:first-child")).to_have_text(["0\u20131", "2\u20133"])
        page.close()


@pytest.mark.parametrize("width", [420, 360])
def test_on_a_phone_all_tabs_fit(client: httpx.Client, open_page: Open, width: int) -> None:
    page = open_page(f"{client.base_url}#/cluster")
    page.set_viewport_size({"width": width, "height": 860})
    expect(page.get_by_role("link", name="Policies")).to_be_visible()

    assert page.locator(".nav").evaluate("bar => bar.scrollWidth <= bar.clientWidth")
    page.close()


def test_on_a_phone_the_size_of_a_sweep_is_not_cut_off(open_page: Open) -> None:
    with serving("simulated:cluster=1x4:a100,speed=0.001", policy="fifo") as client:
        fields = {"name": "tune", "gpus": 1, "sweep": {"grid": {"lr": [0.1, 0.2, 0.3]}}}
        client.post(f"{API}/jobs", json=fields).raise_for_status()
        page = open_page(f"{client.base_url}#/jobs")
        page.set_viewport_size({"width": 420, "height": 860})

        line = page.get_by_role("row", name=re.compile("tune")).locator(".below")
        expect(line).to_contain_text("3 jobs · ")
        assert line.evaluate("one => one.scrollWidth <= one.clientWidth")
        box = page.get_by_label("Filter by words").bounding_box()
        assert box is not None
        assert box["width"] > 360
        page.close()
