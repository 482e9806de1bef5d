"""Checkpoints in an object store, by any address that fsspec opens (`s3://`, `gs://`, ...).

Stores have no locks and no renames, so nothing is ever overwritten. Each attempt claims the next
number in `claim-NUMBER` when it starts and puts it into the names of what it writes; an attempt
that has the highest owns the place, and what others write late is older than anything of the
owner's. A checkpoint is written to a file beside the job first, and is there when the store has all
of it: its last line says whether it does.
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from weft_train.base.errors import Fenced
from weft_train.checkpoints.files import KEPT, load, verify, write_state
from weft_train.errors import BadCheckpoint, TrainError

_CLAIM = re.compile(r"claim-(\d{9})")
_NAME = re.compile(r"step-(\d{12})\.(\d{9})\.ckpt")
TRIES = 10  # to claim, while others do the same
LONGEST = 1000  # bytes of a claim


class ObjectCheckpoints:
    """The checkpoints of one attempt of a job below one address."""

    def __init__(self, url: str, job: str = "", attempt: int = 0) -> None:
        self.url, self._job, self._attempt = url, job, attempt
        self._fs, self._root = _open(url)
        self._number = 0
        self._folder = ""  # for what is fetched

    def save(self, state: Mapping[str, Any], step: int, epoch: int) -> str:
        """Write `state`; OSError leaves the older ones as they were, as does `Fenced`."""
        with tempfile.NamedTemporaryFile(prefix="weft-", suffix=".ckpt") as out:
            write_state(out, state, step, epoch)
            with self._speaking():
                self._check_owner()
                name = f"step-{step:012d}.{self._number:09d}.ckpt"
                self._fs.put_file(out.name, self._at(name))
                self._check_owner()
                for old in self._list_kept()[KEPT:]:
                    self._fs.rm_file(self._at(old))
        return f"{self.url}/{name}"

    def find_newest(self) -> tuple[str | None, list[str]]:
        """Claim the place; its newest whole checkpoint, and what to warn of among the others."""
        warnings: list[str] = []
        with self._speaking():
            self._claim()
            for name in self._list_kept():
                try:
                    self._fetch(f"{self.url}/{name}")
                except BadCheckpoint as error:
                    self._fs.mv(self._at(name), self._at(name + ".corrupt"))
                    warnings.append(f"skipped a corrupted checkpoint, kept aside: {error}")
                else:
                    return f"{self.url}/{name}", warnings
        return None, warnings

    def load(self, place: str) -> dict[str, Any]:
        with self._speaking():
            state = load(self._fetch(place))
        shutil.rmtree(self._folder)
        self._folder = ""
        return state

    def _fetch(self, place: str) -> Path:
        """A whole checkpoint as a file, fetched once."""
        if not self._folder:
            self._folder = tempfile.mkdtemp(prefix="weft-")
            weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        name = place.rpartition("/")[2]
        if not (path := Path(self._folder, name)).exists():
            partial = path.with_suffix(".fetched")
            self._fs.get_file(self._at(name), str(partial))
            verify(partial)
            partial.rename(path)
        return path

    def _claim(self) -> None:
        """Have the highest number; `Fenced` if a later attempt of this job has it."""
        me = {"job": self._job, "attempt": self._attempt}
        for _ in range(TRIES):
            highest = self._highest_claim()
            if highest:
                holder = self._read_claim(highest)
                if holder == me:
                    self._number = highest
                    return
                if holder["job"] == self._job and holder["attempt"] > self._attempt:
                    raise Fenced(
                        f"{self.url} belongs to attempt {holder['attempt']}; "
                        f"attempt {self._attempt} is too late"
                    )
            with suppress(FileExistsError):
                claim = self._at(f"claim-{highest + 1:09d}")
                self._fs.pipe_file(claim, json.dumps(me).encode(), mode="create")
        raise OSError(f"{self.url} is claimed by others again and again")

    def _read_claim(self, number: int) -> dict[str, Any]:
        """Return who claimed the place; `TrainError` for no claim, or another tenant's."""
        name = f"claim-{number:09d}"
        try:
            holder = json.loads(self._fs.cat_file(self._at(name), end=LONGEST))
            job, attempt = str(holder["job"]), int(holder["attempt"])
        except (ValueError, KeyError, TypeError) as error:
            hint = "no program of Weft wrote it: remove it, or choose another place"
            raise TrainError(f"{self.url}/{name} is no claim of a job", hint=hint) from error
        theirs, ours = (who.rpartition(":")[0] for who in (job, self._job))
        if theirs and ours and theirs != ours:
            raise TrainError(
                f"{self.url} has checkpoints of tenant {theirs!r}, which are programs of theirs",
                hint=f"choose a place that tenant {ours!r} alone may write to",
            )
        return {"job": job, "attempt": attempt}

    def _check_owner(self) -> None:
        if not self._number:
            self._claim()
        if (highest := self._highest_claim()) != self._number:
            raise Fenced(f"{self.url} has claim {highest}, this attempt has {self._number}")

    def _highest_claim(self) -> int:
        return max((int(m[1]) for m in map(_CLAIM.fullmatch, self._names()) if m), default=0)

    def _list_kept(self) -> list[str]:
        """Names, newest first: of the last claim, then of the last step."""
        matches = [match for name in self._names() if (match := _NAME.fullmatch(name))]
        return [match[0] for match in sorted(matches, key=lambda match: (match[2], match[1]))][::-1]

    def _names(self) -> list[str]:
        self._fs.invalidate_cache()
        try:
            listed = self._fs.ls(self._root, detail=False)
        except FileNotFoundError:
            return []
        return [str(path).rpartition("/")[2] for path in listed]

    def _at(self, name: str) -> str:
        return f"{self._root}/{name}"

    @contextmanager
    def _speaking(self) -> Iterator[None]:
        """OSError for whatever the store's client raises."""
        try:
            yield
        except (Fenced, TrainError):
            raise
        except Exception as error:
            raise OSError(f"{self.url}: {type(error).__name__}: {error}") from error


def _open(url: str) -> tuple[Any, str]:
    try:
        from fsspec.core import url_to_fs

        store, path = url_to_fs(url, use_listings_cache=False, skip_instance_cache=True)
    except (ImportError, ValueError) as error:
        scheme = url.partition(":")[0]
        needs = {"s3": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "abfs": "adlfs", "az": "adlfs"}
        raise TrainError(
            f"checkpoints in {url} cannot be opened: {error}",
            hint=f"pip install {needs.get(scheme, 'fsspec')} in the job's environment",
        ) from error
    return store, str(path).rstrip("/")
