"""Values of variables leave the service to the job alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.integration.serving import API, bearer, serving, token
from tests.waiting import wait_until

DECLARED, LOOKS, PLAIN = "s3cr3t-declared", "s3cr3t-by-its-name", "s3cr3t-in-a-plain-variable"
ENV = {"MINE": DECLARED, "AWS_SECRET_ACCESS_KEY": LOOKS, "HARMLESS": PLAIN}
JOB = {"gpus": 1, "command": ["sleep", "3600"], "env": ENV, "secrets": ["MINE"]}


@pytest.fixture(scope="module")
def people() -> Iterator[tuple[httpx.Client, dict[str, dict[str, str]], str]]:
    """A service, what its people send, and a job of ann's."""
    with serving() as client:
        admin = token(client, "admin")
        headers = {"admin": bearer(admin), "viewer": bearer(token(client, "viewer", "a", admin))}
        for name in ("ann", "ben"):
            body = {"role": "user", "tenant": "a", "name": name}
            made = client.post(f"{API}/tokens", json=body, headers=bearer(admin)).json()
            headers[name] = bearer(made["token"])
        job = client.post(f"{API}/jobs", json=JOB, headers=headers["ann"]).json()["id"]
        yield client, headers, job


@pytest.mark.parametrize("who", ["ann", "ben", "viewer", "admin"])
def test_no_route_shows_the_value_of_a_variable(who: str, people: Any) -> None:
    client, headers_of, job = people
    paths = [
        path
        for path, methods in client.get("/openapi.json").json()["paths"].items()
        if "get" in methods and path not in (f"{API}/events", f"{API}/watch")
    ]
    for path in paths:
        url = path.replace("{job_id}", job).replace("{name}", "x")
        with client.stream("GET", url, headers=headers_of[who]) as answer:
            text = answer.read().decode() if "ports" not in url and "terminal" not in url else ""
        assert "s3cr3t" not in text, path


@pytest.mark.parametrize("path", ["/events?since=0", "/watch"])
def test_no_stream_shows_it(path: str, people: Any) -> None:
    client, headers_of, job = people
    heard = ""
    with client.stream("GET", API + path, headers=headers_of["viewer"]) as answer:
        for text in answer.iter_text():
            heard += text
            if job in heard and "\n\n" in heard:
                break

    assert "s3cr3t" not in heard


def test_the_file_of_a_job_names_its_variables(people: Any) -> None:
    client, headers_of, job = people

    answer = client.get(f"{API}/jobs/{job}/file", headers=headers_of["ann"]).json()

    assert set(answer["job"]["env"]) == set(ENV)
    assert set(answer["job"]["env"].values()) == {"********"}


@pytest.mark.parametrize("who", ["ann", "ben", "admin"])
def test_who_submits_again_brings_secrets_anew(who: str, people: Any) -> None:
    client, headers_of, job = people
    change = {"command": ["printenv"], "tenant": "a"}

    copied = client.post(
        f"{API}/jobs/{job}/again", json={"change": change}, headers=headers_of[who]
    )
    own = {**change, "env": {"MINE": "my-own-value"}}
    brought = client.post(f"{API}/jobs/{job}/again", json={"change": own}, headers=headers_of[who])
    without = {**change, "env": None}
    none = client.post(f"{API}/jobs/{job}/again", json={"change": without}, headers=headers_of[who])

    assert (copied.status_code, copied.json()["field"]) == (422, "env")
    assert "MINE" in copied.json()["error"]
    assert (brought.status_code, none.status_code) == (201, 201), brought.text + none.text


def test_plain_variables_are_copied_for_whoever_chose_them_alone(people: Any) -> None:
    client, headers_of, _ = people
    body = {"gpus": 1, "command": ["sleep", "3600"], "env": {"THREADS": "4"}}
    job = client.post(f"{API}/jobs", json=body, headers=headers_of["ann"]).json()["id"]

    hers = client.post(f"{API}/jobs/{job}/again", json={}, headers=headers_of["ann"])
    his = client.post(f"{API}/jobs/{job}/again", json={}, headers=headers_of["ben"])

    assert hers.status_code == 201, hers.text
    assert his.status_code == 422


def test_what_is_starred_out_stays_as_it_was_for_whoever_chose_it_alone(people: Any) -> None:
    client, headers_of, job = people
    stars = dict.fromkeys(ENV, "********")
    values = {"MINE": "x", "AWS_SECRET_ACCESS_KEY": "y"}

    def ask(who: str, env: dict[str, str]) -> int:
        body = {"change": {"env": env}}
        made = client.post(f"{API}/jobs/{job}/again", json=body, headers=headers_of[who])
        return int(made.status_code)

    assert ask("ann", {**stars, **values}) == 201
    assert ask("ann", stars) == 422
    assert ask("ben", {**stars, **values}) == 422
    assert ask("ben", {**values, "HARMLESS": "z"}) == 201


def test_stars_are_not_taken_for_a_value(people: Any) -> None:
    client, headers_of, job = people
    body = client.get(f"{API}/jobs/{job}/file", headers=headers_of["ben"]).json()["job"]
    body.pop("user", None)

    answer = client.post(f"{API}/jobs", json=body, headers=headers_of["ben"])

    assert answer.status_code == 422
    assert "starred out" in answer.json()["error"]


def test_the_job_itself_gets_its_variables(tmp_path: Path) -> None:
    out = tmp_path / "out"
    body = {"run": f"printenv MINE HARMLESS > {out}", "env": ENV, "secrets": ["MINE"], "gpus": 1}
    with serving("local:slots=1,warm=false,cpu=true", state=tmp_path / "state") as client:
        job = client.post(f"{API}/jobs", json={**body, "workdir": "/"}).json()["id"]
        wait_until(lambda: client.get(f"{API}/jobs/{job}").json()["state"] == "succeeded")

    assert out.read_text().split() == [DECLARED, PLAIN]
