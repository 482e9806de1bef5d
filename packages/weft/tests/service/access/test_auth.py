"""Tokens, roles, and who may listen where."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from tests.clock import Clock

from weft.core.errors import InvalidConfig, UnknownName
from weft.core.model.job import Job, JobId
from weft.service.access.tokens import EVERY, Caller, TokenFile, check_host, is_loopback


def test_a_token_is_known_after_a_restart_and_its_secret_is_nowhere_on_disk(tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    made, secret = TokenFile(path).create("admin", "", "ada")

    assert TokenFile(path).caller_by_secret(secret) == Caller("admin", EVERY, "ada", token=made.id)
    assert secret not in path.read_text()
    assert secret.removeprefix("weft_") not in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_wrong_or_revoked_token_is_nobodys() -> None:
    tokens = TokenFile(None)
    first, secret = tokens.create("admin", "", "")

    assert tokens.caller_by_secret(secret + "x") is None
    assert tokens.caller_by_secret("") is None
    assert tokens.caller_by_secret("\ud800") is None
    tokens.revoke(first.id)
    assert tokens.caller_by_secret(secret) is None
    with pytest.raises(UnknownName):
        tokens.revoke(first.id)


def test_nobody_can_lock_everybody_out() -> None:
    tokens = TokenFile(None)
    with pytest.raises(InvalidConfig, match="first token"):
        tokens.create("user", "vision", "")
    admin, _ = tokens.create("admin", "", "")
    tokens.create("user", "vision", "")

    with pytest.raises(InvalidConfig, match="last token of an admin"):
        tokens.revoke(admin.id)


def test_a_user_belongs_to_one_tenant() -> None:
    tokens = TokenFile(None)
    tokens.create("admin", "", "")
    for tenant in ("", EVERY):
        with pytest.raises(InvalidConfig):
            tokens.create("user", tenant, "")


@pytest.mark.parametrize(
    ("caller", "sees", "commands"),
    [
        (Caller("admin", EVERY), True, True),
        (Caller("user", "a"), True, True),
        (Caller("user", "b"), False, False),
        (Caller("viewer", "a"), True, False),
        (Caller("viewer", "b"), False, False),
        (Caller("viewer", EVERY), True, False),
    ],
)
def test_roles(caller: Caller, sees: bool, commands: bool) -> None:
    job = Job(JobId("j"), tenant="a")

    assert caller.sees(job) is sees
    assert caller.commands(job) is commands


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "example.org", ""])
def test_others_are_not_answered_before_there_is_a_token(host: str) -> None:
    assert not is_loopback(host)
    with pytest.raises(InvalidConfig, match="without tokens"):
        check_host(host, TokenFile(None))
    tokens = TokenFile(None)
    tokens.create("admin", "", "")
    check_host(host, tokens)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
def test_this_machine_is_answered_without(host: str) -> None:
    check_host(host, TokenFile(None))


def test_a_file_that_holds_no_tokens_is_named(tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    for text in ("{", "[{}]", '[{"id": 1}]', '{"a": 1}'):
        path.write_text(text)
        with pytest.raises(InvalidConfig, match=r"tokens\.json"):
            TokenFile(path)


def test_an_expired_token_is_nobodys_and_does_not_open_the_service() -> None:
    clock = Clock()
    tokens = TokenFile(None, clock)
    tokens.create("admin", "", "")
    _, secret = tokens.create("user", "a", "ann", expires_s=60.0)
    who = tokens.caller_by_secret(secret)
    assert who is not None
    assert tokens.seconds_left(who) == 60.0

    clock.now += 60.0

    assert tokens.caller_by_secret(secret) is None
    assert not tokens.allows(who)
    assert len(tokens) == 2


def test_somebody_who_makes_tokens_always_remains() -> None:
    tokens = TokenFile(None)
    with pytest.raises(InvalidConfig, match="must not expire"):
        tokens.create("admin", "", "", expires_s=60.0)
    lasting, _ = tokens.create("admin", "", "")
    tokens.create("admin", "", "", expires_s=60.0)

    with pytest.raises(InvalidConfig, match="does not expire"):
        tokens.revoke(lasting.id)


def test_a_rotated_token_works_through_the_overlap_and_its_successor_lasts_as_long() -> None:
    clock = Clock()
    tokens = TokenFile(None, clock)
    tokens.create("admin", "", "")
    old, first = tokens.create("user", "a", "ann", "acc", expires_s=1000.0)

    new, second = tokens.rotate(old.id, 10.0)

    assert (new.role, new.tenant, new.name, new.account) == ("user", "a", "ann", "acc")
    assert new.expires == clock.now + 1000.0
    assert tokens.caller_by_secret(first) is not None
    clock.now += 10.0
    assert tokens.caller_by_secret(first) is None
    assert tokens.caller_by_secret(second) is not None


def test_an_overlap_never_makes_a_token_last_longer() -> None:
    clock = Clock()
    tokens = TokenFile(None, clock)
    tokens.create("admin", "", "")
    old, secret = tokens.create("user", "a", "", expires_s=5.0)

    tokens.rotate(old.id, 1000.0)

    clock.now += 5.0
    assert tokens.caller_by_secret(secret) is None


def test_without_an_overlap_the_old_token_is_gone_at_once() -> None:
    tokens = TokenFile(None)
    old, first = tokens.create("admin", "", "")

    _, second = tokens.rotate(old.id, 0.0)

    assert tokens.caller_by_secret(first) is None
    assert tokens.caller_by_secret(second) is not None
