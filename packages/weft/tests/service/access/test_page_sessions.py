"""Sign-ins of the web page."""

from __future__ import annotations

from pathlib import Path

from starlette.datastructures import Headers
from tests.clock import Clock

from weft.service.access.page_sessions import COOKIE, LASTS_S, PageSessions, find_caller
from weft.service.access.tokens import Caller, TokenFile


def signed_in(tmp_path: Path) -> tuple[Clock, TokenFile, PageSessions, Caller, Headers]:
    clock = Clock()
    tokens = TokenFile(None, clock)
    token, _ = tokens.create("admin", "", "root")
    sessions = PageSessions(tmp_path / "sessions.json", tokens, clock)
    secret = sessions.begin(token.caller)
    headers = Headers({"cookie": f"other=1; {COOKIE}={secret}", "x-weft-page": "1"})
    return clock, tokens, sessions, token.caller, headers


def test_a_session_stands_for_its_token_also_after_a_restart(tmp_path: Path) -> None:
    clock, tokens, sessions, who, headers = signed_in(tmp_path)

    again = PageSessions(tmp_path / "sessions.json", tokens, clock)

    assert sessions.caller_of(headers) == again.caller_of(headers) == who
    assert find_caller(again, tokens, headers) == who


def test_the_cookie_alone_is_not_enough(tmp_path: Path) -> None:
    _, _, sessions, _, headers = signed_in(tmp_path)

    forged = Headers({"cookie": headers["cookie"]})  # what a page of another site could send

    assert sessions.caller_of(forged) is None


def test_a_wrong_token_is_not_replaced_by_a_session(tmp_path: Path) -> None:
    _, _, sessions, _, headers = signed_in(tmp_path)

    both = Headers({**headers, "authorization": "Bearer weft_wrong"})

    assert sessions.caller_of(both) is None


def test_a_session_ends_with_time_with_its_token_and_by_signing_out(tmp_path: Path) -> None:
    clock, tokens, sessions, who, headers = signed_in(tmp_path)
    other = Headers({"cookie": f"{COOKIE}={sessions.begin(who)}", "x-weft-page": "1"})

    sessions.end(other)
    assert sessions.caller_of(other) is None
    assert sessions.caller_of(headers) == who
    clock.now += LASTS_S
    assert sessions.caller_of(headers) is None
    clock.now -= 1.0
    tokens.revoke(who.token)
    assert sessions.caller_of(headers) is None


def test_the_file_holds_no_secret(tmp_path: Path) -> None:
    *_, headers = signed_in(tmp_path)

    secret = headers["cookie"].rpartition("=")[2]

    assert secret not in (tmp_path / "sessions.json").read_text()
