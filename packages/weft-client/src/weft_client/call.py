"""A Python function that runs as a job: what travels in files, on both sides.

The client writes the function and its arguments into a folder of its user, the job
(`python -m weft_client.run_call FOLDER`) writes what came of it beside them. Nothing of it passes
through the service. Both need the folder: on several machines it lies on a shared file system.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from weft_client.errors import Misused, NoResult

CALL, PATH = "call.pkl", "path.json"
FAILED = 1  # the exit code of a function that raised
DAY_S = 86_400.0


@dataclass(frozen=True, slots=True)
class Call:
    """A function, and what it is called with."""

    function: Callable[..., Any]
    args: Sequence[Any]
    kwargs: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Answer:
    """The value of a function, or the exception that it raised with its traceback as text."""

    value: Any = None
    error: BaseException | None = None
    trace: str = ""


def calls_folder() -> Path:
    """The folder in which calls are kept: WEFT_CALLS, or one in the user's data folder."""
    if named := os.environ.get("WEFT_CALLS"):
        return Path(named).absolute()
    data = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local/share"
    return Path(data) / "weft" / "calls"


def write_call(
    folder: Path, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Path:
    """Write a call into a new folder that only its user can read; the folder."""
    path = folder / secrets.token_hex(8)
    try:
        path.mkdir(mode=0o700, parents=True)
        (path / PATH).write_text(json.dumps([str(Path(each).absolute()) for each in sys.path]))
        _write(path / CALL, Call(function, args, kwargs))
    except OSError as error:
        raise Misused(
            f"cannot keep the call in {path}: {error.strerror}",
            hint="set WEFT_CALLS to a folder that you can write, and that the jobs can read",
        ) from error
    except Exception as error:  # whatever an object's own pickling raises
        shutil.rmtree(path, ignore_errors=True)
        name = getattr(function, "__name__", repr(function))
        raise Misused(
            f"{name} cannot travel to a job: {error}",
            hint="open files, locks and connections inside the function, not around it",
        ) from error
    return path


def read_answer(folder: Path, rank: int = 0) -> Answer:
    """Read the answer to a call; NoResult where there is none that can be read.

    A result is code: it is read only from a folder that this user owns.
    """
    path = folder / _result(rank)
    try:
        owners = {folder.lstat().st_uid, path.lstat().st_uid}
        answer = _read(path) if owners == {os.getuid()} else None
    except FileNotFoundError as error:
        raise NoResult(
            f"there is no result in {folder}",
            hint="the job has to see that folder: set WEFT_CALLS to a shared one",
        ) from error
    except Exception as error:
        raise NoResult(f"the result in {path} cannot be read: {error}") from error
    if not isinstance(answer, Answer):
        raise NoResult(f"{path} is not a result of this user's")
    return answer


def tidy(folder: Path, older_than_days: float) -> int:
    """Remove calls that nothing was written to for so long; the number removed."""
    before = time.time() - older_than_days * DAY_S
    old = [path for path in folder.glob("*/") if _last_written(path) < before]
    for path in old:
        shutil.rmtree(path, ignore_errors=True)
    return len(old)


def _last_written(folder: Path) -> float:
    return max(path.stat().st_mtime for path in (folder, *folder.iterdir()))


def _result(rank: int) -> str:
    return f"result.{rank}.pkl"


def _write(path: Path, value: Any) -> None:
    import cloudpickle

    part = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with part.open("wb") as out:
            cloudpickle.dump(value, out)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def _read(path: Path) -> Any:
    import cloudpickle

    with path.open("rb") as file:
        return cloudpickle.load(file)


def main(folder: Path) -> int:
    """Call the function that is kept there and write what came of it; the exit code."""
    rank = int(os.environ.get("RANK") or 0)
    answer = _answer(folder)
    try:
        _write(folder / _result(rank), answer)
    except OSError:
        raise
    except Exception as error:  # a value whose own pickling raises
        what = f"the result cannot travel back: {error}"
        answer = Answer(error=NoResult(what), trace=answer.trace)
        _write(folder / _result(rank), answer)
    if answer.error is None:
        return 0
    sys.stderr.write(answer.trace or f"{answer.error}\n")
    return FAILED


def _answer(folder: Path) -> Answer:
    try:
        # Its modules are where its client found them.
        wanted = json.loads((folder / PATH).read_text())
        sys.path += [path for path in wanted if path not in sys.path]
        call: Call = _read(folder / CALL)
        return Answer(call.function(*call.args, **call.kwargs))
    except Exception as error:
        return Answer(error=error, trace=traceback.format_exc())
