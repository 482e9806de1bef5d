"""Checkpoints in object stores: whole or passed over, of the last owner, the last two kept."""

from __future__ import annotations

import io
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import fsspec
import pytest
import torch
from gcs_server import running_gcs
from s3_server import running_s3

from weft_train.base.errors import Fenced
from weft_train.checkpoints.files import folder_only
from weft_train.checkpoints.objects import ObjectCheckpoints
from weft_train.errors import TrainError


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    with running_s3("kept") as variables, set_all(variables):
        yield "s3://kept"


@pytest.fixture(scope="module")
def gs() -> Iterator[str]:
    with running_gcs("kept") as variables, set_all(variables):
        fsspec.config.set_conf_env(fsspec.config.conf)  # it reads them when it is imported
        yield "gs://kept"


@contextmanager
def set_all(variables: Mapping[str, str]) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)
        yield


@pytest.fixture(params=["memory", "s3", "gs"])
def url(request: pytest.FixtureRequest) -> str:
    store = request.param
    place = "memory://" if store == "memory" else request.getfixturevalue(store) + "/"
    return f"{place}{uuid.uuid4().hex}/run"


def names(url: str) -> list[str]:
    store, path = fsspec.core.url_to_fs(url, skip_instance_cache=True)
    return sorted(str(at).rpartition("/")[2] for at in store.ls(path, detail=False))


def write(url: str, body: bytes) -> None:
    store, path = fsspec.core.url_to_fs(url, skip_instance_cache=True)
    store.pipe_file(path, body)


def test_what_is_saved_is_loaded_elsewhere_and_the_last_two_are_kept(url: str) -> None:
    mine = ObjectCheckpoints(url, "a", 1)
    assert mine.find_newest() == (None, [])
    for step in (1, 2, 30):
        place = mine.save({"weight": torch.full((3,), float(step)), "any": {"x": [1]}}, step, 0)
    other = ObjectCheckpoints(url, "a", 2)

    newest, warnings = other.find_newest()

    assert (newest, warnings) == (place, [])
    state = other.load(place)
    assert state["weight"].tolist() == [30.0] * 3
    assert state["any"] == {"x": [1]}
    kept = ["step-000000000002.000000001.ckpt", "step-000000000030.000000001.ckpt"]
    assert [name for name in names(url) if name.startswith("step")] == kept


def test_an_older_attempt_writes_no_more_and_cannot_claim_again(url: str) -> None:
    old = ObjectCheckpoints(url, "a", 1)
    old.find_newest()
    old.save({"n": 1}, 1, 0)
    new = ObjectCheckpoints(url, "a", 2)
    new.find_newest()

    with pytest.raises(Fenced, match="claim 2, this attempt has 1"):
        old.save({"n": 9}, 9, 0)
    with pytest.raises(Fenced, match="attempt 1 is too late"):
        ObjectCheckpoints(url, "a", 1).find_newest()

    assert new.find_newest()[0] == f"{url}/step-000000000001.000000001.ckpt"


def test_what_an_older_attempt_wrote_late_is_older_than_all_of_the_owners(url: str) -> None:
    old = ObjectCheckpoints(url, "a", 1)
    old.find_newest()
    new = ObjectCheckpoints(url, "a", 2)
    new.find_newest()
    place = new.save({"n": 5}, 5, 0)
    body = fsspec.core.url_to_fs(url, skip_instance_cache=True)[0].cat_file(place)
    write(f"{url}/step-000000000099.000000001.ckpt", body)

    assert ObjectCheckpoints(url, "a", 3).find_newest()[0] == place


def test_another_job_goes_on_from_what_is_there_and_owns_it(url: str) -> None:
    former = ObjectCheckpoints(url, "a", 7)
    former.find_newest()
    place = former.save({"n": 1}, 1, 0)
    later = ObjectCheckpoints(url, "b", 1)

    assert later.find_newest() == (place, [])

    later.save({"n": 2}, 2, 0)
    with pytest.raises(Fenced):
        former.save({"n": 3}, 3, 0)


