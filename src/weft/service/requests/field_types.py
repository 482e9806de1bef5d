"""Types of fields that a request may have: texts, names, paths and numbers, each within bounds."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Annotated

from pydantic import AfterValidator, Field

from weft.core.errors import InvalidConfig
from weft.core.model.execution import read_execution
from weft.core.model.job import MOST_CPUS, MOST_GPUS, MOST_MEM_GB

WORD = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
JOB_WORD = r"^([A-Za-z0-9][A-Za-z0-9._-]{0,63}:)?[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
MOST_TEXT = 131_072
LONGEST_NAME = 128
SCHEME = re.compile(r"[a-z][a-z0-9+.-]*")


def printable(text: str) -> str:
    """A text of one line, without control characters."""
    if not text.isprintable():
        raise ValueError("has a character that cannot be printed, such as a newline")
    return text


def _no_nul(text: str) -> str:
    if "\0" in text:
        raise ValueError("has a NUL character")
    return text


def _variable(name: str) -> str:
    if not name or "=" in name or "\0" in name:
        raise ValueError("is not the name of a variable: it is empty or has '=' or NUL")
    return name


def clean_path(text: str) -> str:
    """A path that is printable and does not climb."""
    if not text.isprintable():
        raise ValueError("has a character that cannot be printed, such as a newline or NUL")
    if ".." in PurePosixPath(text).parts:
        raise ValueError("has '..' in it; give the path without")
    return text


def _checkpoint_place(text: str) -> str:
    """A path, or an address in an object store without credentials."""
    scheme, separator, rest = clean_path(text).partition("://")
    if not separator:
        return text
    if scheme == "file" and rest.startswith("/"):
        return rest
    bucket = rest.partition("/")[0]
    if "@" in bucket:
        raise ValueError("has credentials in it; give them as variables of the job")
    of_a_store = SCHEME.fullmatch(scheme) and scheme not in ("file", "memory")
    if not of_a_store or not bucket or set("?#") & set(rest):
        raise ValueError("is neither a path nor an address like s3://bucket/folder")
    return text.rstrip("/")


def _plan(text: str) -> str:
    try:
        return read_execution(text).text
    except InvalidConfig as error:
        raise ValueError(str(error)) from error


Word = Annotated[str, Field(pattern=WORD)]
PlanText = Annotated[str, Field(min_length=1, max_length=64), AfterValidator(_plan)]
JobWord = Annotated[str, Field(pattern=JOB_WORD)]
Name = Annotated[str, Field(min_length=1, max_length=LONGEST_NAME), AfterValidator(printable)]
Text = Annotated[str, Field(max_length=MOST_TEXT), AfterValidator(_no_nul)]
Variable = Annotated[str, Field(min_length=1, max_length=256), AfterValidator(_variable)]
CheckpointPlace = Annotated[str, Field(max_length=4096), AfterValidator(_checkpoint_place)]
FilePath = Annotated[str, Field(min_length=1, max_length=4096), AfterValidator(clean_path)]
Count = Annotated[int, Field(ge=1, le=MOST_GPUS, strict=True)]
CountOrNone = Annotated[int, Field(ge=0, le=MOST_GPUS, strict=True)]
Positive = Annotated[float, Field(gt=0.0, le=1e12, allow_inf_nan=False, strict=True)]
ExitCode = Annotated[int, Field(ge=-64, le=255, strict=True)]
Whole = Annotated[float, Field(ge=0.0, le=1e12, allow_inf_nan=False, strict=True)]
Cpus = Annotated[float, Field(gt=0.0, le=MOST_CPUS, allow_inf_nan=False, strict=True)]
MemGb = Annotated[float, Field(gt=0.0, le=MOST_MEM_GB, allow_inf_nan=False, strict=True)]
Number = Annotated[float, Field(ge=-1e15, le=1e15, allow_inf_nan=False, strict=True)]
