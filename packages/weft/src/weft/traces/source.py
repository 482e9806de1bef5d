"""Files to read: plain, gzip, zip, tar, and directories of them, told apart by content."""

from __future__ import annotations

import csv
import gzip
import io
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from typing import IO, cast

from weft.core.errors import TraceError
from weft.frozen import frozen

MAX_FILES = 2_000
SAMPLE_BYTES = 65_536
_OPENED: ContextVar[ExitStack | None] = ContextVar("opened", default=None)
GZIP, ZIP = b"\x1f\x8b", b"PK\x03\x04"


@frozen
class FileSample:
    """The beginning of a file, enough to recognise its format."""

    name: str
    text: str

    @property
    def lines(self) -> list[str]:
        """The first lines, without empty ones."""
        return [line for line in self.text.splitlines()[:20] if line.strip()]

    @property
    def header(self) -> frozenset[str]:
        """The comma-separated cells of the first line."""
        return frozenset(self.cells(0))

    def cells(self, line: int, delimiter: str = ",") -> list[str]:
        lines = self.lines
        return [c.strip() for c in lines[line].split(delimiter)] if line < len(lines) else []


@frozen
class TraceFile:
    """One readable file, possibly inside an archive; `path` is how errors name it.

    `head` is its beginning where that was met on the way to the member.
    """

    path: str
    open: Callable[[], IO[bytes]]
    head: bytes = b""

    @property
    def name(self) -> str:
        """The last part of the path, lower case."""
        return self.path.replace(":", "/").rsplit("/", 1)[-1].lower()

    def text(self) -> io.TextIOWrapper:
        """The content, decompressed and decoded."""
        text = io.TextIOWrapper(_plain(self.open()), encoding="utf-8-sig", newline="")
        opened = _OPENED.get()
        return text if opened is None else opened.enter_context(text)

    def sample(self) -> FileSample:
        """The first 64 kB; undecodable bytes are replaced."""
        with reading(self.path), _plain(self._start()) as stream:
            data = _head(stream, SAMPLE_BYTES)
        text = data.decode("utf-8-sig", errors="replace")
        if len(data) == SAMPLE_BYTES and "\n" in text:
            text = text[: text.rindex("\n")]
        return FileSample(self.name, text)

    def _start(self) -> IO[bytes]:
        return io.BytesIO(self.head) if self.head else self.open()


def members(path: Path) -> tuple[TraceFile, ...]:
    """Every file behind `path`, in order of name."""
    if not path.exists():
        raise TraceError(
            f"{path}: no such file", hint="give a trace file, or a name from `weft list trace`"
        )
    if path.is_file():
        return tuple(_unpack(path))
    if not path.is_dir():
        raise TraceError(
            f"{path}: a device or a pipe, which may have no end",
            hint="write its content to a file, and give that",
        )
    files = [f for f in sorted(path.rglob("*")) if f.is_file() and not f.name.startswith(".")]
    if len(files) > MAX_FILES:
        raise TraceError(
            f"{path}: holds {len(files):,} files, more than {MAX_FILES:,}",
            hint="name the folder of one trace",
        )
    return tuple(member for file in files for member in _unpack(file))


@contextmanager
def closing_all() -> Iterator[None]:
    """Close every file that is read within, also where an error keeps its reader alive."""
    with ExitStack() as opened:
        before = _OPENED.set(opened)
        try:
            yield
        finally:
            _OPENED.reset(before)


@contextmanager
def reading(path: str, line: Callable[[], int] = lambda: 0) -> Iterator[None]:
    """Turn a broken file into a TraceError that says where it breaks."""
    try:
        yield
    except EOFError as error:
        raise TraceError.at(
            path,
            line() + 1,
            "",
            "end of compressed data",
            "the rest of the file",
            hint="the file is truncated; copy or download it again",
        ) from error
    except (gzip.BadGzipFile, zlib.error, zipfile.BadZipFile, tarfile.TarError) as error:
        raise TraceError(
            f"{path}: damaged archive: {error}", hint="copy or download the file again"
        ) from error
    except (csv.Error, PermissionError) as error:
        raise TraceError(
            f"{path}, line {line() + 1}: {error}", hint="is this a readable trace file?"
        ) from error
    except OSError as error:
        raise TraceError(
            f"{path}: cannot be read: {error.strerror or error}",
            hint="give a file that can be read from its beginning to its end",
        ) from error
    except UnicodeDecodeError as error:
        raise TraceError.at(
            path,
            line() + 1,
            "",
            error.object[error.start : error.start + 4],
            "UTF-8 text",
            hint="the file is not text, or was saved in another encoding",
        ) from error


def _unpack(path: Path) -> Iterator[TraceFile]:
    with reading(str(path)), path.open("rb") as raw:
        start = raw.read(4)
    if start == ZIP:
        yield from _open_zip(path)
    elif _is_tar(path):
        yield from _open_tar(path)
    else:
        yield TraceFile(str(path), lambda: path.open("rb"))


def _open_zip(path: Path) -> Iterator[TraceFile]:
    with reading(str(path)), zipfile.ZipFile(path) as archive:
        names = sorted(i.filename for i in archive.infolist() if not i.is_dir())
    for name in names:
        yield TraceFile(f"{path}:{name}", partial(_from_zip, path, name))


def _from_zip(path: Path, name: str) -> IO[bytes]:
    with zipfile.ZipFile(path) as archive:
        return io.BytesIO(archive.read(name))


def _open_tar(path: Path) -> Iterator[TraceFile]:
    # A compressed tar can only be read from the front, so the heads are taken in one pass.
    with reading(str(path)), tarfile.open(path) as archive:
        for info in archive:
            content = archive.extractfile(info) if info.isfile() else None
            if content is not None:
                head = content.read(2 * SAMPLE_BYTES)
                yield TraceFile(f"{path}:{info.name}", partial(_from_tar, path, info.name), head)


def _from_tar(path: Path, name: str) -> IO[bytes]:
    with tarfile.open(path) as archive:
        content = archive.extractfile(name)
        return io.BytesIO(content.read() if content else b"")


def _is_tar(path: Path) -> bool:
    with reading(str(path)), _plain(path.open("rb")) as stream:
        try:
            return _head(stream, 512)[257:262] == b"ustar"
        except EOFError:
            return False


def _plain(raw: IO[bytes]) -> IO[bytes]:
    start = raw.read(2)
    raw.seek(0)
    return cast("IO[bytes]", _Gunzip(raw)) if start == GZIP else raw


class _Gunzip(gzip.GzipFile):
    """A gzip stream that closes the file below it."""

    def __init__(self, raw: IO[bytes]) -> None:
        super().__init__(fileobj=raw)
        self._raw = raw

    def close(self) -> None:
        super().close()
        self._raw.close()


def _head(stream: IO[bytes], size: int) -> bytes:
    data = b""
    while len(data) < size:
        try:
            block = stream.read(size - len(data))
        except EOFError:
            # A truncated file is recognised by what is left; reading it on will say so.
            if data:
                return data
            raise
        if not block:
            break
        data += block
    return data
