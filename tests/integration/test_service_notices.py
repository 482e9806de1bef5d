"""State changes told by mail and as lines of chat, over real connections."""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import pytest

from tests.integration.mail_server import Post, mail_server
from tests.integration.serving import FAST, STILL, Running, bearer
from tests.waiting import LIMIT_S
from weft.app.serve.live import Settings
from weft.core.errors import InvalidConfig
from weft.service.notify.mail import MailServer, addresses, may_be_about

API = "/api/v1"


@contextmanager
def telling(engine: str, **more: Any) -> Iterator[httpx.Client]:
    service = Running(Settings(engine, port=0, **more))
    with httpx.Client(
        base_url=service.begin(), timeout=LIMIT_S, trust_env=False, verify=False
    ) as client:
        yield client
    service.end()


def add(client: httpx.Client, **body: object) -> httpx.Response:
    return client.post(f"{API}/webhooks", json=body)


def test_the_end_of_a_job_comes_by_mail_even_if_the_server_was_busy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("WEFT_SMTP_PASSWORD", "hush")
    with mail_server(Post(busy=1)) as post:
        smtp = f"smtp://postman@127.0.0.1:{post.port}"
        with telling(FAST, smtp=smtp, mail_from="weft@gpu1.example") as client:
            url = "mailto:ann@example.org,bob@example.org"
            made = add(client, url=url, states=["succeeded"])
            body = {"id": "one", "name": "résumé", "command": ["x"], "hints": {"duration": 60}}
            client.post(f"{API}/jobs", json=body)
            mail = post.mails.get(timeout=LIMIT_S)

    assert made.json()["format"] == "mail"
    assert mail["Subject"] == "[weft] résumé has succeeded"
    assert mail["From"] == "weft@gpu1.example"
    assert mail["To"] == "ann@example.org, bob@example.org"
    assert "Job      one" in mail.get_content()
    assert [line.partition(":")[2] for line in post.envelopes[0][1:]] == [
        "<ann@example.org>", "<bob@example.org>",
    ]  # fmt: skip
    assert post.logins[0] == "\0postman\0hush"


def test_users_get_mail_about_their_own_jobs_and_odd_names_get_none() -> None:
    with mail_server(Post()) as post:
        smtp = f"smtp://127.0.0.1:{post.port}"
        with telling(STILL, smtp=smtp, mail_from="weft@gpu1.example") as client:
            made = add(client, url="mailto:{user}@example.org", states=["cancelled"])
            for job, user in (("none", None), ("odd", "eve@elsewhere"), ("own", "ann.b")):
                body = {"id": job, "command": ["x"], "user": user}
                client.post(f"{API}/jobs", json=body).raise_for_status()
                client.delete(f"{API}/jobs/{job}").raise_for_status()
            mail = post.mails.get(timeout=LIMIT_S)

    assert made.status_code == 201
    assert mail["To"] == "ann.b@example.org"
    assert "Job      own" in mail.get_content()


def test_no_word_of_a_tenant_chooses_whose_mailbox_hears_of_a_job() -> None:
    with mail_server(Post()) as post:
        smtp = f"smtp://127.0.0.1:{post.port}"
        with telling(STILL, smtp=smtp, mail_from="weft@gpu1.example") as client:

            def token(role: str, name: str, by: dict[str, str]) -> dict[str, str]:
                body = {"role": role, "tenant": "vision", "name": name}
                made = client.post(f"{API}/tokens", json=body, headers=by)
                return bearer(made.json()["token"])

            def cancelled(by: dict[str, str], job: str, **more: object) -> httpx.Response:
                body = {"id": job, "command": ["x"], "tenant": "vision", "user": "bob", **more}
                answer = client.post(f"{API}/jobs", json=body, headers=by)
                client.delete(f"{API}/jobs/{job}", headers=by)
                return answer

            root = token("admin", "root", {})
            ann, crowd = (token("user", name, root) for name in ("ann", ""))
            for url, on_request in (("mailto:{user}@x.org", False), ("mailto:{user}@y.org", True)):
                body = {"url": url, "states": ["cancelled"], "on_request": on_request}
                client.post(f"{API}/webhooks", json=body, headers=root).raise_for_status()
            cancelled(crowd, "unsigned").raise_for_status()
            refused = cancelled(crowd, "asks", notify="mail")
            shown = cancelled(ann, "own").json()["id"]
            again = client.post(f"{API}/jobs/{shown}/again", json={}, headers=root).json()["id"]
            client.delete(f"{API}/jobs/{again}", headers=root)
            cancelled(root, "told").raise_for_status()
            mails = [post.mails.get(timeout=LIMIT_S) for _ in range(3)]

    assert [mail["To"] for mail in mails] == ["ann@x.org", "ann@x.org", "bob@x.org"]
    assert refused.status_code == 422
    assert "a token without a name" in refused.json()["error"]


