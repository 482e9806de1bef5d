"""Getting published files by https or git, from where an earlier try stopped."""

from __future__ import annotations

import gzip
import hashlib
import http.client
import os
import shutil
import subprocess
import tarfile
import time
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlsplit
from urllib.request import Request, urlopen

from benchmarks.data import DataFile, Repository
from benchmarks.data.transforms import TRANSFORMS

TRIES = 4
TIMEOUT_S = 60.0
CUT = (ConnectionError, TimeoutError, http.client.HTTPException)
DAMAGED = (tarfile.TarError, zlib.error, OSError, EOFError, KeyError, ValueError)

Progress = Callable[[int], None]  # called with the number of new bytes


class FetchError(Exception):
    """One published file could not be had."""


class UnreachableError(FetchError):
    """Nothing of this source can be had at present."""


class Source(Protocol):
    """A way to read the files of a repository."""

    def read(self, file: DataFile, progress: Progress) -> bytes:
        """Return the published bytes that `file` is made from."""
        ...


def fetch(folder: Path, files: Iterable[DataFile], source: Source, progress: Progress) -> list[str]:
    """Fetch what is missing of `files` into `folder`; return one sentence per failure."""
    wrong = []
    published: dict[tuple[str, str], list[DataFile]] = {}
    for file in files:
        if not (folder / file.path).exists():
            published.setdefault((_repository(file).name, file.public_path), []).append(file)
        elif file.is_intact(folder):
            progress(file.size)
        else:
            wrong.append(
                f"{folder / file.path} is not the published file (its sha256 differs); "
                "move it away and fetch again"
            )
    for made in published.values():
        try:
            content = source.read(made[0], progress)
            for file in made:
                write(folder, file, content)
        except UnreachableError:
            raise
        except FetchError as error:
            wrong.append(str(error))
    return wrong


def write(folder: Path, file: DataFile, published: bytes) -> None:
    """Write `file` from its published bytes, or nothing if they are not those we know."""
    name, _, argument = file.transform.partition(" ")
    try:
        content = TRANSFORMS[name](published, argument)
    except DAMAGED as error:
        raise FetchError(f"{_name(file)} is damaged: {error}") from error
    got = hashlib.sha256(content).hexdigest()
    if got != file.sha256:
        sums = f"{file.path} would have sha256 {got[:16]}, expected {file.sha256[:16]}"
        raise FetchError(f"{_name(file)} is not the file that we know: {sums}")
    path = folder / file.path
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.new")
    fresh.write_bytes(gzip.compress(content, mtime=0) if path.suffix == ".gz" else content)
    fresh.replace(path)


def _repository(file: DataFile) -> Repository:
    assert file.repository is not None, f"{file.path} is derived"
    return file.repository


def _name(file: DataFile) -> str:
    repository = _repository(file)
    return f"{file.public_path} of {repository.url} at {repository.commit[:12]}"


@dataclass
class Https:
    """Reads single files over HTTP; a file that was cut off is continued by a range request."""

    parts: Path  # folder of unfinished files
    base: str = "https://raw.githubusercontent.com"
    pause_s: float = 1.0

    def read(self, file: DataFile, progress: Progress) -> bytes:
        """Return the published bytes, continuing an unfinished file."""
        repository = _repository(file)
        url = f"{self.base}/{repository.address}/{repository.commit}/{quote(file.public_path)}"
        if urlsplit(url).scheme not in ("http", "https"):
            raise UnreachableError(f"{self.base} is no http address; `--by git` reads file:// ones")
        part = self.parts / repository.name / repository.commit[:12] / file.public_path
        part.parent.mkdir(parents=True, exist_ok=True)
        for attempt in range(TRIES):
            try:
                self._continue(url, part, file.size, progress)
            except HTTPError as error:
                if error.code < 500 and error.code not in (416, 429):
                    raise FetchError(f"{url}: {error.code} {error.reason}") from error
                if error.code == 416:  # the server disagrees about what is here: begin again
                    part.unlink(missing_ok=True)
                reason: object = f"{error.code} {error.reason}"
            except (URLError, *CUT) as error:
                reason = getattr(error, "reason", error)
            else:
                content = part.read_bytes()
                part.unlink()
                return content
            if attempt < TRIES - 1:
                time.sleep(self.pause_s * 2**attempt)
        have = part.stat().st_size if part.exists() else 0
        sentence = f"{url}: {reason}, {have} of {file.size} bytes are here; fetch again to continue"
        raise FetchError(sentence) if have else UnreachableError(sentence)

    def _continue(self, url: str, part: Path, size: int, progress: Progress) -> None:
        have = part.stat().st_size if part.exists() else 0
        if have == size:
            progress(size)
            return
        if have > size:
            part.unlink()
            have = 0
        headers = {"Range": f"bytes={have}-"} if have else {}
        with urlopen(Request(url, headers=headers), timeout=TIMEOUT_S) as reply:
            if have and not reply.headers.get("Content-Range", "").startswith(f"bytes {have}-"):
                have = 0  # the server sends the whole file
            progress(have)
            with part.open("ab" if have else "wb") as out:
                while block := reply.read(1 << 16):
                    out.write(block)
                    progress(len(block))
        have = part.stat().st_size
        if have < size:
            progress(-have)
            raise ConnectionError("the connection was cut")
        if have > size:
            part.unlink()
            raise FetchError(f"{url} is not the file that we know: {have} bytes, expected {size}")


@dataclass
class Git:
    """Reads files with git: one shallow fetch per repository, of these files alone."""

    parts: Path
    base: str = "https://github.com"

    def read(self, file: DataFile, progress: Progress) -> bytes:
        """Return the published bytes at the repository's commit."""
        repository = _repository(file)
        if shutil.which("git") is None:
            raise UnreachableError("git is not installed; install it, or fetch with `--by https`")
        store = self.parts / f"{repository.name}-{repository.commit[:12]}.git"
        known = f"{repository.commit}^{{commit}}"
        if not store.is_dir() or _git(store, "cat-file", "-e", known).returncode:
            self._begin(store, repository)
        result = _git(store, "cat-file", "blob", f"{repository.commit}:{file.public_path}")
        if result.returncode:
            reason = _last_line(result.stderr)
            raise FetchError(f"{file.public_path} of {self._url(repository)}: {reason}")
        progress(file.size)
        return result.stdout

    def _url(self, repository: Repository) -> str:
        return f"{self.base}/{repository.address}"

    def _begin(self, store: Path, repository: Repository) -> None:
        shutil.rmtree(store, ignore_errors=True)
        store.mkdir(parents=True)
        url = self._url(repository)
        steps = (
            ("init", "--quiet", "--bare"),
            ("remote", "add", "origin", url),
            ("fetch", "--quiet", "--depth=1", "--filter=blob:none", "origin", repository.commit),
        )
        for step in steps:
            result = _git(store, *step)
            if result.returncode:
                shutil.rmtree(store)
                raise UnreachableError(f"{url}: {_last_line(result.stderr)}")


def _git(store: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    quiet = {**os.environ, "GIT_TERMINAL_PROMPT": "0", "GIT_DIR": str(store), "LC_ALL": "C"}
    return subprocess.run(["git", *arguments], capture_output=True, env=quiet, check=False)


def _last_line(text: bytes) -> str:
    lines = text.decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else "git gave no reason"
