"""Nobody makes the audit log forget, lie or break; nor does what happens to its disk."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from packages.weft.tests.service.access.test_audit import entry, numbers

from tests.integration.serving import API, STILL, serving
from weft.service.access.audit import AuditFilter, AuditLog

REFUSED = 401


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "log.jsonl"


def test_whoever_is_refused_again_and_again_puts_nothing_out_that_was_done(path: Path) -> None:
    log = AuditLog(path, longest=600, kept=2)
    log.record(entry(0))
    for number in range(1, 500):
        log.record(entry(number, REFUSED))

    log.record(entry(500))

    entries = numbers(log.find(AuditFilter(), 1000))
    assert (entries[0], entries[-1]) == (0, 500)
    assert entries == sorted(entries)
    assert len(entries) < 20  # the refused ones have a limit of their own
    assert numbers(log.find(AuditFilter(), 2)) == [499, 500]
    assert 0 not in numbers(log.find(AuditFilter(failed=True), 1000))


def test_nor_where_nothing_is_kept_on_disk() -> None:
    log = AuditLog(None)
    log.record(entry(0))
    for number in range(1, 20_002):
        log.record(entry(number, REFUSED))

    assert numbers(log.find(AuditFilter(), 100_000))[0] == 0


@pytest.mark.parametrize("torn", [b'{"at": 1.0, "tok', b"\xff\x00", b"[]", b'{"at": 1}', b"\n\n"])
def test_a_line_that_was_cut_off_costs_itself_alone(path: Path, torn: bytes) -> None:
    first = AuditLog(path)
    first.record(entry(1))
    first.close()
    with path.open("ab") as out:
        out.write(torn)

    log = AuditLog(path)
    log.record(entry(2))

    assert numbers(log.find(AuditFilter(), 10)) == [1, 2]


def test_a_disk_that_takes_half_a_line_costs_that_line_alone(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, usual = AuditLog(path), os.write
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda to, line: usual(to, line[:20]))
        log.record(entry(1))
    log.record(entry(2))

    assert numbers(log.find(AuditFilter(), 10)) == [2]


def test_without_a_file_left_to_open_it_grows_and_is_put_aside_later(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = AuditLog(path, longest=600, kept=2)

    def no_more(*_: object) -> int:
        raise OSError(errno.EMFILE, "too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", no_more)
        for number in range(20):
            log.record(entry(number))

    assert numbers(log.find(AuditFilter(), 100)) == list(range(20))
    log.record(entry(20))
    assert numbers(log.find(AuditFilter(), 100)) == list(range(21))
    assert path.stat().st_size < 600


def test_what_others_put_aside_is_followed_by_a_new_file(path: Path, tmp_path: Path) -> None:
    log = AuditLog(path)
    log.record(entry(1))
    path.rename(tmp_path / "elsewhere")

    log.record(entry(2))

    assert numbers(log.find(AuditFilter(), 10)) == [2]
    assert b'"at":1.0' in (tmp_path / "elsewhere").read_bytes()


def test_what_an_address_holds_is_one_line_of_bounded_length(tmp_path: Path) -> None:
    with serving(STILL, tmp_path) as client:
        for name in ("%0A%22%7D%00", "%F0%9F%98%80" * 400, "%1b%5b31m", "%ED%A0%80"):
            client.post(f"{API}/jobs/{name}/cancel")

        requests = client.get(f"{API}/audit").json()["requests"]

    assert len(requests) == 4
    lines = b"".join(path.read_bytes() for path in tmp_path.glob("requests*")).splitlines()
    assert len(lines) == 4
    assert max(map(len, lines)) < 4096