@pytest.mark.parametrize(
    "name", ["", "a@b", "a,b", "a b", ".a", "a..b", "a.", "\u00e4", "a\n", "a\r\nBcc: b@y", "-f"]
)
def test_a_name_that_is_no_mailbox_reaches_no_one(name: str) -> None:
    assert not may_be_about("mailto:{user}@example.org", name)
    assert not may_be_about("mailto:%7Buser%7D@example.org", name)
    assert may_be_about("mailto:ann@example.org", name)


def test_a_line_of_chat_is_what_slack_takes() -> None:
    heard: queue.Queue[dict[str, str]] = queue.Queue()

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            heard.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *args: object) -> None:
            pass

    receiver = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    threading.Thread(target=receiver.serve_forever, daemon=True).start()
    with telling(STILL) as client:
        url = f"http://127.0.0.1:{receiver.server_port}/services/x"
        add(client, url=url, format="slack", states=["cancelled"])
        client.post(f"{API}/jobs", json={"id": "one", "name": "<b> & co", "command": ["x"]})
        client.delete(f"{API}/jobs/one")
        answer = heard.get(timeout=LIMIT_S)
    receiver.shutdown()
    receiver.server_close()

    assert answer == {"text": ":no_entry_sign: *&lt;b&gt; &amp; co* is cancelled (`one`, default)"}


def test_what_cannot_be_told_is_refused() -> None:
    with telling(STILL) as client:
        no_server = add(client, url="mailto:ann@example.org")
        wrong = add(client, url="http://127.0.0.1:1/", format="mail")
        unknown = add(client, url="http://127.0.0.1:1/", format="teams")

    assert (no_server.status_code, wrong.status_code, unknown.status_code) == (422, 422, 422)
    assert "--smtp" in no_server.json()["hint"]
    assert "no mail address" in wrong.json()["error"]


@pytest.mark.parametrize(
    ("url", "sender"),
    [
        ("mail.example", "weft@x.example"),
        ("http://mail.example", "weft@x.example"),
        ("smtp://u:secret@mail.example", "weft@x.example"),
        ("smtp://mail.example:99999999", "weft@x.example"),
        ("smtp://mail.example", ""),
        ("smtp://mail.example", "weft"),
        ("smtp://mail.example", "a@x\r\nBcc: b@y"),
    ],
)
def test_a_mail_server_that_cannot_be_used_is_refused_at_the_start(url: str, sender: str) -> None:
    with pytest.raises(InvalidConfig, match=r"smtp is|mail-from is"):
        MailServer.read(url, sender)


@pytest.mark.parametrize("url", ["mailto:", "mailto:ann", "mailto:a@x,", "mailto:a@x%0aBcc:b@y"])
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(InvalidConfig, match="is not an address"):
        addresses(url)


def test_users_choose_to_hear_of_the_ends_of_their_jobs_as_an_admin_allows() -> None:
    with mail_server(Post()) as post:
        smtp = f"smtp://127.0.0.1:{post.port}"
        with telling(STILL, smtp=smtp, mail_from="weft@gpu1.example") as client:

            def submit(job: str, **more: object) -> httpx.Response:
                body = {"id": job, "name": job, "command": ["x"], "user": "ann", **more}
                answer = client.post(f"{API}/jobs", json=body)
                client.delete(f"{API}/jobs/{job}")
                return answer

            early = submit("early", notify="mail")
            made = add(client, url="mailto:{user}@example.org", on_request=True)
            refused = [
                submit("chat", notify=["mail", "slack"]),
                submit("odd", notify="mail", user="ann@elsewhere"),
                submit("typo", notify="email"),
                client.post(f"{API}/jobs/batch", json={"jobs": [{"run": "x", "notify": "slack"}]}),
            ]
            assert submit("silent").status_code == 201
            assert submit("asks", notify="mail").status_code == 201
            mail = post.mails.get(timeout=LIMIT_S)
            file = client.get(f"{API}/jobs/asks/file").json()["job"]

    assert made.json()["on_request"]
    assert [answer.status_code for answer in (early, *refused)] == [422] * 5
    assert "--on-request" in early.json()["hint"]
    assert mail["To"] == "ann@example.org"
    assert mail["Subject"] == "[weft] asks is cancelled"  # and nothing before of any other
    assert file["notify"] == ["mail"]
