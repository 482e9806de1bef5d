"""The token of a cluster of Ray: a random word, in a file of its owner's."""

from __future__ import annotations

import os
import re
import secrets
from pathlib import Path

from weft.core.errors import InvalidConfig

LONGEST = 4096  # bytes
WORD = re.compile(r"[!-~]+")  # what can be sent beside a request


def make_token(path: Path) -> Path:
    """A file that only its owner reads, with a random token; kept if there."""
    try:
        read_token(path)
        path.chmod(0o600)
    except InvalidConfig:
        write_token(path, secrets.token_hex(32))
    return path


def read_token(path: Path) -> str:
    """The token in a file; InvalidConfig if there is none."""
    if not path.is_file():
        raise InvalidConfig(f"there is no file {path}", hint="name the file of the cluster's token")
    try:
        with path.open("rb") as file:
            return check_token(file.read(LONGEST + 1))
    except OSError as error:
        raise InvalidConfig(f"{path} cannot be read: {error.strerror}") from error


def check_token(content: bytes) -> str:
    """What was said as a token, without space around it; InvalidConfig if it cannot be one."""
    token = content.decode("ascii", "replace").strip()
    if len(content) > LONGEST or not WORD.fullmatch(token):
        raise InvalidConfig(
            f"this is not the token of a cluster: {token[:20]!r}",
            hint="it is one word, in the file that `weft serve --engine ray` names",
        )
    return token


def write_token(path: Path, token: str) -> None:
    """Keep a token where only its owner reads it, there completely or not at all."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as out:
        out.write(token)
    fresh.replace(path)
