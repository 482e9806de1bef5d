"""Small files that only the service can read, and what it was configured with last.

A policy or a quota that was changed while the service ran lasts over restarts, until someone
changes the configuration itself. So a start compares the configuration with the one before it.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

from weft.core.errors import InvalidConfig, StoreError
from weft.core.spec.part_spec import PartSpec
from weft.frozen import frozen


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


FILE = "configuration.json"


@frozen
class LiveSettings:
    """The settings that people can also change live; a `policy` of None leaves it open."""

    policy: str | None = None
    lending: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, policy: PartSpec | None, lending: Mapping[str, Any]) -> LiveSettings:
        """Return what the options or the file ask for."""
        return cls(None if policy is None else policy.text, dict(lending))

    @classmethod
    def read(cls, folder: Path) -> LiveSettings | None:
        """Read the file of the last start; None if there was none."""
        path = folder / FILE
        kept = read_private(path)
        if kept is None:
            return None
        try:
            return cls(kept["policy"], dict(kept["lending"]))
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidConfig(
                f"{path} does not hold a configuration: {error!r}", hint="fix or remove it"
            ) from error

    def write(self, folder: Path) -> None:
        write_private(folder / FILE, {"policy": self.policy, "lending": dict(self.lending)})

    def describe_changes(self, policy: PartSpec, quotas: Any) -> list[str]:
        """Settings that run otherwise than configured, because they were changed live.

        For the log.
        """
        changes = []
        if self.policy is not None and self.policy != policy.text:
            changes.append(
                f"policy {policy.text}, set while the service ran, stays in force; the "
                f"configuration says {self.policy} (`weft policy {self.policy!r}` returns to it)"
            )
        for rule, wanted in self.lending.items():
            current = getattr(quotas, rule)
            if current != wanted:
                changes.append(
                    f"{rule} {current!r}, set while the service ran, stays in force; the "
                    f"configuration says {wanted!r} (`weft quota set` returns to it)"
                )
        return changes
