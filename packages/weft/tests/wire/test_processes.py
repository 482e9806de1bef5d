"""A process that we cannot look at is not one that is gone."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from weft.wire.cgroups import members
from weft.wire.processes import alive, find_holding, find_tagged, is_frozen, start_time


@contextmanager
def no_file_can_be_opened() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize(
    "look",
    [
        lambda path: start_time(os.getpid()),
        lambda path: alive(os.getpid(), 1),
        lambda path: is_frozen(os.getpid()),
        lambda path: find_holding(path),
        lambda path: [*find_tagged("NAME", "value")],
        lambda path: members(path.parent),
    ],
    ids=["start_time", "alive", "is_frozen", "find_holding", "find_tagged", "members"],
)
def test_without_files_to_open_nobody_looks_gone(
    look: Callable[[Path], object], tmp_path: Path
) -> None:
    path = tmp_path / "file"
    path.touch()

    with no_file_can_be_opened(), pytest.raises(OSError, match="open files") as raised:
        look(path)

    assert raised.value.errno == errno.EMFILE


def test_who_is_gone_and_groups_that_are_gone_are_told_apart(tmp_path: Path) -> None:
    child = os.fork()
    if child == 0:
        os._exit(0)
    began = start_time(os.getpid())
    os.waitpid(child, 0)

    assert start_time(child) is None
    assert began is not None
    assert alive(os.getpid(), began)
    assert members(tmp_path / "no-such-group") == []
