"""Small files that only the service can read, there completely or not at all."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any

from weft.core.errors import InvalidConfig, StoreError


def read_private(path: Path) -> Any:
    """JSON of a file; None where there is none."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise InvalidConfig(f"{path} cannot be read: {error}", hint="fix or remove it") from error


def write_private(path: Path, body: Any) -> None:
    """JSON that only we can read, there completely or not at all; StoreError on a full disk."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8") as out:
            json.dump(body, out, indent=1)
            out.flush()
            os.fsync(out.fileno())
        fresh.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            fresh.unlink()
        what = f"{path.name} cannot be written: {error.strerror}; nothing has changed"
        raise StoreError(what, hint=f"make room on the disk of {path.parent}") from error
