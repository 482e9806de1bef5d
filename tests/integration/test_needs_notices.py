"""Messages about what needs a person: each entry once, with its next step, over a real server."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from tests.integration.mail_server import Post, mail_server
from tests.integration.serving import API, STILL, serving
from tests.waiting import LIMIT_S
from weft.core.errors import InvalidConfig
from weft.service.needs_reader import NeedsReader
from weft.service.notify.mail import MailServer
from weft.service.notify.needs_notices import NeedsNotices
from weft.service.notify.webhooks import Hooks
from weft.service.responses.answers import Need

DRAINED = Need(kind="node", tenant="", text="n1 is drained", step="`weft undrain n1`", nodes=["n1"])
QUOTA = Need(kind="quota", tenant="nlp", text="2 jobs of nlp wait", step="Cancel", about="quota")
LATER = Need(kind="quota", tenant="nlp", text="3 jobs of nlp wait", step="Cancel", about="quota")


class Seen:
    """What a reader would find at each look."""

    needs: Sequence[Need] = ()

    async def read(self) -> Sequence[Need]:
        return self.needs


def test_each_thing_that_needs_a_person_is_mailed_once_with_its_next_step(tmp_path: Path) -> None:
    seen = Seen()
    with mail_server(Post()) as post:
        server = MailServer("127.0.0.1", post.port, "weft@gpu1.example")

        def look(*needs: Need) -> None:
            """As after a restart: what was sent is on disk alone."""
            seen.needs = needs
            hooks = Hooks(tmp_path / "hooks.json", server)
            asyncio.run(NeedsNotices(hooks, cast("NeedsReader", seen)).poll())

        async def add() -> None:
            hooks = Hooks(tmp_path / "hooks.json", server)
            hooks.add("mailto:ops@example.org", "", (), "", needs=True)
            hooks.add("mailto:nlp@example.org", "nlp", (), "", needs=True)

        asyncio.run(add())
        look(DRAINED, QUOTA)
        mails = [post.mails.get(timeout=LIMIT_S) for _ in range(2)]
        look(DRAINED, LATER)  # the same, in other words
        look()
        look(DRAINED)  # and again, soon after
        other = Need(kind="node", tenant="", text="n2 is down", step="Start it", nodes=["n2"])
        post.busy = 1
        look(other)  # the server refuses it, so it is sent the next time
        look(other)
        last = post.mails.get(timeout=LIMIT_S)

    assert [(mail["To"], mail["Subject"]) for mail in mails] == [
        ("ops@example.org", "[weft] n1 is drained (and 1 more)"),
        ("nlp@example.org", "[weft] 2 jobs of nlp wait"),
    ]
    assert "n1 is drained\r\n  `weft undrain n1`" in mails[0].get_content()
    assert last["Subject"] == "[weft] n2 is down" and last["To"] == "ops@example.org"
    assert post.mails.empty()


@pytest.mark.parametrize(
    "more", [{"states": ["failed"]}, {"on_request": True}, {"url": "mailto:{user}@example.org"}]
)
def test_a_receiver_of_what_needs_a_person_is_not_about_single_jobs(more: dict[str, Any]) -> None:
    hooks = Hooks(None, MailServer("127.0.0.1", 25, "weft@gpu1.example"))
    given = {"url": "mailto:ops@example.org", "states": (), **more}

    with pytest.raises(InvalidConfig, match="not about single jobs"):
        hooks.add(given.pop("url"), "", tuple(given.pop("states")), "", needs=True, **given)


def test_an_admin_adds_such_a_receiver_and_sees_which_it_is() -> None:
    with serving(STILL) as client:
        body = {"url": "http://127.0.0.1:9/", "needs": True}
        client.post(f"{API}/webhooks", json=body).raise_for_status()
        (shown,) = client.get(f"{API}/webhooks").json()["webhooks"]

    assert shown["needs"] and shown["states"] == []
