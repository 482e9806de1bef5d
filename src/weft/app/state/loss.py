"""Going on without rows that the log lacks, because somebody said so."""

from __future__ import annotations

from pathlib import Path

from weft.app.state.folder import LOG
from weft.core.errors import InvalidConfig
from weft.store.sqlite import SqliteStore

ACCEPTED = "it is missing, and somebody accepted that"


def accept_loss(state: Path) -> list[int]:
    """Mark every missing row as lost for good; which ones. The service must not run."""
    if not (state / LOG).is_file():
        raise InvalidConfig(f"{state} holds no log", hint="name the service's folder with --state")
    store = SqliteStore(state / LOG)
    try:
        lost = store.missing()
        for seq in lost:
            store.set_aside(seq, ACCEPTED)
    finally:
        store.close()
    return lost
