"""The audit log: appended to, put aside when it is long, read backwards."""

from __future__ import annotations

import stat
from pathlib import Path

from weft.service.access.audit import AuditFilter, AuditLog
from weft.service.responses.admin import AuditEntry


def entry(number: int, status: int = 200, name: str = "ann") -> AuditEntry:
    return AuditEntry(
        at=float(number), token="t", name=name, role="user", tenant="a", address="::1",
        method="POST", path=f"/api/v1/jobs/{number}", about="", status=status,
    )  # fmt: skip


def numbers(entries: list[AuditEntry]) -> list[int]:
    return [int(entry.at) for entry in entries]


def test_entries_are_found_over_files_put_aside_and_the_oldest_go(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    log = AuditLog(path, longest=600, kept=2)
    for number in range(20):
        log.record(entry(number))

    kept = numbers(log.find(AuditFilter(), 100))

    assert kept == list(range(20 - len(kept), 20))
    assert 3 <= len(kept) < 20
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        "log-refused.jsonl", "log.jsonl", "log.jsonl.1", "log.jsonl.2",
    ]  # fmt: skip
    assert all(stat.S_IMODE(file.stat().st_mode) == 0o600 for file in tmp_path.iterdir())
    assert all(file.stat().st_size <= 600 for file in tmp_path.iterdir())


def test_a_folder_that_it_makes_is_closed_to_others(tmp_path: Path) -> None:
    AuditLog(tmp_path / "state" / "log.jsonl").record(entry(1))

    assert stat.S_IMODE((tmp_path / "state").stat().st_mode) == 0o700


def test_it_is_appended_to_after_a_restart(tmp_path: Path) -> None:
    first = AuditLog(tmp_path / "log")
    first.record(entry(1))
    first.close()

    second = AuditLog(tmp_path / "log")
    second.record(entry(2))

    assert numbers(second.find(AuditFilter(), 10)) == [1, 2]
    assert numbers(second.find(AuditFilter(), 1)) == [2]


def test_filters_narrow_it_down() -> None:
    log = AuditLog(None)
    for number in range(6):
        status = 403 if number % 2 else 200
        log.record(entry(number, status, "ann" if number < 3 else "bob"))

    assert numbers(log.find(AuditFilter(failed=True), 9)) == [1, 3, 5]
    assert numbers(log.find(AuditFilter(name="bob", failed=True), 9)) == [3, 5]
    assert numbers(log.find(AuditFilter(since=2.0, until=3.0), 9)) == [2, 3]
    assert numbers(log.find(AuditFilter(about="jobs/4"), 9)) == [4]
    assert numbers(log.find(AuditFilter(tenant="b"), 9)) == []
