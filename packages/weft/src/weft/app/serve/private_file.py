"""What a service was configured with when it last started.

A policy or a quota that was changed while the service ran lasts over restarts, until someone
changes the configuration itself. So a start compares the configuration with the one before it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

from weft.app.serve.private_file import read_private, write_private
from weft.core.errors import InvalidConfig
from weft.core.spec.part_spec import PartSpec
from weft.frozen import frozen

FILE = "configuration.json"


@frozen
class Configuration:
    """What can be configured and also changed live; a `policy` of None leaves it open."""

    policy: str | None = None
    lending: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, policy: PartSpec | None, lending: Mapping[str, Any]) -> Configuration:
        """As the options or the file say."""
        return cls(None if policy is None else policy.text, dict(lending))

    @classmethod
    def read(cls, folder: Path) -> Configuration | None:
        """Of the last start; None if there was none."""
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
        """For the next start."""
        write_private(folder / FILE, {"policy": self.policy, "lending": dict(self.lending)})

    def describe_changes(self, policy: PartSpec, quotas: Any) -> list[str]:
        """What runs otherwise than configured, because it was changed live; for the log."""
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
