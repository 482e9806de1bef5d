"""Shards of tensors go from ranks that divide them in one way to others, by any way there is."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from weft_train.ranks import groups
from weft_train.ranks.shards import Shard, ShardPlan, Shards, exchange, list_everyone

CPU = torch.device("cpu")
LIMIT_S = 60.0
WHOLE = {
    "rows": torch.arange(7 * 3 * 2.0).view(7, 3, 2),
    "columns": torch.arange(4 * 9).view(4, 9),
    "number": torch.tensor(3.5),
}


def cut(ranks: int, rank: int, *, filled: bool) -> dict[str, Shard]:
    """One rank's parts: rows of one tensor, columns of another, and all of a number."""
    parts = {"number": Shard(WHOLE["number"].clone(), ())}
    for name, along in (("rows", 0), ("columns", 1)):
        whole = WHOLE[name]
        most = -(-whole.shape[along] // ranks)
        start, stop = (min(at * most, whole.shape[along]) for at in (rank, rank + 1))
        box = [(0, size) for size in whole.shape]
        box[along] = (start, stop)
        local = whole.narrow(along, start, stop - start).clone()
        parts[name] = Shard(local, tuple(box))
    return (
        parts if filled else {n: Shard(torch.zeros_like(p.local), p.box) for n, p in parts.items()}
    )


def change(
    folder: Path, old: Sequence[int], members: Sequence[int], *, direct: bool, lost: str = ""
) -> tuple[dict[int, Shards], dict[int, BaseException]]:
    """What the new ranks have afterwards, and what went wrong at whom."""
    after: dict[int, Shards] = {}
    errors: dict[int, BaseException] = {}
    everyone = list_everyone(old, members)

    def run(me: int) -> None:
        try:
            store = groups.open_store(str(folder / "store"), LIMIT_S)
            lines = groups.connect(store, "lines", everyone.index(me), len(everyone), LIMIT_S)
            have = cut(len(old), old.index(me), filled=True) if me in old else {}
            have.pop(lost, None)
            fill = cut(len(members), members.index(me), filled=False) if me in members else {}
            plan = ShardPlan(store, lines, tuple(old), tuple(members), me)
            exchange(plan, have, fill, CPU, direct=direct)
            after[me] = fill
        except BaseException as error:
            errors[me] = error

    threads = [threading.Thread(target=run, args=(me,)) for me in everyone]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(2 * LIMIT_S)
    assert not any(thread.is_alive() for thread in threads)
    return after, errors


@pytest.mark.parametrize("direct", [True, False], ids=["read", "sent"])
@pytest.mark.parametrize(
    ("old", "members"),
    [((0, 1), (0, 1, 2)), ((0, 1, 2), (0, 2)), ((0,), (0, 1, 2, 3)), ((0, 1, 2, 3), (4,))],
    ids=["2 to 3", "3 to 2", "1 to 4", "4 to another 1"],
)
def test_new_ranks_have_their_parts(
    tmp_path: Path, old: tuple[int, ...], members: tuple[int, ...], direct: bool
) -> None:
    after, errors = change(tmp_path, old, members, direct=direct)

    assert not errors
    for rank, number in enumerate(members):
        expected = cut(len(members), rank, filled=True)
        assert {name: part.box for name, part in after[number].items()} == {
            name: part.box for name, part in expected.items()
        }
        for name, part in expected.items():
            assert torch.equal(after[number][name].local, part.local), (number, name)


def test_what_no_rank_has_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{__name__}.LIMIT_S", 3.0)

    _, errors = change(tmp_path, (0,), (1,), direct=True, lost="rows")

    assert str(errors[1]) == "no rank has all of rows"
    assert "unread-1" in str(errors[0]) or isinstance(errors[0], RuntimeError)