def test_two_tenants_with_one_place_do_not_run_each_others_checkpoints(url: str) -> None:
    """A checkpoint is a pickle: whoever writes one runs what they like where it is loaded."""
    theirs = ObjectCheckpoints(url, "ben:a", 1)
    theirs.find_newest()
    theirs.save({"n": 1}, 1, 0)
    before = names(url)

    with pytest.raises(TrainError, match="tenant 'ben'"):
        ObjectCheckpoints(url, "ann:a", 1).find_newest()

    assert names(url) == before
    assert ObjectCheckpoints(url, "ben:b", 1).find_newest()[0] is not None


@pytest.mark.parametrize("body", [b"{", b"[]", b'{"job": 1}', b"9" * 5000, b'"' + b"x" * 100_000])
def test_what_is_no_claim_is_named_and_not_read_whole(body: bytes) -> None:
    url = f"memory://{uuid.uuid4().hex}/run"
    write(f"{url}/claim-000000003", body)

    with pytest.raises(TrainError, match="claim-000000003 is no claim"):
        ObjectCheckpoints(url, "a", 1).find_newest()


@pytest.mark.parametrize("body", [b"", b"x" * 1000])
def test_one_that_is_not_whole_is_set_aside_and_the_one_before_it_is_used(
    url: str, body: bytes
) -> None:
    mine = ObjectCheckpoints(url, "a", 1)
    mine.find_newest()
    before = mine.save({"n": 1}, 1, 0)
    write(f"{url}/step-000000000002.000000001.ckpt", body)

    newest, warnings = mine.find_newest()

    assert newest == before
    assert len(warnings) == 1
    assert "cut short" in warnings[0]
    assert "step-000000000002.000000001.ckpt.corrupt" in names(url)


def test_a_failed_upload_leaves_the_older_ones_and_says_where(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = ObjectCheckpoints(url, "a", 1)
    mine.find_newest()
    mine.save({"n": 1}, 1, 0)

    def refuse(*_: Any, **__: Any) -> None:
        raise RuntimeError("the store is away")

    monkeypatch.setattr(mine._fs, "put_file", refuse)
    with pytest.raises(OSError, match=f"{url}: RuntimeError: the store is away"):
        mine.save({"n": 2}, 2, 0)

    assert [name for name in names(url) if "step" in name] == ["step-000000000001.000000001.ckpt"]


def test_of_two_that_claim_at_once_one_is_the_owner(url: str) -> None:
    first, two = ObjectCheckpoints(url, "a", 1), ObjectCheckpoints(url, "b", 1)
    first.find_newest()
    two.find_newest()

    with pytest.raises(Fenced):
        first.save({"n": 1}, 1, 0)
    two.save({"n": 2}, 2, 0)
    two.find_newest()

    assert two.load(two.find_newest()[0] or "")["n"] == 2
    assert [name for name in names(url) if "claim" in name] == [
        "claim-000000001",
        "claim-000000002",
    ]


def test_a_store_that_does_not_answer_is_an_error_and_not_an_empty_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")

    with pytest.raises(OSError, match="s3://kept/run"):
        ObjectCheckpoints("s3://kept/run", "a", 1).find_newest()


def test_a_bucket_that_is_not_there_is_an_error(s3: str) -> None:
    with pytest.raises(OSError, match="s3://missing/run"):
        ObjectCheckpoints("s3://missing/run", "a", 1).find_newest()


def test_a_scheme_that_nothing_opens_says_what_to_install() -> None:
    with pytest.raises(TrainError, match="pip install fsspec"):
        ObjectCheckpoints("nowhere://bucket/run")


def test_what_needs_a_folder_refuses_an_address() -> None:
    assert folder_only("kept") == Path("kept")
    with pytest.raises(TrainError, match=r"weft_train.init"):
        folder_only("s3://kept/run")


def test_a_state_is_written_without_a_copy_in_memory(url: str) -> None:
    mine = ObjectCheckpoints(url)
    place = mine.save({"n": io.BytesIO(b"any object").getvalue()}, 3, 1)

    assert mine.load(place)["n"] == b"any object"
